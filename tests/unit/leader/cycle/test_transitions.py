"""Transitions between two cycles: the effect of each outcome on ledger, cool-downs and expected effects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.leader.cycle import transitions
from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.execution.split_intents import SplitOutcome
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.model.codes import Code
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.external_moves import ExternalMove
from bundlekeel.planning.guard.state import RecentMove, SplitFailed
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.splitting.children import RecentSplit, split_children
from tests.support.builders import NOW_MS, bundle_name, cluster, snapshot
from tests.support.world import EAGER

PARAMS = replace(EAGER, cool_down_seconds=600.0)
LATER = NOW_MS + 5_000
PARENT = "t/n/0x00000000_0x40000000"
CUT = split_children(PARENT, (0x20000000,), [])


def planned(**changes: Any) -> tuple[PlanInput, PlanResult]:
    """A plan that moves bundles of an overloaded broker."""
    plan_input = PlanInput(snapshot=snapshot(cluster([[0.2, 0.15, 0.12, 0.1], [0.05], [0.05]])), params=PARAMS)
    plan_input = replace(plan_input, **changes)
    return plan_input, plan(plan_input)


def under_way() -> tuple[CycleState, tuple[Any, ...]]:
    """A state whose plan is carried out, and its moves."""
    inputs, result = planned()
    built = result.plan
    assert len(built.moves) > 1
    return transitions.begun(CycleState(), built.moves, built, inputs.snapshot, NOW_MS), built.moves


def test_moves_that_are_begun_are_booked_and_expected_to_help() -> None:
    """Without a plan they are booked all the same, and nothing is expected of them."""
    state, moves = under_way()
    bundles = {move.bundle for move in moves}
    assert state.ledger.bundles() == bundles == {item.move.bundle for item in state.effects.open}
    assert {entry.opened_ms for entry in state.ledger.entries} == {NOW_MS}
    inputs, _ = planned()
    records = transitions.begun(CycleState(), moves, None, inputs.snapshot, NOW_MS)
    assert (records.ledger, records.effects) == (state.ledger, CycleState().effects)


# In which of ledger and expected effects the bundle is afterwards, when it landed, how much of 600 s it still rests.
@pytest.mark.parametrize(
    ("values", "booked", "expected", "landed_ms", "rests"),
    [
        ({"outcome": "done", "landed_on": "destination"}, True, True, LATER, 600),
        ({"outcome": "done", "landed_on": "destination", "landed_wall_ms": NOW_MS + 1}, True, True, NOW_MS + 1, 600),
        ({"outcome": "landed_elsewhere", "landed_on": "elsewhere:8080"}, True, False, LATER, 600),
        ({"outcome": "landed_elsewhere", "landed_on": "source", "code": Code.STILL_AT_SOURCE}, False, False, 0, 60),
        ({"outcome": "released", "code": Code.RELEASED}, False, False, 0, 600),
        ({"outcome": "unknown", "code": Code.NO_ANSWER}, True, False, 0, 600),
        ({"outcome": "refused", "code": Code.PAUSED}, False, False, 0, None),
    ],
)
def test_a_move_that_ended(
    values: dict[str, Any], booked: bool, expected: bool, landed_ms: int, rests: int | None
) -> None:
    state, (move, *others) = under_way()
    landed = {"source": move.source, "destination": move.target}.get(values.get("landed_on", ""))
    values |= {"landed_on": landed} if landed else {}
    outcome = MoveOutcome(bundle=move.bundle, source=move.source, destination=move.target, **values)
    after = transitions.moved(state, outcome, PARAMS, LATER)
    entries = {entry.bundle: entry for entry in after.ledger.entries}
    assert (move.bundle in entries) is booked
    assert (entries[move.bundle].landed_ms if booked else 0) == landed_ms
    assert (move.bundle in {item.move.bundle for item in after.effects.open}) is expected
    assert all(other.bundle in entries and not entries[other.bundle].landed_ms for other in others)
    left = {bundle: (item.source, item.at_ms + 600_000 - LATER) for bundle, item in after.recent.items()}
    assert left == ({} if rests is None else {move.bundle: (move.source, 1000 * rests)})


def test_a_short_cool_down_is_not_made_longer_by_a_bundle_that_stayed() -> None:
    """The minute of a bundle that stayed is at most its cool-down."""
    state, (move, *_) = under_way()
    outcome = MoveOutcome(
        bundle=move.bundle, source=move.source, destination=move.target, outcome="unknown", landed_on=move.source
    )
    after = transitions.moved(state, outcome, replace(PARAMS, cool_down_seconds=10.0), LATER)
    assert after.recent[move.bundle].at_ms == LATER


def test_what_was_not_begun_leaves_the_ledger() -> None:
    state, moves = under_way()
    left = transitions.not_begun(state, {moves[0].bundle})
    assert left.ledger.bundles() == {move.bundle for move in moves[1:]}
    assert transitions.not_begun(state, ()) == state


def test_open_moves_of_an_earlier_leader_that_arrived_are_booked_as_landed() -> None:
    state, moves = under_way()
    after = transitions.arrived(state, {moves[0].bundle: moves[0].target}, LATER)
    assert {entry.bundle: entry.landed_ms for entry in after.ledger.entries} == {
        move.bundle: LATER if move is moves[0] else 0 for move in moves
    }


def test_a_plan_leaves_its_memory_and_forgets_what_is_over() -> None:
    """A bundle rests for the longest time that may hold it back; a failed split for its cool-down."""
    params = replace(PARAMS, cool_down_limited_factor=2.0, no_return_seconds=900.0)
    inputs, result = planned(params=params)
    ages = (599, 601, 1199, 1200)
    state = CycleState(
        recent={str(age): RecentMove(at_ms=NOW_MS - 1000 * age, source="b1") for age in ages},
        split_failed={str(age): SplitFailed(at_ms=NOW_MS - 1000 * age, code="X") for age in ages},
    )
    state = replace(state, ledger=inputs.ledger)
    judged = replace(state.effects, reverted=(("t/n/x", 1),))
    split = {PARENT: RecentSplit(split=CUT, at_ms=NOW_MS)}
    after = transitions.planned(state, inputs, result, judged=judged, recent_splits=split, brokers={"b2", "b1"})
    assert (set(after.recent), set(after.split_failed)) == ({"599", "601", "1199"}, {"599"})
    assert (after.memory, after.effects, after.brokers) == (result.waiting, judged, ("b1", "b2"))
    assert after.recent_splits == split and after.recent_splits is not split
    longer = replace(params, no_return_seconds=1201.0)
    inputs, result = planned(params=longer)
    remaining = transitions.planned(
        replace(state, ledger=inputs.ledger), inputs, result, judged=judged, recent_splits={}, brokers=()
    )
    assert set(remaining.recent) == {str(age) for age in ages}


def test_what_was_booked_while_a_plan_was_made_stays_in_the_ledger() -> None:
    """The plan's own ledger is taken where nothing else changed it."""
    booked, _ = under_way()
    inputs, result = planned(ledger=booked.ledger)
    result = replace(result, ledger=Ledger())
    assert transitions.settled_ledger(booked, inputs, result) is result.ledger
    changed = transitions.arrived(booked, {bundle_name(0): "b2"}, LATER)
    assert transitions.settled_ledger(changed, inputs, result) is changed.ledger


@pytest.mark.parametrize(
    ("outcome", "code", "rests"),
    [
        ("done", "", None),
        ("unknown", Code.NO_ANSWER, 600),
        ("refused", Code.IN_TRANSIT, 60),
        ("refused", Code.PAUSED, None),
    ],
)
def test_a_split_that_ended(outcome: Any, code: str, rests: int | None) -> None:
    """The children take the place of one that is done; one that failed is left alone for a while."""
    recent_splits = {PARENT: RecentSplit(split=CUT, at_ms=NOW_MS)}
    ended = SplitOutcome(bundle=PARENT, broker="b1", rule="hot", outcome=outcome, code=code, split=CUT)
    before = CycleState(split_failed={"t/n/other": SplitFailed(at_ms=1, code="X")})
    after = transitions.split(before, ended, PARAMS, recent_splits=recent_splits, now_ms=NOW_MS)
    assert after.recent_splits == (recent_splits if outcome == "done" else {})
    left = {bundle: item.at_ms + 600_000 - NOW_MS for bundle, item in after.split_failed.items() if bundle == PARENT}
    assert left == ({} if rests is None else {PARENT: 1000 * rests})
    assert "t/n/other" in after.split_failed


def test_bundles_that_something_else_moved_begin_their_cool_down() -> None:
    changes = [
        ExternalMove(bundle=bundle_name(number), source="b1", target=target, at_ms=NOW_MS, undone=True)
        for number, target in enumerate(("b2", "b3"))
    ]
    state = transitions.external_moves_noted(
        CycleState(recent={"t/n/x": RecentMove(at_ms=1, source="b9")}), changes, {"b3"}, NOW_MS
    )
    assert {bundle: item.source for bundle, item in state.recent.items()} == {
        "t/n/x": "b9",
        bundle_name(0): "b1",
        bundle_name(1): "b1",
    }
    assert state.external_moves.undone == ((bundle_name(0), NOW_MS),)
