"""Scopes of pauses and patterns of exclusions: checked, and matched against the bundles of the latest snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bundlekeel.core.guard.scope import (
    BROKER,
    check_pattern,
    check_scope,
    is_glob,
    matching_bundles,
)
from bundlekeel.core.model.errors import NotFound
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.model.text_format import unknown_broker


def scope_of(text: str, registered: Callable[[], Sequence[str]]) -> tuple[str, str]:
    """As `check_scope`; NotFound when it names a broker that is not registered."""
    scope, pattern = check_scope(text)
    kind, _, name = pattern.partition(":")
    if kind == BROKER:
        _known(name, registered)
    return scope, pattern


def pattern_of(text: str, registered: Callable[[], Sequence[str]]) -> str:
    """The pattern of an exclusion without blanks around its parts. Raises as `scope_of`; a glob may match no broker."""
    pattern = check_pattern(text)
    kind, _, name = pattern.partition(":")
    if kind == BROKER and not is_glob(name):
        _known(name, registered)
    return pattern


def matched(pattern: str, snapshot: Snapshot | None) -> int | None:
    """How many bundles that are known now it matches; None before the first picture."""
    return None if snapshot is None else int(matching_bundles(snapshot, pattern).sum())


def _known(broker: str, registered: Callable[[], Sequence[str]]) -> None:
    if broker not in registered():
        raise NotFound(unknown_broker(broker, registered()))
