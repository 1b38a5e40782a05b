"""Operators' requests that are active at a given time: mode, pauses, paused scopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, get_args

from bundlekeel.leader.gate.responses import Mode, PauseView
from bundlekeel.leader.state.documents import Desired, LastingRequest, Pause
from bundlekeel.model.codes import Code
from bundlekeel.model.names import namespace_of
from bundlekeel.model.plan import Refusal
from bundlekeel.model.text_format import clock_text
from bundlekeel.planning.guard.scope import BROKER, BUNDLE, KINDS, PAUSE_SCOPES, pattern_for
from bundlekeel.planning.guard.state import GuardState

MODES: Final[tuple[Mode, ...]] = get_args(Mode)


def mode_in_force(ceiling: Mode, desired: Desired) -> Mode:
    """Return the lower of the settings file's mode and the mode that operators set at run time."""
    if desired.mode is None:
        return ceiling
    if desired.mode not in MODES:
        return MODES[0]
    return MODES[min(MODES.index(ceiling), MODES.index(desired.mode))]


def lasts(until_ms: int, now_ms: int) -> bool:
    """Return whether a request with this end is active (Unix ms; 0: until an operator ends it)."""
    return until_ms == 0 or until_ms > now_ms


def pause_in_force(desired: Desired, now_ms: int) -> Pause | None:
    """Return the pause of everything; None: there is none, or its end has passed."""
    pause = desired.pause
    return pause if pause is not None and lasts(pause.until_ms, now_ms) else None


def pause_view(pause: Pause) -> PauseView:
    """Return a pause in the form of the API."""
    until = pause.until_ms or None
    return PauseView(reason=pause.reason, by=pause.by, since_ms=pause.since_ms, until_ms=until)


def scopes_paused(desired: Desired, now_ms: int) -> dict[str, int]:
    """Return the pattern of each paused tenant, namespace or broker, and the pause's end in Unix ms (0: none)."""
    ends = {}
    for scope, pause in desired.pauses.items():
        kind, _, name = scope.partition(":")
        if kind in PAUSE_SCOPES and lasts(pause.until_ms, now_ms):
            ends[f"{PAUSE_SCOPES[kind]}:{name}"] = pause.until_ms
    return ends


def with_requests(state: GuardState, desired: Desired, now_ms: int) -> GuardState:
    """Return the guard's state with the operators' requests: drains, warm-ups, cordons, pins, exclusions and pauses."""
    return replace(
        state,
        pinned=ends_of(desired.pinned),
        excluded=ends_of(desired.excluded) | scopes_paused(desired, now_ms),
        cordoned=frozenset(desired.cordons) | frozenset(desired.drains),
        draining=frozenset(desired.drains),
        warming=frozenset(desired.warms),
    )


def pause_text(scope: str, pause: Pause) -> str:
    """Return a pause as text: scope, end, operator and reason."""
    until = f"until {clock_text(pause.until_ms)}" if pause.until_ms else "until resumed"
    return f"{scope}, {until}, by {pause.by}: {pause.reason}"


def ends_of(requests: Mapping[str, LastingRequest]) -> dict[str, int]:
    """Return the end of each request by name, in Unix ms; 0: an operator ends it."""
    return {name: request.until_ms for name, request in requests.items()}


def asked_end(request: LastingRequest) -> str:
    """Return as text when a pin or an exclusion ends, and the operator and reason of the request."""
    end = f"until {clock_text(request.until_ms)}" if request.until_ms else "until an operator ends it"
    return f"{end}, by {request.by}: {request.reason}"


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Explains why a plan excludes bundles and brokers: a paused scope, an exclusion, or the settings.

    The guard (which limits the moves of a plan) treats paused scopes as exclusions. This class distinguishes them."""

    desired: Desired
    now_ms: int
    # Keyed by bundle, or by namespace if no pattern names bundles: a plan may refuse all bundles of a large cluster.
    _reasons: dict[tuple[str, ...], tuple[Code, str]] = field(default_factory=dict)

    def why(self, bundle: str, *brokers: str) -> tuple[Code, str]:
        """Return why a bundle or its brokers are excluded from moves. `bundle` "": check only the brokers.

        The result is a code, and a text with the scope or pattern, its end and the operator."""
        exact = any(pattern.startswith(f"{BUNDLE}:") for pattern in self.desired.excluded)
        key = bundle if exact or not bundle else namespace_of(bundle), *brokers
        if key not in self._reasons:
            self._reasons[key] = self._why(bundle, brokers)
        return self._reasons[key]

    def _why(self, bundle: str, brokers: tuple[str, ...]) -> tuple[Code, str]:
        desired, now = self.desired, self.now_ms
        pauses, excluded = scopes_paused(desired, now), ends_of(desired.excluded)
        if not bundle:
            pauses, excluded = (
                {pattern: end for pattern, end in patterns.items() if pattern.startswith(f"{BROKER}:")}
                for patterns in (pauses, excluded)
            )
        if pattern := pattern_for(pauses, now, bundle, brokers):
            kind, _, name = pattern.partition(":")
            scope = f"{KINDS[kind]}:{name}"
            return Code.PAUSED, pause_text(scope, desired.pauses[scope])
        if pattern := pattern_for(excluded, now, bundle, brokers):
            return Code.EXCLUDED, f"{pattern}, {asked_end(desired.excluded[pattern])}"
        return Code.EXCLUDED, "until the exclusion is removed from the settings"

    def explain(self, refusal: Refusal) -> Refusal:
        """Return the refusal; if its reason is an exclusion, with the exact code and text of that exclusion."""
        if refusal.code is not Code.EXCLUDED:
            return refusal
        code, text = self.why(refusal.bundle, refusal.broker, refusal.detail)
        return refusal._replace(code=code, detail="; ".join(filter(None, (refusal.detail, text))))
