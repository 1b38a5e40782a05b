"""Executes moves of a leader: several moves at a time within caps, intents before calls, outcomes recorded behind them.

One executor serves one term of leadership; when that is over it refuses. What one move does is in `move_state`, and how
in `unload_and_claim` (modular) or `transfer` (extensible).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError, LeadershipLost, StaleWrite, StoreError
from bundlekeel.core.model.plan import Refusal
from bundlekeel.daemon.execution.intents import ChangesFor, Intent, MoveOutcome, decode_intent, intent_path, no_changes
from bundlekeel.daemon.execution.move import (
    EXTENSIBLE,
    ExecutorLimits,
    LeaderTerm,
    MovePorts,
    MoveRequest,
    MoveState,
    Policy,
    TransferMethod,
)
from bundlekeel.daemon.execution.transfer_methods import TRANSFER, UNLOAD_AND_CLAIM
from bundlekeel.ports import Document, DocumentChange

__all__ = ["Executor", "ExecutorHooks", "ExecutorLimits", "LeaderTerm", "MovePorts", "MoveRequest"]

_log = structlog.get_logger(__name__)

_STOP_POLL_SECONDS: Final = 0.05
# A check is good for so long; after slow preparations it is made again, a few times.
_FRESH_SECONDS: Final = 1.0
_CHECKS: Final = 3


def _as_set(seconds: float) -> float:
    return seconds


async def _allow(_request: MoveRequest) -> Refusal | None:
    return None


def _ignore(_outcome: MoveOutcome) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorHooks:
    """`policy` may refuse a move before anything is read. `on_outcome` is called with every outcome exactly once.

    `changes` joins the transaction that removes an intent (the record of the move); it is asked again when that
    write has to be repeated, and not at all for moves refused before an intent was written.
    """

    policy: Policy = _allow
    on_outcome: Callable[[MoveOutcome], None] = _ignore
    changes: ChangesFor = no_changes
    confirm_seconds: Callable[[float], float] = _as_set


class Executor:
    """Carries out moves until it is stopped or its term is over."""

    def __init__(
        self,
        world: MovePorts,
        term: LeaderTerm,
        *,
        limits: ExecutorLimits | None = None,
        hooks: ExecutorHooks | None = None,
    ) -> None:
        self._world = world
        self._term = term
        self._limits = limits or ExecutorLimits()
        self._hooks = hooks or ExecutorHooks()
        self._slots = _Slots(self._limits)
        self._ended = ""
        self._count = 0
        # Outcomes by the path of an intent that still stands, because the store did not take its removal.
        self._unrecorded: dict[str, MoveOutcome] = {}
        self._recording = asyncio.Lock()
        self._flushing = asyncio.Lock()

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Bundles being moved or waiting for a slot, sorted."""
        return tuple(sorted(self._slots.bundles))

    @property
    def unrecorded(self) -> tuple[MoveOutcome, ...]:
        """Outcomes whose intent still stands in the store; `flush` tries again."""
        return tuple(self._unrecorded.values())

    async def execute(self, requests: Sequence[MoveRequest]) -> list[MoveOutcome]:
        """Carry out moves, several at a time; outcomes in the order asked. A move that fails is an outcome."""
        await self.flush()
        ended = await asyncio.gather(*(self.move(request) for request in requests), return_exceptions=True)
        # Something unexpected ends one move; the others are in flight and are waited for before it is raised.
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in ended if isinstance(outcome, MoveOutcome)]

    async def move(self, request: MoveRequest) -> MoveOutcome:
        """Carry out one move when a slot is free."""
        self._count += 1
        move_state = MoveState(
            request=request,
            world=self._world,
            term=self._term,
            limits=replace(self._limits, confirm_seconds=self._hooks.confirm_seconds(self._limits.confirm_seconds)),
            intent_id=f"{self._term.epoch}.{self._count}",
        )
        if request.bundle in self._slots.bundles:
            outcome = move_state.refuse(Code.IN_TRANSIT, "this bundle is being moved already")
        else:
            outcome = await self._in_slot(move_state)
        self._hooks.on_outcome(outcome)
        return outcome

    async def stop(self, seconds: float) -> tuple[str, ...]:
        """Admit no more and let what is in flight finish; the bundles still in flight after `seconds`."""
        await self._end(Code.STOPPING)
        clock = self._world.clock
        deadline = clock.boot() + seconds
        while self._slots.bundles and clock.boot() < deadline:
            await clock.sleep(_STOP_POLL_SECONDS)
        await self.flush()
        return self.in_flight

    async def flush(self) -> None:
        """Try again to remove intents of moves that are over. Quiet when the store still does not answer."""
        async with self._flushing:
            for path, outcome in list(self._unrecorded.items()):
                try:
                    await self._remove_left(path, outcome)
                except LeadershipLost:
                    await self._end(Code.NOT_LEADER)
                    return
                except StoreError:
                    return

    async def _remove_left(self, path: str, outcome: MoveOutcome) -> None:
        document = await self._world.coordination.read(path)
        # Never written at all, or by now the node of the next move of this bundle.
        if document is not None and _id_of(document) == outcome.intent_id:
            await self._write([DocumentChange(path=path, data=None, version=document.version)], outcome)
        if self._unrecorded.get(path) is outcome:
            del self._unrecorded[path]

    async def _in_slot(self, move_state: MoveState) -> MoveOutcome:
        method = TRANSFER if self._world.mode() == EXTENSIBLE else UNLOAD_AND_CLAIM
        key = method.exclusive(move_state.request)
        if not await self._slots.take(move_state.request, key):
            return move_state.refuse(self._ended, "not begun")
        try:
            return await self._begin(move_state, method) or await self._carry_out(move_state, method)
        finally:
            await self._slots.give(move_state.request, key)

    async def _begin(self, move_state: MoveState, method: TransferMethod) -> MoveOutcome | None:
        """Check, prepare and announce a move; a refusal when that is not possible, and then nothing is called."""
        refusal = await self._allowed(move_state, method)
        if refusal is None and self._ended:
            refusal = move_state.refuse(self._ended, "not begun")
        return refusal or await self._write_intent(move_state)

    async def _allowed(self, move_state: MoveState, method: TransferMethod) -> MoveOutcome | None:
        """Check and prepare. What was found long ago no longer counts: a broker may have let us wait, or this process
        was stopped, and somebody paused everything meanwhile."""
        clock, checked = self._world.clock, self._world.clock.boot()
        refusal = await move_state.check(self._hooks.policy) or await method.prepare(move_state)
        for _ in range(_CHECKS):
            if refusal is not None or clock.boot() - checked <= _FRESH_SECONDS:
                return refusal
            checked = clock.boot()
            refusal = await move_state.check(self._hooks.policy)
        return refusal or move_state.refuse(Code.STORE_UNAVAILABLE, "it answers too slowly to know what people want")

    async def _carry_out(self, move_state: MoveState, method: TransferMethod) -> MoveOutcome:
        # Whatever ends it, its outcome is recorded where its intent stands. When we are cancelled ourselves the call
        # may still be under way: then the intent stays and tells the next leader.
        (ended,) = await asyncio.gather(method.carry_out(move_state), return_exceptions=True)
        if isinstance(ended, MoveOutcome):
            outcome = ended
        else:
            _log.error("move ended unexpectedly", bundle=move_state.request.bundle, exc_info=ended)
            outcome = move_state.outcome("unknown", Code.INTERNAL_ERROR, error=repr(ended))
        if move_state.lost:
            # Write nothing more: the intent tells the next leader where to look.
            await self._end(Code.NOT_LEADER)
        else:
            await self._remove_intent(move_state, outcome)
        return outcome

    async def _write_intent(self, move_state: MoveState) -> MoveOutcome | None:
        """Announce the move; a refusal when that is not possible, and then nothing is called."""
        intent: Intent = move_state.intent()
        change = DocumentChange(path=intent.path, data=intent.encode(), create=True)
        try:
            await self._world.coordination.write_fenced(self._term.epoch, [change])
        except LeadershipLost as error:
            await self._end(Code.NOT_LEADER)
            return move_state.refuse(Code.NOT_LEADER, str(error))
        except StaleWrite as error:
            return move_state.refuse(Code.FROZEN_INTENT, str(error))
        except StoreError as error:
            # The write may have arrived all the same: whatever stands there is cleaned up later.
            outcome = move_state.refuse(Code.STORE_UNAVAILABLE, str(error))
            self._unrecorded[intent.path] = outcome
            return outcome
        return None

    async def _remove_intent(self, move_state: MoveState, outcome: MoveOutcome) -> None:
        path = intent_path(move_state.request.bundle)
        try:
            await self._write([DocumentChange(path=path, data=None, version=0)], outcome)
        except LeadershipLost:
            await self._end(Code.NOT_LEADER)
        except StoreError:
            self._unrecorded[path] = outcome

    async def _write(self, changes: list[DocumentChange], outcome: MoveOutcome) -> None:
        # One at a time: the record of a move builds on the version the one before it left.
        async with self._recording:
            more = self._hooks.changes(outcome)
            await self._world.coordination.write_fenced(self._term.epoch, [*changes, *more])

    async def _end(self, code: str) -> None:
        """Admit no more; the first reason stays, except that a lost term is always said."""
        if not self._ended or code == Code.NOT_LEADER:
            self._ended = code
        await self._slots.close()


def _id_of(document: Document) -> str:
    try:
        return decode_intent(document).id
    except CodecError:
        return ""


class _Slots:
    """Caps on moves in flight: in all, per broker as source or destination, and one per key
    (`TransferMethod.exclusive`).
    """

    def __init__(self, limits: ExecutorLimits) -> None:
        self._limits = limits
        self._open = True
        self._changed = asyncio.Condition()
        self._brokers: Counter[str] = Counter()
        self._keys: set[str] = set()
        self.bundles: set[str] = set()

    async def take(self, request: MoveRequest, key: str) -> bool:
        """Wait for a slot; False when no more are given."""
        self.bundles.add(request.bundle)
        taken = False
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._open or self._free(request, key))
                taken = self._open
                if taken:
                    self._keys.add(key)
                    self._brokers.update((request.source, request.destination))
        finally:
            if not taken:
                self.bundles.discard(request.bundle)
        return taken

    async def give(self, request: MoveRequest, key: str) -> None:
        """Return a slot."""
        async with self._changed:
            self.bundles.discard(request.bundle)
            self._keys.discard(key)
            self._brokers.subtract((request.source, request.destination))
            self._changed.notify_all()

    async def close(self) -> None:
        """Grant no more slots; everything that waits for one is woken."""
        async with self._changed:
            self._open = False
            self._changed.notify_all()

    def _free(self, request: MoveRequest, key: str) -> bool:
        cap = self._limits.max_in_flight_per_broker
        return (
            key not in self._keys
            and len(self._keys) < self._limits.max_in_flight
            and self._brokers[request.source] < cap
            and self._brokers[request.destination] < cap
        )
