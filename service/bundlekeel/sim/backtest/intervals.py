"""Measures of a candidate over blocks of history, with bootstrap intervals.

A block is some hours of one day. Blocks are resampled, not minutes: neighbouring minutes are alike, and would make each
interval too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
from scipy import stats

from bundlekeel.core.calibration.thresholds import MEASURES, BootstrapInterval, HeldOutMeasures
from bundlekeel.core.model.load import Floats
from bundlekeel.sim.backtest.measures import DAY_SECONDS, ByBlock

DRAWS: Final = 1000
LEVEL: Final = 0.95
# Rounding errors of long sums are smaller than this.
DUST: Final = 1e-12
_COLUMNS: Final = ("seconds", "periods", "weighted", "moves", "thrash", "overloaded_minutes")
_WIDTH: Final = len(_COLUMNS)


def measures_of(blocks: ByBlock, *, seed: int, before: ByBlock | None = None) -> HeldOutMeasures:
    """Return the means over all counted time, with intervals.

    Args:
        blocks: measures by block. The interval of a single block is its mean; without a block all values are 0.
        seed: the same seed gives the same intervals.
        before: if set, return the differences to these measures. Only blocks of both are used, in pairs: a difference
            between blocks that both share makes no interval wider.
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
    """Return the share (0 to 1) of draws of blocks in which `after` moves less than `before` and is not worse.

    "Not worse" is the rule of `search.worse`.
    """

    def confirmed(rows: Floats, axis: int = -1) -> Floats:
        seconds, periods, weighted, moves, _, overloaded = rows[:_WIDTH].sum(axis)
        _, _, weighted_after, moves_after, _, overloaded_after = rows[_WIDTH:].sum(axis)
        # Overload may last longer by one period per day: a back-test cannot measure less.
        period = _divide(seconds, periods) / 60 * seconds / DAY_SECONDS
        balanced = weighted_after <= (1 + tolerance) * weighted + DUST * seconds
        cool = overloaded_after <= overloaded + np.maximum(tolerance * overloaded, period) + DUST
        return np.asarray(balanced & cool & (moves_after < moves), dtype=np.float64)

    rows = np.vstack([_table(before, blocks), _table(after, blocks)])
    return float(np.mean(_resample(rows, confirmed, seed).bootstrap_distribution))


def _resample(rows: Floats, statistic: Callable[..., Floats], seed: int) -> Any:
    """Return scipy's bootstrap of a statistic over the columns (blocks) of `rows`."""
    if rows.shape[1] < 2:
        # scipy needs two observations. Twice the same block has the same quotients.
        rows = np.repeat(rows.sum(axis=1, keepdims=True), 2, axis=1)
    return stats.bootstrap(
        (rows,), statistic, axis=-1, n_resamples=DRAWS, confidence_level=LEVEL, method="percentile", rng=seed
    )


def _table(results: ByBlock, blocks: Collection[int]) -> Floats:
    """Return the sums of each block, shape (columns, blocks)."""
    return np.array([[getattr(results[block], name) for block in sorted(blocks)] for name in _COLUMNS])


def _means(rows: Floats, axis: int = -1) -> Floats:
    """Return the measures in the order of `HeldOutMeasures`."""
    seconds, _, weighted, moves, thrash, overloaded = rows.sum(axis)
    days = seconds / DAY_SECONDS
    return np.stack(
        [_divide(weighted, seconds), _divide(moves, 24 * days), _divide(thrash, days), _divide(overloaded, days)]
    )


def _differences(rows: Floats, axis: int = -1) -> Floats:
    difference: Floats = _means(rows[_WIDTH:], axis) - _means(rows[:_WIDTH], axis)
    return difference


def _divide(above: Floats, below: Floats) -> Floats:
    """Return the quotient; 0 where the divisor is 0."""
    quotient: Floats = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return quotient
