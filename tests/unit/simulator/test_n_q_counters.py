"""The simulator reads counters of virtual brokers with the sidecar's own reader."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from bundlekeel.model.counters import CounterReading, measured
from bundlekeel.model.double_service import DoubleService
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.model.names import FULL_UPPER
from bundlekeel.simulator.cluster import VirtualCluster
from bundlekeel.simulator.counters import ClusterCounters
from bundlekeel.simulator.pairs import contender, native, pair
from bundlekeel.simulator.reports import broker_id
from bundlekeel.simulator.run import DEFAULT, STILL, Contender, simulate, virtual
from bundlekeel.simulator.scenario import BrokerGroup, Event, Scenario, ScenarioSettings, Tenant
from bundlekeel.simulator.virtual_time import VirtualClock, run_virtually
from tests.support.live_loop import lasting_step, play


def scenario(**changes: object) -> Scenario:
    """Two brokers, one of which has a noisy neighbour; its three bundles have two topics each."""
    result = Scenario(
        name="made",
        title="made",
        minutes=2.0,
        brokers=(BrokerGroup(count=1, foreign=0.25), BrokerGroup(count=1)),
        tenants=(Tenant(name="t/ns", bundles=3, topics=2, sizes=(0.1, 0.2, 0.1), owners=(0,), shuffle=False),),
        settings=ScenarioSettings(tick=1.0),
    )
    return replace(result, **changes)  # type: ignore[arg-type]


async def _tick(cluster: VirtualCluster, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(cluster.settings.tick)
        cluster.advance()


async def _read(source: ClusterCounters, broker: int) -> CounterReading:
    name = broker_id(broker)
    (reading,) = await source.counters(BrokerEndpoint(broker_id=name, web_url=f"http://{name}"))
    return reading


def test_n_q_counters_show_what_topics_carry() -> None:
    """Two readings give each bundle's exact rate, and the CPU of the broker's process without its neighbour's."""

    async def main() -> None:
        cluster, _ = virtual(scenario(), 1)
        cluster.begin()
        source = ClusterCounters(cluster, VirtualClock())
        first = await _read(source, 0)
        await _tick(cluster, 7)
        load = measured(first, await _read(source, 0), {"t/ns": await source.boundaries("t/ns")})
        assert load is not None and load.bundles == tuple(cluster.bundles.names)
        np.testing.assert_allclose(load.traffic, cluster.bundle_loads()[:, None] * cluster.bundles.unit, rtol=1e-9)
        assert load.cpu_cores == pytest.approx(cluster.settings.cpu_base + 0.4)

    run_virtually(main())


def test_n_q_a_topic_counts_from_0_where_it_is_loaded() -> None:
    """After a move the target has the topics, and the source none of them."""

    async def main() -> None:
        cluster, _ = virtual(scenario(), 1)
        cluster.begin()
        source = ClusterCounters(cluster, VirtualClock())
        await _tick(cluster, 30)
        cluster.move(cluster.bundles.names[1], 1, by="balancer")
        await _tick(cluster, 6)
        moved, rest = await _read(source, 1), await _read(source, 0)
        assert len(moved.keys) == 2 and len(rest.keys) == 4
        assert moved.counters.max() < rest.counters.max() / 3

    run_virtually(main())


def test_n_q_a_split_changes_the_boundaries() -> None:
    """The parent's edges are not given twice."""
    cluster, _ = virtual(scenario(), 1)
    middle = FULL_UPPER // 6
    cluster.split(cluster.bundles.names[0], [middle], by="brokers")
    edges = run_virtually(ClusterCounters(cluster, VirtualClock()).boundaries("t/ns"))
    assert edges == sorted(set(edges)) and middle in edges and len(edges) == 5


def test_n_q_a_dead_broker_never_responds() -> None:
    """Until its node is gone the reader waits; then it gives up."""

    async def main() -> None:
        cluster, _ = virtual(scenario(), 1)
        cluster.begin()
        cluster.kill(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100.0):
                await _read(ClusterCounters(cluster, VirtualClock()), 0)

    run_virtually(main())


@pytest.mark.parametrize(
    ("who", "source"),
    [
        (DEFAULT, "counters"),
        (contender("threshold"), "counters"),
        (contender("threshold", "reports"), "reports"),
        (native("avg"), "reports"),
        (pair("transfer"), "reports"),
        (STILL, "reports"),
    ],
)
def test_n_q_who_reads_what(who: Contender, source: str) -> None:
    """Bundlekeel reads counters unless told otherwise; brokers' own loop always reads reports."""
    assert who.source == source


def test_n_q_counters_show_a_step_sooner() -> None:
    step = lasting_step(3.0, 150, usage=0.5)
    by_counters, by_reports = (play(step, 4, counters=counters) for counters in (True, False))
    assert by_counters[0].at < min((move.at for move in by_reports), default=60 * step.minutes) - 30


def test_n_q_every_event_runs_by_counters() -> None:
    """Brokers join, die, restart and report nonsense; no bundle is lost and counters are read to the end."""
    events = (
        Event(at=0.5, do="add", count=1),
        Event(at=0.6, do="kill", brokers=(1,)),
        Event(at=1.5, do="restart", brokers=(2,), minutes=0.5),
        Event(at=1.6, do="bad", brokers=(0,), kind="nan", minutes=0.5),
        Event(at=2.2, do="skew", brokers=(0,), seconds=30),
        Event(at=2.5, do="foreign", brokers=(0,), factor=0.5),
    )
    result = simulate(scenario(brokers=(BrokerGroup(count=3),), minutes=4.0, events=events), DEFAULT, 1)
    assert result.failed == () and result.cluster.now == 240.0
    assert result.books.refusals["NotANumber"] > 0


def test_n_q_ticks_are_a_second_by_counters_alone() -> None:
    """A scenario's own tick stays by reports."""
    case = scenario(settings=ScenarioSettings(tick=5.0), minutes=1.0)
    ticks = [simulate(case, who, 1).cluster.settings.tick for who in (DEFAULT, STILL)]
    assert ticks == [1.0, 5.0]


def test_moves_are_not_double_service() -> None:
    """Bundles move about every minute; one broker is read every 30 s, the other one ten times as often. A broker that
    serves the topics of another one, too, is detected."""

    async def main() -> None:
        cluster, _ = virtual(scenario(), 1)
        cluster.begin()
        source, double, random = ClusterCounters(cluster, VirtualClock()), DoubleService(), Random(3)
        last: dict[int, CounterReading] = {}
        due, moving = [0, 0], dict.fromkeys(cluster.bundles.names, 5)
        for second in range(1200):
            for bundle, at in moving.items():
                if second >= at and cluster.move(
                    bundle, 1 - int(cluster.bundles.owner[cluster.bundles.index[bundle]]), by="test"
                ):
                    moving[bundle] = second + random.randint(61, 90)
            for broker in (0, 1):
                if second >= due[broker]:
                    due[broker] = second + (random.randint(25, 30), random.randint(2, 4))[broker]
                    reading = await _read(source, broker)
                    await _add(source, double, broker_id(broker), last.get(broker), reading)
                    last[broker] = reading
            await _tick(cluster, 1)
            assert double.reports(cluster.wall_ms) == ()
        assert len(cluster.moved) > 30
        owner = int(cluster.bundles.owner[0])
        for _ in range(2):
            reading = await _read(source, owner)
            for name, before in (("a:1", last.get(owner)), ("b:1", last.get(owner))):
                await _add(source, double, name, before, reading)
            last[owner] = reading
            await _tick(cluster, 10)
        assert double.reports(cluster.wall_ms)

    run_virtually(main())


async def _add(
    source: ClusterCounters, double: DoubleService, broker: str, before: CounterReading | None, after: CounterReading
) -> None:
    if before is not None:
        load = measured(before, after, {"t/ns": await source.boundaries("t/ns")})
        assert load is not None
        double.add(broker, load.growth)
