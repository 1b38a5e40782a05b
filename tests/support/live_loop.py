"""Counters, their fusion with reports and the planner as one loop over a virtual cluster, second by second."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from bundlekeel.core.model.counters import CounterReading
from bundlekeel.core.model.load import BrokerEndpoint, BrokerReport
from bundlekeel.core.model.names import FULL_UPPER
from bundlekeel.core.model.snapshot import Snapshot, build_snapshot
from bundlekeel.core.planning.ledger import landed
from bundlekeel.daemon.sources.counters import CounterOptions, LiveLoads
from bundlekeel.ports import Clock, RawClusterView
from bundlekeel.sim.balancers import Bundlekeel, RunBooks, cluster_index
from bundlekeel.sim.cluster import SimulatedMove, VirtualCluster
from bundlekeel.sim.reports import START_MS, broker_id
from bundlekeel.sim.run import DEFAULT, Events, parameters, virtual
from bundlekeel.sim.scenario import BrokerGroup, Event, Scenario, ScenarioSettings, Tenant
from tests.support.virtual_time import LoopClock, run_virtually

# No cycle begins sooner after the one before (`cycle.interval` / 5), and none much later.
_SHORTEST, _INTERVAL = 2, 10


class ClusterCounters:
    """`ports.TopicCounters` of a virtual cluster: exact, and begun anew where a topic is loaded."""

    def __init__(self, cluster: VirtualCluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        # What was counted until the present tick began, and what comes in a second of it.
        self._counted = self._rates = np.zeros((len(cluster.bundles.topic_hash), 4))
        self._cpu = self._busy = np.zeros(len(cluster.capacity))
        self._began = clock.boot()

    def tick(self) -> None:
        """A tick begins: what was counted is kept of topics that are served."""
        bundles, seconds = self._cluster.bundles, self._seconds()
        served = bundles.owner[bundles.topic_bundle] >= 0
        self._counted = np.where(served[:, None], self._counted + seconds * self._rates, 0.0)
        self._cpu = self._cpu + seconds * self._busy
        self._rates = self._cluster.topic_loads()[:, None] * bundles.unit[bundles.topic_bundle] * served[:, None]
        self._busy, self._began = self._cluster.busy(), self._clock.boot()

    def _seconds(self) -> float:
        return self._clock.boot() - self._began

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """See the port."""
        bundles, place = self._cluster.bundles, cluster_index(broker.broker_id)
        rows = np.flatnonzero(bundles.owner[bundles.topic_bundle] == place)
        names = [bundles.names[row].rpartition("/")[0] for row in bundles.topic_bundle[rows].tolist()]
        namespaces = tuple(dict.fromkeys(names))
        now = self._clock.wall_ms()
        return [
            CounterReading(
                from_ms=now,
                to_ms=now,
                namespaces=namespaces,
                namespace=np.array([namespaces.index(name) for name in names], dtype=np.int64),
                keys=rows.astype(np.uint64),
                topic=np.ones(len(rows), dtype=bool),
                hashes=bundles.topic_hash[rows],
                counters=self._counted[rows] + self._seconds() * self._rates[rows],
                sessions=np.ones((len(rows), 2), dtype=np.int64),
                cpu_seconds=float(self._cpu[place] + self._seconds() * self._busy[place]),
            )
        ]

    async def boundaries(self, namespace: str) -> list[int]:
        """`Metadata.boundaries`."""
        bundles = self._cluster.bundles
        of = [row for row, name in enumerate(bundles.names) if name.rpartition("/")[0] == namespace]
        return [*sorted(bundles.lower[of].tolist()), FULL_UPPER]


@dataclass(kw_only=True)
class LiveBundlekeel(Bundlekeel):
    """The simulator's books, with cycles as the daemon begins them: where some figures are new, or after an interval.
    `live` None: by reports alone."""

    live: LiveLoads | None
    picture: RawClusterView | None = None
    _last: float = float("-inf")
    _heard: tuple[BrokerReport, ...] = ()

    def turn(self, cluster: VirtualCluster, arrived: list[tuple[str, str]]) -> None:
        """Book what landed, count fresh figures, and a cycle when one is due."""
        cluster.reporter.take_fresh()
        picture = _picture(cluster)
        reports = picture.reports if self.live is None else self.live.fused(picture).reports
        for bundle, where in arrived:
            self.ledger = landed(self.ledger, bundle, where, cluster.wall_ms)
        new = [item for item in reports if not any(item is old for old in self._heard)]
        for item in new:
            self.averages.add_report(item, now_ms=cluster.wall_ms, skip=self.ledger.bundles())
        self._heard = reports
        if cluster.now - self._last >= (_SHORTEST if new else _INTERVAL):
            self._last = cluster.now
            self.cycle(cluster)

    def _snapshot(self, cluster: VirtualCluster) -> Snapshot:
        return build_snapshot(reports=self._heard, averages=self.averages, wall_ms=cluster.wall_ms)


def play(scenario: Scenario, seed: int, *, counters: bool, books: RunBooks | None = None) -> list[SimulatedMove]:
    """Run the loop over a scenario with ticks of a second; the moves it made."""
    return run_virtually(_played(scenario, seed, counters=counters, books=books or RunBooks()))


async def _played(scenario: Scenario, seed: int, *, counters: bool, books: RunBooks) -> list[SimulatedMove]:
    cluster, traffic = virtual(scenario, seed)
    clock = LoopClock()
    source = ClusterCounters(cluster, clock)
    live = LiveLoads(source, cast("Any", SimpleNamespace(boundaries=source.boundaries)), clock, CounterOptions())
    balancer = LiveBundlekeel(
        params=parameters(scenario, DEFAULT), seed=seed, live=live if counters else None, books=books
    )
    live.wanted, live.moving = (lambda: True), lambda: bool(balancer.ledger.entries)
    live.in_flight = lambda: bool(cluster.under_way())
    live.register(_picture(cluster).endpoints)
    events = Events(scenario, cluster, traffic, balancer)
    cluster.begin()
    reading = asyncio.create_task(live.run())
    while cluster.now < 60 * scenario.minutes:
        events.run()
        source.tick()
        await clock.sleep(scenario.settings.tick)
        balancer.turn(cluster, cluster.advance())
        assert not live.doubts()
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    await live.close()
    return cluster.moved


def _picture(cluster: VirtualCluster) -> RawClusterView:
    reports = tuple(cluster.reports())
    names = map(broker_id, range(len(cluster.capacity)))
    started = {report.broker_id: report.start_timestamp for report in reports}
    endpoints = {
        name: BrokerEndpoint(broker_id=name, web_url=f"http://{name}", start_timestamp=started.get(name, START_MS))
        for name in names
    }
    return RawClusterView(
        wall_ms=cluster.wall_ms,
        boot=cluster.now,
        generation=0,
        mode="modular",
        reports=reports,
        endpoints=endpoints,
    )


def square_wave(half: float, low: float, high: float, *, usage: float, minutes: float) -> Scenario:
    """One of four brokers has `high` and `low` times its usual load, `half` seconds each, from the third minute on."""
    turns = range(int((60 * minutes - 180) / half))
    scales = [(180 + half * turn, low / high if turn % 2 else high / low) for turn in turns]
    return _scaled(f"wave-{half:g}", usage, minutes, [(180, high), *scales[1:]])


def lasting_step(factor: float, at: float, *, usage: float) -> Scenario:
    """One of four brokers has `factor` times its usual load from second `at` on."""
    return _scaled("step", usage, 4.0, [(at, factor)])


def _scaled(name: str, usage: float, minutes: float, scales: Sequence[tuple[float, float]]) -> Scenario:
    own = usage / 4
    return Scenario(
        name=name,
        title=name,
        minutes=minutes,
        brokers=(BrokerGroup(count=4),),
        tenants=(
            Tenant(name="t/wave", bundles=12, topics=3, usage=own, zipf=0.7, owners=(0,)),
            Tenant(name="t/even", bundles=36, topics=3, usage=3 * own, zipf=0.7, owners=(1, 2, 3), start="balanced"),
        ),
        settings=ScenarioSettings(tick=1.0),
        events=tuple(Event(at=at / 60, do="scale", tenant="t/wave", factor=factor) for at, factor in scales),
    )
