"""The corrected `overload` and `deviation`, placements, and refusals that name the obstacle."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.eligibility import eligibility
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import BrokerCourse, StrategyMemory
from bundlekeel.planning.strategies import SHEDDERS, Context
from bundlekeel.planning.strategies.placement import PLACEMENTS, least_resource_usage
from tests.support.builders import EAGER, broker, bundle_name, cluster, eager, percents_after, report, run, snapshot
from tests.support.pulsar import Pulsar


def codes(done: Plan) -> set[Code]:
    """The codes of all refusals."""
    return {item.code for item in done.refusals}


# --- overload --------------------------------------------------------------------------------------------------


def test_overload_sheds_to_just_below_the_threshold() -> None:
    """Rule: 95 % is 10 points above 85; with Pulsar's margin of 5, 15 points leave, not more and not less."""
    result = eager(cluster([[0.05] * 19, [0.05] * 2, [0.05] * 8]), strategy="overload").plan
    assert percents_after(result) == pytest.approx([80.0, 25.0, 40.0])
    assert result.verdict.code is Code.OVERLOADED
    assert [item.code for item in result.brokers] == [Code.OVERLOADED, Code.BALANCED, Code.BALANCED]


@pytest.mark.parametrize(("share", "moves"), [(0.17, 1), (0.169, 0)])
def test_overload_threshold_is_inclusive(share: float, moves: int) -> None:
    """Rule: at 85 % a broker is overloaded, at 84.5 % it is not. (Pulsar takes the largest bundle, however large.)"""
    result = eager(cluster([[share] * 5, [0.1]]), strategy="overload").plan
    assert len(result.moves) == moves


def test_overload_leaves_no_target_above_the_threshold() -> None:
    """Rule: where every bundle would lift its target above 85 %, the refusals and the verdict say so."""
    result = eager(cluster([[0.14] * 7, [0.1] * 8, [0.1] * 8]), strategy="overload").plan
    assert not result.moves
    assert codes(result) == {Code.TARGET_OVERLOADED}
    assert result.verdict.code is Code.TARGET_OVERLOADED
    assert "split" not in result.verdict.sentence and "add brokers" in result.verdict.sentence


def test_overload_keeps_a_sole_bundle() -> None:
    """Rule: a broker's only bundle would only overload another one."""
    result = eager(cluster([[0.95], [0.1]]), strategy="overload").plan
    assert not result.moves and codes(result) == {Code.SOLE_BUNDLE}


def test_overload_takes_a_smaller_bundle_when_the_larger_ones_fit_nowhere() -> None:
    """Rule: 15 points are needed and 14 would do; only 4 fit anywhere."""
    result = eager(cluster([[0.14] * 6 + [0.04] * 3, [0.4, 0.4], [0.4, 0.4]]), strategy="overload").plan
    assert len(result.moves) == 2
    assert {move.bundle for move in result.moves} < {bundle_name(6), bundle_name(7), bundle_name(8)}
    assert max(percents_after(result)[1:]) <= 85.0


# --- deviation -------------------------------------------------------------------------------------------------


def test_deviation_evens_out_the_one_that_stands_out() -> None:
    """Rule: (60 - 30) / 17.3 = 1.7 deviations; it sheds to the least loaded until no broker deviates by 1."""
    result = eager(cluster([[0.05] * 12, [0.05] * 4, [0.05] * 4, [0.05] * 4]), strategy="deviation").plan
    assert {move.source for move in result.moves} == {broker(0)}
    scores = np.array(percents_after(result))
    assert (scores.max() - scores.mean()) <= scores.std() + 1e-6 or scores.max() - scores.mean() < 5.0
    assert scores.max() < 60.0
    assert len({move.target for move in result.moves}) == 3


def test_deviation_gives_to_the_target_what_it_takes_from_the_source() -> None:
    """Rule (the sign error of DeviationShedder): source falls, target rises, and the sum stays."""
    result = eager(cluster([[0.1] * 6, [0.1], [0.1], [0.1]]), strategy="deviation").plan
    assert result.moves
    assert sum(percents_after(result)) == pytest.approx(90.0)
    for move in result.moves:
        assert move.target_after > move.target_before
        assert move.source_after < move.source_before


def test_deviation_threshold() -> None:
    """Rule: two brokers are always exactly one deviation from their mean, so 1.0 never acts on them and 0.9 does."""
    reports = cluster([[0.1] * 8, [0.1]])
    assert eager(reports, strategy="deviation").plan.verdict.code is Code.BALANCED
    result = eager(reports, strategy="deviation", deviation_threshold=0.9).plan
    assert percents_after(result)[0] == pytest.approx(50.0)


def test_deviation_equal_brokers_and_noise() -> None:
    """Rule: equal scores are balanced (Pulsar divides by zero), and half a point is no reason to move anything."""
    assert eager(cluster([[0.1] * 4] * 1 + [[0.1] * 4] * 2), strategy="deviation").plan.verdict.code is Code.BALANCED
    noisy = cluster([[0.1] * 4 + [0.005], [0.1] * 4, [0.1] * 4, [0.1] * 4])
    result = eager(noisy, strategy="deviation").plan
    assert not result.moves and result.verdict.code is Code.BALANCED


def test_deviation_refuses_a_broker_that_the_plan_does_not_reach() -> None:
    result = eager(
        cluster([[0.001] * 950, [0.001] * 852, [0.01], [0.01], [0.01]]), strategy="deviation", max_moves_per_cycle=10
    ).plan
    whole = [item.broker for item in result.refusals if not item.bundle and item.code is Code.BUDGET_PER_CYCLE]
    assert len(whole) == 1 and whole[0] not in {move.source for move in result.moves}


def test_deviation_leaves_out_a_donor_without_a_suitable_bundle() -> None:
    """Rule: where Pulsar's loop drops the broker and may run empty, the next one is asked, and the refusals tell."""
    reports = cluster([[0.84], [0.05] * 12, [0.05], [0.05], [0.05], [0.05]])
    result = eager(reports, strategy="deviation", deviation_threshold=0.5).plan
    assert {move.source for move in result.moves} == {broker(1)}
    assert [item.code for item in result.refusals if item.broker == broker(0)] == [Code.TOO_BIG]
    giant = eager(cluster([[0.84], [0.05], [0.05]]), strategy="deviation").plan
    assert giant.verdict.code is Code.UNSPLITTABLE


@pytest.mark.parametrize("strategy", ["overload", "deviation", "threshold"])
def test_plan_of_one_strategy_keeps_the_memory_of_the_others(strategy: str) -> None:
    """Rule: what another strategy or the placement remembers stays."""
    memory = run(cluster([[0.05] * 19, [0.1], [0.1]]), memory=StrategyMemory(turn=2), strategy=strategy, **EAGER).memory
    assert memory.turn == 2


def test_nobody_gives_to_itself() -> None:
    """Rule: where all others are cordoned there is no target; the broker itself is none, though it has room."""
    guard = GuardState(cordoned=frozenset({broker(1), broker(2)}))
    params = {"strategy": "overload", "overloaded_threshold_percent": 60.0}
    result = run(cluster([[0.1] * 6, [0.1], [0.1]]), guard=guard, **{**EAGER, **params}).plan
    assert not result.moves and codes(result) == {Code.NO_LEGAL_TARGET}
    assert result.verdict.code is Code.NO_LEGAL_TARGET and "end a cordon or drain" in result.verdict.sentence


@pytest.mark.parametrize("strategy", ["avg", "deviation", "threshold"])
def test_the_only_open_broker_has_nobody_to_be_even_with(strategy: str) -> None:
    """Rule: closed brokers do not count in the mean; overloaded ones are left to `overload` and the alert."""
    guard = GuardState(cordoned=frozenset({broker(1), broker(2)}))
    result = run(cluster([[0.1] * 6, [0.1], [0.1]]), guard=guard, **{**EAGER, "strategy": strategy}).plan
    assert (result.moves, result.verdict.code) == ((), Code.BALANCED)


# --- placements ------------------------------------------------------------------------------------------------


def test_round_robin_goes_round() -> None:
    """Rule: one broker after the other, in id order, the source left out."""
    reports = cluster([[0.05] * 16, [0.01], [0.01], [0.01]])
    result = eager(reports, strategy="threshold", placement="round_robin").plan
    names = [move.target for move in result.moves]
    assert names[:4] == [broker(1), broker(2), broker(3), broker(1)]


def test_round_robin_goes_on_in_the_next_cycle() -> None:
    """Rule: the position is part of the memory; the last placement decides, not the number of candidates."""
    reports = cluster([[0.05] * 16, [0.01], [0.01], [0.01]])
    once = {**EAGER, "max_moves_per_cycle": 1, "strategy": "threshold", "placement": "round_robin"}
    for turn, target in ((0, 1), (1, 1), (2, 2), (3, 3)):
        result = run(reports, memory=StrategyMemory(turn=turn), **once)
        assert result.plan.moves[0].target == broker(target)
    draft = Draft(snapshot(reports), Ledger(), Parameters(), turn=2)
    for expected in (2, 3, 1, 2):
        row = int(np.flatnonzero(~draft.moved)[0])
        target = int(PLACEMENTS["round_robin"](draft, row, 0, np.array([1, 2, 3]))[0])
        assert target == expected
        draft.take(row, 0, target, rule="x", threshold=0.0)
    assert run(reports, memory=StrategyMemory(turn=3), **once).memory.turn != 3


def test_equal_rates_go_by_broker_order() -> None:
    """Rule: of brokers with the same lowest long-term rate the first one takes it; LeastLongTermMessageRate draws."""
    reports = cluster([[0.1] * 6, [0.05], [0.02], [0.02]])
    draft = Draft(snapshot(reports), Ledger(), Parameters())
    place = PLACEMENTS["least_long_term_message_rate"]
    assert place(draft, 0, 0, np.array([1, 2, 3])).tolist() == [2, 3, 1]
    assert Pulsar("threshold").drawn_from(reports, "least_long_term_message_rate") == [broker(2), broker(3)]


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
def test_nobody_is_drawn_when_all_are_full(placement: str) -> None:
    """Rule: where every score is infinite Pulsar draws one of all brokers; here nothing moves, and the plan gives the
    reason.
    """
    reports = cluster([[0.05] * 19, [0.05] * 18, [0.06] * 15])
    result = eager(reports, strategy="overload", placement=placement).plan
    assert not result.moves
    assert result.verdict.code is Code.NO_LEGAL_TARGET
    everybody = [broker(row) for row in range(3)]
    assert Pulsar("overload").drawn_from(reports, "least_long_term_message_rate") == everybody


def test_hash_placement_does_not_depend_on_load() -> None:
    """Rule (PIP-364): CRC-32 of the bundle's name modulo the candidates in id order."""
    reports = cluster([[0.02] * 25, [0.01], [0.01] * 3, [0.01]])
    result = eager(reports, strategy="threshold", placement="avg").plan
    again = eager(cluster([[0.02] * 25, [0.01] * 3, [0.01], [0.01]]), strategy="threshold", placement="avg").plan
    first = {move.bundle: move.target for move in result.moves}
    assert first == {move.bundle: move.target for move in again.moves}
    assert len(set(first.values())) == 3
    # CRC-32 of t/ns/0x00000000_0x00010000 is 0x8c8ebdd1, which is 2 modulo 3: the third of three candidates is first.
    draft = Draft(snapshot(reports), Ledger(), Parameters())
    assert PLACEMENTS["avg"](draft, 0, 0, np.array([1, 2, 3])).tolist() == [3, 1, 2]


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
@pytest.mark.parametrize("strategy", ["threshold", "overload"])
def test_every_placement_serves_every_decoupled_shedder(strategy: str, placement: str) -> None:
    """Rule: the same amount leaves whoever takes it, and a destination is known for each move."""
    reports = cluster([[0.05] * 19, [0.05], [0.05] * 2, [0.05] * 3])
    result = eager(reports, strategy=strategy, placement=placement).plan
    assert result.moves and result.placement == placement
    assert percents_after(result)[0] == percents_after(eager(reports, strategy=strategy).plan)[0]
    assert all(move.target in {broker(1), broker(2), broker(3)} for move in result.moves)


# --- what stands in the way --------------------------------------------------------------------------------------


def test_avg_target_overloaded_is_not_too_big() -> None:
    """Rule: a bundle that would fit the difference but lifts its target above the threshold is TargetOverloaded."""
    result = eager(cluster([[0.1] * 11, [0.1] * 8]), avg_low_floor_percent=0.0).plan
    assert not result.moves
    assert codes(result) == {Code.TARGET_OVERLOADED}
    assert result.verdict.code is Code.TARGET_OVERLOADED


@pytest.mark.parametrize("loads", [[[0.1] * 11, [0.3] * 3], [[0.97], [0.9], [0.86]], [[0.27] * 4, [0.2, 0.65]]])
def test_overloaded_cluster_is_not_told_to_split(loads: list[list[float]]) -> None:
    """Rule: where no broker has headroom, smaller bundles would not fit either."""
    for strategy in ("avg", "threshold", "overload"):
        result = eager(cluster(loads), strategy=strategy, threshold_percent=1.0).plan
        assert not result.moves
        assert result.verdict.code in (Code.NO_LEGAL_TARGET, Code.TARGET_OVERLOADED, Code.BALANCED)
        assert "split" not in result.verdict.sentence


def test_policy_forbids_is_told() -> None:
    """Rule: a bundle that its isolation policy keeps from every broker with room is refused for that."""
    reports = [report(broker(0), {bundle_name(n, "t/a"): 0.1 for n in range(8)}), report(broker(1), {})]
    only = IsolationPolicy(name="p", namespaces=("t/a",), primary=("b0000",))
    for strategy in ("avg", "threshold", "uniform", "deviation"):
        params = Parameters(strategy=strategy, deviation_threshold=0.5, **EAGER)
        plan_input = PlanInput(snapshot=snapshot(reports), params=params, policies=Policies(isolation=(only,)))
        done = plan(plan_input).plan
        assert not done.moves
        assert codes(done) == {Code.POLICY_FORBIDS}, strategy


@pytest.mark.parametrize("strategy", ["avg", "threshold", "deviation", "transfer"])
def test_a_broker_reserved_for_others_forbids_nothing_elsewhere(strategy: str) -> None:
    """Rule: a bundle that may go to a broker, to which nothing more is worth a move, is not refused for policies."""
    shop = {bundle_name(n, "t/shop"): 0.02 for n in range(12)}
    reports = [report(broker(0), shop), report(broker(1), {}), report(broker(2), {})]
    only = IsolationPolicy(name="p", namespaces=("t/gold",), primary=("b0002",))
    params = Parameters(
        strategy=strategy, deviation_threshold=0.5, threshold_percent=1.0, transfer_hit_count=0, **EAGER
    )
    plan_input = PlanInput(snapshot=snapshot(reports), params=params, policies=Policies(isolation=(only,)))
    done = plan(plan_input).plan
    output = {item.code for item in done.refusals if item.bundle}
    assert Code.POLICY_FORBIDS not in output
    assert {move.target for move in done.moves} == {broker(1)}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_no_placement_draws_from_none(placement: str) -> None:
    """Rule: without candidates there is none, whatever the placement."""
    draft = Draft(snapshot(cluster([[0.1], []])), Ledger(), Parameters())
    assert PLACEMENTS[placement](draft, 0, 0, np.array([], dtype=np.int64)).tolist() == []


def test_deviation_tells_figures_and_the_next_best_target() -> None:
    """Rule: scores in percent, distances in deviations; equal brokers are none away from their mean."""
    result = eager(cluster([[0.05] * 12, [0.05] * 4, [0.05] * 4, [0.05] * 4]), strategy="deviation").plan
    assert result.brokers[0].sentence.startswith("60.0%, +1.73 standard deviations from the mean of 30.0%")
    assert (result.moves[0].target, result.moves[0].runner_up) == (broker(1), broker(2))
    even = eager(cluster([[0.1], [0.1]]), strategy="deviation").plan
    assert {item.sentence for item in even.brokers} == {"10.0%, +0.00 standard deviations from the mean of 10.0%"}
    assert {item.code for item in even.brokers} == {Code.BALANCED}


def test_a_third_partys_placement_is_asked_for_two_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: the first is the target, the second the runner-up, whatever else it returns; none means no runner-up."""
    reports = cluster([[0.2] * 4, [], [], []])
    for answer, runner_up in (([3, 2, 1], broker(2)), ([0, 3], "")):
        monkeypatch.setitem(PLACEMENTS, "round_robin", lambda *_, answer=answer: np.array(answer))
        move = eager(reports, strategy="threshold", placement="round_robin").plan.moves[0]
        assert (move.target, move.runner_up) == (broker(3), runner_up)


@pytest.mark.parametrize("strategy", ["threshold", "overload"])
def test_a_look_at_the_coldest_brokers_finds_what_a_look_at_all_finds(strategy: str) -> None:
    """Rule: with more brokers than are looked at, equal ones too, moves and runners-up are those of the same placement
    that is asked with every broker."""
    random = np.random.default_rng(2)
    for steps in (1000, 20):
        shares = [random.pareto(1.5, 12) / 60 * (3 if row % 4 == 0 else 1) for row in range(150)]
        reports = cluster([(np.round(np.minimum(row, 0.3) * steps) / steps).tolist() for row in shares])
        for item in reports:
            item.usage[1] = 900 * random.random() ** 4
        params = Parameters(**EAGER, overloaded_threshold_percent=50, threshold_percent=5, direct_memory_weight=1)
        current, moves = snapshot(reports), []
        for placement in (least_resource_usage, partial(least_resource_usage)):
            draft = Draft(current, Ledger(), params)
            context = Context(
                snapshot=current,
                draft=draft,
                eligible=eligibility(current, GuardState(), params, current.wall_ms, frozenset()),
                memory=StrategyMemory(),
                params=params,
                placement=placement,
                unsettled=frozenset(),
                seed=0,
                courses={broker: BrokerCourse(level=0.1, until_ms=0) for broker in current.brokers.ids},
                seconds=np.ones(len(current.brokers)),
                doubt=np.zeros(len(current.brokers)),
            )
            SHEDDERS[strategy](context)
            moves.append(draft.moves)
        assert moves[0] == moves[1] and len(moves[0]) > 50
