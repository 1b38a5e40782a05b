"""`threshold` and `uniform` in their corrected forms (PIP-364's and Pulsar's examples that apply to them)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import PlanResult
from bundlekeel.planning.memory import StrategyMemory
from tests.support.builders import EAGER, MINUTE, after, broker, bundle_name, cluster, eager, report, run, turn, written


def threshold(reports: list[BrokerReport], memory: StrategyMemory | None = None, **params: Any) -> PlanResult:
    """A plan of `threshold` without budgets."""
    return run(reports, memory=memory, strategy="threshold", **{**EAGER, **params})


def uniform(loads: list[list[float]], **params: Any) -> Plan:
    """A plan of `uniform` without budgets."""
    return eager(cluster(loads), strategy="uniform", **params).plan


# --- threshold -----------------------------------------------------------------------------------------------


def test_step_that_is_over_is_not_shed_again() -> None:
    """Rule (PIP-364, 90/10): a broker that was hot in the last report, and is even now, sheds nothing."""
    memory = turn(cluster([[0.1] * 9, [0.1]]), 0, StrategyMemory(), strategy="threshold").memory
    after_step = turn(written(cluster([[0.1] * 5, [0.1] * 5]), MINUTE), MINUTE, memory, strategy="threshold")
    assert not after_step.plan.moves and after_step.plan.verdict.code is Code.BALANCED


def test_threshold_is_inclusive() -> None:
    """Rule: a broker exactly at average + threshold is overloaded, one a little below is not."""
    at = threshold(cluster([[0.1] * 6, [0.1] * 4, [0.1] * 5]))
    assert at.plan.brokers[0].code is Code.OVERLOADED
    below = threshold(cluster([[0.1] * 6, [0.1] * 4, [0.1] * 5]), threshold_percent=10.1)
    assert below.plan.verdict.code is Code.BALANCED


def test_threshold_takes_what_it_needs() -> None:
    """Rule: score - average - threshold + 5 points leave: 80 - 50 - 10 + 5 = 25 points, no overshoot."""
    plan = threshold(cluster([[0.05] * 16, [0.05] * 7, [0.05] * 7])).plan
    assert len(plan.moves) == 5
    assert after(plan)[0] == pytest.approx(0.55)


def test_threshold_sole_and_idle_bundles() -> None:
    """Rule: a broker's only bundle stays, and idle ones are never chosen."""
    sole = threshold(cluster([[0.8], []])).plan
    assert not sole.moves
    assert [item.code for item in sole.refusals] == [Code.SOLE_BUNDLE]
    idle = threshold(cluster([[0.4, 0.4, *[0.0] * 50], [0.0] * 5])).plan
    assert len(idle.moves) == 1


@pytest.mark.parametrize("placement", ["least_resource_usage", "least_long_term_message_rate"])
def test_placement_spreads_one_plan(placement: str) -> None:
    """Rule: a placement counts what the plan placed already, so several targets share."""
    plan = threshold(cluster([[0.1] * 8, [0.0], [0.0], [0.0]]), placement=placement).plan
    assert len(plan.moves) >= 3
    assert {move.target for move in plan.moves} == {broker(1), broker(2), broker(3)}


def test_least_long_term_rate_and_least_usage_differ() -> None:
    """Rule: one uses long-term messages, the other usage."""
    heavy_cpu = [*cluster([[0.1] * 8, [0.01]]), report("c:1", {}, cpu=0.3)]
    by_usage = threshold(heavy_cpu, placement="least_resource_usage").plan
    by_rate = threshold(heavy_cpu, placement="least_long_term_message_rate").plan
    assert by_usage.moves[0].target == broker(1)
    assert by_rate.moves[0].target == "c:1"


# --- uniform -------------------------------------------------------------------------------------------------


def test_1000_500_at_half_needs_250() -> None:
    """Rule: 1000/500 at 0.5 -> 250: the largest bundles that fit into it, never more."""
    plan = uniform([[0.3, *[0.125] * 5, 0.075], [0.5]], uniform_max_unload_ratio=0.5)
    assert sum(move.traffic[0] + move.traffic[1] for move in plan.moves) == pytest.approx(25e3)
    refused = {item.bundle: item.code for item in plan.refusals}
    assert refused[bundle_name(0)] is Code.TOO_BIG


def test_throughput_is_tried_when_rate_finds_nothing() -> None:
    """Rule: a rate difference that no bundle fits does not hide one of throughput; none is refused twice."""
    fast, slow = np.array([60e3, 0.0, 1e6, 0.0]), np.array([1e3, 0.0, 20e6, 0.0])
    first = replace(report("a:1", {bundle_name(0): 0.1, bundle_name(1): 0.1}), bundle_traffic=np.array([fast, fast]))
    names = {bundle_name(number): 0.1 for number in range(2, 12)}
    second = replace(report("b:1", names), bundle_traffic=np.array([slow] * 10))
    third = replace(report("c:1", {bundle_name(12): 0.1}), bundle_traffic=np.array([slow]))
    reports = [replace(item, traffic=item.bundle_traffic.sum(axis=0)) for item in (first, second, third)]
    plan = eager(reports, strategy="uniform").plan
    assert {move.source for move in plan.moves} == {"b:1"}
    named = [item.bundle for item in plan.refusals] + [move.bundle for move in plan.moves]
    assert sorted(named) == sorted([*first.bundle_names, *second.bundle_names])


@pytest.mark.parametrize(("allowed", "code"), [(300.0, Code.BALANCED), (299.0, Code.OVERLOADED)])
def test_rates_may_differ_by_more_than_a_hundred_percent(allowed: float, code: Code) -> None:
    """Rule: 300 allows the largest rate to be four times the smallest (strictly more acts)."""
    plan = uniform([[0.05] * 16, [0.05] * 4], msg_rate_difference_percent=allowed, throughput_multiple=0.0)
    assert plan.verdict.code is code


def test_uniform_stops_at_its_own_limit() -> None:
    """Rule: `max_unload_bundles` ends the selection; what would have fitted is refused by budget."""
    plan = uniform([[0.01] * 80, [0.0]], max_unload_bundles=3)
    assert len(plan.moves) == 3
    assert {item.code for item in plan.refusals} >= {Code.BUDGET_PER_CYCLE}


def test_uniform_empty_and_sole() -> None:
    """Rule: an idle broker counts as 1 msg/s; a sole bundle stays."""
    assert uniform([[0.1] * 8, []]).moves
    assert [item.code for item in uniform([[0.8], []]).refusals] == [Code.SOLE_BUNDLE]


def test_blind_source_does_not_load_the_seeing() -> None:
    """Rule: traffic of a broker whose resources are blind moves only where it makes no new maximum."""
    blind, seeing = cluster([[0.5, *[0.05] * 4], []])
    blind = replace(blind, limit=np.zeros(4))
    assert not eager([blind, seeing], strategy="uniform").plan.moves
    busy = report("c:1", {bundle_name(40): 0.3})
    assert eager([blind, seeing, busy], strategy="uniform").plan.moves


def test_bundle_moved_by_throughput_is_not_refused_by_rate() -> None:
    """Rule: what the second measure takes, the first one's refusal of it is withdrawn."""
    rows = np.array([[30e3, 0.0, 19e6, 0.0]] * 3 + [[30e3, 0.0, 1e6, 0.0]])
    first = replace(report("a:1", {bundle_name(n): 0.1 for n in range(4)}), bundle_traffic=rows)
    second = replace(report("b:1", {bundle_name(9): 0.1}), bundle_traffic=np.array([[1e3, 0.0, 1e6, 0.0]]))
    reports = [replace(item, traffic=item.bundle_traffic.sum(axis=0)) for item in (first, second)]
    plan = eager(reports, strategy="uniform").plan
    assert [move.bundle for move in plan.moves] == [bundle_name(3)]
    assert sorted(item.bundle for item in plan.refusals) == [bundle_name(n) for n in range(3)]
