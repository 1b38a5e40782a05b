"""Times, counts and values as text. The results do not depend on the clock, time zone or language of the machine."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import number

HOUR_MS: Final = 3_600_000
# Maximum number of brokers in a message.
MOST_NAMES: Final = 10
LIMITS: Final = {"ge": "{} or more", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|)")
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def clock_text(wall_ms: int) -> str:
    """Return a Unix time in ms as `2026-11-21 18:05:09 UTC`."""
    import numpy as np  # noqa: PLC0415 - the command line imports this module, and has no other use for it

    return f"{np.datetime64(wall_ms // 1000, 's')} UTC".replace("T", " ", 1)


def parse_duration(value: object) -> float:
    """Return the seconds in `10s`, `500ms`, `1m`, `2h`, `1d` or a plain number of seconds.

    Raises ValueError if it is not a duration.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a duration")
    try:
        return number(match[1], field="duration") * _SECONDS[match[2]]
    except CodecError:
        raise ValueError("not a duration") from None


def format_duration(seconds: float) -> str:
    """Return the shortest exact spelling: 90 -> `90s`, 120 -> `2m`, 0.2 -> `200ms`."""
    for unit in ("h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    if seconds and seconds < 1:
        return f"{seconds * 1000:g}ms"
    return f"{seconds:g}s"


def numbered(count: int, noun: str, verb: str = "") -> str:
    """Return `1 bundle`, `2 bundles`; with the plural form of a verb: `1 bundle leaves`, `2 bundles leave`."""
    one = count == 1
    text = f"{count} {noun}{'' if one else 's'}"
    return f"{text} {verb}{'s' if one else ''}" if verb else text


def how_far(done: int, total: int, noun: str, seconds: float) -> str:
    """Return the progress of a job that started `seconds` ago: `31 of 96 tasks, 2.4 a second, 27 s left`."""
    counted = f"{done} of {numbered(total, noun)}"
    if not done or not seconds:
        return counted
    rate, left = done / seconds, (total - done) * seconds / done
    pace = f"{rate:.1f} a second" if rate >= 0.1 else f"{60 * rate:.1f} a minute"
    return f"{counted}, {pace}, {f'{left:.0f} s' if left < 120 else f'{left / 60:.0f} min'} left"


def unknown_broker(name: str, registered: Iterable[str]) -> str:
    """Return the message for a broker that does not exist, with the most similar registered brokers, if any."""
    ids = sorted(registered)
    host = name.rpartition(":")[0]
    near = [item for item in ids if name and item.startswith(name)]
    near = near or [item for item in ids if host and item.rpartition(":")[0] == host]
    near = near[:3] or get_close_matches(name, ids, n=3)
    there = f"nearest: {', '.join(near)}" if near else f"registered: {some(ids) or 'none'}"
    return f"no broker {name!r}; {there}"


def some(names: Sequence[str]) -> str:
    """Return the first `MOST_NAMES` names as text, and how many others there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def limits_text(limits: Mapping[str, Any], spell: Callable[[Any], str] = "{:.15g}".format) -> str:
    """Return the limits of a number as text: `from 1 to 100`, `1 or more`, `more than 0 and at most 100`.

    `limits`: by pydantic's names `ge`, `gt`, `le`, `lt`.
    """
    texts = {name: spell(limits[name]) for name in LIMITS if limits.get(name) is not None}
    if texts.keys() == {"ge", "le"}:
        return f"from {texts['ge']} to {texts['le']}"
    return " and ".join(LIMITS[name].format(limit) for name, limit in texts.items())


def share(change: float, before: float) -> str:
    """Return a change as text, in percent of the value `before`; as a number if `before` is 0."""
    if before <= 0:
        return "as before" if change == 0 else f"{change:+.3g} from 0"
    return f"{change / before:+z.1%}"


def level(imbalance: float) -> str:
    """Return max/mean (highest broker load / mean load) as text. `imbalance`: max/mean minus 1, as it is stored."""
    return f"{1 + imbalance:.3f}"


def max_mean(before: float, after: float) -> str:
    """Return the change of max/mean as text: `max/mean 1.080 -> 1.077 (part above 1: -4.5%)`.

    `before`, `after`: max/mean minus 1.
    """
    return f"max/mean {level(before)} -> {level(after)} (part above 1: {share(after - before, before)})"


def gain(moves: tuple[float, float], imbalance: tuple[float, float]) -> str:
    """Return as text how changed parameters affect moves per hour and max/mean.

    Both arguments are (before, after); `imbalance`: max/mean minus 1.
    """
    then, now = moves
    text = f"moves an hour {figure(then, 3)} -> {figure(now, 3)} ({share(now - then, then)})"
    return f"{text}, {max_mean(*imbalance)}"


def figure(value: float, digits: int = 4) -> str:
    """Return a number without an exponent: `12,300,000`, `0.0123`; `0` below a millionth.

    `digits`: maximum number of significant digits below 1,000.
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-6:
        return "0"
    text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def suggest(word: str, words: Iterable[str]) -> str:
    """Return `; did you mean "x"?` with the most similar of `words`; "" if none is similar to `word`."""
    by_lower = {name.lower(): name for name in words}
    lower = word.lower()
    # In short words, one letter is a larger part of the difference.
    near = [lower] if lower in by_lower else get_close_matches(lower, by_lower, n=2, cutoff=0.7)
    near = near or get_close_matches(lower, by_lower, n=1, cutoff=0.66)
    return f"; did you mean {' or '.join(repr(by_lower[name]) for name in near)}?" if near else ""
