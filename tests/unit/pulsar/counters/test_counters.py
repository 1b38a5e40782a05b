"""When brokers' counters are read, and whose figures a picture shows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.counters import CounterReading
from bundlekeel.model.errors import AdminFault, CodecError
from bundlekeel.model.load import CPU, THROUGHPUT_IN, THROUGHPUT_OUT, BrokerEndpoint, BrokerReport
from bundlekeel.ports import Clock, RawClusterView
from bundlekeel.pulsar.counters.counters import REFUSED_SECONDS, LiveLoads
from bundlekeel.pulsar.counters.demand import CounterDemand, CounterOptions
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.memory_source import MemoryMetadata
from tests.support.virtual_time import LoopClock, staged

BUNDLE, FULL = "t/n/0x00000000_0xffffffff", 0xFFFFFFFF
BROKERS = ("a:8080", "b:8080")


class Counting:
    """`ports.TopicCounters` with one topic per broker that carries a number of bytes per second (below 0: no topic).

    `more`: further topics by broker and hash, with the bytes they have counted. `namespaces`: those that the broker
    names.
    """

    def __init__(self, clock: Clock) -> None:
        self.rates = dict.fromkeys(BROKERS, 1000.0)
        self.asked: list[tuple[str, float]] = []
        self.probed: list[tuple[str, float]] = []
        self.probes_fail = False
        self.more: dict[str, dict[int, float]] = {name: {} for name in BROKERS}
        self.namespaces: tuple[str, ...] = ("t/n",)
        # Bytes/s that replicators of the one topic send, by broker.
        self.replicated = dict.fromkeys(BROKERS, 0.0)
        self.takes = 0.0
        self.faults: set[str] = set()
        self._clock = clock
        self._bytes = dict.fromkeys(BROKERS, 0.0)
        self._since = clock.boot()

    async def counters(self, broker: BrokerEndpoint) -> list[CounterReading]:
        """See the port."""
        broker_id = broker.broker_id
        self.asked.append((broker_id, self._clock.boot()))
        began = self._clock.wall_ms()
        await self._clock.sleep(self.takes)
        if broker_id in self.faults:
            raise AdminFault("no counters")
        self.carry()
        topics = {7: self._bytes[broker_id], **self.more[broker_id]}
        if self.rates[broker_id] < 0:
            del topics[7]
        return [
            CounterReading(
                from_ms=began,
                to_ms=self._clock.wall_ms(),
                namespaces=self.namespaces,
                namespace=np.zeros(len(topics), dtype=np.int64),
                keys=np.array(list(topics), dtype=np.uint64),
                topic=np.ones(len(topics), dtype=bool),
                hashes=np.array(list(topics), dtype=np.int64),
                counters=np.array([[0.0, 0.0, counted, 0.0] for counted in topics.values()]).reshape(-1, 4),
                sessions=np.ones((len(topics), 2), dtype=np.int64),
                replicated=np.array(
                    [[0.0, 0.0, 0.0, self.replicated[broker_id] * (key == 7)] for key in topics]
                ).reshape(-1, 4),
                cpu_seconds=self._bytes[broker_id] / 10_000,
            )
        ]

    async def cpu_seconds(self, broker_id: str) -> float:
        """See `ports.BrokerAdmin`."""
        self.probed.append((broker_id, self._clock.boot()))
        if self.probes_fail:
            raise AdminFault("no beans")
        self.carry()
        return self._bytes[broker_id] / 10_000

    def carry(self) -> None:
        """Count what came since the last time. A test that changes a rate does this first."""
        now = self._clock.boot()
        for broker, rate in self.rates.items():
            self._bytes[broker] += max(rate, 0.0) * (now - self._since)
        self._since = now

    def moments(self, broker: str) -> list[float]:
        """When a broker was asked, in seconds after the first time."""
        return [at - self.asked[0][1] for name, at in self.asked if name == broker]


class Stage:
    """Two brokers whose own reports are old, and who leads by `leads`."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.counting = Counting(clock)
        self.metadata = MemoryMetadata()
        demand = CounterDemand(wanted=lambda: self.leads, moving=lambda: self.moves, in_flight=lambda: self.calls)
        probe = self.counting.cpu_seconds
        self.live = LiveLoads(self.counting, self.metadata, clock, CounterOptions(), cpu_seconds=probe, demand=demand)
        self.leads, self.moves, self.calls, self.news = True, False, False, 0
        self.live.on_news = self._note
        self.endpoints = {name: BrokerEndpoint(broker_id=name, web_url=f"http://{name}") for name in BROKERS}
        self.reported_ms = clock.wall_ms()
        self.cores: float | None = None
        self.cpu = 5.0
        self.topics = 0
        self.reported = 50.0

    def _note(self) -> None:
        self.news += 1

    def shown(self) -> dict[str, BrokerReport]:
        """The picture's reports by broker."""
        reports = tuple(
            BrokerReport(
                broker_id=name,
                usage=np.array([self.cpu, 0.0, 0.0, 0.0]),
                limit=np.array([100.0, 0.0, 0.0, 0.0]),
                traffic=np.array([0.0, 0.0, self.reported, 0.0]),
                last_update=self.reported_ms,
                bundle_names=(BUNDLE,),
                bundle_traffic=np.array([[0.0, 0.0, self.reported, 0.0]]),
                bundle_counts=np.ones((1, 3), dtype=np.int64),
                start_timestamp=endpoint.start_timestamp,
                cores=self.cores,
                num_topics=self.topics if name == BROKERS[0] else 0,
            )
            for name, endpoint in self.endpoints.items()
        )
        picture = RawClusterView(
            wall_ms=self.clock.wall_ms(),
            boot=self.clock.boot(),
            generation=1,
            mode="modular",
            reports=reports,
            endpoints=self.endpoints,
        )
        return {item.broker_id: item for item in self.live.fused(picture).reports}

    def rate(self, broker: str) -> float:
        """Bytes/s that the picture shows of a broker."""
        return float(self.shown()[broker].traffic[THROUGHPUT_IN])


def play(scene: Any, *, seconds: float = 0.0) -> Stage:
    """Run a scene with the stage, in virtual time, `seconds` after the brokers were registered."""

    async def whole() -> Stage:
        stage = Stage(LoopClock())
        stage.live.register(stage.endpoints)
        following = asyncio.create_task(stage.live.run())
        await asyncio.sleep(seconds)
        result: Coroutine[Any, Any, None] | None = scene(stage)
        if result is not None:
            await result
        following.cancel()
        await stage.live.close()
        return stage

    return run_virtually(whole())


def played(*, seconds: float = 0.0) -> Any:
    """The test is a scene that `play` runs."""
    return staged(partial(play, seconds=seconds))


def test_two_readings_take_the_place_of_an_old_report() -> None:
    """Traffic, CPU and the moment are those of the readings."""

    def scene(stage: Stage) -> None:
        view = stage.shown()["a:8080"]
        assert view.traffic[THROUGHPUT_IN] == pytest.approx(1000.0)
        assert view.usage[CPU] == pytest.approx(10.0)
        assert 3000 <= view.interval_ms <= 4000
        assert view.last_update > stage.reported_ms
        assert stage.news == 2

    play(scene, seconds=4.5)


async def _begin_with_three(stage: Stage) -> None:
    first = [item for _ in range(3) for item in await _counted_later(stage)]
    later = await _counted_later(stage)

    async def keep_readings(broker: BrokerEndpoint) -> list[CounterReading]:
        return [*first, *(later if stage.clock.boot() > started_at + 4.0 else [])][-3:]

    started_at = stage.clock.boot()
    stage.counting.counters = keep_readings  # type: ignore[method-assign]
    stage.leads = True
    entries = []
    for _ in range(8):
        await asyncio.sleep(1.0)
        entries.append(stage.shown()["a:8080"].last_update)
    assert list(dict.fromkeys(entries)) == [item.to_ms for item in (*first[1:], *later)]
    assert entries.count(first[1].to_ms) == 2


async def _counted_later(stage: Stage) -> list[CounterReading]:
    await asyncio.sleep(15.0)
    return await stage.counting.counters(stage.endpoints["a:8080"])


@played()
async def test_readings_that_are_there_at_once_are_shown_one_after_the_other(stage: Stage) -> None:
    stage.leads = False
    await asyncio.sleep(1.0)
    await _begin_with_three(stage)


def test_one_reading_is_not_enough() -> None:
    """Before the second one the reports are all there is."""
    play(lambda stage: None if stage.rate("a:8080") == 50.0 else pytest.fail("too early"), seconds=2.0)


def test_quickly_at_first_then_at_leisure() -> None:
    """Every three seconds for half a minute, then every fifteen while nothing changes."""
    stage = play(lambda _stage: None, seconds=120.0)
    moments = stage.counting.moments("a:8080")
    gaps = np.diff(moments)
    assert all(3.0 <= gap <= 4.0 for gap in gaps[np.array(moments[1:]) < 30.0])
    assert all(15.0 <= gap <= 16.0 for gap in gaps[np.array(moments[:-1]) > 30.0])
    assert 13 <= len(moments) <= 18


async def _change(stage: Stage) -> None:
    stage.counting.carry()
    stage.counting.rates["a:8080"] = 2000.0
    count = len(stage.counting.moments("b:8080"))
    await asyncio.sleep(16.0 + 9.0)
    assert len(stage.counting.moments("b:8080")) - count >= 3


def test_a_changed_load_is_followed_quickly() -> None:
    """One broker's load doubled: from the reading that shows it all are read every three seconds."""
    play(_change, seconds=70.0)


async def _moves(stage: Stage) -> None:
    stage.moves = True
    count = len(stage.counting.asked)
    await asyncio.sleep(60.0)
    assert len(stage.counting.asked) - count >= 2 * 15


def test_quickly_while_moves_do_not_show_yet() -> None:
    play(_moves, seconds=70.0)


@pytest.mark.parametrize(("topics", "readings"), [(0, 7), (150_000, 2), (300_000, 2), (300_001, 0)])
@played(seconds=46.0)
async def test_many_topics_are_read_less_often(stage: Stage, topics: int, readings: int) -> None:
    """Two minutes at leisure: what reading costs us is bounded, and above a limit reports stay in charge."""
    stage.topics = topics
    stage.shown()
    count = len(stage.counting.moments("a:8080"))
    await asyncio.sleep(105.0)
    assert len(stage.counting.moments("a:8080")) - count == readings


async def _carried_out(stage: Stage) -> None:
    stage.moves = stage.calls = True
    before = len(stage.counting.moments("a:8080"))
    await asyncio.sleep(59.0)
    assert len(stage.counting.moments("a:8080")) - before <= 4
    stage.calls = False
    await asyncio.sleep(9.0)
    assert len(stage.counting.moments("a:8080")) - before >= 6


def test_at_leisure_while_moves_are_carried_out() -> None:
    """A broker that writes its counters answers lookups later; what the moves did is read when they are over."""
    play(_carried_out, seconds=70.0)


@played(seconds=10.0)
async def test_readings_from_the_future(stage: Stage) -> None:
    """Prometheus' clock is ahead by more than a reading takes: what it says would settle moves before they show."""
    read, ahead = stage.counting.counters, 600_000

    async def early(broker: BrokerEndpoint) -> list[CounterReading]:
        (reading,) = await read(broker)
        return [replace(reading, from_ms=reading.from_ms + ahead, to_ms=reading.to_ms + ahead)]

    stage.counting.counters = early  # type: ignore[method-assign]
    await asyncio.sleep(20.0)
    assert stage.rate("a:8080") == 50.0


@played()
async def test_scrapes_of_the_process_before(stage: Stage) -> None:
    """Prometheus still has them when a broker has started again: they say nothing of it."""
    stage.leads = False
    await asyncio.sleep(1.0)
    before = [item for _ in range(3) for item in await _counted_later(stage)]

    async def keep_readings(broker: BrokerEndpoint) -> list[CounterReading]:
        return before

    stage.counting.counters = keep_readings  # type: ignore[method-assign]
    stage.endpoints["a:8080"] = replace(stage.endpoints["a:8080"], start_timestamp=stage.clock.wall_ms())
    stage.live.register(stage.endpoints)
    stage.leads = True
    for _ in range(10):
        await asyncio.sleep(1.0)
        assert stage.rate("a:8080") == 50.0
    assert stage.rate("b:8080") == pytest.approx(1000.0)


@played(seconds=30.0)
async def test_a_bundle_whose_topics_come_and_go(stage: Stage) -> None:
    stage.counting.rates["b:8080"] = -1.0
    stage.counting.carry()
    stage.counting.rates["a:8080"] = 200.0
    for turn in range(200):
        stage.counting.more["a:8080"] = {1000 + turn: 0.0}
        await asyncio.sleep(1.0)
        if turn == 60:
            assert stage.rate("a:8080") == pytest.approx(1000.0)
    assert stage.rate("a:8080") == pytest.approx(200.0)


@pytest.mark.parametrize(("seconds", "sent"), [(20.0, 300.0), (50.0, 300.0), (100.0, 0.0)])
@played(seconds=10.0)
async def test_n_d_a_replicated_bundle_that_moved_keeps_its_replicators_rate(
    stage: Stage, seconds: float, sent: float
) -> None:
    """The new owner reports none before its first statistics, after up to one interval."""
    stage.counting.rates["b:8080"] = -1.0
    stage.counting.replicated["a:8080"] = 300.0
    await asyncio.sleep(30.0)
    assert stage.shown()["a:8080"].traffic[THROUGHPUT_OUT] == 300.0
    stage.counting.carry()
    stage.counting.rates.update({"a:8080": -1.0, "b:8080": 1000.0})
    await asyncio.sleep(seconds)
    assert stage.shown()["b:8080"].bundle_names == (BUNDLE,)
    assert stage.shown()["b:8080"].traffic[THROUGHPUT_OUT] == sent


@played(seconds=10.0)
async def test_last_figures_of_bundles_are_dropped(stage: Stage) -> None:
    """After two statistics intervals, and when a term ends: deleted bundles would otherwise take memory for ever."""
    stage.counting.replicated["a:8080"] = 300.0
    for number in range(30):
        stage.counting.namespaces = (f"t/n{number}",)
        await asyncio.sleep(30.0)
    assert {kind for kind, _ in stage.live._last} == {"traffic", "replicated"}
    assert len(stage.live._last) <= 2 * 7
    stage.leads = False
    await asyncio.sleep(1.0)
    assert stage.live._last == {}


@pytest.mark.parametrize(
    ("had_topics", "reported_seconds", "rate"), [(False, 0, 50.0), (True, 0, 0.0), (True, 200, 50.0)]
)
def test_counters_of_no_topics(had_topics: bool, reported_seconds: int, rate: float) -> None:
    """A broker whose report has topics is empty when it had some before and its report cannot know yet: otherwise
    whoever collects its counters dropped them."""

    async def scene(stage: Stage) -> None:
        stage.topics = 3
        stage.counting.carry()
        stage.counting.rates["a:8080"] = 1000.0 if had_topics else -1.0
        await asyncio.sleep(20.0)
        stage.counting.rates["a:8080"] = -1.0
        await asyncio.sleep(reported_seconds + 20.0)
        stage.reported_ms += 1000 * reported_seconds
        assert stage.rate("a:8080") == rate

    stage = play(scene)
    assert stage.counting.asked


@played(seconds=10.0)
async def test_a_namespace_whose_division_cannot_be_read(stage: Stage) -> None:
    stage.counting.namespaces = ("t/n", "t/odd")

    async def unreadable(namespace: str) -> list[int] | None:
        raise CodecError(f"local policies of {namespace}", code=Code.WRONG_TYPE)

    readable, stage.metadata.boundaries = stage.metadata.boundaries, unreadable  # type: ignore[method-assign]
    await asyncio.sleep(20.0)
    assert stage.rate("a:8080") == 50.0
    stage.metadata.boundaries = readable  # type: ignore[method-assign]
    await asyncio.sleep(2 * REFUSED_SECONDS)
    assert stage.rate("a:8080") == pytest.approx(1000.0)


@played(seconds=10.0)
async def test_a_division_that_is_told_while_a_reading_is_made(stage: Stage) -> None:
    async def slow(_broker: str) -> float | None:
        await asyncio.sleep(0.4)
        return None

    stage.live.share_of = slow
    stage.metadata.bundle_boundaries["t/n"] = [0, 0x80000000, FULL]
    changed = replace(stage.shown()["b:8080"], bundle_names=("t/n/0x00000000_0x80000000",))
    other = replace(changed, bundle_names=(BUNDLE,))
    for turn in range(100):
        picture = RawClusterView(
            wall_ms=0,
            boot=0.0,
            generation=turn,
            mode="modular",
            reports=(changed if turn % 2 else other,),
            endpoints=stage.endpoints,
        )
        stage.live.fused(picture)
        await asyncio.sleep(0.1)
        assert stage.rate("a:8080") == pytest.approx(1000.0, rel=0.01)


@played(seconds=10.0)
async def test_only_who_leads_reads(stage: Stage) -> None:
    stage.leads = False
    await asyncio.sleep(5.0)
    count = len(stage.counting.asked)
    await asyncio.sleep(100.0)
    assert (len(stage.counting.asked), stage.rate("a:8080")) == (count, 50.0)
    stage.leads = True
    await asyncio.sleep(1.5)
    assert len(stage.counting.asked) == count + 2
    assert stage.rate("a:8080") == 50.0


@played()
async def test_a_slow_broker_rests(stage: Stage) -> None:
    """A reading of two seconds is made every ten seconds at most, and every 42 at leisure."""
    stage.counting.takes = 2.0
    await asyncio.sleep(200.0)
    gaps = np.diff([at for at in stage.counting.moments("a:8080") if at > 10.0])
    assert gaps.min() >= 10.0
    assert gaps[-2:].min() >= 42.0


@played()
async def test_a_broker_that_does_not_tell(stage: Stage) -> None:
    stage.counting.faults = {"a:8080"}
    await asyncio.sleep(20.0)
    assert (stage.rate("a:8080"), len(stage.counting.moments("a:8080"))) == (50.0, 1)
    assert stage.rate("b:8080") == pytest.approx(1000.0)
    stage.counting.faults = set()
    await asyncio.sleep(REFUSED_SECONDS)
    assert stage.rate("a:8080") == pytest.approx(1000.0)


@played(seconds=20.0)
async def test_the_cpu_of_others_on_the_host(stage: Stage) -> None:
    stage.cpu = 95.0
    assert stage.shown()["a:8080"].usage[CPU] == pytest.approx(95.0)
    stage.counting.carry()
    stage.counting.rates["a:8080"] = 500.0
    await asyncio.sleep(20.0)
    assert stage.shown()["a:8080"].usage[CPU] == pytest.approx(90.0)
    stage.cores = 1.0
    assert stage.shown()["a:8080"].usage[CPU] == pytest.approx(5.0)


@played(seconds=20.0)
async def test_n_e_an_old_report_does_not_show_others_on_the_host(stage: Stage) -> None:
    """A broker that moves half of its load away reports that only after minutes. When the readings of before were
    forgotten, what it had reported looked like the CPU of others on its host: 12 more moves in a small cluster."""
    stage.reported_ms, stage.cpu = stage.clock.wall_ms(), 10.0
    assert stage.shown()["a:8080"].usage[CPU] == pytest.approx(10.0)
    stage.counting.carry()
    stage.counting.rates["a:8080"] = 500.0
    for _ in range(20):
        await asyncio.sleep(20.0)
        assert stage.shown()["a:8080"].usage[CPU] < 10.0
    assert stage.shown()["a:8080"].usage[CPU] == pytest.approx(5.0)


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
@played(seconds=60.0)
async def test_n_f_a_restarted_broker_with_a_wrong_clock_is_read(stage: Stage, ahead_ms: int) -> None:
    start = stage.clock.wall_ms() + ahead_ms
    stage.endpoints["a:8080"] = replace(stage.endpoints["a:8080"], start_timestamp=start)
    stage.live.register(stage.endpoints)
    assert stage.rate("a:8080") == 50.0
    await asyncio.sleep(5.0)
    assert stage.rate("a:8080") == pytest.approx(1000.0)


@played(seconds=60.0)
async def test_a_restarted_broker_begins_anew(stage: Stage) -> None:
    stage.endpoints["a:8080"] = BrokerEndpoint(broker_id="a:8080", web_url="http://a:8080", start_timestamp=9)
    stage.live.register(stage.endpoints)
    assert stage.rate("a:8080") == 50.0
    await asyncio.sleep(5.0)
    assert stage.rate("a:8080") == pytest.approx(1000.0)


@pytest.mark.parametrize(("later_seconds", "rate"), [(100.0, 1000.0), (130.0, 50.0)])
@played(seconds=6.0)
async def test_an_older_figure_never_takes_the_place_of_a_newer_one(
    stage: Stage, later_seconds: float, rate: float
) -> None:
    stage.counting.takes = 1000.0
    await asyncio.sleep(1.0)
    stage.reported_ms = stage.clock.wall_ms() + int(1000 * later_seconds)
    assert stage.rate("a:8080") == pytest.approx(rate)


@played(seconds=1.0)
async def test_brokers_with_quick_statistics_are_not_read(stage: Stage) -> None:
    stage.live.statistics_seconds = lambda _broker: 1.0
    count = len(stage.counting.asked)
    await asyncio.sleep(60.0)
    assert len(stage.counting.asked) == count


@played()
async def test_a_broker_without_known_cores_is_asked_for_a_share(stage: Stage) -> None:
    """With each reading; what it says of the second one holds."""
    shares = iter((0.9, 0.25, 0.25))

    async def share_of(broker: str) -> float | None:
        return next(shares) if broker == "a:8080" else None

    stage.live.share_of = share_of
    stage.cores = 0.0
    await asyncio.sleep(4.5)
    assert [item.usage[CPU] for item in stage.shown().values()] == [25.0, 5.0]
    assert [item.interval_ms > 0 for item in stage.shown().values()] == [True, False]


@played(seconds=5.0)
async def test_a_divided_namespace_is_looked_up_anew(stage: Stage) -> None:
    assert stage.shown()["a:8080"].bundle_names == (BUNDLE,)
    stage.metadata.bundle_boundaries["t/n"] = [0, 0x80000000, FULL]
    lower = "t/n/0x00000000_0x80000000"
    report = BrokerReport(
        broker_id="b:8080",
        usage=np.zeros(4),
        limit=np.zeros(4),
        traffic=np.zeros(4),
        last_update=stage.reported_ms,
        bundle_names=(lower,),
        bundle_traffic=np.zeros((1, 4)),
        bundle_counts=np.zeros((1, 3), dtype=np.int64),
    )
    picture = RawClusterView(
        wall_ms=0, boot=0.0, generation=2, mode="modular", reports=(report,), endpoints=stage.endpoints
    )
    stage.live.fused(picture)
    await asyncio.sleep(5.0)
    assert stage.shown()["a:8080"].bundle_names == (lower,)
