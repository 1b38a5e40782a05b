"""Plots of the recalibration report."""

from __future__ import annotations

import re

from bundlekeel.recalibration.jobs.plots import DayPair, Point, days_plot, trade_off_plot
from bundlekeel.simulator.page import GOOD


def test_every_candidate_is_in_the_trade_off() -> None:
    """Pulsar's own classes have their names; the legend has each kind once."""
    points = [
        Point(name="present", kind="present", clients=40.0, max_mean=1.1),
        Point(name="move_price 50 -> 80", kind="chosen", clients=20.0, max_mean=1.1),
        Point(name="ThresholdShedder", kind="native", clients=4000.0, max_mean=1.3),
    ]
    text = trade_off_plot(points)
    assert text.startswith("<svg")
    for label in ("ThresholdShedder", "in force", "proposed", "client-seconds without service, per hour"):
        assert text.count(f">{label}<") == 1
    assert ">tested<" not in text
    assert trade_off_plot([]) == ""


def test_days_have_both_settings_if_they_differ() -> None:
    """Each held-out day is on the axis; without a change there is one line."""
    days = [DayPair(date=f"2026-11-2{number}", clients=(40.0, 20.0), max_mean=(1.2, 1.1)) for number in range(1, 5)]
    text = days_plot(days, "proposed")
    assert re.findall(r">(11-\d\d)<", text) == ["11-21", "11-22", "11-23", "11-24"]
    assert GOOD in text
    same = days_plot([DayPair(date="2026-11-21", clients=(40.0, 40.0), max_mean=(1.2, 1.2))], "proposed")
    assert GOOD not in same and ">proposed<" not in same
    assert days_plot([], "proposed") == ""
