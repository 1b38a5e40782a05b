"""The traffic generator (dev/history_model.py)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from bundlekeel.model.load import CPU
from dev.history_model import IDLE, World, dense, inputs_of

QUIET = World(days=1, brokers=4, bundles=40, period_seconds=900, recording=False, unequal=0.5)


def test_a_part_is_that_part_of_the_whole() -> None:
    """Days can be generated one at a time."""
    world = replace(QUIET, days=2, period_seconds=600)
    generated, part = dense(world), dense(world, 100, 200)
    assert np.array_equal(part.rates, generated.rates[100:200])
    assert np.array_equal(part.reported, generated.reported[100:200])


def test_seasons() -> None:
    """Afternoons above nights, working days above weekends, later weeks above earlier ones."""
    world = World(days=14, brokers=4, bundles=40, period_seconds=3600, growth=0.02, spiky=0)
    total = dense(world).rates[:, :, 0].sum(axis=1).reshape(14, 24)
    assert (total[:, 14] > 1.5 * total[:, 2]).all()
    assert total[5].mean() < 0.95 * total[4].mean()
    assert all(later.mean() > earlier.mean() for earlier, later in pairwise((total[:5], total[7:12])))


def test_the_seed_decides() -> None:
    """The same seed gives the same world, another seed another one."""
    one, again, other = (dense(replace(QUIET, seed=seed), 0, 3).rates for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_usage_follows_traffic() -> None:
    """CPU is a base plus the costs of the traffic."""
    traffic = dense(QUIET, 0, 4)
    for period, data in enumerate(inputs_of(traffic)):
        brokers = data.snapshot.brokers
        volumes = np.column_stack([brokers.traffic[:, :2].sum(axis=1), brokers.traffic[:, 2:].sum(axis=1)])
        expected = volumes @ traffic.costs.prior + IDLE * brokers.limit[:, CPU]
        assert np.allclose(brokers.usage[:, CPU], expected, atol=1e-3)
        assert np.allclose(data.snapshot.bundles.latest.sum(axis=0), traffic.rates[period].sum(axis=0))


def test_counters_are_read_in_turn() -> None:
    """Each broker has a new reading in every third period, and keeps the old one in between."""
    traffic = dense(replace(QUIET, period_seconds=5, reading_periods=3, counters=True), 0, 12)
    inputs = list(inputs_of(traffic))
    assert {data.snapshot.intervals for data in inputs} == {(15_000,) * 4}
    changes = [
        (now.snapshot.brokers.last_update != before.snapshot.brokers.last_update).tolist()
        for before, now in pairwise(inputs)
    ]
    assert changes[:3] == [[False, True, False, False], [False, False, True, False], [True, False, False, True]]
    assert changes[3:] == changes[:-3]
