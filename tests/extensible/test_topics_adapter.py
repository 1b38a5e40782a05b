"""The load-data topics and the ownership channel through pulsar-client, on real brokers."""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest

from bundlekeel.model.channel_states import IN_FLIGHT, UnitState
from bundlekeel.model.errors import StoreError
from bundlekeel.ports import LoadFeed
from bundlekeel.pulsar.topics.channel import TopicChannel
from bundlekeel.pulsar.topics.feed import TopicLoadFeed
from bundlekeel.pulsar.topics.process import TopicsOptions, TopicsProcess
from dev.cluster import Cluster
from dev.traffic import Traffic
from tests.chaos.stage import traffic_spec
from tests.support.channel_cluster import BrokerCluster, ClusterKit, Followers, kill
from tests.support.contracts.channel import ChannelContract
from tests.support.contracts.coordination import eventually
from tests.support.contracts.feed import FeedContract, FeedKit
from tests.support.memory_source import RealClock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def brokers(extensible_cluster: Cluster) -> BrokerCluster:
    """The cluster, asked over its admin API."""
    return BrokerCluster(extensible_cluster)


def topics_kit(brokers: BrokerCluster) -> ClusterKit:
    """`ChannelKit` over the system topic."""
    us = Followers()
    return ClusterKit(brokers, "system_topic", lambda: us.follower(TopicChannel), us.interrupt, us.mend)


@pytest.fixture
def kit(brokers: BrokerCluster) -> ClusterKit:
    return topics_kit(brokers)


class TestTopicChannel(ChannelContract):
    """The contract."""


class Busy:
    """Traffic on every broker: one without any has nothing to report, and says nothing for minutes."""

    def __init__(self, brokers: BrokerCluster) -> None:
        self.brokers = brokers
        fixed = {"bundles": 2 * len(brokers.alive), "rate_total_msgs": 120, "message_bytes": 512, "zipf": 0.0}
        self.traffic = Traffic(traffic_spec(brokers.cluster, f"public/busy-{uuid.uuid4().hex[:8]}", **fixed))
        self.bundles = [plan.bundle for plan in self.traffic.prepare()]
        self.turn = 0

    async def spread(self) -> None:
        """Give every broker some bundles, another number than the last time. A broker reports immediately only a change
        of at least a tenth. With a steady load it may be silent for a quarter of an hour.
        """
        owned, brokers = await self.brokers.owned(), self.brokers.alive
        self.turn += 1
        for number, bundle in enumerate(self.bundles):
            even, uneven = number % len(brokers), min(number, len(brokers) - 1)
            wished = brokers[uneven if self.turn % 2 else even].broker_id
            if owned.get(bundle) != wished:
                await self.brokers.transfer(bundle, wished)


@pytest.fixture(scope="module")
def busy(extensible_cluster: Cluster) -> Iterator[Busy]:
    value = Busy(BrokerCluster(extensible_cluster))
    value.traffic.start()
    yield value
    value.traffic.close()


class TopicsFeedKit(Followers):
    """`FeedKit`; brokers with fast statistics publish every second, and withdraw around a move."""

    patience = 90.0

    def __init__(self, busy: Busy) -> None:
        super().__init__()
        self.busy = busy
        self.service_urls = busy.brokers.service_urls
        self.broker_ids = tuple(broker.broker_id for broker in busy.brokers.alive)
        self.moves = topics_kit(busy.brokers)

    def make(self) -> LoadFeed:
        return self.follower(TopicLoadFeed)

    async def say(self) -> None:
        await self.busy.spread()

    async def withdraw(self) -> None:
        """See FeedKit. A broker does so at most once in ten seconds."""
        bundle, _ = await self.moves.own(0)
        await self.moves.transfer(bundle)


class TestTopicLoadFeed(FeedContract):
    """The contract."""

    @pytest.fixture
    def kit(self, busy: Busy) -> TopicsFeedKit:
        return TopicsFeedKit(busy)

    @pytest.mark.nightly
    async def test_a_gap_is_said_and_figures_stay(self, kit: FeedKit) -> None:
        """See FeedContract; two minutes, for brokers with steady traffic report rarely."""
        await super().test_a_gap_is_said_and_figures_stay(kit)


class Both:
    """A feed and a channel over one process."""

    def __init__(self, brokers: BrokerCluster, stuck_after: float = 15.0) -> None:
        self.brokers = brokers
        self.process = TopicsProcess(TopicsOptions(stuck_after=stuck_after), clock=RealClock())
        self.feed = TopicLoadFeed(self.process, clock=RealClock())
        self.channel = TopicChannel(self.process, clock=RealClock())

    async def start(self) -> None:
        """Start both and wait until both read."""
        await self.feed.start(self.brokers.service_urls)
        await self.channel.start(self.brokers.service_urls)
        await self.whole()

    async def whole(self, within: float = 120.0) -> None:
        """Wait until the feed listens and the channel agrees with what all brokers that run say they own."""

        async def agrees() -> bool:
            if self.feed.tables().status.state != "ok":
                return False
            units = (await self.channel.view()).units
            if any(unit.state in IN_FLIGHT for unit in units.values()):
                return False
            owners = {name: unit.destination for name, unit in units.items() if unit.state is UnitState.OWNED}
            return owners == await self.brokers.owned()

        await eventually(agrees, within=within)

    async def heard_since(self, wall_ms: int, *broker_ids: str, within: float = 120.0) -> None:
        """Wait until these brokers have reported after this moment."""

        def heard() -> bool:
            loads = self.feed.tables().latest
            return all(broker_id in loads and loads[broker_id].load_ms > wall_ms for broker_id in broker_ids)

        await eventually(heard, within=within)


@pytest.fixture
async def both(brokers: BrokerCluster) -> AsyncIterator[Both]:
    """See Both; silence counts as stuck after two seconds."""
    value = Both(brokers, stuck_after=2.0)
    await value.start()
    yield value
    await value.feed.close()
    await value.channel.close()


async def test_traffic_shows_in_both_topics(busy: Busy, both: Both) -> None:
    """Brokers' rates, and the bundles that carry them, are those of the traffic."""
    await busy.spread()

    def is_seen() -> bool:
        loads = both.feed.tables().latest.values()
        total = sum(item.load.traffic[0] for item in loads if item.load is not None)
        tops = [item.bundles for item in loads if item.bundles is not None]
        rates = {name: row[0] for top in tops for name, row in zip(top.names, top.traffic.tolist(), strict=True)}
        return 90 < total < 150 and all(15 < rates.get(bundle, 0.0) < 25 for bundle in busy.bundles)

    await eventually(is_seen, within=90)


async def test_one_reading_shares_one_process(both: Both) -> None:
    """Both ports have one client between them, which is gone after they are closed."""
    children = psutil.Process().children(recursive=True)
    assert [child.pid for child in children if "bundlekeel.pulsar.topics.child" in child.cmdline()] == [
        both.process.pid
    ]
    pid = both.process.pid
    assert pid is not None
    await both.feed.close()
    assert psutil.pid_exists(pid)
    await both.channel.close()
    assert not psutil.pid_exists(pid)


@pytest.mark.nightly
async def test_a_second_channel_over_the_same_process(both: Both) -> None:
    """A channel that starts later gets everything that the process has sent already. A channel that is not started is
    refused.
    """
    pid = both.process.pid
    await both.channel.close()
    both.channel = TopicChannel(both.process, clock=RealClock())
    with pytest.raises(StoreError):
        await both.channel.unit("public/default/0x00000000_0xffffffff")
    await both.channel.start(both.brokers.service_urls)
    await both.whole()
    assert await both.channel.unit("no/where/0x00000000_0xffffffff") is None
    assert both.process.pid == pid
    assert both.feed.tables().status.state == "ok"


@pytest.mark.nightly
async def test_a_load_topic_without_messages_is_opened_anew(busy: Busy) -> None:
    """A topic without messages may be the wrong one. The interruption is reported, and later messages are received
    normally.
    """
    process = TopicsProcess(TopicsOptions(quiet_after=0.1), clock=RealClock())
    feed = TopicLoadFeed(process, clock=RealClock())
    try:
        await feed.start(busy.brokers.service_urls)
        await busy.spread()
        await eventually(lambda: "nothing was received" in feed.tables().status.detail, within=60)
        since = feed.tables().status.since_ms

        def heard() -> bool:
            tables = feed.tables()
            return tables.status.since_ms > since and any(item.bundles_ms > since for item in tables.latest.values())

        await eventually(heard, within=60)
    finally:
        await feed.close()


@pytest.mark.nightly
async def test_a_stopped_client_is_stuck_and_replaced(both: Both) -> None:
    """SIGSTOP: reported within the limit. Afterwards everything is read again."""
    before = both.feed.tables()
    first = kill(both.process, signal.SIGSTOP)
    await eventually(lambda: both.feed.tables().status.state == "stuck", within=60)
    assert set(both.feed.tables().latest) == set(before.latest)
    with pytest.raises(StoreError):
        await both.channel.view()
    with pytest.raises(StoreError):
        await both.channel.unit("public/default/0x00000000_0xffffffff")
    await both.whole()
    assert both.process.pid != first
    assert not psutil.pid_exists(first)
    assert both.feed.tables().status.since_ms > before.status.since_ms


@pytest.mark.nightly
async def test_a_compacted_channel_reads_the_same(brokers: BrokerCluster, both: Both) -> None:
    """The compacted topic is read to the same table, and a reader of it gets the later messages."""
    kit = topics_kit(brokers)
    bundle, _ = await kit.own(0)
    for _ in range(3):
        await kit.transfer(bundle)
    path = "/admin/v2/persistent/pulsar/system/loadbalancer-service-unit-state/compaction"
    await brokers.do("PUT", path)

    async def compacted() -> bool:
        status = await brokers.do("GET", path)
        assert status["status"] != "ERROR", status
        return bool(status["status"] == "SUCCESS")

    await eventually(compacted, within=60)
    before, first = await both.channel.view(), kill(both.process)
    await eventually(lambda: both.process.pid not in (None, first), within=60)
    await both.whole()
    assert (await both.channel.view()).units == before.units
    owner = await kit.transfer(bundle)
    unit = await both.channel.unit(bundle)
    assert unit is not None
    assert unit.destination == owner


@pytest.mark.nightly
async def test_a_frozen_leader_does_not_freeze_us(brokers: BrokerCluster, both: Both) -> None:
    """A leader broker that answers nothing: no call of ours waits for it longer than its limit; then all is well."""
    leader = await brokers.leader()
    name = next(broker.name for broker in brokers.cluster.brokers if broker.broker_id == leader)
    first = both.process.pid
    brokers.cluster.pause(name)
    try:
        with pytest.raises(StoreError):
            async with asyncio.timeout(30):
                await both.channel.unit("public/default/0x00000000_0xffffffff")
        assert both.process.pid == first, "a client that waits for a broker is not stuck"
    finally:
        brokers.cluster.resume(name)
    await both.whole()


@pytest.mark.nightly
async def test_the_feeds_follow_a_new_leader(busy: Busy, both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    """The leader broker serves all three topics. After it is killed they are read where they are served then."""
    brokers = busy.brokers
    await busy.spread()
    leader = await brokers.leader()
    victim = next(broker for broker in brokers.cluster.brokers if broker.broker_id == leader)
    before = both.feed.tables()
    clock = RealClock()
    killed_ms = clock.wall_ms()
    brokers.cluster.kill(victim.name)
    try:
        await eventually(lambda: both.feed.tables().status.state != "ok", within=60)
        await both.feed.start([broker.service_url for broker in brokers.alive])
        await both.heard_since(killed_ms, *(broker.broker_id for broker in brokers.alive))
        heard_ms = clock.wall_ms()
        await both.whole()
        with capsys.disabled():
            note = f"{(heard_ms - killed_ms) / 1000:.1f} s, channel whole {(clock.wall_ms() - killed_ms) / 1000:.1f} s"
            sys.stdout.write(f"\nremaining brokers heard {note} after the leader's kill\n")
        assert await brokers.leader() != leader
        assert both.feed.tables().status.since_ms > before.status.since_ms
    finally:
        restarted_ms = clock.wall_ms()
        await asyncio.to_thread(brokers.cluster.restart, victim.name)
    await both.feed.start(brokers.service_urls)
    await both.heard_since(restarted_ms, victim.broker_id)
    await both.whole()
