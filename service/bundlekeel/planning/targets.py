"""The coldest targets of a draft: most moves need only these brokers, not all, to choose the same target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.snapshot import Bools
from bundlekeel.planning.scores import ScoredColumn

COUNT: Final = 64
# The coldest brokers are computed again after this many moves.
MOVES: Final = 16
# Margin for scores, which are rounded to 32 bits several times.
_ROUNDING: Final = 1 - 4e-6


@dataclass(slots=True)
class Coldest:
    """The coldest legal targets.

    `rows`: in broker order. `among`: mask of the coldest brokers over all. `others`: by scored column, the lowest score
    of other brokers whose score is that of the column. `largest`: largest weighted limit by scored column. `until`:
    number of moves up to which the result is valid.
    """

    rows: Ints
    among: Bools
    others: Floats
    largest: Floats
    until: int

    @classmethod
    def select(cls, score: Floats, legal: Bools, parts: Floats, columns: Sequence[ScoredColumn], moves: int) -> Coldest:
        """Compute the coldest targets. `parts`: scores by each column alone (rows) of every broker."""
        order = np.argpartition(np.where(legal, score, np.inf), min(COUNT, len(score) - 1))
        among = np.zeros(len(score), dtype=bool)
        among[order[:COUNT]] = True
        rest = legal & ~among
        by = parts.argmax(axis=0)
        others = [float(score[rest & (by == column)].min(initial=np.inf)) for column in range(len(columns))]
        largest = [limit.max(initial=0.0) / weight for _, limit, weight in columns]
        return cls(np.flatnonzero(among & legal), among, np.array(others), np.array(largest), moves + MOVES)

    def changed(self, broker: int, score: float) -> None:
        """Update the bound after the score of a broker has changed."""
        if not self.among[broker]:
            np.minimum(self.others, score, out=self.others)

    def least(self, pressure: Floats) -> float:
        """Return a lower bound for the other brokers' scores with a bundle of this pressure (by scored column)."""
        return float((self.others + pressure / self.largest).min(initial=np.inf)) * _ROUNDING
