"""The page that `simulate --html` writes: loads over time, moves and splits as marks, measures, what did not hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from bundlekeel import __version__
from bundlekeel.cli.offline.simulate_report import (
    COLUMNS,
    NEVER,
    PAIRS_TITLE,
    counts,
    figure,
    grouped,
    other_values,
    pair_rows,
)
from bundlekeel.core.model.load import Floats
from bundlekeel.core.model.text_format import numbered
from bundlekeel.sim import page as html
from bundlekeel.sim.measures import OVER
from bundlekeel.sim.page import Axis
from bundlekeel.sim.pairs import PROPERTIES
from bundlekeel.sim.run import Run
from bundlekeel.sim.scenario import Scenario

WIDTH, HEIGHT = 720, 270
LEFT, RIGHT, TOP, BOTTOM = 64, 10, 18, 54
# More brokers than this are shown as bands: single lines could not be told apart.
MOST_LINES = 16
MOST_POINTS = 240

_STYLE = """
body { max-width: 1560px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 18px; }
.scroll, .plots + p { margin-top: 14px; }
th { vertical-align: bottom; } th, td { padding-right: 8px; } td b { white-space: nowrap; }
.beside { color: var(--soft); }
ul { margin: 10px 0 0; padding-left: 20px; color: var(--soft); }
.limit { stroke: var(--bad); stroke-dasharray: 5 4; } .band { fill: var(--c0); opacity: .18; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); } .c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
.move { stroke: var(--text); stroke-width: 2; } .split { stroke: var(--c1); stroke-width: 2; }
.other { stroke: var(--soft); stroke-width: 1.5; }
.key .tick { width: 3px; height: 11px; background: var(--text); } .key .cut { width: 3px; height: 8px;
  background: var(--c1); } .key .rest { width: 3px; height: 6px; background: var(--soft); }
.key svg { width: 22px; height: 6px; display: inline-block; vertical-align: 3px; } .later { stroke-dasharray: 6 3; }
.key .dash { width: 22px; border-top: 2px dashed var(--bad); vertical-align: 4px; }
"""
_KEY = (
    '<p class="key"><span><i class="dash"></i>85 %</span><span><i class="tick"></i>moves by the balancer</span>'
    '<span><i class="cut"></i>splits</span><span><i class="rest"></i>bundles that left their broker otherwise</span>'
    "<span>lines: load of each broker, what others use of its host included; with many brokers: range, middle 80 %, "
    "median</span></p>"
)


def page(runs: Sequence[Run], pairs: str = "", made: str = "") -> str:
    """The whole document. `pairs`: a table that goes first, as HTML; `made`: when and by which command."""
    found = grouped(runs)
    names = [escape(scenario.name) for scenario, _ in found]
    links = " · ".join(f'<a href="#{name}">{name}</a>' for name in names) if len(names) > 1 else ""
    glossary = "".join(f"<li><b>{escape(column.title)}</b>: {escape(column.why)}</li>" for column in COLUMNS)
    return html.page(
        "Bundlekeel simulation",
        _STYLE,
        f"<p>{numbered(len(runs), 'run')} of {numbered(len(found), 'scenario')}. {_verdict(runs)} "
        f"Bundlekeel {escape(__version__)}. {escape(made)} "
        f'<a href="#measures">What the measures mean</a>.</p>{pairs}'
        f"<p>{links}</p>{_KEY}{''.join(_section(scenario, rows) for scenario, rows in found)}"
        f'<section id="measures"><h2>Measures</h2><ul>{glossary}</ul></section>',
    )


def _verdict(runs: Sequence[Run]) -> str:
    """Whose expectations held, and that what others miss is no failure."""

    def named(*, counted: bool, missed: bool) -> str:
        found = (run for run in runs if counts(run) == counted and (run.failed or not missed))
        # A label may have a comma of its own.
        return escape(" · ".join(dict.fromkeys(run.contender.label for run in found)))

    failed, beside = named(counted=True, missed=True), named(counted=False, missed=True)
    said = (
        f'<b class="bad">not as expected: {failed}</b>.'
        if failed
        else f'<b class="good">{named(counted=True, missed=False)}: all as expected</b>.'
    )
    return f"{said} To compare with: {beside}; what these miss is grey, and no failure." if beside else said


def _section(scenario: Scenario, rows: list[tuple[str, list[Run]]]) -> str:
    first = [runs[0] for _, runs in rows]
    # A common top of the axes, in steps of 20 %; a load far above 100 % is cut at 200 %.
    highest = max(run.measures.highest / 100 for run in first)
    top = min(max(1.0, math.ceil(highest * 5) / 5), 2.0)
    plots = "".join(
        f"<div><h3>{escape(run.contender.label)}, seed {run.seed}</h3>{_chart(run, top)}</div>" for run in first
    )
    about = " ".join(filter(None, (scenario.about, f"Source: {scenario.source}." if scenario.source else "")))
    return (
        f'<section id="{escape(scenario.name)}"><h2>{escape(scenario.name)}: {escape(scenario.title)}</h2>'
        f"<p>{escape(about)}</p><p>{_compared(rows)}</p>"
        f'<div class="plots">{plots}</div>{_legend(first)}{_figures(rows)}{_findings(rows)}</section>'
    )


def _compared(rows: list[tuple[str, list[Run]]]) -> str:
    """What each came to, in a line, with the parameters that it ran with beside the stock ones."""
    balanced, moved = (
        next(column for column in COLUMNS if column.title == title) for title in ("balanced min", "unloads")
    )
    lines = []
    for label, runs in rows:
        minute = figure(runs, balanced)
        when = "never balanced" if minute == NEVER else f"balanced from minute {minute}"
        left = f"{figure(runs, moved)} bundles left their broker"
        told = other_values({**runs[0].scenario.parameters, **runs[0].contender.parameters}) or "stock parameters"
        source = f"loads by {runs[0].contender.source}"
        lines.append(f"<b>{escape(label)}</b>: {when}, {left}; {source}; {escape(told)}.")
    if (seeds := len(rows[0][1])) > 1:
        lines.append(f"Of {seeds} seeds: median and range; the plots show the first.")
    return "<br>".join(lines)


def _figures(rows: list[tuple[str, list[Run]]]) -> str:
    titles = (f'<span title="{escape(column.why)}">{escape(_two_lines(column.title))}</span>' for column in COLUMNS)
    lines = []
    for label, runs in rows:
        missed = next((run for run in runs if run.failed), None)
        state = '<b class="good">held</b>' if missed is None else f"<b{_fault(missed)}>not held</b>"
        lines.append([_breakable(label), state, *(_breakable(figure(runs, column)) for column in COLUMNS)])
    return html.table(("strategy", "expected", *titles), lines)


def _two_lines(title: str) -> str:
    """At most, in a narrow column: only its last space can end a line."""
    first, space, last = title.rpartition(" ")
    return first.replace(" ", "\u00a0") + space + last


def _fault(run: Run) -> str:
    """Red is what is a failure of the command alone."""
    return ' class="bad"' if counts(run) else ' class="beside"'


def _breakable(text: str) -> str:
    """A label, or a figure with its range below it, in lines so short that the last columns are in sight."""
    lines = escape(text).replace(" (", "<br><small>").replace(")", "</small>")
    return re.sub(r"[-+]", r"\g<0><wbr>", lines)


def _findings(rows: list[tuple[str, list[Run]]]) -> str:
    """What did not hold, and by how much."""
    lines = [
        f"<li{_fault(run)}>{escape(label)}, seed {run.seed}: {escape(item.name)}: {escape(item.detail)}</li>"
        for label, runs in rows
        for run in runs
        for item in run.failed
    ]
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def pairs_html(runs: Sequence[Run]) -> str:
    """PIP-364's table."""
    heads = ["combination", *(f"{escape(item.title)}<br>({escape(item.unit)})" for item in PROPERTIES)]
    rows = [[_breakable(label), *map(escape, cells)] for label, cells in pair_rows(runs)]
    return f"<section><h2>{escape(PAIRS_TITLE)}</h2>{html.table(heads, rows)}</section>"


# --- one plot ------------------------------------------------------------------------------------------------


def _chart(run: Run, highest: float) -> str:
    """One run. `highest`: top of the axis, the same for runs that are to be compared."""
    times, used, takes = run.curves.table()
    x = Axis(0, run.scenario.minutes, LEFT, WIDTH - RIGHT)
    y = Axis(0, highest, HEIGHT - BOTTOM, TOP)
    loads = np.minimum(np.where(takes, used, np.nan), highest)
    plot = _bands(times, loads, x, y) if used.shape[1] > MOST_LINES else _lines(times, loads, x, y)
    limit = f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(OVER):.1f}" y2="{y.at(OVER):.1f}">'
    label = f"{run.scenario.name}, {run.contender.label}, seed {run.seed}: load of each broker over time"
    return html.svg(f"{_axes(x, y)}{plot}{limit}<title>85 %</title></line>{_marks(run, x)}", label, WIDTH, HEIGHT)


def _legend(runs: Sequence[Run]) -> str:
    """Which line is which broker, in all plots of a scenario; empty where brokers are shown as bands."""
    count = max(run.curves.table()[1].shape[1] for run in runs)
    if count > MOST_LINES:
        return ""
    lines = (
        f'<span><svg viewBox="0 0 22 6"><path class="{_line_class(broker)}" d="M0 3H22"/></svg> broker {broker}</span>'
        for broker in range(count)
    )
    return f'<p class="key">{"".join(lines)}</p>'


def _line_class(broker: int) -> str:
    """Eight colours, and dashes for those after them."""
    return f"line c{broker % 8}{' later' if broker >= 8 else ''}"


def _axes(x: Axis, y: Axis) -> str:
    between = 0.2 if y.high <= 1.2 else 0.5
    shares = [step * between for step in range(int(y.high / between + 1e-9) + 1)]
    every = _step(x.high)
    minutes = [place * every for place in range(int(x.high / every) + 1)]
    return html.grid(x, y, [(share, f"{share:.0%}") for share in shares]) + "".join(
        html.mark(x, x.at(minute), HEIGHT - 6, _clock(minute)) for minute in minutes
    )


def _step(minutes: float) -> float:
    """Minutes between two labels, so that they fit on a phone, too."""
    return next((step for step in (1, 5, 10, 15, 30, 60, 180, 360, 720, 1440) if minutes / step <= 5), 10080)


def _clock(minute: float) -> str:
    return f"{minute:g} min" if minute < 300 else f"{minute / 60:g} h"


def _lines(times: Floats, loads: Floats, x: Axis, y: Axis) -> str:
    return "".join(
        html.path(_line_class(broker), _hover(broker, loads[:, broker]), x, y, _thin(times, loads[:, broker]))
        for broker in range(loads.shape[1])
    )


def _hover(broker: int, loads: Floats) -> str:
    known = loads[~np.isnan(loads)]
    return (
        f"broker {broker}: {known.min():.0%} to {known.max():.0%}, at last {known[-1]:.0%}"
        if len(known)
        else f"broker {broker}"
    )


def _bands(times: Floats, loads: Floats, x: Axis, y: Axis) -> str:
    """The range, the middle four fifths, and the median."""
    lowest, low, middle, high, top = (np.nanpercentile(loads, part, axis=1) for part in (0, 10, 50, 90, 100))
    areas = ((lowest, top, "all brokers"), (low, high, "80 % of the brokers"))
    return "".join(
        html.path("band", title, x, y, [*_thin(times, above), *reversed([*_thin(times, below)])])
        for below, above, title in areas
    ) + html.path("line c0", "median", x, y, _thin(times, middle))


def _thin(times: Floats, values: Floats) -> Iterator[tuple[float, float]]:
    """As many points, minute and value, as can be told apart; each stands for the largest value of its stretch."""
    stride = max(1, -(-len(times) // MOST_POINTS))
    for place in range(0, len(times), stride):
        part = values[place : place + stride]
        yield float(times[place]) / 60, math.nan if np.isnan(part).all() else float(np.nanmax(part))


def _marks(run: Run, across: Axis) -> str:
    """Moves by the balancer above the axis, higher where there were more at once; splits and other unloads below."""
    rows: dict[str, dict[float, int]] = {"move": {}, "split": {}, "other": {}}
    for move in run.cluster.moved:
        kind = rows["move" if move.by == "balancer" else "other"]
        kind[move.at] = kind.get(move.at, 0) + 1
    for split in run.cluster.divided:
        rows["split"][split.at] = rows["split"].get(split.at, 0) + 1
    base = HEIGHT - BOTTOM
    parts = []
    for name, y, most in (("move", base + 14, 12), ("split", base + 22, 6), ("other", base + 29, 5)):
        for at, count in sorted(rows[name].items()):
            x, tall = across.at(at / 60), min(4 + count, most)
            told = f"{count} {name}{'' if count == 1 else 's'} at minute {at / 60:.1f}"
            parts.append(
                f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y - tall}"><title>{told}</title></line>'
            )
    return "".join(parts)
