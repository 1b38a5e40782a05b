"""Shifts every time of a value from one machine's clock to another's: wall clocks are never compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")
# Fields that hold names with a moment each.
_DATED = frozenset({"undone", "reverted"})
# Fields with the time of a broker's report (`BrokerReport.updated_ms`), of which the names do not end with `_ms`.
_REPORTED = frozenset({"reported", "since", "compared"})


def rebased(value: T, by_ms: int) -> T:
    """The same value with every moment in it (fields `..._ms` and `_REPORTED`; 0 stands for none) so much later."""
    found: Any = _moved("", value, by_ms)
    return found  # type: ignore[no-any-return]


def _moved(name: str, value: Any, by_ms: int) -> Any:
    if name.endswith("_ms") or name in _REPORTED:
        return value + by_ms if value else value
    if name in _DATED:
        return tuple((item, at + by_ms) for item, at in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{item.name: _moved(item.name, getattr(value, item.name), by_ms) for item in fields(value)}
        )
    if isinstance(value, Mapping):
        return {key: _moved("", item, by_ms) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_moved("", item, by_ms) for item in value)
    return value
