"""The optional features, and how the sidecar finds their modules by name.

Each feature is a package `bundlekeel.NAME` that can be deleted. The sidecar never imports a feature statically. A
feature declares what it adds in modules with fixed names: `settings`, `requests` (stored requests), `metrics`,
`examples` (of commands) and `feature` (all other parts, see `wiring.feature`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

FEATURES: Final = ("simulator", "compat", "recalibration", "quotas")


def modules(part: str) -> Iterator[ModuleType]:
    """Yield the module `bundlekeel.NAME.PART` of each installed feature that has it, in the order of `FEATURES`."""
    for name in FEATURES:
        package = f"bundlekeel.{name}"
        spec = find_spec(package)
        # Search without importing the package, because that may be slow for a feature without this part.
        if spec is not None and PathFinder.find_spec(f"{package}.{part}", spec.submodule_search_locations) is not None:
            yield import_module(f"{package}.{part}")


def with_features(own: Mapping[str, Any], part: str, attribute: str) -> dict[str, Any]:
    """Return the sidecar's table `own` with the entries that features add.

    Each feature may have a module `part` with the variable `attribute`. It contains the feature's entries, grouped by
    the entry of `own` before which they are inserted.
    """
    entries = dict(own)
    for module in modules(part):
        for following, more in getattr(module, attribute).items():
            pairs = list(entries.items())
            place = list(entries).index(following)
            entries = dict([*pairs[:place], *more.items(), *pairs[place:]])
    return entries
