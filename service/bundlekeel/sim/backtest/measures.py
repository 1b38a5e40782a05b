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
    """Sums of one candidate over some periods: `a + b` is both together, `CandidateMeasures()` is empty.

    seconds: counted time. weighted: imbalance (max/mean - 1 of the brokers' scores) times seconds. moves, splits:
    executed ones. moved_sessions: producers and consumers of the moved bundles. overloaded_minutes: minutes with a
    broker above 85 %. thrash: how far scores went up and down beyond their trend within each hour, per broker, in
    percent of the mean. periods: snapshots counted. plans: snapshots that were planned on. refused: bundles that a
    plan refused, summed over the plans.
    """

    seconds: float = 0.0
    weighted: float = 0.0
    moves: float = 0.0
    moved_sessions: float = 0.0
    splits: float = 0.0
    overloaded_minutes: float = 0.0
    thrash: float = 0.0
    periods: float = 0.0
    plans: float = 0.0
    refused: float = 0.0

    def __add__(self, other: CandidateMeasures) -> CandidateMeasures:
        return CandidateMeasures(**{name: getattr(self, name) + getattr(other, name) for name in FIGURES})

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
    def moves_per_day(self) -> float:
        """Moves in a day of counted time; 0 of no time."""
        return self.per_day(self.moves)

    def per_day(self, figure: float) -> float:
        """One of the figures by day of counted time; 0 of no time."""
        return figure * DAY_SECONDS / self.seconds if self.seconds else 0.0

    def row(self) -> dict[str, float]:
        """Return the measures as a row of a table, with the columns `FIGURES`."""
        return {name: float(getattr(self, name)) for name in FIGURES}

    @staticmethod
    def of_row(row: Mapping[str, float]) -> CandidateMeasures:
        """Return the opposite of `row`; further columns are ignored. Raises KeyError if a column is missing."""
        return CandidateMeasures(**{name: float(row[name]) for name in FIGURES})


# By number of the block: a stretch of history (some hours) that every candidate plays from the same beginning.
ByBlock = Mapping[int, CandidateMeasures]
FIGURES: Final = tuple(item.name for item in fields(CandidateMeasures))


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
    over = (takes & (used > OVER)).any(axis=1)
    swings = (thrash(used[hours == hour], takes[hours == hour]) for hour in np.unique(hours))
    return CandidateMeasures(
        seconds=float(seconds.sum()),
        weighted=float((found * seconds).sum()),
        overloaded_minutes=float((over * seconds).sum() / 60),
        thrash=float(sum(swings)),
        periods=float(len(seconds)),
    )
