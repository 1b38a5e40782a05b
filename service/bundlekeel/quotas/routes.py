"""Routes of `/api/v1/quotas`: read and change quota groups."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response
from pydantic import BeforeValidator, Field

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.app import FeatureRoutes
from bundlekeel.api.reply import Backend, reply
from bundlekeel.api.routes.mutations import REFUSALS, Reasoned
from bundlekeel.api.routes.reads import BODY_PROBLEMS, NOT_FOUND, PROBLEMS
from bundlekeel.model.errors import ConfigError
from bundlekeel.quotas.responses import GroupDetailView, GroupRemoved, GroupSetView, QuotasView, QuotaWhyView
from bundlekeel.quotas.rules.groups import QuotaGroup, QuotaLimits
from bundlekeel.quotas.settings import parse_size

Named = Annotated[str, Path(min_length=1, max_length=128, description="name of a quota group", examples=["acme"])]
GroupOrTopic = Annotated[schemas.InPath, Path(description="a group, or a topic", examples=["acme"])]
_RATE = "per second, over all brokers; absent: no limit"
Limit = Annotated[float | None, Field(strict=True, description=_RATE)]
ByteLimit = Annotated[
    float | None,
    BeforeValidator(parse_size, json_schema_input_type=float | str | None),
    Field(description=f"bytes {_RATE}. Also as a string with a unit: 500kB, 10MB, 1MiB"),
]


class GroupBody(schemas.ReasonBody):
    """Request to create or change a quota group."""

    members: list[Annotated[str, Field(max_length=1024)]] = Field(
        max_length=1000, description="`t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed", examples=[["t:acme"]]
    )
    publish_messages: Limit = None
    publish_bytes: Annotated[ByteLimit, Field(examples=[50_000_000])] = None
    dispatch_messages: Limit = None
    dispatch_bytes: ByteLimit = None

    def group(self, name: str) -> QuotaGroup:
        """Return the group of this name with these values. Raises ConfigError if a value is invalid."""
        limits = QuotaLimits(
            publish_messages=self.publish_messages,
            publish_bytes=self.publish_bytes,
            dispatch_messages=self.dispatch_messages,
            dispatch_bytes=self.dispatch_bytes,
        )
        return QuotaGroup(name=name, limits=limits, members=tuple(self.members))


reads = router_for("viewer", responses=PROBLEMS, tags=["quotas"])
changes = router_for("operator", changes=True, responses=BODY_PROBLEMS | REFUSALS | NOT_FOUND, tags=["mutations"])


@reads.get("/quotas", response_model=QuotasView)
async def list_quotas(service: Backend) -> Response:
    """List quota groups with usage, limits and enforcement; the same on every replica."""
    return reply(await service.features["quotas"].view())


@reads.get("/quotas/{name:path}/why", response_model=QuotaWhyView, responses=NOT_FOUND)
async def explain_quota(service: Backend, name: GroupOrTopic, here: schemas.Here = False) -> Response:
    """Explain the throughput of a group or topic. The leader responds, because only it has all topics; with `here`,
    this sidecar responds."""
    return reply(await service.features["quotas"].why(name, here=here))


@reads.get("/quotas/{name}", response_model=GroupDetailView, responses=NOT_FOUND)
async def get_quota(service: Backend, name: Named) -> Response:
    """Return a group with its most loaded topics."""
    return reply(await service.features["quotas"].group(name))


@changes.put("/quotas/{name}", response_model=GroupSetView)
async def set_quota(service: Backend, name: Named, body: GroupBody) -> Response:
    """Create a quota group, or override the group that has this name in the settings file."""
    try:
        return reply(await service.features["quotas"].put(body.group(name), reason=body.reason, by=body.by))
    except ConfigError as error:
        raise _as_requested(error, name) from None


def _as_requested(error: ConfigError, name: str) -> ConfigError:
    """Return the error with the name of the request's field instead of the settings file's field."""
    group = f"quotas.groups.{name}"
    field = error.field.removeprefix(f"{group}.")
    if field == group:
        field = "name" if error.value == name else "body"
    text = str(error).replace(error.field, field, 1)
    return ConfigError(text, field=field, value=error.value, allowed=error.allowed)


@changes.delete("/quotas/{name}", response_model=GroupRemoved)
async def delete_quota(service: Backend, name: Named, reasoned: Reasoned) -> Response:
    """Remove a group, and restore the original limits of its topics."""
    return reply(await service.features["quotas"].remove(name, reason=reasoned.reason, by=reasoned.by))


@changes.delete("/quotas/{name}/override", response_model=GroupSetView)
async def reset_quota(service: Backend, name: Named, reasoned: Reasoned) -> Response:
    """Remove the override of a group, so that the settings file applies again."""
    return reply(await service.features["quotas"].reset(name, reason=reasoned.reason, by=reasoned.by))


ROUTES = FeatureRoutes(
    reads=reads,
    changes=changes,
    tags={"quotas": "Limits of groups of tenants and namespaces over all brokers."},
)
