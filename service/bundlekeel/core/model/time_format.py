"""Moments as people read them, from wall milliseconds alone: `core` knows no clock and no calendar of the machine."""

from __future__ import annotations

from typing import Final

HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * HOUR_MS


def clock_text(wall_ms: int) -> str:
    """`2026-11-21 18:05:09 UTC` of milliseconds since 1970."""
    days, rest = divmod(wall_ms, _DAY_MS)
    seconds = rest // 1000
    year, month, day = _civil(days)
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d} {time} UTC"


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970, in the Gregorian calendar.

    Counted from 0000-03-01, so that the day a leap year adds is the last one: 400 years have 146,097 days.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
