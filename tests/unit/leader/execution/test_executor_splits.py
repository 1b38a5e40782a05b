"""Splits to the tenth of a second and to the last position; and the leader's executor between its terms."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bundlekeel.leader.execution.splits import SplitRefused, cut_of
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminTimeout, LeadershipLost
from bundlekeel.model.load import TopicLoad
from bundlekeel.model.names import FULL_UPPER
from bundlekeel.model.plan import Split
from bundlekeel.ports.commands import Permit
from tests.support.executor_bench import B, C
from tests.support.memory_admin import Fault, MemoryAdmin
from tests.support.split_bench import BUNDLE, CHILDREN, EDGES, POSITION, Bench, topic
from tests.support.world import FakeCluster, FakeSidecar
from tests.unit.leader.cycle.test_leases import ready

LOWER, UPPER = 0x00000000, 0x40000000
HALF = 0x20000000


def request(rule: str = "hot", at: tuple[int, ...] = (), *, halves: bool = False, bundle: str = BUNDLE) -> Split:
    """A split of the bundle."""
    return Split(bundle=bundle, broker=B, rule=rule, value=2.0, limit=1.0, hits=0, at=at, halves=halves)


def positions(result: Any) -> list[int]:
    return [int(child.rpartition("/")[2].partition("_")[0], 16) for child in result.children[1:]]


def load(hash_: int, rate: float, size: float) -> TopicLoad:
    """A topic with messages and bytes of their own, in and out unlike."""
    traffic = (rate, 0.0, size, 0.0) if hash_ % 2 else (0.0, rate, 0.0, size)
    return TopicLoad(topic=f"persistent://t/n/{hash_:x}", hash=hash_, traffic=traffic, sessions=1)


# One carries most messages, another one most bytes, one both in the middle.
MIXED = (load(0x04000000, 60, 10), load(0x0C000001, 10, 10), load(0x14000000, 20, 20), load(0x1C000001, 10, 60))


@pytest.mark.parametrize(
    ("rule", "below"),
    [("msg_rate", 0x0C000001), ("bandwidth", 0x1C000001), ("hot", 0x14000000), ("topics", 0x14000000)],
)
def test_where_each_rule_cuts(rule: str, below: int) -> None:
    """Half the messages, half the bytes, half of both shares together, half the topics lie below the cut."""
    index = [item.hash for item in MIXED].index(below)
    before = MIXED[index - 1].hash
    (position,) = positions(cut_of(request(rule), MIXED))
    assert before < position <= below


@pytest.mark.parametrize("rule", ["hot", "msg_rate", "bandwidth"])
def test_without_statistics_nothing_is_halved(rule: str) -> None:
    """Unless there is one topic alone, which has its own reason; sessions and topics need no statistics."""
    unknown = [TopicLoad(topic=f"persistent://t/n/{n}", hash=n, sessions=1) for n in (1, 2)]
    with pytest.raises(SplitRefused) as caught:
        cut_of(request(rule), unknown)
    assert caught.value.code == Code.NO_LOAD_DATA and B in caught.value.error
    with pytest.raises(SplitRefused) as caught:
        cut_of(request(rule), unknown[:1])
    assert caught.value.code == Code.SINGLE_TOPIC
    assert positions(cut_of(request("sessions"), unknown)) == positions(cut_of(request("topics"), unknown)) == [2]


def test_topics_at_the_ends_of_the_range_count() -> None:
    """Both ends; those of other ranges do not."""
    for hashes, inside in (((LOWER, UPPER), True), ((LOWER, UPPER + 1), False)):
        topics = [topic(item, 5.0) for item in hashes]
        if inside:
            assert positions(cut_of(request("topics"), topics)) == [HALF]
        else:
            with pytest.raises(SplitRefused) as caught:
                cut_of(request("topics"), topics)
            assert caught.value.code == Code.SINGLE_TOPIC
    second = "t/n/0x40000000_0x80000000"
    with pytest.raises(SplitRefused):
        cut_of(request("topics", bundle=second), [topic(0x3FFFFFFF, 5.0), topic(0x80000000, 5.0)])


@pytest.mark.parametrize(
    ("at", "topics", "halves", "result"),
    [
        ((HALF,), 2, False, [HALF]),
        ((HALF, 1, HALF), 2, False, [1, HALF]),
        ((LOWER + 1,), 2, False, [1]),
        ((UPPER - 1,), 2, False, [UPPER - 1]),
        ((LOWER,), 2, False, Code.NARROW_RANGE),
        ((HALF, UPPER), 2, False, Code.NARROW_RANGE),
        ((HALF,), 1, False, Code.SINGLE_TOPIC),
        ((HALF,), 1, True, [HALF]),
        ((HALF,), 0, True, [HALF]),
    ],
)
def test_positions_that_a_person_gave(at: tuple[int, ...], topics: int, halves: bool, result: list[int] | Code) -> None:
    """Strictly inside of the range; brokers split nothing with fewer than two topics, but they halve it."""
    inside = [topic(number + 1, 0.0) for number in range(topics)]
    if isinstance(result, list):
        assert positions(cut_of(request(at=at, halves=halves), inside)) == result
        return
    with pytest.raises(SplitRefused) as caught:
        cut_of(request(at=at, halves=halves), inside)
    assert caught.value.code == result and caught.value.error


@pytest.mark.parametrize(
    ("at", "most", "mode", "code"),
    [
        ((), 3, "modular", ""),
        ((), 2, "modular", Code.NAMESPACE_MAXIMUM),
        ((HALF,), 3, "modular", ""),
        ((1, HALF), 4, "modular", ""),
        ((1, HALF), 3, "modular", Code.NAMESPACE_MAXIMUM),
        ((1, HALF), 4, "extensible", Code.NOT_SUPPORTED),
        ((HALF,), 3, "extensible", ""),
    ],
)
async def test_how_many_bundles_there_may_be(at: tuple[int, ...], most: int, mode: str, code: str) -> None:
    """Two are there; each boundary makes one more, and extensible brokers take one at a time."""
    bench = await Bench(mode=mode).lead()
    outcome = await bench.split(at=at, max_bundles=most)
    assert (outcome.code, bench.calls()) == (code, int(not code))
    if code == Code.NAMESPACE_MAXIMUM:
        assert outcome.error == "2 bundles"
    if code == Code.NOT_SUPPORTED:
        assert outcome.error == "2 boundaries; brokers with the extensible load manager accept one position per split"


async def test_halves_are_left_to_the_broker() -> None:
    """No position is sent; the children are those that it makes."""
    for halves, sent in ((True, "None"), (False, str([HALF]))):
        bench = await Bench().lead()
        await bench.split(at=(HALF,), halves=halves)
        (call,) = [call for call in bench.admin.calls if call[0] == "split"]
        assert sent in call


async def test_when_boundaries_are_read_again() -> None:
    """At once, then ever more seldom, every half second in the end; the last time at the deadline."""
    bench = await Bench().lead()
    bench.model.splits_nothing = True
    times: list[float] = []
    read = type(bench.metadata).boundaries

    class Watched(type(bench.metadata)):  # type: ignore[misc]
        async def boundaries(self, namespace: str) -> Sequence[int] | None:
            times.append(round(bench.clock.now - 1000.0, 3))
            reading: Sequence[int] | None = await read(self, namespace)
            return reading

    bench.metadata.__class__ = Watched
    outcome = await bench.split()
    assert (outcome.code, outcome.error) == (Code.NOTHING_SPLIT, "the broker did not split the bundle")
    assert times == [0.0, 0.0, 0.05, 0.15, 0.35, 0.75, *(1.25 + 0.5 * n for n in range(18)), 10.0]
    assert outcome.seconds == pytest.approx(10.0)
    assert (outcome.started_wall_ms, outcome.ended_wall_ms) == (1_000_000, pytest.approx(1_010_000, abs=1))


async def test_the_words_of_an_outcome() -> None:
    bench = await Bench().lead()
    bench.admin.fail("split", Fault(error=AdminTimeout("late")))
    first, second = await bench.split(), await bench.split()
    assert (first.code, first.error, first.intent_id) == (Code.NO_ANSWER, "late", "1.s1")
    assert (second.outcome, second.error, second.intent_id) == ("done", "", "1.s2")
    assert (second.epoch, second.cycle_id, second.broker, second.rule) == (1, "9", B, "hot")
    bench = await Bench().lead()
    bench.admin.fail("split", Fault(error=AdminTimeout("late"), after=True))
    bench.model.after_split = lambda _bundle, _children: setattr(bench.metadata, "suspended", True)
    outcome = await bench.split()
    assert (outcome.code, outcome.error) == (Code.STORE_UNAVAILABLE, "late")


class Slow(MemoryAdmin):
    """Splits take two seconds."""

    clock: Any = None
    begun = False

    async def split(self, bundle: str, *, positions: Sequence[int] | None, at: str, permit: Permit) -> Any:
        self.begun = True
        await self.clock.sleep(2.0)
        return await super().split(bundle, positions=positions, at=at, permit=permit)


@pytest.mark.parametrize(("patience", "waited"), [(30.0, 2.0), (1.0, 1.0)])
async def test_a_stop_waits_for_the_split_under_way(patience: float, waited: float) -> None:
    """Until it has ended, or its patience has; the next one is not begun. Nothing under way: no time at all."""
    bench = await Bench().lead()
    bench.admin.__class__ = Slow
    assert isinstance(bench.admin, Slow)
    bench.admin.clock = bench.clock
    running = asyncio.ensure_future(bench.split())
    while not bench.admin.begun:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await bench.splitter.stop(patience)
    assert bench.clock.now - 1000.0 == pytest.approx(waited, abs=0.11)
    assert (await running).outcome == "done"
    began = bench.clock.now
    await bench.splitter.stop(patience)
    assert bench.clock.now == began and (await bench.split()).code == Code.STOPPING


async def test_what_was_left_is_flushed_between_splits() -> None:
    """An intent whose removal the store did not take; not while a split is under way."""
    bench = await Bench().lead()
    bench.model.after_split = lambda bundle, children: (bench.divided(bundle, children), bench.store.freeze())
    outcome = await bench.split()
    assert outcome.outcome in ("done", "unknown")
    bench.store.thaw()
    assert len(await bench.intents()) == 1
    bench.splitter._busy = True
    await bench.splitter.flush()
    assert len(await bench.intents()) == 1
    bench.splitter._busy = False
    await bench.splitter.flush()
    assert await bench.intents() == []


async def test_a_term_that_ends_in_the_call_begins_no_other_split() -> None:
    bench = await Bench().lead()
    bench.admin.fail("split", Fault(error=LeadershipLost("over")))
    assert (await bench.split()).code == Code.NOT_LEADER
    assert len(await bench.intents()) == 1
    assert ((await bench.split()).code, (await bench.split()).error) == (Code.NOT_LEADER, "not begun")
    assert bench.metadata.bundle_boundaries["t/n"] == list(EDGES) == [0, UPPER, FULL_UPPER]


async def test_what_is_announced_right_before_the_call() -> None:
    """The children, with what each is expected to carry."""
    bench = await Bench().lead()
    await bench.split()
    (result,) = bench.prepared
    assert result.children == CHILDREN and positions(result) == [POSITION]
    assert [round(sum(share), 2) > 0 for share in result.shares] == [True, True]


# --- the leader's executor -----------------------------------------------------------------------------------------


async def test_splits_of_an_earlier_term_are_not_begun() -> None:
    """The executor gets the epoch that they were planned in; by now another term of ours has begun. Nor before any
    term has begun."""
    cluster = FakeCluster()
    sidecar = FakeSidecar(cluster)

    async def split(epoch: int) -> list[Any]:
        async def ended(_outcome: Any) -> None:
            return None

        expected = Split(
            bundle=next(iter(cluster.shares)),
            broker="b1:8080",
            rule="topics",
            value=2.0,
            limit=1.0,
            hits=0,
            at=(),
            halves=False,
        )
        return await sidecar.executor.split(
            [expected], epoch=epoch, cycle=7, max_bundles=128, prepare=lambda _split: None, on_outcome=ended
        )

    assert await split(1) == [] and await sidecar.executor.stop(1.0) == ()
    await sidecar.executor.flush()
    await ready(sidecar)
    sidecar.executor.begin(2)
    assert await split(1) == []
    sidecar.executor.begin(1)
    (outcome,) = await split(1)
    assert (outcome.epoch, outcome.cycle_id) == (1, "7")
    assert C not in outcome.broker
