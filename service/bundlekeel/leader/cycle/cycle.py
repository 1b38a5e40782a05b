"""One cycle of a sidecar: observe, plan, check the gate, execute, record.

The leader's cycle executes its plan. In a follower (a sidecar that does not lead), a cycle updates averages and
computes the same plan for operators. Errors become part of the cycle's report. Only `WrongCluster` (the brokers belong
to another cluster) ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import structlog

from bundlekeel.leader.cycle import transitions
from bundlekeel.leader.cycle.double_service import DoubleServiceWatch
from bundlekeel.leader.cycle.effects import Effects
from bundlekeel.leader.cycle.external_moves import ExternalMoveWatch
from bundlekeel.leader.cycle.external_splits import SplitWatch
from bundlekeel.leader.cycle.plan_metrics import publish_plan
from bundlekeel.leader.cycle.report import CycleReport
from bundlekeel.leader.cycle.segment_changes import SegmentChanges
from bundlekeel.leader.cycle.status import CycleStatus
from bundlekeel.leader.execution.executor import Executor
from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.execution.split_intents import SplitOutcome
from bundlekeel.leader.gate.gate import Action, Gate, GateQuestion, Obstacle
from bundlekeel.leader.gate.guard_state import GuardMemory
from bundlekeel.leader.gate.in_force import with_requests
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.partial_takeover import namespaces_of
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import (
    BundlekeelError,
    CodecError,
    LeadershipLost,
    SnapshotError,
    StoreError,
    StoreMigrated,
    WrongCluster,
)
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Plan, Split
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.budgets import CYCLE_BUDGETS as BUDGETS
from bundlekeel.planning.guard.budgets import GENTLE
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.ledger import settle
from bundlekeel.planning.relocation import RULES
from bundlekeel.planning.trial import TrialParameters
from bundlekeel.ports import BrokerAdmin, Clock, Journal, Metadata, RawClusterView, Telemetry
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.pulsar.sources.observer import Observer
from bundlekeel.pulsar.sources.policies import PolicyCache

_log = structlog.get_logger(__name__)

CYCLE_BUDGETS: Final = BUDGETS | {Code.BUDGET_OF_DRAIN}
# Above this number of bundles, planning runs in a worker thread, so that heartbeats and the API are not delayed.
THREAD_ABOVE_BUNDLES: Final = 2_000
# Seconds between two updates of the displayed state while moves run, because a move that hangs takes minutes.
LOOK_SECONDS: Final = 1.0

CycleListener = Callable[[int | None, PlanInput | None, PlanResult | None, Mapping[str, Any]], None]
"""Called at the end of each cycle with its epoch, plan input, result and record. Must return immediately."""


class Drains(Protocol):
    """Requests to empty brokers (drains), as a cycle uses them (implemented by requests/drain.py)."""

    @property
    def owned(self) -> Mapping[str, frozenset[str]]:
        """Bundles by draining broker, as that broker last listed them."""

    async def complete(self, snapshot: Snapshot, picture: RawClusterView) -> Snapshot:
        """Return the snapshot with all bundles of draining brokers, also those without a load report. Never raises."""

    def planned(self, refusals: Collection[Any]) -> None:
        """After a plan, record which bundles it refuses to move away from draining brokers, with reasons."""

    def record(self) -> dict[str, Any]:
        """Return the progress of drains as JSON. It is stored with the leader's state."""


class WarmUps(Protocol):
    """Requests to fill brokers gradually (warm-ups), as a cycle uses them (implemented by requests/warm.py)."""

    async def planned(self, ready: Mapping[str, bool], *, acting: bool) -> None:
        """After a plan, record whether each broker in a warm-up has enough load (`ready`). Never raises.

        `acting`: whether moves are allowed. Only then finished warm-ups end."""

    async def warm_up(self, brokers: Collection[str]) -> None:
        """Request a warm-up of these brokers, except cordoned and drained ones. Never raises."""


@dataclass(kw_only=True, eq=False)
class Cycle:
    """Runs one cycle at a time and holds the state between cycles.

    `parameters`: returns the parameters of a plan. Receives the brokers' settings, and the namespaces that a partial
    takeover leaves to Bundlekeel. `trial`: returns values that some namespaces try; None: no trial. `shadow`: returns
    the new results of strategies that run only for comparison."""

    status: CycleStatus
    observer: Observer
    admin: BrokerAdmin
    config: BrokerConfig
    policies: PolicyCache
    metadata: Metadata
    executor: Executor
    shared_state: SharedState
    journal: Journal
    telemetry: Telemetry
    clock: Clock
    parameters: Callable[[Mapping[str, str], tuple[str, ...]], Parameters]
    trial: Callable[[], TrialParameters | None]
    drains: Drains
    warm_ups: WarmUps
    effects: Effects
    external_moves: ExternalMoveWatch
    guard_memory: GuardMemory
    gate: Gate
    listeners: Sequence[CycleListener] = ()
    shadow: Callable[[], Mapping[str, Any]] = dict

    epoch: int | None = field(default=None, init=False)
    busy: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self.progress_boot = self.clock.boot()
        self._broker_splits = SplitWatch(self.config, self.journal.append, self.telemetry)
        self._double_service = DoubleServiceWatch(self.journal.append, self.telemetry)
        self._segment_changes = SegmentChanges(self.metadata)

    @property
    def cycle_state(self) -> CycleState:
        """The current state. It changes after each step of a cycle and after each move."""
        return self.status.state

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot; None before the first one."""
        return self.status.snapshot

    @property
    def picture(self) -> RawClusterView | None:
        """The view of the cluster from which the snapshot was built."""
        return self.status.picture

    @property
    def report(self) -> CycleReport | None:
        """The report of the last cycle."""
        return self.status.report

    @property
    def params(self) -> Parameters:
        """The parameters of the last cycle."""
        return self.status.params

    @property
    def no_picture(self) -> str:
        """Return why there is no snapshot of the cluster and what to do; "" if there is a snapshot."""
        return self.status.no_picture

    @property
    def leads(self) -> bool:
        """Whether this sidecar leads now and `cycle_state` belongs to its current term.

        False if the term began during this cycle. Then `cycle_state` must not be stored: it would overwrite the
        previous leader's state, which the next cycle takes over."""
        return self.epoch is not None and self._epoch_now() == self.epoch

    def demand_snapshot(self) -> Snapshot:
        """Return the newest snapshot. Raises SnapshotError before the first one."""
        if self.snapshot is None:
            raise SnapshotError(self.no_picture)
        return self.snapshot

    @property
    def cut_off(self) -> bool:
        """Whether the last cycle moved bundles, and only the limits on one cycle prevented more moves.

        The next cycle then starts early. False if a limit on the moved traffic or the adaptive rate prevented moves."""
        report = self.report
        if report is None or report.plan is None or not report.outcomes:
            return False
        codes = {refusal.code for refusal in report.plan.refusals}
        return bool(codes & CYCLE_BUDGETS) and not codes & GENTLE

    def adopt(self, cycle_state: CycleState, epoch: int | None) -> None:
        """Continue from this state in the term `epoch` (None: as a follower). Call it only between cycles."""
        self._change(cycle_state)
        self.epoch = epoch
        self.observer.adopt(cycle_state.recent_splits)

    def _change(self, cycle_state: CycleState) -> None:
        """Replace the state. Never await between reading the state and this call: a move that ends changes it, too."""
        self.status.state = cycle_state

    # --- one cycle ---

    async def turn(self) -> CycleReport:
        """Run one cycle and return its report. Errors become part of the report; only WrongCluster is raised."""
        async with self.busy:
            began, decided = self._begin(), None
            try:
                snapshot = await self._observe()
                decided = await self._plan(snapshot)
                report, moves, splits = await self._check_gate(*decided, seconds=self.clock.boot() - began)
                report = await self._execute(report, moves, splits, snapshot)
            except WrongCluster:
                raise
            except Exception as error:  # noqa: BLE001 - top of the cycle
                report = self._failed(error)
            report.seconds["total"] = self.clock.boot() - began
            return await self._record(report, decided)

    def _begin(self) -> float:
        """Start the next cycle and return its start on the boot clock.

        In each cycle, a follower starts from the state that the leader stored last. A leader uses that state only in
        the first cycle of its term."""
        epoch = self._epoch_now()
        if epoch is None:
            self.adopt(self.shared_state.cycle_state(), None)
        elif epoch != self.epoch:
            self.adopt(self.shared_state.taken_over(), epoch)
        self._change(replace(self.cycle_state, cycle=self.cycle_state.cycle + 1))
        self.progress_boot = self.clock.boot()
        return self.progress_boot

    async def _observe(self) -> Snapshot:
        """Read a snapshot and all inputs of a plan, and detect external moves (not by Bundlekeel)."""
        await self.gate.observe_migration()
        self.observer.in_transit = self.cycle_state.ledger.bundles()
        self.status.snapshot, self.status.picture = snapshot, picture = await self.observer.snapshot()
        takeover = self.shared_state.takeover
        self.guard_memory.see(
            picture,
            snapshot.wall_ms,
            self.shared_state.desired.drains,
            self.params.rollout_quiet_seconds,
            known=self.cycle_state.changes,
        )
        self._change(replace(self.cycle_state, changes=self.guard_memory.changes))
        self.admin.set_endpoints(picture.endpoints)
        await self.config.refresh(picture.endpoints)
        self.config.demand_configuration_store()
        self.gate.see(picture)
        self._broker_splits.look(picture, takeover)
        self._double_service.look(picture, leading=self.leads)
        if self.leads:
            await self._segment_changes.read(snapshot, self.config.adoptable())
        self.status.params = self.parameters(self.config.adoptable(), namespaces_of(takeover))
        self.status.snapshot = snapshot = await self.drains.complete(snapshot, picture)
        await self.policies.refresh(snapshot)
        await self._note_external_moves(snapshot, picture)
        return snapshot

    async def _note_external_moves(self, snapshot: Snapshot, picture: RawClusterView) -> None:
        """Start the cool-down of bundles that an operator or another tool moved, and detect a second balancer.

        Nothing is detected while the gate forbids even drains: then brokers or operators move bundles as usual."""
        now, params = snapshot.wall_ms, self.params
        ledger = settle(self.cycle_state.ledger, snapshot, params, now)
        changes = await self.external_moves.look(
            snapshot,
            picture,
            moves=self.shared_state.moves,
            unsettled=ledger.bundles() | self.shared_state.frozen,
            trusted=self._obstacle(Action.RELOCATION) is None,
            lag_seconds=params.statistics_interval_seconds + params.host_usage_interval_seconds,
            within=namespaces_of(self.shared_state.takeover),
        )
        drains = self.shared_state.desired.drains
        self._change(transitions.external_moves_noted(self.cycle_state, changes, drains, now))

    async def _plan(self, snapshot: Snapshot) -> tuple[PlanInput, PlanResult]:
        plan_input, result = await self.decide(self.plan_input(snapshot))
        state = self.cycle_state
        ledger = transitions.settled_ledger(state, plan_input, result)
        judged = self.effects.judge(
            state.effects,
            ledger,
            snapshot,
            result.plan,
            leading=self.leads,
            segments_changed=plan_input.guard.segments_changed,
        )
        recent_splits, brokers = self.observer.recent_splits, self.picture.endpoints if self.picture is not None else ()
        self._change(
            transitions.planned(state, plan_input, result, judged=judged, recent_splits=recent_splits, brokers=brokers),
        )
        return plan_input, result

    def plan_input(self, snapshot: Snapshot) -> PlanInput:
        """Return the input of the next plan on this snapshot."""
        state, now = self.cycle_state, snapshot.wall_ms
        guard = GuardState(
            recent=state.recent,
            frozen=self.shared_state.frozen,
            served_twice=self.picture.bundles_served_twice if self.picture is not None else frozenset(),
            segments_changed=self._segment_changes.by_bundle,
            segments_above=self._segment_changes.above,
            split_failed=state.split_failed,
            quarantined=state.effects.quarantined(now),
            taken_over=namespaces_of(self.shared_state.takeover),
        )
        return PlanInput(
            snapshot=snapshot,
            params=self.params,
            memory=state.memory,
            ledger=state.ledger,
            guard=with_requests(self.guard_memory.state(guard, state.ledger, now), self.shared_state.desired, now),
            owned=self.drains.owned,
            policies=self.policies.current,
            brokers_split=self.config.brokers_split(self.picture.endpoints if self.picture is not None else ()),
            trial=self.trial(),
        )

    async def compute(self, inputs: PlanInput) -> PlanResult:
        """Compute a plan as `decide` does, and return only the result."""
        return (await self.decide(inputs))[1]

    async def decide(self, inputs: PlanInput) -> tuple[PlanInput, PlanResult]:
        """Compute a plan, in a worker thread if the cluster is large. Return the final input and the result.

        Pulsar limits the number of a namespace's bundles, but brokers report only loaded ones. Reading all namespaces
        is expensive, so only namespaces with planned splits are read, and then the plan is computed again."""
        while True:
            large = len(inputs.snapshot.bundles) > THREAD_ABOVE_BUNDLES
            result = await asyncio.to_thread(plan, inputs) if large else plan(inputs)
            names = {namespace_of(split.bundle) for split in result.plan.splits} - inputs.namespace_bundles.keys()
            if not names:
                return inputs, result
            counts = {name: await self._count_bundles(name) for name in sorted(names)}
            inputs = replace(inputs, namespace_bundles={**inputs.namespace_bundles, **counts})

    async def _count_bundles(self, namespace: str) -> int:
        """Return the number of bundles in a namespace; 0: unreadable, so only the executor checks the limit."""
        try:
            return len(await self.metadata.boundaries(namespace) or [0]) - 1
        except (StoreError, CodecError):
            return 0

    async def _check_gate(
        self, plan_input: PlanInput, result: PlanResult, *, seconds: float
    ) -> tuple[CycleReport, tuple[Move, ...], tuple[Split, ...]]:
        """Return the cycle's report, and the moves and splits that the gate allows.

        Outside of maintenance windows, for example, the gate allows only moves of drains and warm-ups."""
        plan, snapshot = result.plan, plan_input.snapshot
        closed = self._obstacle(Action.PLAN)
        relocates = self._obstacle(Action.RELOCATION) is None
        self.drains.planned(plan.refusals)
        await self.warm_ups.planned(result.ready, acting=relocates)
        restarted = self.guard_memory.rolled_out(snapshot.wall_ms, self.params.rollout_quiet_seconds)
        if restarted and closed is None:
            # A roll-out has ended: the leader fills the restarted brokers gradually (warm-up).
            await self.warm_ups.warm_up(restarted)
        verdict = self.gate.cluster_obstacle() or plan.verdict
        report = CycleReport(
            cycle=self.cycle_state.cycle,
            wall_ms=plan.wall_ms,
            plan=plan,
            code=verdict.code,
            sentence=verdict.sentence,
            obstacle=closed,
            seconds={"plan": seconds},
            measured_seconds=snapshot.slowest_seconds,
            operations=self.drains.record(),
            shadow=self.shadow(),
        )
        if not relocates:
            return report, (), ()
        if closed is not None:
            return report, tuple(move for move in plan.moves if move.rule in RULES), ()
        # Revert harmful moves first. The plan does not include these moves, so the next cycle plans again.
        if taken_back := self.effects.take_back(snapshot):
            return report, taken_back, plan.splits
        self._change(replace(self.cycle_state, memory=result.memory))
        return report, plan.moves, plan.splits

    def _obstacle(self, action: Action) -> Obstacle | None:
        return self.gate.check(GateQuestion(action=action, epoch=self.epoch))

    async def _execute(
        self, report: CycleReport, moves: Sequence[Move], splits: Sequence[Split], snapshot: Snapshot
    ) -> CycleReport:
        """Execute moves first, because they reduce load immediately, then splits if the term still lasts."""
        if moves:
            started, now, epoch = self.clock.boot(), self.clock.wall_ms(), self._own_epoch()
            self._change(transitions.begun(self.cycle_state, moves, report.plan, snapshot, now))
            self.observer.in_transit = self.cycle_state.ledger.bundles()
            # Why each move in progress was planned (its rule), because outcomes do not contain that.
            rules = {move.bundle: move.rule for move in moves}
            looking = asyncio.create_task(self._look())
            try:
                # Store the ledger before the first call, so that a new leader knows these moves.
                await self.shared_state.save(self.cycle_state, report.record(epoch), epoch=epoch)
                report.acted = True
                report.outcomes = await self.executor.carry_out(
                    moves,
                    epoch=epoch,
                    cycle=report.cycle,
                    on_outcome=lambda outcome: self.book(outcome, rules.pop(outcome.bundle, "unknown")),
                )
            finally:
                looking.cancel()
                unstarted = rules.keys() - self.shared_state.frozen
                self._change(transitions.not_begun(self.cycle_state, unstarted))
                report.seconds["execute"] = self.clock.boot() - started
        if splits and self.leads:
            await self._split(report, splits)
        report.sentence = report.full_sentence()
        return report

    async def _look(self) -> None:
        """Update the snapshot and policies that operators see while moves run. The executed plan does not change."""
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            with suppress(StoreError, SnapshotError):
                snapshot, picture = await self.observer.snapshot()
                snapshot = await self.drains.complete(snapshot, picture)
                await self.policies.refresh(snapshot)
                self.status.snapshot, self.status.picture = snapshot, picture

    async def _split(self, report: CycleReport, splits: Sequence[Split]) -> None:
        """Split bundles at their owners. The next snapshot contains the new bundles even if no broker reports them."""
        started, epoch = self.clock.boot(), self._own_epoch()

        async def ended(outcome: SplitOutcome) -> None:
            self.book_split(outcome)
            # Store the children for the next leader, because brokers do not report them yet.
            await self._store(report.record(epoch), epoch)

        report.splits = await self.executor.split(
            splits,
            epoch=epoch,
            cycle=report.cycle,
            max_bundles=self.params.split_max_bundles,
            prepare=self.observer.expect_children,
            on_outcome=ended,
        )
        report.seconds["split"] = self.clock.boot() - started

    async def _record(self, report: CycleReport, decided: tuple[PlanInput, PlanResult] | None) -> CycleReport:
        self.status.report = report
        epoch = self.epoch if self.leads else None
        if epoch is not None and report.completed:
            self._change(replace(self.cycle_state, completed_ms=self.clock.wall_ms()))
        record = report.record(epoch)
        self.journal.append(record)
        plan_input, result = decided or (None, None)
        for listener in self.listeners:
            # Even if the term has ended, the cycle belongs to it: its moves ran, and no other leader records them.
            listener(self.epoch, plan_input, result, record)
        _log.info("cycle", **{key: record[key] for key in ("cycle", "code", "sentence", "planned", "outcomes")})
        self.telemetry.gauge("ledger_entries", len(self.cycle_state.ledger.entries))
        report.publish(self.telemetry)
        if decided is not None:
            publish_plan(self.telemetry, *decided)
        if epoch is not None:
            await self._store(record, epoch)
        return report

    def _failed(self, error: Exception) -> CycleReport:
        if isinstance(error, StoreMigrated):
            # The brokers use another store now, so the last snapshot is outdated and must not be shown.
            self.status.snapshot = None
            return replace(self._blank(Code(error.code), f"no decision: {error}"), obstacle=self._obstacle(Action.PLAN))
        if isinstance(error, StoreError):
            return self._blank(Code.STORE_UNAVAILABLE, f"no decision: {error}")
        if isinstance(error, SnapshotError):
            return self._blank(Code.NO_LOAD_DATA, f"no decision: {error}")
        if isinstance(error, BundlekeelError):
            return self._blank(Code.UNKNOWN, f"the cycle ended early: {error}")
        _log.exception("cycle failed; the next cycle starts as usual", cycle=self.cycle_state.cycle, exc_info=error)
        self.telemetry.count("unexpected_errors_total", where="cycle")
        return self._blank(Code.INTERNAL_ERROR, "the cycle failed unexpectedly; see the log")

    # --- between two cycles: what operators requested ---

    async def execute(self, decide: Callable[[], Awaitable[tuple[tuple[Move, ...], Plan | None]]]) -> list[MoveOutcome]:
        """Execute moves that an operator requested, and record them in the ledger of moves in transit.

        `decide` returns the moves, and the plan that predicts their effect (None: no prediction). It is called when no
        cycle is running, because a running cycle may execute the same moves."""
        async with self._between_cycles():
            snapshot = self.demand_snapshot()
            moves, plan = await decide()
            report = self._blank(Code.ADMIN, f"{len(moves)} moves that an operator requested")
            report.plan = plan
            return (await self._execute(report, moves, (), snapshot)).outcomes

    async def execute_split(self, decide: Callable[[], Awaitable[Split]]) -> list[SplitOutcome]:
        """Execute a split that an operator requested. `decide` returns the split when no cycle is running."""
        async with self._between_cycles():
            split = await decide()
            report = self._blank(Code.ADMIN, f"a split of {split.bundle} that an operator requested")
            await self._split(report, (split,))
            return report.splits

    @asynccontextmanager
    async def _between_cycles(self) -> AsyncIterator[None]:
        """Wait for the end of a running cycle, and start no cycle until the operator's request is done."""
        async with self.busy:
            try:
                yield
            finally:
                self.executor.request = None

    # --- outcomes ---

    def book(self, outcome: MoveOutcome, rule: str = "unknown") -> None:
        """Record the outcome of a move in state, journal and metrics. `rule`: why the move was planned."""
        self.progress_boot = self.clock.boot()
        self._change(transitions.moved(self.cycle_state, outcome, self.params, self.clock.wall_ms()))
        self.telemetry.count("moves_total", outcome=outcome.outcome)
        self.telemetry.count("moves_by_rule_total", rule=rule or "unknown", outcome=outcome.outcome)
        if outcome.landed_on:
            self.telemetry.time("move_duration_seconds", outcome.moving_seconds or outcome.seconds)
        self.journal.append(outcome.record())

    def book_split(self, outcome: SplitOutcome) -> None:
        """Record the outcome of a split in the snapshot's observer, the state, the journal and the metrics."""
        self.progress_boot = self.clock.boot()
        if outcome.outcome == "done" and outcome.split is not None:
            self.observer.split_made(outcome.split)
        now, recent_splits = self.clock.wall_ms(), self.observer.recent_splits
        self._change(transitions.split(self.cycle_state, outcome, self.params, recent_splits=recent_splits, now_ms=now))
        self.telemetry.count("splits_total", outcome=outcome.outcome, rule=outcome.rule)
        self.journal.append(outcome.record())

    def arrived(self, bundles: Mapping[str, str]) -> None:
        """Record bundles (bundle -> broker) that have arrived after moves of an earlier leader with unknown outcome."""
        self._change(transitions.arrived(self.cycle_state, bundles, self.clock.wall_ms()))

    # --- the term ---

    def _epoch_now(self) -> int | None:
        try:
            return self.shared_state.current_epoch()
        except LeadershipLost:
            return None

    def _own_epoch(self) -> int:
        if self.epoch is None or not self.leads:
            raise LeadershipLost("the term of this state is over, or has not begun")
        return self.epoch

    def _blank(self, code: Code, sentence: str) -> CycleReport:
        return CycleReport(cycle=self.cycle_state.cycle, wall_ms=self.clock.wall_ms(), code=code, sentence=sentence)

    async def _store(self, record: Mapping[str, Any], epoch: int) -> None:
        """Store the state for the next leader. If that fails, the next cycle stores it."""
        try:
            await self.shared_state.save(self.cycle_state, record, epoch=epoch)
        except StoreError as error:
            _log.warning("leader state could not be stored; the next cycle retries", error=str(error))
