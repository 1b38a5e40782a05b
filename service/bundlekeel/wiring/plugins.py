"""Third-party shedders and placements: entry points of installed distributions (docs/concepts/plugins.md).

`bundlekeel.shedders` names callables `(Context) -> Decision`, `bundlekeel.placements` callables of
`core.strategies.placement.Placement`. What they plan passes the invariants and the guard like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bundlekeel.core.model.errors import ConfigError

GROUPS: dict[str, str] = {
    "bundlekeel.shedders": "bundlekeel.core.strategies",
    "bundlekeel.placements": "bundlekeel.core.strategies.placement",
}


def load_plugins() -> list[str]:
    """Register every entry point of the two groups, in the order of their names; one message for each that failed."""
    problems = []
    for group, module in GROUPS.items():
        for point in sorted(entry_points(group=group), key=lambda item: (item.name, item.value)):
            # Imported where there is a plugin only: it takes longer than most commands.
            problem = _load(point, import_module(module).register)
            if problem:
                problems.append(f"{_origin(point)}: {problem}")
    return problems


def _load(point: EntryPoint, register: Callable[[str, Any], None]) -> str:
    """What is wrong with one entry point, or nothing once it is registered."""
    try:
        loaded = point.load()
    except Exception as error:  # noqa: BLE001 - other people's modules may raise anything while they are imported
        return f"cannot be loaded: {type(error).__name__}: {error}"
    if not callable(loaded):
        return f"is no callable but of type {type(loaded).__name__}"
    try:
        register(point.name, loaded)
    except ConfigError as error:
        return f"{error} (allowed: {error.allowed})" if error.allowed else str(error)
    return ""


def _origin(point: EntryPoint) -> str:
    where = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"
    return f"{where}, entry point {point.name!r} of {point.group}"
