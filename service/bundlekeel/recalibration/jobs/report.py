"""`report.html`: one page that shows operators the evidence for proposed thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import le
from typing import Any, Final

from bundlekeel.model.parameters import BY_NAME
from bundlekeel.model.text_format import figure, gain, level, numbered, share
from bundlekeel.recalibration.backtest import CandidateMeasures
from bundlekeel.recalibration.backtest.intervals import measures_of
from bundlekeel.recalibration.jobs.evidence import EvidenceInput
from bundlekeel.recalibration.jobs.plots import Point, block_plot, candidate_plot, day_bars, week_map
from bundlekeel.recalibration.jobs.rules import JudgedDay
from bundlekeel.recalibration.jobs.selection import Selection
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
# Values of one section of the template.
Section = dict[str, Any]
MOST_ROWS: Final = 60
_ON_SEARCH_DAYS: Final = (
    "Days of the search: they chose the proposal, so it looks better there than it is; rely on the held-out days. "
)
_MEANING: Final = {
    "imbalance": "the busiest broker over the mean; 1 is even",
    "moves_per_hour": "by the balancer, whole cluster",
    "thrash_per_day": "a broker's load up and down beyond its trend, % of the mean",
    "overloaded_minutes_per_day": "any broker above 85%",
}
# The page explains at most this many points that look better than the proposal.
_MOST_BETTER: Final = 8
_WHY_NOT: Final = {
    "near": "another one was first on the days of the search. They order candidates by the share of moves that "
    "each saves and by the chance that other days confirm it, not by these two values. "
    "The held-out days judge only the first one: if they selected among many, no days would remain to judge the result",
    "far": "of another strategy, or with another time between cycles: a threshold cannot change that",
    "present": "in force",
}
# Units in Pulsar's load reports.
_UNITS: Final = {"cpu": "% of a core", "direct_memory": "MiB", "bandwidth_in": "kbit/s", "bandwidth_out": "kbit/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """Content of the report, in addition to the proposal (`thresholds.json`).

    judged: all days of the history with their verdicts.
    points: the candidates in the plot.
    blocks: by held-out hour, its date, and max/mean with the active and with the proposed thresholds.
    capacity: usage by traffic, rows of `columns.CAPACITY`.
    week: bytes per second of the whole cluster by hour of the week; None: unknown.
    spaces: the busiest namespaces, rows of `columns.PROFILE`.
    objections: why the proposal must not be adopted, or not automatically.
    reason: why the proposal was chosen, or why nothing changes.
    compared: whether the history's cluster name and interval were compared with those of the sidecars.
    clients: producers and consumers moved per hour, by column title of the evidence table.
    searched: measures on the days of the search, by column title of the evidence table.
    left_alone: requested parameters that were not searched, with the reason.
    plans: by day, how often the back-test planned with the active thresholds.
    """

    judged: Sequence[JudgedDay] = ()
    points: Sequence[Point] = ()
    blocks: tuple[Sequence[str], Sequence[float], Sequence[float]] = ((), (), ())
    capacity: Sequence[Mapping[str, Any]] = ()
    week: Sequence[float | None] = ()
    spaces: Sequence[Mapping[str, Any]] = ()
    objections: Sequence[Objection] = ()
    reason: str = ""
    compared: bool = True
    clients: Mapping[str, str] = field(default_factory=dict)
    searched: Mapping[str, HeldOutMeasures] = field(default_factory=dict)
    left_alone: Mapping[str, str] = field(default_factory=dict)
    plans: Mapping[str, int] = field(default_factory=dict)


def page(document: Thresholds, inputs: ReportInputs) -> str:
    """Return `report.html` as text."""
    days, changed = document.data.days, document.values != document.previous
    span = f"{numbered(len(days), 'day')}, {days[0] if days else '-'} to {days[-1] if days else '-'}"
    return render(
        "recalibration.html",
        "bundlekeel.recalibration.jobs",
        document=document,
        created=f"{datetime.fromtimestamp(document.created_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC",
        state=headline(document, inputs.objections, inputs.reason),
        colour="" if not changed else "warning" if inputs.objections else "good",
        changed=changed,
        compared=inputs.compared,
        objections=[_objection(item) for item in inputs.objections],
        how_to_adopt=how_to_adopt(document, inputs.objections),
        span=span,
        parameters=_parameters(document),
        left_alone=inputs.left_alone,
        evidence=_evidence(document, inputs.clients, inputs.searched),
        candidates=candidate_plot(inputs.points),
        blocks=block_plot(*inputs.blocks),
        better=_better(inputs),
        days=_days(inputs, document),
        week=week_map(inputs.week),
        spaces=[_namespace(row) for row in inputs.spaces],
        capacity=[_capacity(row) for row in inputs.capacity[:MOST_ROWS]],
        most=MOST_ROWS,
    )


def headline(document: Thresholds, objections: Sequence[Objection], reason: str) -> tuple[str, str]:
    """Return the result of the run and its evidence, for the page and the terminal."""
    changes = ", ".join(
        f"{name} {figure(row.previous)} -> {figure(row.value)}"
        for name, row in sorted(document.parameters.items())
        if row.value != row.previous
    )
    if not changes:
        return "Nothing to change", f"The thresholds in force stay: {reason or 'no better ones were found'}"
    state, codes = "Proposed", ", ".join(dict.fromkeys(item.code.value for item in objections))
    if objections:
        state = "Not to be adopted" if explain_refusal(objections) else "Not adopted automatically by the sidecars"
        state += f" ({codes})"
    days, unbroken_run = numbered(len(document.evidence.held_out), "day"), ""
    if unbroken := document.evidence.unbroken:
        moves, imbalance = (
            (getattr(unbroken.previous, name).mean, getattr(unbroken.chosen, name).mean)
            for name in ("moves_per_hour", "imbalance")
        )
        unbroken_run = f". In one unbroken run over them: {gain(moves, imbalance)}"
    return f"{state}: {changes}", f"On {days} that the search did not use: {reason}{unbroken_run}"


def meanings(document: Thresholds) -> tuple[str, ...]:
    """Return one line per changed parameter with its purpose, for the terminal."""
    changed = (name for name, row in sorted(document.parameters.items()) if row.value != row.previous)
    return tuple(f"{name}: {_meaning(name)}" for name in changed)


def _meaning(name: str) -> str:
    return f"{BY_NAME[name].why} ({BY_NAME[name].unit})"


def explain_refusal(objections: Sequence[Objection]) -> str:
    """Return why an operator cannot or should not adopt the proposal; empty: nothing prevents that."""
    codes = dict.fromkeys(item.code for item in objections)
    if not OVERRIDABLE.issuperset(codes):
        return "It cannot be adopted, even with `--force`."
    if worse := ", ".join(code.value for code in codes if code in WORSE):
        return (
            f"Do not adopt it ({worse}): on the held-out days it was worse than the present thresholds, or not better."
        )
    return ""


def how_to_adopt(document: Thresholds, objections: Sequence[Objection]) -> str:
    """Return the commands to adopt and to revert, or why the proposal cannot be adopted."""
    if why := explain_refusal(objections):
        return why
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


def _evidence(document: Thresholds, clients: Mapping[str, str], searched: Mapping[str, HeldOutMeasures]) -> Section:
    evidence = document.evidence
    columns: dict[str, HeldOutMeasures] = {"in force": evidence.previous}
    if document.values != document.previous:
        columns |= {"proposed": evidence.chosen, "difference": evidence.difference}
    if evidence.unbroken is not None:
        columns |= {"in force, unbroken": evidence.unbroken.previous, "proposed, unbroken": evidence.unbroken.chosen}
    columns |= searched
    columns |= evidence.strategies
    rows = []
    for name in MEASURES:
        before = getattr(evidence.previous, name)
        cells = [
            _interval(getattr(measures, name), before if title == "difference" else None, name)
            for title, measures in columns.items()
        ]
        rows.append([f"{TITLES[name]}\n{_MEANING[name]}", *cells])
    if clients:
        moved = "clients moved per hour\nproducers and consumers of the bundles that moved; without an interval"
        rows.insert(2, [moved, *(clients.get(title, "") for title in columns)])
    about = (
        f"On {numbered(len(evidence.held_out), 'day')} that the search did not use ({', '.join(evidence.held_out)}). "
        f"Planned again every {figure(evidence.period_seconds)} s. The result holds for balancers that plan as often. "
        "A sidecar that plans more often, as with counters, acts sooner than this shows, with the thresholds in force "
        f"and with the proposed ones. Intervals of {evidence.confidence:.0%}, by resampling whole blocks of hours; "
        "each block begins where bundles were recorded to be, and its warm-up is not counted. Unbroken: one run over "
        "all of these days. "
        + (_ON_SEARCH_DAYS if searched else "")
        + (
            "The last columns are the best candidates of other strategies, for comparison."
            if evidence.strategies
            else ""
        )
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


def _better(inputs: ReportInputs) -> Section:
    """Explain why points that lie lower and further left than the proposal are not proposed."""
    proposed = next((point for kind in ("chosen", "present") for point in inputs.points if point.kind == kind), None)
    if proposed is None:
        return {"rows": []}
    own = _printed(proposed)
    points = [point for point in inputs.points if all(map(le, _printed(point), own)) and _printed(point) != own]
    return {
        "count": numbered(len(points), "candidate"),
        "than": "proposed" if proposed.kind == "chosen" else "in force",
        "own": f"max/mean {proposed.y:.4f}, {figure(proposed.x, 3)} moves per hour{_on_search_days(proposed)}",
        "rows": [
            f"{point.label}{_on_search_days(point)}: {_why_not(point, inputs.reason)}"
            for point in points[:_MOST_BETTER]
        ],
    }


def _on_search_days(point: Point) -> str:
    return f"; on the days of the search {point.searched}" if point.searched else ""


def _printed(point: Point) -> tuple[float, float]:
    """Return max/mean and moves per hour, rounded as in the labels, so that points that look equal are equal."""
    return round(point.y, 4), float(figure(point.x, 3).replace(",", ""))


def _why_not(point: Point, reason: str) -> str:
    if point.label.rpartition(": max/mean")[0] in reason:
        return "the held-out days did not confirm it, see the top of this page"
    return _WHY_NOT[point.kind]


def _days(inputs: ReportInputs, document: Thresholds) -> Section:
    used = dict.fromkeys(document.data.days, "search") | dict.fromkeys(document.evidence.held_out, "held out")
    rows = [
        [
            item.day.date,
            item.verdict,
            used.get(item.day.date, "left out"),
            f"{item.day.coverage:.1%}",
            figure(item.day.cycles),
            figure(inputs.plans[item.day.date]) if item.day.date in inputs.plans else "",
            f"{item.day.longest_gap_minutes:.0f}",
            level(item.day.imbalance),
            figure(item.day.moves),
            "; ".join(item.reasons),
        ]
        for item in inputs.judged[-MOST_ROWS:]
    ]
    return {
        "plot": day_bars([(item.day.date, item.day.coverage, item.verdict) for item in inputs.judged]),
        "rows": rows,
    }


def _namespace(row: Mapping[str, Any]) -> list[str]:
    return [
        str(row["name"]),
        figure(row["bytes"] / 1e6, 3),
        figure(row["bytes_peak"] / 1e6, 3),
        *("" if row[name] is None else f"{row[name]:.1%}" for name in ("volatility", "growth")),
        figure(round(row["clients"])),
        figure(row["moves_per_day"], 3),
        figure(row["clients_moved_per_day"], 3),
    ]


def _capacity(row: Mapping[str, Any]) -> list[str]:
    return [
        str(row["broker"]),
        str(row["resource"]),
        "not seen by the broker" if row["blind"] else f"{figure(row['limit'])} {_UNITS.get(str(row['resource']), '')}",
        figure(row["base"], 3) if abs(row["base"]) >= 0.001 else "0",
        figure(1e6 * (row["per_msg_throughput_in"] + row["per_msg_throughput_out"]) / 2, 3),
        figure(1e3 * (row["per_msg_rate_in"] + row["per_msg_rate_out"]) / 2, 3),
        "" if row["error"] is None else f"{row['error']:.2f}",
    ]


# The plot shows at most this many points, because more would cover each other.
_MOST = 600


def points_of(inputs: EvidenceInput, selection: Selection) -> list[Point]:
    """Return the points of the plot: moves per hour and max/mean of each candidate on the held-out days."""
    points = []
    for key, blocks in inputs.blocks.items():
        whole = CandidateMeasures.sum(blocks.values())
        if not whole.seconds:
            continue
        kind = "near" if key in selection.near else "far"
        kind = "present" if key == inputs.present.key else "chosen" if key == inputs.chosen.key else kind
        label = f"{selection.tried.candidates[key].name}: {_describe(whole)}"
        days = CandidateMeasures.sum(inputs.searched.get(key, {}).values())
        searched = _describe(days) if days.seconds else ""
        point = Point(x=whole.moves_per_day / 24, y=1 + whole.imbalance, kind=kind, label=label, searched=searched)
        points.append(point)
    ranked = sorted(points, key=lambda point: (point.kind == "far", point.y))
    return ranked[:_MOST]


def _describe(measures: CandidateMeasures) -> str:
    return f"max/mean {1 + measures.imbalance:.4f}, {figure(measures.moves_per_day / 24, 3)} moves per hour"


def searched_of(inputs: EvidenceInput) -> dict[str, HeldOutMeasures]:
    """Return the measures on the days of the search, by column of the evidence table; empty if nothing changes."""
    if inputs.chosen.key == inputs.present.key or not inputs.searched:
        return {}
    return {
        f"{title}, days of the search": measures_of(inputs.searched[key], seed=inputs.seed)
        for title, key in (("in force", inputs.present.key), ("proposed", inputs.chosen.key))
    }


def clients_of(inputs: EvidenceInput) -> dict[str, str]:
    """Return how many producers and consumers moved per hour, by column of the evidence table."""
    keys = {"in force": inputs.present.key, "proposed": inputs.chosen.key}
    whole = {**keys, **inputs.strategies}
    sums = {title: CandidateMeasures.sum(inputs.blocks[key].values()) for title, key in whole.items()}
    sums |= {f"{title}, unbroken": inputs.unbroken[key] for title, key in keys.items() if key in inputs.unbroken}
    searched = {title: inputs.searched[key].values() for title, key in keys.items() if key in inputs.searched}
    sums |= {f"{title}, days of the search": CandidateMeasures.sum(blocks) for title, blocks in searched.items()}
    moved = {title: measures.per_day(measures.moved_sessions) / 24 for title, measures in sums.items()}
    difference = moved["proposed"] - moved["in force"]
    return {title: figure(value, 3) for title, value in moved.items()} | {
        "difference": f"{figure(difference, 3)} ({share(difference, moved['in force'])})"
    }


def block_series(
    inputs: EvidenceInput, labels: Sequence[str]
) -> tuple[Sequence[str], Sequence[float], Sequence[float]]:
    """Return the label of each held-out block of history, and its max/mean with the present and with the proposed
    thresholds."""
    before, after = inputs.blocks[inputs.present.key], inputs.blocks[inputs.chosen.key]
    numbers = sorted(set(before) & set(after))
    return (
        [labels[place] if place < len(labels) else "" for place in range(len(numbers))],
        [1 + before[number].imbalance for number in numbers],
        [1 + after[number].imbalance for number in numbers],
    )
