"""Repairs: bundles move back to the primary brokers of their isolation policy, within the guard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.model.codes import Code
from bundlekeel.model.parameter_table import STRATEGIES
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.effects import EffectRecords, begun
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import BegunMove, GuardState, RecentMove
from bundlekeel.planning.ledger import open_entries
from tests.support.builders import EAGER, NOW_MS, bundle_name, report, snapshot

B = tuple(f"b{n}:8080" for n in range(1, 5))
# Primaries b1 and b2, secondary b3, one primary is enough.
GOLD = IsolationPolicy(name="gold", namespaces=("t/gold",), primary=("b[12]",), secondary=("b3",), min_limit=1)


def decide(brokers: dict[str, dict[str, float]], guard: GuardState | None = None, **values: Any) -> Plan:
    """Plan with repairs. `brokers`: by broker (its number) the namespaces of its bundles, with a share of load each."""
    gold = values.pop("gold", GOLD)
    policies = values.pop("policies", Policies(isolation=(gold,)))
    params = Parameters(**{**EAGER, "placement_repair": True, **values})
    number, reports = 0, []
    for broker, spaces in brokers.items():
        bundles = {}
        for space, share in spaces.items():
            bundles[bundle_name(number, f"t/{space.rstrip('0123456789')}")] = share
            number += 1
        reports.append(report(f"b{broker}:8080", bundles))
    cluster = snapshot(reports)
    return plan(PlanInput(snapshot=cluster, params=params, policies=policies, guard=guard or GuardState())).plan


def ways(decision: Plan) -> list[tuple[str, str, str]]:
    """Rule, source and target of each move, brokers by their numbers."""
    return [(move.rule, move.source[1], move.target[1]) for move in decision.moves]


EVEN = {"gold0": 0.1, "gold1": 0.1}


def test_n_m_bundles_return_to_the_least_loaded_primary() -> None:
    """The policy was created later than they were placed; the balance alone would move nothing."""
    brokers = {"1": {"gold0": 0.2}, "2": {"gold1": 0.1}, "3": {"x0": 0.2}, "4": {"gold2": 0.1, "x1": 0.1}}
    decision = decide(brokers, strategy="threshold")
    assert ways(decision) == [("repair", "4", "2")]
    assert decision.verdict.code is Code.REPAIR
    assert decision.verdict.sentence.startswith("1 bundle returns to primary brokers of their isolation policies; ")
    assert ways(decide(brokers, strategy="threshold", placement_repair=False)) == []


@pytest.mark.parametrize(
    ("limit", "live", "expected"),
    [
        (1, "134", [("repair", "3", "1")]),
        # Fewer primaries than the policy demands: Pulsar allows the secondary, and so does the repair.
        (2, "134", []),
        (2, "1234", [("repair", "3", "2")]),
    ],
)
def test_n_m_primaries_that_returned_get_their_bundles(limit: int, live: str, expected: list[Any]) -> None:
    """After a failover the bundles are on the secondary."""
    spaces = {"1": {"x0": 0.2}, "2": {"x1": 0.1}, "3": {"gold0": 0.1, "x2": 0.1}, "4": {"x3": 0.2}}
    brokers = {broker: spaces[broker] for broker in live}
    assert ways(decide(brokers, gold=replace(GOLD, min_limit=limit), strategy="threshold")) == expected


def test_n_m_a_secondary_is_better_than_a_foreign_broker() -> None:
    """While too few primaries are live, and those are full."""
    brokers = {"1": {"x0": 0.84}, "3": {"x1": 0.1}, "4": {"gold0": 0.1, "x2": 0.1}}
    few = replace(GOLD, min_limit=2)
    assert ways(decide(brokers, gold=few, strategy="overload")) == [("repair", "4", "3")]
    enough = decide(brokers, strategy="overload")
    assert not enough.moves
    assert [item.code for item in enough.refusals if item.bundle.startswith("t/gold/")] == [Code.TARGET_OVERLOADED]


def test_n_m_idle_bundles_are_repaired_too() -> None:
    brokers = {"1": {"x0": 0.1, "x1": 0.0}, "2": {"x2": 0.1}, "4": {"gold0": 0.0, "x3": 0.1}}
    assert ways(decide(brokers, strategy="threshold")) == [("repair", "4", "2")]


MISPLACED = {"1": {"x0": 0.2}, "2": {"x1": 0.2}, "3": {"x2": 0.2}, "4": {"gold0": 0.1, "gold1": 0.1}}
FIRST, SECOND = bundle_name(3, "t/gold"), bundle_name(4, "t/gold")


@pytest.mark.parametrize(
    ("guard", "values", "expected"),
    [
        (GuardState(pinned={FIRST: 0, SECOND: 0}), {}, Code.PINNED),
        (GuardState(excluded={"n:t/gold": 0}), {}, Code.EXCLUDED),
        (GuardState(), {"excluded_brokers": ("b4:8080",)}, Code.EXCLUDED),
        (GuardState(taken_over=("t/x",)), {"included_namespaces": ("t/x",)}, Code.NOT_TAKEN_OVER),
        (
            GuardState(recent=dict.fromkeys((FIRST, SECOND), RecentMove(at_ms=NOW_MS - 1, source=B[2]))),
            {},
            Code.COOL_DOWN,
        ),
        (GuardState(frozen=frozenset({FIRST, SECOND})), {}, Code.FROZEN_INTENT),
        (GuardState(cordoned=frozenset(B[:2])), {}, Code.NO_LEGAL_TARGET),
        (GuardState(quarantined={(B[3], B[0]): NOW_MS + 1, (B[3], B[1]): NOW_MS + 1}), {}, Code.NO_LEGAL_TARGET),
        (GuardState(changed_brokers={B[0]: NOW_MS - 1}), {}, Code.ROLLOUT_HOLD),
        (GuardState(relief_until=0), {}, Code.OUTSIDE_WINDOW),
        (GuardState(rate=0), {}, Code.ADAPTIVE_RATE),
        (GuardState(), {"overloaded_threshold_percent": 25.0}, Code.TARGET_OVERLOADED),
        (GuardState(), {"repair_max_moves_per_cycle": 0}, Code.BUDGET_OF_REPAIR),
        (GuardState(), {"max_moves_per_hour": 0}, Code.BUDGET_PER_HOUR),
        (GuardState(), {"max_moves_per_source": 0}, Code.BUDGET_PER_SOURCE),
        (GuardState(), {"max_moves_per_namespace": 0}, Code.BUDGET_PER_NAMESPACE),
    ],
)
def test_n_m_repairs_obey_the_guard(guard: GuardState, values: dict[str, Any], expected: Code) -> None:
    """Each misplaced bundle that stays has the code of what holds it."""
    decision = decide(MISPLACED, guard, strategy="threshold", **values)
    assert not decision.moves
    codes = {item.bundle: item.code for item in decision.refusals if item.bundle.startswith("t/gold/")}
    assert codes == {FIRST: expected, SECOND: expected}


def test_n_m_repairs_have_their_own_budget_and_use_the_common_ones() -> None:
    """The budget of the cycle is the strategy's alone; the others hold for both together."""
    brokers = {"1": {"x0": 0.1}, "2": {"gold9": 0.1}, "3": {f"x{n}": 0.1 for n in range(9)}, "4": EVEN}
    both = decide(brokers, max_moves_per_cycle=1, repair_max_moves_per_cycle=1)
    assert [rule for rule, _, _ in ways(both)] == ["repair", "avg"]
    codes = [item.code for item in both.refusals if item.bundle.startswith("t/gold/")]
    assert Code.BUDGET_OF_REPAIR in codes
    earlier = (BegunMove(bundle="t/z/0x00000000_0x10000000", source=B[0], target=B[1], at_ms=NOW_MS - 1),)
    hour = decide(brokers, GuardState(last_hour=earlier), max_moves_per_hour=2, repair_max_moves_per_cycle=1)
    assert [rule for rule, _, _ in ways(hour)] == ["repair"]
    assert Code.BUDGET_PER_HOUR in {item.code for item in hour.refusals}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("compat", ["none", "4.2"])
def test_n_m_a_strategy_and_repairs_do_not_undo_each_other(strategy: str, compat: str) -> None:
    """Plan after plan, each one executed: no bundle moves twice, and all bundles of the policy end on its primaries."""
    keen = {
        "transfer_hit_count": 0,
        "move_price": 0,
        "transfer_target_std": 0.01,
        "threshold_percent": 1.0,
        "bundles_with_policies": True,
    }
    owner = {bundle_name(n, "t/gold"): B[n % 4] for n in range(12)} | {
        bundle_name(n, "t/x"): B[2] for n in range(12, 16)
    }
    history: list[str] = []
    for _ in range(8):
        reports = [report(b, {name: 0.05 for name, at in owner.items() if at == b}) for b in B]
        params = Parameters(**{**EAGER, **keen, "strategy": strategy, "compat": compat, "placement_repair": True})
        decision = plan(PlanInput(snapshot=snapshot(reports), params=params, policies=Policies(isolation=(GOLD,)))).plan
        assert len({move.bundle for move in decision.moves}) == len(decision.moves)
        for move in decision.moves:
            assert not (move.bundle.startswith("t/gold/") and move.target not in B[:2])
            if move.rule == "repair":
                assert owner[move.bundle] not in B[:2]
            owner[move.bundle] = move.target
            history.append(move.bundle)
    assert {at for name, at in owner.items() if name.startswith("t/gold/")} <= set(B[:2])


def test_n_m_repairs_are_not_judged_by_the_balance() -> None:
    """Else they would be reverted, and their pair of brokers be quarantined, because the balance is worse."""
    decision = decide(MISPLACED, strategy="threshold")
    assert [rule for rule, _, _ in ways(decision)][:2] == ["repair", "repair"]
    assert not [
        item for item in begun(EffectRecords(), decision.moves, decision, NOW_MS).open if item.move.rule == "repair"
    ]


def test_n_m_a_drained_bundle_is_moved_once() -> None:
    """The drain is planned first; its bundles are in transit for the repair, and the plan names each of them once."""
    decision = decide(MISPLACED, GuardState(draining=frozenset({B[3]})), strategy="threshold")
    assert [rule for rule, _, _ in ways(decision)] == ["drain", "drain"]
    assert not [item for item in decision.refusals if item.bundle in (FIRST, SECOND)]
    assert decision.verdict.code is Code.ADMIN


@pytest.mark.parametrize("policies", [Policies(unknown="the store is away"), Policies()])
def test_n_m_without_policies_there_is_nothing_to_repair(policies: Policies) -> None:
    assert not decide(MISPLACED, policies=policies, strategy="threshold").moves


@pytest.mark.parametrize("primary", ["b1:8080", "(b)\\1"])
def test_n_m_a_wrong_policy_repairs_nothing(primary: str) -> None:
    """It matches no broker, or cannot be read."""
    gold = replace(GOLD, primary=(primary,), secondary=())
    assert not decide(MISPLACED, gold=gold, strategy="threshold").moves


def test_n_m_one_bundle_of_a_group_is_repaired_at_a_time() -> None:
    policies = Policies(isolation=(GOLD,), anti_affinity={"t/gold": "g", "t/x": "g"})
    decision = decide({**MISPLACED, "1": {}, "2": {}, "3": {}}, policies=policies, strategy="threshold")
    assert len(decision.moves) == 1
    assert [item.code for item in decision.refusals if item.bundle.startswith("t/gold/")] == [Code.ANTI_AFFINITY]


def test_n_m_a_repair_in_transit_is_not_planned_again() -> None:
    """Until the reports show it."""
    reports = [report(B[0], {}), report(B[1], {}), report(B[3], {FIRST: 0.1})]
    values = PlanInput(
        snapshot=snapshot(reports),
        params=Parameters(**{**EAGER, "placement_repair": True, "strategy": "threshold"}),
        policies=Policies(isolation=(GOLD,)),
    )
    first = plan(values)
    ledger = open_entries(first.ledger, first.plan.moves, values.snapshot, NOW_MS)
    again = plan(replace(values, ledger=ledger)).plan
    assert len(first.plan.moves) == 1 and not again.moves
    assert {item.code for item in again.refusals if item.bundle == FIRST} == {Code.IN_TRANSIT}
