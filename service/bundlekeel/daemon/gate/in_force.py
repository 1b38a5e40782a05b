"""What people asked for at run time, as it is in force at one moment: mode, pauses, paused scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, get_args

from bundlekeel.core.guard.scope import BROKER, PAUSE_SCOPES, check_pattern, check_scope, is_glob, matching_bundles
from bundlekeel.core.model.errors import NotFound
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.model.text_format import unknown_broker
from bundlekeel.daemon.answers.picture import Mode, PauseView
from bundlekeel.daemon.state.documents import Desired, Pause

MODES: Final[tuple[Mode, ...]] = get_args(Mode)


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
