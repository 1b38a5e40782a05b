"""Limits of the guard, one by one: idle usage, bundles that move together, bars of absent brokers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import TRAFFIC
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.guard.budgets import admit, share_of
from bundlekeel.planning.guard.eligibility import eligibility, hold_back
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.guard.stops import bans_of
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, eager, report, run, snapshot


@pytest.mark.parametrize("column", range(len(TRAFFIC)))
def test_a_bundle_with_any_traffic_is_not_idle(column: int) -> None:
    """Rule: a little of messages or bytes, one way alone."""
    rows = np.zeros((1, len(TRAFFIC)))
    rows[0, column] = 0.5
    current = snapshot([report(broker(0), {bundle_name(0): 0.0}, bundle_traffic=rows)])
    assert eligibility(current, GuardState(), Parameters(), NOW_MS, frozenset()).mask.tolist() == [True]


def test_a_window_that_is_closed_is_told_of_each_bundle() -> None:
    """Rule: the first of the codes counts as the others do."""
    current = snapshot(cluster([[0.1, 0.1], [0.1]]))
    free = eligibility(current, GuardState(), Parameters(), NOW_MS, frozenset())
    eligible = hold_back(free, np.array([True, False, True]), Code.OUTSIDE_WINDOW, 0)
    assert dict(eligible.codes) == {0: Code.OUTSIDE_WINDOW, 2: Code.OUTSIDE_WINDOW}
    assert (len(eligible.codes), eligible.mask.tolist()) == (2, [False, True, False])


@pytest.mark.parametrize(
    ("moved", "carried", "share"),
    [
        ((1, 1, 10, 0), (4, 4, 20, 0), 0.5),
        ((1, 1, 0, 10), (4, 4, 0, 20), 0.5),
        ((3, 0, 10, 10), (4, 0, 40, 40), 0.75),
        ((0, 3, 10, 10), (0, 4, 40, 40), 0.75),
        ((9, 9, 9, 9), (4, 4, 4, 4), 1.0),
        ((1, 1, 1, 1), (0, 0, 0, 0), 0.0),
    ],
)
def test_the_share_that_a_move_takes_along(
    moved: tuple[float, float, float, float], carried: tuple[float, float, float, float], share: float
) -> None:
    """Rule: of messages or of bytes, both ways together, whichever is more; at most all."""
    (move, *_) = eager(cluster([[0.2] * 4, [0.1]])).plan.moves
    assert share_of(replace(move, traffic=moved), carried) == share


def test_a_share_of_what_is_not_known_binds_nothing() -> None:
    """Rule: without the brokers' traffic the other budgets hold."""
    moves = eager(cluster([[0.1] * 8, [0.1]])).plan.moves
    assert len(moves) == 3
    assert admit(moves, Parameters(max_traffic_share_per_cycle=0.1)) == (moves, ())


def test_pairs_that_did_not_help() -> None:
    """Rule: they have their own code; pairs of brokers that are not there bar nothing, nor do those of before."""
    reports, one, other = cluster([[0.2] * 4, [0.1]]), broker(0), broker(1)
    there = {(one, other): NOW_MS + 1}
    plan = run(reports, guard=GuardState(quarantined=there), move_price=0).plan
    assert {item.code for item in plan.refusals} == {Code.QUARANTINED} and not plan.moves
    for pair, expiry in (((one, "gone:1"), 1), (("gone:1", one), 1), ((one, other), 0)):
        assert bans_of(snapshot(reports), GuardState(quarantined={pair: NOW_MS + expiry}), Parameters()) is None
