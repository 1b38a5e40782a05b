"""Routes of `/api/v1/thresholds`: show, adopt and revert calibrated thresholds."""

from __future__ import annotations

from fastapi import Response
from pydantic import Field

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.app import FeatureRoutes
from bundlekeel.api.reply import Backend, reply
from bundlekeel.api.routes.mutations import REFUSALS
from bundlekeel.api.routes.reads import BODY_PROBLEMS, NOT_FOUND, PROBLEMS
from bundlekeel.recalibration.adopting.responses import AdoptionView, ReversionView, ThresholdsView


class AdoptBody(schemas.ReasonBody):
    """Request to adopt the newest proposed thresholds."""

    digest: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="adopt only if the newest proposal still has this digest (`document.digest` of `GET /thresholds`)",
        examples=["94fe0fdfef36d278"],
    )
    force: bool = Field(
        default=False,
        strict=True,
        description="override objections that an operator may judge, such as TooOld or StepTooLarge",
    )
    everywhere: bool = Field(
        default=False,
        strict=True,
        description="adopt in all namespaces, without `calibration.trial_namespaces` first; ends a first stage",
    )


class RevertBody(schemas.ReasonBody):
    """Request to revert the adopted thresholds."""

    digest: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="revert only if the adopted thresholds have this digest (`adopted.digest` of `GET /thresholds`)",
        examples=["5f0c3a1be2d4977a"],
    )


reads = router_for("viewer", responses=PROBLEMS, tags=["operations"])
changes = router_for("operator", changes=True, responses=BODY_PROBLEMS | REFUSALS | NOT_FOUND, tags=["mutations"])


@reads.get("/thresholds", response_model=ThresholdsView)
async def get_thresholds(service: Backend) -> Response:
    """Return the newest proposal, its changes to the values in effect, its objections, and the adopted thresholds."""
    return reply(await service.features["recalibration"].view())


@changes.post("/thresholds/adopt", response_model=AdoptionView)
async def adopt_thresholds(service: Backend, body: AdoptBody) -> Response:
    """Adopt the newest proposal."""
    result = await service.features["recalibration"].adopt(
        digest=body.digest, force=body.force, reason=body.reason, by=body.by, everywhere=body.everywhere
    )
    return reply(result)


@changes.post("/thresholds/revert", response_model=ReversionView)
async def revert_thresholds(service: Backend, body: RevertBody) -> Response:
    """Revert the last adoption. Its thresholds are not adopted again automatically."""
    return reply(await service.features["recalibration"].revert(digest=body.digest, reason=body.reason, by=body.by))


ROUTES = FeatureRoutes(reads=reads, changes=changes)
