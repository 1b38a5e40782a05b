"""Routes of `/api/v1` for drains, cordons, warm-ups, manual moves, pins, exclusions, tasks and reviews.

Requests that move bundles are dry runs unless the body contains `execute: true`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Response
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.problems import documented
from bundlekeel.api.reply import ACCEPTED, TASKED, Backend, reply, tasked
from bundlekeel.api.routes.mutations import REFUSALS, Reasoned
from bundlekeel.api.routes.reads import BODY_PROBLEMS, NOT_FOUND, PROBLEMS
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.planning.splitting.algorithms import SplitAlgorithm, SplitOptions
from bundlekeel.requests.cordon import CordonedView, UncordonedView
from bundlekeel.requests.exclude import ExcludedView, IncludedView
from bundlekeel.requests.manual_moves import ManualMoveView
from bundlekeel.requests.operator_requests import OperationsView
from bundlekeel.requests.pause import PausedScopeView, ResumedScopeView
from bundlekeel.requests.pin import PinnedView, UnpinnedView
from bundlekeel.requests.relocation import RelocationView
from bundlekeel.requests.restart import RestartPlan
from bundlekeel.requests.review import ReviewView
from bundlekeel.requests.tasks import Stopping
from bundlekeel.requests.unload import NamespaceUnloadView

HASH_MAX = 0xFFFFFFFF
LAST_BROKER = documented({409: "all other brokers are cordoned or drained; uncordon one of them first"})
CLOSED = documented({409: "the broker is cordoned or drained; uncordon it first"})
Namespace = Annotated[schemas.InPath, Path(description="tenant/namespace", examples=["shop/orders"])]
Pattern = Annotated[
    schemas.InPath,
    Path(description="`t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER`", examples=["n:shop/orders"]),
]
Scope = Annotated[
    schemas.InPath,
    Path(description="`tenant:NAME`, `namespace:TENANT/NAME` or `broker:ID`", examples=["tenant:shop"]),
]
ReviewId = Annotated[
    schemas.InPath, Path(description="the id of a proposal in `/reviews`", examples=["5f0c3a1be2d4977a"])
]


class OperationBody(schemas.Body):
    """A request that is a dry run unless `execute` is true; an execution needs a reason."""

    # Defined before `reason`, whose validator reads it.
    execute: bool = Field(
        default=False, strict=True, description="false: a dry run, nothing is changed", examples=[False]
    )
    reason: schemas.Reason | None = Field(
        default=None,
        validate_default=True,
        description="reason, for the journal; required with `execute`",
        examples=["ticket 4711"],
    )
    by: schemas.By = "unix socket"

    @field_validator("reason")
    @classmethod
    def _reason_to_execute(cls, reason: str | None, info: ValidationInfo) -> str | None:
        if reason is None and info.data.get("execute"):
            raise PydanticCustomError("missing_to_execute", "")
        return reason

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for the service: execute, reason, by."""
        return {"execute": self.execute, "reason": self.reason or "", "by": self.by}


class ManualMoveBody(OperationBody):
    """A manual move.

    Reasons to refuse it: incomplete data, many brokers that start or stop at once, the budget per hour, pins,
    exclusions, policies, unfinished moves, and cordoned, drained, overloaded or full brokers. It ignores limits of
    automatic moves: budgets per cycle, the adaptive rate, quarantines after moves without benefit, the hold during
    restarts of brokers, and maintenance windows."""

    override_cool_down: bool = Field(
        default=False,
        strict=True,
        description="move the bundle even if it moved recently (cool-down, a move that load reports do not show yet, "
        "or a return to its previous broker)",
    )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for the service, with the override."""
        return {**super().arguments(), "override_cool_down": self.override_cool_down}


class TransferBody(ManualMoveBody):
    """A manual move to a broker."""

    to: str = Field(
        min_length=1, max_length=1024, description="id of the target broker", examples=["broker-2.pulsar:8080"]
    )


class SplitBody(OperationBody):
    """A split: its positions, and whether the new bundles are unloaded afterwards."""

    algorithm: SplitAlgorithm | None = Field(
        default=None,
        description="Pulsar's split algorithm, with the limits of the bundle's broker; absent: divide the load evenly",
    )
    at: Annotated[
        list[Annotated[int, Field(ge=1, lt=HASH_MAX, strict=True)]],
        # Accept a single number, and null for none.
        BeforeValidator(lambda reasoned: [reasoned] if isinstance(reasoned, int) else reasoned or []),
    ] = Field(
        default=[],
        max_length=1024,
        description="hashes inside the bundle at which to split, for `specified_positions_divide` or without an "
        "algorithm; at most one with the extensible load manager",
    )
    unload: bool = Field(default=False, strict=True, description="unload the new bundles in the cycles after the split")


class LastingBody(schemas.ReasonBody):
    """A request for a limited time, or until an operator ends it."""

    seconds: float | None = Field(
        default=None,
        gt=0,
        le=365 * 86400,
        strict=True,
        description="duration; absent: until an operator ends it",
        examples=[86400],
    )


reads = router_for("viewer", responses=PROBLEMS, tags=["operations"])
changes = router_for("operator", changes=True, responses=BODY_PROBLEMS | REFUSALS | NOT_FOUND, tags=["mutations"])


@reads.get("/operations", response_model=OperationsView)
async def list_operations(service: Backend) -> Response:
    """List drains with their progress, cordons, warm-ups, pins, exclusions and pauses; the same on every replica."""
    return reply(await service.requests.operations())


@reads.get("/restart-plan", response_model=RestartPlan)
async def get_restart_plan(service: Backend) -> Response:
    """Return order, free capacity and progress of a rolling restart of all brokers."""
    return reply(await service.requests.restart_plan())


@reads.get("/tasks/{task}", response_model=TaskView, responses=NOT_FOUND)
async def get_task(service: Backend, task: schemas.TaskId) -> Response:
    """Return a task and its progress. It is `waiting` until the leader starts it, and expires after 10 minutes."""
    return reply(await service.requests.task(task))


@reads.get("/reviews", response_model=list[ReviewView])
async def list_reviews(service: Backend) -> Response:
    """List proposed changes: open, approved and discarded ones, oldest first."""
    return reply(await service.requests.reviews())


@changes.post("/brokers/{broker}/drain", response_model=RelocationView, responses=LAST_BROKER)
async def drain_broker(service: Backend, broker: schemas.BrokerId, body: OperationBody) -> Response:
    """Empty a broker and keep it empty until it is uncordoned."""
    return reply(await service.requests.drain(broker, dry_run=not body.execute, reason=body.reason or "", by=body.by))


@changes.post("/brokers/{broker}/warm", response_model=RelocationView, responses=CLOSED)
async def warm_broker(service: Backend, broker: schemas.BrokerId, body: OperationBody) -> Response:
    """Fill a new or restarted broker gradually, until it has its share of the load."""
    return reply(await service.requests.warm(broker, dry_run=not body.execute, reason=body.reason or "", by=body.by))


@changes.post("/brokers/{broker}/cordon", response_model=CordonedView, responses=LAST_BROKER)
async def cordon_broker(service: Backend, broker: schemas.BrokerId, body: schemas.ReasonBody) -> Response:
    """Stop moving bundles to a broker. Brokers still place bundles on it."""
    return reply(await service.requests.cordon(broker, reason=body.reason, by=body.by))


@changes.post("/brokers/{broker}/uncordon", response_model=UncordonedView)
async def uncordon_broker(service: Backend, broker: schemas.BrokerId, body: schemas.ReasonBody) -> Response:
    """End cordon, drain and warm-up of a broker."""
    return reply(await service.requests.uncordon(broker, reason=body.reason, by=body.by))


@changes.post("/bundles/{bundle:path}/transfer", response_model=ManualMoveView, responses=TASKED)
async def transfer_bundle(service: Backend, bundle: schemas.BundleOrTopic, body: TransferBody) -> Response:
    """Move a bundle, or the bundle of a topic, to a broker."""
    result = await service.requests.transfer(bundle, to=body.to, **body.arguments())
    return tasked(result, result.task)


@changes.post("/bundles/{bundle:path}/unload", response_model=ManualMoveView, responses=TASKED)
async def unload_bundle(service: Backend, bundle: schemas.BundleOrTopic, body: ManualMoveBody) -> Response:
    """Move a bundle, or the bundle of a topic, to the broker with the most free capacity."""
    result = await service.requests.unload(bundle, **body.arguments())
    return tasked(result, result.task)


@changes.post("/namespaces/{namespace:path}/unload", response_model=NamespaceUnloadView, responses=TASKED)
async def unload_namespace(service: Backend, namespace: Namespace, body: ManualMoveBody) -> Response:
    """Move every bundle of a namespace to another broker, over several cycles, within the budgets of each cycle."""
    result = await service.requests.unload_namespace(namespace, **body.arguments())
    return tasked(result, result.task)


@changes.post("/bundles/{bundle:path}/split", response_model=ManualMoveView, responses=TASKED)
async def split_bundle(service: Backend, bundle: schemas.BundleOrTopic, body: SplitBody) -> Response:
    """Split a bundle, the bundle of a topic, or the most loaded bundle of a namespace (TENANT/NAMESPACE/LARGEST)."""
    options = SplitOptions(algorithm=body.algorithm, at=tuple(body.at), unload=body.unload)
    result = await service.requests.split(bundle, options=options, **body.arguments())
    return tasked(result, result.task)


@changes.put("/pins/{bundle:path}", response_model=PinnedView)
async def pin_bundle(service: Backend, bundle: schemas.BundleOrTopic, body: LastingBody) -> Response:
    """Pin a bundle, or the bundle of a topic, to its broker."""
    return reply(await service.requests.pin(bundle, seconds=body.seconds, reason=body.reason, by=body.by))


@changes.delete("/pins/{bundle:path}", response_model=UnpinnedView)
async def unpin_bundle(service: Backend, bundle: schemas.BundleOrTopic, reasoned: Reasoned) -> Response:
    """End the pin of a bundle."""
    return reply(await service.requests.unpin(bundle, reason=reasoned.reason, by=reasoned.by))


@changes.put("/exclusions/{pattern:path}", response_model=ExcludedView)
async def set_exclusion(service: Backend, pattern: Pattern, body: LastingBody) -> Response:
    """Exclude matches of `t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER` (with `*` and `?`) from moves."""
    return reply(await service.requests.exclude(pattern, seconds=body.seconds, reason=body.reason, by=body.by))


@changes.delete("/exclusions/{pattern:path}", response_model=IncludedView)
async def delete_exclusion(service: Backend, pattern: Pattern, reasoned: Reasoned) -> Response:
    """End an exclusion from moves."""
    return reply(await service.requests.include(pattern, reason=reasoned.reason, by=reasoned.by))


@changes.put("/pauses/{scope:path}", response_model=PausedScopeView)
async def pause_scope(service: Backend, scope: Scope, body: LastingBody) -> Response:
    """Pause moves of `tenant:NAME` or `namespace:TENANT/NAME`, or to and from `broker:ID`."""
    return reply(await service.requests.pause_scope(scope, seconds=body.seconds, reason=body.reason, by=body.by))


@changes.delete("/pauses/{scope:path}", response_model=ResumedScopeView)
async def resume_scope(service: Backend, scope: Scope, reasoned: Reasoned) -> Response:
    """End the pause of one scope."""
    return reply(await service.requests.resume_scope(scope, reason=reasoned.reason, by=reasoned.by))


@changes.post("/tasks/{task}/stop", response_model=Stopping, status_code=202, responses=ACCEPTED)
async def stop_task(service: Backend, task: schemas.TaskId, body: schemas.ReasonBody) -> Response:
    """Stop a task: it starts no further move. Its moves in progress are completed."""
    return tasked(await service.requests.stop(task, reason=body.reason, by=body.by), task, status=202)


@changes.post("/reviews/{id}/approve", response_model=ReviewView, responses=TASKED)
async def approve_review(service: Backend, id: ReviewId, body: schemas.ReasonBody) -> Response:
    """Approve and execute a change that another operator proposed."""
    approved = await service.requests.approve(id, reason=body.reason, by=body.by)
    return tasked(approved, approved.task)


@changes.post("/reviews/{id}/discard", response_model=ReviewView)
async def discard_review(service: Backend, id: ReviewId, body: schemas.ReasonBody) -> Response:
    """Discard a proposed change: it is not executed."""
    return reply(await service.requests.discard(id, reason=body.reason, by=body.by))
