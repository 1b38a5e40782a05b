"""Render the page of `simulate --html`: loads over time, marks for moves and splits, measures, missed expectations.

Needs the extra `plots`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from bundlekeel import __version__
from bundlekeel.model.load import Floats
from bundlekeel.model.text_format import numbered
from bundlekeel.simulator.measures import OVER
from bundlekeel.simulator.page import BAD, COLOURS, INK, render, svg
from bundlekeel.simulator.pairs import PROPERTIES
from bundlekeel.simulator.run import Run
from bundlekeel.simulator.scenario import Scenario
from bundlekeel.simulator.simulate_report import (
    COLUMNS,
    NEVER,
    PAIRS_TITLE,
    counts,
    figure,
    grouped,
    other_values,
    pair_rows,
)

# With more brokers than this, a plot shows bands, because the lines could not be distinguished.
MOST_LINES = 16
MOST_POINTS = 240


def page(runs: Sequence[Run], origin: str = "", *, of_pairs: bool = False) -> str:
    """Return the page as HTML. `origin`: time and command to show; `of_pairs`: whether to begin with PIP-364's
    table."""
    scenarios = grouped(runs)
    pairs = {
        "title": PAIRS_TITLE,
        "heads": ["combination", *(f">{item.title}\n({item.unit})" for item in PROPERTIES)],
        "rows": [[label, *cells] for label, cells in pair_rows(runs)] if of_pairs else [],
    }
    return render(
        "simulation.html",
        count=f"{numbered(len(runs), 'run')} of {numbered(len(scenarios), 'scenario')}",
        failed=_labels(run for run in runs if counts(run) and run.failed),
        held=_labels(run for run in runs if counts(run)),
        compared=_labels(run for run in runs if not counts(run) and run.failed),
        version=__version__,
        origin=origin,
        pairs=pairs if of_pairs else None,
        heads=["strategy", "expected", *(f">{column.title}" for column in COLUMNS)],
        columns=COLUMNS,
        sections=[_section(scenario, rows) for scenario, rows in scenarios],
    )


def _labels(runs: Any) -> str:
    """Return the names of the balancers, each once, with separators other than commas: a name can contain a comma."""
    return " · ".join(dict.fromkeys(run.contender.label for run in runs))


def _section(scenario: Scenario, rows: list[tuple[str, list[Run]]]) -> dict[str, Any]:
    first = [runs[0] for _, runs in rows]
    # The axes of all plots end at the same value: a multiple of 20 %, at most 200 %.
    highest = max(run.measures.highest / 100 for run in first)
    top = min(max(1.0, math.ceil(highest * 5) / 5), 2.0)
    return {
        "name": scenario.name,
        "title": scenario.title,
        "about": " ".join(filter(None, (scenario.about, f"Source: {scenario.source}." if scenario.source else ""))),
        "compared": [(label, _compare(runs)) for label, runs in rows],
        "seeds": len(rows[0][1]),
        "plots": [(f"{run.contender.label}, seed {run.seed}", svg(_plot(run, top))) for run in first],
        "rows": [_row(label, runs) for label, runs in rows],
        "missed": [
            (_fault(run), f"{label}, seed {run.seed}: {item.name}: {item.detail}")
            for label, runs in rows
            for run in runs
            for item in run.failed
        ],
    }


def _compare(runs: Sequence[Run]) -> str:
    """Return when a balancer reached balance, how many bundles it moved, and its parameters that are not defaults."""
    balanced, unloads = (
        figure(runs, next(column for column in COLUMNS if column.title == title))
        for title in ("balanced min", "unloads")
    )
    when = "never balanced" if balanced == NEVER else f"balanced from minute {balanced}"
    values = other_values({**runs[0].scenario.parameters, **runs[0].contender.parameters}) or "stock parameters"
    return f"{when}, {unloads} bundles left their broker; loads by {runs[0].contender.source}; {values}"


def _row(label: str, runs: Sequence[Run]) -> list[str | tuple[str, str]]:
    """Return the table cells of a balancer. The range over the seeds is a second line in a cell."""
    missed = next((run for run in runs if run.failed), None)
    state = ("held", "good") if missed is None else ("not held", _fault(missed))
    return [label, state, *(figure(runs, column).replace(" (", "\n").replace(")", "") for column in COLUMNS)]


def _fault(run: Run) -> str:
    """Return the CSS class of a missed expectation: red only if the command fails because of it."""
    return "bad" if counts(run) else "soft"


def _plot(run: Run, top: float) -> Figure:
    """Plot the loads of one run, with its moves below. `top`: end of the load axis, as a share of a broker."""
    plot = Figure(figsize=(5.6, 2.7), layout="constrained")
    axes, marks = plot.subplots(2, 1, sharex=True, height_ratios=(5, 1))
    times, used, takes = run.curves.table()
    starts = np.arange(0, len(times), -(-len(times) // MOST_POINTS))
    loads = np.fmax.reduceat(np.where(takes, used, np.nan), starts)
    unit, seconds = ("minutes", 60) if run.scenario.minutes < 300 else ("hours", 3600)
    _draw_loads(axes, times[starts] / seconds, loads)
    axes.axhline(OVER, color=BAD, linestyle="--", linewidth=0.8, label=f"{OVER:.0%}")
    axes.set_ylim(0, top)
    axes.set_xlim(0, 60 * run.scenario.minutes / seconds)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    plot.legend(loc="outside right upper", fontsize=6, ncols=1 if len(axes.get_lines()) < 10 else 2)
    _draw_marks(marks, run, seconds)
    marks.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 3, 5, 6, 10], integer=True))
    marks.set_xlabel(unit)
    return plot


def _draw_loads(axes: Axes, times: Floats, loads: Floats) -> None:
    if loads.shape[1] <= MOST_LINES:
        for broker, load in enumerate(loads.T):
            axes.plot(times, load, linestyle="--" if broker >= len(COLOURS) else "-", label=f"broker {broker}")
        return
    lowest, low, middle, high, highest = np.nanpercentile(loads, (0, 10, 50, 90, 100), axis=1)
    axes.fill_between(times, lowest, highest, color=COLOURS[0], alpha=0.18, linewidth=0, label="all brokers")
    axes.fill_between(times, low, high, color=COLOURS[0], alpha=0.3, linewidth=0, label="80% of the brokers")
    axes.plot(times, middle, label="median")


def _draw_marks(axes: Axes, run: Run, seconds: float) -> None:
    events = {
        "other": ([move.at for move in run.cluster.moved if move.by != "balancer"], INK),
        "splits": ([split.at for split in run.cluster.divided], COLOURS[1]),
        "moves": ([move.at for move in run.cluster.moved if move.by == "balancer"], COLOURS[0]),
    }
    for row, (times, colour) in enumerate(events.values()):
        at, count = np.unique(np.array(times, dtype=float), return_counts=True)
        axes.vlines(at / seconds, row, row + np.minimum(0.3 + 0.1 * count, 0.9), colors=colour)
    axes.set_yticks(range(len(events)), list(events), fontsize=6, verticalalignment="bottom")
    axes.set_ylim(0, len(events))
    axes.grid(visible=False)
