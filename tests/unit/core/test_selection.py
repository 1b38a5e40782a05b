"""Which bundles are worth a reconnect, and which one fits best: what keeps the number of moves small."""

from __future__ import annotations

import numpy as np
import pytest

from bundlekeel.core.planning.draft import Offer
from bundlekeel.core.strategies.common import best_fit
from tests.support.builders import cluster, eager


def fit(sizes: list[float], want: float, *, before: float = 0.8, other: float = 0.0) -> int:
    """The index chosen among bundles of these scores."""
    relief = np.array(sizes)
    offer = Offer(rows=np.arange(len(sizes)), source_after=before - relief, target_after=other + relief)
    return best_fit(offer, before, other, want, ceiling=0.85, slack=0.06)


@pytest.mark.parametrize(
    ("sizes", "chosen"),
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
def test_the_nearest_fit(sizes: list[float], chosen: int) -> None:
    """Of 0.4 wanted, up to 0.06 more if that leaves the higher of both lower."""
    assert fit(sizes, 0.4) == chosen


def test_one_large_bundle_does_not_make_the_many_small_dust() -> None:
    """Rule: with 0.1 and 600 of 0.001 most of the load is in the small ones, so they move."""
    plan = eager(cluster([[0.1, *[0.001] * 600], []])).plan
    moved = [load.score_after for load in plan.loads]
    assert moved[0] == pytest.approx(0.35, abs=0.03)
