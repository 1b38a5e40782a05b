"""A rolling restart of equal brokers moves at most 1.1 times as many bundles as necessary."""

from __future__ import annotations

import pytest

from tests.support.rolling_restart import RollingRestart


@pytest.mark.parametrize("pause", [5, pytest.param(40, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("away", [30, pytest.param(90, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("brokers", [3, 6])
def test_a_rolling_restart_is_near_the_optimum(brokers: int, away: float, pause: float) -> None:
    """Rule: moves and peak are at most 1.1 times the optimum, and the brokers are balanced at the end.

    The hook of each broker's container requests a warm-up after its start.
    """
    measured = RollingRestart(brokers, away=away, pause=pause).measure()
    assert measured.moves <= 1.1
    assert measured.peak <= 1.1
    assert measured.imbalance <= 1.15
