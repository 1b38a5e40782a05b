"""`/api/v1/channel`: the ownership channel of the extensible load manager (PIP-192), read only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import Field

from bundlekeel.api.admission import router_for
from bundlekeel.api.problems import MEDIA_TYPE
from bundlekeel.api.reply import Backend, reply
from bundlekeel.api.routes import PROBLEMS, Limit
from bundlekeel.api.schemas import Answer, Problem
from bundlekeel.core.channel.states import UnitState

NO_CHANNEL: dict[int | str, dict[str, Any]] = {
    409: {
        "description": "the brokers run a load manager without ownership channel",
        "model": Problem,
        "content": {MEDIA_TYPE: {}},
    }
}


router = router_for("viewer", responses={**PROBLEMS, **NO_CHANNEL}, tags=["channel"])


class UnitView(Answer):
    """One entry of the ownership channel. `owner` serves the bundle now; `since_ms` by its writer's clock."""

    bundle: str
    state: UnitState
    owner: str | None
    destination: str = ""
    source: str = ""
    children: dict[str, str] = Field(default_factory=dict, description="ranges of a split, with their brokers")
    force: bool = False
    version: int
    since_ms: int
    age_seconds: float


class FindingView(Answer):
    """Something wrong in the ownership channel. `deadline_ms`: when brokers should have mended it; 0: they never do."""

    code: str
    bundle: str
    brokers: list[str]
    state: str | None
    since_ms: int
    deadline_ms: int
    detail: str
    remedy: str


class ChannelSummary(Answer):
    """The ownership channel. `up`: it is followed; `obstacle`: why what it says may not be acted on."""

    variant: Literal["system_topic", "metadata_store"] | None
    up: bool
    detail: str
    obstacle: str
    wall_ms: int | None
    bundles: int
    states: dict[str, int]
    in_flight_oldest_seconds: float
    findings: dict[str, int]
    rejected: int
    deadlines: dict[str, int]


@router.get("/channel", response_model=ChannelSummary)
async def channel(service: Backend) -> Response:
    """The ownership channel of the extensible load manager: variant, health, bundles by state, findings by code."""
    return reply(service.channel())


@router.get("/channel/bundles", response_model=list[UnitView])
async def channel_bundles(
    service: Backend,
    state: UnitState | None = None,
    broker: Annotated[str | None, Query(max_length=1024)] = None,
    namespace: Annotated[str | None, Query(max_length=1024)] = None,
    after: Annotated[str, Query(max_length=4096, description="the last bundle of the page before")] = "",
    limit: Limit = 1000,
) -> Response:
    """Entries of the ownership channel by bundle name; a full page may be followed by another."""
    found = service.channel_bundles(state=state, broker=broker, namespace=namespace, after=after, limit=limit)
    return reply(found)


@router.get("/channel/findings", response_model=list[FindingView])
async def channel_findings(service: Backend, limit: Limit = 1000) -> Response:
    """What is wrong in the ownership channel, since when, by when brokers should have mended it, and what would."""
    return reply(service.channel_findings()[:limit])
