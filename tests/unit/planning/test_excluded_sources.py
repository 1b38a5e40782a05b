"""Every strategy continues with the next broker when the most loaded one may not give bundles away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.plan import Plan
from bundlekeel.planning.guard.state import GuardState
from tests.support.builders import broker, bundle_name, eager, report

# Two brokers far above the other two; bundles small enough for every strategy's amount.
SIZES = [[0.03] * 27, [0.03] * 25, [0.03] * 3, [0.03] * 2]
STRATEGIES: dict[str, dict[str, Any]] = {
    "avg": {},
    "threshold": {"threshold_percent": 5.0, "lower_boundary_shedding": True},
    "overload": {"overloaded_threshold_percent": 70.0},
    "deviation": {"deviation_threshold": 0.5},
    "uniform": {},
    "transfer": {"transfer_hit_count": 0, "move_price": 0, "transfer_target_std": 0.05},
}


def reports() -> list[BrokerReport]:
    """Each broker serves a namespace of its own, `t/n0` to `t/n3`."""
    return [
        report(broker(row), {bundle_name(100 * row + place, f"t/n{row}"): size for place, size in enumerate(sizes)})
        for row, sizes in enumerate(SIZES)
    ]


def decide(strategy: str, guard: GuardState) -> Plan:
    """An unlimited plan."""
    return eager(reports(), strategy=strategy, guard=guard, **STRATEGIES[strategy]).plan


def sources(plan: Plan) -> set[str]:
    """The brokers that give bundles away."""
    return {move.source for move in plan.moves}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("excluded", range(4))
def test_n_j_the_bundles_of_one_broker_are_excluded(strategy: str, excluded: int) -> None:
    """Another loaded broker gives instead. Only the bundles are excluded: the broker itself may still take."""
    plan = decide(strategy, GuardState(excluded={f"n:t/n{excluded}": 0}))
    assert sources(plan) & {broker(0), broker(1)}
    assert broker(excluded) not in sources(plan)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("excluded", range(4))
def test_n_j_one_broker_is_excluded(strategy: str, excluded: int) -> None:
    """An excluded broker neither gives nor takes."""
    plan = decide(strategy, GuardState(excluded={f"r:{broker(excluded)}": 0}))
    assert sources(plan) & {broker(0), broker(1)}
    assert broker(excluded) not in sources(plan) | {move.target for move in plan.moves}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("taken_over", [0, 1])
def test_n_j_a_partial_takeover_of_one_namespace(strategy: str, taken_over: int) -> None:
    """Only the namespace that was taken over moves, also if it is not on the most loaded broker."""
    spaces = (f"t/n{taken_over}",)
    outside = {f"n:t/n{row}": 0 for row in range(4) if row != taken_over}
    plan = decide(strategy, GuardState(taken_over=spaces, excluded=outside))
    assert sources(plan) == {broker(taken_over)}


WORLDS = ((0.8, 0.7, 0.5, 0.3, 0.2), (0.54, 0.54, 0.54, 0.54, 0.1), (0.8, 0.5, 0.5, 0.5, 0.2), (0.8, 0.5, 0.2))


def balanced(strategy: str, loads: Sequence[float], excluded: int | None) -> list[float]:
    """Carry plans out until nothing moves any more; the loads then, without the excluded broker's."""
    owned = {
        broker(row): {bundle_name(100 * row + n, f"t/n{row}"): 0.02 for n in range(round(load / 0.02))}
        for row, load in enumerate(loads)
    }
    guard = GuardState(excluded={} if excluded is None else {f"n:t/n{excluded}": 0})
    for _ in range(12):
        inputs = [report(name, bundles) for name, bundles in owned.items()]
        moves = eager(inputs, strategy=strategy, guard=guard, **STRATEGIES[strategy]).plan.moves
        if not moves:
            break
        for move in moves:
            owned[move.target][move.bundle] = owned[move.source].pop(move.bundle)
    return [sum(owned[name].values()) for row, name in enumerate(owned) if row != excluded]


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "overload"])
@pytest.mark.parametrize("loads", WORLDS)
def test_n_j_the_other_brokers_are_balanced_whichever_is_excluded(strategy: str, loads: Sequence[float]) -> None:
    """Nothing more moves among the others, either, if the excluded broker does not exist."""
    for excluded in range(len(loads)):
        rest = balanced(strategy, loads, excluded)
        if loads[excluded] > sum(loads) / len(loads):
            without = balanced(strategy, [load for row, load in enumerate(loads) if row != excluded], None)
            assert max(rest) - min(rest) <= max(without) - min(without) + 0.06
        else:
            assert max(rest) <= max(balanced(strategy, loads, None)) + 1e-9


def test_n_j_the_lower_boundary_continues_with_the_next_broker() -> None:
    """The most loaded broker may not give, or has a single bundle; the next one gives to the broker far below."""
    names = [f"t/n{row}" for row in range(4)]
    loads = [{bundle_name(100 * row + n, names[row]): 0.05 for n in range(10)} for row in range(3)]
    idle = report(broker(3), {bundle_name(400, names[3]): 0.1})
    top = {"excluded": {**loads[0], bundle_name(50, names[0]): 0.02}, "sole": {bundle_name(50, names[0]): 0.52}}
    for case, bundles in top.items():
        inputs = [report(broker(row), owned) for row, owned in enumerate([bundles, *loads[1:]])]
        guard = GuardState(excluded={"n:t/n0": 0} if case == "excluded" else {})
        settings = STRATEGIES["threshold"] | {"threshold_percent": 15.0}
        plan = eager([*inputs, idle], strategy="threshold", guard=guard, **settings).plan
        assert sources(plan) == {broker(1)} and {move.target for move in plan.moves} == {broker(3)}


def test_n_j_uniform_refuses_the_bundles_of_every_broker_it_tried() -> None:
    """The refusals of the most loaded broker stay in the plan."""
    plan = decide("uniform", GuardState(excluded={"n:t/n0": 0}))
    codes = {item.broker: item.code for item in plan.refusals}
    assert codes[broker(0)] is Code.EXCLUDED
    assert len(plan.refusals) + len(plan.moves) == len(SIZES[0]) + len(SIZES[1])


def test_n_j_uniform_continues_after_a_sole_bundle() -> None:
    """A broker with one bundle may not give it away; the next one gives."""
    loads = [report("a:1", {bundle_name(0): 0.6}), report("b:1", {bundle_name(n): 0.05 for n in range(1, 11)})]
    plan = eager([*loads, report("c:1", {bundle_name(20): 0.01})], strategy="uniform").plan
    assert sources(plan) == {"b:1"}
    assert [item.code for item in plan.refusals if item.broker == "a:1"] == [Code.SOLE_BUNDLE]


def test_n_j_uniform_does_not_shed_a_broker_within_the_limits() -> None:
    """A broker that does not differ too much from the least loaded one gives nothing in place of the most loaded."""
    loads = [report(f"{name}:1", {f"t/{name}/0x0_0x{n + 1:x}": 0.02 for n in range(15)}) for name in "bc"]
    busy = report("a:1", {f"t/a/0x0_0x{n + 1:x}": 0.02 for n in range(40)})
    plan = eager([busy, *loads], strategy="uniform", guard=GuardState(excluded={"n:t/a": 0})).plan
    assert not plan.moves
    assert {item.broker for item in plan.refusals} == {"a:1"}
