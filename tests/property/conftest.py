"""Laws about moves say nothing on examples in which nothing moves: they count those in which something does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

LEAST = 0.1


@pytest.fixture
def moved() -> Iterator[list[bool]]:
    """One entry an example: whether it put the law to the test. Too few such examples fail."""
    flags: list[bool] = []
    yield flags
    assert sum(flags) >= max(1, LEAST * len(flags)), (
        f"only {sum(flags)} of {len(flags)} examples put the law to the test"
    )
