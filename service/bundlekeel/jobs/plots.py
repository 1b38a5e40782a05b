"""Plots of the recalibration report: candidates as points, blocks as lines, days as bars, a week as a map. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bundlekeel.core.model.text_format import figure
from bundlekeel.sim import page as html
from bundlekeel.sim.page import Axis

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 32, 50
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One candidate: moves an hour and max/mean. `kind`: present, chosen, near (may be adopted) or far. `searched`:
    what it came to on the days of the search, in words."""

    x: float
    y: float
    kind: str
    label: str
    searched: str = ""


def _axis(values: Sequence[float], start: float, end: float) -> Axis:
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return Axis(max(0.0, low - room) if low >= 0 else low - room, high + room, start, end)


def _frame(x: Axis, y: Axis, across: str, up: str, marks: Sequence[str] | None = None) -> str:
    parts = [html.grid(x, y, y.ticks())]
    if marks is None:
        parts += [html.mark(x, x.at(value), HEIGHT - 29, text) for value, text in x.ticks()]
    else:
        # Of places with the same text, such as the blocks of a day, the first has it.
        firsts = [place for place, text in enumerate(marks) if text not in marks[:place]]
        parts += [html.mark(x, x.at(firsts[at]), HEIGHT - 29, marks[firsts[at]]) for at in _places(len(firsts), 4)]
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 7}" text-anchor="end">{escape(across)}</text>')
    parts.append(f'<text x="4" y="16">{escape(up)}</text>')
    return "".join(parts)


def _places(count: int, steps: int) -> list[int]:
    """The first of so many places, the last, and some between, each once."""
    return sorted({round(number * (count - 1) / steps) for number in range(steps + 1)})


def candidate_plot(points: Sequence[Point]) -> str:
    """max/mean over moves; lower and further left is better."""
    if not points:
        return ""
    x = _axis([point.x for point in points], LEFT, WIDTH - RIGHT)
    y = _axis([point.y for point in points], HEIGHT - BOTTOM, TOP)
    ranks = {"far": 0, "near": 1, "present": 2, "chosen": 3}
    dots = "".join(
        f'<circle class="{point.kind}" cx="{x.at(point.x):.1f}" cy="{y.at(point.y):.1f}" '
        f'r="{6 if ranks[point.kind] > 1 else 3.5}"><title>{escape(point.label)}</title></circle>'
        for point in sorted(points, key=lambda point: ranks[point.kind])
    )
    label = "max/mean over moves, one point a candidate"
    return html.svg(_frame(x, y, "moves an hour", "max/mean of score (1 is even)") + dots, label, WIDTH, HEIGHT)


def line_plot(labels: Sequence[str], rows: Sequence[tuple[str, str, Sequence[float]]], up: str) -> str:
    """Several rows of values over the same places; (class, title, values) each."""
    values = [value for _, _, row in rows for value in row]
    if not values or len(labels) < 2:
        return ""
    x, y = Axis(0, len(labels) - 1, LEFT, WIDTH - RIGHT), _axis(values, HEIGHT - BOTTOM, TOP)
    body = "".join(html.path(f"line {kind}", title, x, y, enumerate(row)) for kind, title, row in rows)
    return html.svg(_frame(x, y, "held-out days, UTC", up, labels) + body, f"{up} over time", WIDTH, HEIGHT)


def day_bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Coverage of each day as a bar: (date, share, verdict)."""
    if not rows:
        return ""
    height, step = 88, (WIDTH - LEFT - RIGHT) / len(rows)
    x, y = Axis(0, len(rows), LEFT, WIDTH - RIGHT), Axis(0, 1, 60, 16)
    parts = [html.grid(x, y, [(0, "0%"), (1, "100%")])]
    for number, (date, recorded, verdict) in enumerate(rows):
        tall = max(2.0, 44 * min(recorded, 1.0))
        parts.append(
            f'<rect class="{escape(verdict)}" x="{x.at(number) + 1:.1f}" y="{60 - tall:.1f}" '
            f'width="{max(1.0, step - 2):.1f}" height="{tall:.1f}"><title>{escape(date)}: {recorded:.1%}, '
            f"{escape(verdict)}</title></rect>"
        )
    parts += [html.mark(x, x.at(place + 0.5), 82, rows[place][0]) for place in _places(len(rows), 2)]
    return html.svg("".join(parts), "recorded share of each day", WIDTH, height)


def week_map(values: Sequence[float | None]) -> str:
    """168 hours of a week from Monday 00:00 UTC as a map; darker is more."""
    known = [value for value in values if value is not None]
    if not known or max(known) <= 0:
        return ""
    side, tall, top = (WIDTH - LEFT - RIGHT) / 24, 20, 8
    parts = []
    for number, value in enumerate(values):
        if value is None:
            continue
        day, hour = divmod(number, 24)
        parts.append(
            f'<rect class="heat" x="{LEFT + hour * side:.1f}" y="{top + day * tall}" width="{side - 1:.1f}" '
            f'height="{tall - 1}" fill-opacity="{0.08 + 0.92 * value / max(known):.2f}">'
            f"<title>{_WEEKDAYS[day]} {hour:02d}:00 UTC: {figure(value / 1e6, 3)} MB/s</title></rect>"
        )
    for day, name in enumerate(_WEEKDAYS):
        parts.append(f'<text x="{LEFT - 6}" y="{top + day * tall + 14}" text-anchor="end">{name}</text>')
    for hour in range(0, 24, 6):
        parts.append(f'<text x="{LEFT + hour * side:.1f}" y="{top + 7 * tall + 16}">{hour:02d}:00</text>')
    return html.svg("".join(parts), "traffic by hour of the week", WIDTH, top + 7 * tall + 24)
