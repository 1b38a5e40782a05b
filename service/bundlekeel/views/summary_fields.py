"""Responses with the summary of a period: numbers of cycles, moves, refusals and requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from bundlekeel.model.codes import EFFECTS, OUTCOMES
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.response_fields import By, CodeName, Json, Reason, Sentence, WallMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A period in Unix ms; `until_ms` 0: it has no end."""

    since_ms: int = 0
    until_ms: int = 0

    def __post_init__(self) -> None:
        """Check the period. Raises ConfigError if its end is before its start."""
        if 0 < self.until_ms < self.since_ms:
            text = f"since_ms {self.since_ms} is after until_ms {self.until_ms}"
            raise ConfigError(text, field="since_ms", value=self.since_ms, allowed=f"at most {self.until_ms}")

    def of(self, records: Iterable[Json]) -> list[Json]:
        """Return the records in this period."""
        last = self.until_ms or float("inf")
        return [record for record in records if self.since_ms <= int(record.get("wall_ms") or 0) <= last]


ALWAYS: Final = Period()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalSummary(Answer):
    """A reason (code) that prevented moves of bundles or the execution of a plan."""

    code: CodeName
    cycles: Annotated[int, Doc("number of cycles in which it occurred")]
    most: Annotated[int, Doc("highest number of bundles in one cycle; 0: it is about the whole cycle")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpellView(Answer):
    """Consecutive cycles with the same verdict."""

    since_ms: Annotated[int, Doc("time of the first cycle")]
    until_ms: Annotated[int, Doc("time of the last cycle")]
    cycles: Annotated[int, Doc("number of cycles")]
    sentence: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonView(Answer):
    """A request of an operator."""

    wall_ms: WallMs
    by: By
    what: Annotated[str, Doc("request as text")]
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryView(Answer):
    """Summary of a period. Moves and effects are of all sidecars, all other values of this one."""

    since_ms: Annotated[int, Doc("first millisecond of the period")]
    until_ms: Annotated[int, Doc("last millisecond of the period")]
    known_since_ms: Annotated[int | None, Doc("time of the oldest record in the period; null: no records")]
    sentence: Sentence
    cycles: Annotated[int, Doc("number of cycles of this sidecar")]
    followed: Annotated[
        int, Doc("number of these cycles in which another sidecar led; its summary has the reasons")
    ] = 0
    recommended: Annotated[int, Doc("number of cycles with planned moves that were not executed")]
    recommended_moves: Annotated[int, Doc("highest number of moves in one of these cycles")]
    moves: Annotated[dict[str, int], Doc("number of moves by outcome", keys=OUTCOMES)]
    effects: Annotated[dict[str, int], Doc("number of moves by effect: helped, no_benefit, worse", keys=EFFECTS)]
    gain: Annotated[float | None, Doc("average decrease of the more loaded broker's load by these moves, a ratio")]
    obstacles: Annotated[list[RefusalSummary], Doc("why plans were not executed, most frequent first")]
    refusals: Annotated[list[RefusalSummary], Doc("why bundles did not move, most frequent first")]
    overloads: Annotated[list[SpellView], Doc("periods in which a broker was overloaded, longest first")]
    people: Annotated[list[PersonView], Doc("operators' requests to this sidecar, and takeovers, oldest first")]
    refused_requests: Annotated[int, Doc("number of requests that this sidecar refused")]
