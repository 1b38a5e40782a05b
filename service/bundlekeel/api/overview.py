"""`/api/v1/drawing`: the cluster in few rows, for drawing it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from bundlekeel.api.admission import router_for
from bundlekeel.api.reply import Backend, reply
from bundlekeel.api.routes import PROBLEMS
from bundlekeel.api.schemas import Answer

router = router_for("viewer", responses=PROBLEMS, tags=["picture"])


class OverviewNamespace(Answer):
    """A namespace and its throughput in bytes/s, both ways."""

    namespace: str
    throughput: float


class OverviewBundle(Answer):
    """A bundle by short-term throughput; `namespace`: its place in the list of namespaces."""

    bundle: str
    namespace: int
    throughput: float


class OverviewBroker(Answer):
    """A broker's largest bundles, largest first, and the sum of all others."""

    broker: str
    bundles: list[OverviewBundle]
    other_bundles: int
    other_throughput: float


class OverviewView(Answer):
    """The cluster in few rows; namespaces by throughput, largest first. `wall_ms` null: no picture yet."""

    wall_ms: int | None
    namespaces: list[OverviewNamespace]
    brokers: list[OverviewBroker]


@router.get("/drawing", response_model=OverviewView)
async def overview(service: Backend, largest: Annotated[int, Query(ge=1, le=1000)] = 20) -> Response:
    """The cluster in few rows: of each broker its largest bundles, and what all others of it add up to."""
    return reply(service.overview(largest))
