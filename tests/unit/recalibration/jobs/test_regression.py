"""Robust regression and capacity by broker, without Spark."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.load import CPU, MSG_RATE, RATE_IN, THROUGHPUT_OUT
from bundlekeel.recalibration.jobs.capacity import fits, per_unit
from bundlekeel.recalibration.jobs.regression import fit_huber


@given(st.integers(0, 10_000), st.floats(0, 50), st.floats(0, 1e-3), st.floats(0.0, 0.2))
def test_a_line_survives_outliers(seed: int, base: float, slope: float, wrong: float) -> None:
    """Up to a fifth of the points may be anything at all."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(1e4, 1e6, 200)
    y = base + slope * x + rng.normal(0, 0.5, 200)
    bad = rng.random(200) < wrong
    y[bad] = rng.uniform(0, 2000, int(bad.sum()))
    line = fit_huber(x[:, None], y)
    assert float(np.abs(line.predict(x[:, None]) - (base + slope * x)).max()) < 12


def test_exact_points_give_the_exact_line() -> None:
    """Without noise the line is the truth, whatever the columns' units; a column that stands still is left out."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.uniform(0, 1e3, 50), rng.uniform(0, 1e9, 50), np.full(50, 7.0)])
    line = fit_huber(x, 5 + 0.25 * x[:, 0] + 3e-8 * x[:, 1])
    assert line.slopes.tolist() == pytest.approx([0.25, 3e-8, 0.0], rel=1e-6)
    assert line.base == pytest.approx(5)


def test_slopes_are_never_negative() -> None:
    """Work frees no resources: a column that would say so is left out, and the others are fitted again."""
    x = np.column_stack([np.arange(40.0), np.arange(40.0)[::-1] ** 2])
    line = fit_huber(x, 3 + 2 * x[:, 0] - 0.001 * x[:, 1])
    assert line.slopes[1] == 0
    assert line.slopes[0] > 0


def test_too_few_points_are_refused() -> None:
    """A line through nothing would be an invention."""
    with pytest.raises(ValueError, match="3 points for 3 unknowns"):
        fit_huber(np.ones((3, 2)), np.ones(3))


def day(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A day of one broker in slices of ten minutes."""
    rng = np.random.default_rng(seed)
    carried = rng.uniform(0.5, 1.5, (144, 4)) * [1000, 2000, 1e6, 2e6]
    usage = np.column_stack(
        [
            32 + carried @ [0.01, 0.01, 2e-5, 2e-5] + rng.normal(0, 1, 144),
            np.full(144, 1024.0),
            carried[:, 2] * 0.008,
            carried[:, 3] * 0.008,
        ]
    )
    return usage, np.tile([800.0, 4096.0, 1e7, 1e7], (144, 1)), carried


def test_capacity_of_a_broker() -> None:
    """CPU follows messages and bytes, bandwidth its own direction, direct memory nothing."""
    usage, limit, carried = day()
    cpu, memory, inward, outward = fits(usage, limit, carried)
    assert cpu["base"] == pytest.approx(32, abs=4)
    assert cpu["per_msg_throughput_out"] == pytest.approx(2e-5, rel=0.2)
    assert 0 < cpu["error"] < 0.3
    assert cpu["error"] <= cpu["spread"]
    assert (memory["base"], memory["per_msg_throughput_in"], memory["error"]) == (1024, 0, 0)
    assert inward["per_msg_throughput_in"] == pytest.approx(0.008)
    assert (outward["per_msg_throughput_in"], outward["samples"]) == (0, 144)


def test_a_blind_network_card_has_eight_bits_a_byte() -> None:
    """A limit below zero is Pulsar's way to say that it cannot see the card: nothing is fitted to its zeros."""
    usage, limit, carried = day()
    usage[:, 2:], limit[:, 2:] = -0.0, -1000.0
    _, _, inward, outward = fits(usage, limit, carried)
    assert inward["blind"]
    assert outward["blind"]
    assert (outward["per_msg_throughput_out"], outward["error"], outward["samples"]) == (0.008, None, 0)


def test_what_the_back_test_gets() -> None:
    """A matrix a broker; one with too few slices is left to the back-test's own estimate."""
    usage, limit, carried = day()
    rows = [row | {"broker": "b:1"} for row in fits(usage, limit, carried)]
    rows += [row | {"broker": "b:2"} for row in fits(usage[:6], limit[:6], carried[:6])]
    costs = per_unit(rows)
    assert list(costs) == ["b:1"]
    assert costs["b:1"].shape == (6, 4)
    assert costs["b:1"][CPU, THROUGHPUT_OUT] > 0
    assert costs["b:1"][MSG_RATE, RATE_IN] == 1


def test_values_that_are_no_numbers_are_left_out() -> None:
    usage, limit, carried = day()
    usage[::10, 0] = np.nan
    cpu = fits(usage, limit, carried)[0]
    assert cpu["samples"] == 144 - 15
    assert cpu["base"] == pytest.approx(32, abs=5)
