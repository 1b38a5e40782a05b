"""Measures of a candidate over days and initial placements, with bootstrap intervals.

A day is the unit that is resampled, with its runs from all placements. These runs have the same traffic, and adjacent
minutes are similar. So smaller units would make each interval too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
from scipy import stats

from bundlekeel.model.load import Floats
from bundlekeel.model.snapshot import Bools
from bundlekeel.recalibration.backtest.measures import ByRunDay, CandidateMeasures, RunDay
from bundlekeel.recalibration.rules.thresholds import EQUAL, KEPT, MEASURES, SLACK, BootstrapInterval, HeldOutMeasures

DRAWS: Final = 1000
LEVEL: Final = 0.95
# Rounding errors of long sums are smaller than this.
DUST: Final = 1e-12
# Sums in the order of `MEASURES`, and the seconds to which each measure refers.
_COLUMNS: Final = {
    "imbalance": ("weighted", 1.0),
    "moves_per_hour": ("moves", 3600.0),
    "client_seconds_per_hour": ("client_seconds", 3600.0),
    "overloaded_minutes_per_day": ("overloaded_minutes", 86_400.0),
}
_WIDTH: Final = 1 + len(MEASURES)
_PER: Final = np.array([_COLUMNS[name][1] for name in MEASURES])
_KEPT: Final = [MEASURES.index(name) for name in KEPT]
_SLACK: Final = np.array([SLACK.get(name, 0.0) for name in KEPT])


def measures_of(days: ByRunDay, *, seed: int, before: ByRunDay | None = None) -> HeldOutMeasures:
    """Return a candidate's mean measures over all counted time, with bootstrap intervals.

    Args:
        days: measures by run and day. The interval of a single day is its mean. Without any, all values are 0.
        seed: seed of the resampling; the same seed gives the same intervals.
        before: if set, return the differences `days` minus `before`, over the days that are in both. Each day is
            compared with itself, so that differences between days do not make the intervals wider.
    """
    if before is None:
        rows, statistic = _table(days, days), means
    else:
        shared = set(days) & set(before)
        rows = np.vstack([_table(before, shared), _table(days, shared)])
        statistic = _differences
    intervals = _intervals(rows, statistic, seed)
    return HeldOutMeasures(**dict(zip(MEASURES, intervals, strict=True)))


def saved(before: ByRunDay, after: ByRunDay, days: Collection[RunDay], name: str, *, seed: int) -> BootstrapInterval:
    """Return the share of a measure that `after` saves (1: all of it, negative: it is higher), with its interval."""
    place = MEASURES.index(name)

    def share(rows: Floats, axis: int = -1) -> Floats:
        then, now = (means(part, axis)[place : place + 1] for part in (rows[:_WIDTH], rows[_WIDTH:]))
        return np.where(then > 0, 1 - _divide(now, then), 0.0)

    return _intervals(np.vstack([_table(before, days), _table(after, days)]), share, seed)[0]


def chance(before: ByRunDay, after: ByRunDay, days: Collection[RunDay], name: str, *, seed: int = 0) -> float:
    """Return the share (0 to 1) of resamples of `days` in which `after` has less of this measure and is not worse."""
    place = MEASURES.index(name)

    def confirmed(rows: Floats, axis: int = -1) -> Floats:
        then, now = means(rows[:_WIDTH], axis), means(rows[_WIDTH:], axis)
        return np.where(now[place] < then[place], 1.0 - np.any(worse(then, now), axis=0), 0.0)

    rows = np.vstack([_table(before, days), _table(after, days)])
    return float(np.mean(_resample(rows, confirmed, seed).bootstrap_distribution))


def worse(before: Floats, after: Floats) -> Bools:
    """Return which of the measures `KEPT` are worse by more than `EQUAL`; one minute of overload per day is tolerated.

    `before`, `after`: results of `means`.
    """
    slack = np.maximum(EQUAL * before[_KEPT], _SLACK.reshape(-1, *(1,) * (before.ndim - 1)))
    higher: Bools = after[_KEPT] > before[_KEPT] + slack + DUST
    return higher


def means(rows: Floats, axis: int = -1) -> Floats:
    """Return the measures, in the order of `MEASURES`, of sums (rows: seconds, then one row per measure)."""
    sums = rows.sum(axis)
    return _divide(sums[1:] * _PER.reshape(-1, *(1,) * (sums.ndim - 1)), np.broadcast_to(sums[:1], sums[1:].shape))


def sums_of(measures: CandidateMeasures) -> Floats:
    """Return the sums in a candidate's measures as an array: seconds, then one value per measure."""
    return np.array([measures.seconds, *(getattr(measures, _COLUMNS[name][0]) for name in MEASURES)])


def _resample(rows: Floats, statistic: Callable[..., Floats], seed: int) -> Any:
    if rows.shape[1] < 2:
        # scipy needs two observations. Repeating the only one does not change the quotients.
        rows = np.repeat(rows.sum(axis=1, keepdims=True), 2, axis=1)
    return stats.bootstrap(
        (rows,), statistic, axis=-1, n_resamples=DRAWS, confidence_level=LEVEL, method="percentile", rng=seed
    )


def _intervals(rows: Floats, statistic: Callable[..., Floats], seed: int) -> list[BootstrapInterval]:
    interval = _resample(rows, statistic, seed).confidence_interval
    ends = zip(statistic(rows).tolist(), interval.low.tolist(), interval.high.tolist(), strict=True)
    return [BootstrapInterval(mean, min(low, mean), max(high, mean)) for mean, low, high in ends]


def _table(results: ByRunDay, days: Collection[RunDay]) -> Floats:
    """Return the sums of each day over all runs, shape (columns, days)."""
    runs, numbers = sorted(days), sorted({day for _, day in days})
    rows = [np.sum([sums_of(results[key]) for key in runs if key[1] == day], axis=0) for day in numbers]
    return np.array(rows).reshape(-1, _WIDTH).T


def _differences(rows: Floats, axis: int = -1) -> Floats:
    difference: Floats = means(rows[_WIDTH:], axis) - means(rows[:_WIDTH], axis)
    return difference


def _divide(above: Floats, below: Floats) -> Floats:
    """Return the quotient; 0 where the divisor is 0."""
    quotient: Floats = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return quotient
