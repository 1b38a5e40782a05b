"""Build the content of `thresholds.json` from the results of the back-tests."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bundlekeel import __version__
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import figure
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.intervals import LEVEL, measures_of
from bundlekeel.recalibration.backtest.measures import ByBlock
from bundlekeel.recalibration.rules.thresholds import RANGES, Data, Evidence, Proposed, Thresholds, Unbroken, searched


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceInput:
    """Everything from which `thresholds.json` is built.

    `blocks`: measures on held-out days by candidate key and block; `searched`: measures on the days of the search.
    `unbroken`: measures of the present and the proposed candidate in one run over all held-out days, without a new
    start at each block; empty if nothing changes. `reason`: benefit of the proposal, or why nothing changes.
    `period_seconds`: seconds between two plans. `tried`: tested values by parameter.
    """

    base: Parameters
    chosen: Candidate
    present: Candidate
    reason: str
    blocks: Mapping[str, ByBlock]
    strategies: Mapping[str, str]
    held_out: tuple[str, ...]
    data: Data
    created_ms: int
    period_seconds: float
    advice: tuple[str, ...]
    seed: int = 0
    tried: Mapping[str, Collection[float]] | None = None
    unbroken: Mapping[str, CandidateMeasures] = field(default_factory=dict)
    searched: Mapping[str, ByBlock] = field(default_factory=dict)
    cluster: str = ""


def thresholds_of(inputs: EvidenceInput, *, pyspark: str) -> Thresholds:
    """Return the content of `thresholds.json`. `pyspark`: version of PySpark, for the record."""
    previous, proposed = inputs.blocks[inputs.present.key], inputs.blocks[inputs.chosen.key]
    runs = {key: measures_of({0: measures}, seed=inputs.seed) for key, measures in inputs.unbroken.items()}
    evidence = Evidence(
        held_out=inputs.held_out,
        confidence=LEVEL,
        previous=measures_of(previous, seed=inputs.seed),
        chosen=measures_of(proposed, seed=inputs.seed),
        difference=measures_of(proposed, seed=inputs.seed, before=previous),
        strategies={name: measures_of(inputs.blocks[key], seed=inputs.seed) for name, key in inputs.strategies.items()},
        unbroken=Unbroken(previous=runs[inputs.present.key], chosen=runs[inputs.chosen.key]) if runs else None,
        period_seconds=inputs.period_seconds,
    )
    return Thresholds(
        created_ms=inputs.created_ms,
        software=", ".join(f"{name} {release}" for name, release in _software(pyspark).items()),
        strategy=inputs.base.strategy,
        parameters=_proposed(inputs),
        evidence=evidence,
        data=inputs.data,
        advice=inputs.advice,
        cluster=inputs.cluster,
    )


def _software(pyspark: str) -> dict[str, str]:
    python = platform.python_version()
    return {"bundlekeel": __version__, "python": python, "numpy": np.__version__, "pyspark": pyspark}


def _proposed(inputs: EvidenceInput) -> dict[str, Proposed]:
    proposals: dict[str, Proposed] = {}
    for name in searched(inputs.base.strategy):
        now, limits = getattr(inputs.base, name), RANGES[name]
        tested = sorted({float(value) for value in (inputs.tried or {}).get(name, ())} - {float(now)})
        changed = name in inputs.chosen.changes
        # An operator set a value outside of the range. It cannot be searched, so it is not part of the proposal.
        if not changed and not limits.minimum <= float(now) <= limits.maximum:
            continue
        if not changed and not tested:
            continue
        value = inputs.chosen.changes[name] if changed else now
        assert isinstance(value, int | float)
        if changed:
            evidence = f"with the other changes: {inputs.reason}" if len(inputs.chosen.changes) > 1 else inputs.reason
        else:
            evidence = unchanged_sentence(tested)
        proposals[name] = Proposed(
            value=value,
            previous=now,
            minimum=limits.minimum,
            maximum=limits.maximum,
            step=limits.step,
            evidence=evidence,
        )
    return proposals


def unchanged_sentence(tested: Sequence[float]) -> str:
    """Return the sentence of evidence for a parameter that the proposal does not change."""
    values = ", ".join(figure(value) for value in tested[:8]) + (", ..." if len(tested) > 8 else "")
    return f"other values were tried ({values}), and the proposal contains none of them"
