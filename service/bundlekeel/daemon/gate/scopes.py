"""Scopes of pauses and patterns of exclusions as people write them: checked, and how many known bundles they match."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bundlekeel.core.guard.scope import BROKER, check_pattern, is_glob, matching_bundles
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.daemon.gate.in_force import PAUSE_SCOPES

_ALLOWED = "tenant:NAME, namespace:TENANT/NAME or broker:ID"


def scope_of(text: str, registered: Callable[[], Sequence[str]]) -> tuple[str, str]:
    """The scope of a pause without blanks around its parts, and the guard's pattern that is the same. ConfigError when
    it is none, or names a broker that is not registered."""
    kind, _, name = (part.strip() for part in text.partition(":"))
    if kind == "broker":
        _known(name, "scope", text, registered)
        return f"{kind}:{name}", f"{BROKER}:{name}"
    if kind not in PAUSE_SCOPES or is_glob(name):
        raise ConfigError(f"{text!r} is not a valid pause scope", field="scope", value=text, allowed=_ALLOWED)
    try:
        pattern = check_pattern(f"{PAUSE_SCOPES[kind]}:{name}")
    except ConfigError as error:
        raise ConfigError(
            f"{text!r} is not a valid pause scope", field="scope", value=text, allowed=_ALLOWED
        ) from error
    return f"{kind}:{name}", pattern


def pattern_of(text: str, registered: Callable[[], Sequence[str]]) -> str:
    """The pattern of an exclusion without blanks around its parts. ConfigError as in `scope_of`; a glob may match no
    broker."""
    pattern = check_pattern(text)
    kind, _, name = pattern.partition(":")
    if kind == BROKER and not is_glob(name):
        _known(name, "pattern", text, registered)
    return pattern


def matched(pattern: str, snapshot: Snapshot | None) -> int | None:
    """How many bundles that are known now it matches; None before the first picture."""
    return None if snapshot is None else int(matching_bundles(snapshot, pattern).sum())


def _known(broker: str, field: str, given: str, registered: Callable[[], Sequence[str]]) -> None:
    if broker not in registered():
        raise ConfigError(f"no broker {broker!r}", field=field, value=given, allowed=", ".join(sorted(registered())))
