"""Mutating routes of `/api/v1`. Registered only where callers are authenticated or local (see `create_app`)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.auth import PRINCIPAL
from bundlekeel.api.problems import documented
from bundlekeel.api.reply import ACCEPTED, Backend, reply, tasked
from bundlekeel.api.routes.reads import BODY_PROBLEMS, NOT_FOUND
from bundlekeel.leader.gate.responses import PauseView
from bundlekeel.requests.plans import Submitted
from bundlekeel.views.picture import ModeView, Resumed

REFUSALS = documented(
    {
        403: "not allowed in this mode or above the ceiling of the settings file (see `code`), the role is too low, "
        "or a page of another server sent the request",
        404: "the route exists only on the unix socket, because `api.auth` is not configured",
        409: "not possible in the present state; `code` and `difference` contain the reasons",
    }
)

PLAN_CHANGED = documented({409: "the inputs changed since the plan was computed; `difference` contains the changes"})


def _of_one_type(schema: dict[str, Any]) -> None:
    """Replace the schema "type or null" of an optional body by the type: generated clients cannot handle the union."""
    (schema["$ref"],) = (form["$ref"] for form in schema.pop("anyOf") if "$ref" in form)
    schema.pop("title", None)


async def reason_of(
    request: Request,
    body: Annotated[schemas.ReasonBody | None, Body(json_schema_extra=_of_one_type)] = None,
    reason: Annotated[schemas.Reason | None, Query(description="reason, used if the request has no body")] = None,
) -> schemas.ReasonBody:
    """Return the reason of a `DELETE` from its body, or else from its query: some clients and proxies drop the body."""
    if body is None and reason is None:
        fault = {"type": "missing", "loc": ("query", "reason"), "msg": "", "input": None}
        raise RequestValidationError([fault])
    asks = request.scope.get(PRINCIPAL)
    return body or schemas.ReasonBody(reason=str(reason), **({} if asks is None else {"by": asks.name}))


Reasoned = Annotated[schemas.ReasonBody, Depends(reason_of)]

router = router_for("operator", changes=True, responses=BODY_PROBLEMS | REFUSALS, tags=["mutations"])
admin = router_for("admin", changes=True, responses=BODY_PROBLEMS | REFUSALS, tags=["mutations"])


@router.post(
    "/plans/{hash}/execute", response_model=Submitted, status_code=202, responses=NOT_FOUND | PLAN_CHANGED | ACCEPTED
)
async def execute_plan(service: Backend, hash: schemas.PlanHash, body: schemas.ReasonBody) -> Response:
    """Execute exactly this plan on the leader. 409 if a new computation gives another plan."""
    left = await service.execute(hash, reason=body.reason, by=body.by)
    return tasked(left, left.task, status=202)


@router.post("/pause", response_model=PauseView)
async def pause_cluster(service: Backend, body: schemas.PauseBody) -> Response:
    """Immediately stop all sidecars from changing the cluster."""
    return reply(await service.pause(reason=body.reason, by=body.by, seconds=body.seconds))


@router.post("/resume", response_model=Resumed)
async def resume_cluster(service: Backend, body: schemas.ReasonBody) -> Response:
    """End the pause of all sidecars."""
    return reply(await service.resume(reason=body.reason, by=body.by))


@admin.put("/mode", response_model=ModeView)
async def set_mode(service: Backend, body: schemas.ModeBody) -> Response:
    """Lower the mode, or raise it up to the mode in the settings file."""
    return reply(await service.set_mode(body.mode, reason=body.reason, by=body.by))
