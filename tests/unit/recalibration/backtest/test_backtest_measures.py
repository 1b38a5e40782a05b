"""The figures of a back-test: what they count, and that they add up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.load import Floats
from bundlekeel.recalibration.backtest.measures import FIGURES, CandidateMeasures, measure_scores


def table(seed: int, periods: int, brokers: int = 4) -> Floats:
    """Scores by period and broker."""
    return np.random.default_rng(seed).uniform(0.05, 1.0, (periods, brokers))


def of(scores: Floats, first: int = 0) -> CandidateMeasures:
    """The measures of scores that stand a minute each, every broker there."""
    count = len(scores)
    hours = (first + np.arange(count)) // 60
    return measure_scores(scores, np.ones(scores.shape, dtype=bool), np.full(count, 60.0), hours)


class TestFigures:
    """`measured`."""

    def test_manually(self) -> None:
        """Two pictures: 0.9 and 0.3 (max/mean 1.5), then 0.5 and 0.5."""
        found = of(np.array([[0.9, 0.3], [0.5, 0.5]]))
        assert found.imbalance == pytest.approx(0.25)
        assert found.overloaded_minutes == 1.0
        assert found.seconds == 120.0

    def test_absent_brokers_do_not_count(self) -> None:
        """Neither as idle ones nor as hot ones; a picture without any is none."""
        scores = np.array([[0.5, 0.5, 9.0], [9.0, 9.0, 9.0]])
        takes = np.array([[True, True, False], [False, False, False]])
        found = measure_scores(scores, takes, np.full(2, 60.0), np.zeros(2, dtype=np.int64))
        assert (found.imbalance, found.periods, found.overloaded_minutes) == (0.0, 1.0, 0.0)

    def test_nothing(self) -> None:
        """No picture at all."""
        assert of(np.zeros((0, 3))) == CandidateMeasures()
        assert (CandidateMeasures().imbalance, CandidateMeasures().moves_per_day) == (0.0, 0.0)


class TestSums:
    """`a + b`."""

    @given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(1, 9), max_size=4, unique=True))
    def test_parts_add_up_to_the_whole(self, seed: int, cuts: list[int]) -> None:
        """Cut at any full hours, and whatever the order of addition."""
        scores = table(seed, 600)
        edges = [0, *(60 * cut for cut in sorted(cuts)), 600]
        parts = [of(scores[a:b], first=a) for a, b in pairwise(edges)]
        together, whole = CandidateMeasures.sum(reversed(parts)).row(), of(scores).row()
        assert together == pytest.approx(whole)

    def test_columns_summed_by_anybody(self) -> None:
        """A row is floats by column; the sums of columns are the row of the sum."""
        one = CandidateMeasures(seconds=60.0, moves=3.0)
        other = CandidateMeasures(seconds=30.0, moves=1.0, moved_sessions=5.0)
        rows = one.row(), other.row()
        summed = {name: rows[0][name] + rows[1][name] for name in FIGURES}
        assert CandidateMeasures.of_row(summed | {"candidate": 1.0}) == one + other

    def test_a_missing_column_is_no_zero(self) -> None:
        """It is an error."""
        row = CandidateMeasures().row()
        del row["moves"]
        with pytest.raises(KeyError, match="moves"):
            CandidateMeasures.of_row(row)
