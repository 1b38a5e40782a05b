"""`/api/v1/quotas`: quota groups, how they fare, and changing them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response
from pydantic import Field

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.mutations import REFUSALS
from bundlekeel.api.reply import Backend, reply
from bundlekeel.api.routes import NOT_FOUND, PROBLEMS
from bundlekeel.core.quotas.groups import QuotaGroup, QuotaLimits

Named = Annotated[str, Path(min_length=1, max_length=128)]
Topic = Annotated[str, Path(min_length=1, max_length=4096)]
Limit = Annotated[float | None, Field(strict=True, description="a second, over all brokers; absent: no limit")]


class GroupBody(schemas.ReasonBody):
    """A group as it shall be."""

    members: list[Annotated[str, Field(max_length=1024)]] = Field(
        max_length=1000, description="`t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed"
    )
    publish_messages: Limit = None
    publish_bytes: Limit = None
    dispatch_messages: Limit = None
    dispatch_bytes: Limit = None

    def group(self, name: str) -> QuotaGroup:
        """In the words of the core."""
        limits = QuotaLimits(
            publish_messages=self.publish_messages,
            publish_bytes=self.publish_bytes,
            dispatch_messages=self.dispatch_messages,
            dispatch_bytes=self.dispatch_bytes,
        )
        return QuotaGroup(name=name, limits=limits, members=tuple(self.members))


class RatesView(schemas.Answer):
    """Rates a second; null: no limit, or nothing to tell."""

    publish_messages: float | None
    publish_bytes: float | None
    dispatch_messages: float | None
    dispatch_bytes: float | None


class DefectView(schemas.Answer):
    """What Pulsar does to a group that its limits do not ask for."""

    code: str
    detail: str
    explanation: str


class ReportedUsageView(schemas.Answer):
    """What a broker last published about a group. Pulsar's figures are of one period; these are a second."""

    broker: str = Field(description="its service URL if no broker of that address was seen")
    registered: bool = Field(description="false: it is gone, and what it said last may still count")
    told: RatesView
    measured: RatesView | None = Field(description="what its topics of the group pass; null: none was seen there")
    publish_age_seconds: float | None = Field(description="since it told what is published; null: not heard yet")
    dispatch_age_seconds: float | None = Field(description="since it told what is delivered; null: not heard yet")


class GroupView(schemas.Answer):
    """A group. What the leader has not seen yet is null."""

    name: str
    origin: str = Field(description="settings or api")
    by: str
    reason: str
    since_ms: int
    members: list[str]
    namespaces: int | None
    topics: int | None
    held_back: int | None = Field(description="topics that are at their limit")
    held_back_seconds: float | None = Field(description="topics times seconds at their limit, since the group is seen")
    limits: RatesView
    usage: RatesView | None
    brokers: dict[str, RatesView] | None = Field(
        description="usage by broker that serves it; where there are very many groups, of the busiest ones"
    )
    shares: RatesView | None = Field(description="sums over topics")
    used_ratio: RatesView | None = Field(description="usage of the limit")
    skew_loss: RatesView | None = Field(description="shares lost because demand sits in too few partitions")
    excess: RatesView | None = Field(description="by how much shares add up to more than the limit")
    defects: list[DefectView]
    told: list[ReportedUsageView] = Field(description="what brokers tell each other; empty where they do not")
    planned: list[str] = Field(description="what was, or is to be, written of its ResourceGroup and its namespaces")


class TopicView(schemas.Answer):
    """A topic of a group. `change`: what was, or would be, written, by side."""

    topic: str
    brokers: list[str]
    partitions: int
    usage: RatesView
    demand: RatesView = Field(
        description="what it is known to want, as a share: its busiest partition times their number"
    )
    share: RatesView
    loss: RatesView = Field(description="what of the share nobody uses, since demand sits in too few partitions")
    partition_rate: RatesView = Field(description="what each partition may pass now")
    held_back: list[str]
    change: dict[str, dict[str, int] | None]
    codes: list[str]


class TransportView(schemas.Answer):
    """Whether the leader hears what brokers tell each other of groups."""

    state: str = Field(description="off (they do not, or there are no groups), connecting, ok, stuck or down")
    detail: str
    since_ms: int = Field(description="listening without a gap since then")
    fault: str = Field(description="of the newest message that could not be used, why not")


class GroupDetailView(GroupView):
    """A group with its busiest topics."""

    rows: list[TopicView]


class QuotasView(schemas.Answer):
    """All groups, and how enforcing them goes."""

    enforcer: str = Field(description="off, native or policies")
    mode: str
    acting: bool
    obstacle: str | None
    sentence: str
    wall_ms: int | None
    cycle_seconds: float
    problems: list[str]
    writes: dict[str, int]
    left: dict[str, int] = Field(description="rates of topics that are not written, by code")
    explanations: dict[str, str] = Field(description="what the codes of obstacle and left mean")
    transport: TransportView
    groups: list[GroupView]


class CodeView(schemas.Answer):
    """A code and what it means."""

    code: str
    explanation: str


class QuotaWhyView(schemas.Answer):
    """Why a group or topic passes what it passes."""

    name: str
    kind: str = Field(description="group or topic")
    group: str
    sentences: list[str]
    codes: list[CodeView]


class GroupSetView(schemas.Answer):
    """A group that was set."""

    name: str
    origin: str
    members: list[str]
    limits: RatesView


class GroupResetView(schemas.Answer):
    """A group that is as in the settings file again."""

    name: str
    origin: str
    members: list[str]
    limits: RatesView | None = Field(description="null: the settings do not declare it any more")


reads = router_for("viewer", responses=PROBLEMS, tags=["quotas"])
changes = router_for("operator", changes=True, responses=PROBLEMS | REFUSALS | NOT_FOUND, tags=["mutations"])


@reads.get("/quotas", response_model=QuotasView)
async def quotas(service: Backend) -> Response:
    """Quota groups, what they pass of what they may, and how enforcing them goes; every replica answers alike."""
    return reply(await service.quotas.view())


@reads.get("/quotas/{name:path}/why", response_model=QuotaWhyView, responses=NOT_FOUND)
async def why_quota(service: Backend, name: Topic, here: bool = False) -> Response:
    """Why a group, or a topic of one, passes what it passes. The leader knows all topics and is asked (`here`: not)."""
    return reply(await service.quotas.why(name, here=here))


@reads.get("/quotas/{name}", response_model=GroupDetailView, responses=NOT_FOUND)
async def quota(service: Backend, name: Named) -> Response:
    """One group with its busiest topics."""
    return reply(await service.quotas.group(name))


@changes.put("/quotas/{name}", response_model=GroupSetView)
async def set_quota(service: Backend, name: Named, body: GroupBody) -> Response:
    """Set a group, a new one or over the one of the settings file."""
    return reply(await service.quotas.put(body.group(name), reason=body.reason, by=body.by))


@changes.delete("/quotas/{name}", response_model=schemas.Answer)
async def remove_quota(service: Backend, name: Named, body: schemas.ReasonBody) -> Response:
    """Take a group out of force; its topics get back what was there before."""
    return reply(await service.quotas.remove(name, reason=body.reason, by=body.by))


@changes.delete("/quotas/{name}/override", response_model=GroupResetView)
async def reset_quota(service: Backend, name: Named, body: schemas.ReasonBody) -> Response:
    """Drop what was set or removed over a group of the settings file: what the file says holds again."""
    return reply(await service.quotas.reset(name, reason=body.reason, by=body.by))
