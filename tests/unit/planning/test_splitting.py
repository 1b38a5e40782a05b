"""Boundaries of splits, Pulsar's own algorithms, and the values that children inherit."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.averages import Averages
from bundlekeel.model.codes import Code
from bundlekeel.model.load import BundleAverages, TopicLoad
from bundlekeel.model.names import FULL_UPPER, parse_bundle
from bundlekeel.planning.splitting.algorithms import (
    TopicFlow,
    flow_or_qps_equally_divide,
    range_equally_divide,
    topic_count_equally_divide,
)
from bundlekeel.planning.splitting.children import children_of, holds, inherited, split_children, with_children
from bundlekeel.planning.splitting.positions import DOMINANT_SHARE, Cut, NoCut, split_bundle
from tests.support.builders import report

BUNDLE = "t/ns/0x00000000_0x00000064"
hashes = st.integers(0, 99)
rates = st.one_of(st.just(0.0), st.sampled_from([1.0, 2.0, 50.0]), st.floats(0, 1e9))
topics = st.lists(st.tuples(hashes, rates), max_size=12)
# Negative, NaN and infinite rates count as nothing.
odd_rates = st.one_of(rates, st.sampled_from([-1.0, math.nan, math.inf]))


def cut(*topics: tuple[int, float], lower: int = 0, upper: int = 100, pieces: int = 2) -> Cut | NoCut:
    """`split_bundle` on (hash, rate) pairs."""
    return split_bundle([t[0] for t in topics], [t[1] for t in topics], lower, upper, pieces=pieces)


# --- positions ---------------------------------------------------------------------------------------------------


def test_two_hot_topics_are_parted() -> None:
    """Scenario 11: half of the range or half of the topics would leave both hot topics in one bundle."""
    crumbs = [(hash_, 0.1) for hash_ in range(2, 12)]
    split = cut(*crumbs, (80, 50.0), (90, 49.0))
    assert isinstance(split, Cut)
    (position,) = split.positions
    assert 80 < position <= 90
    assert split.shares == pytest.approx((51 / 100, 49 / 100))
    ours, theirs = [hash_ for hash_, _ in crumbs] + [80, 90], range_equally_divide(0, 100)
    assert theirs == (50,)
    assert topic_count_equally_divide(ours) < (80,)


@pytest.mark.parametrize(
    ("given_topics", "code", "advice"),
    [
        ([], Code.SINGLE_TOPIC, "no topics"),
        ([(5, 9.0)], Code.SINGLE_TOPIC, "add partitions"),
        ([(5, 9.0), (5, 1.0), (5, 4.0)], Code.SAME_HASH, "add partitions"),
        ([(5, 91.0), (50, 9.0)], Code.DOMINANT_TOPIC, "add partitions"),
        ([(98, 1.0), (99, 1.0)], None, ""),
    ],
    ids=["empty", "one topic", "one hash", "one carries all", "neighbours"],
)
def test_what_cannot_be_parted_is_told(given_topics: list[tuple[int, float]], code: Code | None, advice: str) -> None:
    """A typed answer with advice, or the one boundary there is."""
    split = cut(*given_topics)
    if code is None:
        assert split == Cut(positions=(99,), shares=(0.5, 0.5))
    else:
        assert isinstance(split, NoCut)
        assert split.code == code
        assert advice in split.sentence


def test_topics_at_the_closed_end() -> None:
    low = FULL_UPPER - 100
    assert cut((FULL_UPPER - 1, 1), (FULL_UPPER, 1), lower=low, upper=FULL_UPPER) == NoCut(
        code=Code.SAME_HASH, sentence="its 2 topics have the same hash, so no boundary separates them; add partitions"
    )
    split = cut((FULL_UPPER - 2, 1), (FULL_UPPER, 1), lower=low, upper=FULL_UPPER)
    assert split == Cut(positions=(FULL_UPPER - 1,), shares=(0.5, 0.5))


def test_without_load_topics_count_alike() -> None:
    """Many idle topics are halved by number; of equally good cuts the one with even numbers is taken."""
    assert cut((10, 0), (20, 0), (30, 0), (40, 0)) == Cut(positions=(25,), shares=(0.5, 0.5))
    assert cut((10, 5), (20, 0), (30, 0), (40, 5)) == Cut(positions=(25,), shares=(0.5, 0.5))
    assert cut((10, 1), (20, 1), (30, 1)) == Cut(positions=(15,), shares=(1 / 3, 2 / 3))


def test_wrong_arguments_are_told() -> None:
    """Lists of unequal length and less than two pieces are mistakes of the caller."""
    with pytest.raises(ValueError, match="2 hashes, but 1 rates"):
        split_bundle([1, 2], [1.0], 0, 100)
    with pytest.raises(ValueError, match="1 pieces"):
        split_bundle([1, 2], [1.0, 1.0], 0, 100, pieces=1)


def parts(positions: tuple[int, ...], given_topics: list[tuple[int, float]]) -> list[float]:
    edges = [0, *positions, 1 << 33]
    return [
        math.fsum(rate for hash_, rate in given_topics if below <= hash_ < above and 0 < rate < math.inf)
        for below, above in pairwise(edges)
    ]


@given(st.lists(st.tuples(hashes, odd_rates), max_size=12))
def test_no_other_single_cut_is_better(given_topics: list[tuple[int, float]]) -> None:
    """Boundaries lie strictly inside and part topics; every possible cut leaves a piece at least as heavy."""
    split = cut(*given_topics)
    distinct = {hash_ for hash_, _ in given_topics}
    if parts((), given_topics) == [0]:
        # No topic carries anything: all count alike.
        given_topics = [(hash_, 1.0) for hash_, _ in given_topics]
    if isinstance(split, NoCut):
        total = parts((), given_topics)[0]
        single = {hash_: parts((), [t for t in given_topics if t[0] == hash_])[0] for hash_ in distinct}
        assert len(distinct) < 2 or max(single.values()) / total > DOMINANT_SHARE
        return
    (position,) = split.positions
    assert 0 < position < 100
    assert min(distinct) < position <= max(distinct)
    loads = parts(split.positions, given_topics)
    assert split.shares == pytest.approx([load / math.fsum(loads) for load in loads])
    for other in range(1, 100):
        assert max(loads) <= max(parts((other,), given_topics)) * (1 + 1e-9)


@given(topics, st.integers(2, 6))
def test_more_pieces(given_topics: list[tuple[int, float]], pieces: int) -> None:
    """More pieces: ascending boundaries, never more pieces than asked for, and the heaviest never heavier."""
    two, more = cut(*given_topics), cut(*given_topics, pieces=pieces)
    if isinstance(two, NoCut) or isinstance(more, NoCut):
        assert two == more
        return
    assert list(more.positions) == sorted(set(more.positions))
    assert len(two.shares) <= len(more.shares) <= pieces
    assert math.fsum(more.shares) == pytest.approx(1)
    assert max(more.shares) <= max(two.shares)
    occupied = {sum(hash_ >= position for position in more.positions) for hash_, _ in given_topics}
    assert occupied == set(range(len(more.shares)))


@given(topics, st.randoms(use_true_random=False))
def test_the_order_of_topics_does_not_matter(given_topics: list[tuple[int, float]], rng: object) -> None:
    shuffled = list(given_topics)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert cut(*shuffled) == cut(*given_topics)


# --- Pulsar's algorithms ---------------------------------------------------------------------------------------


def test_range_equally_divide() -> None:
    """The middle, rounded down."""
    assert range_equally_divide(0, 0xFFFFFFFF) == (0x7FFFFFFF,)
    assert range_equally_divide(0x40000000, 0x80000000) == (0x60000000,)
    assert range_equally_divide(7, 8) == (7,)


def test_topic_count_equally_divide() -> None:
    """Between the two topics in the middle, rounded down, even where that is the lower one's own hash."""
    assert topic_count_equally_divide([]) == ()
    assert topic_count_equally_divide([4]) == ()
    assert topic_count_equally_divide([30, 10, 20]) == (15,)
    assert topic_count_equally_divide([40, 30, 10, 20]) == (25,)
    assert topic_count_equally_divide([10, 11]) == (10,)
    assert topic_count_equally_divide([10, 10, 10]) == (10,)


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        ([], ()),
        ([(10, 5000.0, 0.0)], ()),
        ([(10, 600.0, 0.0), (20, 499.0, 0.0)], ()),
        ([(10, 600.0, 0.0), (20, 500.0, 0.0)], (16,)),
        ([(20, 500.0, 0.0), (10, 600.0, 0.0), (15, 0.0, 0.0)], (16,)),
        ([(10, 500.0, 0.0), (20, 500.0, 0.0), (30, 500.0, 0.0), (40, 1.0, 0.0)], (26,)),
        ([(10, 900.0, 0.0), (20, 900.0, 0.0), (30, 900.0, 0.0)], (16, 26)),
        ([(10, 1.0, 6 * 2**20), (20, 1.0, 5 * 2**20)], (16,)),
        ([(10, 700.0, 0.0), (10, 700.0, 0.0)], ()),
        ([(10, 700.0, 0.0), (10, 300.0, 0.0), (20, 200.0, 0.0)], ()),
    ],
    ids=[
        "nothing", "one topic", "below the maximum and a tenth", "at it", "order and idle topics",
        "equal to the maximum is no cut", "several", "bytes", "one hash only", "equal hashes count with the last",
    ],
)  # fmt: skip
def test_flow_or_qps_equally_divide(flows: list[tuple[int, float, float]], expected: tuple[int, ...]) -> None:
    """Cuts before the topic that would carry a piece over 1,000 msg/s or 10 MiB/s."""
    result = [TopicFlow(hash=h, msg_rate=rate, throughput=size) for h, rate, size in flows]
    assert flow_or_qps_equally_divide(result, max_msg_rate=1000, max_bandwidth_mb=10) == expected


# --- children ----------------------------------------------------------------------------------------------------


def load(hash_: int, *traffic: float) -> TopicLoad:
    """A topic with this hash and traffic."""
    four = (*traffic, 0.0, 0.0, 0.0, 0.0)[:4]
    return TopicLoad(topic=f"persistent://t/ns/{hash_}", hash=hash_, traffic=four)  # type: ignore[arg-type]


def test_children_of() -> None:
    assert children_of(BUNDLE, [0x20]) == ("t/ns/0x00000000_0x00000020", "t/ns/0x00000020_0x00000064")
    for wrong in ([0], [0x64], [0x30, 0x20], [0x30, 0x30]):
        with pytest.raises(ValueError, match="strictly inside"):
            children_of(BUNDLE, wrong)


def test_children_inherit_by_what_their_topics_carry() -> None:
    children = split_children(
        BUNDLE, [0x20], [load(1, 30.0, 10.0, 5.0), load(2, 0.0, 0.0, 5.0), load(0x20, 10.0, 10.0, 30.0)]
    )
    assert children.shares[0] == pytest.approx((0.75, 0.5, 0.25, 2 / 3))
    assert children.shares[1] == pytest.approx((0.25, 0.5, 0.75, 1 / 3))
    parent = BundleAverages(
        bundle=BUNDLE, short=(400, 100, 80, 3), long=(40, 10, 8, 6), short_samples=7, long_samples=70, topics=3
    )
    low, high = inherited(parent, children)
    assert (low.bundle, high.bundle) == children.children
    assert low.short == pytest.approx((300, 50, 20, 2))
    assert high.long == pytest.approx((10, 5, 6, 2))
    assert (low.short_samples, low.long_samples, low.topics, high.topics) == (7, 70, 2, 1)


@given(st.lists(st.tuples(hashes, st.floats(0, 1e9)), max_size=10), st.integers(1, 99))
def test_nothing_of_the_parent_is_lost(given_topics: list[tuple[int, float]], position: int) -> None:
    """The children's averages add up to the parent's."""
    children = split_children(BUNDLE, [position], [load(hash_, rate, rate) for hash_, rate in given_topics])
    for column in range(4):
        assert math.fsum(share[column] for share in children.shares) == pytest.approx(1)
    assert math.fsum(children.topics) == pytest.approx(1)


def test_a_report_that_still_names_the_parent() -> None:
    """It reads as if it named the children; one that names a child already, or other bundles, stays as it is."""
    other = "t/ns/0x00000064_0x000000c8"
    children = split_children(BUNDLE, [0x20], [load(1, 3.0), load(0x30, 1.0)])
    stale = report("b:1", {other: 0.1, BUNDLE: 0.4}, bundle_counts=np.array([[5, 5, 5], [2, 4, 8]]))
    broker_report = with_children(stale, {BUNDLE: children})
    assert broker_report.bundle_names == (other, *children.children)
    assert broker_report.bundle_traffic[1:, 0] == pytest.approx(stale.bundle_traffic[1, 0] * np.array([0.75, 0.25]))
    assert broker_report.bundle_traffic.sum(axis=0) == pytest.approx(stale.bundle_traffic.sum(axis=0))
    assert broker_report.bundle_counts.tolist() == [[5, 5, 5], [1, 2, 4], [1, 2, 4]]
    uneven = split_children(BUNDLE, [0x20], [load(1), *(load(0x30 + number) for number in range(9))])
    few = report("b:1", {BUNDLE: 0.4}, bundle_counts=np.array([[2, 1, 1]]))
    assert with_children(few, {BUNDLE: uneven}).bundle_counts.tolist() == [[1, 0, 0], [2, 1, 1]]
    fresh = report("b:1", {BUNDLE: 0.4, children.children[1]: 0.1})
    assert with_children(fresh, {BUNDLE: children}) is fresh
    assert with_children(stale, {}) is stale


def test_a_report_that_still_names_the_grandparent() -> None:
    """A child that was split too is replaced by its own children; what no longer exists is never named."""
    children = split_children(BUNDLE, [0x20], [])
    lower = children.children[0]
    again = split_children(lower, [0x10], [])
    broker_report = with_children(report("b:1", {BUNDLE: 0.4}), {BUNDLE: children, lower: again})
    assert broker_report.bundle_names == (*again.children, children.children[1])
    assert float(broker_report.bundle_traffic.sum()) == pytest.approx(
        float(report("b:1", {BUNDLE: 0.4}).bundle_traffic.sum())
    )


def test_holds() -> None:
    """A bundle is there when its own bounds are boundaries and none lies between."""
    assert holds([0, 0x64, FULL_UPPER], BUNDLE)
    assert not holds([0, 0x20, 0x64, FULL_UPPER], BUNDLE)
    assert not holds([0, FULL_UPPER], BUNDLE)


def test_seeded_children_are_known_before_they_are_reported() -> None:
    """Averages of the children count from the first snapshot on, and a later sample adds to them."""
    store = Averages()
    store.seed(
        [
            BundleAverages(
                bundle=BUNDLE, short=(8, 8, 8, 8), long=(8, 8, 8, 8), short_samples=9, long_samples=9, topics=2
            )
        ]
    )
    parent = store.of(BUNDLE)
    assert parent is not None
    children = split_children(BUNDLE, [0x20], [load(1, 3.0, 3.0, 3.0, 3.0), load(0x30, 1.0, 1.0, 1.0, 1.0)])
    store.seed(inherited(parent, children))
    low, high = (store.of(child) for child in children.children)
    assert low is not None
    assert high is not None
    assert (low.short, high.short) == ((6, 6, 6, 6), (2, 2, 2, 2))
    assert store.of("t/ns/0x00000064_0x000000c8") is None
    assert parse_bundle(low.bundle).upper == parse_bundle(high.bundle).lower
