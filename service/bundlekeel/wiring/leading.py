"""Second stage of creating a sidecar: the cycle, with the parts that decide and execute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.cycle.effects import Effects
from bundlekeel.leader.cycle.external_moves import ExternalMoveWatch, second_balancer
from bundlekeel.leader.cycle.planner import Planner
from bundlekeel.leader.cycle.status import CycleStatus
from bundlekeel.leader.execution.executor import Executor
from bundlekeel.leader.execution.move import ExecutorLimits, MovePorts
from bundlekeel.leader.gate.gate import Gate
from bundlekeel.leader.gate.guard_state import GuardMemory, list_moved_brokers
from bundlekeel.leader.gate.in_force import mode_in_force
from bundlekeel.leader.gate.windows import Calendar
from bundlekeel.leader.load_signals import LoadSignals
from bundlekeel.leader.runtime import begin_term
from bundlekeel.leader.state.effective_parameters import EffectiveParameters, merging
from bundlekeel.planning.effects import EffectRules
from bundlekeel.pulsar.counters.demand import CounterDemand
from bundlekeel.pulsar.sources.rate_signals import RateSignals
from bundlekeel.requests.drain import DrainTracker
from bundlekeel.requests.warm import WarmTracker
from bundlekeel.wiring.features import Features, adopted_of, features
from bundlekeel.wiring.reading import Reading

# The record of a started move stays valid for this long after the longest call, the time to find the new owner.
CONFIRM_ALLOWANCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """Parts of the cycle. Every sidecar has them, but only the leader changes brokers."""

    reading: Reading
    effective_parameters: EffectiveParameters
    gate: Gate
    executor: Executor
    drain_tracker: DrainTracker
    features: Features
    rate: RateSignals | None
    """Signals that adapt the rate of moves; None: the settings turn the adaptive rate off."""
    cycle: Cycle
    planner: Planner
    load_signals: LoadSignals


def leading(reading: Reading, limits: ExecutorLimits | None = None) -> Leading:
    """Create the parts of the cycle. `limits`: limits of the executor; None: from the settings.

    Raises ConfigError if a setting needs pyarrow and it is not installed.
    """
    out, settings = reading.outside, reading.loaded.settings
    parameters = EffectiveParameters(merging(reading.loaded), adopted_of(reading.loaded, reading.shared_state))
    status = CycleStatus(parameters({}, ()), reading.leadership.no_seat)
    calendar = Calendar(settings.windows, out.clock.stepped_ms)
    gate = _gate(reading, status, calendar)
    executor = _executor(reading, gate, limits)
    drain_tracker = DrainTracker(reading.shared_state, out.admin, out.config, out.clock, out.telemetry)
    optional, rate = features(reading, status, gate, parameters), _rate(reading, status)
    guard_memory = _guard_memory(reading, calendar, rate, optional)
    cycle = _cycle(reading, status, parameters, executor, gate, drain_tracker, guard_memory, optional)
    reading.term_start.add(partial(begin_term, cycle=cycle, outage=reading.outage))
    if out.source.live is not None:
        out.source.live.use(_counter_demand(reading, status, executor))
    return Leading(
        reading=reading,
        effective_parameters=parameters,
        gate=gate,
        executor=executor,
        drain_tracker=drain_tracker,
        features=optional,
        rate=rate,
        cycle=cycle,
        planner=Planner(cycle, out.clock.wall_ms, eta=drain_tracker.eta, interval_seconds=settings.cycle.interval),
        load_signals=LoadSignals(
            leadership=reading.leadership, peers=reading.peers, live=out.source.live, telemetry=out.telemetry
        ),
    )


def _cycle(
    reading: Reading,
    status: CycleStatus,
    parameters: EffectiveParameters,
    executor: Executor,
    gate: Gate,
    drain_tracker: DrainTracker,
    guard_memory: GuardMemory,
    optional: Features,
) -> Cycle:
    out, heed = reading.outside, reading.loaded.settings.effects.heed_external_moves
    return Cycle(
        status=status,
        observer=reading.observer,
        admin=out.admin,
        config=out.config,
        policies=reading.policies,
        metadata=out.metadata,
        executor=executor,
        shared_state=reading.shared_state,
        journal=reading.journal,
        telemetry=out.telemetry,
        clock=out.clock,
        parameters=parameters,
        trial=lambda: parameters.trial,
        drains=drain_tracker,
        warm_ups=WarmTracker(reading.shared_state, out.clock),
        guard_memory=guard_memory,
        gate=gate,
        effects=_effects(reading),
        external_moves=ExternalMoveWatch(out.ownership, reading.journal.append, out.telemetry, heed=heed),
        listeners=optional.listeners,
        shadow=optional.shadow,
    )


def _executor(reading: Reading, gate: Gate, limits: ExecutorLimits | None) -> Executor:
    seconds = reading.loaded.settings.admin.read_timeout + CONFIRM_ALLOWANCE_SECONDS
    return Executor(
        _move_ports(reading),
        reading.leadership,
        reading.shared_state,
        limits or ExecutorLimits(intent_seconds=seconds),
        gate,
        reading.policies.forbids,
    )


def _gate(reading: Reading, status: CycleStatus, calendar: Calendar) -> Gate:
    out, settings = reading.outside, reading.loaded.settings
    return Gate(
        ceiling=settings.mode,
        review_required=settings.reviewed,
        shared=reading.shared_state,
        metadata=out.metadata,
        config=out.config,
        clock=out.clock,
        outage=reading.outage.obstacle,
        second_balancer=lambda: second_balancer(status.state.external_moves, out.clock.wall_ms()),
        channel=reading.channel.unfit,
        windows=calendar.obstacle,
    )


def _move_ports(reading: Reading) -> MovePorts:
    out, observer = reading.outside, reading.observer
    return MovePorts(
        admin=out.admin,
        commands=out.admin,
        coordination=out.coordination,
        ownership=out.ownership,
        metadata=out.metadata,
        clock=out.clock,
        load_manager=lambda: observer.picture.mode if observer.picture else "",
        served_twice=lambda: observer.picture.bundles_served_twice if observer.picture else frozenset(),
    )


def _rate(reading: Reading, status: CycleStatus) -> RateSignals | None:
    section, clock = reading.loaded.settings.rate, reading.outside.clock
    if not section.adaptive:
        return None
    return RateSignals(
        reading.outside.admin,
        clock,
        picture=lambda: reading.observer.picture,
        concerned=lambda: list_moved_brokers(
            reading.shared_state.moves, clock.wall_ms() - int(2000 * section.interval)
        ),
        ceiling=lambda: status.params.max_moves_per_cycle,
        every_seconds=section.interval,
    )


def _guard_memory(reading: Reading, calendar: Calendar, rate: RateSignals | None, optional: Features) -> GuardMemory:
    allowed: Callable[[], int | None] = (lambda: None) if rate is None else (lambda: rate.moves)
    return GuardMemory(lambda: reading.shared_state.moves, calendar, allowed, optional.limited)


def _effects(reading: Reading) -> Effects:
    section = reading.loaded.settings.effects
    rules = EffectRules(quarantine_after=section.quarantine_after, quarantine_ms=int(1000 * section.quarantine_for))
    telemetry = reading.outside.telemetry
    return Effects(reading.journal.append, telemetry, rules=rules, revert=section.revert_worse_moves)


def _counter_demand(reading: Reading, status: CycleStatus, executor: Executor) -> CounterDemand:
    """Return the conditions under which the brokers' Prometheus counters are read.

    Only the leader reads counters. With the extensible load manager, a read changes the broker's own load averages, so
    these brokers are read only in mode `act` while none of them sheds load itself.
    """
    settings, observer, config = reading.loaded.settings, reading.observer, reading.outside.config
    free = settings.counters.source == "prometheus"

    def harmless() -> bool:
        if observer.picture is None or observer.picture.mode == "modular":
            return observer.picture is not None
        # Ignore brokers with unknown settings: a broker that has just started has not returned them yet.
        shedding = {config.sheds(broker) for broker in observer.picture.endpoints} - {None}
        acts = mode_in_force(settings.mode, reading.shared_state.desired) == "act"
        return settings.counters.extensible and acts and shedding == {False}

    return CounterDemand(
        wanted=lambda: reading.leadership.leading and (free or harmless()),
        moving=lambda: bool(observer.in_transit),
        in_flight=lambda: bool(executor.in_flight),
        urgent=lambda: status.state.memory.urgent,
    )
