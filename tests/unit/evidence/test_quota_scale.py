"""The bench of the quota engine, small."""

from __future__ import annotations

import pytest

from evidence.quota_scale import estimates, report_lines, run


@pytest.mark.parametrize("groups", [20, 400])
def test_settles(groups: int) -> None:
    """Within five cycles the limit holds while partitions move."""
    rows = run(brokers=10, namespaces=400, tenants=groups, cycles=10)
    assert all(row["accuracy"] == pytest.approx(1, abs=0.1) for row in rows[5:])


def test_estimates_of_the_thread() -> None:
    """56 MB published in a period, 5.6 GB with what all brokers receive."""
    published, received = estimates(100, 100_000)
    assert published == pytest.approx(56e6, rel=0.01)
    assert received == pytest.approx(5.6e9, rel=0.01)


def test_lines() -> None:
    """A table with two lines of head and a line for each cycle, and the thread's figures below."""
    lines = report_lines(4, 40, 4, 3)
    assert len([line for line in lines if line.startswith("| ")]) == 2 + 3
    assert "thread" in lines[-1]
