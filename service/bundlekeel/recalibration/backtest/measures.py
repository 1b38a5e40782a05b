"""Candidates (settings that a back-test runs) and their measures, which can be added over parts of the runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from bundlekeel.model.parameters import Parameters, coerce, in_form

DAY_SECONDS: Final = 86_400.0

Value = bool | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Settings to test: the recorded settings with some changes.

    `changes`: parameter values by Bundlekeel's names; empty: the recorded settings.
    """

    name: str
    changes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The settings as JSON: equal for equal settings."""
        return json.dumps(dict(sorted(self.changes.items())), separators=(",", ":"))

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
        return json.dumps({"name": self.name, "changes": dict(self.changes)}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Candidate:
        """Parse the result of `to_json`."""
        return Candidate(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateMeasures:
    """Sums of one candidate over some time: `a + b` is the sum of both, `CandidateMeasures()` is empty.

    seconds: counted time. weighted: imbalance (max/mean - 1 of the brokers' scores) times seconds. client_seconds:
    moved producers and consumers, times the seconds that each was without service. moves, splits: number of executed
    moves and splits. overloaded_minutes: minutes with a broker above 85 %. plans: number of plans. Drains, warm-ups and
    repairs count neither as moves nor in client_seconds.
    """

    seconds: float = 0.0
    weighted: float = 0.0
    client_seconds: float = 0.0
    moves: float = 0.0
    splits: float = 0.0
    overloaded_minutes: float = 0.0
    plans: float = 0.0

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


# A part of a candidate's runs: initial owners (`run.RECORDED`, or a seed), and days since 1970-01-01.
RunDay = tuple[int, int]
ByRunDay = Mapping[RunDay, CandidateMeasures]
FIGURES: Final = tuple(item.name for item in fields(CandidateMeasures))
