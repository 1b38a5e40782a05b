"""`/api/v1/thresholds`: what the nightly job proposes, what is in force of it, and the way back."""

from __future__ import annotations

from fastapi import Response
from pydantic import Field

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.reply import Backend, reply
from bundlekeel.api.routes.mutations import REFUSALS
from bundlekeel.api.routes.reads import NOT_FOUND, PROBLEMS
from bundlekeel.daemon.answers.operations import AdoptionView, ReversionView, ThresholdsView


class AdoptBody(schemas.ReasonBody):
    """Which proposal."""

    digest: str | None = Field(
        default=None, min_length=1, max_length=64, description="only if the newest proposal is still this one"
    )
    force: bool = Field(
        default=False, strict=True, description="override objections that are a matter of judgement, such as NotBetter"
    )


reads = router_for("viewer", responses=PROBLEMS, tags=["operations"])
changes = router_for("operator", changes=True, responses=PROBLEMS | REFUSALS | NOT_FOUND, tags=["mutations"])


@reads.get("/thresholds", response_model=ThresholdsView)
async def thresholds(service: Backend) -> Response:
    """The newest proposal, its difference to what is in force, what speaks against it, and what is adopted."""
    return reply(service.thresholds.view())


@changes.post("/thresholds/adopt", response_model=AdoptionView)
async def adopt_thresholds(service: Backend, body: AdoptBody) -> Response:
    """Let the newest proposal come into force."""
    made = await service.thresholds.adopt(digest=body.digest, force=body.force, reason=body.reason, by=body.by)
    return reply(made)


@changes.post("/thresholds/revert", response_model=ReversionView)
async def revert_thresholds(service: Backend, body: schemas.ReasonBody) -> Response:
    """Take the last adoption back; it is not adopted again by itself."""
    return reply(await service.thresholds.revert(reason=body.reason, by=body.by))
