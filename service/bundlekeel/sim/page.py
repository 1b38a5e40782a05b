"""HTML pages that are complete in one file, with plots as inline SVG: for the reports of the simulator and of the
recalibration. They need no outside resources."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_STYLE: Final = """
:root { color-scheme: light dark; --text: #1c2733; --soft: #5b6877; --back: #fff; --card: #f6f8fa; --grid: #d8dee5;
  --bad: #b42318; --good: #1a7f4b; --c0: #2f6fde; --c1: #d9730d; --c2: #1a8f6d; --c3: #b5449b; --c4: #8a6d00;
  --c5: #6f5bd7; --c6: #c0392b; --c7: #0e8fa8; }
@media (prefers-color-scheme: dark) { :root { --text: #e6ebf1; --soft: #9aa7b5; --back: #12171d; --card: #1b222a;
  --grid: #313b46; --bad: #ff8a7a; --good: #5ed39a; --c0: #7aa7ff; --c1: #ffab5e; --c2: #4fd0a8; --c3: #ef8bd6;
  --c4: #d9bf4d; --c5: #aa9bff; --c6: #ff8578; --c7: #52cfe6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0 0 6px; }
h3 { font-size: 15px; margin: 0 0 4px; }
p { margin: 4px 0 12px; color: var(--soft); max-width: 90ch; }
a { color: var(--c0); }
section { margin: 24px 0; padding: 18px; background: var(--card); border-radius: 10px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px 4px 0; text-align: left; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
.number { text-align: right; }
.good { color: var(--good); } .bad { color: var(--bad); }
small { color: var(--soft); }
svg { width: 100%; max-width: 820px; height: auto; display: block; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
.grid { stroke: var(--grid); } .line { fill: none; stroke-width: 1.7; stroke-linejoin: round; }
@media (max-width: 640px) {
  body { padding: 10px; } section { padding: 10px; }
  svg text { font-size: 19px; }
  .scroll :is(table, tbody, tr, td) { display: block; }
  .scroll tr:first-child { display: none; }
  .scroll tr { border-bottom: 1px solid var(--grid); padding: 6px 0; }
  .scroll td { border: 0; padding: 1px 0 1px 11em; display: flow-root; text-align: left; overflow-wrap: anywhere; }
  .scroll td::before { content: attr(data-head); color: var(--soft); float: left; width: 10.5em; margin-left: -11em; }
  .scroll td[data-head=""] { padding-left: 0; font-weight: 600; } .scroll td:empty { display: none; }
}
.key { max-width: none; } .key :is(span, i) { display: inline-block; } .key span { margin-right: 18px; }
.key i { margin-right: 6px; }
"""

# Half a date's width.
_EDGE: Final = 40
_TAGS: Final = re.compile("<[^>]*>")
# A figure, with a unit or a range behind it, or the word for one that there is not; no date and no sentence.
_NUMBER: Final = re.compile(r"(-?[\d,.]+ ?%?( (MiB|kbit/s|of a core))?( (to )?-?[\d(].*)?|never)$")


def page(title: str, style: str, body: str) -> str:
    """The whole document. `style`: rules beside those of every page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body><h1>{escape(title)}</h1>{body}"
        "</body></html>\n"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Heads and cells are HTML; empty without rows. On a phone each row is a block, its cells with their heads."""
    if not rows:
        return ""
    head = "".join(f"<th{_side(*cells)}>{text}</th>" for text, *cells in zip(heads, *rows, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, heads, row))}</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>{body}</table></div>'


def _cell(head: str, cell: str) -> str:
    return f'<td{_side(cell)} data-head="{_text(head)}">{cell}</td>'


def _side(*cells: str) -> str:
    """Figures, and the head above some, stand at the right."""
    return ' class="number"' if any(_NUMBER.match(_text(cell)) for cell in cells) else ""


def _text(cell: str) -> str:
    """Without tags; what a line break parts stays apart."""
    return _TAGS.sub(" ", cell).strip()


@dataclass(frozen=True, slots=True)
class Axis:
    """Values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value."""
        width = self.high - self.low
        return self.start + (self.end - self.start) * ((value - self.low) / width if width > 0 else 0.5)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values along it, at equal distances, two at least and five at most, and their texts."""
        # A hair more than half, so that steps that just fit are not lost to rounding.
        most = (self.high - self.low) / 2 * (1 + 1e-9)
        digits = math.floor(math.log10(most))
        step = max(times * 10.0**digits for times in (1, 2, 5) if times == 1 or times * 10.0**digits <= most)
        places = range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        return [(step * place, f"{step * place:,.{max(0, -digits)}f}") for place in places]


def svg(body: str, label: str, width: int, height: int) -> str:
    """An SVG image; `label` is for screen readers. On a phone its texts are larger, since they shrink with it."""
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'


def grid(x: Axis, y: Axis, marks: Iterable[tuple[float, str]]) -> str:
    """A line across the plot for each value of `y`, with its text."""
    return "".join(
        f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{y.at(value):.1f}" y2="{y.at(value):.1f}"/>'
        f'<text x="{x.start - 6}" y="{y.at(value) + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        for value, text in marks
    )


def mark(x: Axis, at: float, y: float, text: str) -> str:
    """A text below the axis `x`, whole also at the ends of the plot."""
    anchor = "start" if at < x.start + _EDGE else "end" if at > x.end - _EDGE else "middle"
    return f'<text x="{at:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def path(kind: str, title: str, x: Axis, y: Axis, points: Iterable[tuple[float, float]]) -> str:
    """A line with gaps where the value is NaN. `kind`: its classes."""
    parts, pen = [], "M"
    for across, value in points:
        if math.isnan(value):
            pen = "M"
            continue
        parts.append(f"{pen}{x.at(across):.1f},{y.at(value):.1f}")
        pen = "L"
    return f'<path class="{kind}" d="{"".join(parts)}"><title>{escape(title)}</title></path>'
