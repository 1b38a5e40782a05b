"""Builds the content of `thresholds.json` from the results of the back-tests. No Spark here."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bundlekeel import __version__
from bundlekeel.core.calibration import thresholds as core
from bundlekeel.core.calibration.thresholds import RANGES, searched
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.text_format import figure
from bundlekeel.sim.backtest import Candidate, CandidateMeasures
from bundlekeel.sim.backtest.intervals import LEVEL, measures_of
from bundlekeel.sim.backtest.measures import ByBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceInput:
    """Everything that goes into the document. `blocks`: candidate's key -> its figures on held-out days; `searched`:
    on the days of the search. `unbroken`: of one unbroken run over the held-out days, of the present and the chosen
    one; empty where nothing changes.
    `reason`: what the chosen one brings, else why nothing changes. `period_seconds`: between two plans."""

    base: Parameters
    chosen: Candidate
    present: Candidate
    reason: str
    blocks: Mapping[str, ByBlock]
    strategies: Mapping[str, str]
    held_out: tuple[str, ...]
    data: core.Data
    created_ms: int
    period_seconds: float
    advice: tuple[str, ...]
    seed: int = 0
    tried: Mapping[str, Collection[float]] | None = None
    unbroken: Mapping[str, CandidateMeasures] = field(default_factory=dict)
    searched: Mapping[str, ByBlock] = field(default_factory=dict)
    cluster: str = ""


def thresholds_of(given: EvidenceInput, *, pyspark: str) -> core.Thresholds:
    """The document. `EvidenceInput.tried`: parameter -> values that were looked at."""
    previous, chosen = given.blocks[given.present.key], given.blocks[given.chosen.key]
    runs = {key: measures_of({0: found}, seed=given.seed) for key, found in given.unbroken.items()}
    evidence = core.Evidence(
        held_out=given.held_out,
        confidence=LEVEL,
        previous=measures_of(previous, seed=given.seed),
        chosen=measures_of(chosen, seed=given.seed),
        difference=measures_of(chosen, seed=given.seed, before=previous),
        strategies={name: measures_of(given.blocks[key], seed=given.seed) for name, key in given.strategies.items()},
        unbroken=core.Unbroken(previous=runs[given.present.key], chosen=runs[given.chosen.key]) if runs else None,
        period_seconds=given.period_seconds,
    )
    return core.Thresholds(
        created_ms=given.created_ms,
        software=", ".join(f"{name} {release}" for name, release in _software(pyspark).items()),
        strategy=given.base.strategy,
        parameters=_proposed(given),
        evidence=evidence,
        data=given.data,
        advice=given.advice,
        cluster=given.cluster,
    )


def _software(pyspark: str) -> dict[str, str]:
    python = platform.python_version()
    return {"bundlekeel": __version__, "python": python, "numpy": np.__version__, "pyspark": pyspark}


def _proposed(given: EvidenceInput) -> dict[str, core.Proposed]:
    found: dict[str, core.Proposed] = {}
    for name in searched(given.base.strategy):
        now, limits = getattr(given.base, name), RANGES[name]
        looked_at = sorted({float(value) for value in (given.tried or {}).get(name, ())} - {float(now)})
        changed = name in given.chosen.changes
        # A value in force outside of the range is proposed as it is only if it may be: else it is not this job's.
        if not changed and not limits.minimum <= float(now) <= limits.maximum:
            continue
        if not changed and not looked_at:
            continue
        value = given.chosen.changes[name] if changed else now
        assert isinstance(value, int | float)
        if changed:
            said = f"with the other changes: {given.reason}" if len(given.chosen.changes) > 1 else given.reason
        else:
            said = unchanged_sentence(looked_at)
        found[name] = core.Proposed(
            value=value, previous=now, minimum=limits.minimum, maximum=limits.maximum, step=limits.step, evidence=said
        )
    return found


def unchanged_sentence(looked_at: Sequence[float]) -> str:
    """What was tried and is no part of what was chosen."""
    shown = ", ".join(figure(value) for value in looked_at[:8]) + (", ..." if len(looked_at) > 8 else "")
    return f"other values were tried ({shown}), and none is part of what was chosen"
