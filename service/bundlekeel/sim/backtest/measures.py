"""Candidates: the settings that a back-test tries, and what they are judged by, in figures that add up (those of two
chunks together are the sum of both)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

import numpy as np

from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.parameters import Parameters, coerce, in_form
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.sim.measures import OVER, imbalance, thrash

DAY_SECONDS: Final = 86_400.0
# Bins of the imbalance: below the first edge, then each 15 % wider; the last one is open. p95 is exact within a bin.
BINS: Final = 64
_FIRST: Final = 0.001
_RATIO: Final = 1.15
_EDGES: Final = _FIRST * _RATIO ** np.arange(BINS - 1)

Value = bool | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Changes of the recorded settings. `changes`: parameters by our names; none: what holds now. `cycle_seconds`: how
    often it plans; 0: at every period."""

    name: str
    changes: Mapping[str, Value] = field(default_factory=dict)
    cycle_seconds: float = 0.0

    @property
    def key(self) -> str:
        """The same settings, the same key: their JSON."""
        settings = {"changes": dict(sorted(self.changes.items())), "cycle_seconds": float(self.cycle_seconds)}
        return json.dumps(settings, separators=(",", ":"))

    def params(self, base: Parameters) -> Parameters:
        """The recorded parameters with the changes. ConfigError for an unknown name or a value out of range.

        Another strategy than the recorded one is the corrected form, unless `compat` is among the changes.
        """
        coerced = {name: coerce(name, value) for name, value in self.changes.items()}
        if coerced.get("strategy", base.strategy) != base.strategy:
            coerced.setdefault("compat", "none")
        return replace(in_form(base, str(coerced.get("compat", base.compat))), **coerced)  # type: ignore[arg-type]

    def to_json(self) -> str:
        """All of it, for a row of a table."""
        whole = {"name": self.name, "changes": dict(self.changes), "cycle_seconds": self.cycle_seconds}
        return json.dumps(whole, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Candidate:
        """The opposite of `to_json`."""
        found = json.loads(text)
        return Candidate(name=found["name"], changes=found["changes"], cycle_seconds=found["cycle_seconds"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateMeasures:
    """One candidate over some periods. Everything is a sum; `a + b` is both together, `CandidateMeasures()` is nothing.

    seconds: counted time. weighted: imbalance (max/mean - 1 of the brokers' scores) times seconds. histogram: seconds
    by imbalance. moves, splits: planned and carried out. moved_rate, moved_bytes, moved_sessions: msg/s, bytes/s,
    producers and consumers of what moved. moved_twice: moves of a bundle that had moved within the hour before.
    over_minutes: minutes times brokers above 85 %; overloaded_minutes: minutes with any. thrash: how far scores went
    up and down beyond their trend within each hour, per broker, in percent of the mean. periods: pictures counted.
    plans: how many of them were planned on. refused: bundles that a plan left alone, by plan.
    """

    seconds: float = 0.0
    weighted: float = 0.0
    moves: float = 0.0
    moved_rate: float = 0.0
    moved_bytes: float = 0.0
    moved_sessions: float = 0.0
    moved_twice: float = 0.0
    splits: float = 0.0
    over_minutes: float = 0.0
    overloaded_minutes: float = 0.0
    thrash: float = 0.0
    periods: float = 0.0
    plans: float = 0.0
    refused: float = 0.0
    histogram: tuple[float, ...] = (0.0,) * BINS

    def __add__(self, other: CandidateMeasures) -> CandidateMeasures:
        figures = {name: getattr(self, name) + getattr(other, name) for name in FIGURES}
        together = tuple(a + b for a, b in zip(self.histogram, other.histogram, strict=True))
        return CandidateMeasures(**figures, histogram=together)

    @staticmethod
    def sum(parts: Iterable[CandidateMeasures]) -> CandidateMeasures:
        """All of these together."""
        found = CandidateMeasures()
        for part in parts:
            found = found + part
        return found

    @property
    def imbalance(self) -> float:
        """The time mean of max/mean - 1; 0 of no time."""
        return self.weighted / self.seconds if self.seconds else 0.0

    @property
    def p95(self) -> float:
        """The imbalance that 95 % of the time stayed below, to within a bin (15 %)."""
        total = np.cumsum(self.histogram)
        if not total[-1]:
            return 0.0
        place = int(np.searchsorted(total, 0.95 * total[-1]))
        before = float(total[place - 1]) if place else 0.0
        share = (0.95 * float(total[-1]) - before) / self.histogram[place]
        low, high = _bounds(place)
        return float(low + share * (high - low))

    @property
    def moves_per_day(self) -> float:
        """Moves in a day of counted time; 0 of no time."""
        return self.per_day(self.moves)

    def per_day(self, figure: float) -> float:
        """One of the figures by day of counted time; 0 of no time."""
        return figure * DAY_SECONDS / self.seconds if self.seconds else 0.0

    def row(self) -> dict[str, float]:
        """Flat figures by column, as a row of a table: `COLUMNS`."""
        bins = {name: float(value) for name, value in zip(_BIN_NAMES, self.histogram, strict=True)}
        return {name: float(getattr(self, name)) for name in FIGURES} | bins

    @staticmethod
    def of_row(row: Mapping[str, float]) -> CandidateMeasures:
        """The opposite of `row`; further columns are not looked at. KeyError when one is missing."""
        figures = {name: float(row[name]) for name in FIGURES}
        return CandidateMeasures(**figures, histogram=tuple(float(row[name]) for name in _BIN_NAMES))


# By number of the block: a stretch of history (some hours) that every candidate plays from the same beginning.
ByBlock = Mapping[int, CandidateMeasures]
FIGURES: Final = tuple(item.name for item in fields(CandidateMeasures) if item.name != "histogram")
_BIN_NAMES: Final = tuple(f"h_{number:02d}" for number in range(BINS))
# Names of a row's columns, in order; all are floats.
COLUMNS: Final = (*FIGURES, *_BIN_NAMES)


def measured(used: Floats, takes: Bools, seconds: Floats, hours: Ints) -> CandidateMeasures:
    """The part of the measures that brokers' scores give. `used`, `takes` (periods, brokers): score as a ratio, and
    whether the broker was there; `seconds` (periods,): how long each picture stood; `hours` (periods,): which hour it
    is of. Periods without brokers count not.
    """
    there = takes.any(axis=1)
    used, takes, seconds, hours = used[there], takes[there], seconds[there], hours[there]
    if len(seconds) == 0:
        return CandidateMeasures()
    found = np.maximum(imbalance(used, takes) - 1.0, 0.0)
    counted = np.bincount(np.searchsorted(_EDGES, found, side="right"), weights=seconds, minlength=BINS)
    over = (takes & (used > OVER)).sum(axis=1)
    swings = (thrash(used[hours == hour], takes[hours == hour]) for hour in np.unique(hours))
    return CandidateMeasures(
        seconds=float(seconds.sum()),
        weighted=float((found * seconds).sum()),
        over_minutes=float((over * seconds).sum() / 60),
        overloaded_minutes=float(((over > 0) * seconds).sum() / 60),
        thrash=float(sum(swings)),
        periods=float(len(seconds)),
        histogram=tuple(counted.tolist()),
    )


def _bounds(place: int) -> tuple[float, float]:
    """From where to where a bin goes; the open one ends where it would if it were none."""
    low = 0.0 if place == 0 else float(_EDGES[place - 1])
    return low, _FIRST if place == 0 else low * _RATIO
