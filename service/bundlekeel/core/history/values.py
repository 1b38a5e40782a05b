"""Plain values (numbers, texts, lists, maps) of the frozen dataclasses a plan depends on, and back. Pure.

Leaves are kept as they are: a whole number in a field of floats stays one, because the texts of a plan would differ.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bundlekeel.core.model.errors import HistoryError


def plain(value: Any) -> Any:
    """What JSON can hold. Sets are sorted; a map whose keys are no texts becomes a list of pairs."""
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and value:
            return {key: plain(item) for key, item in value.items()}
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, Set):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def restored(kind: Any, value: Any) -> Any:
    """The opposite of `plain`. HistoryError when the value does not fit, or has members this release does not know."""
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass(kind, value)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        known = [item for item in inner if item is not type(None)]
        return None if value is None else restored(known[0], value)
    if origin is tuple:
        repeated = len(inner) == 2 and inner[1] is Ellipsis
        parts = [inner[0]] * len(value) if repeated else inner
        _require(len(parts) == len(value), f"{len(value)} values for {kind}")
        return tuple(restored(part, item) for part, item in zip(parts, value, strict=True))
    if origin is frozenset:
        return frozenset(restored(inner[0], item) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        pairs = value.items() if isinstance(value, dict) else value
        return {restored(inner[0], key): restored(inner[1], item) for key, item in pairs}
    return value


def _dataclass(kind: type, value: Any) -> Any:
    _require(isinstance(value, dict), f"{kind.__name__} is not a map")
    hints = _hints(kind)
    # A class whose members have changed converts what an earlier release recorded.
    value = getattr(kind, "recorded", dict)(value)
    unknown = sorted(set(value) - set(hints))
    _require(not unknown, f"{kind.__name__} has {', '.join(unknown)}, which this release does not know")
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in value]
    _require(not missing, f"{kind.__name__} lacks {', '.join(missing)}")
    return kind(**{name: restored(hints[name], item) for name, item in value.items()})


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    known = typing.get_type_hints(kind)
    return {item.name: known[item.name] for item in fields(kind)}


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise HistoryError(f"a recorded value cannot be read: {why}")
