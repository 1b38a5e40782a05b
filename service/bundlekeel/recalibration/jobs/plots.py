"""Plots of the recalibration report, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.figure import Figure

from bundlekeel.simulator.page import COLOURS, GOOD, INK, svg

# Title, color and size by kind of a candidate. Later kinds are drawn over earlier ones.
_KINDS: Final = {
    "native": ("Pulsar's own class", INK, 30),
    "tested": ("tested", COLOURS[0], 8),
    "present": ("in force", COLOURS[1], 40),
    "chosen": ("proposed", GOOD, 40),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One candidate on the held-out days. `clients`: client-seconds per hour; `max_mean`: of the brokers' scores.

    `kind`: present, chosen, tested, or native (Pulsar's own class with its defaults).
    """

    name: str
    kind: str
    clients: float
    max_mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPair:
    """One held-out day under the present and under other settings: client-seconds per hour, max/mean."""

    date: str
    clients: tuple[float, float]
    max_mean: tuple[float, float]


def trade_off_plot(points: Sequence[Point]) -> str:
    """Return a plot of max/mean over client-seconds; lower and further left is better. Empty without points."""
    if not points:
        return ""
    plot = Figure(figsize=(5.6, 2.8), layout="constrained")
    axes = plot.subplots()
    for kind, (title, colour, size) in _KINDS.items():
        if own := [point for point in points if point.kind == kind]:
            across, up = [point.clients for point in own], [point.max_mean for point in own]
            axes.scatter(across, up, s=size, color=colour, alpha=0.8, label=title, zorder=2)
            for point in own if kind == "native" else ():
                place = (point.clients, point.max_mean)
                axes.annotate(point.name, place, (5, 3), textcoords="offset points", fontsize=6, color=INK)
    # Native classes can cost a hundred times as much.
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlabel("client-seconds without service, per hour")
    axes.set_ylabel("max/mean of score (1 is even)")
    plot.legend(loc="outside right upper")
    return svg(plot)


def days_plot(days: Sequence[DayPair], other: str) -> str:
    """Return a plot of held-out days under the present and the settings named `other`. Empty without days."""
    if not days:
        return ""
    plot = Figure(figsize=(5.6, 2.8), layout="constrained")
    panels = plot.subplots(2, 1, sharex=True)
    places, changed = range(len(days)), any(item.clients[0] != item.clients[1] for item in days)
    for axes, name, title in zip(panels, ("clients", "max_mean"), ("client-seconds/h", "max/mean"), strict=True):
        for side, (label, colour) in enumerate((("in force", COLOURS[1]), (other, GOOD))[: 1 + changed]):
            values = [getattr(item, name)[side] for item in days]
            axes.plot(places, values, color=colour, marker="o", markersize=3, label=label)
        axes.ticklabel_format(axis="y", useOffset=False, style="plain")
        axes.set_ylabel(title)
    panels[-1].set_xticks(list(places), [item.date[5:] for item in days])
    panels[-1].set_xlabel("held-out days, UTC")
    plot.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return svg(plot)
