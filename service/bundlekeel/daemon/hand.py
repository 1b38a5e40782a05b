"""The leader's hand for one term: an executor, its records in the shared state, and the intents earlier terms left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from bundlekeel.core.codes import Code
from bundlekeel.core.errors import CodecError, StoreError
from bundlekeel.core.ledger import Entry
from bundlekeel.core.plan import Move, Refusal, Split
from bundlekeel.core.scope import pattern_for
from bundlekeel.core.splitting.children import Family
from bundlekeel.daemon.acting import Obstacle, mode_in_force, pause_in_force, scope_in_force
from bundlekeel.daemon.attempt import MoveRequest, World
from bundlekeel.daemon.attempt import Term as ExecutorTerm
from bundlekeel.daemon.canary import namespaces_of, outside
from bundlekeel.daemon.durations import Durations
from bundlekeel.daemon.executor import Executor, ExecutorHooks, ExecutorLimits
from bundlekeel.daemon.intents import INTENTS, MoveOutcome, Settlement, settle_intents
from bundlekeel.daemon.leadership import Leadership
from bundlekeel.daemon.sharing import Sharing
from bundlekeel.daemon.split_intents import SPLITS, SplitOutcome, settle_splits
from bundlekeel.daemon.splits import SplitRequest, Splitter
from bundlekeel.ports import Change

_log = structlog.get_logger(__name__)


# What a plan predicted for a move: scores (ratios) of its two brokers.
PREDICTED = ("source_before", "source_after", "target_before", "target_after")
# Of the time an intent stands, so much may go into waiting for the landing; the rest is the call's.
CONFIRM_SHARE = 0.2


def move_record(outcome: MoveOutcome) -> dict[str, Any]:
    """The journal line of one move."""
    landed = outcome.landed_on or "nobody"
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


class LeaderHand:
    """`cycle.Hand` for whoever leads: `begin` starts a term, `stop` ends it; in between moves may be carried out."""

    def __init__(self, world: World, leadership: Leadership, sharing: Sharing, limits: ExecutorLimits) -> None:
        self._world = world
        self._leadership = leadership
        self._sharing = sharing
        self._limits = limits
        self._executor: Executor | None = None
        self._splitter: Splitter | None = None
        self._epoch = -1
        self._seen: dict[str, float] = {}
        self._settled_splits: list[SplitOutcome] = []
        self._on_outcome: Callable[[MoveOutcome], None] = _nobody
        # Asked right before each move (daemon/policies.py); set where the daemon is put together.
        self.forbids: Callable[[str, str], Awaitable[Refusal | None]] = _nothing
        # The task a person asked for whose moves are being carried out: he may stop it between two of them.
        self.task = ""
        self.durations = Durations()
        # What stops everything right now (an outage that begins amid a plan); set there as well.
        self.stop_now: Callable[[], Obstacle | None] = lambda: None

    async def split(
        self,
        splits: Sequence[Split],
        *,
        epoch: int,
        cycle: int,
        max_bundles: int,
        prepare: Callable[[Family], None],
        on_outcome: Callable[[SplitOutcome], None],
    ) -> list[SplitOutcome]:
        """Split bundles of this term, one after the other; `prepare` hears of the children right before each call."""
        if self._splitter is None or epoch != self._epoch:
            return []
        outcomes = []
        self._splitter.prepare = prepare
        for split in splits:
            request = SplitRequest(
                bundle=split.bundle,
                broker=split.broker,
                rule=split.rule,
                max_bundles=max_bundles,
                cycle_id=self.task or str(cycle),
                at=split.at,
            )
            outcome = await self._splitter.split(request)
            on_outcome(outcome)
            outcomes.append(outcome)
            if outcome.outcome == "unknown":
                # Somebody does not answer: the others wait for the next cycle, and this one for nobody else.
                break
        return outcomes

    def begin(self, epoch: int) -> None:
        """A new term: a new executor, and every intent of another epoch is looked at afresh."""
        self._epoch = epoch
        self._seen = {}
        term = ExecutorTerm(epoch=epoch, member=self._leadership.member.id, permit=self._leadership.permit)
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
        requests = [
            MoveRequest(
                bundle=move.bundle,
                source=move.source,
                destination=move.target,
                cycle_id=self.task or str(cycle),
                predicted=(move.source_before, move.source_after, move.target_before, move.target_after),
            )
            for move in moves
        ]
        return await self._executor.execute(requests)

    async def settle(self) -> Settlement:
        """Settle what earlier terms left open; the rest stays frozen. StoreError when the store does not answer."""
        # Splits first: what `settle_intents` settled would be lost if the store failed us after it.
        splitting, splits, unreadable = await settle_splits(self._world, epoch=self._epoch, seen=self._seen)
        self._sharing.set_aside(SPLITS, unreadable)
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
        self._sharing.frozen = settlement.frozen
        self._sharing.set_aside(INTENTS, settlement.unreadable)
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

    async def arrived(self, entries: Sequence[Entry]) -> dict[str, str]:
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
        brokers = (request.source, request.destination)
        return (
            await self._not_now(request.bundle, brokers)
            or self._unwanted(request)
            or await self.forbids(request.bundle, request.destination)
        )

    def _unwanted(self, request: MoveRequest) -> Refusal | None:
        """A cordon or a drain that came after the plan holds too; the desired state has just been read."""
        desired, bundle = self._sharing.desired, request.bundle
        if request.destination in desired.cordons or request.destination in desired.drains:
            return Refusal(code=Code.CORDONED, bundle=bundle, detail=request.destination)
        return None

    async def _not_now(self, bundle: str, brokers: tuple[str, ...] = ()) -> Refusal | None:
        """A pause or a lowered mode stops a plan half-way too: asked of the store before each move and split."""
        try:
            await self._sharing.refresh()
        except StoreError as error:
            return Refusal(code=Code.STORE_UNAVAILABLE, bundle=bundle, detail=str(error))
        refusal = outside(bundle, namespaces_of(self._sharing.takeover))
        if refusal is not None:
            return refusal
        stop = self.stop_now()
        if stop is not None:
            return Refusal(code=stop.code, bundle=bundle, detail=stop.detail)
        desired = self._sharing.desired
        pause = pause_in_force(desired, self._world.clock.wall_ms())
        if pause is not None:
            return Refusal(code=Code.PAUSED, bundle=bundle, detail=f"by {pause.by}: {pause.reason}")
        scope = scope_in_force(desired, self._world.clock.wall_ms(), bundle, brokers)
        if scope:
            return Refusal(code=Code.PAUSED, bundle=bundle, detail=f"its scope {scope} is paused")
        excluded = pattern_for(desired.excluded, self._world.clock.wall_ms(), bundle, brokers)
        if excluded:
            return Refusal(code=Code.EXCLUDED, bundle=bundle, detail=f"by {excluded}")
        pinned_until = desired.pinned.get(bundle)
        if pinned_until is not None and (not pinned_until or pinned_until > self._world.clock.wall_ms()):
            return Refusal(code=Code.PINNED, bundle=bundle, detail="since this plan was made")
        if self.task and self.task in desired.stops:
            return Refusal(code=Code.STOPPED, bundle=bundle, detail=f"by {desired.stops[self.task].by}")
        if mode_in_force("act", desired) != "act":
            return Refusal(code=Code.RECOMMEND_ONLY, bundle=bundle, detail=f"mode is {desired.mode}")
        return None

    def seconds_per_move(self) -> float:
        """How long a move takes here, as far as is known: for an ETA."""
        return self.durations.seconds_per_move(self._world.mode())

    def _confirm_seconds(self, usual: float) -> float:
        return self.durations.confirm_seconds(self._world.mode(), usual, CONFIRM_SHARE * self._limits.intent_seconds)

    def _tell(self, outcome: MoveOutcome) -> None:
        if outcome.outcome == "done" and outcome.moving_seconds:
            self.durations.add(self._world.mode(), outcome.moving_seconds)
        self._on_outcome(outcome)

    def _changes(self, outcome: MoveOutcome) -> Sequence[Change]:
        """The move's record, written together with the removal of its intent."""
        return self._sharing.move_change(move_record(outcome))


async def _nothing(_bundle: str, _destination: str) -> Refusal | None:
    return None


def _nobody(_outcome: MoveOutcome) -> None:
    return None
