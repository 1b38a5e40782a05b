"""What a cycle works with: its executor, its term, the state between two cycles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bundlekeel.core.guard.state import GuardState
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Move, Split
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.planning.engine import PlanInput, PlanResult
from bundlekeel.core.splitting.children import Family
from bundlekeel.daemon.cycle.effects import Effects
from bundlekeel.daemon.cycle.external_moves import ExternalMoveWatch
from bundlekeel.daemon.execution.intents import MoveOutcome
from bundlekeel.daemon.execution.split_intents import SplitOutcome
from bundlekeel.daemon.gate.gate import Gate, GateQuestion
from bundlekeel.daemon.gate.guard_state import GuardMemory
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.daemon.sources.observer import Observer
from bundlekeel.daemon.sources.policies import PolicyCache
from bundlekeel.daemon.state.cycle_state import CycleState
from bundlekeel.daemon.state.documents import Desired
from bundlekeel.daemon.state.takeover_record import TakeoverRecord
from bundlekeel.ports import BrokerAdmin, Clock, Journal, Picture, Telemetry

Chronicle = Callable[[int | None, PlanInput | None, PlanResult | None, Mapping[str, Any]], None]


def unrecorded(
    epoch: int | None, given: PlanInput | None, result: PlanResult | None, record: Mapping[str, Any]
) -> None:
    """Receives cycles where no history is kept, and does nothing."""


def every(*chronicles: Chronicle) -> Chronicle:
    """Several that hear of cycles, as one."""

    def tell(epoch: int | None, given: PlanInput | None, result: PlanResult | None, record: Mapping[str, Any]) -> None:
        for chronicle in chronicles:
            chronicle(epoch, given, result, record)

    return tell


class MoveExecutor(Protocol):
    """What carries moves out (daemon/execution/executor.py). `request`: what a person asked for that is being carried
    out; None:
    a cycle's own plan."""

    request: GateQuestion | None

    async def carry_out(
        self, moves: Sequence[Move], *, epoch: int, cycle: int, on_outcome: Callable[[MoveOutcome], None]
    ) -> list[MoveOutcome]:
        """Carry out moves, several at a time within its caps; calls back as each one ends."""

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
        """Carry out splits; tells the children before each call, and each outcome before the next one begins."""


class CycleTerm(Protocol):
    """What the cycle needs to know of leadership and shared state (daemon/state/shared_state.py)."""

    @property
    def leading(self) -> bool:
        """Whether we lead now, by our own deadline."""

    @property
    def desired(self) -> Desired:
        """What people asked for at run time."""

    @property
    def frozen(self) -> frozenset[str]:
        """Bundles with an open intent of another epoch."""

    @property
    def moves(self) -> Collection[Mapping[str, Any]]:
        """The newest move records, oldest first."""

    @property
    def takeover(self) -> TakeoverRecord | None:
        """The last takeover, in force or ended."""

    def current_epoch(self) -> int:
        """The epoch; LeadershipLost when we do not lead."""

    async def save(self, cycle_state: CycleState, report: Mapping[str, Any], *, epoch: int) -> None:
        """Store the leader's state, fenced by the epoch it is of. LeadershipLost when that term is over."""


class BrokerRequests(Protocol):
    """What people asked of brokers (implemented by daemon/operations/drain_tracker.py)."""

    @property
    def owned(self) -> Mapping[str, frozenset[str]]:
        """What draining brokers own by their own lists, as last read."""

    async def complete(self, snapshot: Snapshot, picture: Picture) -> Snapshot:
        """The snapshot with every bundle that a draining broker owns, reported or not. Never raises."""

    def guard(self, state: GuardState, now_ms: int) -> GuardState:
        """The guard's state with cordons, drains, warms, exclusions, pins and pauses by scope."""

    async def planned(self, ready: Mapping[str, bool], refusals: Collection[Any], *, acting: bool) -> None:
        """Hear of a plan: which warming brokers are warm, what stays on draining ones. Never raises."""

    async def warm_up(self, brokers: Collection[str]) -> None:
        """Request that these are warmed, unless operators asked for something else. Never raises."""

    def record(self) -> dict[str, Any]:
        """Progress, as stored with the leader's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleParts:
    """What a cycle works with. `parameters`: see daemon/state/effective_parameters.py.
    `history` hears of every cycle when it is over (daemon/records/recorder.py): its epoch, what it planned with, its
    record.
    `shadow`: what strategies that plan along found since it was asked last (daemon/calibration/shadow.py)."""

    observer: Observer
    admin: BrokerAdmin
    config: BrokerConfig
    policies: PolicyCache
    executor: MoveExecutor
    term: CycleTerm
    journal: Journal
    telemetry: Telemetry
    clock: Clock
    parameters: Callable[[Mapping[str, str], tuple[str, ...]], Parameters]
    describe: Callable[[MoveOutcome], Mapping[str, Any]]
    requests: BrokerRequests
    effects: Effects
    external_moves: ExternalMoveWatch
    guard_memory: GuardMemory
    gate: Gate
    history: Chronicle = unrecorded
    shadow: Callable[[], Mapping[str, Any]] = dict
