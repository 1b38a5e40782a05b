"""Check the scope that a pause names and the pattern that an exclusion names, and count the matching bundles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bundlekeel.model.errors import NotFound
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import unknown_broker
from bundlekeel.planning.guard.scope import BROKER, check_pattern, check_scope, is_glob, matching_bundles


def scope_of(text: str, registered: Callable[[], Sequence[str]]) -> tuple[str, str]:
    """Return the scope of a pause, such as `namespace:acme/orders`, and the same scope as a pattern (`n:acme/orders`).

    Raises NotFound if the scope is a broker that is not registered."""
    scope, pattern = check_scope(text)
    kind, _, name = pattern.partition(":")
    if kind == BROKER:
        _check_registered(name, registered)
    return scope, pattern


def pattern_of(text: str, registered: Callable[[], Sequence[str]]) -> str:
    """Return an exclusion's pattern, such as `n:acme/*`, without surrounding spaces.

    Raises NotFound if it names a broker that is not registered."""
    pattern = check_pattern(text)
    kind, _, name = pattern.partition(":")
    if kind == BROKER and not is_glob(name):
        _check_registered(name, registered)
    return pattern


def count_matches(pattern: str, snapshot: Snapshot | None) -> int | None:
    """Return how many bundles of the latest snapshot the pattern matches; None before the first snapshot."""
    return None if snapshot is None else int(matching_bundles(snapshot, pattern).sum())


def _check_registered(broker: str, registered: Callable[[], Sequence[str]]) -> None:
    if broker not in registered():
        raise NotFound(unknown_broker(broker, registered()))
