"""Build the content of `thresholds.json` from the results of the back-tests."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np
import scipy

from bundlekeel import __version__
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import figure
from bundlekeel.recalibration.backtest import Candidate
from bundlekeel.recalibration.backtest.choice import Choice, TriedCandidates, of_days
from bundlekeel.recalibration.backtest.intervals import LEVEL, measures_of
from bundlekeel.recalibration.backtest.search import NATIVES, SearchDepth
from bundlekeel.recalibration.rules.thresholds import RANGES, Data, Evidence, HeldOutMeasures, Proposed, Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceInput:
    """Everything from which `thresholds.json` is built.

    `tried`: all candidates and their measures, Pulsar's own classes included. `held_out`: dates of the held-out days,
    by day since 1970-01-01. `limits`: why the gain is not larger.
    """

    base: Parameters
    choice: Choice
    tried: TriedCandidates
    held_out: dict[int, str]
    depth: SearchDepth
    created_ms: int
    limits: tuple[str, ...]
    data: Data
    cluster: str = ""

    def on_held_out(self, candidate: Candidate, before: Candidate | None = None) -> HeldOutMeasures:
        """Return a candidate's measures on the held-out days; with `before`, the difference of both."""
        other = None if before is None else of_days(self.tried.results[before.key], self.held_out)
        days = of_days(self.tried.results[candidate.key], self.held_out)
        return measures_of(days, seed=self.depth.seed, before=other)

    @property
    def present(self) -> Candidate:
        """The present settings."""
        return self.tried.candidates[self.tried.present]


def thresholds_of(inputs: EvidenceInput, *, pyspark: str) -> Thresholds:
    """Return the content of `thresholds.json`. `pyspark`: version of PySpark, for the record."""
    chosen, present = inputs.choice.candidate, inputs.present
    by_name = {item.name: item for item in inputs.tried.candidates.values()}
    evidence = Evidence(
        held_out=tuple(inputs.held_out.values()),
        prefer=inputs.depth.prefer,
        placements=inputs.depth.placements,
        confidence=LEVEL,
        previous=inputs.on_held_out(present),
        chosen=inputs.on_held_out(chosen),
        difference=inputs.on_held_out(chosen, present),
        strategies={name: inputs.on_held_out(by_name[name]) for name in NATIVES if name in by_name},
    )
    software = {
        "bundlekeel": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "pyspark": pyspark,
    }
    return Thresholds(
        created_ms=inputs.created_ms,
        software=", ".join(f"{name} {release}" for name, release in software.items()),
        strategy=inputs.base.strategy,
        decision=inputs.choice.decision,
        parameters=_proposed(inputs),
        evidence=evidence,
        data=inputs.data,
        advice=inputs.limits,
        cluster=inputs.cluster,
    )


def _proposed(inputs: EvidenceInput) -> dict[str, Proposed]:
    """Return every searched parameter, changed or not."""
    tested: dict[str, set[float]] = {}
    for item in inputs.tried.candidates.values():
        if item.name not in NATIVES:
            for name, value in item.changes.items():
                tested.setdefault(name, set()).add(float(value))
    changes, proposals = inputs.choice.candidate.changes, dict[str, Proposed]()
    for name in (name for name in RANGES if name in tested):
        now, limits = getattr(inputs.base, name), RANGES[name]
        values = [figure(value) for value in sorted(tested[name] - {float(now)})]
        tried = f"{', '.join(values[:8])}{', ...' if len(values) > 8 else ''}"
        proposals[name] = Proposed(
            value=changes.get(name, now),
            previous=now,
            minimum=limits.minimum,
            maximum=limits.maximum,
            step=limits.step,
            evidence=f"other values were tried: {tried}" if name not in changes else inputs.choice.decision,
        )
    return proposals
