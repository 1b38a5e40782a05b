"""One sidecar, wired: adapters below, daemon between, API on top."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import structlog

from bundlekeel import __version__
from bundlekeel.adapters.clock import SystemClock
from bundlekeel.adapters.journal import FileJournal
from bundlekeel.api.server import ApiServer
from bundlekeel.core.planning.effects import EffectRules
from bundlekeel.daemon.calibration.watcher import Calibration
from bundlekeel.daemon.cycle.cycle import Cycle, CycleListener
from bundlekeel.daemon.cycle.effects import Effects
from bundlekeel.daemon.cycle.external_moves import ExternalMoveWatch, second_balancer
from bundlekeel.daemon.cycle.planner import Planner
from bundlekeel.daemon.execution.executor import Executor
from bundlekeel.daemon.execution.move import ExecutorLimits, MovePorts
from bundlekeel.daemon.gate.gate import Gate
from bundlekeel.daemon.gate.guard_state import GuardMemory
from bundlekeel.daemon.gate.in_force import mode_in_force
from bundlekeel.daemon.gate.outage import OutageWatch, settle_for
from bundlekeel.daemon.gate.windows import Calendar
from bundlekeel.daemon.off_loop import ServiceOffLoop
from bundlekeel.daemon.operations.doctor import DoctorContext
from bundlekeel.daemon.operations.drain_tracker import DrainTracker
from bundlekeel.daemon.operations.executions import Executions
from bundlekeel.daemon.operations.manual_moves import ManualMoves
from bundlekeel.daemon.operations.operator_requests import OperatorRequests
from bundlekeel.daemon.operations.reload import Reload
from bundlekeel.daemon.operations.reviews import Reviews
from bundlekeel.daemon.quotas.service import QuotaService
from bundlekeel.daemon.records.notifications import DatedJournal, ObservedJournal
from bundlekeel.daemon.runtime import Background, Runtime, RuntimeParts, begin_term
from bundlekeel.daemon.service import Service, ServiceParts
from bundlekeel.daemon.sources.observer import Observer
from bundlekeel.daemon.sources.policies import PolicyCache
from bundlekeel.daemon.sources.rate_signals import RateSignals
from bundlekeel.daemon.state.leadership import BENCH, Leadership
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.daemon.state.takeover_record import takeover_request
from bundlekeel.ports import Journal, Member
from bundlekeel.ports.history import CalibrationStore
from bundlekeel.settings.describe import shared_digest
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.model import Settings
from bundlekeel.wiring.history import recorder
from bundlekeel.wiring.optional import (
    calibration,
    effective_parameters_of,
    notifications,
    proposals,
    quotas_of,
    shadow_strategies,
    traces_of,
)
from bundlekeel.wiring.outside import Outside, context, watch
from bundlekeel.wiring.security import advertised, protection, served_hosts

# An intent outlives the longest call by the time it takes to see where the bundle landed.
CONFIRM_ALLOWANCE_SECONDS = 30.0


class Build:
    """One sidecar's parts, wired; `runtime` runs it and `service` answers for it."""

    leadership: Leadership

    def __init__(self, loaded: LoadedSettings, out: Outside) -> None:
        self.loaded, self.outside, self.peers = loaded, out, out.peers()
        member, leads = lambda: self.leadership.member.id, lambda: self.leadership.leading
        self.notifications = notifications(loaded, out.telemetry, out.clock, member=member, leads=leads)
        self.leadership = self._leadership(loaded.settings)
        self.traces = traces_of(loaded, self.outside.telemetry, self.outside.clock, self.leadership.member.id)
        self.journal = self._journal(loaded.settings)
        self.shared_state = SharedState(self.outside.coordination, self.leadership, self.outside.clock)
        self.shared_state.on_takeover = lambda record: self.journal.append(takeover_request(record))
        self.channel = watch(self.outside, self.journal.append, lambda: self.leadership.role != BENCH)
        self.outage = self._outage(loaded.settings)
        self.calendar = Calendar(loaded.settings.windows, out.clock.stepped_ms)
        self.config = self.outside.config
        self.gate = self._gate(loaded.settings)
        self.executor = self._executor()
        self.observer = self._observer()
        self.policies = PolicyCache(self.outside.metadata, self.config)
        self.executor.forbids = self.policies.forbids
        self.operations = DrainTracker(self.shared_state, out.admin, self.config, out.clock, out.telemetry)
        self.recorder = recorder(loaded, out.telemetry, out.clock, leads)
        self.rate = self._rate(loaded.settings)
        self.guard_memory = self._guard_memory()
        self.effective_parameters = effective_parameters_of(loaded, self.shared_state)
        self.shadow_strategies = shadow_strategies(loaded, self.outside.telemetry, self.outside.clock)
        self.calibration = self._calibration()
        self.effects = self._effects()
        self.cycle = self._cycle()
        self.quotas = self._quotas()
        self.guard_memory.limited = self.quotas.quotas.limited
        self.planner = self._planner()
        self.manual_moves = self._manual_moves()
        self.reviews = Reviews(out.coordination, self.shared_state, out.clock, required=loaded.settings.reviewed)
        self.executions = self._executions()
        self.runtime = Runtime(self._runtime_parts())
        self.service_parts = self._service_parts()
        self.service = Service(self.service_parts)
        out.telemetry.gauge("build_info", 1.0, version=__version__)

    def _planner(self) -> Planner:
        interval = self.loaded.settings.cycle.interval
        return Planner(self.cycle, self.outside.clock.wall_ms, eta=self.operations.eta, interval_seconds=interval)

    def _quotas(self) -> QuotaService:
        known = (self.shared_state, self.cycle, self.gate, self.journal, self.leadership, self.peers)
        return quotas_of(self.loaded, self.outside, *known)

    def _observer(self) -> Observer:
        """Counters are read by the leader alone; of extensible brokers, whose averages that advances, only in mode act
        while none of them sheds by itself."""
        out, settings = self.outside, self.loaded.settings
        made = Observer(out.source, out.clock, out.telemetry, settings.capacity_overrides)
        if out.source.live is None:
            return made

        def harmless() -> bool:
            if made.picture is None or made.picture.mode == "modular":
                return made.picture is not None
            # One that has just started has not been asked yet.
            shed = {self.config.sheds(broker) for broker in made.picture.endpoints} - {None}
            act = mode_in_force(settings.mode, self.shared_state.desired) == "act"
            return settings.counters.extensible and act and shed == {False}

        live, costless = out.source.live, settings.counters.source == "prometheus"
        live.wanted = lambda: self.leadership.leading and (costless or harmless())
        live.moving = lambda: bool(made.in_transit)
        live.urgent = lambda: self.cycle.cycle_state.memory.urgent
        live.in_flight = lambda: bool(self.executor.in_flight)
        return made

    def _journal(self, settings: Settings) -> Journal:
        """The file, and what else gets each line."""
        written: Journal = FileJournal(
            self.loaded.located(settings.journal.path),
            telemetry=self.outside.telemetry,
            max_bytes=settings.journal.max_bytes,
            backups=settings.journal.backups,
        )
        for listener in (self.notifications, self.traces):
            if listener is not None:
                written = ObservedJournal(written, listener.observe)
        return DatedJournal(written, self.outside.clock.stepped_ms)

    def _calibration(self) -> Calibration:
        return calibration(
            self.loaded,
            self.outside,
            store=self._proposals(),
            effective_parameters=self.effective_parameters,
            shared_state=self.shared_state,
            gate=self.gate,
            no_picture=lambda: self.cycle.no_picture,
            journal=self.journal,
        )

    def _proposals(self) -> Callable[[], CalibrationStore]:
        return proposals(self.loaded)

    def _leadership(self, settings: Settings) -> Leadership:
        found = Leadership(
            self.outside.coordination,
            self.outside.clock,
            self.outside.telemetry,
            _member(settings, self.outside.clock),
            seats=settings.leadership.seats,
            heartbeat_seconds=settings.leadership.heartbeat,
            margin_ratio=settings.leadership.margin_ratio,
            acts=settings.mode == "act",
        )
        found.on_won = self._on_won
        return found

    def _executor(self) -> Executor:
        return Executor(self._ports(), self.leadership, self.shared_state, self._limits(), self.gate)

    def _limits(self) -> ExecutorLimits:
        return ExecutorLimits(intent_seconds=self.loaded.settings.admin.read_timeout + CONFIRM_ALLOWANCE_SECONDS)

    def _ports(self) -> MovePorts:
        out = self.outside
        return MovePorts(
            admin=out.admin,
            commands=out.admin,
            coordination=out.coordination,
            ownership=out.ownership,
            metadata=out.metadata,
            clock=out.clock,
            mode=lambda: self.observer.picture.mode if self.observer.picture else "",
        )

    def _manual_moves(self) -> ManualMoves:
        return ManualMoves(
            cycle=self.cycle,
            policies=self.policies,
            metadata=self.outside.metadata,
            ownership=self.outside.ownership,
            admin=self.outside.admin,
            config=self.config,
        )

    def _executions(self) -> Executions:
        return Executions(
            self.shared_state,
            self.cycle,
            self.planner,
            self.gate,
            executor=self.executor,
            manual_moves=self.manual_moves,
            reviews=self.reviews,
        )

    def _external_moves(self) -> ExternalMoveWatch:
        out, heed = self.outside, self.loaded.settings.effects.heed_external_moves
        return ExternalMoveWatch(out.ownership, self.journal.append, out.telemetry, heed=heed)

    def _effects(self) -> Effects:
        given = self.loaded.settings.effects
        rules = EffectRules(quarantine_after=given.quarantine_after, quarantine_ms=int(1000 * given.quarantine_for))
        telemetry = self.outside.telemetry
        return Effects(self.journal.append, telemetry, rules=rules, revert=given.revert_worse_moves)

    def _guard_memory(self) -> GuardMemory:
        rate = self.rate
        allowed = (lambda: None) if rate is None else (lambda: rate.moves)
        return GuardMemory(lambda: self.shared_state.moves, self.calendar, allowed)

    def _rate(self, settings: Settings) -> RateSignals | None:
        if not settings.rate.adaptive:
            return None
        every, clock = settings.rate.interval, self.outside.clock
        return RateSignals(
            self.outside.admin,
            clock,
            picture=lambda: self.observer.picture,
            concerned=lambda: self.guard_memory.concerned(clock.wall_ms() - int(2000 * every)),
            ceiling=lambda: self.cycle.params.max_moves_per_cycle,
            every_seconds=every,
        )

    def _gate(self, settings: Settings) -> Gate:
        return Gate(
            ceiling=settings.mode,
            review_required=settings.reviewed,
            shared=self.shared_state,
            metadata=self.outside.metadata,
            config=self.config,
            clock=self.outside.clock,
            outage=self.outage.obstacle,
            second_balancer=lambda: second_balancer(
                self.cycle.cycle_state.external_moves, self.outside.clock.wall_ms()
            ),
            channel=self.channel.unfit,
            windows=self.calendar.obstacle,
        )

    def _outage(self, settings: Settings) -> OutageWatch:
        return OutageWatch(
            self.outside.coordination,
            self.outside.source,
            self.leadership,
            self.outside.clock,
            self.outside.telemetry,
            settle=settle_for(settings.store.settle_after_outage, settings.store.call_timeout),
            session_seconds=settings.store.session_timeout,
        )

    def _cycle(self) -> Cycle:
        listeners: list[CycleListener] = [self.recorder.take] if self.recorder is not None else []
        if self.shadow_strategies is not None:
            listeners.append(self.shadow_strategies.cycle_ended)
        listeners.append(self.calibration.cycle_ended)
        return Cycle(
            observer=self.observer,
            admin=self.outside.admin,
            config=self.config,
            policies=self.policies,
            metadata=self.outside.metadata,
            executor=self.executor,
            shared_state=self.shared_state,
            journal=self.journal,
            telemetry=self.outside.telemetry,
            clock=self.outside.clock,
            parameters=self.effective_parameters,
            requests=self.operations,
            guard_memory=self.guard_memory,
            gate=self.gate,
            effects=self.effects,
            external_moves=self._external_moves(),
            listeners=listeners,
            shadow=self.shadow_strategies.news if self.shadow_strategies is not None else dict,
            no_seat=self.leadership.no_seat,
        )

    def _runtime_parts(self) -> RuntimeParts:
        out = self.outside
        return RuntimeParts(
            clock=out.clock,
            coordination=out.coordination,
            source=out.source,
            admin=out.admin,
            journal=self.journal,
            telemetry=out.telemetry,
            peers=self.peers,
            leadership=self.leadership,
            shared_state=self.shared_state,
            observer=self.observer,
            executor=self.executor,
            cycle=self.cycle,
            executions=self.executions,
            operations=self.operations,
            reload=Reload(
                self.loaded, self.effective_parameters, self.journal, out.telemetry, out.clock, self._announce
            ),
            interval_seconds=self.loaded.settings.cycle.interval,
            background=self._background(),
            closers=[
                out.metadata.close,
                *([out.configuration.close] if out.configuration is not out.store else []),
                *([self.traces.close] if self.traces is not None else []),
            ],
        )

    def _announce(self, settings: str) -> None:
        self.leadership.member = replace(self.leadership.member, settings=settings)

    def _background(self) -> list[Background]:
        """What runs beside the cycles, as far as the settings ask for it."""
        found = [
            Background("channel", self.channel.run, self.channel.close),
            Background("outage", self.outage.run),
            Background("quotas", self.quotas.quotas.run),
        ]
        if self.rate is not None:
            found.append(Background("rate", self.rate.run))
        if self.recorder is not None:
            found.append(Background("history", self.recorder.run, self.recorder.close))
        if self.notifications is not None:
            found.append(Background("notifications", self.notifications.run, self.notifications.close))
        if self.loaded.settings.calibration.mode != "off":
            found.append(Background("calibration", self.calibration.run, self.calibration.close))
        if self.shadow_strategies is not None:
            found.append(Background("shadow", self.shadow_strategies.run, self.shadow_strategies.close))
        return found

    def _service_parts(self) -> ServiceParts:
        out = self.outside
        return ServiceParts(
            loaded=self.loaded,
            clock=out.clock,
            coordination=out.coordination,
            ownership=out.ownership,
            metadata=out.metadata,
            journal=self.journal,
            telemetry=out.telemetry,
            peers=self.peers,
            leadership=self.leadership,
            shared_state=self.shared_state,
            cycle=self.cycle,
            planner=self.planner,
            config=self.config,
            policies=self.policies,
            runtime=self.runtime,
            operator_requests=self._operator_requests(),
            gate=self.gate,
            calibration=self.calibration,
            effective_parameters=self.effective_parameters,
            quotas=self.quotas,
            context=self.doctor_context,
            channel=self.channel,
            outage=self.outage,
        )

    def doctor_context(self) -> DoctorContext:
        """What `doctor` examines of this sidecar."""
        return context(self.loaded.settings, self.outside, self.channel)

    def _operator_requests(self) -> OperatorRequests:
        out = self.outside
        return OperatorRequests(
            shared_state=self.shared_state,
            cycle=self.cycle,
            drain_tracker=self.operations,
            manual_moves=self.manual_moves,
            review_store=self.reviews,
            metadata=out.metadata,
            ownership=out.ownership,
            journal=self.journal,
            clock=out.clock,
            gate=self.gate,
        )

    async def _on_won(self, epoch: int) -> None:
        await begin_term(epoch, self.executor, self.shared_state, self.outage, self.observer, self.cycle)
        self.runtime.hurry()

    def server(self, loop: asyncio.AbstractEventLoop) -> ApiServer:
        """Return the API of this sidecar. `loop`: on which the sidecar runs."""
        settings = self.loaded.settings
        service = ServiceOffLoop(self.service, self.service_parts, loop)
        self.publishing = loop.create_task(self.runtime.root("published", service.run))
        return ApiServer(
            cast(Service, service),
            settings.api.host,
            settings.api.port,
            self.loaded.located(settings.api.socket),
            allowed_hosts=served_hosts(settings),
            protection=protection(self.loaded, self.outside.telemetry, self.outside.clock, self.journal.append),
        )

    def ready(self, urls: list[str]) -> None:
        """The API listens at these addresses, and tasks begin next."""
        settings = self.loaded.settings
        self.leadership.member = replace(self.leadership.member, url=advertised(settings, urls[0]))
        socket_path = self.loaded.located(settings.api.socket)
        structlog.get_logger(__name__).info("listening", url=urls[0], socket=str(socket_path or ""))
        if self.outside.configuration is not self.outside.store:
            self.outside.configuration.start()


def _member(settings: Settings, clock: SystemClock) -> Member:
    name = settings.member_id or f"{socket.gethostname()}-{secrets.token_hex(3)}"
    return Member(id=name, version=__version__, started_ms=clock.wall_ms(), settings=shared_digest(settings))
