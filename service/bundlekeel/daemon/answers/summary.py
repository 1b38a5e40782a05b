"""What happened in a span of time, in figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from bundlekeel.core.model.codes import EFFECTS, OUTCOMES
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.daemon.answers.doc import By, CodeName, Json, Reason, Sentence, WallMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A span of wall time in ms; `until_ms` 0: it goes on."""

    since_ms: int = 0
    until_ms: int = 0

    def __post_init__(self) -> None:
        """ConfigError for an end before the beginning."""
        if 0 < self.until_ms < self.since_ms:
            text = f"since_ms {self.since_ms} is after until_ms {self.until_ms}"
            raise ConfigError(text, field="since_ms", value=self.since_ms, allowed=f"at most {self.until_ms}")

    def of(self, records: Iterable[Json]) -> list[Json]:
        """Those of the records that are in it."""
        last = self.until_ms or float("inf")
        return [record for record in records if self.since_ms <= int(record.get("wall_ms") or 0) <= last]


ALWAYS: Final = Period()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalSummary(Answer):
    """A code that kept bundles from moving, or a cycle from being carried out."""

    code: CodeName
    cycles: Annotated[int, Doc("cycles in which it was met")]
    most: Annotated[int, Doc("bundles at most in one cycle; 0: it is about the whole cycle")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpellView(Answer):
    """Cycles in a row with the same verdict."""

    since_ms: Annotated[int, Doc("when its first cycle was")]
    until_ms: Annotated[int, Doc("when its last cycle was")]
    cycles: Annotated[int, Doc("how many cycles it has")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonView(Answer):
    """Something that a person did."""

    wall_ms: WallMs
    by: By
    what: Annotated[str, Doc("what was asked for")]
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryView(Answer):
    """What happened in a span of time. Moves and effects are those of all sidecars, the rest is of this one."""

    since_ms: Annotated[int, Doc("the first millisecond of the time")]
    until_ms: Annotated[int, Doc("the last millisecond of the time")]
    known_since_ms: Annotated[int | None, Doc("the oldest record in it: nothing is known before; null: none at all")]
    sentence: Sentence
    cycles: Annotated[int, Doc("cycles of this sidecar")]
    followed: Annotated[int, Doc("of these, those in which another sidecar led; its own summary has their reasons")] = 0
    recommended: Annotated[int, Doc("cycles whose plan moves something, and that were not carried out")]
    recommended_moves: Annotated[int, Doc("moves at most in one of these")]
    moves: Annotated[dict[str, int], Doc("how many moves, by outcome", keys=OUTCOMES)]
    effects: Annotated[dict[str, int], Doc("moves by what they did: helped, no_benefit, worse", keys=EFFECTS)]
    gain: Annotated[float | None, Doc("how much the more loaded broker went down by these on average, a ratio")]
    obstacles: Annotated[list[RefusalSummary], Doc("why plans were not carried out, the most frequent first")]
    refusals: Annotated[list[RefusalSummary], Doc("why bundles did not move, the most frequent first")]
    overloads: Annotated[list[SpellView], Doc("times in which a broker had too much load, the longest first")]
    people: Annotated[list[PersonView], Doc("what people asked of this sidecar, and takeovers, oldest first")]
    refused_requests: Annotated[int, Doc("requests to this sidecar that were refused")]
