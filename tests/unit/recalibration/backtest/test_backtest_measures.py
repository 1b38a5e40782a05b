"""The sums of a back-test: that they add up, and their form as a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.recalibration.backtest.measures import FIGURES, CandidateMeasures

ROWS = st.lists(
    st.builds(CandidateMeasures, **{name: st.integers(0, 10**6).map(float) for name in FIGURES}), max_size=5
)


@given(parts=ROWS)
def test_columns_summed_by_anybody(parts: list[CandidateMeasures]) -> None:
    """A row is floats by column; the sums of columns are the row of the sum."""
    summed = {name: sum(part.row()[name] for part in parts) for name in FIGURES}
    assert CandidateMeasures.of_row(summed | {"candidate": 1.0}) == CandidateMeasures.sum(parts)


def test_nothing() -> None:
    """Without counted time, quotients are 0."""
    assert (CandidateMeasures().imbalance, CandidateMeasures(moves=3.0).per_day(3.0)) == (0.0, 0.0)


def test_a_missing_column_is_no_zero() -> None:
    """It is an error."""
    row = CandidateMeasures().row()
    del row["moves"]
    with pytest.raises(KeyError, match="moves"):
        CandidateMeasures.of_row(row)
