"""What people asked for at run time, as it is in force at one moment: mode, pauses, paused scopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

from bundlekeel.core.guard.scope import (
    BROKER,
    BUNDLE,
    KINDS,
    PAUSE_SCOPES,
    check_pattern,
    check_scope,
    is_glob,
    matching_bundles,
    pattern_for,
)
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import NotFound
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.model.plan import Refusal
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.model.text_format import clock_text, unknown_broker
from bundlekeel.daemon.answers.picture import Mode, PauseView
from bundlekeel.daemon.state.documents import Desired, LastingRequest, Pause

MODES: Final[tuple[Mode, ...]] = get_args(Mode)


def mode_in_force(ceiling: Mode, desired: Desired) -> Mode:
    """The lower of the settings file's mode and what people asked for at run time."""
    if desired.mode is None:
        return ceiling
    if desired.mode not in MODES:
        return MODES[0]
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


def pause_text(scope: str, pause: Pause) -> str:
    """What is paused, until when, by whom and why."""
    until = f"until {clock_text(pause.until_ms)}" if pause.until_ms else "until resumed"
    return f"{scope}, {until}, by {pause.by}: {pause.reason}"


def ends_of(requests: Mapping[str, LastingRequest]) -> dict[str, int]:
    """Return the end of each request in Unix ms; 0: an operator ends it."""
    return {name: request.until_ms for name, request in requests.items()}


def asked_end(request: LastingRequest) -> str:
    """Return when a pin or an exclusion ends, and the operator and reason of the request."""
    end = f"until {clock_text(request.until_ms)}" if request.until_ms else "until somebody ends it"
    return f"{end}, by {request.by}: {request.reason}"


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """What leaves bundles and brokers alone that a plan calls excluded: a paused scope, an exclusion, or the settings.
    To the guard a paused scope is an exclusion."""

    desired: Desired
    now_ms: int
    # By bundle, or by its namespace where no pattern names bundles: a plan may refuse all bundles of a large cluster.
    _known: dict[tuple[str, ...], tuple[Code, str]] = field(default_factory=dict)

    def why(self, bundle: str, *brokers: str) -> tuple[Code, str]:
        """The code and, as text, which scope or pattern, until when, and who asked. `bundle` empty: the brokers."""
        exact = any(pattern.startswith(f"{BUNDLE}:") for pattern in self.desired.excluded)
        key = bundle if exact or not bundle else namespace_of(bundle), *brokers
        if key not in self._known:
            self._known[key] = self._why(bundle, brokers)
        return self._known[key]

    def _why(self, bundle: str, brokers: tuple[str, ...]) -> tuple[Code, str]:
        desired, now = self.desired, self.now_ms
        pauses, excluded = scopes_paused(desired, now), ends_of(desired.excluded)
        if not bundle:
            pauses, excluded = (
                {pattern: end for pattern, end in found.items() if pattern.startswith(f"{BROKER}:")}
                for found in (pauses, excluded)
            )
        if pattern := pattern_for(pauses, now, bundle, brokers):
            kind, _, name = pattern.partition(":")
            scope = f"{KINDS[kind]}:{name}"
            return Code.PAUSED, pause_text(scope, desired.pauses[scope])
        if pattern := pattern_for(excluded, now, bundle, brokers):
            return Code.EXCLUDED, f"{pattern}, {asked_end(desired.excluded[pattern])}"
        return Code.EXCLUDED, "until the exclusion is taken out of the settings"

    def told(self, refusal: Refusal) -> Refusal:
        """A refusal of a plan with that code and text. Its detail may name the broker that takes nothing."""
        if refusal.code is not Code.EXCLUDED:
            return refusal
        code, text = self.why(refusal.bundle, refusal.broker, refusal.detail)
        return refusal._replace(code=code, detail="; ".join(filter(None, (refusal.detail, text))))


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
