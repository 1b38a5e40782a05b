"""Calibrated thresholds: what the nightly job may propose, what it proposes and why, and whether that may come into
force. Pure. The JSON form is in core/calibration/thresholds_json.py.

`RANGES` says which parameters may be proposed, in which range and steps, for which strategy. The job searches this
grid and the daemon refuses what is outside of it, whatever a document says about its own ranges. They are narrower
than the ranges of the parameters: those say what is valid, these what may come into force without a person's request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Final

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.core.model.parameters import Parameters, defaults
from bundlekeel.core.model.text_format import max_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Ends of the search and its step. `factor`: a step multiplies by `step` instead of adding it.

    `strategies`: those that read the parameter; empty: every one.
    """

    minimum: float
    maximum: float
    step: float
    factor: bool = False
    strategies: tuple[str, ...] = ()


def _limit(low: float, high: float) -> Range:
    return Range(minimum=low, maximum=high, step=1.25, factor=True)


_AVG = ("avg",)
_WEIGHT = Range(minimum=0.0, maximum=2.0, step=0.25)
RANGES: dict[str, Range] = {
    "avg_low_threshold_percent": Range(minimum=2.5, maximum=50.0, step=2.5, strategies=_AVG),
    "avg_low_floor_percent": Range(minimum=0.5, maximum=10.0, step=0.5, strategies=_AVG),
    "move_price": Range(minimum=10.0, maximum=500.0, step=1.25, factor=True),
    "swing_worth": Range(minimum=500.0, maximum=50_000.0, step=1.5, factor=True),
    "max_unload_ratio": Range(minimum=0.1, maximum=0.8, step=0.05, strategies=_AVG),
    "min_unload_share": Range(minimum=0.005, maximum=0.2, step=0.005, strategies=("avg", "threshold", "uniform")),
    "threshold_percent": Range(minimum=2.0, maximum=40.0, step=1.0, strategies=("threshold",)),
    "msg_rate_difference_percent": Range(minimum=10.0, maximum=200.0, step=10.0, strategies=("uniform",)),
    "throughput_multiple": Range(minimum=1.25, maximum=10.0, step=0.25, strategies=("uniform",)),
    "uniform_max_unload_ratio": Range(minimum=0.05, maximum=0.8, step=0.05, strategies=("uniform",)),
    "overloaded_threshold_percent": Range(minimum=50.0, maximum=95.0, step=2.5),
    "transfer_target_std": Range(minimum=0.02, maximum=0.6, step=0.02, strategies=("transfer",)),
    "transfer_delay_seconds": Range(minimum=30.0, maximum=1800.0, step=1.25, factor=True, strategies=("transfer",)),
    "deviation_threshold": Range(minimum=0.25, maximum=4.0, step=0.25, strategies=("deviation",)),
    "split_max_topics": _limit(50.0, 50_000.0),
    "split_max_sessions": _limit(50.0, 50_000.0),
    "split_max_msg_rate": _limit(500.0, 2_000_000.0),
    "split_max_bandwidth_mb": _limit(2.0, 5_000.0),
    "split_hot_share": Range(minimum=0.1, maximum=1.0, step=0.05),
    "split_hit_count": Range(minimum=0.0, maximum=20.0, step=1.0),
    "cool_down_seconds": Range(minimum=60.0, maximum=14_400.0, step=1.25, factor=True),
    "cpu_weight": _WEIGHT,
    "direct_memory_weight": _WEIGHT,
    "bandwidth_in_weight": _WEIGHT,
    "bandwidth_out_weight": _WEIGHT,
}


# They count cycles: what is found with a plan a minute means nothing where a cycle takes ten seconds.
HIT_COUNTS: Final = ("split_hit_count",)


def searched(strategy: str) -> tuple[str, ...]:
    """The parameters worth searching for this strategy, in the order of the table."""
    return tuple(name for name, row in RANGES.items() if not row.strategies or strategy in row.strategies)


def steps_between(name: str, one: float, other: float) -> float:
    """How many steps of the table lie between two values, >= 0; infinite where no number of steps leads across."""
    row = RANGES[name]
    if one == other:
        return 0.0
    if not row.factor:
        return abs(other - one) / row.step
    return abs(math.log(other) - math.log(one)) / math.log(row.step) if one > 0 and other > 0 else math.inf


def stepped(name: str, value: float, steps: float) -> float | int:
    """`value`, so many steps up (or down, below 0), inside of the range and of the parameter's type."""
    row = RANGES[name]
    wanted = value * row.step**steps if row.factor else value + row.step * steps
    inside = min(max(wanted, row.minimum), row.maximum)
    # Steps of 0.05 leave dust in the last digits, which would come back as a difference.
    return round(inside) if whole(name) else round(inside, 9)


def whole(name: str) -> bool:
    """Whether the parameter is a whole number."""
    return isinstance(defaults()[name], int)


# Version of the document. Documents of another version are refused.
FORMAT: Final = 1
# By how much (share of the previous mean) imbalance and overload may be worse than before and still count as equal.
EQUAL: Final = 0.01
# A back-test plans no more often by itself, as stock brokers report about so often: a shorter cycle counts as this one.
SHORTEST_PERIOD_SECONDS: Final = 60.0
# A person may override these; the others mean that it cannot be right.
OVERRIDABLE: Final = frozenset(
    {
        Code.STEP_TOO_LARGE,
        Code.TOO_OLD,
        Code.TOO_LITTLE_HISTORY,
        Code.POOR_COVERAGE,
        Code.OTHER_VALUES,
        Code.OTHER_INTERVAL,
        Code.NOT_BETTER,
        Code.WORSE_UNBROKEN,
        Code.REVERTED,
    }
)
# Of these: what they say is that the thresholds are not worth it.
WORSE: Final = frozenset({Code.NOT_BETTER, Code.WORSE_UNBROKEN})
_AHEAD_MS: Final = 3_600_000
_DAY_MS: Final = 24 * 3_600_000
# A step of 0.05 taken three times is not exactly 0.15.
_DUST: Final = 1e-6

Number = float | int


@dataclass(frozen=True, slots=True)
class BootstrapInterval(Answer):
    """A mean over held-out time and its bootstrap interval; of one run both ends are the mean."""

    mean: Annotated[float, Doc("the mean, in the unit of its measure")]
    low: Annotated[float, Doc("lower end of the interval")]
    high: Annotated[float, Doc("upper end of the interval")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutMeasures(Answer):
    """Measures of thresholds on held-out days; less is better. In a `difference` below 0: they are better."""

    imbalance: Annotated[
        BootstrapInterval, Doc("max/mean of score less 1 (0: even), over time; of plans and `/state` it is max/mean")
    ]
    moves_per_hour: Annotated[BootstrapInterval, Doc("moves an hour by the balancer, whole cluster")]
    thrash_per_day: Annotated[
        BootstrapInterval,
        Doc("how far a broker's load goes up and down beyond its trend a day, in percent of the mean load"),
    ]
    overloaded_minutes_per_day: Annotated[BootstrapInterval, Doc("minutes a day with any broker above 85 %")]


MEASURES: Final = tuple(row.name for row in fields(HeldOutMeasures))
# As people read them. The imbalance is stored as max/mean - 1, and shown as max/mean.
TITLES: Final = {
    "imbalance": "max/mean of score",
    "moves_per_hour": "moves an hour",
    "thrash_per_day": "thrash a day",
    "overloaded_minutes_per_day": "overloaded minutes a day",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbroken(Answer):
    """One run each over all held-out days, as a cluster runs."""

    previous: Annotated[HeldOutMeasures, Doc("with the values that were in force")]
    chosen: Annotated[HeldOutMeasures, Doc("with the proposed values")]


Day = Annotated[str, Doc("a day, UTC: 2026-11-21")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Answer):
    """Results of the back-test, in blocks of hours, each begun at the recorded placement."""

    held_out: Annotated[tuple[Day, ...], Doc("days that the search did not see; all of this was measured on them")]
    confidence: Annotated[float, Doc("of the intervals, a ratio: 0.95 is 95 %")]
    previous: Annotated[HeldOutMeasures, Doc("with the values that were in force")]
    chosen: Annotated[HeldOutMeasures, Doc("with the proposed values")]
    difference: Annotated[HeldOutMeasures, Doc("`chosen` less `previous`, block by block: its intervals are narrower")]
    strategies: Annotated[Mapping[str, HeldOutMeasures], Doc("other strategies on the same days, by name, to compare")]
    unbroken: Annotated[Unbroken | None, Doc("without breaks; null: nothing would change")]
    period_seconds: Annotated[float, Doc("time between two plans of the back-test, seconds")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data(Answer):
    """The history that a proposal rests on. Bad days count as nothing in `coverage`."""

    from_ms: Annotated[int, Doc("time of its first snapshot")]
    until_ms: Annotated[int, Doc("time of its last snapshot")]
    days: Annotated[tuple[Day, ...], Doc("days that were used, in order")]
    coverage: Annotated[float, Doc("recorded part of the time between first and last day, a ratio")]
    cycles: Annotated[int, Doc("how many recorded cycles it has")]
    bad_days: Annotated[Mapping[str, str], Doc("days that were left out, each with the reason")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """One parameter: the value proposed, the one it was compared with, what was searched, and why, in a sentence."""

    value: Number
    previous: Number
    minimum: float
    maximum: float
    step: float
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """One `thresholds.json`. `parameters`: every one that was searched, changed or not, by our names and units.
    `advice`: sentences for people about what is no parameter (another strategy, the cycle's length). `cluster`: whose
    history it rests on; empty: the history does not say."""

    created_ms: int
    software: str
    strategy: str
    parameters: Mapping[str, Proposed]
    evidence: Evidence
    data: Data
    advice: tuple[str, ...]
    cluster: str
    format: int = FORMAT

    @property
    def values(self) -> dict[str, Number]:
        """Proposed values by parameter."""
        return {name: row.value for name, row in self.parameters.items()}

    @property
    def previous(self) -> dict[str, Number]:
        """The values they were compared with."""
        return {name: row.previous for name, row in self.parameters.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionRules:
    """When a proposal may come into force. `max_steps`: of `RANGES`, each parameter, each night.
    `max_age_seconds`: of the document and of the data's end. `min_days`: days used. `min_coverage`: 0..1.
    `cluster`: this one's name; empty: not known. `interval_seconds`: between two cycles, at most; 0: not known."""

    max_steps: float = 4.0
    max_age_seconds: float = 36 * 3600.0
    min_days: int = 7
    min_coverage: float = 0.9
    cluster: str = ""
    interval_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why a proposal may not come into force; `field`: where in the document."""

    code: Code
    field: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdChange(Answer):
    """A parameter that would change."""

    parameter: Annotated[str, Doc("the name of the parameter")]
    current: Annotated[float, Doc("the value in force")]
    proposed: Annotated[float, Doc("the value proposed")]
    # Infinite if no number of steps leads there, which JSON does not have.
    steps: Annotated[float | None, Doc("how many of its range's steps away; null: no number of them leads there")]
    evidence: Annotated[str, Doc("what the proposal rests on")] = ""


def difference(current: Parameters, proposed: Thresholds) -> tuple[ThresholdChange, ...]:
    """The parameters that would change, by name."""
    rows = []
    for name, row in sorted(proposed.parameters.items()):
        if name not in RANGES:
            continue
        now: Number = getattr(current, name)
        if not _same(now, row.value):
            steps = steps_between(name, now, row.value)
            rows.append(
                ThresholdChange(parameter=name, current=now, proposed=row.value, steps=steps, evidence=row.evidence)
            )
    return tuple(rows)


def checked(document: Thresholds, current: Parameters, rules: AdoptionRules, now_ms: int) -> tuple[Objection, ...]:
    """Everything that speaks against the proposal, worst first; empty: it may come into force."""
    if document.format > FORMAT:
        detail = f"format {document.format}; this release reads up to {FORMAT}"
        return (Objection(code=Code.FUTURE_FORMAT, field="format", detail=detail),)
    if document.cluster and rules.cluster and document.cluster != rules.cluster:
        detail = f"it is based on the history of cluster {document.cluster}, and this is cluster {rules.cluster}"
        return (Objection(code=Code.OTHER_CLUSTER, field="cluster", detail=detail),)
    off = _off_range(document)
    if not off and not difference(current, document) and document.strategy == current.strategy:
        return (Objection(code=Code.NOTHING_NEW, field="parameters", detail="the proposed values are in force"),)
    return (
        *off,
        *_about_time(document, rules, now_ms),
        *_about_data(document.data, rules),
        *_other_ground(document, current),
        *_too_far(document, current, rules),
        *_other_interval(document.evidence, rules),
        *_not_better(document.evidence),
        *_worse_unbroken(document.evidence.unbroken),
    )


def _off_range(document: Thresholds) -> list[Objection]:
    found = []
    for name, row in sorted(document.parameters.items()):
        limits = RANGES.get(name)
        if limits is None:
            detail = f"{name} is not calibrated"
        elif not limits.minimum - _DUST <= row.value <= limits.maximum + _DUST:
            detail = f"{name} {row.value:g}; allowed are {limits.minimum:g} to {limits.maximum:g}"
        else:
            continue
        found.append(Objection(code=Code.OUT_OF_RANGE, field=f"parameters.{name}.value", detail=detail))
    return found


def _about_time(document: Thresholds, rules: AdoptionRules, now_ms: int) -> list[Objection]:
    if document.created_ms > now_ms + _AHEAD_MS:
        detail = "it was made in the future: the clocks of job and sidecar differ"
        return [Objection(code=Code.IMPLAUSIBLE, field="created_ms", detail=detail)]
    found = []
    if document.data.until_ms > now_ms + _AHEAD_MS:
        # It would never be too old.
        detail = "its data ends in the future"
        found.append(Objection(code=Code.IMPLAUSIBLE, field="data.until_ms", detail=detail))
    for name, at in (("created_ms", document.created_ms), ("data.until_ms", document.data.until_ms)):
        age = (now_ms - at) / 1000
        # A job at night rests on days that ended at midnight, so its data may be a day older than itself.
        allowed = rules.max_age_seconds + (_DAY_MS / 1000 if name.startswith("data") else 0.0)
        if age > allowed:
            hours, unit = (3600, "h") if age < 4 * 86_400 else (86_400, "days")
            detail = f"{age / hours:,.1f} {unit} old; at most {allowed / hours:g} {unit} are allowed"
            found.append(Objection(code=Code.TOO_OLD, field=name, detail=detail))
    return found


def _about_data(data: Data, rules: AdoptionRules) -> list[Objection]:
    found = []
    if len(set(data.days)) < rules.min_days:
        detail = f"{len(set(data.days))} usable days; at least {rules.min_days} are required"
        found.append(Objection(code=Code.TOO_LITTLE_HISTORY, field="data.days", detail=detail))
    if data.coverage < rules.min_coverage:
        detail = f"{data.coverage:.1%} of the time is recorded; at least {rules.min_coverage:.1%} is required"
        found.append(Objection(code=Code.POOR_COVERAGE, field="data.coverage", detail=detail))
    return found


def _other_ground(document: Thresholds, current: Parameters) -> list[Objection]:
    """Evidence against other values, or of another strategy, says nothing about what is in force."""
    if document.strategy != current.strategy:
        detail = f"it is about {document.strategy}, and {current.strategy} is in force"
        return [Objection(code=Code.OTHER_STRATEGY, field="strategy", detail=detail)]
    found = []
    for name in sorted(set(document.parameters).intersection(RANGES).difference(searched(current.strategy))):
        detail = f"{current.strategy} does not read {name}"
        found.append(Objection(code=Code.OTHER_STRATEGY, field=f"parameters.{name}", detail=detail))
    for name, row in sorted(document.parameters.items()):
        now = getattr(current, name, None)
        if name in RANGES and now is not None and not _same(now, row.previous):
            detail = f"{name} was compared with {row.previous:g}, and {now:g} is in force"
            found.append(Objection(code=Code.OTHER_VALUES, field=f"parameters.{name}.previous", detail=detail))
    return found


def _too_far(document: Thresholds, current: Parameters, rules: AdoptionRules) -> list[Objection]:
    known = {name: row for name, row in document.parameters.items() if name in RANGES}
    found = []
    for name, row in sorted(known.items()):
        steps = steps_between(name, getattr(current, name), row.value)
        if steps > rules.max_steps + _DUST:
            detail = (
                f"{name} {getattr(current, name):g} -> {row.value:g} is {steps:.1f} steps, {rules.max_steps:g} allowed"
            )
            found.append(Objection(code=Code.STEP_TOO_LARGE, field=f"parameters.{name}.value", detail=detail))
    return found


def _other_interval(evidence: Evidence, rules: AdoptionRules) -> list[Objection]:
    """A cycle also runs when fresh reports arrive, so `rules` has the longest interval: only a longer one is another.
    Within a fifth it is the same."""
    period, cycle = evidence.period_seconds, rules.interval_seconds
    if not cycle or period <= 1.2 * max(SHORTEST_PERIOD_SECONDS, cycle):
        return []
    detail = (
        f"the back-test planned each {period:g} s, and the sidecars plan more often (cycle.interval {cycle:g} s); such "
        f"thresholds cost more than {EQUAL:.0%} of balance in 5 of 6 made-up worlds (docs/operations/recalibrate.md)"
    )
    return [Objection(code=Code.OTHER_INTERVAL, field="evidence.period_seconds", detail=detail)]


def _not_better(evidence: Evidence) -> list[Objection]:
    """Never worse beyond `EQUAL`, and something must be better for certain: imbalance, moves or overload.

    Overload is a few minutes a day, which a single burst of traffic changes by more than `EQUAL` whatever is in force:
    it is worse when it is so for certain.
    """
    worse = []
    for name in ("imbalance", "overloaded_minutes_per_day"):
        before: BootstrapInterval = getattr(evidence.previous, name)
        apart: BootstrapInterval = getattr(evidence.difference, name)
        mean = apart.mean
        if name == "imbalance":
            # The trial goes by what is chosen, so it has to keep what the difference says.
            mean = max(mean, evidence.chosen.imbalance.mean - before.mean)
        certain = name == "imbalance" or apart.low > 0
        if certain and mean > EQUAL * before.mean + 1e-12:
            after = before.mean + mean
            minutes = f"{TITLES[name]} {before.mean:.4g} -> {after:.4g}"
            worse.append(max_mean(before.mean, after) if name == "imbalance" else minutes)
    if worse:
        return [Objection(code=Code.NOT_BETTER, field="evidence.difference", detail=f"worse: {', '.join(worse)}")]
    gains = (evidence.difference.imbalance, evidence.difference.moves_per_hour)
    if all(item.high >= 0 for item in (*gains, evidence.difference.overloaded_minutes_per_day)):
        detail = "neither max/mean, moves nor overload is significantly lower: each interval reaches 0"
        return [Objection(code=Code.NOT_BETTER, field="evidence.difference", detail=detail)]
    return []


def _worse_unbroken(found: Unbroken | None) -> list[Objection]:
    """Blocks begin at the recorded placement, so that what goes wrong within days shows in one unbroken run only."""
    where = "evidence.unbroken"
    if found is None:
        detail = "there is no unbroken run over the held-out days; run bundlekeel-recalibrate again"
        return [Objection(code=Code.WORSE_UNBROKEN, field=where, detail=detail)]
    before, after = found.previous.imbalance.mean, found.chosen.imbalance.mean
    if after <= before * (1 + EQUAL) + 1e-12:
        return []
    detail = f"{max_mean(before, after)} in one unbroken run over the held-out days; at most +{EQUAL:.0%} is allowed"
    return [Objection(code=Code.WORSE_UNBROKEN, field=where, detail=detail)]


def _same(one: Number, other: Number) -> bool:
    return abs(one - other) <= 1e-9 * max(1.0, abs(one), abs(other))
