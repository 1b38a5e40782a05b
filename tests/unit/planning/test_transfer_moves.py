"""Moves of `transfer` where the corrected form differs from TransferShedder.

The last tests run the class inside `plan()`: its input from a snapshot, and the tasks of the broker around it. Where it
helps, the answer of the class to the same snapshot (compat/transfer.py) is compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.parameters import from_pulsar
from bundlekeel.planning.costs import BrokerEvidence, CpuCosts
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.memory import StrategyMemory
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, report, run, snapshot
from tests.support.transfer import AT_ONCE, HOT_COLD, after, as_class, moves, now, refused, turn, written
from tests.unit.planning.test_avg_swap import check_accounts, swap_cases


def test_largest_fitting_bundles_first() -> None:
    """Corrected: the class takes the smallest first; 35 points are 1 bundle instead of 3."""
    loads = [[0.05, 0.1, 0.15, 0.2, 0.3], [0.05, 0.05]]
    assert len(as_class(loads).unloads) == 3
    plan = now(loads)
    assert len(plan.moves) == 2 and after(plan) == [0.45, 0.45]


def test_what_a_swap_gives_back_counts() -> None:
    """Corrected: without debug logs the class does not count it, believes to have moved more, and moves less."""
    loads = [[0.4, 0.4], [0.2, 0.2]]
    plan = now(loads, transfer_target_std=0.1)
    assert after(plan) == [0.6, 0.6]
    assert {(source, target) for _, source, target in moves(plan)} == {(broker(0), broker(1)), (broker(1), broker(0))}
    donors = [name for item in cluster(loads) for name in item.bundle_names]
    named = [move.bundle for move in plan.moves] + [item.bundle for item in plan.refusals]
    assert sorted(named) == sorted(donors), "both brokers are donors: every bundle moves or is refused"


def test_the_class_overrates_what_a_swap_moved() -> None:
    """The defect itself: 50 points go and 20 come back, the class counts 50, and works on a pair that is fine."""
    loads = [[0.1, 0.1, 0.2], [0.6], [0.1, 0.1, 0.6], [0.1, 0.4, 0.6]]
    outcome = as_class(loads, transfer_target_std=0.1)
    pairs = {(item.source, item.target) for item in outcome.unloads}
    assert pairs == {(broker(3), broker(0)), (broker(0), broker(3)), (broker(2), broker(1))}
    after_the_swap = np.array([0.4 + 0.5 - 0.2, 0.6, 0.8, 1.1 - 0.5 + 0.2])
    assert after_the_swap.std() < 0.1, "nothing was left to do for the second pair"


def test_n_o_the_class_counts_what_a_swap_brings_back_in_debug_mode() -> None:
    """`loadBalancerDebugModeEnabled`: the pair of the swap is even, and the second pair stays as it is."""
    loads = [[0.1, 0.1, 0.2], [0.6], [0.1, 0.1, 0.6], [0.1, 0.4, 0.6]]
    outcome = as_class(loads, transfer_target_std=0.1, transfer_debug_mode=True)
    assert {(item.source, item.target) for item in outcome.unloads} == {(broker(3), broker(0)), (broker(0), broker(3))}


def test_n_o_in_debug_mode_more_bundles_follow_a_swap() -> None:
    """A bundle that comes back leaves more to move, which the class does not see otherwise."""
    loads = [[0.3, 0.3, 0.3], [0.3, 0.02]]
    stock, debug = (as_class(loads, transfer_target_std=0.02, transfer_debug_mode=on) for on in (False, True))
    assert {item.bundle for item in stock.unloads} < {item.bundle for item in debug.unloads}


@pytest.mark.parametrize("on", [False, True])
def test_n_o_debug_mode_is_read_from_pulsars_key(on: bool) -> None:
    """The value may be a text or a truth value; the corrected form does not read it."""
    for value in (on, str(on).lower()):
        assert from_pulsar({"loadBalancerDebugModeEnabled": value}) == {"transfer_debug_mode": on}
    loads = [[0.1, 0.1, 0.2], [0.6], [0.1, 0.1, 0.6], [0.1, 0.4, 0.6]]
    assert moves(now(loads, transfer_debug_mode=on)) == moves(now(loads))


def test_no_step_of_a_swap_is_worse_than_before() -> None:
    """Corrected: the big bundle goes first, and only where it would not be worse if nothing came back."""
    for loads in ([[0.4, 0.4], [0.2, 0.2]], [[0.7], [0.6, 0.1]], [[0.5, 0.35], [0.3, 0.3]], [[0.45, 0.4], [0.25] * 2]):
        plan = now(loads, transfer_target_std=0.02)
        highest = max(sum(row) for row in loads)
        assert all(move.target_after <= min(highest, 0.85) + 1e-5 for move in plan.moves)


def test_a_swap_that_helps_little_is_not_made() -> None:
    """Corrected: both brokers must end a quarter of their difference below where the worse one was."""
    plan = now([[0.4, 0.4], [0.35, 0.05]], transfer_target_std=0.02)
    assert not plan.moves and plan.verdict.code is Code.UNSPLITTABLE


def test_a_swap_that_the_budgets_cut_in_half_is_not_planned() -> None:
    loads = [[0.4, 0.4], [0.2, 0.2]]
    assert len(now(loads, transfer_target_std=0.1, max_moves_per_cycle=2).moves) == 2
    plan = now(loads, transfer_target_std=0.1, max_moves_per_cycle=1)
    assert not plan.moves and set(refused(plan, Code.TOO_BIG)) == set(cluster(loads)[0].bundle_names)


def test_a_bundle_that_moved_lately_does_not_come_back_in_a_swap() -> None:
    """Corrected: the class looks at its grace period for the giver's bundles only."""
    reports = cluster([[0.4, 0.4], [0.2, 0.2]])
    guard = GuardState(recent={name: RecentMove(at_ms=NOW_MS - 1, source="") for name in reports[1].bundle_names})
    plan = run(snapshot(reports), guard=guard, **AT_ONCE, transfer_target_std=0.1).plan
    assert not plan.moves


def test_the_last_bundle_of_a_broker_stays_not_the_last_of_a_list() -> None:
    """Corrected: what counts is what the broker owns, idle bundles included, not the length of its top list.

    A larger broker is next to it, so that moving its one loaded bundle helps.
    """
    large = np.array([300.0, 1024.0, -1000.0, -1000.0])
    for idle, code in (([0.0], None), ([], Code.SOLE_BUNDLE)):
        loaded = {bundle_name(n): share for n, share in enumerate([0.8, *idle])}
        reports = [report(broker(0), loaded), report(broker(1), {bundle_name(9): 0.3}, limit=large)]
        plan = run(reports, **AT_ONCE).plan
        assert bool(plan.moves) is (code is None)
        assert code is None or refused(plan, code) == [bundle_name(0)]
    assert as_class([[0.8], [0.1]]).reason is Code.NO_BUNDLES


def test_the_last_bundle_stays_also_where_its_broker_uses_much_without_any() -> None:
    """Corrected: usage that no bundle accounts for is no reason to give all of them away."""
    reports = [*cluster([[0.1, 0.1]], cpu=0.55), report(broker(1), {bundle_name(9): 0.01})]
    costs = CpuCosts(brokers={broker(0): BrokerEvidence(idle=35.0)})
    plan = run(reports, memory=StrategyMemory(costs=costs), **AT_ONCE).plan
    assert [row.bundles_after for row in plan.loads] == [1, 2]


def test_a_giver_is_tried_against_the_next_takers() -> None:
    """Corrected: the class tries the least loaded broker only, and keeps it for the next givers when it fails."""
    small = np.array([20.0, 1024.0, -1000.0, -1000.0])
    reports = cluster([[0.2] * 4, [], []])
    # One idle broker is so small that no bundle fits on it; broker ids decide between two idle ones.
    reports[1] = replace(reports[1], limit=small)
    plan = run(reports, **AT_ONCE).plan
    assert {target for _, _, target in moves(plan)} == {broker(2)}


def test_a_taker_that_nobody_may_use_blocks_nobody() -> None:
    """Corrected: a broker full of topics is passed over."""
    reports = cluster([[0.2] * 4, [], []])
    reports[1] = replace(reports[1], num_topics=50_001)
    assert {target for _, _, target in moves(run(reports, **AT_ONCE).plan)} == {broker(2)}


def test_nothing_makes_the_maximum_worse() -> None:
    """Corrected: the class moves by throughput alone; here the small broker would be the next overloaded one."""
    small = np.array([50.0, 1024.0, -1000.0, -1000.0])
    reports = cluster([[0.2] * 4, [0.05, 0.05]])
    reports[1] = replace(reports[1], limit=small)
    plan = run(reports, **AT_ONCE).plan
    assert after(plan) == [0.6, 0.6]


def test_every_destination_is_known() -> None:
    """Corrected: `transfer_enabled: false` leaves it to the next lookup; ours always says."""
    plan = now(HOT_COLD, transfer_enabled=False)
    assert plan.moves and all(move.target for move in plan.moves)
    assert {item.target for item in as_class(HOT_COLD, transfer_enabled=False).unloads} == {""}


@pytest.mark.parametrize(
    ("loads", "code"),
    [
        ([[0.8], []], Code.SOLE_BUNDLE),
        ([[0.4, 0.4], [0.3]], Code.TOO_BIG),
        ([[0.0, 0.0, 0.8], [0.1]], Code.IDLE),
        ([[0.66, 0.4], [0.66, 0.4], [0.7]], Code.TARGET_OVERLOADED),
    ],
)
def test_every_candidate_has_its_reason(loads: list[list[float]], code: Code) -> None:
    """Corrected: the class drops a candidate with a debug line at best."""
    plan = now(loads, transfer_target_std=0.05)
    assert refused(plan, code), plan.refusals
    reports = {item.broker_id: item.bundle_names for item in cluster(loads)}
    donors = {item.broker for item in plan.refusals if item.bundle} | {move.source for move in plan.moves}
    named = [move.bundle for move in plan.moves] + [item.bundle for item in plan.refusals if item.bundle]
    assert sorted(named) == sorted(name for donor in donors for name in reports[donor])


def test_waiting_brokers_show_cost_and_price() -> None:
    """The two extreme brokers and the cycle show what the imbalance has cost, and the price."""
    plan = turn(written(0), 0, StrategyMemory()).plan
    assert [item.code for item in plan.brokers] == [Code.HIT_COUNT] * 2
    assert plan.verdict.cost < plan.verdict.price


def test_swaps_keep_the_laws() -> None:
    swaps = 0
    for loads, budgets in swap_cases(3):
        plan = now(loads, transfer_target_std=0.02, **budgets)
        check_accounts(loads, plan)
        assert max(row.score_after for row in plan.loads) <= max(row.score_before for row in plan.loads) + 1e-5
        swaps += bool({move.source for move in plan.moves} & {move.target for move in plan.moves})
    assert swaps >= 10


# --- the class inside `plan()` ------------------------------------------------------------------------------

NATIVE: dict[str, Any] = {**AT_ONCE, "compat": "4.2"}


def test_it_moves_the_smallest_first_and_the_swap_lands() -> None:
    """The class's decisions, its swap in the order in which no step is worse than before."""
    plan = now(HOT_COLD, compat="4.2")
    assert [(source, target) for _, source, target in moves(plan)] == [
        (broker(0), broker(1)),
        (broker(0), broker(1)),
        (broker(1), broker(0)),
    ]
    assert after(plan) == [0.45, 0.45]
    assert not [item for item in plan.refusals if item.detail == "final check"]


def test_without_transfer_the_placement_chooses_by_seed() -> None:
    """`LeastResourceUsageWithWeight` draws among the brokers well below the mean: never the hot one here."""
    loads = [[0.1] * 8, [0.05, 0.05], [0.05, 0.05], [0.05, 0.05]]
    plans = [now(loads, compat="4.2", transfer_enabled=False)] + [
        run(cluster(loads), **{**NATIVE, "transfer_enabled": False}, seed=seed).plan for seed in range(5)
    ]
    assert all(plan.moves and broker(0) not in {target for _, _, target in moves(plan)} for plan in plans)
    assert len({tuple(moves(plan)) for plan in plans}) > 1


def test_an_unload_whose_next_owner_is_its_last_one_is_refused() -> None:
    options = {**NATIVE, "transfer_enabled": False, "transfer_target_std": 0.01}
    reports = cluster([[0.02] * 25, [0.02] * 20])
    codes = [refused(run(reports, **options, seed=seed).plan, Code.SAME_BROKER) for seed in range(8)]
    assert any(codes) and not all(codes)


def test_a_broker_without_load_data_ends_the_cycle() -> None:
    current = snapshot(cluster(HOT_COLD), excluded=[ExcludedBroker(broker_id="b9:8080", code="NotJson")])
    assert run(current, **NATIVE).plan.verdict.code is Code.NO_LOAD_DATA
    assert run(current, **AT_ONCE).plan.moves


def test_what_gave_lately_ends_the_cycle() -> None:
    """CoolDown by the source of a move the guard remembers."""
    guard = GuardState(recent={"t/ns/0x00000000_0x00000001": RecentMove(at_ms=NOW_MS - 1000, source=broker(1))})
    assert run(cluster(HOT_COLD), guard=guard, **NATIVE).plan.verdict.code is Code.COOL_DOWN


def test_ten_largest_bundles_are_all_it_sees() -> None:
    """The smallest of thirty stay out of sight, however well they would fit."""
    plan = now([[0.001 * n for n in range(1, 31)], [0.01]], compat="4.2", transfer_target_std=0.05)
    largest = set(cluster([[0.001 * n for n in range(1, 31)]])[0].bundle_names[-10:])
    assert plan.moves and {bundle for bundle, source, _ in moves(plan) if source == broker(0)} <= largest


def test_scores_are_smoothed_once_a_call() -> None:
    """Also without a fresh report, as brokers do on every scrape; hits count every call too."""
    memory = StrategyMemory()
    for _ in range(3):
        memory = run(cluster(HOT_COLD), memory=memory, strategy="transfer", compat="4.2").memory
    assert memory.compat.condition_hits == 3
    calm = [replace(item, last_update=NOW_MS) for item in cluster([[0.1] * 4, [0.05, 0.05]])]
    once = run(calm, memory=memory, strategy="transfer", compat="4.2").memory
    assert once.compat.usage[broker(0)] == pytest.approx(0.8 * 0.9 + 0.4 * 0.1, abs=1e-5)
    again = run(calm, memory=once, strategy="transfer", compat="4.2").memory
    assert again.compat.usage[broker(0)] < once.compat.usage[broker(0)]
