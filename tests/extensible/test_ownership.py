"""Ownership and the channel watch on real brokers, in both variants of the channel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bundlekeel.model.channel_states import UnitState
from bundlekeel.ports import Owner
from dev.cluster import Cluster, ClusterSpec, open_cluster
from tests.support.channel_cluster import BrokerCluster
from tests.support.channel_following import Following, following
from tests.support.contracts.coordination import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(400)]

SESSION_MS = 6000
VARIANTS = {"extensible_cluster": "system_topic", "store_cluster": "metadata_store"}


@pytest.fixture(params=VARIANTS)
def brokers(request: pytest.FixtureRequest) -> BrokerCluster:
    """Brokers of either variant; the shared clusters stay whole."""
    cluster: Cluster = request.getfixturevalue(request.param)
    return BrokerCluster(cluster)


async def one_bundle(brokers: BrokerCluster) -> tuple[str, str]:
    """A new bundle with an owner."""
    namespace = await brokers.make_namespace(bundles=1)
    owner = await brokers.look_up(f"persistent://{namespace}/t")
    return f"{namespace}/0x00000000_0xffffffff", owner


def other(brokers: BrokerCluster, owner: str) -> str:
    """Another broker that lives."""
    return next(item.broker_id for item in brokers.alive if item.broker_id != owner)


async def test_the_owner_is_right_after_each_transfer(brokers: BrokerCluster, request: pytest.FixtureRequest) -> None:
    """Ten transfers back and forth: each time the reported owner is right once the brokers have responded."""
    bundle, owner = await one_bundle(brokers)
    async with following(brokers.cluster) as us:
        assert us.channel.reading.variant == VARIANTS[request.node.callspec.params["brokers"]]
        assert us.channel.reading.obstacle == ""
        for _ in range(10):
            owner = other(brokers, owner)
            await brokers.transfer(bundle, owner)
            url, service = next((item.web_url, item.service_url) for item in brokers.alive if item.broker_id == owner)
            assert await us.ownership.owner(bundle) == Owner(broker_id=owner, web_url=url, service_url=service)
        await brokers.do("PUT", f"/admin/v2/namespaces/{bundle}/unload")
        assert await us.ownership.owner(bundle) is None
        assert us.watch.findings() == []


@pytest.fixture(scope="module")
def mortal() -> Iterator[BrokerCluster]:
    """Three brokers that may be killed, and are missed soon: short sessions with ZooKeeper."""
    settings = {"metadataStoreSessionTimeoutMillis": str(SESSION_MS)}
    with open_cluster(ClusterSpec(brokers=3, mode="extensible", broker_settings=settings)) as cluster:
        yield BrokerCluster(cluster)


def lines(us: Following, code: str, event: str, broker: str) -> list[Mapping[str, Any]]:
    """Lines of the journal about this broker."""
    return [line for line in us.lines if (line["code"], line["event"]) == (code, event) and broker in line["brokers"]]


async def written(us: Following, code: str, event: str, broker: str, within: float) -> Mapping[str, Any]:
    """The first such line, as soon as it is there."""
    matches: list[Mapping[str, Any]] = await eventually(lambda: lines(us, code, event, broker), within=within)
    return matches[0]


async def wait_for_takeover(us: Following, bundle: str, dead: str) -> None:
    """Wait until a broker other than the dead one owns the bundle."""

    async def elsewhere() -> bool:
        now = await us.ownership.owner(bundle)
        return now is not None and not now.disabled and now.broker_id != dead

    await eventually(elsewhere, within=100)


async def restarted(mortal: BrokerCluster, us: Following, broker: str) -> None:
    """Start a killed broker again; wait until the picture is whole and nothing is wrong."""
    name = next(item.name for item in mortal.cluster.brokers if item.broker_id == broker)
    await asyncio.to_thread(mortal.cluster.restart, name)

    async def whole() -> bool:
        picture = await us.source.picture()
        return len(picture.endpoints) == 3 and us.watch.followed and us.watch.findings() == []

    await eventually(whole, within=150)


async def test_a_killed_owner_is_found(mortal: BrokerCluster) -> None:
    """SIGKILL of a broker that owns bundles and does not lead. The finding appears when its session ends, and ends when
    the leader broker has moved its bundles. After a restart all is normal.
    """
    leader = await mortal.leader()
    namespace = await mortal.make_namespace(bundles=8)
    topics = [f"persistent://{namespace}/t{number}" for number in range(40)]
    owners = {topic: await mortal.look_up(topic) for topic in topics}
    victim = next(owner for owner in owners.values() if owner != leader)
    name = next(item.name for item in mortal.cluster.brokers if item.broker_id == victim)
    async with following(mortal.cluster) as us:
        view = us.watch.current()
        its = {bundle for bundle, unit in view.units.items() if unit.destination == victim}
        assert any(bundle.startswith(namespace) for bundle in its)
        await asyncio.to_thread(mortal.cluster.kill, name)
        matches = await written(us, "OwnerNotAlive", "appeared", victim, within=60)
        assert set(matches["bundles"]) <= its
        await written(us, "OwnerNotAlive", "gone", victim, within=200)
        await restarted(mortal, us, victim)


async def test_a_target_that_dies_is_found(mortal: BrokerCluster) -> None:
    """The target of a transfer stops responding and is killed. The bundle in transit is a finding until the leader
    broker has given it to a living broker.
    """
    leader = await mortal.leader()
    bundle, owner = await one_bundle(mortal)
    if owner != leader:
        await mortal.transfer(bundle, leader)
    target = other(mortal, leader)
    name = next(item.name for item in mortal.cluster.brokers if item.broker_id == target)
    async with following(mortal.cluster) as us:
        mortal.cluster.pause(name)
        path = f"/admin/v2/namespaces/{bundle}/unload"
        moving = asyncio.create_task(mortal.ask("PUT", path, at=leader, params={"destinationBroker": target}))
        try:

            def on_its_way() -> bool:
                unit = us.watch.current().units[bundle]
                return unit.destination == target and unit.state is not UnitState.OWNED

            await eventually(on_its_way, within=30)
            await asyncio.to_thread(mortal.cluster.kill, name)
            matches = await written(us, "TargetNotAlive", "appeared", target, within=60)
            assert matches["bundles"] == [bundle]
            await written(us, "TargetNotAlive", "gone", target, within=200)
            await wait_for_takeover(us, bundle, target)
            await restarted(mortal, us, target)
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)


async def test_a_killed_leader_is_found(mortal: BrokerCluster) -> None:
    """SIGKILL of the leader broker, which also serves the channel's topic: it is followed again at another broker, and
    what the dead one owned was found."""
    leader = await mortal.leader()
    bundle, owner = await one_bundle(mortal)
    if owner != leader:
        await mortal.transfer(bundle, leader)
    name = next(item.name for item in mortal.cluster.brokers if item.broker_id == leader)
    async with following(mortal.cluster) as us:
        await eventually(lambda: us.watch.current().units[bundle].destination == leader, within=30)
        await asyncio.to_thread(mortal.cluster.kill, name)
        matches = await written(us, "OwnerNotAlive", "appeared", leader, within=120)
        assert bundle in matches["bundles"]
        await written(us, "OwnerNotAlive", "gone", leader, within=200)
        await wait_for_takeover(us, bundle, leader)
        await restarted(mortal, us, leader)
