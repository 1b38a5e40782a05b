"""Shift all times of a value to another machine's clock, so that times of two clocks are never compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")
# Fields that map names to times.
_DATED = frozenset({"undone", "reverted"})
# Fields with the time of a broker's report (`BrokerReport.updated_ms`), although their names do not end with `_ms`.
_REPORTED = frozenset({"reported", "since", "compared"})


def rebased(value: T, by_ms: int) -> T:
    """Return the value with all times (fields `..._ms` and `_REPORTED`, unless 0) shifted by `by_ms`."""
    shifted: Any = _shift("", value, by_ms)
    return shifted  # type: ignore[no-any-return]


def _shift(name: str, value: Any, by_ms: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _shift(name, item, by_ms) for key, item in value.items()}
    if name.endswith("_ms") or name in _REPORTED:
        return value + by_ms if value else value
    if name in _DATED:
        return tuple((item, at + by_ms) for item, at in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{item.name: _shift(item.name, getattr(value, item.name), by_ms) for item in fields(value)}
        )
    if isinstance(value, tuple):
        return tuple(_shift("", item, by_ms) for item in value)
    return value
