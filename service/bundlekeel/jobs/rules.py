"""When history is good enough to calibrate on: rules on a day's figures, and the refusals. No Spark here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from itertools import combinations
from typing import Any, Final

import numpy as np

from bundlekeel.core.calibration.thresholds import HIT_COUNTS
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import HistoryError
from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.text_format import figure
from bundlekeel.jobs.periods import HistoryPeriod
from bundlekeel.jobs.regression import fit_huber

GOOD = "good"
PARTIAL = "partial"
BAD = "bad"

# More than so much of a day without any traffic at all is an outage of the recording, not of the applications.
SILENT: Final = 0.9
# So many minutes of cycles that were recorded (their numbers are missing) and are gone: files were lost.
LOST_MINUTES: Final = 30.0
# A leader and its successor share the hour of the change, and one more where clocks differ.
SHARED_HOURS: Final = 2
# A broker whose usage for its traffic is this many times that of the others, and far outside of their own spread.
FACTOR: Final = 5.0
DEVIATIONS: Final = 6.0
# Slices (of ten minutes) and brokers that a judgement on usage and traffic needs: half a day, others to compare with.
LEAST_SLICES: Final = 72
LEAST_BROKERS: Final = 3
# What a broker says of its own traffic against the sum over its bundles.
TOLD: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFigures:
    """One UTC day in figures, as columns of `DAYS`, with the brokers that lie (broker -> why) and `leaders`, a sentence
    where several recorded at once."""

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
    silent: float = 0.0
    imbalance: float = 0.0
    messages: float = 0.0
    bytes: float = 0.0
    lying: Mapping[str, str] | None = None
    leaders: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedDay:
    """A day and whether it may be calibrated on. partial: the first or last day, simply not whole."""

    day: DayFigures
    verdict: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRules:
    """What is asked of the history. `leave_out`: days that a person has looked at and excluded."""

    min_days: int = 7
    min_coverage: float = 0.9
    leave_out: frozenset[str] = frozenset()


class UnfitHistory(HistoryError):
    """The history is not fit for a calibration. `code`: a name for programs; `figures`: what it rests on."""

    code = "Refused"

    def __init__(self, message: str, *, figures: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.figures = dict(figures)


class TooLittleHistory(UnfitHistory):
    """There are fewer good days than asked for."""

    code = Code.TOO_LITTLE_HISTORY.value


class BadDays(UnfitHistory):
    """Days between the first and the last one are not to be trusted."""

    code = "BadDays"


class OtherCluster(UnfitHistory):
    """The history is that of several clusters, or of another one than asked for."""

    code = Code.OTHER_CLUSTER.value


def day_of(row: Mapping[str, Any], lying: Mapping[str, str] | None = None) -> DayFigures:
    """A day of a row of `DAYS`; figures that are not there count as 0."""
    names = {item.name for item in fields(DayFigures)} - {"lying"}
    return DayFigures(**{name: row[name] for name in names if row.get(name) is not None}, lying=lying)


def at_once(periods: Iterable[HistoryPeriod]) -> dict[str, str]:
    """Days on which two leaders recorded side by side for hours, and a sentence: two clusters in one folder."""
    hours: dict[tuple[str, int], list[int]] = {}
    for item in periods:
        hours.setdefault((item.date, item.hour), []).append(item.epoch)
    shared = Counter((date, pair) for (date, _), epochs in hours.items() for pair in combinations(sorted(epochs), 2))
    return {
        date: f"leaders of terms {one} and {other} recorded the same {count} hours: two clusters in one folder?"
        for (date, (one, other)), count in sorted(shared.items(), reverse=True)
        if count > SHARED_HOURS
    }


def judge(days: Sequence[DayFigures], rules: HistoryRules) -> list[JudgedDay]:
    """A verdict for every day from the first to the last, also for those of which nothing is recorded."""
    if not days:
        return []
    known = {day.date: day for day in days}
    first, last = min(known), max(known)
    found = []
    for name in days_between(first, last):
        day = known.get(name, DayFigures(date=name))
        reasons = _reasons(day)
        short = day.coverage < rules.min_coverage
        if short and name not in (first, last):
            reasons.append(f"{day.coverage:.1%} recorded, longest gap {day.longest_gap_minutes:.0f} min")
        elif not short:
            reasons += _lost(day, known.get(_day_after(name)))
        verdict = BAD if reasons else PARTIAL if short else GOOD
        if short and not reasons:
            reasons.append(f"{day.coverage:.1%} recorded: the {'first' if name == first else 'last'} day")
        found.append(JudgedDay(day=day, verdict=verdict, reasons=tuple(reasons)))
    return found


def days_between(first: str, last: str) -> list[str]:
    """Every day from the first to the last."""
    start, end = date.fromisoformat(first), date.fromisoformat(last)
    return [(start + timedelta(days=number)).isoformat() for number in range((end - start).days + 1)]


def _day_after(name: str) -> str:
    return (date.fromisoformat(name) + timedelta(days=1)).isoformat()


def _lost(day: DayFigures, following: DayFigures | None) -> list[str]:
    """Hours that were recorded and are gone. The first cycle after them tells, which may be the next day's."""
    missing = day.missing + (following.missing if following else 0)
    if min(missing * day.interval_seconds / 60, day.longest_gap_minutes) < LOST_MINUTES:
        return []
    return [f"{missing} recorded cycles are missing, longest gap {day.longest_gap_minutes:.0f} min"]


def _reasons(day: DayFigures) -> list[str]:
    found = []
    said = f" ({day.why})" if day.why else ""
    for count, text in (
        (day.unreadable, f"files cannot be read{said}"),
        (day.broken, f"cycles cannot be rebuilt{said}"),
        (day.doubles, "cycles are there twice"),
        (day.misplaced, "cycles are in the folder of another hour"),
        (day.nan, "values are no numbers"),
        (day.negative, "values are below zero"),
        (day.absurd, "values are impossibly large"),
    ):
        if count:
            found.append(f"{count} {text}")
    if day.cycles and day.silent > SILENT:
        found.append(f"no traffic at all in {day.silent:.0%} of the cycles")
    if day.leaders:
        found.append(day.leaders)
    found += [f"{broker} contradicts itself: {why}" for broker, why in sorted((day.lying or {}).items())]
    return found


def usual_interval(good: Sequence[JudgedDay]) -> float:
    """Seconds between two cycles on the middle one of these days."""
    return sorted(item.day.interval_seconds for item in good)[len(good) // 2]


def without_hits(period: float, usual: float) -> dict[str, str]:
    """Hit counts, and why they cannot be searched; nothing where a period is within a fifth of a recorded cycle."""
    if abs(period - usual) <= 0.2 * usual:
        return {}
    recorded = figure(usual, 3)
    why = (
        f"hit counts depend on the time between two cycles: {recorded} s as recorded, {figure(period, 3)} s in the "
        f"back-test; with --period {recorded} they are searched"
    )
    return dict.fromkeys(HIT_COUNTS, why)


def accept(judged: Sequence[JudgedDay], rules: HistoryRules) -> list[JudgedDay]:
    """The good days. TooLittleHistory, BadDays: the history is refused, with the figures."""
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
        text = f"{figures['cycles']} cycles of {len(judged)} days; {rules.min_days} good days are needed"
        raise TooLittleHistory(text, figures=figures)
    if bad:
        said = ", ".join(f"{item.day.date} ({'; '.join(item.reasons)})" for item in bad[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise BadDays(f"{len(bad)} of {len(judged)} days are bad: {said}{more}", figures=figures)
    if len(good) < rules.min_days:
        raise TooLittleHistory(f"{len(good)} good days; {rules.min_days} are needed", figures=figures)
    return good


def liars(brokers: Collection[str], slices: Mapping[str, Floats]) -> dict[str, str]:
    """Brokers whose usage contradicts their traffic on one day, and why.

    `slices`: one value a ten minutes each, aligned: `broker` (row of `brokers`), `usage` (CPU in percent of a core),
    `carried` and `told` (bytes/s in and out of its bundles, and as the broker says). Judged is only a broker with half
    a day of slices, among three or more.
    """
    names, usage, carried, told = list(brokers), slices["usage"], slices["carried"], slices["told"]
    # What is no number is counted elsewhere.
    finite = np.isfinite(usage) & np.isfinite(carried) & np.isfinite(told)
    rows = np.where(finite, slices["broker"], -1).astype(np.int64)
    parts = {
        number: part for number in range(len(names)) if len(part := np.flatnonzero(rows == number)) >= LEAST_SLICES
    }
    if len(parts) < LEAST_BROKERS:
        return {}
    level = float(np.median([np.median(carried[part]) for part in parts.values()]))
    found: dict[int, str] = {}
    for number, part in parts.items():
        if why := _mistold(carried[part], told[part], 0.05 * level):
            found[number] = why
    found = _outliers(parts, usage, carried) | _contrary(parts, usage, carried) | found
    return {names[number]: why for number, why in found.items()}


def _mistold(carried: Floats, told: Floats, least: float) -> str:
    seen, said = float(np.median(carried)), float(np.median(told))
    low, high = sorted((seen, said))
    if high <= least or low * TOLD >= high:
        return ""
    return f"it reports {figure(said, 3)} bytes/s, its bundles sum up to {figure(seen, 3)}"


def _outliers(parts: Mapping[int, Ints], usage: Floats, carried: Floats) -> dict[int, str]:
    """Usage against what all brokers together need for that traffic, base load included."""
    together = np.concatenate(list(parts.values()))
    if not np.any(usage[together] > 0):
        return {}
    line = fit_huber(carried[together][:, None], usage[together])
    dust = 0.05 * float(np.median(usage[together])) + 0.1
    ratios = {
        number: float(np.median((usage[part] + dust) / (np.maximum(line.predict(carried[part][:, None]), 0.0) + dust)))
        for number, part in parts.items()
    }
    apart = np.log(np.maximum(list(ratios.values()), 1e-9))
    middle = float(np.median(apart))
    limit = max(float(np.log(FACTOR)), DEVIATIONS * 1.4826 * float(np.median(np.abs(apart - middle))))
    return {
        number: f"its CPU for its traffic is {figure(float(np.exp(far - middle)), 2)} times that of the others"
        for number, far in zip(ratios, apart.tolist(), strict=True)
        if abs(far - middle) > limit
    }


def _contrary(parts: Mapping[int, Ints], usage: Floats, carried: Floats) -> dict[int, str]:
    """CPU that falls when the traffic rises, where that of the others rises."""
    follows = {number: _follows(usage[part], carried[part]) for number, part in parts.items()}
    known = [value for value in follows.values() if np.isfinite(value)]
    if len(known) < LEAST_BROKERS or float(np.median(known)) <= 0.5:
        return {}
    return {
        number: f"its CPU falls when its traffic rises (correlation {value:.2f})"
        for number, value in follows.items()
        if value < -0.5
    }


def _follows(usage: Floats, carried: Floats) -> float:
    """Correlation of CPU and traffic; not a number where the traffic is steady."""
    level = float(np.median(carried))
    if level <= 0 or not np.std(carried) >= 0.1 * level or not np.std(usage) > 0:
        return float("nan")
    return float(np.corrcoef(usage, carried)[0, 1])
