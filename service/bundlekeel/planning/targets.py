"""Select the least loaded target brokers, so that the target of most moves can be chosen without all other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.snapshot import Bools
from bundlekeel.planning.scores import ScoredColumn

COUNT: Final = 64
# The least loaded brokers are selected again after this many moves.
MOVES: Final = 16
# Margin for scores, which are rounded to 32 bits several times.
_ROUNDING: Final = 1 - 4e-6


@dataclass(slots=True)
class Coldest:
    """The least loaded brokers that may take bundles, and lower bounds for the scores of all other brokers.

    `rows`: the selected brokers, ascending. `among`: mask of the selected brokers. `others`: by scored resource, the
    lowest score of the other brokers for which this resource is the most used. `largest`: by scored resource, the
    largest limit divided by the weight. `until`: number of planned moves up to which the selection is used.
    """

    rows: Ints
    among: Bools
    others: Floats
    largest: Floats
    until: int

    @classmethod
    def select(cls, score: Floats, legal: Bools, parts: Floats, columns: Sequence[ScoredColumn], moves: int) -> Coldest:
        """Select the least loaded brokers that may take bundles (mask `legal`).

        `parts`: score of each broker (column) by one resource (row) alone. `columns`: the scored resources. `moves`:
        number of moves planned so far.
        """
        order = np.argpartition(np.where(legal, score, np.inf), min(COUNT, len(score) - 1))
        among = np.zeros(len(score), dtype=bool)
        among[order[:COUNT]] = True
        rest = legal & ~among
        by = parts.argmax(axis=0)
        others = [float(score[rest & (by == column)].min(initial=np.inf)) for column in range(len(columns))]
        largest = [limit.max(initial=0.0) / weight for _, limit, weight in columns]
        return cls(np.flatnonzero(among & legal), among, np.array(others), np.array(largest), moves + MOVES)

    def changed(self, broker: int, score: float) -> None:
        """Update the lower bounds after the score of a broker has changed."""
        if not self.among[broker]:
            np.minimum(self.others, score, out=self.others)

    def least(self, pressure: Floats) -> float:
        """Return a lower bound for the scores of brokers that are not selected, with a bundle added.

        `pressure`: usage that the bundle causes, by scored resource.
        """
        return float((self.others + pressure / self.largest).min(initial=np.inf)) * _ROUNDING
