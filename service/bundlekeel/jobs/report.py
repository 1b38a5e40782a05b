"""`report.html`: one page for people with what the thresholds rest on. No outside resources. No Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from operator import le
from typing import Any, Final

from bundlekeel.core.calibration.adoption import WAY_BACK
from bundlekeel.core.calibration.thresholds import (
    MEASURES,
    OVERRIDABLE,
    TITLES,
    WORSE,
    BootstrapInterval,
    HeldOutMeasures,
    Objection,
    Proposed,
    Thresholds,
    steps_between,
)
from bundlekeel.core.calibration.thresholds_json import digest_of, document_of, thresholds_of
from bundlekeel.core.model.parameters import BY_NAME
from bundlekeel.core.model.text_format import figure, gain, level, numbered, share
from bundlekeel.jobs.evidence import EvidenceInput
from bundlekeel.jobs.plots import Point, candidate_plot, day_bars, line_plot, week_map
from bundlekeel.jobs.rules import JudgedDay
from bundlekeel.jobs.selection import Selection
from bundlekeel.sim import page as html
from bundlekeel.sim.backtest import CandidateMeasures
from bundlekeel.sim.backtest.intervals import measures_of

MOST_ROWS: Final = 60
_MEANING: Final = {
    "imbalance": "the busiest broker over the mean; 1 is even",
    "moves_per_hour": "by the balancer, whole cluster",
    "thrash_per_day": "a broker's load up and down beyond its trend, % of the mean",
    "overloaded_minutes_per_day": "any broker above 85%",
}
_HOW_TO_READ: Final = (
    "Recorded days were planned again with other thresholds. Most days were searched for better ones. The others, the "
    "held-out days, were kept apart: they show whether what was found holds there, too.",
    "A threshold is proposed only if it holds there, and no further from the one in force than one night may change "
    "it.",
    "Adopt a proposal if nothing speaks against it, if the unbroken run loses no balance, and if the days of the "
    "search do not promise much more than the held-out ones.",
    "“max/mean” is the score of the busiest broker over the mean of all, averaged over time; 1.00 is even. How much it "
    "changes is said in percent of its part above 1.",
    "The two figures below another one are the interval in which it lies.",
    "“Evidence” and “Candidates” are of this planning. “Days” says what the balancer did then, at its own interval.",
)
_NOT_IN_FORCE: Final = (
    "Nothing on this page is in force before it is adopted; <code>bundlekeel thresholds diff</code> shows it beside "
    "what is in force."
)
_NOT_COMPARED: Final = (
    " Whether it is of the sidecars' cluster, and whether they plan so often, was not compared, as the job was run "
    "without <code>--settings</code>; the sidecars compare it."
)
_ON_SEARCH_DAYS: Final = (
    "Days of the search: by these it was found, so it looks better there than it is; rely on the held-out days. "
)
_STYLE: Final = """
body { max-width: 1120px; }
.state { color: inherit; font-size: 17px; }
svg + :is(p, .scroll), .scroll + p { margin-top: 14px; }
.warning { color: var(--c4); }
td.number { white-space: nowrap; } td.number::before { white-space: normal; }
.far { fill: var(--soft); background: var(--soft); } .near { fill: var(--c0); background: var(--c0); }
:is(.far, .near) { opacity: .7; }
circle.present { fill: var(--c1); } circle.chosen { fill: var(--good); }
.line.present { stroke: var(--c1); } .line.chosen { stroke: var(--good); }
rect.good { fill: var(--good); } rect.partial { fill: var(--soft); } rect.bad { fill: var(--bad); }
rect.heat { fill: var(--c0); }
.key i { width: 10px; height: 10px; border-radius: 5px; }
"""
# Better points that the page explains.
_MOST_BETTER: Final = 8
_WHY_NOT: Final = {
    "near": "another one came first on the days of the search. They put candidates in order by the moves that each is "
    "expected to save and by the chance that other days confirm it, not by these figures alone. The held-out days "
    "judge only the first one: if they chose among many, no days would be left to judge the choice",
    "far": "of another strategy, or with another time between cycles: not for a threshold to change",
    "present": "in force",
}
# As Pulsar reports them.
_UNITS: Final = {"cpu": "% of a core", "direct_memory": "MiB", "bandwidth_in": "kbit/s", "bandwidth_out": "kbit/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """What the page shows beside the document. `blocks`: labels, max/mean before and after. `capacity`: rows of
    `CAPACITY`. `week`: bytes a second of the whole cluster by hour of the week. `spaces`: rows of `PROFILE`.
    `compared`: with the cluster and the interval of sidecars. `clients`: moved an hour, by column of the evidence.
    `searched`: columns of the evidence on the days of the search. `left_alone`: parameters that were asked for and not
    searched, and why. `plans`: by day, how often the back-test planned with the thresholds in force."""

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


def page(document: Thresholds, shown: ReportInputs) -> str:
    """The whole document."""
    (state, said), days = headline(document, shown.objections, shown.reason), document.data.days
    changed = document.values != document.previous
    colour = "" if not changed else "warning" if shown.objections else "good"
    parts = [
        f"<p>Cluster {escape(document.cluster or '(not named)')}, made {_when(document.created_ms)} by "
        f"{escape(document.software)}.</p>",
        f'<p class="state"><b class="{colour}">{escape(state)}.</b> {escape(said)}.</p>',
        *((_how_to_adopt(document, shown), _objections(document, shown)) if changed else ()),
        f"<p>Strategy {escape(document.strategy)}; "
        f"{numbered(len(days), 'day')}, {escape(days[0] if days else '-')} to {escape(days[-1] if days else '-')}, "
        f"{document.data.cycles:,} cycles, {document.data.coverage:.1%} recorded.</p>",
        f"<p>How to read this page:</p><ul>{''.join(f'<li>{text}</li>' for text in _HOW_TO_READ)}</ul>",
        _parameters(document, shown.left_alone),
        _evidence(document, shown.clients, shown.searched),
        _candidates(shown),
        _quality(shown, document),
        _week(shown.week),
        _namespaces(shown.spaces),
        _capacity(shown.capacity),
        _advice(document.advice),
    ]
    return html.page("Bundlekeel recalibration", _STYLE, "".join(parts))


def _when(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _section(title: str, about: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(about)}</p>{body}</section>" if body else ""


def headline(document: Thresholds, objections: Sequence[Objection], reason: str) -> tuple[str, str]:
    """What comes of the run, and what it rests on; the terminal says the same."""
    changes = ", ".join(
        f"{name} {figure(row.previous)} -> {figure(row.value)}"
        for name, row in sorted(document.parameters.items())
        if row.value != row.previous
    )
    if not changes:
        return "Nothing to change", f"The thresholds in force stay: {reason or 'they are the best that was found'}"
    state, codes = "Proposed", ", ".join(dict.fromkeys(item.code.value for item in objections))
    if objections:
        state = "Not to be adopted" if refused(objections) else "Found, and not adopted by the sidecars as it is"
        state += f" ({codes})"
    held, ran = numbered(len(document.evidence.held_out), "day"), ""
    if alone := document.evidence.unbroken:
        moves, imbalance = (
            (getattr(alone.previous, name).mean, getattr(alone.chosen, name).mean)
            for name in ("moves_per_hour", "imbalance")
        )
        ran = f". In one unbroken run over them: {gain(moves, imbalance)}"
    return f"{state}: {changes}", f"On {held} that the search did not see: {reason}{ran}"


def meanings(document: Thresholds) -> tuple[str, ...]:
    """A line for each parameter that would change: what it does, for the terminal."""
    changed = (name for name, row in sorted(document.parameters.items()) if row.value != row.previous)
    return tuple(f"{name}: {_meaning(name)}" for name in changed)


def _meaning(name: str) -> str:
    return f"{BY_NAME[name].why} ({BY_NAME[name].unit})"


def refused(objections: Sequence[Objection]) -> str:
    """Why nobody can adopt it, or should; empty: a person may."""
    codes = dict.fromkeys(item.code for item in objections)
    if not OVERRIDABLE.issuperset(codes):
        return "It cannot be adopted, not with `--force` either."
    if worse := ", ".join(code.value for code in codes if code in WORSE):
        return f"Do not adopt it ({worse}): on the held-out days it was worse than what is in force, or not better."
    return ""


def how_to_adopt(document: Thresholds, objections: Sequence[Objection]) -> str:
    """The command and the way back, or why there is none."""
    if why := refused(objections):
        return why
    # As the sidecars read it: a whole number may be written as 20 or 20.0.
    digest = digest_of(thresholds_of(document_of(document)))
    command = f'--reason "..." --digest {digest}`. {WAY_BACK}'
    if objections:
        return f"If you want to try it in spite of that: `bundlekeel thresholds adopt --force {command}"
    return f"To adopt it: `bundlekeel thresholds adopt {command}"


def _how_to_adopt(document: Thresholds, shown: ReportInputs) -> str:
    """The command; that which adopts against objections comes after these."""
    how = "" if shown.objections else f"{_coded(how_to_adopt(document, ()))}. "
    return f"<p>{how}{_NOT_IN_FORCE}{'' if shown.compared else _NOT_COMPARED}</p>"


def _coded(text: str) -> str:
    """Plain text as HTML, what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _objections(document: Thresholds, shown: ReportInputs) -> str:
    """Each, and at the end the command with `--force`; none where it is refused, or where nobody should run it."""
    rows = [
        [
            escape(item.code.value),
            escape(f"{item.field}: {item.detail}"),
            "yes" if item.code in OVERRIDABLE else "no",
        ]
        for item in shown.objections
    ]
    about = (
        "The sidecars do not adopt this document by themselves, for these reasons. A person can adopt it in spite of "
        "those of which the last column says “yes”, if there are no others."
    )
    table = html.table(("code", "reason", "--force helps"), rows)
    how = _coded(how_to_adopt(document, shown.objections))
    return _section("What speaks against it", about, f"{table}<p>{how}</p>" if table else "")


def _parameters(document: Thresholds, alone: Mapping[str, str]) -> str:
    rows = [
        [
            f"{escape(name)}<br><small>{escape(_meaning(name))}</small>",
            figure(row.previous),
            f"<b class='good'>{figure(row.value)}</b>" if row.value != row.previous else figure(row.value),
            _steps(name, row),
            f"{figure(row.minimum)} to {figure(row.maximum)}",
            f"<small>{escape(row.evidence)}</small>",
        ]
        for name, row in sorted(document.parameters.items(), key=lambda item: item[1].value == item[1].previous)
    ]
    about = (
        "All parameters that were searched; changed ones first. Steps: how far the proposed value is from the one in "
        "force, in the steps of the table of parameters; calibration.max_steps limits them."
    )
    table = html.table(("parameter", "in force", "proposed", "steps", "range", "evidence"), rows)
    listed = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in alone.items())
    return _section("Thresholds", about, f"{table}<p>Left as they are:</p><ul>{listed}</ul>" if listed else table)


def _steps(name: str, row: Proposed) -> str:
    """As `thresholds diff` has them."""
    return "" if row.value == row.previous else f"{steps_between(name, row.previous, row.value):.1f}"


def _evidence(document: Thresholds, clients: Mapping[str, str], searched: Mapping[str, HeldOutMeasures]) -> str:
    evidence = document.evidence
    columns: dict[str, HeldOutMeasures] = {"in force": evidence.previous}
    if document.values != document.previous:
        columns |= {"proposed": evidence.chosen, "difference": evidence.difference}
    if evidence.unbroken is not None:
        columns |= {"in force, unbroken": evidence.unbroken.previous, "proposed, unbroken": evidence.unbroken.chosen}
    columns |= searched
    columns |= evidence.strategies
    rows = [
        [f"{TITLES[name]}<br><small>{escape(_MEANING[name])}</small>"]
        + [
            _interval(
                getattr(measures, name), getattr(evidence.previous, name) if title == "difference" else None, name
            )
            for title, measures in columns.items()
        ]
        for name in MEASURES
    ]
    if clients:
        about = "producers and consumers of the bundles that moved; without an interval"
        moved = f"clients moved an hour<br><small>{about}</small>"
        rows.insert(2, [moved, *(clients.get(title, "") for title in columns)])
    about = (
        f"On {numbered(len(evidence.held_out), 'day')} that the search did not see ({', '.join(evidence.held_out)}). "
        f"Planned again each {figure(evidence.period_seconds)} s. What is found holds for balancers that plan so "
        "often. A sidecar that plans more often, as with counters, acts sooner than these figures show, with the "
        f"thresholds in force and with those proposed. Intervals of {evidence.confidence:.0%}, by resampling whole "
        "blocks of hours; each block begins where bundles were recorded to be, and its warm-up is not counted. "
        "Unbroken: one run over all of these days. "
        + (_ON_SEARCH_DAYS if searched else "")
        + ("Columns behind these are other strategies at their best, to compare." if evidence.strategies else "")
    )
    return _section("Evidence", about, html.table(("", *columns), rows))


def _interval(value: BootstrapInterval, before: BootstrapInterval | None, name: str) -> str:
    """`before`: of a difference, to say it in percent, too."""
    found = (value.mean, value.low, value.high)
    if name == "imbalance":
        mean, low, high = (f"{item:+z.3f}" if before is not None else level(item) for item in found)
    else:
        mean, low, high = (figure(item, 3) for item in found)
    part = f" ({share(value.mean, before.mean)})" if before is not None else ""
    # One run is one sample, without an interval.
    return f"{mean}{part}" if low == high else f"{mean}{part}<br><small>{low} to {high}</small>"


def _candidates(shown: ReportInputs) -> str:
    labels, before, after = shown.blocks
    rows = [("present", "in force", before)]
    if after != before:
        rows.append(("chosen", "proposed", after))
    key = (
        '<p class="key"><span><i style="background:var(--c1)"></i>in force</span>'
        '<span><i style="background:var(--good)"></i>proposed</span>'
        '<span><i class="near"></i>within one night\'s reach</span>'
        '<span><i class="far"></i>other</span></p>'
    )
    body = candidate_plot(shown.points) + line_plot(labels, rows, TITLES["imbalance"])
    about = (
        "Every candidate (a set of thresholds that was tried) on the held-out days: further down is better balance, "
        "further left fewer moves. Below it max/mean block by block."
    )
    return _section("Candidates", about, key + body + _better(shown) if body else "")


def _better(shown: ReportInputs) -> str:
    """Why points that lie lower and further left than what is proposed are not: a plot alone would suggest them."""
    proposed = next((point for kind in ("chosen", "present") for point in shown.points if point.kind == kind), None)
    if proposed is None:
        return ""
    own = _printed(proposed)
    rows = [point for point in shown.points if all(map(le, _printed(point), own)) and _printed(point) != own]
    if not rows:
        return ""
    listed = "".join(
        f"<li>{escape(point.label)}{escape(_on_search_days(point))}: {_why_not(point, shown.reason)}</li>"
        for point in rows[:_MOST_BETTER]
    )
    compared = "proposed" if proposed.kind == "chosen" else "in force"
    return (
        f"<p>The plot has {numbered(len(rows), 'candidate')} as good as what is {compared} or better by both figures "
        f"(max/mean {proposed.y:.4f}, {figure(proposed.x, 3)} moves an hour{escape(_on_search_days(proposed))}). "
        f"Why not proposed:</p><ul>{listed}</ul>"
    )


def _on_search_days(point: Point) -> str:
    return f"; on the days of the search {point.searched}" if point.searched else ""


def _printed(point: Point) -> tuple[float, float]:
    """As the labels have it: what differs in later digits only would look equal."""
    return round(point.y, 4), float(figure(point.x, 3).replace(",", ""))


def _why_not(point: Point, reason: str) -> str:
    if point.label.rpartition(": max/mean")[0] in reason:
        return "the one that these days were to confirm, and they did not, as the top of this page says"
    return _WHY_NOT[point.kind]


def _quality(shown: ReportInputs, document: Thresholds) -> str:
    used = dict.fromkeys(document.data.days, "search") | dict.fromkeys(document.evidence.held_out, "held out")
    bars = day_bars([(item.day.date, item.day.coverage, item.verdict) for item in shown.judged])
    rows = [
        [
            escape(item.day.date),
            escape(item.verdict),
            used.get(item.day.date, "left out"),
            f"{item.day.coverage:.1%}",
            figure(item.day.cycles),
            figure(shown.plans[item.day.date]) if item.day.date in shown.plans else "",
            f"{item.day.longest_gap_minutes:.0f}",
            level(item.day.imbalance),
            figure(item.day.moves),
            escape("; ".join(item.reasons)),
        ]
        for item in shown.judged[-MOST_ROWS:]
    ]
    heads = ("day", "verdict", "used for", "recorded", "cycles", "plans", "longest gap (min)", "max/mean", "moves", "")
    about = (
        "What is recorded, and what it was used for: the search, or, held out from it, the judgement. Cycles are those "
        "recorded. Plans: how often the back-test planned on that day with the thresholds in force; the figures of "
        "“Evidence” are of those on the held-out days. Moves are those that the balancer made then, with the "
        "thresholds and at the interval of that time; “Evidence” has other figures because the days were planned again."
    )
    return _section("Days", about, bars + html.table(heads, rows))


def _week(values: Sequence[float | None]) -> str:
    known = [value / 1e6 for value in values if value is not None] or [0.0]
    about = (
        "Traffic in and out of the whole cluster by hour, UTC: "
        f"from {figure(min(known), 3)} (pale) to {figure(max(known), 3)} MB/s (strong colour)."
    )
    return _section("The week", about, week_map(values))


def _namespaces(found: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            escape(str(row["name"])),
            figure(row["bytes"] / 1e6, 3),
            figure(row["bytes_peak"] / 1e6, 3),
            _percent(row["volatility"]),
            _percent(row["growth"]),
            figure(round(row["clients"])),
            figure(row["moves_per_day"], 3),
            figure(row["clients_moved_per_day"], 3),
        ]
        for row in found
    ]
    traffic = ("namespace", "MB/s", "highest hour", "volatility", "growth a day")
    about = (
        f"At most {MOST_ROWS}, those with the most traffic. Highest hour: MB/s. Volatility: standard deviation of the "
        "hours over their mean. Moves: changes of owner between two snapshots of one hour, those after a broker "
        "stopped too, so the sum is not that of Days. Clients: producers and consumers."
    )
    return _section("Namespaces", about, html.table((*traffic, "clients", "moves a day", "clients moved a day"), rows))


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"


def _capacity(found: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            escape(str(row["broker"])),
            escape(str(row["resource"])),
            "not seen by the broker"
            if row["blind"]
            else f"{figure(row['limit'])} {_UNITS.get(str(row['resource']), '')}",
            figure(row["base"], 3) if abs(row["base"]) >= 0.001 else "0",
            figure(1e6 * (row["per_msg_throughput_in"] + row["per_msg_throughput_out"]) / 2, 3),
            figure(1e3 * (row["per_msg_rate_in"] + row["per_msg_rate_out"]) / 2, 3),
            "" if row["error"] is None else f"{row['error']:.2f}",
        ]
        for row in found[:MOST_ROWS]
    ]
    heads = ("broker", "resource", "limit", "base", "per MB/s", "per 1,000 msg/s", "error (% of the limit)")
    about = (
        "Usage by traffic, in the unit of the limit: base without traffic, and what a MB/s or 1,000 messages a second "
        "add. Robust regression; the error is the median in hours that the fit did not see."
    )
    more = f" The first {MOST_ROWS} of {len(found)} rows." if len(found) > MOST_ROWS else ""
    return _section("Capacity", about + more, html.table(heads, rows))


def _advice(found: Sequence[str]) -> str:
    rows = "".join(f"<li>{escape(text)}</li>" for text in found)
    return _section("Advice", "Other settings; changes too large for one night.", f"<ul>{rows}</ul>" if rows else "")


# More points would hide one another.
_MOST = 600


def points_of(told: EvidenceInput, chosen: Selection) -> list[Point]:
    """Every candidate on the held-out days: moves an hour and max/mean."""
    found = []
    for key, blocks in told.blocks.items():
        whole = CandidateMeasures.sum(blocks.values())
        if not whole.seconds:
            continue
        kind = "near" if key in chosen.near else "far"
        kind = "present" if key == told.present.key else "chosen" if key == told.chosen.key else kind
        label = f"{chosen.tried.candidates[key].name}: {_told(whole)}"
        days = CandidateMeasures.sum(told.searched.get(key, {}).values())
        searched = _told(days) if days.seconds else ""
        point = Point(x=whole.moves_per_day / 24, y=1 + whole.imbalance, kind=kind, label=label, searched=searched)
        found.append(point)
    ranked = sorted(found, key=lambda point: (point.kind == "far", point.y))
    return ranked[:_MOST]


def _told(found: CandidateMeasures) -> str:
    return f"max/mean {1 + found.imbalance:.4f}, {figure(found.moves_per_day / 24, 3)} moves an hour"


def searched_of(told: EvidenceInput) -> dict[str, HeldOutMeasures]:
    """Columns of the evidence on the days of the search; none where nothing changes."""
    if told.chosen.key == told.present.key or not told.searched:
        return {}
    return {
        f"{title}, days of the search": measures_of(told.searched[key], seed=told.seed)
        for title, key in (("in force", told.present.key), ("proposed", told.chosen.key))
    }


def clients_of(told: EvidenceInput) -> dict[str, str]:
    """Producers and consumers that moved in an hour, by column of the evidence."""
    chosen = {"in force": told.present.key, "proposed": told.chosen.key}
    whole = {**chosen, **told.strategies}
    sums = {title: CandidateMeasures.sum(told.blocks[key].values()) for title, key in whole.items()}
    sums |= {f"{title}, unbroken": told.unbroken[key] for title, key in chosen.items() if key in told.unbroken}
    searched = {title: told.searched[key].values() for title, key in chosen.items() if key in told.searched}
    sums |= {f"{title}, days of the search": CandidateMeasures.sum(blocks) for title, blocks in searched.items()}
    moved = {title: found.per_day(found.moved_sessions) / 24 for title, found in sums.items()}
    less = moved["proposed"] - moved["in force"]
    return {title: figure(value, 3) for title, value in moved.items()} | {
        "difference": f"{figure(less, 3)} ({share(less, moved['in force'])})"
    }


def blocks_shown(told: EvidenceInput, labels: Sequence[str]) -> tuple[Sequence[str], Sequence[float], Sequence[float]]:
    """Labels, and max/mean block by block of what is in force and of what is proposed."""
    before, after = told.blocks[told.present.key], told.blocks[told.chosen.key]
    numbers = sorted(set(before) & set(after))
    return (
        [labels[place] if place < len(labels) else "" for place in range(len(numbers))],
        [1 + before[number].imbalance for number in numbers],
        [1 + after[number].imbalance for number in numbers],
    )
