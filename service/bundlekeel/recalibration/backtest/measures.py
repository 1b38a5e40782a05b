"""Candidates (settings that a back-test runs) and their measures, which can be added over parts of the history."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.parameters import Parameters, coerce, in_form
from bundlekeel.model.snapshot import Bools
from bundlekeel.simulator.measures import OVER, imbalance, thrash

DAY_SECONDS: Final = 86_400.0

Value = bool | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Settings to test: the recorded settings with some changes.

    `changes`: parameter values by Bundlekeel's names; empty: the recorded settings. `cycle_seconds`: seconds between
    two plans; 0: one plan per period.
    """

    name: str
    changes: Mapping[str, Value] = field(default_factory=dict)
    cycle_seconds: float = 0.0

    @property
    def key(self) -> str:
        """The settings as JSON: equal for equal settings."""
        settings = {"changes": dict(sorted(self.changes.items())), "cycle_seconds": float(self.cycle_seconds)}
        return json.dumps(settings, separators=(",", ":"))

    def params(self, base: Parameters) -> Parameters:
        """Return the recorded parameters `base` with the changes.

        If the changes select another strategy and do not set `compat`, the result has `compat` "none". Raises
        ConfigError if a name is unknown or a value is out of range.
        """
        coerced = {name: coerce(name, value) for name, value in self.changes.items()}
        if coerced.get("strategy", base.strategy) != base.strategy:
            coerced.setdefault("compat", "none")
        return replace(in_form(base, str(coerced.get("compat", base.compat))), **coerced)  # type: ignore[arg-type]

    def to_json(self) -> str:
        """Return the candidate as JSON, for a row of a table."""
        whole = {"name": self.name, "changes": dict(self.changes), "cycle_seconds": self.cycle_seconds}
        return json.dumps(whole, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Candidate:
        """Parse the result of `to_json`."""
        fields = json.loads(text)
        return Candidate(name=fields["name"], changes=fields["changes"], cycle_seconds=fields["cycle_seconds"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateMeasures:
    """Sums of one candidate over some periods: `a + b` is the sum of both, `CandidateMeasures()` is empty.

    seconds: counted time. weighted: imbalance (max/mean - 1 of the brokers' scores) times seconds. moves, splits:
    number of executed moves and splits. moved_sessions: producers and consumers of the moved bundles.
    overloaded_minutes: minutes with a broker above 85 %. thrash: changes of scores beyond their trend within each hour,
    per broker, in percent of the mean. periods: counted snapshots. plans: number of plans. refused: refused bundles,
    summed over the plans.
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
        """Return the sum of these measures."""
        total = CandidateMeasures()
        for part in parts:
            total = total + part
        return total

    @property
    def imbalance(self) -> float:
        """Mean over time of the imbalance (max/mean - 1 of the brokers' scores); 0 without counted time."""
        return self.weighted / self.seconds if self.seconds else 0.0

    @property
    def moves_per_day(self) -> float:
        """Moves per day of counted time; 0 without counted time."""
        return self.per_day(self.moves)

    def per_day(self, figure: float) -> float:
        """Convert a sum over the counted time to a value per day; 0 without counted time."""
        return figure * DAY_SECONDS / self.seconds if self.seconds else 0.0

    def row(self) -> dict[str, float]:
        """Return the measures as a row of a table, with the columns `FIGURES`."""
        return {name: float(getattr(self, name)) for name in FIGURES}

    @staticmethod
    def of_row(row: Mapping[str, float]) -> CandidateMeasures:
        """Return the measures in a table row. Other columns are ignored. Raises KeyError if a column is missing."""
        return CandidateMeasures(**{name: float(row[name]) for name in FIGURES})


# Measures of one candidate by block number. A block is some hours of history.
ByBlock = Mapping[int, CandidateMeasures]
FIGURES: Final = tuple(item.name for item in fields(CandidateMeasures))


def measure_scores(used: Floats, takes: Bools, seconds: Floats, hours: Ints) -> CandidateMeasures:
    """Return the measures that depend on brokers' scores. Periods without brokers do not count.

    `used`, `takes` (periods, brokers): score as a ratio, and whether the broker was present; `seconds`, `hours`
    (periods,): duration and hour of each period.
    """
    there = takes.any(axis=1)
    used, takes, seconds, hours = used[there], takes[there], seconds[there], hours[there]
    if len(seconds) == 0:
        return CandidateMeasures()
    imbalances = np.maximum(imbalance(used, takes) - 1.0, 0.0)
    over = (takes & (used > OVER)).any(axis=1)
    swings = (thrash(used[hours == hour], takes[hours == hour]) for hour in np.unique(hours))
    return CandidateMeasures(
        seconds=float(seconds.sum()),
        weighted=float((imbalances * seconds).sum()),
        overloaded_minutes=float((over * seconds).sum() / 60),
        thrash=float(sum(swings)),
        periods=float(len(seconds)),
    )
