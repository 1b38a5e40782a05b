"""What the report's plots show of the candidates. No Spark."""

from __future__ import annotations

from collections.abc import Sequence

from bundlekeel.jobs.evidence import EvidenceInput
from bundlekeel.jobs.report.plots import Point
from bundlekeel.jobs.selection import Selection
from bundlekeel.sim.backtest import CandidateMeasures

# The rest would hide one another.
_MOST = 600


def points_of(told: EvidenceInput, chosen: Selection) -> list[Point]:
    """Every candidate on the held-out days: moves an hour and imbalance."""
    found = []
    for key, blocks in told.blocks.items():
        whole = CandidateMeasures.sum(blocks.values())
        if not whole.seconds:
            continue
        kind = "near" if key in chosen.near else "far"
        kind = "present" if key == told.present.key else "chosen" if key == told.chosen.key else kind
        name = chosen.tried.candidates[key].name
        moves = whole.moves_per_day / 24
        label = f"{name}: imbalance {whole.imbalance:.4f}, {moves:.2f} moves an hour"
        found.append(Point(x=moves, y=whole.imbalance, kind=kind, label=label))
    ranked = sorted(found, key=lambda point: (point.kind == "far", point.y))
    return ranked[:_MOST]


def blocks_shown(told: EvidenceInput, labels: Sequence[str]) -> tuple[Sequence[str], Sequence[float], Sequence[float]]:
    """Labels, and the imbalance block by block of what is in force and of what is proposed."""
    before, after = told.blocks[told.present.key], told.blocks[told.chosen.key]
    numbers = sorted(set(before) & set(after))
    return (
        [labels[place] if place < len(labels) else "" for place in range(len(numbers))],
        [before[number].imbalance for number in numbers],
        [after[number].imbalance for number in numbers],
    )
