"""Plots of the recalibration report, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from bundlekeel.simulator.page import BAD, COLOURS, GOOD, INK, svg

_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_IN_FORCE: Final = COLOURS[1]
# Title, color and size by kind of a candidate. Later kinds are drawn over earlier ones.
_KINDS: Final = {
    "far": ("other", INK, 8),
    "near": ("within one night's reach", COLOURS[0], 8),
    "present": ("in force", _IN_FORCE, 40),
    "chosen": ("proposed", GOOD, 40),
}
_VERDICTS: Final = {"good": GOOD, "partial": INK, "bad": BAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One candidate in the plot. `x`: moves per hour; `y`: max/mean of the brokers' scores; both on held-out days.

    `kind`: present, chosen, near (could be adopted in one night) or far. `searched`: the candidate's moves per hour and
    max/mean on the days of the search, as text.
    """

    x: float
    y: float
    kind: str
    label: str
    searched: str = ""


def _figure(height: float) -> Figure:
    return Figure(figsize=(5.6, height), layout="constrained")


def candidate_plot(points: Sequence[Point]) -> str:
    """Return a plot of scores' max/mean over moves per hour; lower and further left is better. Empty without points."""
    if not points:
        return ""
    plot = _figure(2.6)
    axes = plot.subplots()
    for kind, (title, colour, size) in _KINDS.items():
        if own := [point for point in points if point.kind == kind]:
            across, up = [point.x for point in own], [point.y for point in own]
            axes.scatter(across, up, s=size, color=colour, alpha=0.8, label=title, zorder=2)
    axes.ticklabel_format(useOffset=False, style="plain")
    axes.set_xlabel("moves per hour")
    axes.set_ylabel("max/mean of score (1 is even)")
    plot.legend(loc="outside right upper")
    return svg(plot)


def block_plot(dates: Sequence[str], before: Sequence[float], after: Sequence[float]) -> str:
    """Return a plot of max/mean (highest score / mean score of brokers) over the held-out blocks (hours of history).

    Empty with fewer than two blocks.

    Args:
        dates: date of each block. The axis shows at most five of them, each at the first block of its day.
        before: max/mean of each block with the present thresholds.
        after: max/mean of each block with the proposed thresholds; not drawn if equal to `before`.
    """
    if len(dates) < 2:
        return ""
    plot = _figure(2.2)
    axes = plot.subplots()
    axes.plot(before, color=_IN_FORCE, label="in force")
    if list(after) != list(before):
        axes.plot(after, color=GOOD, label="proposed")
    firsts = sorted({date: dates.index(date) for date in dates}.values())
    ticks = _evenly(firsts, 5)
    axes.set_xticks(ticks, [dates[place] for place in ticks])
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    axes.set_xlabel("held-out days, UTC")
    axes.set_ylabel("max/mean of score")
    plot.legend(loc="outside right upper")
    return svg(plot)


def day_bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Return a plot with one bar per day: the recorded share (0 to 1) of the day. `rows`: (date, share, verdict).

    Empty without days.
    """
    if not rows:
        return ""
    plot = _figure(1.1)
    axes = plot.subplots()
    places = list(range(len(rows)))
    # Draw a small bar also for a day without records.
    shares = [max(0.04, min(share, 1.0)) for _, share, _ in rows]
    axes.bar(places, shares, color=[_VERDICTS[verdict] for _, _, verdict in rows])
    ticks = _evenly(places, 5)
    axes.set_xticks(ticks, [rows[place][0] for place in ticks])
    axes.set_yticks((0, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylabel("recorded")
    return svg(plot)


def week_map(values: Sequence[float | None]) -> str:
    """Return a plot of the 168 hours of a week from Monday 00:00 UTC. A stronger color means more traffic.

    `values`: bytes per second of each hour; None: unknown. Empty without traffic.
    """
    if max((value or 0.0 for value in values), default=0.0) <= 0:
        return ""
    hours = np.array([np.nan if value is None else value / 1e6 for value in values]).reshape(7, 24)
    plot = _figure(1.6)
    axes = plot.subplots()
    colours = LinearSegmentedColormap.from_list("traffic", [to_rgba(COLOURS[0], share) for share in (0.08, 1.0)])
    axes.pcolormesh(np.ma.masked_invalid(hours), cmap=colours, vmin=0)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_xticks(range(0, 25, 6), [f"{hour:02d}:00" for hour in range(0, 25, 6)])
    axes.set_yticks(np.arange(7) + 0.5, _WEEKDAYS)
    axes.set_title(f"{np.nanmin(hours):.3g} (pale) to {np.nanmax(hours):.3g} MB/s", loc="left")
    return svg(plot)


def _evenly(places: Sequence[int], most: int) -> list[int]:
    return [places[at] for at in np.unique(np.linspace(0, len(places) - 1, most).round().astype(int))]
