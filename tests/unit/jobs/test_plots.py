"""Plots of the recalibration report: what stands below their axes."""

from __future__ import annotations

import re

import pytest

from bundlekeel.jobs import report

DATES = [f"2026-11-{day:02d}" for day in range(1, 31)]


def dates_of(drawn: str) -> list[tuple[str, str]]:
    """(anchor, date) of each date that is written, from left to right."""
    return re.findall(r'text-anchor="(\w+)">(2026-[\d-]+)<', drawn)


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_each_date_stands_once_and_whole(count: int) -> None:
    """Below the bars of the days: the first begins where the plot does, the last ends where it ends."""
    told = dates_of(report.day_bars([(date, 1.0, "good") for date in DATES[:count]]))
    assert len({date for _, date in told}) == len(told) == min(count, 3)
    if count == 30:
        assert told == [("start", DATES[0]), ("middle", DATES[14]), ("end", DATES[29])]


@pytest.mark.parametrize("count", [2, 4, 30])
def test_labels_of_blocks_stand_once(count: int) -> None:
    """Also where there are fewer of them than places."""
    told = dates_of(report.line_plot(DATES[:count], [("present", "in force", [1.0] * count)], "imbalance"))
    assert len({date for _, date in told}) == len(told) == min(count, 6)
    assert (told[0][0], told[-1][0]) == ("start", "end")


def test_blocks_of_a_day_share_its_date() -> None:
    """The day stands once, where its first block is."""
    blocks = [date for date in DATES[:4] for _ in range(4)]
    told = dates_of(report.line_plot(blocks, [("present", "in force", [1.0] * len(blocks))], "imbalance"))
    assert [date for _, date in told] == DATES[:4]


def test_axes_have_no_exponents() -> None:
    points = [report.Point(x=x, y=1.0, kind="far", label="") for x in (0.0, 2e7)]
    assert "e+" not in report.candidate_plot(points)
