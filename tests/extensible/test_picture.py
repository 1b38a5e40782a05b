"""The picture of a real cluster of the extensible load manager: load topics, broker statistics, deaths and moves."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bundlekeel.model.errors import SnapshotError
from bundlekeel.model.extensible import is_rest
from bundlekeel.model.load import PRODUCERS, RATE_IN, RATE_OUT, THROUGHPUT_IN, TOPICS
from bundlekeel.ports import RawClusterView
from bundlekeel.ports.commands import by_person
from bundlekeel.wiring.outside import Outside
from dev.cluster import Cluster
from dev.traffic import Traffic
from tests.chaos.stage import traffic_spec
from tests.support.channel_following import outside
from tests.support.contracts.coordination import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

BYTES = 1024
RATE = 480.0
BUNDLES = 12


@pytest.fixture(scope="module")
def traffic(extensible_cluster: Cluster) -> Iterator[Traffic]:
    """Twelve bundles of two topics with equal rates, all at the second broker."""
    fixed = {"bundles": BUNDLES, "topics_per_bundle": 2, "rate_total_msgs": RATE, "message_bytes": BYTES, "zipf": 0.0}
    load = Traffic(traffic_spec(extensible_cluster, "picture/traffic", **fixed))
    load.place_all_on(extensible_cluster.brokers[1].broker_id)
    with load:
        yield load


class Watched:
    """The sidecar's source over the real cluster, and the adapters below it."""

    def __init__(self, out: Outside) -> None:
        self.source, self.admin, self.feed = out.source, out.admin, out.source._feed

    async def picture(self) -> RawClusterView | None:
        """The present one, if there is any yet."""
        try:
            return await self.source.picture()
        except SnapshotError:
            return None


@asynccontextmanager
async def watching(cluster: Cluster, **extensible: Any) -> AsyncIterator[Watched]:
    """Started; reports of brokers alone, without counters."""
    settings = {"extensible": {"stats_interval": "1s", **extensible}, "counters": {"source": "off"}}
    async with outside(cluster, **settings) as out:
        out.source.use_settings(lambda _: {"statsUpdateFrequencyInSecs": "1"})
        yield Watched(out)


@pytest.fixture
async def watched(extensible_cluster: Cluster) -> AsyncIterator[Watched]:
    """Every bundle, asked of each broker."""
    async with watching(extensible_cluster) as instance:
        yield instance


def rates(picture: RawClusterView, namespace: str) -> dict[str, dict[str, float]]:
    """Return messages in per second by broker and bundle of this namespace."""
    rates_by_broker: dict[str, dict[str, float]] = defaultdict(dict)
    for report in picture.reports:
        for bundle, row in zip(report.bundle_names, report.bundle_traffic.tolist(), strict=True):
            if bundle.startswith(f"{namespace}/"):
                rates_by_broker[report.broker_id][bundle] = row[RATE_IN]
    return rates_by_broker


async def settled(watched: Watched, traffic: Traffic) -> RawClusterView:
    """A picture of three brokers in which every bundle is once, within 20 % of what it is offered."""
    offered: dict[str, float] = defaultdict(float)
    for plan in traffic.prepare():
        offered[plan.bundle] += plan.rate

    async def as_offered() -> RawClusterView | None:
        picture = await watched.source.picture()
        pairs = [pair for bundles in rates(picture, traffic.spec.namespace).values() for pair in bundles.items()]
        right = sorted(name for name, _ in pairs) == sorted(offered) and all(
            abs(rate - offered[name]) <= 0.2 * offered[name] for name, rate in pairs
        )
        return picture if right and len(picture.reports) == 3 else None

    view: RawClusterView = await eventually(as_offered, within=120.0)
    return view


async def test_all_brokers_and_all_bundles(extensible_cluster: Cluster, watched: Watched, traffic: Traffic) -> None:
    """Three brokers; each bundle once, at its owner, with its traffic; more than the ten that are published."""
    second = extensible_cluster.brokers[1].broker_id
    picture = await settled(watched, traffic)
    assert (picture.mode, picture.excluded) == ("extensible", ())
    assert {broker: len(loads) for broker, loads in rates(picture, traffic.spec.namespace).items()} == {second: BUNDLES}
    report = next(item for item in picture.reports if item.broker_id == second)
    mine = [name.startswith(traffic.spec.namespace) for name in report.bundle_names]
    summed, counted = report.bundle_traffic[mine].sum(axis=0), report.bundle_counts[mine].sum(axis=0)
    assert summed[[RATE_IN, RATE_OUT]].tolist() == pytest.approx([RATE, RATE], rel=0.2)
    assert RATE * BYTES * 0.8 <= summed[THROUGHPUT_IN] <= RATE * (BYTES + 200) * 1.2
    # Besides ours there may be Pulsar's own `__change_events`.
    assert counted[TOPICS] >= 2 * BUNDLES
    assert counted[PRODUCERS] >= 2 * BUNDLES
    assert picture.endpoints[second].service_url and report.version and report.start_timestamp > 0
    assert watched.source.feed.status.state == "ok"


@pytest.mark.nightly
async def test_statistics_agree_with_those_of_one_bundle(watched: Watched, traffic: Traffic) -> None:
    """A bundle's rate is the sum of its topics' rates; the two are read at slightly different times."""
    picture = await settled(watched, traffic)
    owner, bundles = next(iter(rates(picture, traffic.spec.namespace).items()))
    bundle = next(iter(bundles))

    async def agree() -> bool:
        loads = await watched.admin.bundle_loads(owner)
        topics = await watched.admin.topic_loads(bundle, owner)
        row = loads.names.index(bundle)
        rate = sum(topic.traffic[RATE_IN] for topic in topics)
        return len(topics) == loads.counts[row, TOPICS] and loads.traffic[row, RATE_IN] == pytest.approx(rate, rel=0.2)

    await eventually(agree, within=60.0)


@pytest.mark.nightly
async def test_a_transfer_removes_nobody(extensible_cluster: Cluster, watched: Watched, traffic: Traffic) -> None:
    """Both brokers take their load data back while a bundle moves; they stay in every picture meanwhile."""
    picture = await settled(watched, traffic)
    source, bundles = next(iter(rates(picture, traffic.spec.namespace).items()))
    bundle = sorted(bundles)[0]
    target = next(item.broker_id for item in reversed(picture.reports) if item.broker_id != source)
    withdrawn: set[str] = set()
    reported: list[int] = []

    async def look() -> None:
        generation = -1
        while True:
            await watched.feed.wait_changed(generation, 1.0)
            tables = watched.feed.tables()
            generation = tables.generation
            withdrawn.update(broker for broker, load in tables.latest.items() if load.withdrawn_ms)
            before = await watched.picture()
            reported.append(len(before.reports) if before is not None else 0)

    # A broker takes its load data back at most once in ten seconds, and others may have moved something just now.
    await asyncio.sleep(11.0)
    looking = asyncio.create_task(look())
    try:
        answer = await watched.admin.unload(bundle, destination=target, at=source, permit=by_person)
        assert answer.status == 204

        async def told_there() -> bool:
            after = rates(await watched.source.picture(), traffic.spec.namespace)
            return after.get(target, {}).get(bundle, 0.0) > 0 and bundle not in after.get(source, {})

        await eventually(told_there, within=60.0)
        await settled(watched, traffic)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    assert {source, target} <= withdrawn
    assert set(reported) == {3}
    await watched.admin.unload(bundle, destination=source, at=target, permit=by_person)


@pytest.mark.nightly
async def test_a_killed_broker_leaves_and_returns(
    extensible_cluster: Cluster, watched: Watched, traffic: Traffic
) -> None:
    """Out as soon as its registration ends, although its load data stay in the tables; back after its restart."""
    await settled(watched, traffic)
    victim = extensible_cluster.brokers[2]
    await eventually(lambda: victim.broker_id in watched.feed.tables().latest, within=60.0)
    extensible_cluster.kill(victim.name)
    try:

        async def is_gone() -> bool:
            before = await watched.source.picture()
            broker_ids = [item.broker_id for item in (*before.reports, *before.excluded)]
            return bool(before.reports) and victim.broker_id not in broker_ids

        await eventually(is_gone, within=60.0)
        assert victim.broker_id in watched.feed.tables().latest
    finally:
        await asyncio.to_thread(extensible_cluster.restart, victim.name)

    async def back() -> bool:
        before = await watched.source.picture()
        return len(before.reports) == 3 and not before.excluded

    await eventually(back, within=120.0)


@pytest.mark.nightly
async def test_only_the_published_bundles(extensible_cluster: Cluster, watched: Watched, traffic: Traffic) -> None:
    """`bundles: top`: ten at most and one row for the rest; together what the broker carries."""
    await settled(watched, traffic)
    async with watching(extensible_cluster, bundles="top") as top:

        async def ten() -> bool:
            picture = await top.source.picture()
            reports = {item.broker_id: item for item in picture.reports if not item.faults}
            report = reports.get(extensible_cluster.brokers[1].broker_id)
            if report is None or len(report.bundle_names) != 11:
                return False
            carried = float(report.bundle_traffic[:, RATE_IN].sum())
            return is_rest(report.bundle_names[-1]) and carried == pytest.approx(RATE, rel=0.2)

        await eventually(ten, within=120.0)
