"""The newest `thresholds.json`, as the API shows it. `core.calibration.thresholds` says what may stand in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bundlekeel.daemon.answers.doc import Answer, Doc

Day = Annotated[str, Doc("a day, UTC: 2026-11-21")]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalView(Answer):
    """A mean over held-out time, and the interval in which it lies; of one run both ends are the mean."""

    mean: Annotated[float, Doc("the mean, in the unit of its measure")]
    low: Annotated[float, Doc("lower end of the interval")]
    high: Annotated[float, Doc("upper end of the interval")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuresView(Answer):
    """What thresholds are judged by; less is better. In a `difference` below 0: the proposed values do better."""

    imbalance: Annotated[
        IntervalView, Doc("max/mean of score less 1 (0: even), over time; of plans and `/state` it is max/mean")
    ]
    moves_per_hour: Annotated[IntervalView, Doc("moves an hour by the balancer, whole cluster")]
    thrash_per_day: Annotated[
        IntervalView,
        Doc("how far a broker's load goes up and down beyond its trend a day, in percent of the mean load"),
    ]
    overloaded_minutes_per_day: Annotated[IntervalView, Doc("minutes a day with any broker above 85 %")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnbrokenView(Answer):
    """One run each over all held-out days, as a cluster runs."""

    previous: Annotated[MeasuresView, Doc("with the values that were in force")]
    chosen: Annotated[MeasuresView, Doc("with the proposed values")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView(Answer):
    """What the back-test measured, in blocks of hours, each begun at the recorded placement."""

    held_out: Annotated[list[Day], Doc("days that the search did not see; all of this was measured on them")]
    confidence: Annotated[float, Doc("of the intervals, a ratio: 0.95 is 95 %")]
    period_seconds: Annotated[float, Doc("time between two plans of the back-test, seconds")]
    previous: Annotated[MeasuresView, Doc("with the values that were in force")]
    chosen: Annotated[MeasuresView, Doc("with the proposed values")]
    difference: Annotated[MeasuresView, Doc("`chosen` less `previous`, block by block: its intervals are narrower")]
    unbroken: Annotated[UnbrokenView | None, Doc("without breaks; null: nothing would change")]
    strategies: Annotated[dict[str, MeasuresView], Doc("other strategies on the same days, by name, to compare")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataView(Answer):
    """The history that a proposal rests on."""

    from_ms: Annotated[int, Doc("time of its first snapshot")]
    until_ms: Annotated[int, Doc("time of its last snapshot")]
    days: Annotated[list[Day], Doc("days that were used, in order")]
    coverage: Annotated[float, Doc("recorded part of the time between first and last day, a ratio")]
    cycles: Annotated[int, Doc("how many recorded cycles it has")]
    bad_days: Annotated[dict[str, str], Doc("days that were left out, each with the reason")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView(Answer):
    """A proposal: its `thresholds.json` without `parameters`, of which `values` and `previous` are shown."""

    digest: Annotated[str, Doc("what it is known by: `digest` of `thresholds/adopt`")]
    path: Annotated[str, Doc("its file, below `calibration.uri`")]
    format: Annotated[int, Doc("version of the document")]
    created_ms: Annotated[int, Doc("when the job made it")]
    software: Annotated[str, Doc("releases of the job that made it and of what it used")]
    cluster: Annotated[str, Doc("the cluster whose history it rests on; empty: the history does not say")]
    strategy: Annotated[str, Doc("whose parameters they are")]
    values: Annotated[dict[str, float], Doc("the proposed value of every parameter that was searched")]
    previous: Annotated[dict[str, float], Doc("the values they were compared with, by parameter")]
    evidence: Annotated[EvidenceView, Doc("what was measured with both")]
    data: Annotated[DataView, Doc("the history it rests on")]
    advice: Annotated[list[str], Doc("for people: what is no parameter, such as another strategy or cycle")]
