"""The CPU cost of traffic is learned from measurements, and CPU that no bundle causes is not charged to bundles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.averages import Averages
from bundlekeel.model.codes import Code
from bundlekeel.model.load import CPU
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.costs import CostEstimate, CpuCosts, estimate, learn
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import StrategyMemory
from tests.support.builders import MESSAGES_PER_SHARE, MINUTE, NOW_MS, broker, bundle_name, cluster, eager, report
from tests.support.builders import snapshot as snapshot_of

PARAMS = Parameters()
# Percent of one core per msg/s; `report` gives a bundle 1 kB per message, so half of it comes from bytes.
TRUE_COST = 100 / MESSAGES_PER_SHARE
Load = Callable[[int, float], tuple[float, float]]


def followed(
    load: Load,
    *,
    minutes: int,
    more_ms: int = 0,
    every_ms: int = MINUTE,
    brokers: int = 3,
    counters: bool = False,
    seed: int = 1,
) -> CpuCosts:
    """Return the costs learned from readings; `load` returns traffic and CPU (shares) of a broker at a minute."""
    costs, chance, unknown = CpuCosts(), np.random.default_rng(seed), Averages()
    for at in range(0, minutes * MINUTE + more_ms, every_ms):
        reports = []
        for row in range(brokers):
            share, cpu = load(row, at / MINUTE)
            noisy = max(cpu + float(chance.normal(0, 0.005)), 0.0)
            changes = {"last_update": NOW_MS + at, "interval_ms": every_ms if counters else 0}
            reports.append(report(broker(row), {bundle_name(row): share}, cpu=noisy, **changes))
        costs = learn(costs, snapshot_of(reports, averages=unknown, wall_ms=NOW_MS + at), PARAMS)
    return costs


def estimated(costs: CpuCosts) -> CostEstimate:
    """Return the estimate for all brokers, which have one core each."""
    ids = tuple(costs.brokers)
    return estimate(costs, ids, np.full(len(ids), 100.0))


def cost_of(costs: CpuCosts) -> float:
    """Return the cost of a message and its 1,000 bytes."""
    messages, size = estimated(costs).cost.tolist()
    return float(messages + 1000 * size)


def wave(base: float = 0.1, factor: Sequence[float] = (1.0, 1.0, 1.0)) -> Load:
    """Return a load that swings by a half within two hours, another phase on each broker."""

    def load(row: int, minute: float) -> tuple[float, float]:
        share = 0.3 * (1 + 0.5 * np.sin(minute / 120 * 2 * np.pi + row))
        return share, base + factor[row] * share

    return load


@pytest.mark.parametrize("strategy", ["avg", "threshold", "deviation", "overload", "transfer"])
@pytest.mark.parametrize("burnt", [0.92, 0.6])
def test_n_e_cpu_that_no_bundle_causes_moves_nothing(strategy: str, burnt: float) -> None:
    """60 msg/s cannot cause 92 % where others serve 10,800 for 30 %, and nothing makes room for them."""
    first, *others = cluster([[0.0001] * 6, [0.05] * 6, [0.05] * 6])
    usage = first.usage.copy()
    usage[CPU] = 100 * burnt
    assert not eager([replace(first, usage=usage), *others], strategy=strategy).plan.moves


@pytest.mark.parametrize("strategy", ["avg", "threshold", "deviation", "overload"])
def test_n_e_the_verdict_says_that_no_move_helps(strategy: str) -> None:
    """It names the broker, what its bundles cause, and what to check instead."""
    first, *others = cluster([[0.01] * 3, [0.05] * 6, [0.05] * 6])
    usage = first.usage.copy()
    usage[CPU] = 92.0
    plan = eager([replace(first, usage=usage), *others], strategy=strategy).plan
    (hot,) = [item for item in plan.brokers if item.broker == broker(0)]
    assert "its bundles cause 3.0%; moving all of them leaves 89.0%" in hot.sentence
    assert (hot.code is Code.BASE_LOAD) == (not plan.moves)


def test_n_e_the_verdict_of_the_cycle_is_that_of_the_base() -> None:
    first, *others = cluster([[0.0001] * 6, [0.05] * 6, [0.05] * 6])
    usage = first.usage.copy()
    usage[CPU] = 92.0
    verdict = eager([replace(first, usage=usage), *others]).plan.verdict
    assert verdict.code is Code.BASE_LOAD
    assert verdict.sentence.startswith(f"moving bundles does not help {broker(0)} (its bundles cause 0.1% of 92.0%)")


@pytest.mark.parametrize("burning", [1])
def test_n_e_relief_is_predicted_from_marginal_cost(burning: int) -> None:
    """The same traffic on three brokers, and some of them use 45 points more CPU: a bundle takes 3.5 points along."""
    reports = cluster([[0.035] * 10] * 3)
    for row in range(burning):
        usage = reports[row].usage.copy()
        usage[CPU] += 45
        reports[row] = replace(reports[row], usage=usage)
    draft = Draft(snapshot_of(reports), Ledger(), PARAMS)
    assert draft.pressure(0)[:, CPU] == pytest.approx([3.5] * 10)
    assert draft.base_cpu().tolist() == pytest.approx([45.0] * burning + [0.0] * (3 - burning))
    plan = eager(reports).plan
    assert len(plan.moves) <= 9 * burning
    after = [row.score_after for row in plan.loads]
    assert max(after) - min(after) < 0.1


def test_n_e_costs_of_messages_and_of_bytes_are_told_apart() -> None:
    """Brokers of other mixes: 4 points per 10,000 msg/s and 2 per 10 MB/s explain all three."""
    mixes = [(20_000.0, 10e6), (5_000.0, 40e6), (10_000.0, 20e6)]
    reports = [
        replace(
            report(broker(row), {bundle_name(row): 0.1}, cpu=(4 * rate / 1e4 + 2 * size / 10e6) / 100),
            bundle_traffic=np.array([[rate / 2, rate / 2, size / 2, size / 2]]),
            traffic=np.array([rate / 2, rate / 2, size / 2, size / 2]),
        )
        for row, (rate, size) in enumerate(mixes)
    ]
    messages, size = estimated(learn(CpuCosts(), snapshot_of(reports), PARAMS)).cost.tolist()
    assert messages == pytest.approx(4e-4, rel=0.1)
    assert size == pytest.approx(2e-7, rel=0.1)


def test_n_e_a_step_of_counters_tells_the_cost_within_seconds() -> None:
    """Small brokers use half of their CPU without traffic. Readings of counters measure traffic and CPU at the same
    time, so the first change of traffic shows what a message costs, although a comparison of brokers cannot."""

    def load(row: int, minute: float) -> tuple[float, float]:
        share = 0.2 if minute < 2 else (0.54, 0.03, 0.03)[row]
        return share, 0.45 + share

    before = cost_of(followed(load, minutes=2, every_ms=3000, counters=True))
    assert before > 2.5 * TRUE_COST
    after = cost_of(followed(load, minutes=2, more_ms=6000, every_ms=3000, counters=True))
    assert after == pytest.approx(TRUE_COST, rel=0.25)


def test_n_e_time_is_counted_and_not_readings() -> None:
    """Readings every 3 s and reports every 60 s of the same two hours give nearly the same costs, near the true one."""
    slow = cost_of(followed(wave(), minutes=120))
    fast = cost_of(followed(wave(), minutes=120, every_ms=3000, counters=True))
    assert slow == pytest.approx(TRUE_COST, rel=0.15)
    assert fast == pytest.approx(slow, rel=0.1)


def test_n_e_the_same_report_is_one_measurement() -> None:
    """A second cycle on the same reports learns nothing."""
    snapshot = snapshot_of(cluster([[0.3], [0.2], [0.1]]))
    once = learn(CpuCosts(), snapshot, PARAMS)
    assert learn(once, snapshot, PARAMS) == once
    assert learn(once, replace(snapshot, wall_ms=NOW_MS + 5000), PARAMS) == once


def test_n_e_brokers_with_moves_in_progress_teach_nothing() -> None:
    costs = followed(wave(), minutes=60)
    odd = [replace(item, last_update=NOW_MS + 61 * MINUTE) for item in cluster([[0.9], [0.1], [0.1]], cpu=0.3)]
    snapshot = snapshot_of(odd, wall_ms=NOW_MS + 61 * MINUTE)
    after = learn(costs, snapshot, PARAMS, unsettled=snapshot.brokers.ids)
    assert cost_of(after) == cost_of(costs)


def test_n_e_cpu_that_lags_behind_traffic_teaches_nothing() -> None:
    """After a failover a report has the new traffic, but still the CPU of the minute before."""

    def failover(row: int, minute: float) -> tuple[float, float]:
        now, before = (0.3 if at < 30 or row == 2 else 0.6 for at in (minute, minute - 1))
        return now, 0.1 + before

    assert cost_of(followed(failover, minutes=60)) == pytest.approx(TRUE_COST, rel=0.35)
    assert cost_of(followed(failover, minutes=240)) == pytest.approx(TRUE_COST, rel=0.35)


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_n_e_constant_traffic_does_not_run_away(noise: float) -> None:
    """Half a day of nothing but noise changes the cost by little: the comparison of brokers counts."""
    chance = np.random.default_rng(3)
    costs = followed(lambda _row, _minute: (0.3 * (1 + float(chance.normal(0, noise))), 0.3), minutes=720)
    assert cost_of(costs) == pytest.approx(TRUE_COST, rel=0.2)


def test_n_e_a_new_base_changes_no_cost() -> None:
    """One broker begins to burn 45 points while traffic swings: the cost stays, its base grows."""

    def load(row: int, minute: float) -> tuple[float, float]:
        share, cpu = wave()(row, minute)
        return share, cpu + (0.45 if row == 0 and minute >= 300 else 0.0)

    costs = followed(load, minutes=400)
    assert cost_of(costs) == pytest.approx(TRUE_COST, rel=0.15)
    reports = [replace(item, last_update=NOW_MS + 401 * MINUTE) for item in cluster([[0.3], [0.3], [0.3]], cpu=0.4)]
    draft = Draft(snapshot_of(reports, wall_ms=NOW_MS + 401 * MINUTE), Ledger(), PARAMS, costs=costs)
    assert draft.base_cpu().tolist() == pytest.approx([10.0] * 3, abs=4.0)


def test_n_e_a_slow_broker_has_its_own_factor() -> None:
    estimates = estimated(followed(wave(0.05, (1.5, 1.0, 1.0)), minutes=300))
    factor, others = float(estimates.factor[0]), estimates.factor[1:]
    assert factor / others == pytest.approx([1.5, 1.5], rel=0.15)
    assert (estimates.factor_interval[:, 0] <= estimates.factor).all()
    assert (estimates.factor <= estimates.factor_interval[:, 1]).all()


def test_n_e_costs_are_kept_by_the_shared_state() -> None:
    """A value in, the same value out as JSON."""
    memory = StrategyMemory(costs=followed(wave(), minutes=60))
    assert msgspec.json.decode(msgspec.json.encode(memory), type=StrategyMemory) == memory


shares = st.floats(0.0, 1.0)


@given(st.lists(st.tuples(shares, shares, st.floats(0.0, 1.2)), min_size=1, max_size=6), st.integers(1, 4))
def test_n_e_costs_and_bases_are_bounded(rows: list[tuple[float, float, float]], rounds: int) -> None:
    """Costs are 0 or more, a base is 0 or more and at most what the broker uses, bundles and base are the whole."""
    costs = CpuCosts()
    for number in range(rounds):
        at = NOW_MS + number * 3 * MINUTE
        reports = [
            report(
                broker(row),
                {bundle_name(2 * row): first, bundle_name(2 * row + 1): second},
                cpu=cpu if (row + number) % 2 else cpu / 2,
                last_update=at,
            )
            for row, (first, second, cpu) in enumerate(rows)
        ]
        snapshot = snapshot_of(reports, wall_ms=at)
        draft = Draft(snapshot, Ledger(), PARAMS, costs=costs)
        costs = draft.costs
        usage, base = snapshot.brokers.usage[:, CPU], draft.base_cpu()
        assert (draft.estimate.cost >= 0).all()
        assert np.isfinite(draft.estimate.cost_interval).all()
        assert (base >= 0).all()
        assert (base <= usage).all()
        for row in range(len(rows)):
            caused = float(draft.pressure(row)[:, CPU].sum())
            assert caused <= usage[row] * (1 + 1e-6)
            if caused > 0 and draft.estimate.cost.any():
                assert caused + base[row] == pytest.approx(usage[row], rel=1e-4, abs=1e-6)
