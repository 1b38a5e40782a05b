"""What is certain: differences between two candidates on the same blocks, with intervals over blocks drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.core.model.load import Floats
from bundlekeel.sim.backtest.measures import DAY_SECONDS, ByBlock, CandidateMeasures

# Sums over some blocks, one row a draw.
Statistic = Callable[[Floats], Floats]
_COLUMNS: Final = ("weighted", "seconds", "moves", "overloaded_minutes", "periods")
_WEIGHTED, _SECONDS, _MOVES, _OVERLOADED, _PERIODS = range(5)
_WIDTH: Final = len(_COLUMNS)
# What sums of many floats are apart without meaning anything.
DUST: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure, and between what it lies in 95 of 100 draws of blocks."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """After beside before. imbalance: the difference. moves: the quotient; 1 of nothing and nothing, infinite of
    something and nothing."""

    imbalance: Interval
    moves: Interval


SAME: Final = PairedDifference(
    imbalance=Interval(low=0.0, value=0.0, high=0.0),
    moves=Interval(low=1.0, value=1.0, high=1.0),
)


def compared(
    before: ByBlock, after: ByBlock, blocks: Sequence[int], *, seed: int = 0, draws: int = 1000
) -> PairedDifference:
    """Both on the same blocks, drawn in pairs: what all blocks have in common makes no interval wider."""
    pairs = np.hstack([_table(before, blocks), _table(after, blocks)])

    def imbalance(sums: Floats) -> Floats:
        return _mean(sums, _WIDTH) - _mean(sums, 0)

    def moves(sums: Floats) -> Floats:
        then, now = sums[:, _MOVES], sums[:, _WIDTH + _MOVES]
        # Nothing against nothing is the same; something against nothing is more, however much.
        found: Floats = np.divide(now, then, out=np.where(now > 0, np.inf, 1.0), where=then > 0)
        return found

    return PairedDifference(
        imbalance=bootstrap(pairs, imbalance, seed=seed, draws=draws),
        moves=bootstrap(pairs, moves, seed=seed, draws=draws),
    )


def chance(
    before: ByBlock,
    after: ByBlock,
    blocks: Sequence[int],
    tolerance: float,
    *,
    size: int = 0,
    luck: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
    draws: int = 1000,
) -> float:
    """In which share (0..1) of draws of `size` such blocks (0: as many as there are) the second moves less and is not
    worse (`search.worse`). `luck`: what imbalance and moves of the second are divided by."""
    pairs = np.hstack([_table(before, blocks), _table(after, blocks)])
    pairs[:, _WIDTH + _WEIGHTED] /= luck[0]
    pairs[:, _WIDTH + _MOVES] /= luck[1]
    sums = _drawn(pairs, seed, draws, size)
    then, now = sums[:, :_WIDTH], sums[:, _WIDTH:]
    picture = np.divide(then[:, _SECONDS], then[:, _PERIODS], out=np.zeros(draws), where=then[:, _PERIODS] > 0) / 60
    days = then[:, _SECONDS] / DAY_SECONDS
    overload = then[:, _OVERLOADED] + np.maximum(tolerance * then[:, _OVERLOADED], picture * days)
    held = (_mean(sums, _WIDTH) <= (1 + tolerance) * _mean(sums, 0) + DUST) & (now[:, _OVERLOADED] <= overload + DUST)
    return float((held & (now[:, _MOVES] < then[:, _MOVES])).mean())


def bootstrap(rows: Floats, statistic: Statistic, *, seed: int = 0, draws: int = 1000, level: float = 0.95) -> Interval:
    """A statistic of the sum of all rows (blocks), and its percentile interval over rows drawn with replacement.

    `statistic` gets sums, shape (n, columns), and gives n values. The same seed, the same interval.
    """
    values = np.sort(statistic(_drawn(rows, seed, draws)))
    tail = (1 - level) / 2
    at = np.rint(np.array([tail, 1 - tail]) * (draws - 1)).astype(int)
    value = float(statistic(rows.sum(axis=0, keepdims=True))[0])
    return Interval(low=float(values[at[0]]), value=value, high=float(values[at[1]]))


def _drawn(rows: Floats, seed: int, draws: int, size: int = 0) -> Floats:
    """Sums of so many rows (0: as many as there are), drawn with replacement; shape (draws, columns)."""
    drawn = np.random.default_rng(seed).integers(0, len(rows), size=(draws, size or len(rows)))
    found: Floats = rows[drawn].sum(axis=1)
    return found


def _table(results: ByBlock, blocks: Sequence[int]) -> Floats:
    blank = CandidateMeasures()
    return np.array([[getattr(results.get(block, blank), name) for name in _COLUMNS] for block in blocks])


def _mean(sums: Floats, offset: int) -> Floats:
    weighted, seconds = sums[:, offset + _WEIGHTED], sums[:, offset + _SECONDS]
    found: Floats = np.divide(weighted, seconds, out=np.zeros_like(weighted), where=seconds > 0)
    return found
