"""Operations of a running sidecar that the API offers, and the CLI uses through the API.

Every replica serves all operations. On followers the loads can be older, because only the leader reads the brokers'
Prometheus counters. Work for the leader is forwarded to it, or stored in the shared state until the leader takes it.

All methods raise only the errors of `model.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from bundlekeel import __version__
from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.cycle.plan_responses import PlanRequest, PlanSummary, PlanView
from bundlekeel.leader.gate.in_force import MODES, mode_in_force, pause_in_force, pause_view
from bundlekeel.leader.gate.outage import OutageWatch
from bundlekeel.leader.gate.responses import PauseView
from bundlekeel.leader.load_signals import LoadSignals, SignalView
from bundlekeel.leader.runtime import Runtime
from bundlekeel.leader.state.documents import Desired, Pause, request_record
from bundlekeel.leader.state.effective_parameters import EffectiveParameters
from bundlekeel.leader.state.leadership import BENCH, Leadership
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.calls import reads, reads_long
from bundlekeel.model.check import Check
from bundlekeel.model.codes import explain
from bundlekeel.model.errors import Forbidden, NotFound
from bundlekeel.model.text_format import numbered
from bundlekeel.ports import Clock, Coordination, Journal, Metadata, Ownership, Telemetry
from bundlekeel.pulsar.channel.channel_watch import ChannelWatch
from bundlekeel.pulsar.channel.responses import UnitView
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.pulsar.sources.policies import PolicyCache
from bundlekeel.requests.assignments import AssignmentView, assignments
from bundlekeel.requests.doctor import DoctorContext, examine
from bundlekeel.requests.operator_requests import OperatorRequests
from bundlekeel.requests.plans import Plans, Submitted
from bundlekeel.requests.where import Place, where
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.views import channel_rows, listings, overview
from bundlekeel.views.go_live import DAY_MS, go_live
from bundlekeel.views.picture import CycleView, LedgerView, ModeView, Resumed, State, StoreView
from bundlekeel.views.published import Published, capture_cluster
from bundlekeel.views.readings import Readings
from bundlekeel.views.summary_fields import Period

# A stored report of a cycle is shown only if it has these fields.
_OF_CYCLE = {"cycle", "wall_ms", "sentence", "code", "planned", "seconds"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """Objects that `Service` uses. `features`: operations of the optional features, by the feature's name."""

    loaded: LoadedSettings
    clock: Clock
    coordination: Coordination
    ownership: Ownership
    metadata: Metadata
    journal: Journal
    telemetry: Telemetry
    leadership: Leadership
    shared_state: SharedState
    cycle: Cycle
    config: BrokerConfig
    policies: PolicyCache
    runtime: Runtime
    operator_requests: OperatorRequests
    plans: Plans
    load_signals: LoadSignals
    effective_parameters: EffectiveParameters
    features: Mapping[str, object]
    context: Callable[[], DoctorContext]
    channel: ChannelWatch
    outage: OutageWatch


class Service(Readings):
    """All operations of a sidecar; use it only on the main event loop. Reads return the present values."""

    def __init__(self, parts: ServiceParts) -> None:
        self._p = parts
        super().__init__(
            self.capture,
            loaded=parts.loaded,
            journal=parts.journal,
            clock=parts.clock,
            metadata=parts.metadata,
            ownership=parts.ownership,
        )
        self._examination: asyncio.Task[list[Check]] | None = None
        self._started = parts.clock.boot()

    @property
    def requests(self) -> OperatorRequests:
        """Operations for drains, manual moves, pins and reviews."""
        return self._p.operator_requests

    @property
    def features(self) -> Mapping[str, Any]:
        """Operations of the optional features, by the feature's name."""
        return self._p.features

    # --- publishing ---

    def capture(self, before: Published | None = None) -> Published:
        """Return the present values, for reads of other threads. Call it on the main loop. Reuses parts of `before`."""
        p, state = self._p, self._state()
        self._set_gauges()
        return Published(
            cluster=capture_cluster(p.cycle, p.config, before.cluster if before is not None else None),
            state=state,
            marks=overview.changes(
                p.cycle, p.shared_state, p.leadership, connected=p.coordination.connected, last=state.cycle
            ),
            ready=self._ready(),
            # A shallow copy is enough, because updates of the original replace its values and never modify them.
            channel=copy(p.channel),
            moves=tuple(p.shared_state.moves),
            judged=p.cycle.cycle_state.effects.judged,
            parameters=p.effective_parameters.effective,
            turned_boot=self._turned_boot(),
        )

    def _state(self) -> State:
        """Return the state of this sidecar: role, leader, last cycle, and what prevents moves now."""
        p = self._p
        member, leader, report = p.leadership.member, p.leadership.leader, p.cycle.report
        desired, now = p.shared_state.desired, p.clock.wall_ms()
        pause = pause_in_force(desired, now)
        obstacle = report.obstacle if report else None
        epoch = p.leadership.epoch if p.leadership.epoch is not None else (leader.epoch if leader else None)
        return State(
            member=member.id,
            role=p.leadership.role,
            seat=member.seat if p.leadership.role != BENCH else None,
            epoch=epoch,
            leader=leader,
            members=list(p.leadership.members),
            cluster=p.loaded.settings.cluster,
            cluster_mode=p.cycle.picture.mode if p.cycle.picture else "unknown",
            mode=mode_in_force(p.loaded.settings.mode, desired),
            mode_ceiling=p.loaded.settings.mode,
            strategy=p.cycle.params.strategy,
            placement=p.cycle.params.placement,
            paused=pause_view(pause) if pause else None,
            store=StoreView(connected=p.coordination.connected, session_seconds=p.coordination.session_seconds),
            cycle=self._last_cycle(),
            imbalance=listings.imbalances(p.cycle),
            overloaded_ratio=p.cycle.params.overloaded_threshold_percent / 100,
            ledger=LedgerView(
                entries=len(p.cycle.cycle_state.ledger.entries),
                unsettled=sorted(p.cycle.cycle_state.ledger.unsettled()),
            ),
            intents=sorted(p.shared_state.frozen),
            version=__version__,
            uptime_seconds=p.clock.boot() - self._started,
            acting=report is not None and obstacle is None and p.leadership.leading,
            acting_obstacle=obstacle.code.value if obstacle else None,
            acting_detail=obstacle.detail if obstacle else "",
            takeover=p.shared_state.takeover.view() if p.shared_state.takeover is not None else None,
            takeover_known=p.shared_state.takeover_known,
            settling=p.outage.view(),
        )

    def _last_cycle(self) -> CycleView | None:
        """Return the leader's last cycle, which a follower reads from the shared state; None: unknown."""
        report = self._p.cycle.report
        shared = self._p.shared_state.shared.report
        record = report.record(None) if report and self._p.leadership.leading else shared or None
        if not record and report:
            record = report.record(None)
        if not record or not record.keys() >= _OF_CYCLE:
            return None
        return CycleView(
            id=record["cycle"],
            wall_ms=record["wall_ms"],
            sentence=record["sentence"],
            verdict=record["code"],
            moves=record["planned"],
            seconds=record["seconds"].get("total"),
            obstacle=record.get("obstacle"),
            obstacle_explanation=explain(record.get("obstacle") or ""),
        )

    # --- planning ---

    @reads_long
    async def make_plan(self, request: PlanRequest) -> PlanView:
        """Make a plan from the leader's snapshot, as a dry run."""
        return await self._p.plans.make(request)

    @reads
    async def plan(self, hash_: str, *, here: bool = False) -> PlanView:
        """Return a recent plan of this or another sidecar. `here`: only of this sidecar."""
        return await self._p.plans.find(hash_, here=here)

    @reads
    async def plans(self) -> list[PlanSummary]:
        """Return the recent plans of this sidecar."""
        return self._p.plans.planner.all()

    async def execute(self, hash_: str, *, reason: str, by: str) -> Submitted:
        """Store a plan for the leader to execute; `tasks` shows its progress."""
        return await self._p.plans.execute(hash_, reason=reason, by=by)

    @reads
    async def tasks(self) -> list[TaskView]:
        """Return the tasks: executions that operators requested, and their results."""
        return await self._p.operator_requests.tasks()

    @reads
    async def signal_load(self) -> SignalView:
        """Read the brokers' counters early if this sidecar leads, because a sidecar noticed a change of traffic."""
        return self._p.load_signals.receive()

    # --- operators' requests ---

    async def pause(self, *, reason: str, by: str, seconds: float | None) -> PauseView:
        """Stop all changes to the cluster by all sidecars immediately. Any sidecar can do this, not only the leader."""
        now = self._p.clock.wall_ms()
        pause = Pause(reason=reason, by=by, since_ms=now, until_ms=now + int(seconds * 1000) if seconds else 0)
        await self._change(lambda desired: _with(desired, pause=pause), "pause", reason, by, replace=True)
        return pause_view(pause)

    async def resume(self, *, reason: str, by: str) -> Resumed:
        """End the pause of all sidecars. Writes a journal record only if there was a pause."""
        before = Desired()

        def without_pause(desired: Desired) -> Desired:
            nonlocal before
            before = desired
            return _with(desired, pause=None)

        await self._p.shared_state.change_desired(without_pause)
        if pause_in_force(before, self._p.clock.wall_ms()) is not None:
            self._record("resume", reason, by)
        return Resumed(reason=reason, by=by)

    async def set_mode(self, mode: str, *, reason: str, by: str) -> ModeView:
        """Lower the mode, or raise it up to the mode of the settings file."""
        ceiling = self._p.loaded.settings.mode
        if mode not in MODES:
            raise NotFound(f"{mode!r} is not a mode: expected one of {', '.join(MODES)}")
        if MODES.index(mode) > MODES.index(ceiling):
            then = f"set `mode: {mode}` in the settings file of each sidecar and restart them one by one"
            text = f"cannot set mode `{mode}`: the settings file limits the mode to `{ceiling}`; {then}"
            raise Forbidden(text, code="above-ceiling")
        now = self._p.clock.wall_ms()
        await self._change(lambda desired: _with(desired, mode=mode, mode_ms=now), f"mode {mode}", reason, by)
        return ModeView(mode=mode, reason=reason, by=by)

    async def _change(
        self, change: Callable[[Desired], Desired], what: str, reason: str, by: str, *, replace: bool = False
    ) -> None:
        await self._p.shared_state.change_desired(change, replace=replace)
        self._record(what, reason, by)

    def _record(self, what: str, reason: str, by: str) -> None:
        self._p.journal.append(request_record(what, reason=reason, by=by, wall_ms=self._p.clock.wall_ms()))

    # --- finding ---

    @reads
    async def where(self, name: str, *, listener: str = "") -> list[Place]:
        """Return the owner of a topic, bundle, or all bundles of a namespace. Never assigns a bundle."""
        going = {
            entry.bundle: entry.target for entry in self._p.cycle.cycle_state.ledger.entries if not entry.landed_ms
        }
        p = self._p
        return await where(
            name,
            metadata=p.metadata,
            ownership=p.ownership,
            preallocated=going,
            entry=self._entry,
            listener=listener,
        )

    def _entry(self, bundle: str) -> UnitView | None:
        watch = self._p.channel
        return channel_rows.row_of(watch.current(), bundle, self._p.clock.wall_ms()) if watch.followed else None

    @reads
    async def assignments(self, names: Sequence[str]) -> list[AssignmentView]:
        """Return the broker that each bundle, topic or namespace would get if no broker owned it; assigns nothing."""
        p = self._p
        return await assignments(names, cycle=p.cycle, policies=p.policies, metadata=p.metadata, ownership=p.ownership)

    @reads_long
    async def doctor(self, *, for_act: bool = False) -> list[Check]:
        """Check every connection and permission now, without a write.

        Concurrent callers get the result of one examination, because it queries all brokers. `for_act`: also check
        whether mode `act` is safe.
        """
        p = self._p
        if self._examination is None or self._examination.done():
            self._examination = asyncio.create_task(examine(p.context(), writes=False), name="doctor")
        checks = await asyncio.shield(self._examination)
        if not for_act:
            return checks
        return go_live(
            checks,
            mode_ceiling=p.loaded.settings.mode,
            members=len(p.leadership.members),
            looked_ms=p.shared_state.failsafe_look_ms,
            day=await self.summary(Period(since_ms=p.clock.wall_ms() - DAY_MS)),
            plan=p.cycle.report.plan if p.cycle.report else None,
        )

    # --- probes ---

    def _turned_boot(self) -> float:
        """Return the boot-clock time at which the last cycle, or one of its moves, ended."""
        return max(self._p.runtime.last_turn_boot, self._p.cycle.progress_boot)

    def _ready(self) -> list[Check]:
        """Check the store, the role and the snapshot. A sidecar that cannot become leader needs no snapshot."""
        p = self._p
        address, why = p.loaded.settings.store_url, p.coordination.obstacle
        checks = [
            Check(
                name="metadata store",
                ok=p.coordination.connected,
                detail=f"{address} answers"
                if p.coordination.connected
                else f"{address} does not answer; {why}".rstrip("; "),
                fix="" if p.coordination.connected else f"check that {address} is reachable",
            )
        ]
        is_known = p.leadership.leading or p.leadership.leader is not None
        checks.append(
            Check(
                name="leadership",
                ok=is_known,
                detail=p.leadership.role if is_known else p.leadership.fault or "no leader known yet",
            )
        )
        if p.leadership.role != BENCH:
            snapshot = p.cycle.snapshot
            detail = numbered(len(snapshot.brokers), "broker") if snapshot is not None else "no snapshot yet"
            checks.append(Check(name="picture", ok=snapshot is not None, detail=detail))
        return checks

    def _set_gauges(self) -> None:
        p = self._p
        now = p.clock.wall_ms()
        p.telemetry.gauge("paused", 1.0 if pause_in_force(p.shared_state.desired, now) else 0.0)
        takeover = p.shared_state.takeover
        p.telemetry.gauge("takeover_in_force", 1.0 if takeover is not None and takeover.active else 0.0)
        p.telemetry.gauge("cycle_due_seconds", p.loaded.settings.cycle.interval + self._turned_boot() - p.clock.boot())
        p.telemetry.gauge("failsafe_look_timestamp_seconds", p.shared_state.failsafe_look_ms / 1000)
        for mode in MODES:
            on = mode == mode_in_force(p.loaded.settings.mode, p.shared_state.desired)
            p.telemetry.gauge("mode_info", 1.0 if on else 0.0, mode=mode)
        p.telemetry.gauge("open_intents", float(len(p.shared_state.frozen)))
        unreadable = sum(len(found) for found in p.shared_state.unreadable.values())
        p.telemetry.gauge("unreadable_documents", float(unreadable))

    def render_metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in Prometheus format."""
        self._set_gauges()
        return self._p.telemetry.render(accept)


def _with(desired: Desired, **changes: Any) -> Desired:
    present = {name: getattr(desired, name) for name in desired.__struct_fields__}
    return Desired(**(present | changes))
