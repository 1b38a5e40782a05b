"""Evidence on splits of segments: what happened during a gap of publishing."""

from __future__ import annotations

import pytest

from evidence.segments.__main__ import AFTER_MS, BEFORE_MS, cause_of


@pytest.mark.parametrize(
    ("moves", "changes", "cause"),
    [
        ([], [], "other"),
        ([(9_000, 9_900)], [], "move"),
        ([(1_000, 10_000 - AFTER_MS)], [], "move"),
        ([(1_000, 9_999 - AFTER_MS)], [], "other"),
        ([(11_000 + BEFORE_MS, 20_000)], [], "move"),
        ([(11_001 + BEFORE_MS, 20_000)], [], "other"),
        ([], [10_500], "split or merge"),
        ([], [9_999 - AFTER_MS, 11_001 + BEFORE_MS], "other"),
        ([(9_000, 9_900)], [10_500], "both"),
    ],
)
def test_a_gap_has_the_cause_that_overlaps_it(moves: list[tuple[int, int]], changes: list[int], cause: str) -> None:
    assert cause_of((10_000, 11_000), moves, changes) == cause
