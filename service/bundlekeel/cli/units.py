"""Numbers for operators: rates, throughput, ages, shares. An unknown value is a dash."""

from __future__ import annotations

from bundlekeel.pulsar.formats.external_input import utc

DASH = "–"
LONG = "%Y-%m-%d %H:%M:%S %Z"
SHORT = "%m-%d %H:%M:%S %Z"
_BIG = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float | None, unit: str = "") -> str:
    """Format a value with three digits and a decimal prefix: `12.3 k`."""
    if value is None:
        return DASH
    size = abs(value)
    for factor, prefix in _BIG:
        if size >= factor * 0.9995:
            return f"{_three(value / factor)} {prefix}{unit}"
    return f"{_three(value)} {unit}".rstrip()


def _three(value: float) -> str:
    size = abs(value)
    if size >= 99.95 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 0.05 else f"{value:.2g}"


def rate(value: float | None) -> str:
    """Format a rate in messages per second."""
    return amount(value, "msg/s")


def throughput(value: float | None) -> str:
    """Format a throughput in bytes per second."""
    return amount(value, "B/s")


def share(value: float | None) -> str:
    """Format a ratio as a percentage."""
    return DASH if value is None else f"{value:.1%}"


def multiple(value: float | None) -> str:
    """Format a ratio such as max/mean with two decimals."""
    return DASH if value is None else f"{value:.2f}"


def count(value: int | None) -> str:
    """Format an integer."""
    return DASH if value is None else str(value)


def age(seconds: float | None) -> str:
    """Format a duration in seconds with its two largest units: `42 s`, `3m 10s`, `2h 5m`, `3d 4h`."""
    if seconds is None:
        return DASH
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h"


def moment(wall_ms: float | None, *, short: bool = False) -> str:
    """Format a Unix time in ms as local time with zone, to the second; `short` omits the year."""
    if wall_ms is None:
        return DASH
    return utc(wall_ms, field="time").astimezone().strftime(SHORT if short else LONG)
