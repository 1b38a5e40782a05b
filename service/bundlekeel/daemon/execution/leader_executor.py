"""The leader's executor of one term: moves and splits, its records in the shared state, and the intents earlier terms
left.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog

from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.plan import Move, Refusal, Split
from bundlekeel.core.operations.relocation import RULES
from bundlekeel.core.planning.ledger import LedgerEntry
from bundlekeel.core.splitting.children import Family
from bundlekeel.daemon.execution.executor import Executor, ExecutorHooks, ExecutorLimits
from bundlekeel.daemon.execution.intents import INTENTS, FirstSeen, MoveOutcome, Settlement, settle_intents
from bundlekeel.daemon.execution.move import LeaderTerm as ExecutorTerm
from bundlekeel.daemon.execution.move import MovePorts, MoveRequest
from bundlekeel.daemon.execution.split_intents import SPLITS, SplitOutcome, settle_splits
from bundlekeel.daemon.execution.splits import SplitRequest, Splitter
from bundlekeel.daemon.gate.gate import Action, Gate, GateQuestion
from bundlekeel.daemon.state.leadership import Leadership
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.ports import DocumentChange

_log = structlog.get_logger(__name__)


# What a plan predicted for a move: scores (ratios) of its two brokers.
PREDICTED = ("source_before", "source_after", "target_before", "target_after")
# Of the time an intent stands, so much may go into waiting for the landing; the rest is the call's.
CONFIRM_SHARE = 0.2


def move_record(outcome: MoveOutcome) -> dict[str, Any]:
    """The journal line of one move."""
    landed = outcome.landed_on or "no broker"
    return {
        "kind": "move",
        # When it ended: a move may have waited for its turn, and for its deadline, for many seconds.
        "wall_ms": outcome.landed_wall_ms or outcome.started_wall_ms + round(1000 * outcome.seconds),
        "bundle": outcome.bundle,
        "source": outcome.source,
        "destination": outcome.destination,
        "landed_on": outcome.landed_on,
        "outcome": outcome.outcome,
        "code": outcome.code,
        "error": outcome.error,
        "started_ms": outcome.started_wall_ms,
        "landed_ms": outcome.landed_wall_ms,
        "seconds": round(outcome.seconds, 3),
        "hops": list(outcome.hops),
        "topic": outcome.topic,
        "epoch": outcome.epoch,
        "intent": outcome.intent_id,
        "cycle": outcome.cycle_id,
        "predicted": dict(zip(PREDICTED, (round(value, 5) for value in outcome.predicted), strict=False)),
        "sentence": f"{outcome.bundle}: {outcome.source} -> {outcome.destination}, "
        f"{outcome.outcome.replace('_', ' ')}, owned by {landed}",
    }


class LeaderExecutor:
    """`cycle.Hand` for whoever leads: `begin` starts a term, `stop` ends it; in between moves may be carried out."""

    def __init__(
        self, world: MovePorts, leadership: Leadership, shared_state: SharedState, limits: ExecutorLimits, gate: Gate
    ) -> None:
        """`gate` is asked before each move and split."""
        self._world = world
        self._gate = gate
        self._leadership = leadership
        self._shared_state = shared_state
        self._limits = limits
        self._executor: Executor | None = None
        self._splitter: Splitter | None = None
        self._epoch = -1
        self._seen: FirstSeen = {}
        self._settled_splits: list[SplitOutcome] = []
        self._on_outcome: Callable[[MoveOutcome], None] = _ignored
        # Asked right before each move (daemon/sources/policies.py); set where the daemon is put together.
        self.forbids: Callable[[str, str], Awaitable[Refusal | None]] = _nothing
        # What a person asked for that is being carried out, as the gate let it begin; None: a cycle's own plan.
        self.request: GateQuestion | None = None
        # Which moves of the cycle under way a drain or a warm-up asked for.
        self._relocated: frozenset[str] = frozenset()
        self.durations = Durations()

    async def split(
        self,
        splits: Sequence[Split],
        *,
        epoch: int,
        cycle: int,
        max_bundles: int,
        prepare: Callable[[Family], None],
        on_outcome: Callable[[SplitOutcome], Awaitable[None]],
    ) -> list[SplitOutcome]:
        """Split bundles of this term, one after the other; `prepare` hears of the children right before each call."""
        if self._splitter is None or epoch != self._epoch:
            return []
        outcomes = []
        self._splitter.prepare = prepare
        self._relocated = frozenset()
        for split in splits:
            request = SplitRequest(
                bundle=split.bundle,
                broker=split.broker,
                rule=split.rule,
                max_bundles=max_bundles,
                cycle_id=self._cause(cycle),
                at=split.at,
                halves=split.halves,
            )
            outcome = await self._splitter.split(request)
            await on_outcome(outcome)
            outcomes.append(outcome)
            if outcome.outcome == "unknown":
                # A broker does not answer: the other intents wait for the next cycle, and this cycle for no other
                # broker.
                break
        return outcomes

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Bundles being moved or waiting for a slot, sorted."""
        return () if self._executor is None else self._executor.in_flight

    def begin(self, epoch: int) -> None:
        """A new term: a new executor."""
        self._epoch = epoch
        permit = partial(self._leadership.permit, epoch)
        term = ExecutorTerm(epoch=epoch, member=self._leadership.member.id, permit=permit)
        hooks = ExecutorHooks(
            policy=self._policy, on_outcome=self._tell, changes=self._changes, confirm_seconds=self._confirm_seconds
        )
        self._executor = Executor(self._world, term, limits=self._limits, hooks=hooks)
        self._splitter = Splitter(world=self._world, term=term, limits=self._limits, policy=self._not_now)

    async def carry_out(
        self, moves: Sequence[Move], *, epoch: int, cycle: int, on_outcome: Callable[[MoveOutcome], None]
    ) -> list[MoveOutcome]:
        """Carry out moves of this term; calls back as each one ends. Moves of another term are not begun."""
        if self._executor is None or epoch != self._epoch:
            return []
        self._on_outcome = on_outcome
        self._relocated = frozenset(move.bundle for move in moves if move.rule in RULES)
        requests = [
            MoveRequest(
                bundle=move.bundle,
                source=move.source,
                destination=move.target,
                cycle_id=self._cause(cycle),
                predicted=(move.source_before, move.source_after, move.target_before, move.target_after),
            )
            for move in moves
        ]
        return await self._executor.execute(requests)

    async def settle(self) -> Settlement:
        """Settle what earlier terms left open; the rest stays frozen. StoreError when the store does not answer."""
        # Splits first: what `settle_intents` settled would be lost if the store failed us after it.
        splitting, splits, unreadable = await settle_splits(self._world, epoch=self._epoch, seen=self._seen)
        self._shared_state.set_aside(SPLITS, unreadable)
        self._settled_splits += splits
        settlement = await settle_intents(
            self._world.coordination,
            self._world.ownership,
            epoch=self._epoch,
            clock=self._world.clock,
            seen=self._seen,
            changes=self._changes,
        )
        settlement = replace(settlement, frozen=settlement.frozen | splitting)
        self._shared_state.frozen = settlement.frozen
        self._shared_state.set_aside(INTENTS, settlement.unreadable)
        return settlement

    async def flush(self) -> None:
        """Try again to remove intents of this term that the store did not let go of when their moves were over."""
        if self._executor is not None and self._splitter is not None:
            await self._executor.flush()
            await self._splitter.flush()

    def settled_splits(self) -> list[SplitOutcome]:
        """Splits of earlier terms that were settled since this was asked last."""
        found, self._settled_splits = self._settled_splits, []
        return found

    async def arrived(self, entries: Sequence[LedgerEntry]) -> dict[str, str]:
        """Which of these moves an earlier leader left open have reached their target: bundle -> broker."""
        found: dict[str, str] = {}
        for entry in entries:
            try:
                owner = await self._world.ownership.owner(entry.bundle)
            except CodecError:
                continue
            if owner is not None and not owner.disabled and owner.broker_id == entry.target:
                found[entry.bundle] = entry.target
        return found

    async def stop(self, seconds: float) -> tuple[str, ...]:
        """Begin no more and let calls in flight finish; bundles still under way are left to the next leader."""
        if self._executor is None or self._splitter is None:
            return ()
        _, left = await asyncio.gather(self._splitter.stop(seconds), self._executor.stop(seconds))
        return left

    async def _policy(self, request: MoveRequest) -> Refusal | None:
        bundle, target = request.bundle, request.destination
        return await self._not_now(bundle, source=request.source, target=target) or await self.forbids(bundle, target)

    async def _not_now(self, bundle: str, *, source: str = "", target: str = "") -> Refusal | None:
        """A pause or a lowered mode stops a plan half-way too: the gate is asked anew before each move and split."""
        action = Action.RELOCATION if bundle in self._relocated else Action.PLAN
        asked = self.request or GateQuestion(action=action)
        question = replace(asked, epoch=self._epoch, bundle=bundle, source=source, target=target)
        obstacle = await self._gate.check_anew(question)
        return Refusal(code=obstacle.code, bundle=bundle, detail=obstacle.detail) if obstacle is not None else None

    def _cause(self, cycle: int) -> str:
        """What moves and splits are recorded under: the task a person asked for, or the cycle."""
        return self.request.task if self.request is not None else str(cycle)

    def seconds_per_move(self) -> float:
        """How long a move takes here, as far as is known: for an ETA."""
        return self.durations.seconds_per_move(self._world.mode())

    def _confirm_seconds(self, usual: float) -> float:
        return self.durations.confirm_seconds(self._world.mode(), usual, CONFIRM_SHARE * self._limits.intent_seconds)

    def _tell(self, outcome: MoveOutcome) -> None:
        if outcome.outcome == "done" and outcome.moving_seconds:
            self.durations.add(self._world.mode(), outcome.moving_seconds)
        self._on_outcome(outcome)

    def _changes(self, outcome: MoveOutcome) -> Sequence[DocumentChange]:
        """The move's record, written together with the removal of its intent."""
        return self._shared_state.move_change(move_record(outcome))


async def _nothing(_bundle: str, _destination: str) -> Refusal | None:
    return None


def _ignored(_outcome: MoveOutcome) -> None:
    return None


# How long moves take here: learned from those that landed, per load manager.


KEPT: Final = 200
# Fewer say nothing of the slowest twentieth.
ENOUGH: Final = 20
# A landing may take this many times as long as nearly all did before it counts as lost.
PATIENCE: Final = 3.0
# Nothing known yet: what moves take in a quiet cluster.
GUESS_SECONDS: Final = 1.0


class Durations:
    """The newest durations by mode (`modular`, `extensible`), in seconds from the first call to the landing."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[float]] = {}

    def add(self, mode: str, seconds: float) -> None:
        """A move landed."""
        if math.isfinite(seconds) and seconds >= 0:
            self._kept.setdefault(mode, deque(maxlen=KEPT)).append(seconds)

    def median(self, mode: str) -> float | None:
        """Half of the moves took no longer; None when none is known."""
        return self._quantile(mode, 0.5)

    def p95(self, mode: str) -> float | None:
        """Nineteen of twenty moves took no longer; None while fewer than twenty are known."""
        return self._quantile(mode, 0.95) if len(self._kept.get(mode, ())) >= ENOUGH else None

    def seconds_per_move(self, mode: str) -> float:
        """What to reckon with for one move, for an ETA."""
        median = self.median(mode)
        return GUESS_SECONDS if median is None else median

    def confirm_seconds(self, mode: str, usual: float, most: float) -> float:
        """How long to wait for a landing: never less than usual, never more than an intent allows (`most`)."""
        p95 = self.p95(mode)
        return usual if p95 is None else max(usual, min(most, PATIENCE * p95))

    def _quantile(self, mode: str, share: float) -> float | None:
        kept = sorted(self._kept.get(mode, ()))
        return kept[max(0, math.ceil(share * len(kept)) - 1)] if kept else None
