"""Execute the moves and splits of a leader: several moves in parallel within limits, one split at a time.

Before each call to a broker, an intent (the planned move or split) is written to the metadata store; afterwards its
outcome is recorded. `Executor` lives as long as the sidecar. Each leader term has its own `TermExecutor`, which starts
nothing after the end of the term. The steps of one move are in `move`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from bundlekeel.leader.execution.durations import Durations
from bundlekeel.leader.execution.intents import (
    INTENTS,
    ChangesFor,
    FirstSeen,
    MoveOutcome,
    MoveRequest,
    Settlement,
    decode_intent,
    intent_path,
    no_changes,
    settle_intents,
)
from bundlekeel.leader.execution.move import (
    EXTENSIBLE,
    EXTENSIBLE_MOVE,
    MODULAR_MOVE,
    ExecutorLimits,
    LeaderTerm,
    MovePorts,
    MoveState,
    Policy,
    TransferMethod,
    stale_code,
)
from bundlekeel.leader.execution.split_intents import SPLITS, SplitOutcome, settle_splits
from bundlekeel.leader.execution.splits import Splitter
from bundlekeel.leader.gate.gate import Action, Gate, GateQuestion
from bundlekeel.leader.state.leadership import Leadership
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError, LeadershipLost, StaleWrite, StoreError
from bundlekeel.model.plan import Move, Refusal, Split
from bundlekeel.planning.ledger import LedgerEntry
from bundlekeel.planning.relocation import RULES
from bundlekeel.planning.splitting.children import SplitChildren
from bundlekeel.ports import Document, DocumentChange

_log = structlog.get_logger(__name__)

_STOP_POLL_SECONDS: Final = 0.05
# Repeat the gate check if the last one is older than this: preparing a move can take seconds.
_FRESH_SECONDS: Final = 1.0
_CHECKS: Final = 3
# Share of an intent's lifetime that may be used to wait for the landing. The rest is for the call.
_CONFIRM_SHARE: Final = 0.2


async def _allow(*_move: object) -> Refusal | None:
    return None


def _ignore(_outcome: MoveOutcome) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorHooks:
    """Callbacks of an executor.

    `policy` may refuse a move before anything is read. `on_outcome` is called exactly once with every outcome.
    `changes` returns the changes that store the record of a move, for the transaction that removes the move's intent.
    `changes` is called again for each repetition of that write, and not for moves that are refused before an intent is
    written. `confirm_seconds` converts the configured time to wait for an arrival."""

    policy: Policy = _allow
    on_outcome: Callable[[MoveOutcome], None] = _ignore
    changes: ChangesFor = no_changes
    confirm_seconds: Callable[[float], float] = float


class TermExecutor:
    """Executes the moves of one leader term, until it is stopped or the term ends."""

    def __init__(
        self,
        ports: MovePorts,
        term: LeaderTerm,
        *,
        limits: ExecutorLimits | None = None,
        hooks: ExecutorHooks | None = None,
    ) -> None:
        self._ports = ports
        self._term = term
        self._limits = limits or ExecutorLimits()
        self._hooks = hooks or ExecutorHooks()
        self._slots = _Slots(self._limits)
        self._ended = ""
        self._count = 0
        # Outcomes by path of an intent that could not be removed from the store.
        self._unrecorded: dict[str, MoveOutcome] = {}
        self._recording = asyncio.Lock()
        self._flushing = asyncio.Lock()

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Bundles that move or wait until other moves end, sorted."""
        return tuple(sorted(self._slots.bundles))

    @property
    def unrecorded(self) -> tuple[MoveOutcome, ...]:
        """Outcomes of moves whose intents could not be removed from the store; `flush` tries it again."""
        return tuple(self._unrecorded.values())

    async def move(self, request: MoveRequest) -> MoveOutcome:
        """Execute one move when the limits allow it: check, write the intent, call the broker, record the outcome."""
        self._count += 1
        move_state = MoveState(
            request=request,
            ports=self._ports,
            term=self._term,
            limits=replace(self._limits, confirm_seconds=self._hooks.confirm_seconds(self._limits.confirm_seconds)),
            intent_id=f"{self._term.epoch}.{self._count}",
        )
        method = EXTENSIBLE_MOVE if self._ports.load_manager() == EXTENSIBLE else MODULAR_MOVE
        outcome: MoveOutcome | None
        if request.bundle in self._slots.bundles:
            outcome = move_state.refuse(Code.IN_TRANSIT, "this bundle is being moved already")
        else:
            async with self._slots.slot(request, method.exclusive(request)) as free:
                outcome = await self._begin(move_state, method) if free else move_state.refuse(self._ended, "not begun")
                if outcome is None:
                    # Errors end up as the outcome, which replaces the intent. If this task itself is cancelled, the
                    # call may still be running: then the intent stays for the next leader.
                    (ended,) = await asyncio.gather(method.carry_out(move_state), return_exceptions=True)
                    outcome = await self._record(move_state, ended)
        self._hooks.on_outcome(outcome)
        return outcome

    async def stop(self, seconds: float) -> tuple[str, ...]:
        """Start no more moves, wait for running ones, and return the bundles still in flight after `seconds`."""
        await self._end(Code.STOPPING)
        clock = self._ports.clock
        deadline = clock.boot() + seconds
        while self._slots.bundles and clock.boot() < deadline:
            await clock.sleep(_STOP_POLL_SECONDS)
        await self.flush()
        return self.in_flight

    async def flush(self) -> None:
        """Try again to remove the intents of finished moves. Does nothing if the store does not respond."""
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
        document = await self._ports.coordination.read(path)
        # The node may be missing, or belong to the bundle's next move.
        if document is not None and _id_of(document) == outcome.intent_id:
            await self._write([DocumentChange(path=path, data=None, version=document.version)], outcome)
        if self._unrecorded.get(path) is outcome:
            del self._unrecorded[path]

    async def _begin(self, move_state: MoveState, method: TransferMethod) -> MoveOutcome | None:
        """Check and prepare a move, and write its intent. Returns None, or a refusal: then no request is sent."""
        refusal = await self._check(move_state, method)
        if refusal is None and self._ended:
            refusal = move_state.refuse(self._ended, "not begun")
        return refusal or await self._write_intent(move_state)

    async def _check(self, move_state: MoveState, method: TransferMethod) -> MoveOutcome | None:
        """Check and prepare the move. Repeat the check if preparing took long.

        A broker may be slow, or this process suspended, and meanwhile an operator may have paused everything."""
        clock, checked = self._ports.clock, self._ports.clock.boot()
        refusal = await move_state.check(self._hooks.policy) or await method.prepare(move_state)
        for _ in range(_CHECKS):
            if refusal is not None or clock.boot() - checked <= _FRESH_SECONDS:
                return refusal
            checked = clock.boot()
            refusal = await move_state.check(self._hooks.policy)
        return refusal or move_state.refuse(Code.STORE_UNAVAILABLE, "the check before the move takes too long")

    async def _write_intent(self, move_state: MoveState) -> MoveOutcome | None:
        intent = move_state.intent()
        change = DocumentChange(path=intent.path, data=intent.encode(), create=True)
        try:
            await self._ports.coordination.write_fenced(self._term.epoch, [change])
        except LeadershipLost as error:
            await self._end(Code.NOT_LEADER)
            return move_state.refuse(Code.NOT_LEADER, str(error))
        except StaleWrite as error:
            return move_state.refuse(Code.FROZEN_INTENT, str(error))
        except StoreError as error:
            # The write may have succeeded nevertheless, so the node is removed later.
            outcome = move_state.refuse(Code.STORE_UNAVAILABLE, str(error))
            self._unrecorded[intent.path] = outcome
            return outcome
        return None

    async def _record(self, move_state: MoveState, ended: MoveOutcome | BaseException) -> MoveOutcome:
        """Remove the intent of a finished move and store the record of its outcome in one write."""
        path = intent_path(move_state.request.bundle)
        if isinstance(ended, MoveOutcome):
            outcome = ended.unless_stale(await stale_code(self._ports, move_state.migration))
        else:
            text = "move ended with an unexpected error; its outcome is recorded as unknown"
            _log.error(text, bundle=move_state.request.bundle, exc_info=ended)
            outcome = move_state.outcome("unknown", Code.INTERNAL_ERROR, error=repr(ended))
        if move_state.lost:
            # Write nothing more: the next leader settles the intent.
            await self._end(Code.NOT_LEADER)
            return outcome
        try:
            await self._write([DocumentChange(path=path, data=None, version=0)], outcome)
        except LeadershipLost:
            await self._end(Code.NOT_LEADER)
        except StoreError:
            self._unrecorded[path] = outcome
        return outcome

    async def _write(self, changes: list[DocumentChange], outcome: MoveOutcome) -> None:
        # One write at a time: each record needs the version of the previous write.
        async with self._recording:
            more = self._hooks.changes(outcome)
            await self._ports.coordination.write_fenced(self._term.epoch, [*changes, *more])

    async def _end(self, code: str) -> None:
        """Start no more moves, for the reason `code`. Only a loss of the leadership replaces an earlier reason."""
        if not self._ended or code == Code.NOT_LEADER:
            self._ended = code
        await self._slots.close()


def _id_of(document: Document) -> str:
    try:
        return decode_intent(document).id
    except CodecError:
        return ""


class _Slots:
    """Limits on the moves in progress: in total, per broker (as source or destination), and one per key
    (`TransferMethod.exclusive`).
    """

    def __init__(self, limits: ExecutorLimits) -> None:
        self._limits = limits
        self._open = True
        self._changed = asyncio.Condition()
        self._brokers: Counter[str] = Counter()
        self._keys: set[str] = set()
        self.bundles: set[str] = set()

    @asynccontextmanager
    async def slot(self, request: MoveRequest, key: str) -> AsyncIterator[bool]:
        """Wait until the limits allow the move, and count it during the block. Yields False after `close`."""
        brokers = (request.source, request.destination)
        is_granted = False
        self.bundles.add(request.bundle)
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._open or self._free(request, key))
                is_granted = self._open
                if is_granted:
                    self._keys.add(key)
                    self._brokers.update(brokers)
            yield is_granted
        finally:
            if not is_granted:
                self.bundles.discard(request.bundle)
            else:
                async with self._changed:
                    self.bundles.discard(request.bundle)
                    self._keys.discard(key)
                    self._brokers.subtract(brokers)
                    self._changed.notify_all()

    async def close(self) -> None:
        """Let no more moves start, and wake all waiting moves."""
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


class Executor:
    """Executes the moves and splits of a leader. `begin` starts each term, `stop` ends the last one."""

    def __init__(
        self,
        ports: MovePorts,
        leadership: Leadership,
        shared_state: SharedState,
        limits: ExecutorLimits,
        gate: Gate,
        forbids: Callable[[str, str], Awaitable[Refusal | None]],
    ) -> None:
        """`gate` is checked right before each move and split.

        `forbids` returns why policies of Pulsar do not allow a bundle on a broker, and is called before each move
        (pulsar/sources/policies.py)."""
        self._ports = ports
        self._gate = gate
        self._leadership = leadership
        self._shared_state = shared_state
        self._limits = limits
        self._executor: TermExecutor | None = None
        self._splitter: Splitter | None = None
        self._epoch = -1
        self._first_seen: FirstSeen = {}
        self._settled_splits: list[SplitOutcome] = []
        self._on_outcome: Callable[[MoveOutcome], None] = _ignore
        self.forbids = forbids
        # What the gate is asked for the operator's request in progress; None: the plan of a cycle is executed.
        self.request: GateQuestion | None = None
        # Bundles that a drain or a warm-up moves in the present cycle.
        self._relocated: frozenset[str] = frozenset()
        self.durations = Durations()

    def begin(self, epoch: int) -> None:
        """Start the leader term `epoch` with a new `TermExecutor`."""
        self._epoch = epoch
        term = LeaderTerm(epoch=epoch, member=self._leadership.member.id, permit=partial(self._permit, epoch))
        hooks = ExecutorHooks(
            policy=self._policy, on_outcome=self._ended, changes=self._changes, confirm_seconds=self._confirm_seconds
        )
        self._executor = TermExecutor(self._ports, term, limits=self._limits, hooks=hooks)
        self._splitter = Splitter(ports=self._ports, term=term, limits=self._limits, policy=self._not_now)

    async def carry_out(
        self, moves: Sequence[Move], *, epoch: int, cycle: int, on_outcome: Callable[[MoveOutcome], None]
    ) -> list[MoveOutcome]:
        """Execute moves of this term in parallel, and call `on_outcome` when each one ends.

        A failed move is an outcome, not an error. Moves of another term are not started."""
        executor = self._executor
        if executor is None or epoch != self._epoch:
            return []
        self._on_outcome = on_outcome
        self._relocated = frozenset(move.bundle for move in moves if move.rule in RULES)
        await executor.flush()
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
        ended = await asyncio.gather(*(executor.move(request) for request in requests), return_exceptions=True)
        # An unexpected error ends one move. It is raised after all other moves have ended.
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in ended if isinstance(outcome, MoveOutcome)]

    async def split(
        self,
        splits: Sequence[Split],
        *,
        epoch: int,
        cycle: int,
        max_bundles: int,
        prepare: Callable[[SplitChildren], None],
        on_outcome: Callable[[SplitOutcome], Awaitable[None]],
    ) -> list[SplitOutcome]:
        """Split bundles one at a time. Does nothing if `epoch` is not the leader's present term.

        `prepare` is called right before each split request to a broker, with the bundles that the split will create.
        """
        if self._splitter is None or epoch != self._epoch:
            return []
        outcomes = []
        self._splitter.prepare = prepare
        self._relocated = frozenset()
        for split in splits:
            outcome = await self._splitter.split(split, max_bundles=max_bundles, cycle_id=self._cause(cycle))
            await on_outcome(outcome)
            outcomes.append(outcome)
            if outcome.outcome == "unknown":
                # A broker does not respond. Leave the other intents for the next cycle, instead of waiting for more
                # brokers.
                break
        return outcomes

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Bundles that move or wait until other moves end, sorted."""
        return () if self._executor is None else self._executor.in_flight

    async def settle(self) -> Settlement:
        """Determine the outcomes of moves and splits that earlier terms left open.

        Bundles whose outcome is still unknown stay frozen: they do not move. Raises StoreError if the store fails."""
        migration = await self._ports.metadata.migration()
        # Splits first: the result of `settle_intents` would be lost if the store failed after it.
        splitting, splits, unreadable = await settle_splits(self._ports, epoch=self._epoch, first_seen=self._first_seen)
        self._shared_state.set_aside(SPLITS, unreadable)
        self._settled_splits += splits
        settlement = await settle_intents(
            self._ports.coordination,
            self._ports.ownership,
            epoch=self._epoch,
            clock=self._ports.clock,
            first_seen=self._first_seen,
            changes=self._changes,
            migration=migration,
        )
        settlement = replace(settlement, frozen=settlement.frozen | splitting)
        self._shared_state.frozen = settlement.frozen
        self._shared_state.set_aside(INTENTS, settlement.unreadable)
        return settlement

    async def flush(self) -> None:
        """Try again to remove the intents of this term's finished moves and splits."""
        if self._executor is not None and self._splitter is not None:
            await self._executor.flush()
            await self._splitter.flush()

    def settled_splits(self) -> list[SplitOutcome]:
        """Return the splits of earlier terms whose outcomes were determined since the last call."""
        splits, self._settled_splits = self._settled_splits, []
        return splits

    async def arrived(self, entries: Sequence[LedgerEntry]) -> dict[str, str]:
        """Return which of these moves of an earlier leader have reached their target, as bundle -> broker."""
        arrivals: dict[str, str] = {}
        for entry in entries:
            try:
                owner = await self._ports.ownership.owner(entry.bundle)
            except CodecError:
                continue
            if owner is not None and not owner.disabled and owner.broker_id == entry.target:
                arrivals[entry.bundle] = entry.target
        return arrivals

    async def stop(self, seconds: float) -> tuple[str, ...]:
        """Start no more moves and wait for running ones. Return the bundles that are left to the next leader."""
        if self._executor is None or self._splitter is None:
            return ()
        _, left = await asyncio.gather(self._splitter.stop(seconds), self._executor.stop(seconds))
        return left

    def _permit(self, epoch: int) -> None:
        """Raise LeadershipLost if the term `epoch` is over, or StoreMigrated if a store migration has started."""
        self._leadership.permit(epoch)
        self._ports.metadata.migration_now.demand_writable()

    async def _policy(self, request: MoveRequest) -> Refusal | None:
        bundle, target = request.bundle, request.destination
        return await self._not_now(bundle, source=request.source, target=target) or await self.forbids(bundle, target)

    async def _not_now(self, bundle: str, *, source: str = "", target: str = "") -> Refusal | None:
        """Check the gate right before a move or split; return a refusal if it is not allowed now, as in a pause."""
        action = Action.RELOCATION if bundle in self._relocated else Action.PLAN
        request = self.request or GateQuestion(action=action)
        question = replace(request, epoch=self._epoch, bundle=bundle, source=source, target=target)
        if bundle in self._ports.served_twice():
            return Refusal(code=Code.SERVED_TWICE, bundle=bundle)
        obstacle = await self._gate.check_anew(question)
        return Refusal(code=obstacle.code, bundle=bundle, detail=obstacle.detail) if obstacle is not None else None

    def _cause(self, cycle: int) -> str:
        """Return what caused a move or split, for its record: the task of an operator's request, or the cycle."""
        return self.request.task if self.request is not None else str(cycle)

    def _confirm_seconds(self, usual: float) -> float:
        return self.durations.confirm_seconds(
            self._ports.load_manager(), usual, _CONFIRM_SHARE * self._limits.intent_seconds
        )

    def _ended(self, outcome: MoveOutcome) -> None:
        if outcome.outcome == "done" and outcome.moving_seconds:
            self.durations.add(self._ports.load_manager(), outcome.moving_seconds)
        self._on_outcome(outcome)

    def _changes(self, outcome: MoveOutcome) -> Sequence[DocumentChange]:
        return self._shared_state.move_change(outcome.record())
