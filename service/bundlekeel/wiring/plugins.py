"""Loads third-party shedders and placements: entry points of installed distributions (docs/concepts/plugins.md).

The group `bundlekeel.shedders` contains functions `(Context) -> Decision`, and the group `bundlekeel.placements`
functions of the type `planning.strategies.placement.Placement`. Plans with them pass the same checks as all others.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bundlekeel.model.errors import ConfigError

GROUPS: dict[str, str] = {
    "bundlekeel.shedders": "bundlekeel.planning.strategies",
    "bundlekeel.placements": "bundlekeel.planning.strategies.placement",
}


def load_plugins() -> list[str]:
    """Register all entry points of both groups, in order of names. Return one message per entry point that failed."""
    problems = []
    for group, module in GROUPS.items():
        for point in sorted(entry_points(group=group), key=lambda item: (item.name, item.value)):
            # Import it only if there is a plugin, because the import takes longer than most commands.
            problem = _load(point, import_module(module).register)
            if problem:
                problems.append(f"{_origin(point)}: {problem}")
    return problems


def _load(point: EntryPoint, register: Callable[[str, Any], None]) -> str:
    """Load and register an entry point. Return why that failed; "": it succeeded."""
    try:
        loaded = point.load()
    except Exception as error:  # noqa: BLE001 - third-party modules may raise any error during their import
        return f"cannot be loaded: {type(error).__name__}: {error}"
    if not callable(loaded):
        return f"is not callable: its type is {type(loaded).__name__}"
    try:
        register(point.name, loaded)
    except ConfigError as error:
        return f"{error} (allowed: {error.allowed})" if error.allowed else str(error)
    return ""


def _origin(point: EntryPoint) -> str:
    where = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"
    return f"{where}, entry point {point.name!r} of {point.group}"
