"""`/api/v1/drawing`: the cluster in few rows, for drawing it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from bundlekeel.api.admission import router_for
from bundlekeel.api.reply import Backend, reply
from bundlekeel.api.routes.reads import PROBLEMS
from bundlekeel.daemon.answers.picture import OverviewView

router = router_for("viewer", responses=PROBLEMS, tags=["picture"])


@router.get("/drawing", response_model=OverviewView)
async def overview(
    service: Backend, largest: Annotated[int, Query(ge=1, le=1000, description="bundles of each broker")] = 20
) -> Response:
    """The cluster in few rows: of each broker its largest bundles, and what all others of it add up to."""
    return reply(service.overview(largest))
