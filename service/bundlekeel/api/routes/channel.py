"""`/api/v1/channel`: the ownership channel of the extensible load manager (PIP-192), read only."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.problems import documented
from bundlekeel.api.reply import Backend, reply
from bundlekeel.api.routes.reads import PROBLEMS, Limit
from bundlekeel.core.channel.states import UnitState
from bundlekeel.daemon.answers.channel import ChannelSummary, FindingView, UnitView

NO_CHANNEL = documented({409: "the brokers run a load manager without ownership channel"})

router = router_for("viewer", responses={**PROBLEMS, **NO_CHANNEL}, tags=["channel"])


@router.get("/channel", response_model=ChannelSummary)
async def channel(service: Backend) -> Response:
    """The ownership channel of the extensible load manager: variant, health, bundles by state, findings by code."""
    return reply(service.channel())


@router.get("/channel/bundles", response_model=list[UnitView])
async def channel_bundles(
    service: Backend,
    state: Annotated[UnitState | None, Query(description="only those in this state")] = None,
    broker: schemas.OfBroker = None,
    namespace: schemas.OfNamespace = None,
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
