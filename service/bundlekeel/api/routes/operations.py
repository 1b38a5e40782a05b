"""`/api/v1`: brokers drained, cordoned and warmed, bundles moved by hand, pins, exclusions, tasks, reviews,
and what the nightly job proposes.

What moves something is a dry run unless the body says `execute`.
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
from bundlekeel.core.splitting.algorithms import SplitAlgorithm, SplitOptions
from bundlekeel.daemon.answers.operations import (
    AdoptionView,
    CordonedView,
    ExcludedView,
    IncludedView,
    OperationsView,
    PausedScopeView,
    PinnedView,
    ResumedScopeView,
    ReversionView,
    ThresholdsView,
    UncordonedView,
    UnpinnedView,
)
from bundlekeel.daemon.answers.plans import (
    ManualMoveView,
    NamespaceUnloadView,
    RelocationView,
    ReviewView,
    Stopping,
    TaskView,
)

HASH_MAX = 0xFFFFFFFF
LAST_BROKER = documented(
    {409: "it is the last broker that is neither cordoned nor drained; uncordon another one first"}
)
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
    """A dry run unless `execute`; what is carried out needs a reason."""

    # Before the reason, whose check looks at it.
    execute: bool = Field(
        default=False, strict=True, description="false: a dry run, nothing is changed", examples=[False]
    )
    reason: schemas.Reason | None = Field(
        default=None,
        validate_default=True,
        description="why; needed with `execute`: it ends in the journal",
        examples=["ticket 4711"],
    )
    by: schemas.By = "unix socket"

    @field_validator("reason")
    @classmethod
    def _reason_to_execute(cls, reason: str | None, given: ValidationInfo) -> str | None:
        if reason is None and given.data.get("execute"):
            raise PydanticCustomError("missing_to_execute", "")
        return reason

    def asked(self) -> dict[str, Any]:
        """As arguments of a service: whether to carry it out, why and who asks."""
        return {"execute": self.execute, "reason": self.reason or "", "by": self.by}


class ManualMoveBody(OperationBody):
    """A move by hand. Completeness, blast-radius stop, the hour's budget, pins, exclusions, policies, open intents and
    closed, overloaded or full brokers bind it; budgets of a cycle, adaptive rate, quarantine, roll-out hold and windows
    do not."""

    override_cool_down: bool = Field(
        default=False,
        strict=True,
        description="move it although it moved lately (cool-down, not visible in the reports yet, straight back)",
    )

    def asked(self) -> dict[str, Any]:
        """With the override."""
        return {**super().asked(), "override_cool_down": self.override_cool_down}


class TransferBody(ManualMoveBody):
    """Where to."""

    to: str = Field(min_length=1, max_length=1024, description="a broker id", examples=["broker-2.pulsar:8080"])


class SplitBody(OperationBody):
    """Where to cut, and whether the children go elsewhere then."""

    algorithm: SplitAlgorithm | None = Field(
        default=None, description="Pulsar's, with the limits of the bundle's broker; absent: where load divides"
    )
    at: Annotated[
        list[Annotated[int, Field(ge=1, lt=HASH_MAX, strict=True)]],
        # One number may stand alone; null: none.
        BeforeValidator(lambda given: [given] if isinstance(given, int) else given or []),
    ] = Field(
        default=[],
        max_length=1024,
        description="hashes inside the bundle, for `specified_positions_divide` or without an algorithm; one with the "
        "extensible load manager",
    )
    unload: bool = Field(
        default=False, strict=True, description="the children leave their broker in the cycles after the split"
    )


class LastingBody(schemas.ReasonBody):
    """For some time, or until a person ends it."""

    seconds: float | None = Field(
        default=None, gt=0, le=365 * 86400, strict=True, description="absent: until a person ends it", examples=[86400]
    )


class AdoptBody(schemas.ReasonBody):
    """Which proposal."""

    digest: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="only if the newest proposal is still this one (`document.digest` of `GET /thresholds`)",
        examples=["94fe0fdfef36d278"],
    )
    force: bool = Field(
        default=False,
        strict=True,
        description="override objections that are a matter of judgement, such as TooOld or StepTooLarge",
    )


class RevertBody(schemas.ReasonBody):
    """Which adoption."""

    digest: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="only if the adopted thresholds are still these (`adopted.digest` of `GET /thresholds`)",
        examples=["5f0c3a1be2d4977a"],
    )


reads = router_for("viewer", responses=PROBLEMS, tags=["operations"])
changes = router_for("operator", changes=True, responses=BODY_PROBLEMS | REFUSALS | NOT_FOUND, tags=["mutations"])


@reads.get("/operations", response_model=OperationsView)
async def list_operations(service: Backend) -> Response:
    """Drains with their progress, cordons, warms, pins, exclusions and pauses; every replica answers alike."""
    return reply(await service.requests.operations())


@reads.get("/tasks/{task}", response_model=TaskView, responses=NOT_FOUND)
async def get_task(service: Backend, task: schemas.TaskId) -> Response:
    """One task, and how far it is: `waiting` until the leader takes it. After 10 minutes it is too old for that."""
    return reply(await service.requests.task(task))


@reads.get("/reviews", response_model=list[ReviewView])
async def list_reviews(service: Backend) -> Response:
    """What is, or was, to be approved, oldest first."""
    return reply(await service.requests.reviews())


@changes.post("/brokers/{broker}/drain", response_model=RelocationView, responses=LAST_BROKER)
async def drain_broker(service: Backend, broker: schemas.BrokerId, body: OperationBody) -> Response:
    """Empty a broker and keep it empty until it is uncordoned."""
    return reply(await service.requests.drain(broker, dry_run=not body.execute, reason=body.reason or "", by=body.by))


@changes.post("/brokers/{broker}/warm", response_model=RelocationView, responses=CLOSED)
async def warm_broker(service: Backend, broker: schemas.BrokerId, body: OperationBody) -> Response:
    """Fill a new or restarted broker, gently, until it carries its share."""
    return reply(await service.requests.warm(broker, dry_run=not body.execute, reason=body.reason or "", by=body.by))


@changes.post("/brokers/{broker}/cordon", response_model=CordonedView, responses=LAST_BROKER)
async def cordon_broker(service: Backend, broker: schemas.BrokerId, body: schemas.ReasonBody) -> Response:
    """Stop moving bundles to a broker. Brokers still place bundles on it."""
    return reply(await service.requests.cordon(broker, reason=body.reason, by=body.by))


@changes.post("/brokers/{broker}/uncordon", response_model=UncordonedView)
async def uncordon_broker(service: Backend, broker: schemas.BrokerId, body: schemas.ReasonBody) -> Response:
    """End cordon, drain and warm of a broker."""
    return reply(await service.requests.uncordon(broker, reason=body.reason, by=body.by))


@changes.post("/bundles/{bundle:path}/transfer", response_model=ManualMoveView, responses=TASKED)
async def transfer_bundle(service: Backend, bundle: schemas.BundleOrTopic, body: TransferBody) -> Response:
    """Move a bundle, or the bundle of a topic, to a broker."""
    made = await service.requests.manual_move("transfer", bundle, to=body.to, **body.asked())
    return tasked(made, made.task)


@changes.post("/bundles/{bundle:path}/unload", response_model=ManualMoveView, responses=TASKED)
async def unload_bundle(service: Backend, bundle: schemas.BundleOrTopic, body: ManualMoveBody) -> Response:
    """Move a bundle, or the bundle of a topic, to the broker with most room."""
    made = await service.requests.manual_move("unload", bundle, **body.asked())
    return tasked(made, made.task)


@changes.post("/namespaces/{namespace:path}/unload", response_model=NamespaceUnloadView, responses=TASKED)
async def unload_namespace(service: Backend, namespace: Namespace, body: ManualMoveBody) -> Response:
    """Move every bundle of a namespace off its broker, cycle by cycle, within the budgets of a cycle."""
    made = await service.requests.unload_namespace(namespace, **body.asked())
    return tasked(made, made.task)


@changes.post("/bundles/{bundle:path}/split", response_model=ManualMoveView, responses=TASKED)
async def split_bundle(service: Backend, bundle: schemas.BundleOrTopic, body: SplitBody) -> Response:
    """Divide a bundle, the bundle of a topic, or the largest by load (TENANT/NAMESPACE/LARGEST), at its owner."""
    options = SplitOptions(algorithm=body.algorithm, at=tuple(body.at), unload=body.unload)
    made = await service.requests.manual_move("split", bundle, options=options, **body.asked())
    return tasked(made, made.task)


@changes.put("/pins/{bundle:path}", response_model=PinnedView)
async def pin_bundle(service: Backend, bundle: schemas.BundleOrTopic, body: LastingBody) -> Response:
    """Keep a bundle, or the bundle of a topic, where it is."""
    return reply(await service.requests.pin(bundle, seconds=body.seconds, reason=body.reason, by=body.by))


@changes.delete("/pins/{bundle:path}", response_model=UnpinnedView)
async def unpin_bundle(service: Backend, bundle: schemas.BundleOrTopic, given: Reasoned) -> Response:
    """End a pin."""
    return reply(await service.requests.unpin(bundle, reason=given.reason, by=given.by))


@changes.put("/exclusions/{pattern:path}", response_model=ExcludedView)
async def set_exclusion(service: Backend, pattern: Pattern, body: LastingBody) -> Response:
    """Leave alone what matches `t:TENANT`, `n:TENANT/NAMESPACE`, `b:BUNDLE` or `r:BROKER` (with `*` and `?`)."""
    return reply(await service.requests.exclude(pattern, seconds=body.seconds, reason=body.reason, by=body.by))


@changes.delete("/exclusions/{pattern:path}", response_model=IncludedView)
async def delete_exclusion(service: Backend, pattern: Pattern, given: Reasoned) -> Response:
    """End an exclusion."""
    return reply(await service.requests.include(pattern, reason=given.reason, by=given.by))


@changes.put("/pauses/{scope:path}", response_model=PausedScopeView)
async def pause_scope(service: Backend, scope: Scope, body: LastingBody) -> Response:
    """Move nothing of `tenant:NAME`, `namespace:TENANT/NAME`, or to and from `broker:ID`."""
    return reply(await service.requests.pause_scope(scope, seconds=body.seconds, reason=body.reason, by=body.by))


@changes.delete("/pauses/{scope:path}", response_model=ResumedScopeView)
async def resume_scope(service: Backend, scope: Scope, given: Reasoned) -> Response:
    """End the pause of one scope."""
    return reply(await service.requests.resume_scope(scope, reason=given.reason, by=given.by))


@changes.post("/tasks/{task}/stop", response_model=Stopping, status_code=202, responses=ACCEPTED)
async def stop_task(service: Backend, task: schemas.TaskId, body: schemas.ReasonBody) -> Response:
    """Begin no further move of a task; those under way end."""
    return tasked(await service.requests.stop(task, reason=body.reason, by=body.by), task, status=202)


@changes.post("/reviews/{id}/approve", response_model=ReviewView, responses=TASKED)
async def approve_review(service: Backend, id: ReviewId, body: schemas.ReasonBody) -> Response:
    """Approve what another person proposed: it is carried out."""
    approved = await service.requests.approve(id, reason=body.reason, by=body.by)
    return tasked(approved, approved.task)


@changes.post("/reviews/{id}/discard", response_model=ReviewView)
async def discard_review(service: Backend, id: ReviewId, body: schemas.ReasonBody) -> Response:
    """Discard what somebody proposed: it is not carried out."""
    return reply(await service.requests.discard(id, reason=body.reason, by=body.by))


@reads.get("/thresholds", response_model=ThresholdsView)
async def get_thresholds(service: Backend) -> Response:
    """The newest proposal, its difference to what is in force, what speaks against it, and what is adopted."""
    return reply(await service.thresholds.view())


@changes.post("/thresholds/adopt", response_model=AdoptionView)
async def adopt_thresholds(service: Backend, body: AdoptBody) -> Response:
    """Let the newest proposal come into force."""
    made = await service.thresholds.adopt(digest=body.digest, force=body.force, reason=body.reason, by=body.by)
    return reply(made)


@changes.post("/thresholds/revert", response_model=ReversionView)
async def revert_thresholds(service: Backend, body: RevertBody) -> Response:
    """Take the last adoption back; it is not adopted again by itself."""
    return reply(await service.thresholds.revert(digest=body.digest, reason=body.reason, by=body.by))
