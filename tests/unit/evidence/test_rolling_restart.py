"""evidence/rolling_restart: what counts as a move, and the table."""

from __future__ import annotations

from evidence.reaction.figures import Sample
from evidence.rolling_restart import COLUMNS, Result, list_moves


def _sample(at: float, **owners: str) -> Sample:
    return Sample(at=at, loads={"a": 1.0, "b": 1.0}, owners=owners)


def test_each_change_of_owner_is_a_move() -> None:
    """Rule: a bundle that was without an owner and returns to its broker did not move."""
    samples = [_sample(0, x="a", y="a"), _sample(1, x="b"), _sample(2, x="a", y="a"), _sample(3, x="b", y="a")]
    assert list_moves(samples) == [(1, "x", "a", "b"), (2, "x", "b", "a"), (3, "x", "a", "b")]


def test_a_row_has_one_cell_per_column() -> None:
    result = Result(
        mode="modular",
        sidecars=True,
        moves=1.0,
        peak=1.0,
        longest_gap_seconds=1.0,
        gap_seconds_per_topic=1.0,
        lost=0,
        duplicated=0,
        imbalance=1.0,
        seconds=None,
        drain_seconds=[],
    )
    assert len(result.cells()) == len(COLUMNS)
