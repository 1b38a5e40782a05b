"""Rules that decide whether history is good enough to calibrate on, and the refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from itertools import combinations
from typing import Any, Final

import numpy as np
from scipy import stats

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import HistoryError
from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.text_format import figure, numbered
from bundlekeel.recalibration.jobs.periods import HistoryPeriod

GOOD = "good"
PARTIAL = "partial"
BAD = "bad"

# If more than this share of a day's cycles has no traffic, the cause is the recording and not the applications.
SILENT: Final = 0.9
# If the numbers of missing cycles correspond to more than this many minutes, files were lost.
LOST_MINUTES: Final = 30.0
# A larger step back of a leader's clock mixes two periods. After a smaller one, a back-test skips some cycles.
SET_BACK_MINUTES: Final = 1.0
# A leader and its successor both record in the hour of the change, and in one more hour if their clocks differ.
SHARED_HOURS: Final = 2
# A broker is an outlier if its usage per traffic exceeds two limits: a ratio to the other brokers, and a multiple of
# their spread.
FACTOR: Final = 5.0
DEVIATIONS: Final = 6.0
# Slices (of ten minutes) and brokers that a comparison of usage and traffic needs: half a day, three brokers.
LEAST_SLICES: Final = 72
LEAST_BROKERS: Final = 3
_MOST_POINTS: Final = 1000
# Highest ratio between a broker's reported traffic and the sum over its bundles, in either direction.
TOLD: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFigures:
    """Values by which one UTC day of history is judged: the columns of `quality.days`, `lying` and `leaders`.

    `why`: fault of one of its cycles or files. `interval_seconds`: usual time between cycles. `set_back_minutes`:
    longest step back of the clock between two cycles. `silent`: share of cycles without traffic. `lying`: brokers whose
    reports contradict their traffic, and why. `leaders`: a sentence if several leaders recorded at the same time.
    """

    date: str
    why: str = ""
    cycles: int = 0
    missing: int = 0
    dropped: int = 0
    doubles: int = 0
    misplaced: int = 0
    broken: int = 0
    unreadable: int = 0
    nan: int = 0
    negative: int = 0
    absurd: int = 0
    brokers: int = 0
    bundles: int = 0
    moves: int = 0
    first_ms: int = 0
    last_ms: int = 0
    interval_seconds: float = 0.0
    coverage: float = 0.0
    longest_gap_minutes: float = 0.0
    set_back_minutes: float = 0.0
    silent: float = 0.0
    imbalance: float = 0.0
    messages: float = 0.0
    bytes: float = 0.0
    lying: Mapping[str, str] | None = None
    leaders: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedDay:
    """A day and its verdict: good, bad, or partial (the first or last day, which is incomplete without a fault)."""

    day: DayFigures
    verdict: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRules:
    """Requirements for the history. `leave_out`: days that an operator excluded."""

    min_days: int = 7
    min_coverage: float = 0.9
    leave_out: frozenset[str] = frozenset()


class UnfitHistory(HistoryError):
    """The history cannot be used for a calibration. `code`: name of the reason for programs; `figures`: its values."""

    code = "Refused"

    def __init__(self, message: str, *, figures: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.figures = dict(figures)


class TooLittleHistory(UnfitHistory):
    """There are fewer good days than required."""

    code = Code.TOO_LITTLE_HISTORY.value


class BadDays(UnfitHistory):
    """There are recorded days with faults, such as missing cycles or impossible values."""

    code = "BadDays"


class OtherCluster(UnfitHistory):
    """The history is of several clusters, or of another cluster than the settings name."""

    code = Code.OTHER_CLUSTER.value


def day_of(row: Mapping[str, Any], lying: Mapping[str, str] | None) -> DayFigures:
    """Return the figures in a row of `quality.days`. Missing values are 0. `lying`: reasons by broker."""
    names = {item.name for item in fields(DayFigures)} - {"lying"}
    return DayFigures(**{name: row[name] for name in names if row.get(name) is not None}, lying=lying)


def find_parallel_leaders(periods: Iterable[HistoryPeriod]) -> dict[str, str]:
    """Return a sentence for each day on which two leaders recorded in parallel for hours.

    The cause is that two clusters record into one directory.
    """
    hours: dict[tuple[str, int], list[int]] = {}
    for item in periods:
        hours.setdefault((item.date, item.hour), []).append(item.epoch)
    shared = Counter((date, pair) for (date, _), epochs in hours.items() for pair in combinations(sorted(epochs), 2))
    return {
        date: f"leaders of terms {one} and {other} recorded the same {count} hours: two clusters in one directory?"
        for (date, (one, other)), count in sorted(shared.items(), reverse=True)
        if count > SHARED_HOURS
    }


def judge(days: Sequence[DayFigures], rules: HistoryRules) -> list[JudgedDay]:
    """Return a verdict for every day from the first to the last, also for days without records."""
    if not days:
        return []
    by_date = {day.date: day for day in days}
    first, last = min(by_date), max(by_date)
    judged = []
    for name in days_between(first, last):
        day = by_date.get(name, DayFigures(date=name))
        reasons = _reasons(day)
        short = day.coverage < rules.min_coverage
        if short and name not in (first, last):
            part = f"{day.coverage:.1%} recorded, longest gap {day.longest_gap_minutes:.0f} min"
            reasons.append(part if day.cycles else "no usable cycle is recorded")
        elif not short:
            following = (date.fromisoformat(name) + timedelta(days=1)).isoformat()
            reasons += _lost(day, by_date.get(following))
        verdict = BAD if reasons else PARTIAL if short else GOOD
        if short and not reasons:
            reasons.append(f"{day.coverage:.1%} recorded: the {'first' if name == first else 'last'} day")
        judged.append(JudgedDay(day=day, verdict=verdict, reasons=tuple(reasons)))
    return judged


def days_between(first: str, last: str) -> list[str]:
    """Return every day from the first to the last."""
    start, end = date.fromisoformat(first), date.fromisoformat(last)
    return [(start + timedelta(days=number)).isoformat() for number in range((end - start).days + 1)]


def _lost(day: DayFigures, following: DayFigures | None) -> list[str]:
    """Return a reason if recorded cycles of half an hour or more are missing.

    A gap is counted at the first cycle after it, which can be on the following day.
    """
    missing = day.missing + (following.missing if following else 0)
    if min(missing * day.interval_seconds / 60, day.longest_gap_minutes) < LOST_MINUTES:
        return []
    return [f"{missing} recorded cycles are missing, longest gap {day.longest_gap_minutes:.0f} min"]


def _reasons(day: DayFigures) -> list[str]:
    reasons: list[str] = []
    for count, noun, text in (
        (day.unreadable, "unreadable file", ""),
        (day.broken, "cycle", " that cannot be rebuilt"),
        (day.doubles, "cycle", " recorded twice"),
        (day.misplaced, "cycle", " in the directory of another hour (UTC)"),
        (day.nan, "value", " that are not finite"),
        (day.negative, "negative value", ""),
        (day.absurd, "impossibly large value", ""),
    ):
        if count:
            # The example is of the first fault.
            example = f": {day.why}" if day.why and not reasons else ""
            reasons.append(f"{numbered(count, noun)}{text}{example}")
    if day.set_back_minutes >= SET_BACK_MINUTES:
        reasons.append(f"the leader's clock was set back by {day.set_back_minutes:.0f} minutes")
    if day.cycles and day.silent > SILENT:
        reasons.append(f"no traffic in {day.silent:.0%} of the cycles")
    if day.leaders:
        reasons.append(day.leaders)
    reasons += [f"{broker} contradicts itself: {why}" for broker, why in sorted((day.lying or {}).items())]
    return reasons


def accept(judged: Sequence[JudgedDay], rules: HistoryRules) -> list[JudgedDay]:
    """Return the good days. Raises TooLittleHistory or BadDays, with the values, if the history cannot be used."""
    good = [item for item in judged if item.verdict == GOOD and item.day.date not in rules.leave_out]
    bad = [item for item in judged if item.verdict == BAD and item.day.date not in rules.leave_out]
    figures = {
        "good_days": len(good),
        "min_days": rules.min_days,
        "span_days": len(judged),
        "cycles": sum(item.day.cycles for item in judged),
        "bad_days": {item.day.date: "; ".join(item.reasons) for item in bad},
    }
    if len(judged) < rules.min_days:
        days = numbered(len(judged), "day")
        text = f"{figures['cycles']} cycles of {days}; {rules.min_days} good days are needed"
        raise TooLittleHistory(text, figures=figures)
    if bad:
        examples = ", ".join(f"{item.day.date} ({'; '.join(item.reasons)})" for item in bad[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        omit = f"to omit a day: --leave-out {bad[0].day.date}"
        raise BadDays(f"{numbered(len(bad), 'bad day')} of {len(judged)}: {examples}{more}; {omit}", figures=figures)
    if len(good) < rules.min_days:
        raise TooLittleHistory(f"{len(good)} good days; {rules.min_days} are needed", figures=figures)
    for noun in ("broker", "bundle"):
        if (count := max(getattr(item.day, f"{noun}s") for item in good)) < 2:
            have = f"the {len(good)} good days have {numbered(count, noun)}; at least 2 are needed"
            raise TooLittleHistory(f"{have}, because a bundle moves to another broker", figures=figures)
    return good


def find_liars(brokers: Collection[str], slices: Mapping[str, Floats]) -> dict[str, str]:
    """Return the brokers whose usage contradicts their traffic on one day, and why.

    `slices`: arrays with one value per ten minutes of one broker: `broker` (index in `brokers`), `usage` (CPU in
    percent of a core), `carried` (bytes/s in and out, sum over the bundles) and `told` (bytes/s as the broker reports).
    Only brokers with at least half a day of values are checked, and only if there are at least three.
    """
    names, usage, carried, reported = list(brokers), slices["usage"], slices["carried"], slices["told"]
    # Skip NaN and infinite values: `digest.find_impossible` counts them.
    finite = np.isfinite(usage) & np.isfinite(carried) & np.isfinite(reported)
    rows = np.where(finite, slices["broker"], -1).astype(np.int64)
    parts = {
        number: part for number in range(len(names)) if len(part := np.flatnonzero(rows == number)) >= LEAST_SLICES
    }
    if len(parts) < LEAST_BROKERS:
        return {}
    level = float(np.median([np.median(carried[part]) for part in parts.values()]))
    reasons: dict[int, str] = {}
    for number, part in parts.items():
        if why := _misreported(carried[part], reported[part], 0.05 * level):
            reasons[number] = why
    reasons = _outliers(parts, usage, carried) | _contrary(parts, usage, carried) | reasons
    return {names[number]: why for number, why in reasons.items()}


def _misreported(carried: Floats, reported: Floats, least: float) -> str:
    measured, own_value = float(np.median(carried)), float(np.median(reported))
    low, high = sorted((measured, own_value))
    if high <= least or low * TOLD >= high:
        return ""
    return f"it reports {figure(own_value, 3)} bytes/s, its bundles sum up to {figure(measured, 3)}"


def _outliers(parts: Mapping[int, Ints], usage: Floats, carried: Floats) -> dict[int, str]:
    """Return brokers whose CPU differs too much from what the other brokers need for the same traffic, and why."""
    together = np.concatenate(list(parts.values()))
    if not np.any(usage[together] > 0):
        return {}
    # The repeated median ignores a minority of wrong points. Its time grows with the square of their number.
    sample = together[:: 1 + len(together) // _MOST_POINTS]
    slope, base = stats.siegelslopes(usage[sample], carried[sample])
    negligible = 0.05 * float(np.median(usage[together])) + 0.1
    ratios = {
        number: float(
            np.median((usage[part] + negligible) / (np.maximum(base + slope * carried[part], 0.0) + negligible))
        )
        for number, part in parts.items()
    }
    distances = np.log(np.maximum(list(ratios.values()), 1e-9))
    middle = float(np.median(distances))
    limit = max(float(np.log(FACTOR)), DEVIATIONS * 1.4826 * float(np.median(np.abs(distances - middle))))
    return {
        number: f"its CPU for its traffic is {figure(float(np.exp(distance - middle)), 2)} times that of the others"
        for number, distance in zip(ratios, distances.tolist(), strict=True)
        if abs(distance - middle) > limit
    }


def _contrary(parts: Mapping[int, Ints], usage: Floats, carried: Floats) -> dict[int, str]:
    """Return brokers whose CPU falls when their traffic rises, if the CPU of most brokers rises with traffic."""
    follows = {number: _correlation(usage[part], carried[part]) for number, part in parts.items()}
    finite = [value for value in follows.values() if np.isfinite(value)]
    if len(finite) < LEAST_BROKERS or float(np.median(finite)) <= 0.5:
        return {}
    return {
        number: f"its CPU falls when its traffic rises (correlation {value:.2f})"
        for number, value in follows.items()
        if value < -0.5
    }


def _correlation(usage: Floats, carried: Floats) -> float:
    """Return the correlation of CPU and traffic; NaN if the traffic is steady."""
    level = float(np.median(carried))
    if level <= 0 or not np.std(carried) >= 0.1 * level or not np.std(usage) > 0:
        return float("nan")
    return float(np.corrcoef(usage, carried)[0, 1])
