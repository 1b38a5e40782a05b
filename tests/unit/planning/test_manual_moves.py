"""One bundle by hand: what of the guard binds a person, what he may override, and what does not bind him."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import HOUR_MS, clock_text
from bundlekeel.planning.guard.state import BegunMove, GuardState, RecentMove
from bundlekeel.planning.manual_moves import ManualPlan, manual_move
from bundlekeel.planning.situation import Situation
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, snapshot

B0, B1, B2 = broker(0), broker(1), broker(2)
BUNDLE = bundle_name(0)
SEEN = snapshot(cluster([[0.2, 0.1], [0.15], [0.1]]))


def plan_manually(
    target: str = "",
    *,
    current: Snapshot = SEEN,
    guard: GuardState | None = None,
    override: bool = False,
    params: Mapping[str, Any] | None = None,
) -> ManualPlan:
    situation = Situation(snapshot=current, guard=guard or GuardState(), params=replace(Parameters(), **(params or {})))
    return manual_move(situation, BUNDLE, B0, target, override_cool_down=override)


def code_of(manual_plan: ManualPlan) -> Code | None:
    return manual_plan.refusal.code if manual_plan.refusal is not None else None


def test_too_few_usable_reports_stop_a_person_too() -> None:
    missing = [ExcludedBroker(broker_id=broker(number), code="NoLoadData") for number in range(3, 9)]
    current = snapshot(cluster([[0.2, 0.1], [0.15], [0.1]]), excluded=missing)
    for override in (False, True):
        manual_plan = plan_manually(B2, current=current, override=override)
        assert (code_of(manual_plan), manual_plan.move) == (Code.INCOMPLETE_PICTURE, None)
    assert "3 of 9 live brokers" in (manual_plan.refusal.detail if manual_plan.refusal else "")
    assert plan_manually(B2, current=current, params={"min_complete_ratio": 0.3}).move is not None


def test_so_does_a_change_of_nearly_all_brokers() -> None:
    """Then it may be the picture that is wrong. A roll-out alone, where only overload is relieved, does not."""
    changed = dict.fromkeys((B0, B1, B2), NOW_MS - 1000)
    manual_plan = plan_manually(B2, guard=GuardState(changed_brokers=changed), override=True)
    assert (code_of(manual_plan), manual_plan.move) == (Code.BLAST_RADIUS, None)
    assert plan_manually(B2, guard=GuardState(changed_brokers={B1: NOW_MS - 1000})).move is not None
    assert plan_manually(B2, guard=GuardState(changed_brokers={B0: NOW_MS - 1000, B1: NOW_MS - 1000})).move is not None


def test_no_way_straight_back_unless_a_person_says_so() -> None:
    """The cool-down is over, the way back is not: refused with its end, elsewhere allowed, overridden by the option."""
    params = {"cool_down_seconds": 60, "no_return_seconds": 3600}
    left = NOW_MS - 120_000
    guard = GuardState(recent={BUNDLE: RecentMove(at_ms=left, source=B2)})
    manual_plan = plan_manually(B2, guard=guard, params=params)
    assert code_of(manual_plan) is Code.NO_RETURN
    assert manual_plan.refusal is not None and clock_text(left + 3_600_000) in manual_plan.refusal.detail
    assert {item.broker: item.code for item in manual_plan.candidates} == {B1: None, B2: Code.NO_RETURN}
    unloaded = plan_manually(guard=guard, params=params)
    assert unloaded.move is not None and unloaded.move.target == B1
    back = plan_manually(B2, guard=guard, params=params, override=True)
    assert back.move is not None and back.move.target == B2
    # Without that memory the other broker, which has more room, would have been taken.
    free = plan_manually()
    assert free.move is not None and free.move.target == B2


@pytest.mark.parametrize("override", [False, True])
def test_the_budget_of_the_hour_holds(override: bool) -> None:
    """It names limit, use and end; the budgets of a cycle, useless pairs and windows do not bind a person."""
    move = BegunMove(bundle=bundle_name(1), source=B0, target=B1, at_ms=NOW_MS - 1000)
    guard = GuardState(last_hour=(move,))
    manual_plan = plan_manually(B2, guard=guard, params={"max_moves_per_hour": 1}, override=override)
    assert code_of(manual_plan) is Code.BUDGET_PER_HOUR
    assert manual_plan.refusal is not None
    assert manual_plan.refusal.detail == f"limit 1 an hour, 1 used, free again at {clock_text(move.at_ms + HOUR_MS)}"
    assert plan_manually(B2, guard=guard, params={"max_moves_per_hour": 2}).move is not None
    assert plan_manually(B2, guard=guard, params={"max_moves_per_hour": -1}).move is not None
    free = GuardState(quarantined={(B0, B2): NOW_MS + 1000}, rate=0, relief_until=NOW_MS + 1000)
    none = {"max_moves_per_cycle": 0, "max_moves_per_source": 0, "max_moves_per_target": 0}
    assert plan_manually(B2, guard=free, params=none).move is not None


def test_a_move_to_its_own_broker_is_refused_as_that_during_the_cool_down_too() -> None:
    """No option allows it, so none is offered: the way back and the cool-down are not the reason."""
    guard = GuardState(recent={BUNDLE: RecentMove(at_ms=NOW_MS - 1000, source=B1)})
    resting = plan_manually(B2, guard=guard, params={"cool_down_seconds": 60})
    assert code_of(resting) is Code.COOL_DOWN
    assert resting.refusal is not None and resting.refusal.detail == f"until {clock_text(NOW_MS + 59_000)}"
    assert code_of(plan_manually(B0, guard=guard)) is Code.SAME_BROKER
