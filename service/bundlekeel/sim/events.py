"""What happens to a virtual cluster while it runs, as its scenario says."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial

import numpy as np

from bundlekeel.sim.balancers import Balancer, Bundlekeel
from bundlekeel.sim.cluster import ANYWHERE, VirtualCluster
from bundlekeel.sim.scenario import Event, Scenario
from bundlekeel.sim.traffic import TrafficModel

Act = Callable[[], None]


class Events:
    """Carries out a scenario's events when they are due, and undoes the passing ones."""

    def __init__(self, scenario: Scenario, cluster: VirtualCluster, traffic: TrafficModel, balancer: Balancer) -> None:
        self._scenario, self._cluster, self._traffic, self._balancer = scenario, cluster, traffic, balancer
        self._due: list[tuple[float, int, Act]] = []
        self._serial = 0
        # Numbers of bundles are counted within their tenant, as they are at the start.
        self._first: list[int] = np.cumsum([0, *(tenant.bundles for tenant in scenario.tenants)]).tolist()
        self._places = {tenant.name: place for place, tenant in enumerate(scenario.tenants)}
        for event in scenario.events:
            self._later(event.at * 60, self._act(event))

    def run(self) -> None:
        """Do everything that is due by now."""
        while self._due and self._due[0][0] <= self._cluster.now + 1e-9:
            heapq.heappop(self._due)[2]()

    def bundle(self, tenant: str, number: int) -> str:
        """The name of a tenant's bundle."""
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
        """One after the other, each away for a while."""
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
        # By name: brokers that join later make the columns anew.
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
