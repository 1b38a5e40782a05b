"""The decision rule: what an imbalance costs, when it is worth its moves, and what it remembers of swings."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.codes import Code
from bundlekeel.model.load import CPU, BrokerReport
from bundlekeel.planning import calm
from bundlekeel.planning.engine import PlanResult
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import BrokerCourse, Excess, StrategyMemory, Swing
from tests.support.builders import NOW_MS, broker, cluster, eager, entry, run, snapshot, turn, written

# Mean 25 %, tolerated 3.75 points. The small difference of 11 points costs 3.7 a second,
# and two moves end it; the large one of 50 points costs 152.
SMALL = [[0.03] * 9 + [0.035], [0.03] * 6 + [0.015]]
LARGE = [[0.1] * 5, []]
EVEN = [[0.1, 0.15], [0.1, 0.15]]


class Cluster:
    """Two brokers over time: each reading is a turn, with the memory of the one before."""

    def __init__(self, *, seconds: float = 15.0, **params: Any) -> None:
        self.seconds, self.params = seconds, params
        self.at_ms, self.memory = 0, StrategyMemory()

    def read(self, loads: list[list[float]], scale: float = 1.0) -> PlanResult:
        """One reading of counters, the mean of the last interval."""
        self.at_ms += int(1000 * self.seconds)
        scaled = [[scale * load for load in row] for row in loads]
        reports = [replace(item, interval_ms=int(1000 * self.seconds)) for item in written(cluster(scaled), self.at_ms)]
        result = turn(reports, self.at_ms, self.memory, **self.params)
        self.memory = result.memory
        return result

    def seconds_until_moves(self, loads: list[list[float]], most: float = 1200.0) -> float:
        """Seconds of readings until bundles move, or infinity."""
        began = self.at_ms
        while self.at_ms - began < 1000 * most:
            if self.read(loads).plan.moves:
                return (self.at_ms - began) / 1000
        return float("inf")


def test_an_imbalance_moves_bundles_once_it_has_cost_their_price() -> None:
    """Rule: the small difference must last for 53 s (200 / 3.7), the large one for two readings."""
    assert 53 <= Cluster(seconds=3.0).seconds_until_moves(SMALL) <= 57
    assert Cluster(seconds=3.0).seconds_until_moves(LARGE) == 6
    assert Cluster(seconds=3.0, move_price=500.0).seconds_until_moves(SMALL) == pytest.approx(535, abs=6)
    assert Cluster(seconds=3.0, move_price=0.0).seconds_until_moves(SMALL) == 3


@pytest.mark.parametrize("seconds", [3.0, 5.0, 15.0, 20.0])
def test_the_time_that_was_measured_counts_not_the_number_of_readings(seconds: float) -> None:
    """Rule: the same imbalance is acted on after the same time, to within one reading."""
    expected = Cluster(seconds=1.0, move_price=300.0).seconds_until_moves(SMALL)
    assert expected <= Cluster(seconds=seconds, move_price=300.0).seconds_until_moves(SMALL) <= expected + seconds


def test_cycles_on_the_same_reading_cost_nothing() -> None:
    """Rule: ten cycles between two readings are no longer time."""
    reports = cluster(SMALL)
    memory = turn(reports, 0, StrategyMemory()).memory
    for second in range(1, 11):
        memory = turn(reports, 1000 * second, memory).memory
    excess = memory.courses[broker(0)].excess
    assert excess is not None and excess.readings == 1 and excess.cost < 1


def test_a_report_says_that_nothing_changed_until_the_next_one() -> None:
    """Rule: a broker that is silent for a statistics interval carries its last reported load, so the cost continues."""
    reports = cluster(SMALL)
    memory = turn(reports, 0, StrategyMemory()).memory
    assert not turn(reports, 60_000, memory).plan.moves, "the report of 60 s ago is as old as any report may be"
    memory = turn(reports, 90_000, memory).memory
    assert turn(reports, 120_000, memory).plan.moves


def test_one_reading_is_not_enough_however_large_the_difference() -> None:
    """Rule: a single reading can be wrong; a second one must confirm it."""
    it = Cluster(seconds=60.0)
    first = it.read(LARGE)
    assert (
        first.plan.verdict.code is Code.HIT_COUNT and "the next reading must confirm it" in first.plan.verdict.sentence
    )
    assert it.read(LARGE).plan.moves


def test_the_verdict_names_brokers_cost_and_price() -> None:
    """Rule: one sentence with the figures that decide."""
    it = Cluster(seconds=15.0, move_price=50.0)
    it.read(SMALL)
    verdict = it.read(SMALL).plan.verdict
    assert verdict.sentence == (
        f"{broker(0)} and {broker(1)} differ by 11.0% (tolerated: 3.8%); this has cost 112 of the 200 that moving "
        "2 bundles costs"
    )
    assert verdict.cost == pytest.approx(112, abs=1) and verdict.price == 200


def test_the_verdict_says_that_a_difference_may_be_noise() -> None:
    """Rule: no sentence says that 8 % is below 4 %."""
    rng, it, noisy = np.random.default_rng(7), Cluster(seconds=5.0), 0
    for _ in range(200):
        scale = (1 + 0.3 * rng.normal(size=2)).tolist()
        verdict = it.read([[load * by for load in row] for row, by in zip(EVEN, scale, strict=True)]).plan.verdict
        if verdict.code is Code.BALANCED:
            differ, tolerated, *noise = map(float, re.findall(r"([\d.]+)%", verdict.sentence))
            assert differ >= tolerated and noise[0] > 0 if noise else differ <= tolerated, verdict.sentence
            noisy += len(noise)
    assert noisy > 20


def swing(it: Cluster, seconds: float) -> None:
    """One excess that ends by itself."""
    for loads in (SMALL, EVEN):
        for _ in range(int(seconds / it.seconds)):
            assert not it.read(loads).plan.moves


def test_an_excess_that_ended_by_itself_makes_the_next_one_wait() -> None:
    """Rule: after a swing of 300 s the next excess of its size must last 1.5 times as long, and the verdict says so."""
    it = Cluster(move_price=350.0)
    swing(it, 300.0)
    for _ in range(26):
        verdict = it.read(SMALL).plan.verdict
        assert verdict.code is Code.HIT_COUNT
    assert "but swings here last 300 s: moves if it lasts 450 s" in verdict.sentence
    assert it.seconds_until_moves(SMALL) <= 60


@pytest.mark.parametrize(("at_ms", "seconds"), [(-60_000, 450), (-59_999, 375), (100_000, 375)])
def test_a_difference_that_pulsar_ended_is_not_a_swing(at_ms: int, seconds: float) -> None:
    """Rule: a split of a segment moves load from one broker to another during the excess, or so shortly before it that
    loads did not show it. The next excess does not wait for the length of this one."""
    it = Cluster(move_price=350.0)  # the price of the two moves: the cost of 375 s
    names = snapshot(cluster(SMALL)).bundles.names
    it.params["guard"] = GuardState(segments_changed=dict.fromkeys((names[0], names[-1]), NOW_MS + at_ms))
    swing(it, 300.0)
    assert it.seconds_until_moves(SMALL) == seconds


def test_a_much_larger_excess_is_not_such_a_swing() -> None:
    """Rule: what costs more than four times as much in a second does not wait for small swings."""
    it = Cluster(move_price=500.0)
    swing(it, 300.0)
    assert it.seconds_until_moves(LARGE) == 30


@pytest.mark.parametrize(("worth", "least", "most"), [(500.0, 90.0, 120.0), (8000.0, 450.0, 480.0)])
def test_a_swing_that_is_worth_its_moves_is_followed(worth: float, least: float, most: float) -> None:
    """Rule: swings of 300 s cost 1,100 each. Worth it: moves at the price of 400; otherwise after 1.5 times as long."""
    it = Cluster(move_price=100.0, swing_worth=worth)
    remembered = Swing(seconds=300.0, rate=3.7, at_ms=NOW_MS)
    it.memory = StrategyMemory(
        courses={broker(row): BrokerCourse(level=0.25, until_ms=NOW_MS, swing=remembered) for row in (0, 1)}
    )
    assert least <= it.seconds_until_moves(SMALL) <= most


def test_swings_are_forgotten() -> None:
    """Rule: a swing that has not come back for two hours does not count any more."""
    course = BrokerCourse(level=0.1, until_ms=0, swing=Swing(seconds=400.0, rate=1.0, at_ms=0))
    lasts = [calm.swing_seconds(replace(course, until_ms=int(hours * 3_600_000))) for hours in (0, 1, 2)]
    assert lasts == [400.0, 400.0, 0.0]


def test_noise_is_averaged_and_moves_nothing() -> None:
    """Rule: readings that scatter by 20 % around equal loads cost nothing, for hours."""
    rng, it = np.random.default_rng(7), Cluster(seconds=5.0)
    for _ in range(1500):
        noisy = [
            [load * (1 + 0.2 * float(noise)) for load in row]
            for row, noise in zip(EVEN, rng.normal(size=2), strict=True)
        ]
        assert not it.read(noisy).plan.moves


def test_amid_noise_the_plan_uses_the_mean_since_the_load_changed() -> None:
    """Rule: of a noisy broker the mean decides how much moves, not the last reading."""
    rng, it = np.random.default_rng(3), Cluster(seconds=5.0)
    loads = [[0.02] * 20, [0.02] * 10]
    for _ in range(200):
        noisy = [
            [load * (1 + 0.1 * float(noise)) for load in row]
            for row, noise in zip(loads, rng.normal(size=2), strict=True)
        ]
        plan = it.read(noisy).plan
        if plan.moves:
            assert plan.loads[0].score_before == pytest.approx(0.4, rel=0.05)
            assert 4 <= len(plan.moves) <= 6
            return
    pytest.fail("nothing moved")


def test_a_reading_that_another_broker_makes_new_is_not_counted_twice() -> None:
    """Rule: brokers are read in turn; a broker without a new reading adds no cost."""

    def at(first: int, second: int) -> list[BrokerReport]:
        reports = cluster(SMALL)
        return [
            replace(item, last_update=NOW_MS + ms, interval_ms=15_000)
            for item, ms in zip(reports, (first, second), strict=True)
        ]

    memory = turn(at(0, -7_000), 0, StrategyMemory()).memory
    before = memory.courses[broker(0)].excess
    after = turn(at(0, 8_000), 8_000, memory).memory.courses[broker(0)].excess
    assert before is not None and before == after


def test_differences_are_those_of_counterparts() -> None:
    """Rule: a broker that stands out alone differs by about its distance, the others by little."""
    alone = np.array([0.9, 0.1, 0.1, 0.1, 0.1])
    assert calm.differences(alone, float(alone.mean())) == pytest.approx([0.8, 0.32, 0.32, 0.32, 0.32])
    assert calm.differences(np.array([0.6, 0.2]), 0.4) == pytest.approx([0.4, 0.4])
    assert calm.differences(np.array([0.3, 0.3]), 0.3) == pytest.approx([0.0, 0.0])
    assert len(calm.differences(np.array([]), 0.0)) == 0


@pytest.mark.parametrize(
    ("loads", "want", "moves"),
    [
        ((0.3, 0.2, 0.1), 0.3, 1),
        ((0.1,) * 10, 0.3, 3),
        ((0.9,), 0.3, 1),
        ((), 0.3, 1),
        ((0.1, 0.1), 0.5, 2),
        ((0.1,) * 10, 9.0, 8),
    ],
)
def test_the_price_is_that_of_the_fewest_moves(loads: tuple[float, ...], want: float, moves: int) -> None:
    """Rule: largest bundles first, without those that are far too large; a plan costs two moves more. Where all of them
    are not enough, most of what they carry counts."""
    assert calm.fewest_moves(np.array(loads), want) == moves
    assert calm.price_of(moves, 50.0) == 50.0 * (2 + moves)


def test_a_single_reading_is_no_overload() -> None:
    """Rule: an overloaded broker is relieved at once, but only if two readings show the overload."""
    hot, spike = [[0.14] * 5, [0.06] * 5], [[0.19] * 5, [0.06] * 5]
    current = Cluster(seconds=3.0, move_price=1e6)
    assert not current.read(hot).plan.moves and not current.read(hot).plan.moves
    assert not current.read(spike).plan.moves, "it was hot before, but overloaded in one reading only"
    assert current.read(spike).plan.moves


def test_tolerated_time_takes_an_excess_back() -> None:
    """Rule: after an excess of 60 s, others of 15 s in every 45 s do not add up."""
    current, longest = Cluster(seconds=15.0, move_price=1e6), 0.0
    for loads in [*[SMALL] * 4, *[EVEN, EVEN, SMALL] * 10]:
        course = current.read(loads).memory.courses[broker(0)]
        longest = max(longest, course.excess.seconds if course.excess is not None else 0.0)
    assert longest <= 75, "60 s, and what the first reading covers of the time before it"


def test_a_broker_waits_with_the_one_that_swings() -> None:
    """Rule: the others are above the mean only because one broker swings below it, so they wait as long."""
    current = Cluster(seconds=15.0)
    even, low = [[0.05] * 8] * 4, [[0.02] * 8, *[[0.05] * 8] * 3]
    for loads in [even] * 8:
        current.read(loads)
    swing = Swing(seconds=300.0, rate=8.0, at_ms=NOW_MS + current.at_ms)
    courses = {**current.memory.courses, broker(0): replace(current.memory.courses[broker(0)], swing=swing)}
    current.memory = replace(current.memory, courses=courses)
    assert current.seconds_until_moves(low) > 300


def test_the_swing_of_another_broker_does_not_end_an_excess() -> None:
    """Rule: the time in which another broker swings does not count, but the cost before it does."""
    current = Cluster(seconds=3.0, move_price=100.0, swing_worth=1e6)
    steady = [SMALL[0], [0.03] * 8, *[[0.022] * 8] * 2]
    low = [SMALL[0], [0.005] * 8, *[[0.022] * 8] * 2]
    for loads in [steady] * 13:
        assert not current.read(loads).plan.moves
    swing = Swing(seconds=300.0, rate=20.0, at_ms=NOW_MS + current.at_ms)
    courses = {**current.memory.courses, broker(1): replace(current.memory.courses[broker(1)], swing=swing)}
    current.memory, before = replace(current.memory, courses=courses), courses[broker(0)].excess
    for loads in [low] * 10:
        assert not current.read(loads).plan.moves
    assert before is not None and current.memory.courses[broker(0)].excess == before


def followed(
    scores: Sequence[float],
    traffic: Sequence[float],
    *,
    mean: float = 1000.0,
    cost: float = 0.0,
    moved: Collection[int] = (),
) -> list[BrokerCourse]:
    """Return the course of a broker after each reading of 3 s; another broker carries the rest of the mean traffic.

    `moved`: numbers of the readings that do not show its moves yet.
    """
    courses: dict[str, BrokerCourse] = {}
    results = []
    for number, (score, own) in enumerate(zip(scores, traffic, strict=True)):
        measured = calm.Measured(
            ids=("a", "b"),
            scores=np.array([score, 0.5]),
            traffic=np.array([own, 2 * mean - own]),
            cost=np.full(2, cost),
            updated_ms=np.full(2, 3000 * number),
            until_ms=np.full(2, 3000 * number),
            seconds=np.full(2, 3.0),
        )
        courses, _ = calm.follow_levels(courses, measured, ("a",) if number in moved else ())
        results.append(courses["a"])
    return results


def test_a_load_that_rises_steadily_is_no_noise() -> None:
    """Rule: equal changes from reading to reading are a trend, so the level begins again instead of falling behind."""
    scores = np.linspace(0.2, 0.6, 60).tolist()
    assert followed(scores, [1000.0] * 60)[-1].level == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("at", range(12, 40))
def test_a_step_is_no_noise(at: int) -> None:
    """Rule: also of a broker that is known for half a minute only, a step is a change of its load."""
    scores = [0.2] * at + [0.5] * 30
    assert max(map(calm.noise_of, followed(scores, [1000.0] * len(scores)))) == 0


def test_the_noise_of_a_start_is_soon_over() -> None:
    """Rule: the CPU of a broker varies by a tenth while its code is compiled, and by a hundredth from then on."""
    chance, traffic = np.random.default_rng(6), [1000.0] * 56
    scores = np.concatenate([chance.normal(0.5, 0.1, 28), chance.normal(0.5, 0.01, 28)]).tolist()
    courses = followed(scores, traffic)
    before, after = (float(calm.doubts({"a": courses[at]}, ["a"])[0]) for at in (27, 55))
    seconds = (courses[27].seconds, courses[55].seconds)
    assert before * math.sqrt(seconds[0]) > 2 * after * math.sqrt(seconds[1]) > 0


@pytest.mark.parametrize("moving", [True, False])
def test_what_changes_with_moves_is_no_noise(moving: bool) -> None:
    """Rule: moves every 12 s change the load; the same changes without moves are noise."""
    scores = [0.3 + 0.3 * (number // 4 % 2) for number in range(80)]
    last = followed(scores, [1000.0] * 80, moved=range(0, 80, 4) if moving else ())[-1]
    assert (calm.noise_of(last) == 0) is moving


def test_noise_that_lasts_longer_than_a_reading_is_seen() -> None:
    """Rule: readings of 3 s of a noise that changes every 12 s repeat each other, and still begin no new level."""
    chance = np.random.default_rng(5)
    scores = np.repeat(chance.normal(0.7, 0.03, 60), 4).tolist()
    courses = followed(scores, [1000.0] * 240)
    assert min(course.seconds for course in courses[120:]) > 100


@pytest.mark.parametrize("later", [1, 20])
def test_a_small_rest_does_not_spend_what_a_large_excess_has_cost(later: int) -> None:
    """Rule: only what the excess of its present size has cost counts."""
    course = BrokerCourse(level=0.5, until_ms=0)
    for number in range(10 + later):
        size = 4.0 if number < 10 else 0.5
        course = replace(course, until_ms=1000 * (number + 1))
        one = np.array([size])
        course = calm.follow_excesses({"a": course}, ["a"], one > 0, one, np.array([1.0]), ())["a"]
    assert course.excess is not None
    assert course.excess.cost > 160 and course.excess.owed == pytest.approx(0.25 * (10 + later))


def test_a_swing_that_moves_cut_short_is_remembered_as_longer() -> None:
    """Rule: after moves in its middle the other side begins early and lasts longer than the first excess did."""
    acted = Excess(side="hot", since_ms=0, seconds=200.0, longest=200.0, cost=400.0, rate=2.0, readings=3)
    for began, lasts in ((200.0, 320.0), (800.0, 900.0), (1000.0, 0.0)):
        course = BrokerCourse(level=0.2, until_ms=int(1000 * (began + 10)), acted=acted)
        one = np.array([1.0])
        after = calm.follow_excesses({"a": course}, ["a"], one < 0, one, np.array([10.0]), ())["a"]
        assert calm.swing_seconds(after) == pytest.approx(lasts)


@pytest.mark.parametrize(
    ("level_seconds", "since", "lasts"), [(3.0, 0.0, 0.0), (9.0, 6.0, 0.0), (3.0, 6.0, 43.2), (43.0, 40.0, 43.2)]
)
def test_a_plan_that_moved_too_much_is_no_swing(level_seconds: float, since: float, lasts: float) -> None:
    """Rule: a swing is a change of the load. What counters show soon after moves without one, the plan left over."""
    acted = Excess(side="hot", since_ms=0, seconds=20.0, longest=20.0, cost=400.0, rate=20.0)
    course = BrokerCourse(
        level=0.2, until_ms=30_000, traffic=1000.0, seconds=level_seconds, acted=acted, acted_seconds=since
    )
    one = np.array([1.0])
    after = calm.follow_excesses({"a": course}, ["a"], one < 0, one, np.array([3.0]), ())["a"]
    assert after.excess is not None and after.acted is None
    assert calm.swing_seconds(after) == pytest.approx(lasts)


@pytest.mark.parametrize(("segments_ms", "lasts"), [(40_000, 320.0), (40_001, 0.0), (300_000, 0.0)])
def test_load_that_pulsar_moved_after_moves_is_not_a_swing(segments_ms: int, lasts: float) -> None:
    """Rule: moves ended an excess; then a split or merge of segments, not the load, made the opposite one."""
    acted = Excess(side="hot", since_ms=100_000, seconds=200.0, longest=200.0, cost=400.0, rate=2.0, readings=3)
    course = BrokerCourse(level=0.2, until_ms=310_000, acted=acted, segments_ms=segments_ms)
    one = np.array([1.0])
    after = calm.follow_excesses({"a": course}, ["a"], one < 0, one, np.array([10.0]), ())["a"]
    assert after.acted is None and calm.swing_seconds(after) == pytest.approx(lasts)


def test_of_two_swings_the_longer_and_the_costlier_count() -> None:
    """Rule: a short reading of a swing does not hide how long or how costly swings of this broker are."""
    course = BrokerCourse(level=0.2, until_ms=1_000_000, swing=Swing(seconds=300.0, rate=0.1, at_ms=0))
    for seconds, rate, at_ms in ((50.0, 1.2, 0), (400.0, 0.5, 1_000_000), (210.0, 0.5, 1_000_000)):
        ended = Excess(side="hot", since_ms=0, seconds=seconds, longest=seconds, cost=rate * seconds, rate=rate)
        course = replace(course, excess=ended)
        one = np.array([-1.0])
        course = calm.follow_excesses({"a": course}, ["a"], one > 0, one, np.array([200.0]), ())["a"]
        assert course.swing is not None and course.swing.at_ms == at_ms
    assert course.excess is None and course.swing == Swing(seconds=305.0, rate=1.2, at_ms=1_000_000)


@pytest.mark.parametrize("seconds", [13.0, 30.0, 300.0])
@pytest.mark.parametrize(
    ("size", "ended", "remembered"), [(0.0, 9.0, 9.0), (0.1, 9.0, 9.0), (9.0, 0.0, 9.0), (9.0, 0.1, 9.0)]
)
def test_a_swing_of_another_size_is_another_swing(seconds: float, size: float, ended: float, remembered: float) -> None:
    """Rule: a long and weak excess does not make strong ones wait for as long as itself, before or after them."""
    excess = Excess(side="hot", since_ms=0, seconds=seconds, longest=seconds, cost=ended * seconds, rate=ended)
    course = BrokerCourse(
        level=0.2, until_ms=1_000_000, swing=Swing(seconds=60.0, rate=size, at_ms=999_000), excess=excess
    )
    one = np.array([-1.0])
    course = calm.follow_excesses({"a": course}, ["a"], one > 0, one, np.array([200.0]), ())["a"]
    assert course.excess is None and course.swing is not None
    assert (course.swing.seconds, course.swing.rate) == (seconds if ended > size else 60.0, remembered)


def test_a_swing_that_comes_back_is_remembered_for_as_long_as_it_does() -> None:
    """Rule: one that is shorter than the remembered one renews the memory, too, which then follows half-way."""
    course = BrokerCourse(level=0.2, until_ms=0, swing=Swing(seconds=480.0, rate=2.0, at_ms=0))
    for number in range(1, 40):
        ended = Excess(side="hot", since_ms=0, seconds=300.0, longest=300.0, cost=300.0, rate=1.0)
        course = replace(course, until_ms=600_000 * number, excess=ended)
        one = np.array([-1.0])
        course = calm.follow_excesses({"a": course}, ["a"], one > 0, one, np.array([200.0]), ())["a"]
        assert calm.swing_seconds(course) == pytest.approx(300 + 180 / 2**number)


@pytest.mark.parametrize("cost", [0.0001, 0.0002, 0.0003])
def test_a_change_of_traffic_shows_although_cpu_use_varies(cost: float) -> None:
    """Rule: traffic is exact, but the CPU use of a broker with a quarter of a core varies by 7 points from one reading
    to the next. A step of 24 points therefore shows by what its traffic costs, even if that is not known well."""
    scores = (np.random.default_rng(1).normal(0.0, 0.07, 44) + np.repeat([0.7, 0.94], [40, 4])).tolist()
    before, *after = followed(scores, [600.0] * 40 + [1800.0] * 4, cost=cost)[-5:]
    assert before.level == pytest.approx(0.7, abs=0.02)
    shifted = before.level + 1200 * cost
    assert after[0].level == pytest.approx((10 * shifted + 3 * scores[-4]) / 13, abs=0.01)
    assert abs(after[-1].level - 0.94) < 0.6 * abs(shifted - 0.94) + 0.05
    assert [course.seconds for course in after[:2]] == [13.0, 16.0]
    assert after[-1].traffic == 1800.0


@pytest.mark.parametrize("mean", [1000.0, 10_000.0])
def test_noise_of_traffic_begins_no_new_level(mean: float) -> None:
    """Rule: neither changes of 10 % do, nor large ones of a broker that carries hardly anything."""
    chance = np.random.default_rng(2)
    scores, noise = chance.normal(0.7, 0.07, 60).tolist(), chance.normal(1.0, 0.1, 60)
    traffic = 1000 * noise if mean == 1000 else 500 * (1 + np.arange(60) % 2)
    assert followed(scores, traffic.tolist(), mean=mean)[-1].seconds > 120


@pytest.mark.parametrize("strategy", ["avg", "threshold", "deviation", "transfer"])
@pytest.mark.parametrize(
    ("first", "age_seconds", "interval_ms", "moves"),
    [(0.0, 90, 0, False), (1e-7, 90, 0, False), (100.0, 90, 0, False), (0.0, 90, 3000, True), (0.0, 180, 0, True)],
)
def test_the_first_cpu_samples_of_a_new_broker_are_no_reason(
    strategy: str, first: float, age_seconds: int, interval_ms: int, moves: bool
) -> None:
    """Rule: a broker reports 0 before its first sample of the CPU, and in extensible mode a score of 1 before its first
    report is complete. Three brokers with equal traffic moved 11 bundles because of that. The others are balanced."""
    reports = cluster([[0.05] * 8] * 3, start_timestamp=NOW_MS - 1000 * age_seconds, interval_ms=interval_ms)
    for item, cpu in zip(reports, (first, 90.0, 10.0), strict=True):
        item.usage[CPU] = cpu
    current = snapshot(reports, mode="extensible" if first == 100 else "modular")
    plan = eager(current, strategy=strategy).plan.moves
    assert any(reports[0].broker_id in (move.source, move.target) for move in plan) is moves


@pytest.mark.parametrize("params", [{}, {"cpu_weight": 0.0, "bandwidth_out_weight": 1.0}], ids=["ignored", "no weight"])
def test_new_brokers_are_balanced_where_cpu_does_not_count(params: dict[str, float]) -> None:
    """Rule: with a capacity of messages instead of CPU, traffic is known from the first report on."""
    reports = cluster([[0.05] * 8, [0.05] * 2], start_timestamp=NOW_MS - 90_000)
    for item in reports:
        item.usage[CPU] = 0.0
    ignored = CapacityOverride(pattern="*", msg_rate=100_000.0, ignore=() if params else ("cpu",))
    assert eager(snapshot(reports, capacity=[ignored]), **params).plan.moves


def test_a_late_report_is_a_new_one() -> None:
    """Rule: a report that is read long after it was written shows a new load. It is not taken for silence."""
    memory = StrategyMemory()
    for at in (0, 60_000, 120_000, 180_000):
        memory = turn(written(cluster([[0.1] * 2] * 3), at), at, memory).memory
    late = written(cluster([[0.1] * 6, [0.1] * 2, [0.1] * 2]), 180_000)
    late[0] = replace(late[0], last_update=NOW_MS + 181_000)
    memory = turn(late, 256_000, memory).memory
    assert memory.courses[broker(0)].level == pytest.approx(0.6)


def test_a_plan_that_does_not_begin_changes_nothing() -> None:
    """Rule: where moves are only recommended, a swing that ends without them is remembered, and the next ones wait."""
    waves, at, waiting = [], 0, StrategyMemory()
    for _ in range(6):
        planned = 0
        for number in range(40):
            at += 7_500
            loads = [[0.03] * (15 if row == 0 and number < 20 else 10) for row in range(4)]
            reports = [replace(item, interval_ms=7_500) for item in written(cluster(loads), at)]
            result = turn(reports, at, waiting)
            waiting, planned = result.waiting, planned + len(result.plan.moves)
        waves.append(planned)
    assert waves[0] > 0 and waves[1:] == [0] * 5


@pytest.mark.parametrize("strategy", ["threshold", "deviation", "uniform", "transfer", "avg"])
def test_a_broker_that_settles_is_not_called_balanced(strategy: str) -> None:
    """Rule: until the reports show the last moves, the verdict says that it waits for them."""
    landed = entry(
        "t/ns/0xf0000000_0xffffffff", broker(0), broker(1), opened_ms=NOW_MS - 2_000, landed_ms=NOW_MS - 1_000
    )
    result = run(
        cluster([[0.1] * 7, [0.01] * 3, [0.01] * 3]),
        ledger=Ledger(entries=(landed,)),
        strategy=strategy,
        transfer_hit_count=0,
    )
    assert result.plan.verdict.code in (Code.UNSETTLED, Code.HIT_COUNT)


def test_a_verdict_names_scores_only_where_they_differ() -> None:
    """Rule: the cost of `uniform` comes from rates, so its sentence compares no scores."""
    loads = cluster([[0.1] * 4, [0.1] * 4])
    loads[0].traffic[:] *= 4
    sentence = turn(loads, 0, StrategyMemory(), strategy="uniform").plan.verdict.sentence
    assert sentence.startswith(f"{broker(0)} meets the condition of uniform; this has cost ")


def test_traffic_is_not_scaled_by_the_cpu() -> None:
    """Rule: a plan uses the mean CPU since the load changed. Traffic is exact."""
    memory = StrategyMemory()
    for number, cpu in enumerate((0.9, 1.1) * 10):
        reports = written(cluster([[0.1] * 4] * 2), 15_000 * number)
        for item in reports:
            item.usage[CPU] *= cpu
        result = turn([replace(item, interval_ms=15_000) for item in reports], 15_000 * number, memory)
        memory = result.memory
        assert [load.throughput_before for load in result.plan.loads] == [item.traffic[2:].sum() for item in reports]


@pytest.mark.parametrize(
    ("traffic", "steady_readings", "fell"),
    [(600.0, 90, True), (500.0, 90, True), (300.0, 90, False), (60.0, 90, False), (600.0, 30, False)],
)
def test_cpu_that_falls_without_traffic_is_no_low_load_yet(traffic: float, steady_readings: int, fell: bool) -> None:
    """Rule: other processes may have taken the CPU, which a load report shows within two minutes."""
    scores = np.random.default_rng(1).normal(np.repeat([0.3, 0.15], [steady_readings, 60]), 0.01).tolist()
    courses = followed(scores, [600.0] * steady_readings + [traffic] * 60, cost=0.0005)
    after = [calm.has_fallen(course) for course in courses[steady_readings:]]
    assert any(after[:30]) is fell and not any(after[45:])
    assert all(after[2:38]) is fell
