"""Plots of a run as inline SVG, drawn by us: loads over time, moves and splits as marks, the 85 % line."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from bundlekeel.core.model.load import Floats
from bundlekeel.sim.measures import OVER
from bundlekeel.sim.run import Run

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 46, 26, 10, 48
# More brokers than this are shown as bands; a line each would be a carpet.
MOST_LINES = 16
MOST_POINTS = 240


class _Scale:
    """Minutes and shares to pixels."""

    def __init__(self, minutes: float, highest: float) -> None:
        self.minutes, self.highest = minutes, highest

    def x(self, minute: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * minute / self.minutes

    def y(self, share: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(share, self.highest) / self.highest


def chart(run: Run, highest: float) -> str:
    """One run. `highest`: top of the axis, the same for runs that are to be compared."""
    times, used, takes = run.curves.table()
    scale = _Scale(run.scenario.minutes, highest)
    loads = np.where(takes, used, np.nan)
    name = escape(f"{run.scenario.name}, {run.contender.label}, seed {run.seed}: load of each broker over time")
    body = _bands(times, loads, scale) if used.shape[1] > MOST_LINES else _lines(times, loads, scale)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">'
        f"{_axes(scale)}{body}{_threshold(scale)}{_marks(run, scale)}</svg>"
    )


def legend(run: Run) -> str:
    """Which line is which broker; empty where brokers are shown as bands."""
    count = run.curves.table()[1].shape[1]
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


def top_of(runs: list[Run]) -> float:
    """A common top of the axis, in steps of 20 %; a load far above 100 % is cut at 200 %."""
    highest = max(run.measures.highest / 100 for run in runs)
    return min(max(1.0, math.ceil(highest * 5) / 5), 2.0)


def _axes(scale: _Scale) -> str:
    parts = []
    between = 0.2 if scale.highest <= 1.2 else 0.5
    for step in range(int(scale.highest / between + 1e-9) + 1):
        share = step * between
        y = scale.y(share)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    every = _step(scale.minutes)
    for place in range(int(scale.minutes / every) + 1):
        x = scale.x(place * every)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{_clock(place * every)}</text>')
    return "".join(parts)


def _step(minutes: float) -> float:
    """Minutes between two labels, so that there are at most eight."""
    return next((step for step in (1, 5, 10, 15, 30, 60, 180, 360, 720, 1440) if minutes / step <= 8), 10080)


def _clock(minute: float) -> str:
    return f"{minute:g} min" if minute < 300 else f"{minute / 60:g} h"


def _lines(times: Floats, loads: Floats, scale: _Scale) -> str:
    return "".join(
        f'<path class="{_line_class(broker)}" d="{_path(times, loads[:, broker], scale)}">'
        f"<title>broker {broker}</title></path>"
        for broker in range(loads.shape[1])
    )


def _bands(times: Floats, loads: Floats, scale: _Scale) -> str:
    """The range, the middle four fifths, and the median."""
    lowest, low, middle, high, top = (np.nanpercentile(loads, part, axis=1) for part in (0, 10, 50, 90, 100))
    return (
        f'<path class="band" d="{_area(times, lowest, top, scale)}"><title>all brokers</title></path>'
        f'<path class="band" d="{_area(times, low, high, scale)}"><title>80 % of the brokers</title></path>'
        f'<path class="line c0" d="{_path(times, middle, scale)}"><title>median</title></path>'
    )


def _thin(times: Floats, values: Floats) -> tuple[list[float], list[float]]:
    """As many points as can be told apart; each stands for the largest value of its stretch."""
    stride = max(1, -(-len(times) // MOST_POINTS))
    places = range(0, len(times), stride)
    kept = [values[place : place + stride] for place in places]
    return (
        [float(times[place]) / 60 for place in places],
        [math.nan if np.isnan(part).all() else float(np.nanmax(part)) for part in kept],
    )


def _path(times: Floats, values: Floats, scale: _Scale) -> str:
    """A line with gaps where there is no value."""
    parts, pen = [], "M"
    for minute, value in zip(*_thin(times, values), strict=True):
        if math.isnan(value):
            pen = "M"
            continue
        parts.append(f"{pen}{scale.x(minute):.1f},{scale.y(value):.1f}")
        pen = "L"
    return "".join(parts)


def _area(times: Floats, low: Floats, high: Floats, scale: _Scale) -> str:
    minutes, below = _thin(times, low)
    _, above = _thin(times, high)
    edge = [(m, v) for m, v in zip(minutes, above, strict=True)] + list(zip(minutes, below, strict=True))[::-1]
    return "M" + "L".join(f"{scale.x(minute):.1f},{scale.y(value):.1f}" for minute, value in edge) + "Z"


def _threshold(scale: _Scale) -> str:
    y = scale.y(OVER)
    return f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"><title>85 %</title></line>'


def _marks(run: Run, scale: _Scale) -> str:
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
            x, tall = scale.x(at / 60), min(4 + count, most)
            told = f"{count} {name}{'' if count == 1 else 's'} at minute {at / 60:.1f}"
            parts.append(
                f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y - tall}"><title>{told}</title></line>'
            )
    return "".join(parts)
