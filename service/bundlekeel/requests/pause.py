"""Pauses of a tenant, a namespace or a broker."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from bundlekeel.leader.gate.in_force import pause_view
from bundlekeel.leader.gate.patterns import count_matches, scope_of
from bundlekeel.leader.gate.responses import PauseView
from bundlekeel.leader.state.documents import Pause as StoredPause
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import NotFound
from bundlekeel.model.response_fields import By, Reason, Requested
from bundlekeel.requests.verb import Matched, UntilMs, Verb, as_stored, drop, put


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePauseView(Requested):
    """A pause of everything, or of one tenant, namespace or broker (the scope)."""

    scope: Annotated[str, Doc("`tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`; empty: everything")]
    until_ms: UntilMs


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedScopeView(PauseView):
    """Response to a pause of one tenant, namespace or broker (the scope)."""

    scope: Annotated[str, Doc("`tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`")]
    bundles: Matched


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedScopeView(Answer):
    """Response to the end of the pause of one tenant, namespace or broker (the scope)."""

    scope: Annotated[str, Doc("scope whose pause was ended")]
    reason: Reason
    by: By


class Pause(Verb):
    """Requests to pause or resume one tenant, namespace or broker (the scope)."""

    async def pause_scope(self, scope: str, *, seconds: float | None, reason: str, by: str) -> PausedScopeView:
        """Pause moves of all bundles of a tenant, namespace or broker; `seconds` None: until resumed."""
        scope, pattern = scope_of(scope, self._registered)
        pause = StoredPause(reason=reason, by=by, since_ms=self.clock.wall_ms(), until_ms=self._until(seconds))
        await self._note(lambda desired: put(desired, "pauses", scope, pause), f"pause of {scope}", reason, by)
        bundles = count_matches(pattern, self.cycle.snapshot)
        return PausedScopeView(scope=scope, **asdict(pause_view(pause)), bundles=bundles)

    async def resume_scope(self, scope: str, *, reason: str, by: str) -> ResumedScopeView:
        """End the pause of a tenant, namespace or broker."""
        scope = as_stored(scope)
        if scope not in self.shared_state.desired.pauses:
            raise NotFound(f"{scope} is not paused")
        await self._note(lambda desired: drop(desired, "pauses", scope), f"resume of {scope}", reason, by)
        return ResumedScopeView(scope=scope, reason=reason, by=by)
