"""`avg`: hits, side changes, and what it moves (PIP-364 and the stuck clusters of Pulsar's issues)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.ledger import Ledger, open_entries
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.strategies.timing import tolerance
from tests.support.builders import (
    EAGER,
    MINUTE,
    NOW_MS,
    after,
    broker,
    bundle_name,
    cluster,
    eager,
    entry,
    report,
    run,
    snapshot,
    turn,
    written,
)


def test_two_equal_hot_bundles_one_empty_broker() -> None:
    """Rule (PD issue 5021): exactly one of two equal bundles moves."""
    plan = eager(cluster([[0.4, 0.4], []])).plan
    assert len(plan.moves) == 1
    assert after(plan) == [0.4, 0.4]


@pytest.mark.parametrize(
    ("mean", "low"), [(0.0, 0.02), (0.1, 0.02), (0.2, 0.03), (0.5, 0.075), (1.0, 0.15), (1.5, 0.15)]
)
def test_the_tolerance_follows_the_mean(mean: float, low: float) -> None:
    """Rule: 15 % of the mean, but not below two points, nor above fifteen."""
    assert tolerance(Parameters(), mean) == pytest.approx(low)


def test_hundreds_of_equal_small_bundles_move() -> None:
    """Rule: bundles far below 2 % of the mean load are not negligible when there are no others."""
    plan = eager(cluster([[0.001] * 600, []])).plan
    assert after(plan)[0] == pytest.approx(0.3, abs=0.025)


def test_dust_stays() -> None:
    """Rule: a bundle that carries next to nothing is not worth a reconnect."""
    plan = eager(cluster([[0.35, 0.35, *[0.00001] * 20], []])).plan
    assert [move.bundle for move in plan.moves] == [bundle_name(0)]
    assert sum(item.code is Code.BELOW_MINIMUM for item in plan.refusals) == 20


def test_one_giant_bundle_is_unsplittable() -> None:
    """Rule (Pulsar issue 3419): a bundle that would only swap two brokers' roles stays, and the verdict says so."""
    plan = eager(cluster([[0.8], [0.02], []])).plan
    assert not plan.moves
    assert plan.verdict.code is Code.UNSPLITTABLE
    assert [(item.bundle, item.code) for item in plan.refusals] == [(bundle_name(0), Code.TOO_BIG)]


def test_giant_bundle_keeps_its_broker_and_the_others_leave() -> None:
    """Rule: around a giant bundle the small ones are moved away."""
    plan = eager(cluster([[0.6, 0.1, 0.1], []])).plan
    assert sorted(move.bundle for move in plan.moves) == [bundle_name(1), bundle_name(2)]


def test_idle_bundles_are_never_chosen() -> None:
    """Rule (Pulsar issue 21214): thousands of idle bundles change nothing."""
    plan = eager(cluster([[0.4, 0.4, *[0.0] * 3000], [0.0] * 3000])).plan
    assert len(plan.moves) == 1
    assert sum(item.code is Code.IDLE for item in plan.refusals) == 3000


@pytest.mark.parametrize(
    ("loads", "code"),
    [
        ([20, 30, 52, 70, 80], Code.OVERLOADED),
        ([10, 30, 80], Code.OVERLOADED),
        ([10, 50, 70], Code.OVERLOADED),
        ([40, 40, 40, 40, 44, 45], Code.BALANCED),
        ([80, 80, 80, 80, 80, 80], Code.BALANCED),
    ],
)
def test_pip_364_clusters(loads: list[int], code: Code) -> None:
    """Rule (PIP-364's tables): far apart is balanced to within half the low threshold, close together is left."""
    plan = eager(cluster([[0.02] * (load // 2) for load in loads])).plan
    assert plan.verdict.code is code
    if code is Code.OVERLOADED:
        low = 0.15 * sum(loads) / len(loads) / 100
        assert max(after(plan)) - min(after(plan)) < low
        assert max(after(plan)) <= max(loads) / 100


def test_larger_target_is_tried_when_the_coldest_is_too_small() -> None:
    """Rule: a small cold broker that can hold no bundle does not hide a larger one."""
    tiny = report("b0000:0", {}, limit=report("x", {}).limit * 0.1)
    plan = eager([tiny, *cluster([[0.4, 0.4], [0.01]])]).plan
    assert (plan.moves[0].source, plan.moves[0].target) == (broker(0), broker(1))


def test_colder_brokers_that_may_not_take_it_hide_nobody() -> None:
    """Rule: five colder brokers that policies forbid do not use up the tries; the allowed sixth gets the bundle."""
    keep = IsolationPolicy(name="p", namespaces=("t/ns",), primary=("b0000", "b0006"))
    current = snapshot(cluster([[0.4, 0.4], [], [], [], [], [], [0.01]]))
    params = Parameters(**EAGER)
    result = plan(PlanInput(snapshot=current, params=params, policies=Policies(isolation=(keep,)))).plan
    assert [(move.source, move.target) for move in result.moves] == [(broker(0), broker(6))]


FAR = cluster([[0.3, 0.3], [0.01]])


def confirmed() -> StrategyMemory:
    """Return the memory after a report that shows `FAR`: the next one makes it cost more than a move."""
    return turn(FAR, 0, StrategyMemory()).memory


def test_who_could_not_act_tries_again_next_cycle() -> None:
    """Rule: the cost of an imbalance stays while no bundle may move, and the reason is given each time."""
    current = snapshot(written(FAR, MINUTE), wall_ms=NOW_MS + MINUTE)
    cooling = GuardState(recent={name: RecentMove(at_ms=NOW_MS, source="x") for name in current.bundles.names})
    result = run(current, memory=confirmed(), guard=cooling)
    assert result.plan.verdict.code is Code.NO_BUNDLES
    assert "2 CoolDown" in result.plan.verdict.sentence
    assert run(current, memory=result.memory).plan.moves


def test_budget_carries_over_without_a_new_reading() -> None:
    """Rule: what a plan began, the next cycles finish at once."""
    reports = cluster([[0.05] * 14, []])
    memory = turn(reports, 0, StrategyMemory()).memory
    reports = written(reports, MINUTE)
    first_turn = turn(reports, MINUTE, memory, max_moves_per_cycle=2)
    assert len(first_turn.plan.moves) == 2
    assert first_turn.memory.active == (broker(0), broker(1))
    assert len(turn(reports, MINUTE + 10_000, first_turn.memory, max_moves_per_cycle=2).plan.moves) == 2


def test_target_that_gives_later_counts_what_it_took() -> None:
    """Rule: a bundle's share of its broker stays the same after the broker took another one in the same plan."""
    draft = Draft(snapshot(cluster([[0.4, 0.2], [0.1, 0.1]])), Ledger(), Parameters())
    draft.take(0, 0, 1, rule="x", threshold=0.0)
    assert draft.expected(1)[:, 0].tolist() == pytest.approx([5000.0, 5000.0])
    assert draft.pressure(1)[:, 0].tolist() == pytest.approx([10.0, 10.0])


def test_role_swap_is_no_improvement() -> None:
    """Rule: a bundle nearly as large as the whole difference would only make the cold broker the hot one."""
    plan = eager(cluster([*[[0.72, 0.0001]] * 5, []])).plan
    assert not plan.moves
    assert plan.verdict.code is Code.UNSPLITTABLE


def test_target_is_filled_to_the_mean_and_not_far_above() -> None:
    """Rule: a bundle goes where it can stay: into a target 13 points below the mean fit 13, also 20 (7 above are within
    the low threshold of 8), and not 23."""
    for larger, choice in ((0.2, 0), (0.23, 1)):
        plan = eager(cluster([[larger, 0.13, 0.67 - larger], [0.4], [0.4]])).plan
        assert plan.moves[0].bundle == bundle_name(choice)


def test_reported_overload_is_no_target() -> None:
    """Rule: a broker that still reports an overload takes nothing, although its books say that it is free."""
    current = snapshot(cluster([[0.5, 0.45], [0.3, 0.3]]))
    move = eager(cluster([[0.4, 0.4], []])).plan.moves[0]
    away = replace(move, bundle="t/gone/0x00000000_0xffffffff", target="c:1", pressure=(90.0, 0, 0, 0, 0, 0))
    books = open_entries(Ledger(), [away], current, NOW_MS)
    memory = StrategyMemory(active=(broker(0), broker(1)))
    plan = run(current, ledger=books, memory=memory, **EAGER).plan
    assert plan.loads[0].score_before == pytest.approx(0.05)
    assert not plan.moves


def test_an_even_cluster_is_balanced_also_while_a_move_settles() -> None:
    """Rule: only where there is a difference to act on the verdict is that reports are waited for."""
    books = Ledger(entries=(entry(bundle_name(9), broker(0), broker(1)),))
    for loads, code in (([[0.3], [0.3]], Code.BALANCED), ([[0.3, 0.1], [0.1]], Code.UNSETTLED)):
        assert run(cluster(loads), ledger=books).plan.verdict.code is code


@pytest.mark.parametrize(("strategy", "message"), [("avg", "at most 0.0%"), ("uniform", "within their limits")])
def test_a_closed_empty_broker_is_no_difference(strategy: str, message: str) -> None:
    """Rule: it takes nothing and has nothing to give, so the others are not compared with it."""
    guard = GuardState(cordoned=frozenset({broker(2)}))
    verdict = run(cluster([[0.1] * 4, [0.1] * 4, []]), guard=guard, strategy=strategy, **EAGER).plan.verdict
    assert verdict.code is Code.BALANCED and message in verdict.sentence
    moves = run(cluster([[0.1] * 6, [0.1], []]), guard=guard, strategy=strategy, **EAGER).plan.moves
    assert {(move.source, move.target) for move in moves} == {(broker(0), broker(1))}


def test_brokers_of_one_load_have_one_verdict() -> None:
    """One of two empty brokers is paired with the loaded one, the other with its like: both are underloaded."""
    brokers = eager(cluster([[0.2, 0.2, 0.08], [], []])).plan.brokers
    assert [item.code for item in brokers] == [Code.OVERLOADED, Code.UNDERLOADED, Code.UNDERLOADED]
    even = eager(cluster([[0.3], [0.3], [0.3]])).plan.brokers
    assert {item.code for item in even} == {Code.BALANCED}
