"""Maintenance windows: what they allow together, and when they open and close, clock changes included."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from bundlekeel.leader.gate.allowance import Allow, Allowance, WindowSpan, allowance
from bundlekeel.leader.gate.windows import Calendar, span_of
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError
from bundlekeel.settings.describe import describe
from bundlekeel.settings.load import load_settings
from bundlekeel.settings.sections import WindowSettings

BERLIN = "Europe/Berlin"
HOUR = 3_600_000


def at(text: str, zone: str = "UTC") -> int:
    """Wall milliseconds of a local time; `fold=1` for the second one of a clock that goes back."""
    text, _, fold = text.partition(" fold=")
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=int(fold or 0)).timestamp() * 1000)


def window(
    cron: str = "0 2 * * *", minutes: int = 120, allow: Allow = "act", time_zone: str = BERLIN
) -> WindowSettings:
    """One window."""
    return WindowSettings(cron=cron, minutes=minutes, allow=allow, time_zone=time_zone)


# Settings refuse it; a calendar that is given it all the same says so.
NEVER = WindowSettings.model_construct(cron="0 0 30 2 *", minutes=1, allow="act", time_zone="UTC")

# --- what windows allow together -------------------------------------------------------------------------------

OPEN = {"opened_ms": 1, "ends_ms": 50, "next_ms": 100}
SHUT = {"next_ms": 30}


@pytest.mark.parametrize(
    ("spans", "result"),
    [
        ([], Allowance()),
        ([WindowSpan(allow="act", **SHUT)], Allowance(allow="nothing", until_ms=30, closed_by="hours")),
        ([WindowSpan(allow="act", **OPEN)], Allowance(allow="act", until_ms=50)),
        ([WindowSpan(allow="overload", **OPEN)], Allowance(allow="overload", until_ms=50)),
        ([WindowSpan(allow="overload", **OPEN), WindowSpan(allow="act", **OPEN)], Allowance(allow="act", until_ms=50)),
        (
            [WindowSpan(allow="overload", **OPEN), WindowSpan(allow="act", **SHUT)],
            Allowance(allow="overload", until_ms=50),
        ),
        (
            [WindowSpan(allow="act", **OPEN), WindowSpan(allow="act", opened_ms=9, ends_ms=70)],
            Allowance(allow="act", until_ms=70),
        ),
        (
            [WindowSpan(allow="act", **OPEN), WindowSpan(allow="nothing", **OPEN)],
            Allowance(allow="nothing", until_ms=50, closed_by="window"),
        ),
        (
            [WindowSpan(allow="nothing", **SHUT)],
            Allowance(),
        ),  # only windows that forbid: outside of them all is allowed
        ([WindowSpan(allow="act")], Allowance(allow="nothing", until_ms=0, closed_by="hours")),  # never again
        (
            [
                WindowSpan(allow="act", next_ms=40),
                WindowSpan(allow="overload", next_ms=20),
                WindowSpan(allow="nothing", next_ms=10),
            ],
            Allowance(allow="nothing", until_ms=20, closed_by="hours"),
        ),
    ],
)
def test_windows_together(spans: list[WindowSpan], result: Allowance) -> None:
    """Rule: what forbids wins, then what allows most; outside nothing moves, unless all windows only forbid."""
    assert allowance(spans) == result


# --- by the calendar -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-11-23 01:59:59", False),
        ("2026-11-23 02:00", True),
        ("2026-11-23 03:59:59", True),
        ("2026-11-23 04:00", False),
    ],
)
def test_open_from_the_minute_to_the_minute(moment: str, is_open: bool) -> None:
    """Rule: a window is open from its cron time, in its own zone, for its minutes."""
    assert bool(span_of(window(), at(moment, BERLIN)).opened_ms) is is_open


def test_weekdays_and_the_next_opening() -> None:
    """Rule: on a Saturday the next opening of a window of Monday to Friday is Monday's."""
    span = span_of(window("0 2 * * 1-5"), at("2026-11-21 12:00", BERLIN))
    assert (span.opened_ms, span.next_ms) == (0, at("2026-11-23 02:00", BERLIN))


def test_the_clock_goes_forward() -> None:
    """Rule: 02:00 does not exist on 2027-03-28 in Berlin: the window opens at 03:00 and lasts two real hours."""
    opens = at("2027-03-28 03:00", BERLIN)
    assert opens == at("2027-03-28 01:00")
    assert span_of(window(), opens - 1000).next_ms == opens
    span = span_of(window(), opens + HOUR)
    assert (span.opened_ms, span.ends_ms) == (opens, opens + 2 * HOUR)
    assert not span_of(window(), opens + 2 * HOUR).opened_ms
    assert span_of(window(), opens + 2 * HOUR).next_ms == at("2027-03-29 02:00", BERLIN)


def test_a_repeated_opening_follows_the_clock() -> None:
    """Rule: `*/15 2 * * *` opens in both hours from 02:00 on 2027-10-31, and not at all on 2027-03-28."""
    often = window("*/15 2 * * *", minutes=5)
    first, second = at("2027-10-31 02:45", BERLIN), at("2027-10-31 02:45 fold=1", BERLIN)
    assert second == first + HOUR
    for moment in (first, second):
        assert span_of(often, moment).opened_ms == moment
    assert span_of(often, at("2027-03-28 00:30", BERLIN)).next_ms == at("2027-03-29 02:00", BERLIN)


def test_the_clock_goes_back() -> None:
    """Rule: 02:00 comes twice on 2027-10-31: the window opens once, and two real hours later it is 03:00."""
    first = at("2027-10-31 02:00", BERLIN)
    assert first == at("2027-10-31 00:00")
    second = at("2027-10-31 02:00 fold=1", BERLIN)
    assert second == first + HOUR
    for moment in (first, first + HOUR // 2, second, second + HOUR // 2):
        assert span_of(window(), moment).opened_ms == first
    assert not span_of(window(), at("2027-10-31 03:00", BERLIN)).opened_ms
    short = window(minutes=30)
    assert not span_of(short, second).opened_ms, "the second 02:00 opens nothing"
    assert span_of(short, second).next_ms == at("2027-11-01 02:00", BERLIN)


def test_windows_that_overlap_themselves() -> None:
    """Rule: a window that opens again before it ends stays open."""
    span = span_of(window("0 * * * *", minutes=90), at("2026-11-23 12:10", BERLIN))
    assert (span.opened_ms, span.ends_ms) == (at("2026-11-23 11:00", BERLIN), at("2026-11-23 13:30", BERLIN))


# --- what the cycle asks ---------------------------------------------------------------------------------------


def test_the_obstacle_names_the_next_opening() -> None:
    """Rule: outside the windows nothing moves automatically, and users read in their own time zone when it resumes."""
    calendar = Calendar([window("0 2 * * 1-5")])
    code = calendar.obstacle(at("2026-11-21 12:00", BERLIN))
    assert code is not None
    assert code.code is Code.OUTSIDE_WINDOW
    assert "2026-11-23 02:00 Europe/Berlin" in code.sentence
    assert calendar.obstacle(at("2026-11-23 02:00", BERLIN)) is None
    assert calendar.obstacle(at("2026-11-23 04:00", BERLIN)) is not None


def test_a_freeze() -> None:
    """Rule: a window that forbids stops moves while it is open, and names its end."""
    calendar = Calendar([window("0 0 24 12 *", minutes=3 * 24 * 60, allow="nothing", time_zone="UTC")])
    assert calendar.obstacle(at("2026-12-23 23:59")) is None
    code = calendar.obstacle(at("2026-12-25 12:00"))
    assert code is not None and "2026-12-27 00:00 UTC" in code.sentence


def test_relief_only() -> None:
    """Rule: a window may allow relief of overload only; then nothing else is an obstacle to the cycle."""
    calendar = Calendar([window(allow="overload")])
    inside = at("2026-11-23 02:30", BERLIN)
    assert calendar.relief_until(inside) == at("2026-11-23 04:00", BERLIN)
    assert calendar.obstacle(inside) is None
    assert calendar.relief_until(at("2026-11-23 05:00", BERLIN)) is None
    assert Calendar().obstacle(inside) is None and Calendar().relief_until(inside) is None


def test_what_closes_it_is_named() -> None:
    """Rule: outside of the hours the next opening, in a freeze its end, and where none ever opens again just that."""
    hours, freeze = window("0 2 * * *", time_zone="UTC"), window("0 2 * * *", 30, "nothing", "UTC")
    at_noon, within = at("2026-11-23 12:00"), at("2026-11-23 02:15")
    message = {}
    for name, windows, moment in (
        ("hours", [hours], at_noon),
        ("freeze", [freeze, hours], within),
        ("never", [NEVER], at_noon),
    ):
        calendar = Calendar(windows).obstacle(moment)
        assert calendar is not None and calendar.code is Code.OUTSIDE_WINDOW
        message[name] = calendar.detail
    assert message == {
        "hours": "the next one opens at 2026-11-24 02:00 UTC",
        "freeze": "one that forbids moves ends at 2026-11-23 02:30 UTC",
        "never": "none opens any more",
    }


def test_the_zone_of_the_first_window_is_spoken() -> None:
    """Rule: people read the zone they wrote first, whichever window opens."""
    calendar = Calendar([window("0 5 * * *"), window("0 0 * * *", time_zone="UTC")]).obstacle(at("2026-11-23 12:00"))
    assert calendar is not None and calendar.detail.endswith("2026-11-24 01:00 Europe/Berlin")


def test_the_whole_span() -> None:
    """Rule: inside and outside of a window, to the millisecond; a cron time that never comes opens nothing."""
    opens, next_one = at("2026-11-23 02:00", BERLIN), at("2026-11-24 02:00", BERLIN)
    inside = WindowSpan(allow="act", opened_ms=opens, ends_ms=opens + 2 * HOUR, next_ms=next_one)
    assert span_of(window(), opens - 1) == WindowSpan(allow="act", next_ms=opens)
    assert [span_of(window(), moment) for moment in (opens, opens + 2 * HOUR - 1)] == [inside, inside]
    assert span_of(window(), opens + 2 * HOUR) == WindowSpan(allow="act", next_ms=next_one)
    assert span_of(NEVER, opens) == WindowSpan(allow="act")


def test_the_calendar_follows_the_windows_as_they_open_and_close() -> None:
    """Rule: a computed value is valid until the first of all windows turns, and not a millisecond longer."""
    calendar = Calendar([window("0 2 * * *", 60, time_zone="UTC"), window("30 2 * * *", 60, "overload", "UTC")])
    two = at("2026-11-23 02:00")
    turns = [(two - 1, "nothing"), (two, "act"), (two + HOUR - 1, "act"), (two + HOUR, "overload")]
    turns += [(two + HOUR + HOUR // 2 - 1, "overload"), (two + HOUR + HOUR // 2, "nothing"), (two + 24 * HOUR, "act")]
    for moment, allowed in turns:
        assert calendar.at(moment).allow == allowed, moment - two


def test_the_calendar_goes_by_the_clock_people_set() -> None:
    """Rule: the wall clock that was set since the process began counts for windows."""
    stepped = 0
    calendar = Calendar([window("0 2 * * *", 60, time_zone="UTC")], lambda: stepped)
    one = at("2026-11-23 01:00")
    assert calendar.obstacle(one) is not None and Calendar([window("0 2 * * *", 60, time_zone="UTC")]).at(
        at("2026-11-23 02:00") - 1
    ) == Allowance(allow="nothing", until_ms=at("2026-11-23 02:00"), closed_by="hours")
    stepped = HOUR
    assert calendar.obstacle(one) is None


def test_a_clock_that_steps_back_is_believed() -> None:
    """Rule: a value computed for later is not valid for earlier."""
    calendar = Calendar([window()])
    assert calendar.obstacle(at("2026-11-23 02:30", BERLIN)) is None
    assert calendar.obstacle(at("2026-11-23 01:30", BERLIN)) is not None


@pytest.mark.parametrize(
    "bad",
    [
        {"cron": "0 25 * * *", "minutes": 1},
        {"cron": "0 2 * *", "minutes": 1},
        {"cron": "0 0 2 * * *", "minutes": 1},
        {"cron": "0 2 * * *", "minutes": 0},
        {"cron": "0 2 * * *", "minutes": 1, "time_zone": "Europe/Atlantis"},
        {"cron": "0 2 * * *", "minutes": 1, "time_zone": "../etc/passwd"},
        {"cron": "0 2 * * *", "minutes": 1, "allow": "all"},
        {"cron": "0 2 * * *", "minutes": 1, "colour": "red"},
    ],
)
def test_bad_windows_are_refused(bad: dict[str, object]) -> None:
    """Rule: an unreadable window is an error at the start, not a window that never opens."""
    with pytest.raises(ValidationError):
        WindowSettings.model_validate(bad)


FILE = """
windows:
  - {cron: "0 2 * * 1-5", time_zone: Europe/Berlin, minutes: 120}
  - {cron: "0 0 24 12 *", minutes: 10080, allow: nothing}
"""


def test_windows_of_a_settings_file(tmp_path: Path) -> None:
    """Rule: windows are read from the file, shown as they are in force, and a bad one is named by its place."""
    path = tmp_path / "bundlekeel.yaml"
    path.write_text(FILE)
    loaded = load_settings(path)
    assert loaded.settings.windows == (
        window("0 2 * * 1-5"),
        window("0 0 24 12 *", minutes=10080, allow="nothing", time_zone="UTC"),
    )
    (row,) = [item for item in describe(loaded) if item["key"] == "windows"]
    output = {"cron": "0 2 * * 1-5", "time_zone": BERLIN, "minutes": 120, "allow": "act"}
    assert json.loads(json.dumps(row["value"]))[0] == output
    path.write_text(FILE.replace("0 2 *", "0 25 *"))
    with pytest.raises(ConfigError, match="cron"):
        load_settings(path)


def test_moments_of_the_test_itself() -> None:
    """Berlin is an hour ahead of UTC in winter: the helper above reads zones as the standard library does."""
    assert at("2026-11-23 02:00", BERLIN) == int(datetime(2026, 11, 23, 1, tzinfo=UTC).timestamp() * 1000)
