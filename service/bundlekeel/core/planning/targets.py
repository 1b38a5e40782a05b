"""Targets of a draft: the coldest of them, and those that the guard forbids.

With the coldest at hand most moves look at a few brokers instead of all, and find the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.planning.scores import ScoredColumn

COUNT: Final = 64
# They are looked for again after so many moves.
MOVES: Final = 16
# Scores are rounded to 32 bits a few times on their way.
_ROUNDING: Final = 1 - 4e-6


@dataclass(slots=True)
class Coldest:
    """`rows`: the coldest legal targets, in broker order; `among`: the same as a mask over all. `others`: by scored
    column the lowest score of the others that are scored by it. `until`: the number of moves up to which this serves.
    """

    rows: Ints
    among: Bools
    others: Floats
    largest: Floats
    until: int

    @classmethod
    def of(cls, score: Floats, legal: Bools, parts: Floats, columns: Sequence[ScoredColumn], moves: int) -> Coldest:
        """`parts`: the scores by each of the columns alone (rows), of every broker."""
        order = np.argpartition(np.where(legal, score, np.inf), min(COUNT, len(score) - 1))
        among = np.zeros(len(score), dtype=bool)
        among[order[:COUNT]] = True
        rest = legal & ~among
        by = parts.argmax(axis=0)
        others = [float(score[rest & (by == column)].min(initial=np.inf)) for column in range(len(columns))]
        largest = [limit.max(initial=0.0) / weight for _, limit, weight in columns]
        return cls(np.flatnonzero(among & legal), among, np.array(others), np.array(largest), moves + MOVES)

    def changed(self, broker: int, score: float) -> None:
        """A broker gave or took."""
        if not self.among[broker]:
            np.minimum(self.others, score, out=self.others)

    def least(self, pressure: Floats) -> float:
        """A score that none of the others is below with a bundle of this pressure (by scored column) on it."""
        return float((self.others + pressure / self.largest).min(initial=np.inf)) * _ROUNDING
