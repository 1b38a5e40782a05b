"""Exclusions: bundles and brokers that no move touches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import msgspec

from bundlekeel.leader.gate.patterns import count_matches, pattern_of
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import NotFound
from bundlekeel.model.response_fields import Requested
from bundlekeel.requests.verb import Matched, UntilMs, Verb, as_stored, drop, put


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionView(Requested):
    """An exclusion of bundles or brokers from moves."""

    pattern: Annotated[str, Doc("`t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`, globs allowed")]
    until_ms: UntilMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedView(ExclusionView):
    """Response to a new exclusion of bundles or brokers from moves."""

    bundles: Matched


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludedView(Answer):
    """Response to the end of an exclusion."""

    pattern: Annotated[str, Doc("pattern of the exclusion")]


class Exclude(Verb):
    """Requests to exclude bundles or brokers from moves, or to include them again."""

    async def exclude(self, pattern: str, *, seconds: float | None, reason: str, by: str) -> ExcludedView:
        """Exclude bundles or brokers that match a pattern from moves; `seconds` None: until an operator ends it."""
        pattern, exclusion = pattern_of(pattern, self._registered), self._lasting_request(seconds, reason, by)
        change = partial(put, table="excluded", name=pattern, value=exclusion)
        await self._note(change, f"exclusion of {pattern}", reason, by)
        bundles = count_matches(pattern, self.cycle.snapshot)
        return ExcludedView(pattern=pattern, bundles=bundles, **msgspec.to_builtins(exclusion))

    async def include(self, pattern: str, *, reason: str, by: str) -> IncludedView:
        """End the exclusion with this pattern."""
        pattern = as_stored(pattern)
        if pattern not in self.shared_state.desired.excluded:
            raise NotFound(f"{pattern} is not excluded at run time; the settings file may exclude it")
        await self._note(lambda desired: drop(desired, "excluded", pattern), f"inclusion of {pattern}", reason, by)
        return IncludedView(pattern=pattern)
