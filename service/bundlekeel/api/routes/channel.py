"""Routes of the extensible load manager's ownership channel (PIP-192)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.problems import documented
from bundlekeel.api.reply import PAGED, Backend, computed, page, reply
from bundlekeel.api.routes.reads import MOST_ROWS, PROBLEMS, After, Limit, after_last
from bundlekeel.model.channel_states import UnitState
from bundlekeel.pulsar.channel.findings import ChannelFinding
from bundlekeel.pulsar.channel.responses import ChannelSummary, UnitView

NO_CHANNEL = documented({409: "the brokers' load manager has no ownership channel"})
AfterFinding = Annotated[
    str,
    Query(
        max_length=8192,
        description="the last finding of the previous page: code, bundle and brokers, separated by a space",
    ),
]

router = router_for("viewer", responses={**PROBLEMS, **NO_CHANNEL}, tags=["channel"])


@router.get("/channel", response_model=ChannelSummary)
async def get_channel(service: Backend) -> Response:
    """Return the state of the ownership channel: variant, health, bundles by state, problems (findings) by code."""
    return await computed(lambda: reply(service.channel()))


@router.get("/channel/bundles", response_model=list[UnitView], responses=PAGED)
async def list_channel_bundles(
    service: Backend,
    request: Request,
    state: Annotated[UnitState | None, Query(description="list only bundles in this state")] = None,
    broker: schemas.OfBroker = None,
    namespace: schemas.OfNamespace = None,
    after: After = "",
    limit: Limit = MOST_ROWS,
) -> Response:
    """List the bundles' entries in the ownership channel, sorted by bundle name."""

    def answer() -> Response:
        rows = service.channel_bundles(state=state, broker=broker, namespace=namespace, after=after, limit=limit)
        return page(request, rows, limit, after_last)

    return await computed(answer)


@router.get("/channel/findings", response_model=list[ChannelFinding], responses=PAGED)
async def list_channel_findings(
    service: Backend, request: Request, after: AfterFinding = "", limit: Limit = MOST_ROWS
) -> Response:
    """List problems of the ownership channel: their start, the brokers' deadline to repair them, and the fix."""

    def place(row: ChannelFinding) -> str:
        return " ".join((row.code, row.bundle, *row.brokers))

    def answer() -> Response:
        rows = [row for row in sorted(service.channel_findings(), key=place) if place(row) > after][:limit]
        return page(request, rows, limit, lambda rows: {"after": place(rows[-1])})

    return await computed(answer)
