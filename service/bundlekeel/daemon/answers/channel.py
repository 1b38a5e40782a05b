"""Answers about the ownership channel of the extensible load manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from bundlekeel.core.channel.findings import Deadlines, FindingCode
from bundlekeel.core.channel.states import UnitState
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.daemon.answers.doc import Bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitView(Answer):
    """One entry of the ownership channel."""

    bundle: Bundle
    state: Annotated[UnitState, Doc("its state in the channel")]
    owner: Annotated[str | None, Doc("the broker that serves the bundle now; null: none")]
    destination: Annotated[str, Doc("the broker it is assigned to")]
    source: Annotated[str, Doc("the broker it leaves")]
    children: Annotated[dict[str, str], Doc("ranges of a split, with their brokers")]
    force: Annotated[bool, Doc("whether the entry overrides the order of versions")]
    version: Annotated[int, Doc("the version of the entry, which grows with each change")]
    since_ms: Annotated[int, Doc("when the entry was written, by its writer's clock")]
    age_seconds: Annotated[float, Doc("since it was seen here first")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSummary(Answer):
    """The ownership channel."""

    variant: Annotated[Literal["system_topic", "metadata_store"] | None, Doc("where it is kept; null: not known")]
    up: Annotated[bool, Doc("whether it is followed")]
    detail: Annotated[str, Doc("why it is not followed")]
    obstacle: Annotated[str, Doc("why nothing may be done on its basis, as a sentence; empty: nothing is in the way")]
    wall_ms: Annotated[int | None, Doc("of the newest view")]
    bundles: Annotated[int, Doc("how many have an entry")]
    states: Annotated[dict[str, int], Doc("bundles by state", keys=UnitState)]
    in_flight_oldest_seconds: Annotated[float, Doc("age of the oldest assignment, release or split under way")]
    findings: Annotated[dict[str, int], Doc("what is wrong, by code", keys=FindingCode)]
    rejected: Annotated[int, Doc("entries that could not be read")]
    deadlines: Annotated[Deadlines, Doc("how long brokers take at most")]
