"""Exact limits of a plan's inputs: books, idle CPU, shares of resources, and the look-ahead."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.codes import Code
from bundlekeel.model.load import CPU, RESOURCES
from bundlekeel.model.parameter_table import STRATEGIES
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.costs import BrokerEvidence, CpuCosts, learn
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.effects import EffectRecords, begun
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.ledger import Ledger, landed, open_entries, parted, preallocated, timeout_ms
from bundlekeel.planning.pressure import shares_of
from bundlekeel.planning.relocation import RULES
from bundlekeel.planning.whatif import finish, scaled
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, eager, report, run, snapshot


def test_a_landing_is_that_of_one_bundle() -> None:
    """Rule: the other moves of the plan are still under way."""
    current = snapshot(cluster([[0.2] * 4, [0.1], [0.1]]))
    first, second, *_ = eager(current).plan.moves
    books = landed(open_entries(Ledger(), (first, second), current, NOW_MS), first.bundle, first.target, NOW_MS + 5000)
    assert [(entry.bundle, entry.landed_ms) for entry in books.entries] == [
        (first.bundle, NOW_MS + 5000),
        (second.bundle, 0),
    ]
    on_their_way = {first.target: [(first.bundle, 9.0)], broker(0): []}
    assert preallocated(books, on_their_way, NOW_MS + 9000) == on_their_way, "who is not asked for is not told"
    assert landed(books, first.bundle, broker(0), NOW_MS + 7000) == books, "it lands once"
    both = landed(books, second.bundle, second.target, NOW_MS + 6000)
    assert [entry.traffic for entry in parted(both, first.bundle).entries] == [(0.0,) * 4, second.traffic]


def test_what_a_broker_without_a_report_used_is_not_known() -> None:
    """Rule: a move to it is booked, and its usage is held at nothing until it reports."""
    current = snapshot(cluster([[0.2] * 4, [0.1], [0.1]]))
    (move, *_) = eager(current).plan.moves
    books = open_entries(Ledger(), [replace(move, target="new:1")], current, NOW_MS)
    assert [item.broker for item in books.baselines] == [move.source]


@pytest.mark.parametrize("figures", [(30.0, 60.0), (60.0, 30.0)])
def test_a_move_is_waited_for_through_the_longest_interval(figures: tuple[float, float]) -> None:
    """Rule: both intervals, the longest silence, and the longer of both once more."""
    params = Parameters(
        statistics_interval_seconds=figures[0],
        host_usage_interval_seconds=figures[1],
        report_max_interval_seconds=900.0,
    )
    assert timeout_ms(params) == 1_050_000


def test_no_effect_is_expected_of_what_cannot_be_judged() -> None:
    """Rule: only a move between two brokers of the plan can be judged, and only one that a strategy made."""
    result = eager(cluster([[0.2] * 4, [0.1], [0.1]])).plan
    first, *others = result.moves
    for elsewhere in (
        replace(first, target="gone:1"),
        replace(first, source="gone:1"),
        *(replace(first, rule=rule) for rule in RULES),
    ):
        records = begun(EffectRecords(), (elsewhere, *others), result, NOW_MS)
        assert [item.move for item in records.open] == others


def test_a_twentieth_of_the_mean_is_no_traffic_yet() -> None:
    """Rule: to the byte."""
    current = snapshot([report(broker(0), {bundle_name(0): 0.39}), report(broker(1), {bundle_name(1): 0.01}, cpu=0.3)])
    assert learn(CpuCosts(), current, Parameters()).brokers[broker(1)].idle == 30.0


@pytest.mark.parametrize(
    ("up_ms", "cpu", "learnt"), [(120_000, 35.0, 35.0), (119_999, 35.0, None), (120_000, 35.1, None)]
)
def test_when_a_broker_without_traffic_tells_what_it_uses(up_ms: int, cpu: float, learnt: float | None) -> None:
    """Rule: up for one statistics and one host-usage interval, and busy with at most 35 % of its CPU."""
    idle = report(broker(1), {}, cpu=cpu / 100, start_timestamp=NOW_MS - up_ms)
    current = snapshot([report(broker(0), {bundle_name(0): 0.5}), idle])
    idle = learn(CpuCosts(), current, Parameters()).brokers.get(broker(1), BrokerEvidence()).idle
    assert (None if idle < 0 else idle) == learnt


@pytest.mark.parametrize(
    ("carried", "whole", "cpu", "others"),
    [
        ([1, 1, 10, 30], [4, 4, 20, 60], 0.375, [0.5, 0.5, 0.5, 0.25, 0.5]),
        ([1, 1, 0, 0], [4, 4, 0, 0], 0.25, [0, 0, 0, 0.25, 0]),
        ([0, 0, 10, 0], [0, 0, 20, 0], 0.5, [0.5, 0.5, 0, 0, 0.5]),
        ([0, 0, 0, 0], [0, 0, 0, 0], 0.0, [0, 0, 0, 0, 0]),
    ],
)
def test_shares_of_messages_and_bytes(
    carried: list[float], whole: list[float], cpu: float, others: list[float]
) -> None:
    """Rule: CPU follows the mean of both where there are both, else the one there is; the rest follows its own."""
    (shares,) = shares_of(np.array([carried], dtype=float), np.array(whole, dtype=float)).tolist()
    assert len(shares) == len(RESOURCES)
    assert (shares[CPU], shares[CPU + 1 :]) == (cpu, others)


def test_a_look_ahead_ends_after_a_hundred_cycles() -> None:
    """Rule: an incomplete look-ahead is reported; imbalance that has not cost its price yet is a reason to continue."""
    current, ends = snapshot(cluster([[0.2] * 4, [0.1]])), {}
    for price in (50.0, 1e9):
        plan_input = PlanInput(snapshot=current, params=Parameters(move_price=price))
        end = finish(plan_input, plan(plan_input), interval_seconds=120.0, eta=lambda moves: 4.0 * moves)
        ends[price] = end.cycles, end.complete
    assert ends == {50.0: (2, True), 1e9: (100, False)}


def test_traffic_is_scaled_in_every_figure() -> None:
    """Rule: what bundles carry now and by their averages, and what brokers report."""
    current = snapshot(cluster([[0.2], [0.1]]))
    twice = scaled(current, 2.0)
    for table, names in (("bundles", ("latest", "short", "long")), ("brokers", ("usage", "traffic"))):
        for name in names:
            assert (getattr(getattr(twice, table), name) == 2 * getattr(getattr(current, table), name)).all()


def test_a_rate_limit_of_an_operator_counts_in_full() -> None:
    """Rule: 80,000 of 50,000 msg/s are 160 %, whatever the CPU."""
    limits = [CapacityOverride(pattern="*", msg_rate=50e3, ignore=("cpu",))]
    current = snapshot(cluster([[0.4, 0.4], [0.1]]), capacity=limits)
    assert Draft(current, Ledger(), Parameters()).score.tolist() == pytest.approx([1.6, 0.2])


def test_a_broker_that_gave_is_found_again() -> None:
    """Rule: of more brokers than are looked at, the one that was the hottest is the coldest after it gave."""
    loads = [[0.45, 0.45], [0.02] * 44, [0.03], *[[0.47]] * 63, [0.49], [0.49]]
    first, second, *_ = eager(cluster(loads), strategy="threshold", overloaded_threshold_percent=100).plan.moves
    assert (first.source, first.target) == (broker(0), broker(2))
    assert (second.source, second.target) == (broker(1), broker(0))
    assert second.sentence.endswith(f": {broker(1)} 88.0% -> 86.0%, {broker(0)} 45.0% -> 47.0% (threshold)")


def test_the_mean_of_no_brokers_is_zero() -> None:
    """Rule: there is a plan for every picture."""
    assert run([]).plan.mean == 0.0


BUDGET, FIRST, SECOND = Code.BUDGET_PER_CYCLE, broker(0), broker(1)
# Both hot brokers give in turn, or the second one only after the first.
TURNS = {(FIRST, BUDGET, True): 940, (SECOND, BUDGET, True): 940}
ONE_BY_ONE = {(FIRST, BUDGET, True): 940, (SECOND, BUDGET, False): 1}
FULL = {
    "threshold": ONE_BY_ONE,
    "overload": ONE_BY_ONE,
    "uniform": {(FIRST, BUDGET, True): 940},
    "transfer": {(FIRST, BUDGET, True): 90, (FIRST, Code.NO_GAIN, True): 850, (SECOND, BUDGET, False): 1},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plan_looks_ten_cycles_ahead(strategy: str) -> None:
    """Rule: a hundred moves with a budget of ten; the others wait for the budget, bundle by bundle or, where the plan
    did not reach a broker, as one.
    """
    current = snapshot(cluster([[0.001] * 950, [0.001] * 940, [0.01], [0.01], [0.01]]))
    result = eager(current, strategy=strategy, max_moves_per_cycle=10, transfer_hit_count=0, move_price=0).plan
    assert len(result.moves) == 10 and "100 bundles" in result.verdict.sentence
    assert result.verdict.sentence.endswith("; 10 now, 90 in later cycles (budgets)")
    output = Counter((item.broker, item.code, item.bundle != "") for item in result.refusals)
    assert output == FULL.get(strategy, TURNS)
