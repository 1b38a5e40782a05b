"""Swaps of `avg` where the remaining imbalance is too small for a move, and its treatment of unfinished moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.load import CPU
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.planning.ledger import Baseline, Ledger, settle
from tests.support.builders import MINUTE, NOW_MS, after, broker, bundle_name, cluster, eager, entry, snapshot
from tests.unit.planning.test_virtual import BY_CPU, world

# The largest broker has two bundles, each larger than what a move may shift; the other one's are smaller.
TWO_BIG = [[0.4, 0.4], [0.2, 0.2]]
# No broker has headroom for the smaller of two giants before some of its own bundles have moved.
NO_ROOM = [[0.42, 0.32], *[[0.1, 0.1, 0.1, 0.1, 0.16]] * 3]


def test_a_big_bundle_is_exchanged_for_a_smaller_one() -> None:
    """Rule: where no bundle fits the difference, a big one goes and a smaller one comes back; the big one first."""
    plan = eager(cluster(TWO_BIG)).plan
    assert [(move.source, move.target, move.rule) for move in plan.moves] == [
        (broker(0), broker(1), "avg swap"),
        (broker(1), broker(0), "avg swap"),
    ]
    assert after(plan) == [0.6, 0.6]


def test_room_is_made_where_a_big_bundle_fits_nowhere() -> None:
    """Rule: the taker's bundles go to third brokers first; no step is above what the most loaded broker had."""
    plan = eager(cluster(NO_ROOM)).plan
    assert max(after(plan)) < 0.7 and max(move.target_after for move in plan.moves) <= 0.74
    big = next(place for place, move in enumerate(plan.moves) if move.bundle == bundle_name(1))
    assert big > 0 and {move.source for move in plan.moves[:big]} == {plan.moves[big].target}
    assert broker(0) not in {move.target for move in plan.moves[:big]}


def test_brokers_that_are_near_enough_exchange_nothing() -> None:
    """Rule: two reconnects and more are worth it only where brokers differ by the low threshold."""
    loads = [[0.33, 0.33], [0.3, 0.29]]
    assert not eager(cluster(loads)).plan.moves
    assert not eager(cluster([[0.4, 0.4], [0.35, 0.05]]), avg_low_threshold_percent=60.0).plan.moves


def test_a_swap_that_the_budgets_cut_in_half_is_not_planned() -> None:
    """Rule: half of a swap is never executed."""
    plan = eager(cluster(TWO_BIG), max_moves_per_cycle=1).plan
    assert not plan.moves and plan.verdict.code is Code.UNSPLITTABLE
    room = eager(cluster(NO_ROOM), max_moves_per_cycle=2).plan
    assert bundle_name(1) not in {move.bundle for move in room.moves}


def test_compat_swaps_nothing() -> None:
    """Rule: Pulsar's class knows no swap, and its form stays as it is."""
    compat = {"compat": "4.2", "placement": "avg", "min_unload_message_rate": 0.0, "min_unload_throughput": 0.0}
    plan = eager(cluster(TWO_BIG), **compat).plan
    assert len({(move.source, move.target) for move in plan.moves}) <= 1


def swap_cases(most: int) -> Iterator[tuple[list[list[float]], dict[str, Any]]]:
    """Generate clusters with at most `most` bundles per broker, and budgets."""
    rng = np.random.default_rng(5)
    for _ in range(400):
        shares = [0.05, 0.1, 0.2, 0.3, 0.4]
        loads = [
            rng.choice(shares, size=int(rng.integers(1, most + 1))).tolist() for _ in range(int(rng.integers(2, 6)))
        ]
        yield loads, dict.fromkeys(("max_moves_per_cycle", "max_moves_per_target"), int(rng.choice([1, 2, 3, 100])))


def check_accounts(loads: list[list[float]], plan: Plan) -> None:
    """Law: each bundle of a donor moves or is refused, once, and the strategy itself keeps the laws of moves."""
    donors = {move.source for move in plan.moves} | {item.broker for item in plan.refusals if item.bundle}
    named = [move.bundle for move in plan.moves] + [item.bundle for item in plan.refusals if item.bundle]
    owned = [name for item in cluster(loads) if item.broker_id in donors for name in item.bundle_names]
    assert sorted(named) == sorted(owned)
    assert not [item for item in plan.refusals if item.detail == "final check"]


def test_swaps_keep_the_laws() -> None:
    swaps, rooms = 0, 0
    for loads, budgets in swap_cases(4):
        plan = eager(cluster(loads), **budgets).plan
        check_accounts(loads, plan)
        assert len(plan.moves) <= budgets["max_moves_per_cycle"]
        highest = max(row.score_before for row in plan.loads)
        assert all(move.target_after <= min(highest, 0.85) + 1e-5 for move in plan.moves)
        swapped = {(move.source, move.target) for move in plan.moves if move.rule == "avg swap"}
        swaps += any((target, source) in swapped for source, target in swapped)
        rooms += any((target, source) not in swapped for source, target in swapped)
    assert swaps >= 10 and rooms >= 5


@pytest.mark.parametrize("seed", [10, 19])
def test_worlds_of_whole_bundles_end_even(seed: int) -> None:
    """Rule: bundles that a saturated CPU made land together do not stay so (they ended at 1.18 and 1.23)."""
    world(seed, BY_CPU)


# --- brokers whose moves are not over --------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "reported", "believed"), [(10.0, 35.0, 35.0), (-10.0, 25.0, 25.0)])
def test_a_report_in_between_shows_no_more_than_the_moves(share: float, reported: float, believed: float) -> None:
    """Rule: who took uses what it reported since or more, who gave that or less, however near the prediction is."""
    own, other = broker(0), broker(1)
    source, target = (other, own) if share > 0 else (own, other)
    pressure = (abs(share), 0, 0, 0, 0, 0)
    landed = entry(bundle_name(9), source, target, opened_ms=NOW_MS - 1000, landed_ms=NOW_MS, pressure=pressure)
    # Predicted are 30: five away from the report, within the ten points that a report may be wrong.
    baselines = tuple(
        Baseline(broker=row, usage=(30.0 - share, 0, 0, 0), since_ms=NOW_MS - 1000) for row in (own, other)
    )
    reports = [replace(item, usage=np.array([reported, 0, 0, 0])) for item in cluster([[0.3], [0.3]])]
    current = snapshot([replace(item, last_update=NOW_MS + 30_000) for item in reports])
    books = settle(Ledger(entries=(landed,), baselines=baselines), current, Parameters(), NOW_MS + 5 * MINUTE)
    lines = next(item for item in books.baselines if item.broker == own)
    assert lines.usage[CPU] + share == pytest.approx(believed)
