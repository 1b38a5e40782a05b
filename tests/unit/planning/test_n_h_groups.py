"""Groups of brokers that cannot exchange bundles because of isolation policies: each is balanced and judged alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.memory import StrategyMemory
from tests.support.builders import EAGER, NOW_MS, broker, bundle_name, report, snapshot

STRATEGIES: dict[str, dict[str, Any]] = {
    "avg": {},
    "threshold": {"threshold_percent": 10.0},
    "overload": {"overloaded_threshold_percent": 55.0},
    "deviation": {"deviation_threshold": 0.5},
    "uniform": {},
    "transfer": {"transfer_target_std": 0.05, "bundles_with_policies": True},
}
# Brokers 0 and 1 are balanced at 80 %, brokers 2 and 3 are not; the mean of all is 60 %.
UNEQUAL = ((0.8, "t/a"), (0.8, "t/a"), (0.2, "t/b"), (0.6, "t/b"))
APART = {"t/a": (0, 1), "t/b": (2, 3)}


def reports(loads: Sequence[tuple[float, str]], at: int = 0) -> list[BrokerReport]:
    """One broker of this load each, whose bundles of 2 % belong to one namespace."""
    return [
        report(
            broker(row),
            {bundle_name(100 * row + n, space): 0.02 for n in range(round(load / 0.02))},
            last_update=NOW_MS + at,
        )
        for row, (load, space) in enumerate(loads)
    ]


def isolated(spaces: dict[str, tuple[int, ...]], secondary: dict[str, tuple[int, ...]] | None = None) -> Policies:
    """Policies by which each namespace may live on these brokers only."""
    others = secondary or {}
    return Policies(
        isolation=tuple(
            IsolationPolicy(
                name=space,
                namespaces=(space,),
                primary=tuple(f"b{row:04d}" for row in rows),
                secondary=tuple(f"b{row:04d}" for row in others.get(space, ())),
                min_limit=len(rows) + 1,
            )
            for space, rows in spaces.items()
        )
    )


def decide(
    loads: Sequence[tuple[float, str]], policies: Policies, strategy: str = "avg", at: int = 0, **options: Any
) -> PlanResult:
    """An unlimited plan, at the first reading unless a price is given."""
    memory = options.pop("memory", StrategyMemory())
    params = Parameters(strategy=strategy, **{**EAGER, **STRATEGIES[strategy], **options})
    current = snapshot(reports(loads, at), wall_ms=NOW_MS + at)
    return plan(PlanInput(snapshot=current, params=params, memory=memory, policies=policies))


def rows_of(cycle: Plan) -> list[set[str]]:
    """Source and target of each move."""
    return [{move.source, move.target} for move in cycle.moves]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_n_h_only_the_unbalanced_group_acts(strategy: str) -> None:
    """Compared with all brokers, the balanced group would be hot and the other one cold."""
    settings = {"overloaded_threshold_percent": 85.0} if strategy != "overload" else {}
    loads = UNEQUAL if strategy != "overload" else ((0.4, "t/a"), (0.4, "t/a"), *UNEQUAL[2:])
    cycle = decide(loads, isolated(APART), strategy, **settings).plan
    assert cycle.moves
    assert all(pair == {broker(2), broker(3)} for pair in rows_of(cycle))
    states = {group.brokers: group.verdict.code for group in cycle.groups}
    assert states[broker(0), broker(1)] is Code.BALANCED
    assert states[broker(2), broker(3)] in (Code.OVERLOADED, Code.UNDERLOADED)
    assert cycle.verdict.code == states[broker(2), broker(3)]
    assert [item.broker for item in cycle.brokers] == [broker(row) for row in range(4)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_n_h_a_group_is_planned_as_if_it_were_alone(strategy: str) -> None:
    both = decide(UNEQUAL, isolated(APART), strategy, overloaded_threshold_percent=85.0).plan
    alone = decide([(0.0, ""), (0.0, ""), *UNEQUAL[2:]][2:], Policies(), strategy, overloaded_threshold_percent=85.0)
    assert len(both.moves) == len(alone.plan.moves)
    assert both.group_of(broker(2)).verdict.sentence == alone.plan.verdict.sentence


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_n_h_two_unbalanced_groups_act_each_within_itself(strategy: str) -> None:
    """Moves of one group are not counted as moves of the other one."""
    loads = ((0.2, "t/a"), (0.6, "t/a"), *UNEQUAL[2:])
    cycle = decide(loads, isolated(APART), strategy).plan
    pairs = rows_of(cycle)
    half = len(pairs) // 2
    assert half and [pair == {broker(0), broker(1)} for pair in pairs] == [True] * half + [False] * half
    assert {group.verdict.sentence for group in cycle.groups} == {cycle.groups[0].verdict.sentence}


def test_n_h_the_verdict_names_the_state_of_each_group() -> None:
    """The most important group comes first."""
    cycle = decide(UNEQUAL, isolated(APART), overloaded_threshold_percent=85.0).plan
    first, second = cycle.verdict.sentence.rsplit("; ", 1)
    assert first.startswith("b0002:8080, b0003:8080: 10 bundles to move")
    assert second == "b0000:8080, b0001:8080: Balanced"
    assert cycle.group_of(broker(0)).verdict.code is Code.BALANCED


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_n_h_a_group_of_one_cannot_exchange_bundles(strategy: str) -> None:
    """It neither gives nor takes, and does not count in the mean of others."""
    loads = ((0.9, "t/a"), (0.4, "t/b"), (0.4, "t/b"))
    cycle = decide(loads, isolated({"t/a": (0,), "t/b": (1, 2)}), strategy).plan
    assert not cycle.moves
    assert cycle.group_of(broker(0)).verdict.code is Code.POLICY_FORBIDS
    assert "exchange bundles with no other broker" in cycle.group_of(broker(0)).verdict.sentence
    assert cycle.brokers[0].code is Code.POLICY_FORBIDS
    assert cycle.group_of(broker(1)).verdict.code is Code.BALANCED


@pytest.mark.parametrize(
    ("primary", "secondary"), [({"t/a": (0, 1, 2), "t/b": (2, 3)}, {}), ({"t/a": (0, 1), "t/b": (2, 3)}, {"t/a": (2,)})]
)
def test_n_h_overlapping_policies_make_one_group(
    primary: dict[str, tuple[int, ...]], secondary: dict[str, tuple[int, ...]]
) -> None:
    """Load can pass from each broker to each other one, if only through a third one."""
    cycle = decide(UNEQUAL, isolated(primary, secondary)).plan
    assert not cycle.groups
    assert any(broker(0) in pair or broker(1) in pair for pair in rows_of(cycle))


def test_n_h_brokers_without_restrictions_are_one_group() -> None:
    """Namespaces without a policy may live on every broker that no policy names as primary."""
    loads = ((0.6, "t/a"), (0.6, "t/a"), (0.5, "t/c"), (0.1, "t/d"))
    cycle = decide(loads, isolated({"t/a": (0, 1)})).plan
    assert {group.brokers for group in cycle.groups} == {(broker(0), broker(1)), (broker(2), broker(3))}
    assert rows_of(cycle) and all(pair == {broker(2), broker(3)} for pair in rows_of(cycle))


def test_n_h_groups_wait_by_their_own_costs() -> None:
    """The decision rule counts the excess of each group against its own mean, and remembers all brokers."""
    memory = StrategyMemory()
    for at in (0, 15_000, 30_000):
        result = decide(UNEQUAL, isolated(APART), at=at, memory=memory, move_price=1000, report_min_interval_seconds=3)
        memory = result.memory
    states = {group.brokers: group.verdict.code for group in result.plan.groups}
    assert states == {(broker(0), broker(1)): Code.BALANCED, (broker(2), broker(3)): Code.HIT_COUNT}
    assert result.plan.verdict.code is Code.HIT_COUNT and result.plan.verdict.cost > 0
    assert [memory.courses[broker(row)].excess is not None for row in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("hottest", [0.8, 0.1])
def test_n_h_costs_are_kept_whichever_group_is_the_hottest(hottest: float) -> None:
    memory = StrategyMemory()
    for at in range(0, 75_000, 15_000):
        loads = ((hottest, "t/a"), (0.2, "t/b"), (0.4, "t/b"))
        memory = decide(loads, isolated({"t/a": (0,), "t/b": (1, 2)}), at=at, memory=memory, move_price=1000).memory
    assert memory.costs.prior != (0.0, 0.0) and len(memory.costs.brokers) == 3


def test_n_h_the_verdict_says_that_policies_cause_a_difference() -> None:
    """Two groups, each even in itself: no move can end the difference between them."""
    loads = ((0.7, "t/a"), (0.7, "t/a"), (0.1, "t/b"), (0.1, "t/b"))
    verdict = decide(loads, isolated(APART)).plan.verdict
    assert verdict.code is Code.BALANCED
    assert "isolation policies cause the difference of 60.0% between these groups" in verdict.sentence
    even = decide(tuple((0.7, space) for _, space in loads), isolated(APART)).plan.verdict
    assert "cause" not in even.sentence
