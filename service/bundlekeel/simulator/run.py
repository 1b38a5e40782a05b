"""Run a scenario with one balancer on a virtual cluster, and sample all loads in every cycle."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

import numpy as np

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.load import Floats
from bundlekeel.model.parameters import Parameters, coerce, compat_defaults
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.ports import Metadata
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.counters.demand import CounterDemand, CounterOptions
from bundlekeel.simulator.balancers import CYCLE, Balancer, Bundlekeel, NoBalancer, RunBooks, direct_moves
from bundlekeel.simulator.bundles import TrafficModel, build
from bundlekeel.simulator.check import check
from bundlekeel.simulator.cluster import ANYWHERE, VirtualCluster
from bundlekeel.simulator.counters import ClusterCounters
from bundlekeel.simulator.expectations import ExpectationResult, judge
from bundlekeel.simulator.measures import Curves, RunMeasures, measure
from bundlekeel.simulator.native import BrokerSplits, Native
from bundlekeel.simulator.native_transfer import NativeTransfer
from bundlekeel.simulator.reports import START_MS, broker_id
from bundlekeel.simulator.scenario import Event, Lookup, Scenario
from bundlekeel.simulator.virtual_time import VirtualClock, run_virtually

Source = Literal["counters", "reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A balancer to compare. `kind`: Bundlekeel, the brokers' own balancer, or none.

    `source`: whether Bundlekeel reads the brokers' counters (the sidecar's default) or only their load reports. The
    brokers' own balancer always uses reports. `parameters` override those of the scenario. `compared`: missed
    expectations of this contender are not failures.
    """

    label: str
    kind: Literal["bundlekeel", "native", "none"] = "bundlekeel"
    source: Source = "counters"
    parameters: Mapping[str, object]
    compared: bool = False

    @property
    def native(self) -> bool:
        """Whether the brokers' own load manager balances, and not Bundlekeel."""
        return self.kind == "native"


# AvgShedder selects brokers by the hash of a random number. Round robin has nearly the same effect.
_LOOKUPS: dict[str, Lookup] = {
    "least_long_term_message_rate": "least_long_term_message_rate",
    "least_resource_usage": "least_resource_usage",
    "round_robin": "random",
    "avg": "random",
}
DEFAULT = Contender(label="avg", parameters={"strategy": "avg"})
STILL = Contender(label="no balancer", kind="none", source="reports", parameters={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished run. `findings`: result of each expectation; `digest`: hash of all decisions of the balancer."""

    scenario: Scenario
    contender: Contender
    seed: int
    measures: RunMeasures
    findings: tuple[ExpectationResult, ...]
    curves: Curves
    cluster: VirtualCluster
    books: RunBooks
    digest: str

    @property
    def failed(self) -> tuple[ExpectationResult, ...]:
        """The expectations that were not met."""
        return tuple(item for item in self.findings if not item.held)


class Simulation:
    """One scenario in progress. `run` runs all of it, `step` one tick of its clock. Both need a `VirtualLoop`."""

    def __init__(
        self, scenario: Scenario, contender: Contender, seed: int, timer: Callable[[], float] | None = None
    ) -> None:
        check(scenario)
        self.scenario, self.contender, self.seed, self.timer = scenario, contender, seed, timer
        self.cluster, self.traffic = virtual(_by_seconds(_placed_by(scenario, contender), contender), seed)
        self.params = parameters(scenario, contender)
        self.capacity = _overrides(scenario, self.cluster.capacity) if scenario.capacity_by_throughput else ()
        self.books = RunBooks(timer=timer)
        self.balancer = self._balancer()
        self.events = Events(scenario, self.cluster, self.traffic, self.balancer)
        self._pin()
        self.curves = Curves()
        extensible = isinstance(self.balancer, NativeTransfer)
        brokers_split = scenario.splits == "brokers" or self._brokers_split()
        self._splits = BrokerSplits(extensible=extensible) if brokers_split else None
        self.cluster.begin()
        self._sample()

    async def run(self, progress: Callable[[float], None] | None = None) -> None:
        """Run all ticks, and read counters in parallel. `progress` is called with the completed share, 0 to 1."""
        async with asyncio.TaskGroup() as tasks:
            live = self.balancer.live if isinstance(self.balancer, Bundlekeel) else None
            reading = tasks.create_task(live.run()) if live else None
            while self.cluster.now < 60 * self.scenario.minutes - 1e-6:
                await self.step()
                if progress:
                    progress(self.cluster.now / (60 * self.scenario.minutes))
            if reading:
                reading.cancel()

    async def step(self) -> None:
        """Run one tick: due events, the cluster's changes, then the balancer."""
        self.events.run()
        await asyncio.sleep(self.cluster.settings.tick)
        landed = self.cluster.advance()
        self.balancer.turn(self.cluster, landed)
        if self._splits is not None:
            self._splits.turn(self.cluster)
        if self.cluster.now % CYCLE < 1e-6:
            self._sample()

    def finish(self) -> Run:
        """Return the finished run with its measures and the results of its expectations."""
        expect = self.scenario.expect
        measures = measure(self.curves, self.cluster.moved, self.cluster.divided, expect.balanced or 1.15)
        outcome = Run(
            scenario=self.scenario,
            contender=self.contender,
            seed=self.seed,
            measures=measures,
            findings=(),
            curves=self.curves,
            cluster=self.cluster,
            books=self.books,
            digest=self._digest(),
        )
        still = mean_imbalance(self.scenario, self.seed) if expect.no_worse_than_still else 0.0
        direct = self._direct() if expect.within_direct is not None else 0
        return replace(outcome, findings=judge(outcome, still=still, direct=direct))

    def _brokers_split(self) -> bool:
        """Return whether brokers must split bundles: in scenarios with Bundlekeel's splits, if Bundlekeel does not
        balance."""
        return self.contender.native and self.scenario.splits == "bundlekeel"

    def _balancer(self) -> Balancer:
        policies = _policies(self.scenario, self.cluster)
        if self.contender.kind == "none":
            return NoBalancer()
        if self.contender.native and self.params.strategy == "transfer":
            return NativeTransfer(params=self.params, policies=policies, books=self.books)
        if self.contender.native:
            return Native(params=self.params, seed=self.seed, books=self.books)
        balancer = Bundlekeel(
            params=self.params,
            capacity=self.capacity,
            policies=policies,
            seed=self.seed,
            splits=self.scenario.splits == "bundlekeel",
            brokers_split=self.scenario.splits == "brokers",
            books=self.books,
        )
        if self.contender.source == "counters":
            balancer.live = self._live(balancer)
        return balancer

    def _live(self, balancer: Bundlekeel) -> LiveLoads:
        clock = VirtualClock()
        source = ClusterCounters(self.cluster, clock)
        # The reader uses the metadata store only for the hash boundaries of bundles.
        demand = CounterDemand(
            wanted=lambda: True,
            moving=lambda: bool(balancer.ledger.entries),
            urgent=lambda: balancer.memory.urgent,
            in_flight=lambda: bool(balancer.ledger.under_way()),
        )
        metadata, probe = cast("Metadata", source), source.cpu_seconds
        live = LiveLoads(source, metadata, clock, CounterOptions(), cpu_seconds=probe, demand=demand)
        live.statistics_seconds = lambda _broker: self.scenario.settings.statistics_interval
        return live

    def _pin(self) -> None:
        if isinstance(self.balancer, Bundlekeel):
            pinned = {
                self.events.bundle(pin.tenant, pin.bundle): START_MS + int(pin.until * 60_000)
                for pin in self.scenario.pins
            }
            self.balancer.guard = GuardState(pinned=pinned)

    def _sample(self) -> None:
        cluster = self.cluster
        self.curves.add(cluster.now, cluster.settled_load(), cluster.foreign, cluster.takes)

    def _direct(self) -> int:
        cluster, _ = virtual(self.scenario, self.seed)
        return direct_moves(cluster, self.params, self.capacity)

    def _digest(self) -> str:
        sha = hashlib.sha256("".join(self.books.hashes).encode())
        for move in self.cluster.moved:
            sha.update(f"{move.at} {move.bundle} {move.source} {move.target} {move.by}\n".encode())
        sha.update(np.concatenate(self.curves.loads).tobytes())
        return sha.hexdigest()[:16]


def simulate(
    scenario: Scenario,
    contender: Contender = DEFAULT,
    seed: int = 1,
    *,
    timer: Callable[[], float] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run a scenario to its end. Raises ConfigError if the scenario is invalid.

    `timer` returns seconds and is used to measure the slowest plan. `progress` is called with the completed share, 0
    to 1.
    """
    simulation = Simulation(scenario, contender, seed, timer)
    run_virtually(simulation.run(progress))
    return simulation.finish()


def mean_imbalance(scenario: Scenario, seed: int) -> float:
    """Run the scenario without a balancer and return the time mean of max/mean (highest load / mean load)."""
    bare = replace(scenario, expect=replace(scenario.expect, no_worse_than_still=False, within_direct=None))
    return simulate(bare, STILL, seed).measures.mean_max_over_mean


def virtual(scenario: Scenario, seed: int) -> tuple[VirtualCluster, TrafficModel]:
    """Return the cluster at its start and its traffic, which depend on scenario and seed but not on the balancer."""
    for_traffic, for_cluster = np.random.SeedSequence(seed).spawn(2)
    groups, settings = scenario.brokers, scenario.settings
    capacities = np.repeat([group.capacity for group in groups], [group.count for group in groups])
    bundles, traffic = build(scenario.tenants, capacities, settings.broker_bytes, for_traffic)
    cluster = VirtualCluster(bundles, traffic.topic_loads, capacities, settings, for_cluster)
    counts = [group.count for group in groups]
    cluster.foreign = np.repeat([group.foreign for group in groups], counts)
    cluster.reporter.skew[:] = np.repeat([group.skew_seconds for group in groups], counts)
    return cluster, traffic


def _placed_by(scenario: Scenario, contender: Contender) -> Scenario:
    """Return the scenario with lookups that use the contender's placement, if the brokers' own balancer runs.

    Returns the scenario unchanged for Bundlekeel, without a balancer, or without a placement. With strategy `transfer`
    (extensible load manager), and since Pulsar 5.0, lookups do not compare how many bundles of the namespace each
    broker has.
    """
    named = contender.parameters
    lookup = _LOOKUPS.get(str(named.get("placement", ""))) if contender.native else None
    evenly = scenario.settings.evenly and named.get("strategy") != "transfer" and named.get("compat") != "5.0"
    return replace(scenario, settings=replace(scenario.settings, lookup=lookup, evenly=evenly)) if lookup else scenario


def _by_seconds(scenario: Scenario, contender: Contender) -> Scenario:
    """Return the scenario with ticks of at most one second if the contender reads counters; otherwise unchanged.

    Counters are read every few seconds, so longer ticks would be too coarse.
    """
    tick = scenario.settings.tick
    if contender.source == "counters":
        tick /= math.ceil(tick)
    return replace(scenario, settings=replace(scenario.settings, tick=tick))


def parameters(scenario: Scenario, contender: Contender) -> Parameters:
    """Return the parameters of a run.

    Defaults are overridden by the scenario's parameters, then by the cluster's intervals, then by the contender's
    parameters.
    """
    named = {**scenario.parameters, **contender.parameters}
    values: dict[str, object] = {
        **compat_defaults(str(named.get("compat", "none")), named.get("strategy")),
        "statistics_interval_seconds": scenario.settings.statistics_interval,
        "host_usage_interval_seconds": scenario.settings.host_interval,
        "report_min_interval_seconds": scenario.settings.report_interval,
        "report_max_interval_seconds": scenario.settings.report_max_silence,
        "report_change_percent": 100 * scenario.settings.report_threshold,
        "split_enabled": scenario.splits == "bundlekeel",
        **named,
    }
    return Parameters(**{name: coerce(name, value) for name, value in values.items()})  # type: ignore[arg-type]


def _overrides(scenario: Scenario, capacities: Floats) -> tuple[CapacityOverride, ...]:
    """Return each broker's capacity as throughput in and out together. Plans then ignore the broker's CPU."""
    most = 2 * scenario.settings.broker_bytes
    return tuple(
        CapacityOverride(pattern=broker_id(place), throughput=most * capacity, ignore=("cpu",))
        for place, capacity in enumerate(capacities.tolist())
    )


def _policies(scenario: Scenario, cluster: VirtualCluster) -> Policies:
    """Return the isolation policies in Pulsar's form, and make the lookups of the virtual cluster follow them."""
    policies, bundles = [], cluster.bundles
    rows = {name.rpartition("/")[0]: int(row) for name, row in zip(bundles.names, bundles.namespace, strict=True)}
    hosts = [broker_id(broker).partition(":")[0] for broker in range(len(cluster.capacity))]
    allowed = np.ones((len(rows), len(hosts)), dtype=bool)
    for policy in scenario.isolation:
        mine = [space for space in rows if re.fullmatch(rf"{re.escape(policy.tenant)}(-\d+)?", space)]
        # Primary brokers of a policy do not accept bundles of namespaces without a policy.
        primaries = np.isin(np.arange(len(hosts)), policy.brokers)
        for space, row in rows.items():
            allowed[row] &= primaries if space in mine else ~primaries
        policies.append(
            IsolationPolicy(
                name=policy.tenant,
                namespaces=tuple(map(re.escape, mine)),
                primary=tuple(hosts[broker] for broker in policy.brokers),
                secondary=tuple(hosts[broker] for broker in policy.secondary),
                min_limit=policy.min_limit,
            )
        )
    if policies:
        cluster.allowed = allowed
    return Policies(isolation=tuple(policies))


Act = Callable[[], None]


class Events:
    """Executes a scenario's events when they are due, and ends temporary events when their time is over."""

    def __init__(self, scenario: Scenario, cluster: VirtualCluster, traffic: TrafficModel, balancer: Balancer) -> None:
        self._scenario, self._cluster, self._traffic, self._balancer = scenario, cluster, traffic, balancer
        self._due: list[tuple[float, int, Act]] = []
        self._serial = 0
        # Events identify a bundle by its number within its tenant at the start of the run.
        self._first: list[int] = np.cumsum([0, *(tenant.bundles for tenant in scenario.tenants)]).tolist()
        self._places = {tenant.name: place for place, tenant in enumerate(scenario.tenants)}
        for event in scenario.events:
            self._later(event.at * 60, self._act(event))

    def run(self) -> None:
        """Execute the events that are due by now."""
        while self._due and self._due[0][0] <= self._cluster.now + 1e-9:
            heapq.heappop(self._due)[2]()

    def bundle(self, tenant: str, number: int) -> str:
        """Return the name of a tenant's bundle."""
        return self._cluster.bundles.names[self._first[self._places[tenant]] + number]

    def _later(self, at: float, act: Act) -> None:
        self._serial += 1
        heapq.heappush(self._due, (at, self._serial, act))

    def _after(self, seconds: float, act: Act) -> None:
        self._later(self._cluster.now + seconds, act)

    def _act(self, event: Event) -> Act:
        acts: dict[str, Callable[[Event], None]] = {
            "add": self._add,
            "kill": self._kill,
            "drain": self._drain,
            "restart": self._restart,
            "scale": self._scale,
            "foreign": self._foreign,
            "skew": self._skew,
            "lose": self._lose,
            "delay": self._delay,
            "bad": self._bad,
            "unload": self._unload,
            "shedding": self._shedding,
        }
        return partial(acts[event.do], event)

    def _add(self, event: Event) -> None:
        self._cluster.add(event.count, event.capacity)

    def _kill(self, event: Event) -> None:
        for broker in event.brokers:
            self._cluster.kill(broker)
            self._after(self._cluster.settings.session_seconds, partial(self._cluster.expire, broker))

    def _drain(self, event: Event) -> None:
        for broker in event.brokers:
            self._cluster.drain(broker)

    def _restart(self, event: Event) -> None:
        for place, broker in enumerate(event.brokers):
            self._after(60 * event.minutes * place, partial(self._cluster.drain, broker))
            self._after(60 * event.minutes * (place + 1), partial(self._cluster.start, broker))

    def _scale(self, event: Event) -> None:
        scale = self._traffic.scale.copy()
        scale[self._places[event.tenant]] *= event.factor
        self._traffic.scale = scale

    def _foreign(self, event: Event) -> None:
        foreign = self._cluster.foreign.copy()
        foreign[list(event.brokers)] = event.factor
        self._cluster.foreign = foreign

    def _skew(self, event: Event) -> None:
        self._cluster.reporter.skew[list(event.brokers)] = event.seconds

    def _lose(self, event: Event) -> None:
        self._passing("loss", event, event.factor, self._scenario.settings.report_loss)

    def _delay(self, event: Event) -> None:
        self._passing("delay", event, event.seconds, self._scenario.settings.report_delay)

    def _passing(self, column: str, event: Event, value: float, usual: float) -> None:
        # Read the array again when the event ends, because brokers that are added meanwhile replace it.
        brokers, reporter = list(event.brokers), self._cluster.reporter
        getattr(reporter, column)[brokers] = value
        if event.minutes:
            self._after(60 * event.minutes, lambda: getattr(reporter, column).__setitem__(brokers, usual))

    def _bad(self, event: Event) -> None:
        self._cluster.reporter.spoil(event.brokers, event.kind)
        if event.minutes:
            self._after(60 * event.minutes, lambda: self._cluster.reporter.spoil(event.brokers, ""))

    def _unload(self, event: Event) -> None:
        name = self.bundle(event.tenant, event.bundle)
        self._cluster.move(name, ANYWHERE, by="person")

    def _shedding(self, event: Event) -> None:
        balancer = self._balancer
        if isinstance(balancer, Bundlekeel):
            balancer.shed_themselves = True
            if event.minutes:
                self._after(60 * event.minutes, lambda: setattr(balancer, "shed_themselves", False))
