"""PIP-364's table of five properties with measured figures instead of words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import median

from rich.console import RenderableType

from bundlekeel.cli.output import table
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.sim.pairs import PROPERTIES, PairProperty
from bundlekeel.sim.run import Run

TITLE = "PIP-364's five properties, measured (median over the seeds; smaller is better)"


def _rows(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """A row a contender, a figure a property."""
    labels = dict.fromkeys(run.contender.label for run in runs)
    return [(label, [_text(_figure(runs, label, item)) for item in PROPERTIES]) for label in labels]


def _figure(runs: Sequence[Run], label: str, item: PairProperty) -> float:
    return median(
        item.figure(run) for run in runs if run.contender.label == label and run.scenario.name == item.scenario
    )


def _text(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.3g}"


def pairs_table(runs: Sequence[Run]) -> RenderableType:
    """The table for a terminal."""
    made = table("combination", *(f"{item.title}\n({item.unit})" for item in PROPERTIES), title=TITLE)
    for label, cells in _rows(runs):
        made.add_row(label, *cells)
    return made


def pairs_json(runs: Sequence[Run]) -> Json:
    """The table's figures; null for never."""
    labels = dict.fromkeys(run.contender.label for run in runs)
    return {
        "properties": [
            {
                "combination": label,
                **{
                    item.scenario.removeprefix("pip364-"): None if math.isinf(value) else value
                    for item in PROPERTIES
                    for value in [_figure(runs, label, item)]
                },
            }
            for label in labels
        ]
    }


def pairs_html(runs: Sequence[Run]) -> str:
    """The table for a page."""
    head = "".join(f"<th>{escape(item.title)}<br>({escape(item.unit)})</th>" for item in PROPERTIES)
    rows = "".join(
        f"<tr><td>{escape(label)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for label, cells in _rows(runs)
    )
    return (
        f'<section><h2>{escape(TITLE)}</h2><div class="scroll"><table><tr><th>combination</th>{head}</tr>'
        f"{rows}</table></div></section>"
    )
