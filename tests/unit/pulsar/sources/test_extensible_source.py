"""The cluster source over a registry, load topics and brokers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminFault, AdminTimeout, SnapshotError, StoreError
from bundlekeel.model.extensible import LOAD_MANAGER, BundleLoads
from bundlekeel.model.load import THROUGHPUT_IN, BrokerEndpoint, TopicLoad
from bundlekeel.model.names import FULL_UPPER, bundle_for_hash, parse_topic
from bundlekeel.ports import RawClusterView
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.counters.demand import CounterDemand, CounterOptions
from bundlekeel.pulsar.sources.extensible_source import ClusterSource, ExtensibleOptions
from tests.support.builders import bundle_name, report, stored
from tests.support.contracts.admin import Recorder
from tests.support.contracts.coordination import eventually
from tests.support.memory_admin import BrokerModel, Fault, MemoryAdmin
from tests.support.memory_feed import MemoryFeed, broker_load
from tests.support.memory_source import MemoryLoadSource, MemoryMetadata
from tests.support.world import TestClock

BROKERS = ("b1:8080", "b2:8080", "b3:8080")
X, Y = bundle_name(1), bundle_name(2)
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
BUSY = (100.0, 100.0, 1e6, 1e6)


class SlowAdmin(MemoryAdmin):
    """The fake, but some brokers never answer; remembers how many it was asking at once."""

    def __init__(self, model: BrokerModel) -> None:
        super().__init__(model)
        self.hung: set[str] = set()
        self.asking = self.most = 0

    async def bundle_loads(self, broker_id: str) -> BundleLoads:
        self.asking += 1
        self.most = max(self.most, self.asking)
        try:
            if broker_id in self.hung:
                await asyncio.Event().wait()
            return await super().bundle_loads(broker_id)
        finally:
            self.asking -= 1

    def asked(self, broker_id: str) -> int:
        return self.calls.count(("bundle_loads", broker_id))


class Registry(MemoryLoadSource):
    """The registry in memory, with extensible brokers in it."""

    def register(self, *brokers: str, started: int = 1, manager: str = LOAD_MANAGER) -> None:
        """Brokers appear, or restart."""
        for broker in brokers:
            self._endpoints[broker] = BrokerEndpoint(
                broker_id=broker,
                web_url=f"http://{broker}",
                service_url=f"pulsar://{broker.partition(':')[0]}:6650",
                load_manager=manager,
                start_timestamp=started,
            )
        self._publish()


class Stage:
    """A source with all it was given."""

    def __init__(self, mode: str = "extensible", **options: object) -> None:
        self.clock = TestClock()
        self.registry = Registry(self.clock, mode=mode)
        self.feed = MemoryFeed(self.clock)
        self.model = BrokerModel(BROKERS)
        self.admin = SlowAdmin(self.model)
        self.telemetry = Recorder()
        values = {"stats_interval": 0.05, "batch_window": 0.01, **options}
        self.metadata = MemoryMetadata()
        quick = CounterOptions(interval=0.1, quick_interval=0.1)
        self.live = LiveLoads(self.admin, self.metadata, self.clock, quick)
        self.source = ClusterSource(
            registry=self.registry,
            feed=self.feed,
            admin=self.admin,
            clock=self.clock,
            telemetry=self.telemetry,
            options=ExtensibleOptions(**values),  # type: ignore[arg-type]
            live=self.live,
        )

    def serve(self, broker: str, **bundles: tuple[float, float, float, float]) -> None:
        """A broker owns these bundles, each with one topic that carries this."""
        for name, traffic in bundles.items():
            topic = f"persistent://t/ns/{name}"
            self.model.topics[name] = []
            self.model.add_loads(name, TopicLoad(topic=topic, hash=1, traffic=traffic, sessions=1))
            self.model.own(name, broker)

    def say(self, broker: str, score: float, traffic: tuple[float, ...] = BUSY) -> None:
        self.feed.say(broker_load(broker, score, traffic, self.clock.wall_ms()))

    async def called(self, *call: str) -> None:
        """Wait for the first such call."""

        async def is_seen() -> bool:
            return call in self.admin.calls

        await eventually(is_seen, within=30.0)

    async def until(self, holds: Callable[[RawClusterView], bool]) -> RawClusterView:
        """The first picture of which this holds, waiting for pictures as the sidecar does."""
        results: list[RawClusterView] = []

        async def is_seen() -> bool:
            try:
                picture = await self.source.picture()
            except SnapshotError:
                return False
            results[:] = [picture]
            return holds(picture)

        await eventually(is_seen, within=30.0)
        return results[0]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Three extensible brokers are registered; `b1` serves a bundle."""
    result = Stage()
    result.serve("b1:8080", **{X: BUSY})
    await result.source.start()
    result.registry.register(*BROKERS)
    yield result
    await result.source.close()


def brokers(picture: RawClusterView) -> list[str]:
    return [item.broker_id for item in picture.reports]


async def test_modular_brokers_are_left_to_the_registry() -> None:
    stage = Stage(mode="modular")
    await stage.source.start()
    with pytest.raises(SnapshotError):
        await stage.source.picture()
    stage.registry.put(report("b1:8080", {X: 0.5}))
    stage.registry.averages[X] = stored(X, 0.5)
    assert await stage.source.wait_changed(-1, 30.0)
    picture, same = await stage.source.picture(), await stage.registry.picture()
    assert (picture.reports, picture.generation, picture.mode) == (same.reports, same.generation, "modular")
    assert not await stage.source.wait_changed(picture.generation, 0.05)
    assert await stage.source.seeds([X]) == [stored(X, 0.5)]
    assert (stage.feed.urls, stage.admin.calls, stage.source.feed.status.state) == ([], [], "off")
    await stage.source.close()
    assert (stage.registry.closed, stage.feed.closed) == (True, True)


async def test_extensible_brokers_get_reports(stage: Stage) -> None:
    stage.say("b1:8080", 0.8)
    stage.say("b2:8080", 0.1, (0.0, 0.0, 0.0, 0.0))
    picture = await stage.until(lambda p: len(p.reports) == 3 and p.reports[0].bundle_names == (X,))
    assert brokers(picture) == list(BROKERS)
    assert [float(item.usage[0]) for item in picture.reports] == pytest.approx([80.0, 10.0, 10.0])
    assert picture.reports[2].faults == ((Code.IMPUTED_SCORE, "weightedMaxEMA"),)
    assert (picture.mode, picture.excluded, picture.reports[0].broker_id) == ("extensible", (), "b1:8080")
    assert stage.feed.urls == [("pulsar://b1:6650", "pulsar://b2:6650", "pulsar://b3:6650")]
    assert stage.source.feed.status.state == "ok"


async def test_a_silent_cluster_is_seen_at_once() -> None:
    stage = Stage()
    stage.serve("b1:8080", **{X: BUSY})
    stage.model.cpu = {"b1:8080": 0.9, "b2:8080": 0.1}
    await stage.source.start()
    stage.registry.register(*BROKERS)
    for broker in BROKERS:
        await stage.called("cpu_load", broker)
    picture = await stage.until(lambda p: len(p.awaited) == 2)
    assert picture.awaited == ("b1:8080", "b2:8080")
    stage.clock.offset += 6.0
    picture = await stage.until(lambda p: len(p.reports) == 2)
    assert picture.awaited == ()
    assert [(item.broker_id, float(item.usage[0])) for item in picture.reports] == [
        ("b1:8080", 90.0),
        ("b2:8080", 10.0),
    ]
    assert [item.broker_id for item in picture.excluded] == ["b3:8080"]
    await stage.source.close()


async def test_reports_are_made_once_for_the_same_news(stage: Stage) -> None:
    """Asked again within a second, a picture has the very same reports; a message or a second makes new ones."""
    for broker in BROKERS:
        stage.say(broker, 0.5)
    before = await stage.until(lambda p: len(p.reports) == 3 and p.reports[0].bundle_names == (X,))
    stage.say("b2:8080", 0.7)
    after = await stage.until(lambda p: float(p.reports[1].usage[0]) == pytest.approx(70.0))
    assert after.reports[1] is not before.reports[1]
    same = await stage.source.picture()
    assert all(a is b for a, b in zip(same.reports, after.reports, strict=True))
    stage.clock.offset += 1.0
    later = await stage.source.picture()
    assert all(a is not b for a, b in zip(later.reports, after.reports, strict=True))


async def test_the_first_picture_waits_for_the_brokers() -> None:
    """But not for one that hangs."""
    stage = Stage()
    stage.admin.hung = {"b3:8080"}
    await stage.source.start()
    stage.registry.register(*BROKERS)
    with pytest.raises(SnapshotError, match="no answer yet"):
        await stage.source.picture()
    stage.clock.offset = 5.0
    picture = await stage.source.picture()
    assert (brokers(picture), len(picture.excluded)) == ([], 3)
    await stage.source.close()


async def test_a_hung_broker_delays_no_other() -> None:
    stage = Stage(at_once=2)
    stage.admin.hung = {"b2:8080"}
    await stage.source.start()
    stage.registry.register(*BROKERS)
    await stage.until(lambda _: min(stage.admin.asked("b1:8080"), stage.admin.asked("b3:8080")) >= 2)
    assert stage.admin.most == 2
    await stage.source.close()


async def test_a_broker_that_leaves_and_comes_back(stage: Stage) -> None:
    for broker in BROKERS:
        stage.say(broker, 0.5)
    await stage.until(lambda p: len(p.reports) == 3)
    stage.registry.remove("b2:8080")
    picture = await stage.source.picture()
    assert (brokers(picture), picture.excluded) == (["b1:8080", "b3:8080"], ())
    await stage.until(lambda _: len(stage.feed.urls) == 2)
    answer = stage.admin.asked("b2:8080")
    stage.registry.register("b2:8080", started=stage.clock.wall_ms())
    await stage.until(lambda _: stage.admin.asked("b2:8080") > answer)
    stage.say("b2:8080", 0.3)
    picture = await stage.until(lambda p: len(p.reports) == 3)
    assert float(picture.reports[1].usage[0]) == pytest.approx(30.0)
    assert len(stage.feed.urls) == 3


async def test_each_kind_of_news_is_a_new_generation(stage: Stage) -> None:
    for broker in BROKERS:
        stage.say(broker, 0.5)
    picture = await stage.until(lambda p: len(p.reports) == 3 and stage.admin.asked("b3:8080") > 0)
    await stage.source.wait_changed(picture.generation, 0.3)
    generation = (await stage.source.picture()).generation
    assert not await stage.source.wait_changed(generation, 0.2)
    stage.say("b1:8080", 0.6)
    assert await stage.source.wait_changed(generation, 30.0)
    generation = (await stage.source.picture()).generation
    stage.serve("b2:8080", **{Y: BUSY})
    assert await stage.source.wait_changed(generation, 30.0)
    assert Y in (await stage.source.picture()).reports[1].bundle_names
    generation = (await stage.source.picture()).generation
    stage.registry.remove("b3:8080")
    assert (await stage.source.picture()).generation > generation
    assert await stage.source.wait_changed(generation, 30.0)


async def test_a_broker_that_refuses_to_answer(stage: Stage) -> None:
    stage.admin.fail("bundle_loads", *[Fault(error=AdminTimeout("no answer in time"))] * 3)
    picture = await stage.until(lambda p: len(p.excluded) == 3)
    assert {item.code for item in picture.excluded} == {Code.NO_LOAD_DATA}
    stage.say("b1:8080", 0.8)
    picture = await stage.until(lambda p: len(p.reports) == 3)
    assert picture.excluded == ()


async def test_s02_an_unforeseen_error_of_one_broker_is_not_for_ever(stage: Stage) -> None:
    stage.admin.fail("bundle_loads", Fault(error=ZeroDivisionError("oops")))
    stage.say("b1:8080", 0.8)
    picture = await stage.until(lambda p: len(p.reports) == 3)
    ended = [task for task in stage.source._polls.values() if task.done()]
    await stage.until(lambda _: min(map(stage.admin.asked, BROKERS)) >= 2)
    assert brokers(picture) == list(BROKERS) and not ended


async def test_a_mixed_cluster() -> None:
    """Modular brokers as the registry has them, extensible ones beside them, others only as endpoints."""
    stage = Stage(mode="mixed")
    await stage.source.start()
    stage.registry.put(report("b1:8080", {X: 0.5}))
    stage.registry.register("b2:8080")
    stage.registry.register("b3:8080", manager="org.apache.pulsar.broker.loadbalance.NoopLoadManager")
    stage.say("b2:8080", 0.8)
    picture = await stage.until(lambda p: len(p.reports) == 2)
    assert (brokers(picture), picture.excluded, len(picture.endpoints)) == (["b1:8080", "b2:8080"], (), 3)
    assert stage.admin.asked("b1:8080") == stage.admin.asked("b3:8080") == 0
    await stage.source.close()


@pytest.mark.parametrize(
    ("modular_since", "mode", "part", "left_out"),
    [(9, "modular", "b1:8080", "b2:8080"), (3, "extensible", "b2:8080", "b1:8080")],
)
async def test_a_mixed_cluster_may_be_forced(modular_since: int, mode: str, part: str, left_out: str) -> None:
    """The class of the broker that started last is the cluster; the others stay known, but take no part."""
    stage = Stage(mode="mixed", force_mixed=True)
    await stage.source.start()
    stage.registry.put(report("b1:8080", {X: 0.5}))
    stage.registry.register("b1:8080", started=modular_since, manager=MODULAR)
    stage.registry.register("b2:8080", started=5)
    stage.say("b2:8080", 0.8)
    picture = await stage.until(lambda p: len(p.excluded) == 1 and len(p.reports) == 1)
    assert (picture.mode, brokers(picture), sorted(picture.endpoints)) == (mode, [part], ["b1:8080", "b2:8080"])
    assert [(item.broker_id, item.code) for item in picture.excluded] == [(left_out, Code.MIXED_LOAD_MANAGERS)]
    await stage.source.close()


async def test_the_state_of_the_topics_is_shown(stage: Stage) -> None:
    for broker in BROKERS:
        stage.say(broker, 0.5)
    await stage.until(lambda p: len(p.reports) == 3)
    stage.feed.become("stuck", "no beat for 20 s")
    assert (stage.source.feed.status.state, stage.source.feed.status.detail) == ("stuck", "no beat for 20 s")
    assert len((await stage.source.picture()).reports) == 3


async def test_addresses_may_be_given() -> None:
    """Instead of those that brokers registered."""
    stage = Stage(service_urls=("pulsar://lb:6650",))
    await stage.source.start()
    stage.registry.register(*BROKERS)
    await stage.until(lambda _: bool(stage.feed.urls))
    stage.registry.remove("b3:8080")
    await stage.until(lambda p: len(p.endpoints) == 2)
    assert stage.feed.urls == [("pulsar://lb:6650",)]
    await stage.source.close()


async def test_what_a_jvm_tells_first_is_no_share() -> None:
    stage = Stage()
    stage.model.cpu["b1:8080"] = 0.9
    # So the source itself does not ask for it.
    stage.admin.fail("bundle_loads", *[Fault(error=AdminFault("no statistics"))] * 10_000)
    await stage.source.start()
    stage.registry.register("b1:8080")
    await stage.called("bundle_loads", "b1:8080")
    asking = asyncio.create_task(stage.live.share_of("b1:8080"))
    await stage.called("cpu_load", "b1:8080")
    stage.model.cpu["b1:8080"] = 0.2
    assert await asking == 0.2
    await stage.source.close()


async def test_what_the_registry_refuses_is_refused(stage: Stage) -> None:
    """While the store is away there is no picture; it comes back by itself."""
    stage.say("b1:8080", 0.8)
    await stage.until(lambda p: len(p.reports) == 3)
    stage.registry.suspended = True
    with pytest.raises(StoreError):
        await stage.source.picture()
    stage.registry.suspended = False
    assert len((await stage.source.picture()).reports) == 3


async def test_an_error_nobody_foresaw_is_not_hidden(stage: Stage) -> None:
    """The picture would stand still for ever otherwise."""
    stage.say("b1:8080", 0.8)
    await stage.until(lambda p: len(p.reports) == 3)

    async def broken(*_: object) -> bool:
        raise ZeroDivisionError("oops")

    stage.feed.wait_changed = broken  # type: ignore[method-assign]
    stage.say("b1:8080", 0.7)

    async def is_logged() -> bool:
        try:
            await stage.source.picture()
        except StoreError as error:
            return "oops" in str(error)
        except SnapshotError:
            return False
        return False

    await eventually(is_logged, within=30.0)


async def count_up(stage: Stage, broker: str, topic: str, cpu_cores: float) -> None:
    began = stage.clock.boot()
    while True:
        seconds = stage.clock.boot() - began
        stage.model.counted[broker] = {topic: (0.0, 0.0, 1000.0 * seconds, 0.0, 1.0, 1.0)}
        stage.model.cpu[broker] = cpu_cores * seconds
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("mode", ["modular", "extensible"])
async def test_counters_take_the_place_of_old_figures(mode: str) -> None:
    stage = Stage(mode=mode)
    topic = parse_topic("persistent://t/ns/x")
    bundle = str(bundle_for_hash("t/ns", [0, FULL_UPPER], topic.hash))
    counting = asyncio.create_task(count_up(stage, "b1:8080", str(topic), 0.3))
    stage.live.use(CounterDemand(wanted=lambda: True))
    if mode == "modular":
        stage.registry.put(report("b1:8080", {bundle: 0.5}, last_update=stage.clock.wall_ms()))
    else:
        stage.serve("b1:8080", **{bundle: BUSY})
        stage.model.cpu["b1:8080"] = 0.1
        stage.registry.register("b1:8080")
        stage.feed.say(replace(broker_load("b1:8080", 0.9, BUSY, stage.clock.wall_ms()), cores=2.0))
    await stage.source.start()
    try:
        picture = await stage.until(lambda current: any(item.interval_ms for item in current.reports))
        (result,) = picture.reports
        assert result.bundle_names == (bundle,)
        assert result.bundle_traffic[0, THROUGHPUT_IN] == pytest.approx(1000.0, rel=0.3)
        assert await stage.source.wait_changed(picture.generation, 5.0)
    finally:
        counting.cancel()
        await stage.source.close()
