"""Plots of the recalibration report: what stands below their axes."""

from __future__ import annotations

import re

import pytest

from bundlekeel.jobs import plots, report

DATES = [f"2026-11-{day:02d}" for day in range(1, 31)]


def dates_of(drawn: str) -> list[tuple[str, str]]:
    """(anchor, date) of each date that is written, from left to right."""
    return re.findall(r'text-anchor="(\w+)">(2026-[\d-]+)<', drawn)


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_each_date_stands_once_and_whole(count: int) -> None:
    """Below the bars of the days: the first begins where the plot does, the last ends where it ends."""
    told = dates_of(plots.day_bars([(date, 1.0, "good") for date in DATES[:count]]))
    assert len({date for _, date in told}) == len(told) == min(count, 3)
    if count == 30:
        assert told == [("start", DATES[0]), ("middle", DATES[14]), ("end", DATES[29])]


@pytest.mark.parametrize("count", [2, 4, 30])
def test_labels_of_blocks_stand_once(count: int) -> None:
    """Also where there are fewer of them than places."""
    told = dates_of(plots.line_plot(DATES[:count], [("present", "in force", [1.0] * count)], "imbalance"))
    assert len({date for _, date in told}) == len(told) == min(count, 5)
    assert (told[0][0], told[-1][0]) == ("start", "end")


def test_blocks_of_a_day_share_its_date() -> None:
    """The day stands once, where its first block is."""
    blocks = [date for date in DATES[:4] for _ in range(4)]
    told = dates_of(plots.line_plot(blocks, [("present", "in force", [1.0] * len(blocks))], "imbalance"))
    assert [date for _, date in told] == DATES[:4]


def test_better_points_are_explained() -> None:
    """Those as good or better by what is printed: the one not confirmed, others, and what the search made of them."""
    points = [
        plots.Point(x=2.0, y=1.1, kind="present", label="as it is: max/mean 1.100"),
        plots.Point(x=1.0, y=1.05, kind="near", label="avg: low 17.5: max/mean 1.05"),
        plots.Point(x=1.5, y=1.06, kind="near", label="avg: low 20: max/mean 1.06"),
        plots.Point(x=3.0, y=1.01, kind="near", label="avg: low 5: max/mean 1.01"),
        # Less in digits that are not printed is equal; fewer moves at an equal max/mean are not.
        plots.Point(x=2.0, y=1.09999, kind="near", label="avg: low 9: max/mean 1.1000"),
        plots.Point(x=1.9, y=1.1, kind="near", label="avg: low 10: max/mean 1.1000", searched="max/mean 1.2000"),
    ]
    told = report._better(
        report.ReportInputs(points=points, reason="not confirmed: avg: low 17.5: 0.55 times the moves")
    )
    assert told.startswith(
        "<p>The plot has 3 candidates as good as what is in force or better by both figures (max/mean 1.1000, 2 moves "
        "an hour). Why not proposed:"
    )
    assert "10: max/mean 1.1000; on the days of the search max/mean 1.2000: another one" in told and "low 9" not in told
    assert "17.5: max/mean 1.05: the one that these days were to confirm" in told
    assert "20: max/mean 1.06: another one came first on the days of the search" in told and "low 5" not in told


def test_axes_have_a_scale_and_a_title() -> None:
    """Two marks at least, and the name of the upright axis above it; figures without exponents."""
    points = [plots.Point(x=x, y=y, kind="far", label="") for x, y in ((0.0, 0.0762), (2e7, 0.0846))]
    drawn = plots.candidate_plot(points)
    assert len(re.findall(r'<line class="grid"', drawn)) >= 2
    (title,) = re.findall(r'y="(\d+)">max/mean of score', drawn)
    assert int(title) < plots.TOP
    assert "e+" not in drawn


def test_points_look_as_the_legend_says() -> None:
    """With colour and opacity of the same rule; opaque enough to be seen on a dark page."""
    shown = report.ReportInputs(points=[plots.Point(x=1.0, y=1.1, kind=kind, label="") for kind in ("near", "far")])
    text = report._candidates(shown)
    for kind in ("near", "far"):
        assert f'<i class="{kind}">' in text and f'<circle class="{kind}"' in text
        assert re.search(rf"\.{kind} {{ fill: (\S+); background: \1; }}", report._STYLE)
    assert all(float(part) >= 0.6 for part in re.findall(r"opacity: ([\d.]+)", report._STYLE))
