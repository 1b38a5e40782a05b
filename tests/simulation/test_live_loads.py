"""Counters, fusion and planner in one loop: a load that goes up and down is not followed, one that stays is.

The promise: while a broker's load swings by up to half of it, the first swing is followed like a step, and nothing
moves after the first full period.
"""

from __future__ import annotations

import pytest

from tests.support.live_loop import lasting_step, play, square_wave

STEP_SECONDS = 150
# A lasting step is acted on within this time: one slow reading and two quick ones, whatever their phase.
FOLLOWED_SECONDS = 21


def later_moves(half: float, usage: float, amplitude: float, *, seed: int, minutes: float) -> tuple[int, int]:
    """Return the moves within the first full period of a wave of 1 +- `amplitude` times a load, and those after it."""
    wave = square_wave(half, 1 - amplitude, 1 + amplitude, usage=usage, minutes=minutes)
    first = 60 * wave.events[0].at + 2 * half + FOLLOWED_SECONDS
    moves = [move.at <= first for move in play(wave, seed, counters=True)]
    return sum(moves), len(moves) - sum(moves)


@pytest.mark.parametrize(("usage", "amplitude", "seed"), [(0.4, 0.5, 11), (0.45, 0.3, 12), (0.5, 0.5, 13)])
@pytest.mark.parametrize("half", [10, 30, 90])
def test_a_square_wave_is_not_followed(half: float, usage: float, amplitude: float, seed: int) -> None:
    """Twenty minutes of it."""
    assert later_moves(half, usage, amplitude, seed=seed, minutes=20.0)[1] == 0


@pytest.mark.parametrize("half", [10, 30, 90])
def test_a_strong_wave_moves_few_bundles(half: float) -> None:
    """A wave of 80 %, without overload: the mean is balanced once more, after the first swing."""
    first, later = later_moves(half, 0.35, 0.8, seed=11, minutes=20.0)
    assert later <= first + 2


@pytest.mark.nightly
@pytest.mark.parametrize("seed", (21, 22))
@pytest.mark.parametrize("usage", [0.4, 0.55])
@pytest.mark.parametrize("amplitude", [0.3, 0.5])
@pytest.mark.parametrize("half", [10, 30, 90])
def test_many_square_waves_are_not_followed(half: float, usage: float, amplitude: float, seed: int) -> None:
    """An hour of it."""
    assert later_moves(half, usage, amplitude, seed=seed, minutes=63.0)[1] == 0


@pytest.mark.parametrize("phase", [0, 6, 11, 13])
@pytest.mark.parametrize(("usage", "factor", "seed"), [(0.4, 2.0, 3), (0.5, 3.0, 4)])
def test_a_lasting_step_is_followed(phase: int, usage: float, factor: float, seed: int) -> None:
    """At whatever moment between two readings it comes."""
    at = STEP_SECONDS + phase
    moves = play(lasting_step(factor, at, usage=usage), seed, counters=True)
    assert moves and 0 <= moves[0].at - at <= FOLLOWED_SECONDS
