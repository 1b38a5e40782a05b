"""One self-contained HTML page about finished runs: plots, measures side by side, what held. No outside resources."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bundlekeel import __version__
from bundlekeel.cli.offline.simulate_report import COLUMNS, counts, figure, grouped
from bundlekeel.cli.offline.simulate_svg import chart, legend, top_of
from bundlekeel.sim.run import Run
from bundlekeel.sim.scenario import Scenario

_STYLE = """
:root { color-scheme: light dark; --text: #1c2733; --soft: #5b6877; --back: #fff; --card: #f6f8fa; --grid: #d8dee5;
  --bad: #b42318; --good: #1a7f4b; --c0: #2f6fde; --c1: #d9730d; --c2: #1a8f6d; --c3: #b5449b; --c4: #8a6d00;
  --c5: #6f5bd7; --c6: #c0392b; --c7: #0e8fa8; }
@media (prefers-color-scheme: dark) { :root { --text: #e6ebf1; --soft: #9aa7b5; --back: #12171d; --card: #1b222a;
  --grid: #313b46; --bad: #ff8a7a; --good: #5ed39a; --c0: #7aa7ff; --c1: #ffab5e; --c2: #4fd0a8; --c3: #ef8bd6;
  --c4: #d9bf4d; --c5: #aa9bff; --c6: #ff8578; --c7: #52cfe6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1560px; padding: 24px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0; } h3 { font-size: 15px; margin: 0 0 4px; }
p { margin: 4px 0 12px; color: var(--soft); max-width: 90ch; }
a { color: var(--c0); }
section { margin: 28px 0; padding: 18px; background: var(--card); border-radius: 10px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 18px; }
.scroll { overflow-x: auto; margin-top: 14px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px 4px 0; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; min-width: 6ch; }
th:first-child, td:first-child { text-align: left; }
.good { color: var(--good); } .bad { color: var(--bad); }
ul { margin: 10px 0 0; padding-left: 20px; color: var(--soft); }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--grid); stroke-width: 1; } .limit { stroke: var(--bad); stroke-dasharray: 5 4; }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; } .band { fill: var(--c0); opacity: .18; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); } .c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
.move { stroke: var(--text); stroke-width: 2; } .split { stroke: var(--c1); stroke-width: 2; }
.other { stroke: var(--soft); stroke-width: 1.5; }
.key { max-width: none; } .key span { margin-right: 18px; } .key i { display: inline-block; margin-right: 6px; }
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


def page(runs: Sequence[Run], pairs: str = "") -> str:
    """The whole document. `pairs`: a table that goes first, as HTML."""
    found = grouped(runs)
    failed = sum(bool(run.failed) for run in runs if counts(run))
    links = " · ".join(f'<a href="#{escape(s.name)}">{escape(s.name)}</a>' for s, _ in found)
    state = f'<b class="bad">{failed} not as expected</b>' if failed else '<b class="good">all as expected</b>'
    body = "".join(_section(scenario, rows) for scenario, rows in found)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Bundlekeel simulation</title><style>{_STYLE}</style></head><body>"
        f"<h1>Bundlekeel simulation</h1><p>{len(runs)} runs of {len(found)} scenarios, {state}. "
        f"Bundlekeel {escape(__version__)}.</p>{pairs}<p>{links}</p>{_KEY}{body}{_glossary()}</body></html>\n"
    )


def _section(scenario: Scenario, rows: list[tuple[str, list[Run]]]) -> str:
    first = [runs[0] for _, runs in rows]
    top = top_of(first)
    plots = "".join(
        f"<div><h3>{escape(run.contender.label)}, seed {run.seed}</h3>{chart(run, top)}{legend(run)}</div>"
        for run in first
    )
    about = " ".join(filter(None, (scenario.about, f"Source: {scenario.source}." if scenario.source else "")))
    return (
        f'<section id="{escape(scenario.name)}"><h2>{escape(scenario.title)}</h2><p>{escape(about)}</p>'
        f'<div class="plots">{plots}</div>{_figures(rows)}{_findings(rows)}</section>'
    )


def _figures(rows: list[tuple[str, list[Run]]]) -> str:
    head = "".join(f'<th title="{escape(column.why)}">{escape(column.title)}</th>' for column in COLUMNS)
    lines = []
    for label, runs in rows:
        cells = "".join(f"<td>{escape(figure(runs, column))}</td>" for column in COLUMNS)
        held = not any(run.failed for run in runs)
        state = '<td class="good">held</td>' if held else '<td class="bad">not held</td>'
        lines.append(f"<tr><td>{escape(label)}</td>{state}{cells}</tr>")
    return f'<div class="scroll"><table><tr><th>strategy</th><th>expected</th>{head}</tr>{"".join(lines)}</table></div>'


def _findings(rows: list[tuple[str, list[Run]]]) -> str:
    """What did not hold, and by how much."""
    lines = [
        f"<li>{escape(label)}, seed {run.seed}: {escape(item.name)}: {escape(item.told)}</li>"
        for label, runs in rows
        for run in runs
        for item in run.failed
    ]
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _glossary() -> str:
    lines = "".join(f"<li><b>{escape(column.title)}</b>: {escape(column.why)}</li>" for column in COLUMNS)
    return f"<section><h2>Measures</h2><ul>{lines}</ul></section>"
