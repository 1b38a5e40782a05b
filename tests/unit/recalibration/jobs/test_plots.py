"""Plots of the recalibration report: labels, scales and legends."""

from __future__ import annotations

import re

import pytest

from bundlekeel.recalibration.jobs import plots, report
from bundlekeel.simulator.page import COLOURS, INK

DATES = [f"2026-11-{day:02d}" for day in range(1, 31)]


def texts(plot: str) -> list[str]:
    """Return the texts of a plot, from left to right for those of one axis."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", plot)


def dates_of(plot: str) -> list[str]:
    return [text for text in texts(plot) if text.startswith("2026-")]


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_each_date_is_shown_once(count: int) -> None:
    """The bars of the days have at most five dates, with the first and the last one."""
    dates = dates_of(plots.day_bars([(date, 1.0, "good") for date in DATES[:count]]))
    assert len(set(dates)) == len(dates) == min(count, 5)
    assert (dates[0], dates[-1]) == (DATES[0], DATES[count - 1])


@pytest.mark.parametrize("count", [2, 4, 30])
def test_dates_of_blocks_are_shown_once(count: int) -> None:
    dates = dates_of(plots.block_plot(DATES[:count], [1.0] * count, [1.0] * count))
    assert len(set(dates)) == len(dates) == min(count, 5)


def test_blocks_of_a_day_share_its_date() -> None:
    """The date is at the first block."""
    blocks = [date for date in DATES[:4] for _ in range(4)]
    assert dates_of(plots.block_plot(blocks, [1.0] * 16, [1.1] * 16)) == DATES[:4]


def test_a_proposal_is_drawn_only_if_it_differs() -> None:
    assert "proposed" in texts(plots.block_plot(DATES[:2], [1.0, 1.1], [1.0, 1.2]))
    assert "proposed" not in texts(plots.block_plot(DATES[:2], [1.0, 1.1], [1.0, 1.1]))


def test_nothing_to_plot() -> None:
    assert plots.candidate_plot([]) == plots.block_plot(DATES[:1], [1.0], [1.0]) == plots.day_bars([]) == ""
    assert plots.week_map([]) == plots.week_map([None, 0.0]) == ""


def test_a_week_has_a_row_per_day_and_a_scale() -> None:
    """An hour without history is white."""
    labels = texts(plots.week_map([None, *(1e6 * hour for hour in range(1, 168))]))
    assert [text for text in labels if text in plots._WEEKDAYS] == list(plots._WEEKDAYS)
    assert "1 (pale) to 167 MB/s" in labels


def test_better_points_are_explained() -> None:
    """Candidates that are as good by the printed digits are listed with their result in the search."""
    points = [
        plots.Point(x=2.0, y=1.1, kind="present", label="as it is: max/mean 1.100"),
        plots.Point(x=1.0, y=1.05, kind="near", label="avg: low 17.5: max/mean 1.05"),
        plots.Point(x=1.5, y=1.06, kind="near", label="avg: low 20: max/mean 1.06"),
        plots.Point(x=3.0, y=1.01, kind="near", label="avg: low 5: max/mean 1.01"),
        # A difference in digits that are not printed counts as equal. Fewer moves at an equal max/mean do not.
        plots.Point(x=2.0, y=1.09999, kind="near", label="avg: low 9: max/mean 1.1000"),
        plots.Point(x=1.9, y=1.1, kind="near", label="avg: low 10: max/mean 1.1000", searched="max/mean 1.2000"),
    ]
    better = report._better(
        report.ReportInputs(points=points, reason="not confirmed: avg: low 17.5: 0.55 times the moves")
    )
    assert (better["count"], better["than"]) == ("3 candidates", "in force")
    assert better["own"] == "max/mean 1.1000, 2 moves per hour"
    rows = "\n".join(better["rows"])
    assert "10: max/mean 1.1000; on the days of the search max/mean 1.2000: another one" in rows and "low 9" not in rows
    assert "17.5: max/mean 1.05: the held-out days did not confirm it" in rows
    assert "20: max/mean 1.06: another one was first on the days of the search" in rows and "low 5" not in rows


def test_axes_have_a_scale_and_a_title() -> None:
    """Numbers have no exponents."""
    points = [plots.Point(x=x, y=y, kind="far", label="") for x, y in ((0.0, 0.0762), (2e7, 0.0846))]
    labels = texts(plots.candidate_plot(points))
    assert {"moves per hour", "max/mean of score (1 is even)", "0.080", "20000000"} <= set(labels)


def test_points_look_as_the_legend_shows() -> None:
    """Each kind of point is in the legend, in its own colour; other kinds are not."""
    points = [plots.Point(x=1.0, y=1.1, kind=kind, label="") for kind in ("near", "far")]
    plot = plots.candidate_plot(points)
    assert {"within one night's reach", "other"} <= set(texts(plot)) and "proposed" not in texts(plot)
    assert COLOURS[0] in plot and INK in plot
