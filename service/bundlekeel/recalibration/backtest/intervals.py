"""Measures of a candidate over blocks of history, with bootstrap intervals.

A block is some hours of one day. Blocks are resampled, not minutes: adjacent minutes are similar, and would make each
interval too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
from scipy import stats

from bundlekeel.model.load import Floats
from bundlekeel.model.snapshot import Bools
from bundlekeel.recalibration.backtest.measures import DAY_SECONDS, ByBlock, CandidateMeasures
from bundlekeel.recalibration.rules.thresholds import MEASURES, BootstrapInterval, HeldOutMeasures

DRAWS: Final = 1000
LEVEL: Final = 0.95
# Rounding errors of long sums are smaller than this.
DUST: Final = 1e-12
_COLUMNS: Final = ("seconds", "periods", "weighted", "moves", "thrash", "overloaded_minutes")
_SECONDS, _PERIODS, _MOVES, _WIDTH = 0, 1, 3, len(_COLUMNS)


def measures_of(blocks: ByBlock, *, seed: int, before: ByBlock | None = None) -> HeldOutMeasures:
    """Return a candidate's mean measures over all counted time, with bootstrap intervals.

    Args:
        blocks: measures by block. The interval of a single block is its mean. Without a block, all values are 0.
        seed: seed of the resampling; the same seed gives the same intervals.
        before: if set, return the differences `blocks` minus `before`, over the blocks that are in both. Each block is
            compared with itself, so that differences between blocks do not make the intervals wider.
    """
    if before is None:
        rows, statistic = _table(blocks, blocks), _means
    else:
        shared = set(blocks) & set(before)
        rows = np.vstack([_table(before, shared), _table(blocks, shared)])
        statistic = _differences
    drawn = _resample(rows, statistic, seed)
    interval = drawn.confidence_interval
    intervals = zip(statistic(rows).tolist(), interval.low.tolist(), interval.high.tolist(), strict=True)
    return HeldOutMeasures(
        **{
            name: BootstrapInterval(mean, min(low, mean), max(high, mean))
            for name, (mean, low, high) in zip(MEASURES, intervals, strict=True)
        }
    )


def chance(before: ByBlock, after: ByBlock, blocks: Collection[int], tolerance: float, *, seed: int = 0) -> float:
    """Return the share (0 to 1) of resamples of `blocks` in which `after` has fewer moves than `before` and is not
    worse."""

    def confirmed(rows: Floats, axis: int = -1) -> Floats:
        then, now = rows[:_WIDTH].sum(axis), rows[_WIDTH:].sum(axis)
        return np.where(now[_MOVES] < then[_MOVES], 1.0 - np.any(worse(then, now, tolerance), axis=0), 0.0)

    rows = np.vstack([_table(before, blocks), _table(after, blocks)])
    return float(np.mean(_resample(rows, confirmed, seed).bootstrap_distribution))


def worse(before: Floats, after: Floats, tolerance: float) -> tuple[Bools, Bools]:
    """Return whether imbalance is worse, and whether overload is worse, by more than `tolerance` (share of `before`).

    One more period of overload per day is also tolerated, because it can be chance. `before`, `after`: results of
    `sums_of`, or arrays of them.
    """
    imbalance, _, _, overload = _quotients(before)
    imbalance_after, _, _, overload_after = _quotients(after)
    period = _divide(before[_SECONDS], before[_PERIODS]) / 60
    return (
        imbalance_after > (1 + tolerance) * imbalance + DUST,
        overload_after > overload + np.maximum(tolerance * overload, period) + DUST,
    )


def sums_of(measures: CandidateMeasures) -> Floats:
    """Return the sums in a candidate's measures that `worse` compares, as an array."""
    return np.array([getattr(measures, name) for name in _COLUMNS])


def _resample(rows: Floats, statistic: Callable[..., Floats], seed: int) -> Any:
    if rows.shape[1] < 2:
        # scipy needs two observations. Repeating the only block does not change the quotients.
        rows = np.repeat(rows.sum(axis=1, keepdims=True), 2, axis=1)
    return stats.bootstrap(
        (rows,), statistic, axis=-1, n_resamples=DRAWS, confidence_level=LEVEL, method="percentile", rng=seed
    )


def _table(results: ByBlock, blocks: Collection[int]) -> Floats:
    """Return the sums of each block, shape (columns, blocks)."""
    return np.array([sums_of(results[block]) for block in sorted(blocks)]).reshape(-1, _WIDTH).T


def _quotients(sums: Floats) -> Floats:
    """Convert sums (rows: `_COLUMNS`) to means per second, hour or day, in the order of `HeldOutMeasures`."""
    seconds, _, weighted, moves, thrash, overloaded = sums
    days = seconds / DAY_SECONDS
    return np.stack(
        [_divide(weighted, seconds), _divide(moves, 24 * days), _divide(thrash, days), _divide(overloaded, days)]
    )


def _means(rows: Floats, axis: int = -1) -> Floats:
    return _quotients(rows.sum(axis))


def _differences(rows: Floats, axis: int = -1) -> Floats:
    difference: Floats = _means(rows[_WIDTH:], axis) - _means(rows[:_WIDTH], axis)
    return difference


def _divide(above: Floats, below: Floats) -> Floats:
    """Return the quotient; 0 where the divisor is 0."""
    quotient: Floats = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return quotient
