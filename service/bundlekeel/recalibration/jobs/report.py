"""`report.html` and `report.json`: the decision, its evidence, and why the gain is not larger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from bundlekeel.model.parameters import BY_NAME
from bundlekeel.model.text_format import figure, level, numbered, share
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.choice import of_days
from bundlekeel.recalibration.backtest.run import RECORDED
from bundlekeel.recalibration.backtest.search import NATIVES
from bundlekeel.recalibration.jobs.backtest import by_day
from bundlekeel.recalibration.jobs.evidence import EvidenceInput
from bundlekeel.recalibration.jobs.plots import DayPair, Point, days_plot, trade_off_plot
from bundlekeel.recalibration.jobs.rules import JudgedDay
from bundlekeel.recalibration.rules.thresholds import (
    MEASURES,
    OVERRIDABLE,
    TITLES,
    WAY_BACK,
    WORSE,
    BootstrapInterval,
    HeldOutMeasures,
    Objection,
    Thresholds,
    steps_between,
)
from bundlekeel.recalibration.rules.thresholds_json import digest_of, document_of, thresholds_of
from bundlekeel.simulator.page import render

# A cell of a table: a string, whose second and later lines are small, or a string with its CSS class.
Cell = str | tuple[str, str]
MOST_ROWS: Final = 60
_MEANING: Final = {
    "imbalance": "the busiest broker over the mean; 1 is even",
    "moves_per_hour": "by the balancer, whole cluster",
    "client_seconds_per_hour": "moved producers and consumers, times their seconds without service",
    "overloaded_minutes_per_day": "any broker above 85%",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Content of the report: `document` is `thresholds.json`.

    objections: why the sidecars would not adopt the proposal automatically. days: see `days_of`. trade_off: all
    candidates on the held-out days. judged: all recorded days. left_alone: requested parameters that were not searched,
    with the reason.
    """

    document: Thresholds
    objections: Sequence[Objection]
    days: Sequence[DayPair]
    trade_off: Sequence[Point]
    judged: Sequence[JudgedDay]
    left_alone: Mapping[str, str]


def days_of(inputs: EvidenceInput) -> list[DayPair]:
    """Return the held-out days under the present and the best settings of the search, over all initial placements."""
    before, after = (
        by_day(of_days(inputs.tried.results[item.key], inputs.held_out))
        for item in (inputs.present, inputs.choice.best)
    )
    return [
        DayPair(
            date=inputs.held_out[day],
            clients=(_per_hour(before[day]), _per_hour(after[day])),
            max_mean=(1 + before[day].imbalance, 1 + after[day].imbalance),
        )
        for day in sorted(before.keys() & after.keys())
    ]


def points_of(inputs: EvidenceInput) -> list[Point]:
    """Return the point of every candidate with results on the held-out days, from the recorded placement."""
    points = []
    for key, days in inputs.tried.results.items():
        item = inputs.tried.candidates[key]
        whole = CandidateMeasures.sum(of_days(days, inputs.held_out, RECORDED).values())
        point = Point(name=item.name, kind=_kind(item, inputs), clients=_per_hour(whole), max_mean=1 + whole.imbalance)
        points.append(point)
    return points


def _kind(item: Candidate, inputs: EvidenceInput) -> str:
    kinds = {inputs.choice.candidate.key: "chosen", inputs.present.key: "present"}
    return kinds.get(item.key, "native" if item.name in NATIVES else "tested")


def _per_hour(measures: CandidateMeasures) -> float:
    return measures.per_day(measures.client_seconds) / 24


def as_json(report: Report) -> dict[str, Any]:
    """Return the content of the report as plain values."""
    document = document_of(report.document)
    return {
        "decision": document["decision"],
        "objections": [{**asdict(item), "code": item.code.value} for item in report.objections],
        "how_to_adopt": how_to_adopt(report.document, report.objections),
        "held_out_days": [asdict(item) for item in report.days],
        "trade_off": [asdict(item) for item in report.trade_off],
        "why_not_more": document["advice"],
        "not_searched": dict(report.left_alone),
        "recorded_days": [
            {**asdict(item.day), "verdict": item.verdict, "reasons": list(item.reasons)} for item in report.judged
        ],
        "thresholds": document,
    }


def page(report: Report) -> str:
    """Return `report.html` as text."""
    document = report.document
    days, changed = document.data.days, document.values != document.previous
    decision = f"change {document.decision}" if changed else document.decision
    span = f"{numbered(len(days), 'day')}, {days[0] if days else '-'} to {days[-1] if days else '-'}"
    return render(
        "recalibration.html",
        "bundlekeel.recalibration.jobs",
        document=document,
        decision=decision[:1].upper() + decision[1:],
        created=f"{datetime.fromtimestamp(document.created_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC",
        colour="" if not changed else "warning" if report.objections else "good",
        changed=changed,
        objections=[_objection(item) for item in report.objections],
        how_to_adopt=how_to_adopt(document, report.objections),
        days_plot=days_plot(report.days, "proposed" if changed else "best of the search"),
        trade_off=trade_off_plot(report.trade_off),
        evidence=_evidence(document),
        parameters=_parameters(document),
        left_alone=report.left_alone,
        span=span,
        days=_days(report),
    )


def meanings(document: Thresholds) -> tuple[str, ...]:
    """Return one line per changed parameter with its purpose, for the terminal."""
    changed = (name for name, row in sorted(document.parameters.items()) if row.value != row.previous)
    return tuple(f"{name}: {_meaning(name)}" for name in changed)


def _meaning(name: str) -> str:
    return f"{BY_NAME[name].why} ({BY_NAME[name].unit})"


def how_to_adopt(document: Thresholds, objections: Sequence[Objection]) -> str:
    """Return the commands to adopt and to revert, or why the proposal cannot or should not be adopted."""
    codes = dict.fromkeys(item.code for item in objections)
    if not OVERRIDABLE.issuperset(codes):
        return "It cannot be adopted, even with `--force`."
    if worse := ", ".join(code.value for code in codes if code in WORSE):
        return (
            f"Do not adopt it ({worse}): on the held-out days it was worse than the present thresholds, or not better."
        )
    # Encoded as the sidecars do it, because a number may be written as 20 or 20.0.
    digest = digest_of(thresholds_of(document_of(document)))
    command = f'--reason "..." --digest {digest}`. {WAY_BACK}'
    if objections:
        return f"To adopt it despite the objections: `bundlekeel thresholds adopt --force {command}"
    return f"To adopt it: `bundlekeel thresholds adopt {command}"


def _objection(item: Objection) -> list[str]:
    return [item.code.value, f"{item.field}: {item.detail}", "yes" if item.code in OVERRIDABLE else "no"]


def _parameters(document: Thresholds) -> list[list[Cell]]:
    rows = sorted(document.parameters.items(), key=lambda item: item[1].value == item[1].previous)
    return [
        [
            f"{name}\n{_meaning(name)}",
            figure(row.previous),
            (figure(row.value), "good") if row.value != row.previous else figure(row.value),
            "" if row.value == row.previous else f"{steps_between(name, row.previous, row.value):.1f}",
            f"{figure(row.minimum)} to {figure(row.maximum)}",
            f"\n{row.evidence}",
        ]
        for name, row in rows
    ]


def _evidence(document: Thresholds) -> dict[str, Any]:
    evidence = document.evidence
    columns: dict[str, HeldOutMeasures] = {"in force": evidence.previous}
    if document.values != document.previous:
        columns |= {"proposed": evidence.chosen, "difference": evidence.difference}
    columns |= evidence.strategies
    rows = []
    for name in MEASURES:
        before = getattr(evidence.previous, name)
        cells = [
            _interval(getattr(measures, name), before if title == "difference" else None, name)
            for title, measures in columns.items()
        ]
        rows.append([f"{TITLES[name]}\n{_MEANING[name]}", *cells])
    about = (
        f"{numbered(len(evidence.held_out), 'day')} that the search did not use ({', '.join(evidence.held_out)}). "
        f"Each candidate ran once through all recorded days, from {numbered(evidence.placements, 'initial placement')} "
        f"of the bundles. Intervals of {evidence.confidence:.0%} are "
        "over days and placements."
    )
    return {"about": about, "heads": ["", *(f">{title}" for title in columns)], "rows": rows}


def _interval(value: BootstrapInterval, before: BootstrapInterval | None, name: str) -> str:
    """Return a mean, and its interval as a second line.

    `before`: if `value` is a difference, the measure before the change. The difference is then shown in percent, too.
    """
    values = (value.mean, value.low, value.high)
    if name == "imbalance":
        mean, low, high = (f"{item:+z.3f}" if before is not None else level(item) for item in values)
    else:
        mean, low, high = (figure(item, 3) for item in values)
    part = f" ({share(value.mean, before.mean)})" if before is not None else ""
    # A single run has no interval.
    return f"{mean}{part}" if low == high else f"{mean}{part}\n{low} to {high}"


def _days(report: Report) -> list[list[str]]:
    data, evidence = report.document.data, report.document.evidence
    used = dict.fromkeys(data.days, "search") | dict.fromkeys(evidence.held_out, "held out")
    return [
        [
            item.day.date,
            item.verdict,
            used.get(item.day.date, "left out"),
            f"{item.day.coverage:.1%}",
            figure(item.day.cycles),
            f"{item.day.longest_gap_minutes:.0f}",
            level(item.day.imbalance),
            figure(item.day.moves),
            "; ".join(item.reasons),
        ]
        for item in report.judged[-MOST_ROWS:]
    ]
