"""Families of generated clusters (dev/history_families.py)."""

from __future__ import annotations

import numpy as np
import pytest

from bundlekeel.model.load import CPU
from bundlekeel.planning.costs import NO_COSTS
from bundlekeel.recalibration.backtest import backtest
from dev.history_families import FAMILIES, generated
from dev.history_model import World, dense
from tests.support.backtest_cases import PRESENT

SMALL = World(seed=7, spiky=0, days=2, brokers=4, bundles=64, period_seconds=1800)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_can_be_planned_and_its_seed_decides(family: str) -> None:
    """Each period has a snapshot, the same for the same seed."""
    inputs, again = (list(generated(family, SMALL)) for _ in range(2))
    assert [item.snapshot.digest for item in inputs] == [item.snapshot.digest for item in again]
    days = backtest(inputs, [PRESENT], NO_COSTS)
    assert [row.measures.plans for row in days] == [48, 48]


def test_what_each_family_does() -> None:
    """Bundles appear, a broker is away, and CPU rises without traffic."""
    bundles = [len(item.snapshot.bundles) for item in generated("new tenants", SMALL)]
    assert bundles[0] < bundles[-1] == len(next(generated("daily", SMALL)).snapshot.bundles)
    assert {len(item.snapshot.brokers) for item in generated("broker lost", SMALL)} == {3, 4}
    plain = dense(SMALL)
    burdened = FAMILIES["CPU of other processes"].change(plain)
    extra = np.array([burdened.usage(period) - plain.usage(period) for period in range(plain.periods)])
    assert extra[..., CPU].max() >= 40.0 and extra[..., CPU].min() == 0.0 and not extra[..., CPU + 1 :].any()
