"""The nightly job's proposal (`thresholds.json`), the parameters that it may contain, and the checks of it. Pure.

`RANGES` lists these parameters, each with range, step and strategies. The job searches within the ranges, and the
sidecar rejects other values, even if the proposal contains other ranges. `RANGES` are narrower than the valid ranges of
the parameters, because values in them may be adopted without an operator. For the JSON form see `thresholds_json.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Final

from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.parameters import Parameters, defaults
from bundlekeel.model.text_format import max_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Lowest and highest value of a parameter, and the step between values.

    `factor`: a step multiplies by `step` instead of adding `step`.

    `strategies`: strategies that read the parameter; empty: all.
    """

    minimum: float
    maximum: float
    step: float
    factor: bool = False
    strategies: tuple[str, ...] = ()


RANGES: dict[str, Range] = {
    "avg_low_threshold_percent": Range(minimum=2.5, maximum=50.0, step=2.5),
    "avg_low_floor_percent": Range(minimum=0.5, maximum=10.0, step=0.5),
    "move_price": Range(minimum=10.0, maximum=500.0, step=1.25, factor=True),
    "swing_worth": Range(minimum=500.0, maximum=50_000.0, step=1.5, factor=True),
    "max_unload_ratio": Range(minimum=0.1, maximum=0.8, step=0.05, strategies=("avg",)),
    "min_unload_share": Range(minimum=0.005, maximum=0.2, step=0.005, strategies=("avg", "threshold", "uniform")),
    "threshold_percent": Range(minimum=2.0, maximum=40.0, step=1.0, strategies=("threshold",)),
    "msg_rate_difference_percent": Range(minimum=10.0, maximum=200.0, step=10.0, strategies=("uniform",)),
    "throughput_multiple": Range(minimum=1.25, maximum=10.0, step=0.25, strategies=("uniform",)),
    "uniform_max_unload_ratio": Range(minimum=0.05, maximum=0.8, step=0.05, strategies=("uniform",)),
    "overloaded_threshold_percent": Range(minimum=50.0, maximum=95.0, step=2.5),
    "transfer_target_std": Range(minimum=0.02, maximum=0.6, step=0.02, strategies=("transfer",)),
    "transfer_delay_seconds": Range(minimum=30.0, maximum=1800.0, step=1.25, factor=True, strategies=("transfer",)),
    "deviation_threshold": Range(minimum=0.25, maximum=4.0, step=0.25, strategies=("deviation",)),
    "max_moves_per_cycle": Range(minimum=2.0, maximum=50.0, step=2.0),
    "max_moves_per_source": Range(minimum=2.0, maximum=20.0, step=2.0),
    "cool_down_seconds": Range(minimum=60.0, maximum=14_400.0, step=1.25, factor=True),
}


def searched(strategy: str) -> tuple[str, ...]:
    """Return the parameters to search for this strategy, in the order of `RANGES`."""
    return tuple(name for name, row in RANGES.items() if not row.strategies or strategy in row.strategies)


def steps_between(name: str, one: float, other: float) -> float:
    """Return the number of a parameter's steps between two values, >= 0; infinite: steps do not lead from one to the
    other."""
    row = RANGES[name]
    if one == other:
        return 0.0
    if not row.factor:
        return abs(other - one) / row.step
    return abs(math.log(other) - math.log(one)) / math.log(row.step) if one > 0 and other > 0 else math.inf


def stepped(name: str, value: float, steps: float) -> float | int:
    """Return `value` moved by a number of steps (negative: down), within the range and of the parameter's type."""
    row = RANGES[name]
    moved = value * row.step**steps if row.factor else value + row.step * steps
    inside = min(max(moved, row.minimum), row.maximum)
    # Round, as steps of 0.05 are inexact in the last digits and would appear as a difference.
    return round(inside) if whole(name) else round(inside, 9)


def whole(name: str) -> bool:
    """Return whether the parameter is an integer."""
    return isinstance(defaults()[name], int)


# Version of the format of `thresholds.json`. Documents with another version are rejected.
FORMAT: Final = 1
# Imbalance and overload count as equal if they rise by at most this share of the previous mean.
EQUAL: Final = 0.01
# Objections that an operator can override. Any other objection means that the document is wrong.
OVERRIDABLE: Final = frozenset(
    {
        Code.STEP_TOO_LARGE,
        Code.TOO_OLD,
        Code.TOO_LITTLE_HISTORY,
        Code.POOR_COVERAGE,
        Code.OTHER_VALUES,
        Code.NOT_BETTER,
        Code.REVERTED,
    }
)
# Overridable objections to the result of the back-test.
WORSE: Final = frozenset({Code.NOT_BETTER})
_AHEAD_MS: Final = 3_600_000
_DAY_MS: Final = 24 * 3_600_000
# Tolerance of comparisons: three steps of 0.05 are not exactly 0.15.
_DUST: Final = 1e-6

Number = float | int


@dataclass(frozen=True, slots=True)
class BootstrapInterval(Answer):
    """A mean over held-out time and its bootstrap interval over days. For a single day both ends are the mean."""

    mean: Annotated[float, Doc("the mean, in the unit of its measure")]
    low: Annotated[float, Doc("lower end of the interval")]
    high: Annotated[float, Doc("upper end of the interval")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutMeasures(Answer):
    """Measures of a back-test on held-out days; less is better. Negative values of a `difference` are an
    improvement."""

    imbalance: Annotated[
        BootstrapInterval,
        Doc("max/mean of score minus 1 (0: balanced), averaged over time; plans and `/state` contain max/mean"),
    ]
    moves_per_hour: Annotated[BootstrapInterval, Doc("moves per hour by the balancer, in the whole cluster")]
    client_seconds_per_hour: Annotated[
        BootstrapInterval,
        Doc("producers and consumers that moves disconnected, times their seconds without service, per hour"),
    ]
    overloaded_minutes_per_day: Annotated[BootstrapInterval, Doc("minutes per day with any broker above 85 %")]


MEASURES: Final = tuple(row.name for row in fields(HeldOutMeasures))
# A proposal must not make these measures worse.
KEPT: Final = ("imbalance", "client_seconds_per_hour", "overloaded_minutes_per_day")
# Measures that may rise by this much although it is more than `EQUAL`: a single burst of traffic can cause it.
SLACK: Final = {"overloaded_minutes_per_day": 1.0}
# For display. The imbalance is stored as max/mean - 1, and shown as max/mean.
TITLES: Final = {
    "imbalance": "max/mean of score",
    "moves_per_hour": "moves an hour",
    "client_seconds_per_hour": "client-seconds an hour",
    "overloaded_minutes_per_day": "overloaded minutes a day",
}
# Shown with the command that adopts, and in its response.
WAY_BACK: Final = (
    "Once adopted, it is on trial for `calibration.trial` (six hours of balancing by default; 0: no trial), and "
    "reverted automatically if balance or moves are worse than the evidence promised. To revert it yourself: "
    '`bundlekeel thresholds revert --reason "..."`'
)


Day = Annotated[str, Doc("a day, UTC: 2026-11-21")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Answer):
    """Results of the back-test: unbroken runs through all days, from several initial owners of bundles."""

    held_out: Annotated[tuple[Day, ...], Doc("days that the search did not use; all measurements are from these days")]
    prefer: Annotated[str, Doc("`calibration.prefer` of the job", of=("balance", "calm"))]
    placements: Annotated[int, Doc("number of initial placements of bundles: the recorded one, then random ones")]
    confidence: Annotated[float, Doc("confidence of the intervals, a ratio: 0.95 is 95 %")]
    previous: Annotated[HeldOutMeasures, Doc("measurements with the values that were in effect")]
    chosen: Annotated[HeldOutMeasures, Doc("measurements with the proposed values")]
    difference: Annotated[
        HeldOutMeasures, Doc("`chosen` minus `previous`, computed per day: its intervals are narrower")
    ]
    strategies: Annotated[
        Mapping[str, HeldOutMeasures], Doc("measurements of Pulsar's own classes with their defaults, by class")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data(Answer):
    """The history that a proposal is based on. Bad days do not count in `coverage`."""

    from_ms: Annotated[int, Doc("time of its first snapshot")]
    until_ms: Annotated[int, Doc("time of its last snapshot")]
    days: Annotated[tuple[Day, ...], Doc("days that were used, in order")]
    coverage: Annotated[float, Doc("recorded part of the time between first and last day, a ratio")]
    cycles: Annotated[int, Doc("number of recorded cycles")]
    bad_days: Annotated[Mapping[str, str], Doc("days that were left out, each with the reason")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """One parameter of a proposal: proposed value, previous value, search range and step, and one sentence of
    evidence."""

    value: Number
    previous: Number
    minimum: float
    maximum: float
    step: float
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal(Answer):
    """Fields of a proposal that both its file `thresholds.json` and the response about it contain."""

    created_ms: Annotated[int, Doc("time at which the job wrote it")]
    software: Annotated[str, Doc("releases of the job and of the libraries that it used")]
    cluster: Annotated[str, Doc("cluster of the history; empty: the history does not contain its name")]
    strategy: Annotated[str, Doc("strategy of the parameters")]
    decision: Annotated[str, Doc("what to change, and what it gains on held-out days; or why nothing changes")]
    evidence: Annotated[Evidence, Doc("measurements with proposed and previous values")]
    data: Annotated[Data, Doc("history that the proposal is based on")]
    advice: Annotated[tuple[str, ...], Doc("why the gain is not larger, and what else may help")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds(Proposal):
    """Content of `thresholds.json`. `parameters`: all searched parameters, changed or not, with Bundlekeel's names and
    units."""

    parameters: Mapping[str, Proposed]
    format: int = FORMAT

    @property
    def values(self) -> dict[str, Number]:
        """The proposed values by parameter."""
        return {name: row.value for name, row in self.parameters.items()}

    @property
    def previous(self) -> dict[str, Number]:
        """The values that the proposal was compared with, by parameter."""
        return {name: row.previous for name, row in self.parameters.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionRules:
    """Requirements for the adoption of a proposal.

    `max_steps`: steps of `RANGES` per parameter and night. `max_age_seconds`: age of the document and of the end of its
    data. `min_days`: number of used days. `min_coverage`: recorded share of the time, 0 to 1. `cluster`: name of this
    cluster; "": unknown.
    """

    max_steps: float = 4.0
    max_age_seconds: float = 36 * 3600.0
    min_days: int = 7
    min_coverage: float = 0.9
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Reason against a proposal. `field`: path of the field in `thresholds.json` that the reason is about."""

    code: Code
    field: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdChange(Answer):
    """A parameter that a proposal would change."""

    parameter: Annotated[str, Doc("the name of the parameter")]
    current: Annotated[float, Doc("the value in force")]
    proposed: Annotated[float, Doc("the value proposed")]
    # None instead of infinity, which JSON does not have.
    steps: Annotated[
        float | None,
        Doc("distance between both values, in steps of the parameter's range; null: not measurable in steps"),
    ]
    evidence: Annotated[str, Doc("evidence for the proposed value")] = ""


def difference(current: Parameters, proposed: Thresholds) -> tuple[ThresholdChange, ...]:
    """Return the parameters that the proposal would change, sorted by name."""
    rows = []
    for name, row in sorted(proposed.parameters.items()):
        now: Number = getattr(current, name)
        if not _same(now, row.value):
            steps = steps_between(name, now, row.value)
            rows.append(
                ThresholdChange(parameter=name, current=now, proposed=row.value, steps=steps, evidence=row.evidence)
            )
    return tuple(rows)


def checked(document: Thresholds, current: Parameters, rules: AdoptionRules, now_ms: int) -> tuple[Objection, ...]:
    """Return all objections to a proposal that `thresholds_json` has accepted; empty: it may be adopted."""
    if document.cluster and rules.cluster and document.cluster != rules.cluster:
        detail = f"it is based on the history of cluster {document.cluster}, and this is cluster {rules.cluster}"
        return (Objection(code=Code.OTHER_CLUSTER, field="cluster", detail=detail),)
    if not difference(current, document) and document.strategy == current.strategy:
        return (Objection(code=Code.NOTHING_NEW, field="parameters", detail="the proposed values are in force"),)
    return (
        *_about_time(document, rules, now_ms),
        *_about_data(document.data, rules),
        *_other_ground(document, current),
        *_too_far(document, current, rules),
        *_not_better(document.evidence),
    )


def _about_time(document: Thresholds, rules: AdoptionRules, now_ms: int) -> list[Objection]:
    if document.created_ms > now_ms + _AHEAD_MS:
        detail = "it was made in the future: the clocks of job and sidecar differ"
        return [Objection(code=Code.IMPLAUSIBLE, field="created_ms", detail=detail)]
    objections = []
    if document.data.until_ms > now_ms + _AHEAD_MS:
        # Data that ends in the future would never be too old.
        detail = "its data ends in the future"
        objections.append(Objection(code=Code.IMPLAUSIBLE, field="data.until_ms", detail=detail))
    for name, at in (("created_ms", document.created_ms), ("data.until_ms", document.data.until_ms)):
        age = (now_ms - at) / 1000
        # A job at night uses days that ended at midnight, so its data may be a day older than the document.
        allowed = rules.max_age_seconds + (_DAY_MS / 1000 if name.startswith("data") else 0.0)
        if age > allowed:
            hours, unit = (3600, "h") if age < 4 * 86_400 else (86_400, "days")
            detail = f"{age / hours:,.1f} {unit} old; at most {allowed / hours:g} {unit} are allowed"
            objections.append(Objection(code=Code.TOO_OLD, field=name, detail=detail))
    return objections


def _about_data(data: Data, rules: AdoptionRules) -> list[Objection]:
    objections = []
    if len(set(data.days)) < rules.min_days:
        detail = f"{len(set(data.days))} usable days; at least {rules.min_days} are required"
        objections.append(Objection(code=Code.TOO_LITTLE_HISTORY, field="data.days", detail=detail))
    if data.coverage < rules.min_coverage:
        detail = f"{data.coverage:.1%} of the time is recorded; at least {rules.min_coverage:.1%} is required"
        objections.append(Objection(code=Code.POOR_COVERAGE, field="data.coverage", detail=detail))
    return objections


def _other_ground(document: Thresholds, current: Parameters) -> list[Objection]:
    """Return objections if the proposal was tested with another strategy or compared with values that are not in
    effect."""
    if document.strategy != current.strategy:
        detail = f"it is about {document.strategy}, and {current.strategy} is in force"
        return [Objection(code=Code.OTHER_STRATEGY, field="strategy", detail=detail)]
    objections = []
    for name in sorted(set(document.parameters).difference(searched(current.strategy))):
        detail = f"{current.strategy} does not read {name}"
        objections.append(Objection(code=Code.OTHER_STRATEGY, field=f"parameters.{name}", detail=detail))
    for name, row in sorted(document.parameters.items()):
        now = getattr(current, name)
        if not _same(now, row.previous):
            detail = f"{name} was compared with {row.previous:g}, and {now:g} is in force"
            objections.append(Objection(code=Code.OTHER_VALUES, field=f"parameters.{name}.previous", detail=detail))
    return objections


def _too_far(document: Thresholds, current: Parameters, rules: AdoptionRules) -> list[Objection]:
    objections = []
    for name, row in sorted(document.parameters.items()):
        steps = steps_between(name, getattr(current, name), row.value)
        if steps > rules.max_steps + _DUST:
            detail = (
                f"{name} {getattr(current, name):g} -> {row.value:g} is {steps:.1f} steps, {rules.max_steps:g} allowed"
            )
            objections.append(Objection(code=Code.STEP_TOO_LARGE, field=f"parameters.{name}.value", detail=detail))
    return objections


def _not_better(evidence: Evidence) -> list[Objection]:
    """Return an objection if no measure is significantly lower, or if one of `KEPT` is worse beyond `EQUAL`.

    Overload counts as worse only if also the whole interval of its difference is above 0.
    """
    worse = []
    for name in KEPT:
        before: BootstrapInterval = getattr(evidence.previous, name)
        apart: BootstrapInterval = getattr(evidence.difference, name)
        mean = apart.mean
        if name == "imbalance":
            # The trial compares with `chosen`, so use its mean if that is worse than `difference`.
            mean = max(mean, evidence.chosen.imbalance.mean - before.mean)
        certain = name != "overloaded_minutes_per_day" or apart.low > 0
        if certain and mean > max(EQUAL * before.mean, SLACK.get(name, 0.0)) + 1e-12:
            after = before.mean + mean
            text = f"{TITLES[name]} {before.mean:.4g} -> {after:.4g}"
            worse.append(max_mean(before.mean, after) if name == "imbalance" else text)
    if worse:
        return [Objection(code=Code.NOT_BETTER, field="evidence.difference", detail=f"worse: {', '.join(worse)}")]
    if all(getattr(evidence.difference, name).high >= 0 for name in MEASURES):
        detail = "neither max/mean, client-seconds, moves nor overload is significantly lower: each interval reaches 0"
        return [Objection(code=Code.NOT_BETTER, field="evidence.difference", detail=detail)]
    return []


def _same(one: Number, other: Number) -> bool:
    return abs(one - other) <= 1e-9 * max(1.0, abs(one), abs(other))
