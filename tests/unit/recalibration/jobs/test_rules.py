"""Which history is good enough to calibrate on: rules on a day's figures, without Spark."""

from __future__ import annotations

import numpy as np
import pytest

from bundlekeel.model.load import Floats
from bundlekeel.recalibration.jobs.periods import HistoryPeriod
from bundlekeel.recalibration.jobs.rules import (
    BAD,
    GOOD,
    PARTIAL,
    BadDays,
    DayFigures,
    HistoryRules,
    TooLittleHistory,
    accept,
    day_of,
    find_liars,
    find_parallel_leaders,
    judge,
)


def day(date: str, **figures: object) -> DayFigures:
    """A sound day, but for these figures."""
    sound = {"date": date, "cycles": 1440, "coverage": 0.999, "brokers": 3, "bundles": 64}
    return DayFigures(**(sound | figures))  # type: ignore[arg-type]


def week(**of_the_fourth: object) -> list[DayFigures]:
    """Seven days; the fourth has these figures."""
    return [day(f"2026-11-{number:02d}", **(of_the_fourth if number == 4 else {})) for number in range(1, 8)]


def test_seven_sound_days_are_accepted() -> None:
    """Nothing is held against them, and all are used."""
    judged = judge(week(), HistoryRules())
    assert {item.verdict for item in judged} == {GOOD}
    assert accept(judged, HistoryRules()) == judged


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"unreadable": 2, "why": "it is torn"}, "2 unreadable files: it is torn"),
        ({"broken": 5, "why": "schema 9"}, "5 cycles that cannot be rebuilt: schema 9"),
        ({"doubles": 1}, "1 cycle recorded twice"),
        ({"misplaced": 3}, "3 cycles in the directory of another hour (UTC)"),
        ({"nan": 7}, "7 values that are not finite"),
        ({"negative": 7}, "7 negative values"),
        ({"absurd": 7}, "7 impossibly large values"),
        ({"set_back_minutes": 60.0}, "the leader's clock was set back by 60 minutes"),
        ({"silent": 0.95}, "no traffic in 95% of the cycles"),
        ({"lying": {"b:1": "too quiet"}}, "b:1 contradicts itself: too quiet"),
        ({"coverage": 0.7, "longest_gap_minutes": 400.0}, "70.0% recorded, longest gap 400 min"),
    ],
)
def test_a_bad_day_is_named(figures: dict[str, object], said: str) -> None:
    """One bad day refuses all, by name and reason; a person may leave it out."""
    judged = judge(week(**figures), HistoryRules())
    assert [item.verdict for item in judged] == [GOOD] * 3 + [BAD] + [GOOD] * 3
    assert judged[3].reasons == (said,)
    with pytest.raises(BadDays, match="1 bad day of 7: 2026-11-04") as refused:
        accept(judged, HistoryRules())
    assert refused.value.figures["bad_days"] == {"2026-11-04": said}
    kept = accept(judged, HistoryRules(min_days=6, leave_out=frozenset({"2026-11-04"})))
    assert [item.day.date for item in kept] == [f"2026-11-{number:02d}" for number in (1, 2, 3, 5, 6, 7)]


def test_a_day_without_any_record_is_bad() -> None:
    """A hole between the first and the last day is a bad day, though nothing in the history tells of it."""
    judged = judge([item for item in week() if item.date != "2026-11-04"], HistoryRules())
    assert len(judged) == 7
    assert judged[3].verdict == BAD
    assert judged[3].reasons == ("no usable cycle is recorded",)


def test_a_lost_hour_is_told_from_one_that_nobody_recorded() -> None:
    """23 hours are enough of a day, but not if cycles of the other one were recorded: numbers are missing."""
    short = {"coverage": 23 / 24, "longest_gap_minutes": 61.0, "interval_seconds": 60.0}
    assert {item.verdict for item in judge(week(**short), HistoryRules())} == {GOOD}
    assert {item.verdict for item in judge(week(**short, missing=3), HistoryRules())} == {GOOD}
    judged = judge(week(**short, missing=60), HistoryRules())
    assert (judged[3].verdict, judged[3].reasons) == (BAD, ("60 recorded cycles are missing, longest gap 61 min",))


def test_an_hour_lost_before_midnight_is_the_day_s_before() -> None:
    """The first cycle of the next day tells it; a whole lost day is its own fault only."""
    days = week(coverage=23 / 24, longest_gap_minutes=60.0, interval_seconds=60.0)
    days[4] = day("2026-11-05", missing=60, interval_seconds=60.0, longest_gap_minutes=1.0)
    assert [item.verdict for item in judge(days, HistoryRules())] == [GOOD] * 3 + [BAD] + [GOOD] * 3
    days = [item for item in week() if item.date != "2026-11-04"]
    days[3] = day("2026-11-05", missing=1440, interval_seconds=60.0, longest_gap_minutes=1.0)
    assert [item.verdict for item in judge(days, HistoryRules())] == [GOOD] * 3 + [BAD] + [GOOD] * 3


def hours(date: str, epoch: int, *which: int) -> list[HistoryPeriod]:
    """A leader's hours."""
    return [HistoryPeriod(date=date, hour=hour, epoch=epoch, files=()) for hour in which]


def test_two_clusters_in_one_folder_are_told() -> None:
    """Leaders follow one another: two that record side by side for hours are not of one cluster."""
    followed = [*hours("2026-11-04", 3, *range(12)), *hours("2026-11-04", 4, *range(11, 24))]
    later = hours("2026-11-06", 3, *range(24))
    assert find_parallel_leaders([*followed, *later]) == {}
    told = find_parallel_leaders([*followed, *hours("2026-11-04", 9, 20, 21, 22), *later])
    said = "leaders of terms 4 and 9 recorded the same 3 hours: two clusters in one directory?"
    assert told == {"2026-11-04": said}
    assert judge(week(leaders=said), HistoryRules())[3].reasons == (said,)


def test_first_and_last_day_need_not_be_whole() -> None:
    """Recording begins and ends some time of a day: such days are left out, and held against nobody."""
    days = week()
    days[0] = day("2026-11-01", coverage=0.2)
    days[-1] = day("2026-11-07", coverage=0.1)
    judged = judge(days, HistoryRules())
    assert [item.verdict for item in judged] == [PARTIAL] + [GOOD] * 5 + [PARTIAL]
    with pytest.raises(TooLittleHistory, match="5 good days; 7 are needed"):
        accept(judged, HistoryRules())
    assert len(accept(judged, HistoryRules(min_days=5))) == 5


def test_three_minutes_are_too_little() -> None:
    """However sound or spoilt they are: there is nothing to judge by yet."""
    for wrong in ({}, {"nan": 3}):
        judged = judge([day("2026-11-01", cycles=100, coverage=0.002, **wrong)], HistoryRules())
        with pytest.raises(TooLittleHistory, match="100 cycles of 1 day; 7 good days are needed") as refused:
            accept(judged, HistoryRules())
        assert refused.value.code == "TooLittleHistory"
        assert refused.value.figures["good_days"] == 0


def test_a_row_of_spark_is_a_day() -> None:
    """Figures that are null (a day of torn files only) count as 0."""
    made = day_of({"date": "2026-11-01", "cycles": None, "unreadable": 3, "coverage": None}, {"b:1": "why"})
    assert (made.cycles, made.unreadable, made.coverage, made.lying) == (0, 3, 0.0, {"b:1": "why"})


# --- brokers that lie ---

SLICES = 144


def cluster(brokers: int = 5) -> dict[str, Floats]:
    """A day of brokers whose CPU follows their traffic, each with a little noise."""
    rng = np.random.default_rng(7)
    level = rng.uniform(5e6, 2e7, brokers)
    season = 1 + 0.5 * np.sin(np.linspace(0, 2 * np.pi, SLICES))
    carried = (level[:, None] * season * rng.normal(1, 0.03, (brokers, SLICES))).ravel()
    usage = 30 + 1e-5 * carried * rng.normal(1, 0.03, brokers * SLICES)
    broker = np.repeat(np.arange(brokers, dtype=np.float64), SLICES)
    return {"broker": broker, "usage": usage, "carried": carried, "told": carried.copy()}


NAMES = [f"b:{number}" for number in range(5)]


def test_honest_brokers_are_not_accused() -> None:
    """Not even with one that has hardly any traffic, or one of other hardware."""
    slices = cluster()
    assert find_liars(NAMES, slices) == {}
    idle = slices["broker"] == 0
    slices["carried"][idle] = slices["told"][idle] = 1000.0
    slices["usage"][idle] = 30.0
    slower = slices["broker"] == 1
    slices["usage"][slower] *= 2.5
    assert find_liars(NAMES, slices) == {}


@pytest.mark.parametrize(
    ("column", "change", "said"),
    [
        ("usage", lambda values: np.full(len(values), 0.01), "its CPU for its traffic is"),
        ("usage", lambda values: values * 20, "its CPU for its traffic is"),
        ("usage", lambda values: 400 - values, "its CPU falls when its traffic rises"),
        ("told", lambda values: values / 10, "its bundles sum up to"),
    ],
)
def test_a_liar_is_found(column: str, change: object, said: str) -> None:
    """One broker says what cannot be, and only that one is named."""
    slices = cluster()
    of_it = slices["broker"] == 2
    slices[column][of_it] = change(slices[column][of_it])  # type: ignore[operator]
    found = find_liars(NAMES, slices)
    assert list(found) == ["b:2"]
    assert said in found["b:2"]


def test_little_is_no_ground_to_accuse() -> None:
    """Two brokers, or some minutes, or values that are no numbers: nobody is accused."""
    slices = cluster(2)
    slices["usage"][slices["broker"] == 1] = 0.0
    assert find_liars(NAMES[:2], slices) == {}
    short = {name: values.reshape(5, SLICES)[:, :20].ravel().copy() for name, values in cluster().items()}
    short["usage"][:20] = 0.0
    assert find_liars(NAMES, short) == {}
    blank = cluster()
    blank["usage"][blank["broker"] == 3] = np.nan
    assert find_liars(NAMES, blank) == {}
