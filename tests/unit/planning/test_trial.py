"""Parameters on trial: they apply to the bundles of some namespaces, and all other bundles move as without a trial."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.trial import TrialParameters
from bundlekeel.recalibration.history.frames import frame_of, outcome_of
from bundlekeel.recalibration.history.record import Frame, HistoryRecord, recorded
from bundlekeel.recalibration.history.replay import rebuilt, replay
from tests.support.builders import EAGER, broker, bundle_name, report, snapshot

# By these values every difference leads to moves, and by the others none does.
EAGER_VALUES = {"move_price": 0.0}
CALM: dict[str, Any] = {**EAGER, "move_price": 500.0}
TRIED = ("t/a",)


def situation(trial: TrialParameters | None, **params: Any) -> PlanInput:
    """Two brokers without load, and one with six bundles of each of two namespaces."""
    loads = {bundle_name(number, space): 0.06 for space in ("t/a", "t/b") for number in range(6)}
    current = snapshot([report(broker(0), loads), report(broker(1), {}), report(broker(2), {})])
    return PlanInput(snapshot=current, params=Parameters(**{**EAGER, **params}), trial=trial)


def trial_of(*namespaces: str, **values: float) -> TrialParameters:
    return TrialParameters(namespaces=namespaces or TRIED, values=values or EAGER_VALUES)


def spaces(result: Plan) -> set[str]:
    return {namespace_of(move.bundle) for move in result.moves}


def moves_of(result: PlanResult) -> list[tuple[str, str]]:
    return [(move.bundle, move.target) for move in result.plan.moves]


def test_only_bundles_of_the_trial_follow_its_values() -> None:
    tried = plan(situation(trial_of(), **CALM))
    alone = plan(situation(None, **{**CALM, **EAGER_VALUES}, included_namespaces=TRIED))
    assert moves_of(plan(situation(None, **CALM))) == []
    assert spaces(tried.plan) == {"t/a"} and moves_of(tried) == moves_of(alone)
    assert tried.plan.verdict.code is alone.plan.verdict.code and "on trial in t/a" in tried.plan.verdict.sentence


def test_all_other_bundles_move_as_if_these_namespaces_were_excluded() -> None:
    """The values on trial move nothing."""
    tried = plan(situation(trial_of(move_price=500.0)))
    without = plan(situation(None, excluded_namespaces=TRIED))
    assert spaces(tried.plan) == {"t/b"} and moves_of(tried) == moves_of(without)


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_both_plans_are_one(weight: float) -> None:
    """The trial skips brokers whose load is only predicted. Loads are those after all moves, by the common weights."""
    loads = [
        {bundle_name(n, space): 0.08 for n in range(count)} for space, count in (("t/b", 8), ("t/b", 0), ("t/a", 6))
    ]
    current = snapshot([report(broker(row), bundles) for row, bundles in enumerate((*loads, {}))])
    values = {"move_price": 0.0, "cpu_weight": weight, "bandwidth_in_weight": weight}
    tried = plan(PlanInput(snapshot=current, params=Parameters(**EAGER), trial=trial_of(**values))).plan
    assert spaces(tried) == {"t/a", "t/b"}
    scores, counts = {load.broker: load.score_before for load in tried.loads}, Counter[str]()
    assert list(scores.values()) == pytest.approx([0.64, 0.0, 0.48, 0.0])
    for move in tried.moves:
        scores[move.source], scores[move.target] = scores[move.source] - 0.08, scores[move.target] + 0.08
        counts.update({move.source: -1, move.target: 1})
    assert {load.broker: load.score_after for load in tried.loads} == pytest.approx(scores)
    assert Counter({load.broker: load.bundles_after - load.bundles_before for load in tried.loads}) == counts


@pytest.mark.parametrize(
    "budget", ["max_moves_per_cycle", "max_moves_per_source", "max_moves_per_hour", "max_traffic_share_per_cycle"]
)
@pytest.mark.parametrize("common", [0.0, 500.0])
def test_budgets_apply_once_to_both(budget: str, common: float) -> None:
    limit = 0.05 if budget == "max_traffic_share_per_cycle" else 1
    tried = plan(situation(trial_of(), move_price=common, **{budget: limit})).plan
    assert len(tried.moves) == 1 and spaces(tried) == ({"t/b"} if common == 0 else {"t/a"})


def test_each_bundle_has_one_refusal_from_its_own_plan() -> None:
    tried = plan(situation(trial_of(), **{**CALM, "max_moves_per_namespace": 1})).plan
    refused = [item.bundle for item in tried.refusals if item.bundle]
    assert len(refused) == len(set(refused)) and not {"Excluded"} & {item.code.value for item in tried.refusals}


def test_the_trial_has_its_own_memory_until_it_ends() -> None:
    """Only its own decisions count there. Without a trial nothing of it is stored."""
    first = plan(situation(trial_of(), **CALM))
    assert first.memory.trial is not None
    assert any(course.acted for course in first.memory.trial.courses.values())
    assert not any(course.acted for course in first.memory.courses.values())
    after = plan(replace(situation(None, **CALM), memory=first.memory))
    assert after.memory.trial is None and after.waiting.trial is None


@pytest.mark.parametrize("params", [{"excluded_namespaces": TRIED}, {"included_namespaces": ("t/b",)}])
def test_excluded_namespaces_are_not_tried(params: dict[str, Any]) -> None:
    tried, without = (plan(situation(trial, **params)) for trial in (trial_of(move_price=0.0), None))
    assert tried == without and spaces(tried.plan) == {"t/b"}


def test_pulsars_own_classes_plan_once_per_cycle() -> None:
    """They do not know the moves of another plan, and would move the same excess twice."""
    tried, without = (plan(situation(trial, compat="4.2")) for trial in (trial_of(move_price=0.0), None))
    assert tried == without


def test_a_glob_names_several_namespaces() -> None:
    assert spaces(plan(situation(trial_of("t/*"), **CALM)).plan) == {"t/a", "t/b"}


def test_thousands_of_namespaces_on_trial_do_not_slow_a_plan_down() -> None:
    """Names are looked up, not compared pair by pair."""
    loads = {bundle_name(number, f"t/n{number}"): 0.0001 for number in range(4000)}
    current = snapshot([report(broker(0), loads), report(broker(1), {})])
    compared = Counter[str]()

    class Name(str):
        """A name that counts comparisons."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            compared["=="] += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    bundles = replace(current.bundles, namespaces=tuple(map(Name, current.bundles.namespaces)))
    plan(PlanInput(snapshot=replace(current, bundles=bundles), params=Parameters(**EAGER), trial=trial_of("t/*")))
    assert compared["=="] < 200_000


def test_recorded_plans_with_a_trial_are_planned_again_alike() -> None:
    """Before, during and after it; the history contains the changes alone."""
    before: tuple[int, Frame] | None = None
    memory, records = StrategyMemory(), list[HistoryRecord]()
    for cycle, trial in enumerate((None, trial_of(split_hit_count=3, move_price=0.0), trial_of("t/b"), None)):
        inputs = replace(situation(trial, **CALM), memory=memory)
        result, frame = plan(inputs), frame_of(inputs)
        outcome = outcome_of(result, {}, acted=True, software="")
        records.append(recorded(before, frame, epoch=1, cycle=cycle, outcome=outcome))
        before, memory = (cycle, frame), result.memory
    replays = [replay(item) for item in rebuilt(records)]
    assert [(item.same, item.why, item.moves > 0) for item in replays] == [
        (True, "", False),
        (True, "", True),
        (True, "", True),
        (True, "", False),
    ]


def test_drains_move_bundles_of_the_trial_too() -> None:
    drained = GuardState(draining=frozenset({broker(0)}))
    tried = plan(replace(situation(trial_of(), **CALM, drain_max_moves_per_cycle=4), guard=drained)).plan
    assert [move.rule for move in tried.moves] == 4 * ["drain"] and spaces(tried) == {"t/a", "t/b"}
    assert [item.code.value for item in tried.refusals] == 8 * ["BudgetOfDrain"]


def test_an_obstacle_to_every_plan_is_reported_once() -> None:
    alone = snapshot([report(broker(0), {bundle_name(0, "t/a"): 0.5})])
    tried, without = (plan(PlanInput(snapshot=alone, params=Parameters(), trial=trial)) for trial in (trial_of(), None))
    assert tried.plan == without.plan
