"""Moments, counts and figures as people read them. `core` knows no clock and no calendar of the machine."""

from __future__ import annotations

import math
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


def numbered(count: int, noun: str, verb: str = "") -> str:
    """`1 bundle`, `2 bundles`; with the verb of many, its form for one too: `1 bundle leaves`, `2 bundles leave`."""
    one = count == 1
    said = f"{count} {noun}{'' if one else 's'}"
    return f"{said} {verb}{'s' if one else ''}" if verb else said


def figure(value: float, digits: int = 4) -> str:
    """A number without an exponent: `12,300,000`, `0.0123`; at most so many significant digits where it is below 1,000,
    and `0` below a millionth."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-6:
        return "0"
    text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
