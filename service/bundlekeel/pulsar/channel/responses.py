"""Responses about the ownership channel of the extensible load manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.response_fields import Bundle
from bundlekeel.pulsar.channel.findings import Deadlines, FindingCode


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitView(Answer):
    """One entry of the ownership channel."""

    bundle: Bundle
    state: Annotated[UnitState, Doc("state of the bundle in the channel")]
    owner: Annotated[str | None, Doc("broker that serves the bundle now; null: none")]
    destination: Annotated[str, Doc("broker that the bundle is assigned to")]
    source: Annotated[str, Doc("broker that the bundle leaves")]
    children: Annotated[dict[str, str], Doc("hash ranges into which the bundle is split, with their brokers")]
    force: Annotated[bool, Doc("whether the entry replaced the previous one regardless of its version")]
    version: Annotated[int, Doc("version of the entry; grows with each change")]
    since_ms: Annotated[int, Doc("time at which a broker wrote the entry, by its own clock")]
    age_seconds: Annotated[float, Doc("seconds since this sidecar first read the entry")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSummary(Answer):
    """Summary of the ownership channel."""

    variant: Annotated[
        Literal["system_topic", "metadata_store"] | None, Doc("where the brokers store the channel; null: unknown")
    ]
    up: Annotated[bool, Doc("whether this sidecar follows the channel")]
    detail: Annotated[str, Doc("why the channel is not followed; empty: it is")]
    obstacle: Annotated[str, Doc("why Bundlekeel must not act on the channel, as a sentence; empty: it may")]
    wall_ms: Annotated[int | None, Doc("time of the newest view of the channel; null: none yet")]
    bundles: Annotated[int, Doc("number of bundles with an entry")]
    states: Annotated[dict[str, int], Doc("number of bundles by state", keys=UnitState)]
    in_flight_oldest_seconds: Annotated[float, Doc("age of the oldest assignment, release or split in progress")]
    findings: Annotated[dict[str, int], Doc("number of findings by code", keys=FindingCode)]
    rejected: Annotated[int, Doc("recent messages that lost against a bundle's current entry, at most 100")]
    deadlines: Annotated[Deadlines, Doc("times after which brokers repair the channel")]
