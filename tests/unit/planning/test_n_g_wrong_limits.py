"""Limits below what a broker uses: they are wrong, do not count, and refusals name the setting that fixes them."""

from __future__ import annotations

import numpy as np
import pytest

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.strategies.refusals import FULL
from bundlekeel.planning.whatif import scaled
from tests.support.builders import BLIND_NIC, EAGER, averages_of, bundle_name, report, snapshot
from tests.support.world import with_params


def broker(place: int, cpu: float, *, nic: float = BLIND_NIC, use: float = 0.0, memory: float = 0.1) -> BrokerReport:
    """A broker of one core with ten bundles. `cpu`, `memory`: shares of the limits; `nic`, `use`: kbit/s."""
    bundles = {bundle_name(100 * place + number): abs(cpu) / 10 for number in range(10)}
    return report(
        f"b{place}:8080",
        bundles,
        usage=np.array([100 * cpu, 1024 * memory, use, use]),
        limit=np.array([100.0, 1024.0, nic, nic]),
    )


def plan_of(*reports: BrokerReport, capacity: tuple[CapacityOverride, ...] = (), **params: object) -> Plan:
    """The plan of one cycle that acts at once."""
    view = snapshot(reports, averages=averages_of(reports), capacity=capacity)
    return plan(PlanInput(snapshot=view, params=with_params(**EAGER, **params))).plan


def limits_of(cycle: Plan) -> dict[str, str]:
    """Return the details of the refusals for wrong limits, by broker."""
    return {item.broker: item.detail for item in cycle.refusals if item.code is Code.WRONG_LIMIT and not item.bundle}


@pytest.mark.parametrize("strategy", ["avg", "threshold", "deviation", "transfer", "uniform"])
@pytest.mark.parametrize("others", [(0.75, 0.75), (0.95, 0.95), (0.95, 0.84), (1.5, 1.5), (0.2, 0.2)])
def test_n_g_a_cpu_limit_below_the_use_is_named_and_asks_for_no_broker(
    strategy: str, others: tuple[float, ...]
) -> None:
    """A cpuset without a quota. Nothing comes to a broker whose CPU use is unknown."""
    cycle = plan_of(broker(0, 1.5), *(broker(place, cpu) for place, cpu in enumerate(others, 1)), strategy=strategy)
    text = limits_of(cycle)["b0:8080"]
    assert "b0:8080 uses 1.5 cores of CPU, and its limit is 1" in text
    assert '{"b0:8080": {cores: N}}' in text and "1.5 or more" in text
    assert "b0:8080" not in {move.target for move in cycle.moves} or strategy == "uniform"
    texts = [cycle.verdict.sentence, *(item.sentence for item in cycle.brokers), *(r.detail for r in cycle.refusals)]
    assert not [text for text in texts if "add brokers" in text or "add a broker" in text]


def test_n_g_the_case_of_one_broker_above_its_limit() -> None:
    """The verdict of the cycle is the wrong limit, not that the others are even."""
    cycle = plan_of(broker(0, 1.5), broker(1, 0.75), broker(2, 0.75))
    assert (cycle.verdict.code, cycle.moves) == (Code.WRONG_LIMIT, ())
    assert {item.broker: item.code for item in cycle.brokers}["b0:8080"] is Code.WRONG_LIMIT
    assert "b0:8080" in cycle.verdict.sentence and "capacity" in cycle.verdict.sentence


@pytest.mark.parametrize("cpu", [1.005, 1.05, 1.1])
def test_n_g_a_short_overshoot_of_a_quota_is_a_full_broker(cpu: float) -> None:
    """Measured over a minute, a quota may be exceeded by some percent: bundles leave as before."""
    cycle = plan_of(broker(0, cpu), broker(1, 0.3), broker(2, 0.3))
    assert not limits_of(cycle)
    assert "b0:8080" in {move.source for move in cycle.moves}


def test_n_g_with_the_true_limit_set_bundles_leave() -> None:
    """Setting `cores` as the refusal asks lets bundles leave."""
    capacity = (CapacityOverride(pattern="*", cores=1.75),)
    cycle = plan_of(broker(0, 1.5), broker(1, 0.75), broker(2, 0.75), capacity=capacity)
    assert not limits_of(cycle)
    assert "b0:8080" in {move.source for move in cycle.moves}


@pytest.mark.parametrize("use", [400_000.0, 11_001.0])
def test_n_g_a_card_of_10_mbits_does_not_count(use: float) -> None:
    hot, cold = (plan_of(broker(0, cpu, nic=1e4, use=use), broker(1, 0.45), broker(2, 0.45)) for cpu in (0.8, 0.1))
    assert "b0:8080" in {move.source for move in hot.moves}
    assert "b0:8080" in {move.target for move in cold.moves}
    for cycle in (hot, cold):
        ways = [item.detail for item in cycle.refusals if item.code is Code.WRONG_LIMIT]
        assert len(ways) == 2 and all("its limit is 0.01" in text and "nic_gbps: N" in text for text in ways)
        assert cycle.verdict.code is not Code.WRONG_LIMIT


def test_n_g_direct_memory_above_its_limit_does_not_count() -> None:
    """The broker takes part by its CPU."""
    cycle = plan_of(broker(0, 0.4, memory=2.0), broker(1, 0.4), broker(2, 0.4))
    assert "uses 2048 MiB of direct memory, and its limit is 1024" in limits_of(cycle)["b0:8080"]
    assert cycle.verdict.code is Code.BALANCED


def test_n_g_brokers_that_are_really_full_still_ask_for_brokers() -> None:
    """A card's wrong limit does not hide that CPUs are busy."""
    cycle = plan_of(broker(0, 1.05, nic=1e4, use=4e5), broker(1, 0.86), broker(2, 0.86))
    assert cycle.verdict.code in FULL and "add brokers" in cycle.verdict.sentence


@pytest.mark.parametrize("strategy", ["avg", "threshold"])
def test_n_g_pulsars_own_classes_count_what_is_reported(strategy: str) -> None:
    """In `compat` nothing is ignored."""
    cycle = plan_of(broker(0, 1.5), broker(1, 0.2), broker(2, 0.2), strategy=strategy, compat="4.0")
    assert not limits_of(cycle)


def test_n_g_a_load_that_is_only_supposed_proves_nothing() -> None:
    reports = [broker(place, cpu) for place, cpu in enumerate((0.9, 0.8, 0.8))]
    view = scaled(snapshot(reports, averages=averages_of(reports)), 2.0)
    cycle = plan(PlanInput(snapshot=view, params=with_params(**EAGER))).plan
    assert not limits_of(cycle) and cycle.verdict.code in FULL


def test_n_g_a_score_of_an_extensible_broker_has_no_limit() -> None:
    """Weights may raise it above 1."""
    reports = [report("a:1", {bundle_name(1): 0.5}, cpu=1.6, cores=4.0), report("b:1", {}, cpu=0.2, cores=4.0)]
    view = snapshot(reports, averages=averages_of(reports), mode="extensible")
    assert not view.brokers.wrong().any()
