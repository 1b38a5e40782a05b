"""What people asked for at run time, as it is in force at one moment: mode, pauses, paused scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, get_args

from bundlekeel.core.guard.scope import BROKER, check_pattern, is_glob, matching_bundles
from bundlekeel.core.model.errors import ConfigError, NotFound
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.model.text_format import unknown_broker
from bundlekeel.daemon.answers.picture import Mode, PauseView
from bundlekeel.daemon.state.documents import Desired, Pause

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
# The kinds of scope a pause may have, and how the guard's patterns begin (core/guard/scope.py).
PAUSE_SCOPES: Final = {"tenant": "t", "namespace": "n", "broker": "r"}


def mode_in_force(ceiling: Mode, desired: Desired) -> Mode:
    """The lower of the settings file's mode and what people asked for at run time."""
    if desired.mode is None:
        return ceiling
    if desired.mode not in MODES:
        return MODES[0]  # a word of a newer version: the safe reading
    return MODES[min(MODES.index(ceiling), MODES.index(desired.mode))]


def lasts(until_ms: int, now_ms: int) -> bool:
    """Whether something with this end is in force (wall ms; 0: until a person ends it)."""
    return until_ms == 0 or until_ms > now_ms


def pause_in_force(desired: Desired, now_ms: int) -> Pause | None:
    """The pause, unless its end has passed."""
    pause = desired.pause
    return pause if pause is not None and lasts(pause.until_ms, now_ms) else None


def pause_view(pause: Pause) -> PauseView:
    """A pause as it is answered."""
    until = pause.until_ms or None
    return PauseView(reason=pause.reason, by=pause.by, since_ms=pause.since_ms, until_ms=until)


def scopes_paused(desired: Desired, now_ms: int) -> dict[str, int]:
    """The guard's patterns of the scopes that are paused now, with the end of each pause in ms (0: until resumed)."""
    found = {}
    for scope, pause in desired.pauses.items():
        kind, _, name = scope.partition(":")
        if kind in PAUSE_SCOPES and lasts(pause.until_ms, now_ms):
            found[f"{PAUSE_SCOPES[kind]}:{name}"] = pause.until_ms
    return found


# Scopes of pauses and patterns of exclusions as people write them: checked, and how many known bundles they match.


_ALLOWED = "tenant:NAME, namespace:TENANT/NAME or broker:ID"


def scope_of(text: str, registered: Callable[[], Sequence[str]]) -> tuple[str, str]:
    """The scope of a pause without blanks around its parts, and the guard's pattern that is the same. ConfigError when
    it is none, NotFound when it names a broker that is not registered."""
    kind, _, name = (part.strip() for part in text.partition(":"))
    if kind == "broker" and name and not is_glob(name):
        _known(name, registered)
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
