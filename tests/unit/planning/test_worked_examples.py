"""The examples of PIP-364 (AvgShedder), each with what the source says that Pulsar does, and what our forms do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import CompatMemory
from bundlekeel.planning.strategies.placement import PLACEMENTS
from tests.support.builders import broker, bundle_name, cluster, eager, percents_after, report, snapshot
from tests.support.pulsar import Pulsar

ALL = "least_resource_usage"


def even(*percents: float, parts: int = 20, distinct: bool = True) -> list[BrokerReport]:
    """Return brokers with exactly this load in percent, in about this number of equal bundles.

    `distinct`: bundles of different brokers differ, or AvgShedder would confuse them (issue 26246).
    """
    counts = [parts + row if distinct else parts for row in range(len(percents))]
    loads = [[percent / 100 / count] * count for percent, count in zip(percents, counts, strict=True)]
    return [
        replace(item, usage=np.array([percent, 0.0, 0.0, 0.0]))
        for item, percent in zip(cluster(loads), percents, strict=True)
    ]


def targets(plan: Plan) -> set[str]:
    return {move.target for move in plan.moves}


def remembered(*scores: float) -> CompatMemory:
    """ThresholdShedder's history."""
    return CompatMemory(usage={broker(row): score for row, score in enumerate(scores)})


def test_pip_364_over_placement_40_40_40_40_69_70() -> None:
    """The average is 49.83, and 40 + 10 is above it: LeastResourceUsageWithWeight draws from all, hot ones included.
    Ours fills the four cold ones only, and none of them above the others."""
    reports = even(40, 40, 40, 40, 69, 70)
    pulsar = Pulsar("threshold", {"min_unload_throughput_mb": 1.0})
    assert set(pulsar.unloads(reports)) == {broker(4), broker(5)}
    assert pulsar.drawn_from(reports, ALL) == [broker(row) for row in range(6)]
    plan = eager(reports, strategy="threshold").plan
    assert targets(plan) == {broker(row) for row in range(4)}
    assert max(percents_after(plan)[:4]) < 49.83
    plan = eager(reports).plan
    assert targets(plan) == {broker(row) for row in range(4)}
    assert max(percents_after(plan)[:4]) <= 55.0


def test_pip_364_placement_10_30_80() -> None:
    """10 + 10 and 30 + 10 are not above the average of 40: both are drawn from. (At exactly 30 only the first is, by
    Java's 32-bit figures.) Ours fills the lowest first, counting what it placed already, so that both end alike."""
    assert Pulsar("threshold").drawn_from(even(10, 30, 80), ALL) == [broker(0)]
    reports = even(10, 29.9, 80)
    assert Pulsar("threshold").drawn_from(reports, ALL) == [broker(0), broker(1)]
    plan = eager(reports).plan
    assert targets(plan) == {broker(0), broker(1)}
    assert max(percents_after(plan)) - min(percents_after(plan)) <= 6.0


def test_pip_364_placement_10_60_70_80_80_at_0() -> None:
    """With 0 instead of 10 the broker at the average of 60 is drawn as well, and half of the unloaded traffic overloads
    it.

    Bundlekeel never lifts a target to where it would shed itself (average + 10).
    """
    reports = even(10, 59.9, 70, 80, 80)
    pulsar = Pulsar("threshold", {"average_usage_difference_percent": 0.0})
    assert pulsar.drawn_from(reports, ALL) == [broker(0), broker(1)]
    for placement in sorted(PLACEMENTS):
        plan = eager(reports, strategy="threshold", placement=placement).plan
        assert plan.moves
        assert max(move.target_after for move in plan.moves) <= 0.70 + 1e-6, placement


def test_pip_364_history_of_90_and_10_unloads_too_much() -> None:
    """Balanced at last (50/50), ThresholdShedder still sees 86 and 14 and unloads 31 points more.

    At a load of 14 and 86 it then sees 78.8 and 21.2, and unloads from the cold broker. Bundlekeel sheds the present
    load.
    """
    pulsar = Pulsar("threshold", memory=remembered(0.9, 0.1))
    balanced = even(50, 50)
    unloaded = pulsar.unloads(balanced)
    assert [round(pulsar.memory.usage[broker(row)], 4) for row in (0, 1)] == [0.86, 0.14]
    assert {name: len(bundles) for name, bundles in unloaded.items()} == {broker(0): 7}, "0.31 x 50 MB/s in 2.5s"
    swapped = even(14, 86)
    pulsar.settings["min_unload_throughput_mb"] = 1.0
    assert set(pulsar.unloads(swapped)) == {broker(0)}
    assert [round(pulsar.memory.usage[broker(row)], 4) for row in (0, 1)] == [0.788, 0.212]

    for strategy in ("threshold", "avg"):
        assert not eager(balanced, strategy=strategy).plan.moves


def test_pip_364_heterogeneous_10_50_70() -> None:
    """The third broker is 70 % busy by other processes and carries nothing.

    ThresholdShedder: 50 is below 43.33 + 10, and 70 has nothing to shed: stuck. UniformLoadShedder unloads from 50, and
    the broker with the lowest rate, the one at 70, takes it. Bundlekeel: `avg` continues with the next source,
    `uniform` loads no broker above its source.
    """
    reports = [*even(10, 50), report(broker(2), {}, cpu=0.7)]
    assert Pulsar("threshold").unloads(reports) == {}
    uniform = Pulsar("uniform")
    assert set(uniform.unloads(reports)) == {broker(1)}
    assert uniform.drawn_from(reports, "least_long_term_message_rate") == [broker(2)]
    plan = eager(reports).plan
    assert {(move.source, move.target) for move in plan.moves} == {(broker(1), broker(0))}
    assert percents_after(plan)[:2] == pytest.approx([30.0, 30.0], abs=5.0)
    ours = eager(reports, strategy="uniform").plan
    assert not ours.moves
    assert {item.code for item in ours.refusals} <= {Code.NO_GAIN, Code.TOO_BIG}
    stuck = eager(reports, strategy="threshold").plan
    assert stuck.verdict.code is Code.BASE_LOAD


def test_pip_364_pairs_20_30_52_70_80() -> None:
    """20 with 80 and 30 with 70 in one go; 52 has no partner. Pulsar acts on both pairs at once, and so do we."""
    reports = even(20, 30, 52, 70, 80)
    pairs = {(source, target) for _, source, target in Pulsar("avg").moves(reports)}
    assert pairs == {(broker(4), broker(0)), (broker(3), broker(1))}
    plan = eager(reports).plan
    assert {move.source for move in plan.moves} == {broker(3), broker(4)}
    assert targets(plan) >= {broker(0), broker(1)}


@pytest.mark.parametrize(
    ("cold", "hot", "theirs"),
    [(40, 80, 1), (30, 70, 0), (41, 80, 0)],
    ids=["40 points", "39.999998 in 32 bits", "39 points"],
)
def test_pip_364_threshold_boundary_of_70_minus_30(cold: int, hot: int, theirs: int) -> None:
    """The text calls 70 - 30 `greater than the threshold 40`, and writes 100 - 50 for 80 - 20. AvgShedder compares with
    >=, but 70 - 30 is 39.999998 in its 32-bit percentages."""
    reports = even(cold, hot)
    pulsar = Pulsar("avg", {"avg_hit_count_low": 8, "avg_hit_count_high": 2})
    pulsar.moves(reports)
    assert pulsar.memory.low == {broker(0): 1, broker(1): 1}
    assert pulsar.memory.high == ({broker(0): 1, broker(1): 1} if theirs else {})


def test_pip_364_coupled_20_30_52_80_80() -> None:
    """Decoupled, both brokers at 80 pour into the one at 20. Coupled, each has a target of its own; so do ours."""
    reports = even(20, 30, 52, 80, 80)
    pairs = {(source, target) for _, source, target in Pulsar("avg").moves(reports)}
    assert {source for source, _ in pairs} == {broker(3), broker(4)}
    assert sorted(target for _, target in pairs) == [broker(0), broker(1)]
    plan = eager(reports).plan
    assert targets(plan) >= {broker(0), broker(1)}
    assert max(percents_after(plan)[:2]) <= 56.0
    # The decoupled forms of ours count what they placed, so the lowest does not take everything either.
    assert max(percents_after(eager(reports, strategy="threshold").plan)[:2]) <= 56.0


def test_issue_26246_equal_bundles_go_to_one_broker() -> None:
    """AvgShedder keeps destinations under the bundles' data: equal ones share an entry, and all go to the last one
    put there. A destination of ours belongs to its move."""
    bundles = [[0.04] * 20, [0.04] * 20]
    reports = [*even(10, 20, 52), *cluster([[], [], [], *bundles])[3:]]
    moves = Pulsar("avg").moves(reports)
    assert {source for _, source, _ in moves} == {broker(3), broker(4)}
    assert len({target for _, _, target in moves}) == 1
    assert targets(eager(reports).plan) >= {broker(0), broker(1)}


def test_pip_364_1000_against_500_moves_250() -> None:
    """At maxUnloadPercentage 0.5 messages worth 250 of 1000 go to the one with 500; Pulsar's default of 0.2 moves 100.
    Ours is 0.5 by default, and ends when the rest is below half the low threshold: 230 of bundles of 10 each."""
    reports = even(100, 50, parts=100, distinct=False)
    moved = {ratio: len(Pulsar("avg", {"max_unload_ratio": ratio}).moves(reports)) for ratio in (0.5, 0.2)}
    assert moved == {0.5: 25, 0.2: 10}
    plan = eager(reports, overloaded_threshold_percent=100.0).plan
    assert len(plan.moves) == 23
    assert percents_after(plan) == pytest.approx([77.0, 73.0])
    whole = cluster([[0.25, *[0.15] * 5], [0.5]])
    assert percents_after(eager(whole, overloaded_threshold_percent=100.0).plan) == pytest.approx([75.0, 75.0]), (
        "in one bundle"
    )


def test_pip_364_two_bundles_of_20_for_100_and_110() -> None:
    """LeastLongTermMessageRate counts what it placed: 100 + 20 is above 110, so the second bundle goes there. (In
    Pulsar since 3.0 that count lasts until the next report of any broker; a move of ours is counted until it shows.)"""
    reports = [
        report("a:1", {bundle_name(0): 0.1}),
        report("b:1", {bundle_name(1): 0.11}),
        report("c:1", {bundle_name(2): 0.02, bundle_name(3): 0.02, bundle_name(4): 0.5}),
    ]
    draft = Draft(snapshot(reports), Ledger(), Parameters())
    place, candidates = PLACEMENTS["least_long_term_message_rate"], np.array([0, 1])
    first = int(place(draft, 2, 2, candidates)[0])
    draft.take(2, 2, first, rule="x", threshold=0.0)
    second = int(place(draft, 3, 2, candidates)[0])
    assert (first, second) == (0, 1)


def test_pip_364_uniform_handles_one_pair_a_minute() -> None:
    """Three full and three new brokers: UniformLoadShedder sheds from one broker a cycle (100 cycles for 100 of them).
    Our `uniform` keeps to that; `avg` balances all of them in one plan."""
    reports = even(80, 80, 80, 0, 0, 0)
    assert len(Pulsar("uniform").unloads(reports)) == 1
    assert len({move.source for move in eager(reports, strategy="uniform").plan.moves}) == 1
    plan = eager(reports).plan
    assert {move.source for move in plan.moves} == {broker(0), broker(1), broker(2)}
    assert max(percents_after(plan)) - min(percents_after(plan)) <= 6.0


@pytest.mark.parametrize(("first", "second", "exceeded"), [(50e3, 30e3, True), (45e3, 30e3, False)])
def test_pip_364_uniform_rate_of_50k_against_30k(first: float, second: float, exceeded: bool) -> None:
    """(50 - 30) / 30 = 66 % is above 50 %; 45 against 30 is 50 % exactly, and not above."""
    reports = even(first / 1000, second / 1000, distinct=False)
    assert bool(Pulsar("uniform").unloads(reports)) is exceeded
    assert (eager(reports, strategy="uniform").plan.verdict.code is not Code.BALANCED) is exceeded


def by_size(*sizes: float, rate: float = 10e3) -> list[BrokerReport]:
    """Brokers of 20 equal bundles with one message rate and these bytes/s."""
    reports = []
    for row, size in enumerate(sizes):
        traffic = np.tile([rate / 40, rate / 40, size / 40, size / 40], (20, 1))
        broker_reports = even(*[10] * (row + 1), distinct=False)[row]
        reports.append(replace(broker_reports, bundle_traffic=traffic, traffic=traffic.sum(axis=0)))
    return reports


@pytest.mark.parametrize(("first", "exceeded"), [(450e6, True), (400e6, False)])
def test_pip_364_uniform_throughput_of_450_against_100(first: float, exceeded: bool) -> None:
    """450 / 100 = 4.5 is above 4; 400 / 100 is not. (The text calls the 450 MB a message rate.)"""
    reports = by_size(first, 100e6)
    assert bool(Pulsar("uniform").unloads(reports)) is exceeded
    assert (eager(reports, strategy="uniform").plan.verdict.code is not Code.BALANCED) is exceeded


def test_pip_364_uniform_rate_wins_over_throughput() -> None:
    """Both exceeded: the rate decides who gives, here the broker with the smaller throughput."""
    small, large = by_size(100e6, 450e6)
    fast = np.tile([900.0, 900.0, 2.5e6, 2.5e6], (20, 1))
    busy = np.array([40.0, 0.0, 0.0, 0.0])
    reports = [replace(small, bundle_traffic=fast, traffic=fast.sum(axis=0), usage=busy), large]
    assert set(Pulsar("uniform").unloads(reports)) == {broker(0)}
    plan = eager(reports, strategy="uniform").plan
    assert {item.source for item in plan.moves} == {broker(0)}
    assert plan.verdict.sentence.startswith("message rate and throughput differ")


def test_pip_364_uniform_at_zero_or_below_is_off() -> None:
    """A threshold that is not above 0 turns its condition off."""
    reports = even(80, 10)
    off = {"msg_rate_difference_percent": 0.0, "throughput_multiple": -1.0}
    assert Pulsar("uniform", off).unloads(reports) == {}
    assert eager(reports, strategy="uniform", **off).plan.verdict.code is Code.BALANCED


def test_pip_364_overload_circulates_when_all_are_full() -> None:
    """All at 85 % or more: OverloadShedder unloads from everybody, minute after minute, to others as full. Ours moves
    nothing and says why; and with a new broker below the threshold neither balances anything."""
    full = even(90, 88, 86)
    assert set(Pulsar("overload").unloads(full)) == {broker(0), broker(1), broker(2)}
    plan = eager(full, strategy="overload").plan
    assert not plan.moves
    assert plan.verdict.code is Code.NO_LEGAL_TARGET
    assert "add brokers" in plan.verdict.sentence and "cordon" not in plan.verdict.sentence
    below = even(80, 80, 0)
    assert Pulsar("overload").unloads(below) == {}
    assert eager(below, strategy="overload").plan.verdict.code is Code.BALANCED
