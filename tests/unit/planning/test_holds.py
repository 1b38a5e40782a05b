"""Holds: while brokers restart only overload is relieved, and when too many change at once nothing moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan, Refusal
from bundlekeel.model.text_format import clock_text
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.guard.holds import Hold
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.guard.stops import calm_brokers, relief_only, returning
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.target_bans import TargetBans
from tests.support.builders import EAGER, NOW_MS, broker, bundle_name, cluster, run, snapshot

CALM = [[0.1] * 6, [0.1], [], [], []]
OVERLOADED = [[0.1] * 10, [0.1] * 5, [], [], []]


def plan(loads: list[list[float]], guard: GuardState, **params: Any) -> Plan:
    """One plan that acts at once."""
    return run(cluster(loads), guard=guard, **{**EAGER, **params}).plan


def changed(*brokers: int, age_s: float = 1.0) -> GuardState:
    """Return times of changes of brokers, in seconds ago; numbers beyond the cluster are brokers that left."""
    return GuardState(changed_brokers={broker(n): NOW_MS - int(1000 * age_s) for n in brokers})


def test_a_restart_holds_the_ordinary_plan() -> None:
    """Rule: one broker of five restarted: nothing moves, verdict and refusals say why and until when."""
    result = plan(CALM, changed(2))
    assert (result.moves, result.verdict.code) == ((), Code.ROLLOUT_HOLD)
    assert broker(2) in result.verdict.sentence
    assert {(item.code, item.frees_ms) for item in result.refusals if item.bundle} == {
        (Code.ROLLOUT_HOLD, NOW_MS + 59_000)
    }


def test_overload_is_relieved_meanwhile_and_no_more() -> None:
    """Rule: a broker above the overload threshold sheds until it is below; its plan would have continued."""
    whole, result = plan(OVERLOADED, GuardState()).moves, plan(OVERLOADED, changed(2))
    assert 0 < len(result.moves) < len(whole)
    assert all(move.source == broker(0) and move.source_before > 0.85 for move in result.moves)
    assert result.moves[-1].source_after <= 0.85
    assert "only overload is relieved" in result.verdict.sentence
    assert Code.ROLLOUT_HOLD in {item.code for item in result.refusals}


@pytest.mark.parametrize(("age", "seconds", "moves"), [(59.9, 60.0, False), (60.0, 60.0, True), (1.0, 0.0, True)])
def test_the_hold_ends(age: float, seconds: float, moves: bool) -> None:
    """Rule: after the quiet time the ordinary plan continues; 0 turns the hold off."""
    result = plan(CALM, changed(2, age_s=age), rollout_quiet_seconds=seconds)
    assert bool(result.moves) is moves


@pytest.mark.parametrize(
    ("absent", "code", "everything"),
    [
        ((2, 3), Code.ROLLOUT_HOLD, False),  # 2 of 5
        ((2, 3, 4), Code.BLAST_RADIUS, False),  # 3 of 5
        ((1, 2, 3, 4), Code.BLAST_RADIUS, False),  # 4 of 5 is not more than 80 %
        ((0, 1, 2, 3, 4), Code.BLAST_RADIUS, True),
        ((4, 7, 8), Code.ROLLOUT_HOLD, False),  # brokers that are gone count among all: 3 of 7
        ((3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), Code.BLAST_RADIUS, False),  # 12 of 15
    ],
)
def test_blast_radius(absent: tuple[int, ...], code: Code, everything: bool) -> None:
    """Rule: more than half of the brokers at once: only overload; more than four fifths: nothing at all."""
    calm, over = plan(CALM, changed(*absent)), plan(OVERLOADED, changed(*absent))
    assert (calm.moves, calm.verdict.code) == ((), code)
    assert (over.moves == ()) is everything
    if everything:
        assert over.verdict.code is Code.BLAST_RADIUS
        assert "nothing moves" in over.verdict.sentence


def test_the_later_of_two_restarts_ends_the_hold() -> None:
    """Rule: the reported time is the end of the last restart's quiet time, in the refusals and in the sentence."""
    guard = GuardState(changed_brokers={broker(2): NOW_MS - 50_000, broker(3): NOW_MS - 20_000})
    result = plan(CALM, guard)
    assert result.verdict.code is Code.ROLLOUT_HOLD
    assert {item.frees_ms for item in result.refusals if item.bundle} == {NOW_MS + 40_000}
    assert clock_text(NOW_MS + 40_000) in result.verdict.sentence


def test_a_drain_in_a_roll_out_prolongs_the_hold() -> None:
    """Rule: no broker has changed within the quiet time, but the drained one restarts next."""
    guard = replace(changed(2, age_s=300), rolling_ms=NOW_MS - 1000, draining=frozenset({broker(1)}))
    result = plan(CALM, guard, drain_max_moves_per_cycle=0)
    assert (result.moves, result.verdict.code) == ((), Code.ROLLOUT_HOLD)
    assert f"({broker(1)})" in result.verdict.sentence
    ended = plan(CALM, replace(guard, draining=frozenset()))
    assert "brokers are restarting: only overload is relieved until" in ended.verdict.sentence


def test_three_restarted_brokers_are_named_and_the_others_counted() -> None:
    """Rule: a sentence about many brokers stays readable."""
    some, many = (plan([[0.1], *[[]] * 15], changed(*range(count))).verdict.sentence for count in (3, 5))
    assert f"({broker(0)}, {broker(1)}, {broker(2)})" in some
    assert f"({broker(0)}, {broker(1)}, {broker(2)} and 2 more)" in many


def test_when_the_blast_ends() -> None:
    """Rule: the reported time is the one at which enough changes are older that the share is within its limit."""
    ages = {broker(0): 50_000, broker(1): 40_000, broker(2): 30_000, broker(3): 20_000}
    guard = GuardState(changed_brokers={name: NOW_MS - age for name, age in ages.items()})
    result = plan(CALM, guard, rollout_quiet_seconds=0.0)
    # Four of five changed; with two, when the second oldest is 60 s old, it is no more than half.
    assert result.verdict.code is Code.BLAST_RADIUS
    assert {item.frees_ms for item in result.refusals if item.code is Code.BLAST_RADIUS} == {NOW_MS + 20_000}
    later = GuardState(changed_brokers={name: NOW_MS - age - 20_000 for name, age in ages.items()})
    assert plan(CALM, later, rollout_quiet_seconds=0.0).moves


def test_a_bundle_without_a_place_is_told_which_bar_keeps_it() -> None:
    """Rule: a pair that did not help, the way back and until when; other reasons stay, and policies come first."""
    draft = Draft(snapshot(cluster([[0.2, 0.2, 0.2], [], [0.1]])), Ledger(), Parameters())
    draft.ban(TargetBans(closed={}, back={1: (1, NOW_MS + 5000)}, pairs=frozenset({(0, 1)})))
    refusals = [
        Refusal(Code.POLICY_FORBIDS, bundle_name(0), broker(0)),
        Refusal(Code.POLICY_FORBIDS, bundle_name(1), broker(0)),
        Refusal(Code.TOO_BIG, bundle_name(2), broker(0)),
        Refusal(Code.POLICY_FORBIDS, bundle_name(3), broker(2)),
    ]
    output = returning(refusals, draft)
    assert [item.code for item in output] == [Code.QUARANTINED, Code.NO_RETURN, Code.TOO_BIG, Code.POLICY_FORBIDS]
    assert (output[1].detail, output[1].frees_ms) == (
        f"not back to {broker(1)} before {clock_text(NOW_MS + 5000)}",
        NOW_MS + 5000,
    )
    draft.restrict(np.ones((1, 3), dtype=bool), np.array([-1]))
    assert [item.code for item in returning(refusals, draft)] == [
        Code.POLICY_FORBIDS,
        Code.NO_RETURN,
        Code.TOO_BIG,
        Code.POLICY_FORBIDS,
    ]


def test_a_broker_at_the_threshold_is_calm() -> None:
    """Rule: overloaded is above the threshold, here as everywhere."""
    draft = Draft(snapshot(cluster([[0.5], [0.51], []])), Ledger(), Parameters(overloaded_threshold_percent=50.0))
    assert calm_brokers(draft).tolist() == [True, False, True]


def test_nothing_is_split_meanwhile() -> None:
    """Rule: a split cuts clients off as well, so it waits for the end of a hold."""
    reports = cluster([[0.5], [0.05], [0.05], [0.05], [0.05]], bundle_counts=np.array([[8, 1, 1]]))
    limit: dict[str, Any] = {"split_max_msg_rate": 20_000.0, "split_hit_count": 0, "split_hot_share": 0.0}
    assert run(reports, **EAGER, **limit).plan.splits
    assert run(reports, guard=changed(2), **EAGER, **limit).plan.splits == ()


def test_a_window_for_relief_only() -> None:
    """Rule: a maintenance window may allow only the relief of overload; its end is reported."""
    guard = GuardState(relief_until=NOW_MS + 60_000)
    calm, over = plan(CALM, guard), plan(OVERLOADED, guard)
    assert (calm.moves, calm.verdict.code) == ((), Code.OUTSIDE_WINDOW)
    assert {item.frees_ms for item in calm.refusals if item.code is Code.OUTSIDE_WINDOW} == {NOW_MS + 60_000}
    assert over.moves


@pytest.mark.parametrize("strategy", ["avg", "threshold", "overload", "uniform", "transfer", "deviation"])
def test_every_strategy_is_held(strategy: str) -> None:
    """Rule: it is the guard that holds, not a strategy."""
    params = {
        "strategy": strategy,
        "transfer_hit_count": 0,
        "move_price": 0,
        "threshold_percent": 5.0,
        "deviation_threshold": 0.5,
    }
    assert plan(CALM, changed(2), **params).moves == ()
    assert all(move.source_before > 0.85 for move in plan(OVERLOADED, changed(2), **params).moves)


@pytest.mark.parametrize(("absent", "drained"), [((3,), True), ((1, 2, 3, 4), True), ((0, 1, 2, 3, 4), False)])
def test_drains_wait_only_when_everything_does(absent: tuple[int, ...], drained: bool) -> None:
    """Rule: an operator's drain continues through a roll-out, but not on a snapshot that may be wrong."""
    guard = replace(changed(*absent), draining=frozenset({broker(1)}), cordoned=frozenset({broker(1)}))
    assert (broker(1) in {move.source for move in plan(CALM, guard).moves}) is drained


def test_relief_ends_at_the_threshold() -> None:
    """Rule: a source exactly at the threshold is not overloaded; its moves wait for the end of the hold."""
    hold, params = Hold(code=Code.ROLLOUT_HOLD, sentence="", until_ms=7), Parameters()
    above, at = (replace(plan(OVERLOADED, GuardState()).moves[0], source_before=score) for score in (0.8501, 0.85))
    moves, refusals = relief_only((above, at), hold, params)
    assert moves == (above,)
    assert [(item.code, item.bundle, item.broker, item.frees_ms) for item in refusals] == [
        (Code.ROLLOUT_HOLD, at.bundle, at.source, 7)
    ]
