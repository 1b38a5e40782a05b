"""The leader's hand for one term: an executor, its records in the shared state, and the intents earlier terms left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from bundlekeel.core.codes import Code
from bundlekeel.core.errors import CodecError, StoreError
from bundlekeel.core.ledger import Entry
from bundlekeel.core.plan import Move, Refusal
from bundlekeel.daemon.acting import mode_in_force, pause_in_force
from bundlekeel.daemon.attempt import MoveRequest, World
from bundlekeel.daemon.attempt import Term as ExecutorTerm
from bundlekeel.daemon.executor import Executor, ExecutorHooks, ExecutorLimits
from bundlekeel.daemon.intents import MoveOutcome, Settlement, settle_intents
from bundlekeel.daemon.leadership import Leadership
from bundlekeel.daemon.sharing import Sharing
from bundlekeel.ports import Change

_log = structlog.get_logger(__name__)


def move_record(outcome: MoveOutcome) -> dict[str, Any]:
    """The journal line of one move."""
    landed = outcome.landed_on or "nobody"
    return {
        "kind": "move",
        "wall_ms": outcome.landed_wall_ms or outcome.started_wall_ms,
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
        self._epoch = -1
        self._seen: dict[str, float] = {}
        self._on_outcome: Callable[[MoveOutcome], None] = _nobody

    def begin(self, epoch: int) -> None:
        """A new term: a new executor, and every intent of another epoch is looked at afresh."""
        self._epoch = epoch
        self._seen = {}
        term = ExecutorTerm(epoch=epoch, member=self._leadership.member.id, permit=self._leadership.permit)
        hooks = ExecutorHooks(policy=self._policy, on_outcome=self._tell, changes=self._changes)
        self._executor = Executor(self._world, term, limits=self._limits, hooks=hooks)

    async def carry_out(
        self, moves: Sequence[Move], *, epoch: int, cycle: int, on_outcome: Callable[[MoveOutcome], None]
    ) -> list[MoveOutcome]:
        """Carry out moves of this term; calls back as each one ends. Moves of another term are not begun."""
        if self._executor is None or epoch != self._epoch:
            return []
        self._on_outcome = on_outcome
        requests = [
            MoveRequest(bundle=move.bundle, source=move.source, destination=move.target, cycle_id=str(cycle))
            for move in moves
        ]
        return await self._executor.execute(requests)

    async def settle(self) -> Settlement:
        """Settle what earlier terms left open; the rest stays frozen. StoreError when the store does not answer."""
        settlement = await settle_intents(
            self._world.coordination,
            self._world.ownership,
            epoch=self._epoch,
            clock=self._world.clock,
            seen=self._seen,
            changes=self._changes,
        )
        self._sharing.frozen = settlement.frozen
        return settlement

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
        return await self._executor.stop(seconds) if self._executor is not None else ()

    async def _policy(self, request: MoveRequest) -> Refusal | None:
        """A pause or a lowered mode stops a plan half-way too: asked of the store before each move."""
        try:
            await self._sharing.refresh()
        except StoreError as error:
            return Refusal(code=Code.STORE_UNAVAILABLE, bundle=request.bundle, detail=str(error))
        desired = self._sharing.desired
        pause = pause_in_force(desired, self._world.clock.wall_ms())
        if pause is not None:
            return Refusal(code=Code.PAUSED, bundle=request.bundle, detail=f"by {pause.by}: {pause.reason}")
        if mode_in_force("act", desired) != "act":
            return Refusal(code=Code.RECOMMEND_ONLY, bundle=request.bundle, detail=f"mode is {desired.mode}")
        return None

    def _tell(self, outcome: MoveOutcome) -> None:
        self._on_outcome(outcome)

    def _changes(self, outcome: MoveOutcome) -> Sequence[Change]:
        """The move's record, written together with the removal of its intent."""
        return self._sharing.move_change(move_record(outcome))


def _nobody(_outcome: MoveOutcome) -> None:
    return None
