"""Selection of bundles that justify a reconnect and fit best, which keeps the number of moves small."""

from __future__ import annotations

import numpy as np
import pytest

from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.draft import Draft, Offer
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.strategies.common import best_fit, traffic_of
from tests.support.builders import bundle_name, cluster, eager, report, snapshot


def fit(sizes: list[float], want: float, *, before: float = 0.8, other: float = 0.0) -> int:
    """The index chosen among bundles of these scores."""
    relief = np.array(sizes)
    offer = Offer(source_after=before - relief, target_after=other + relief)
    return best_fit(offer, before, other, want, ceiling=0.85, slack=0.06)


@pytest.mark.parametrize(
    ("sizes", "choice"),
    [
        ([0.1, 0.3, 0.2], 1),
        # Too large by 0.05 leaves the higher broker lower than too small by 0.06 does; by 0.07 is too much of it.
        ([0.1, 0.45], 1),
        ([0.34, 0.45], 1),
        ([0.36, 0.45], 0),
        ([0.1, 0.47], 0),
        # Nothing that is small enough: the smallest of the larger ones.
        ([0.58, 0.5], 1),
        # It would only swap the two brokers.
        ([0.7], -1),
        ([0.7, 0.01], 1),
        ([], -1),
    ],
)
def test_the_nearest_fit(sizes: list[float], choice: int) -> None:
    assert fit(sizes, 0.4) == choice


def test_one_large_bundle_does_not_make_the_many_small_dust() -> None:
    """Rule: with 0.1 and 600 of 0.001 most of the load is in the small ones, so they move."""
    plan = eager(cluster([[0.1, *[0.001] * 600], []])).plan
    moved = [load.score_after for load in plan.loads]
    assert moved[0] == pytest.approx(0.35, abs=0.03)


@pytest.mark.parametrize(("target_after", "choice"), [(0.6, 0), (0.61, -1)])
def test_a_smaller_target_is_not_filled_beyond_a_quarter_of_the_difference(target_after: float, choice: int) -> None:
    """Rule: more than was wanted moves only if both brokers end a quarter of the difference below the source."""
    offer = Offer(source_after=np.array([0.5]), target_after=np.array([target_after]))
    assert best_fit(offer, 0.8, 0.0, 0.2, ceiling=0.85, slack=0.06) == choice


@pytest.mark.parametrize(("relief", "share"), [(0.4, 0.5), (0.8, 1.0), (2.0, 1.0), (-1.0, 0.0)])
def test_traffic_that_leaves_with_a_part_of_the_score(relief: float, share: float) -> None:
    """Rule: in proportion to the score, not less than none and not more than all; a broker without a score is blind."""
    current = snapshot([*cluster([[0.4, 0.4]]), report("blind:1", {bundle_name(9): 0.2}, cpu=0.0)])
    draft = Draft(current, Ledger(), Parameters())
    assert traffic_of(draft, 0, relief) == pytest.approx((share * 80e3, share * 80e6))
    assert traffic_of(draft, 1, relief) == pytest.approx((20e3, 20e6))
