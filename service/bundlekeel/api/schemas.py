"""Schemas of requests, which are validated strictly, and of errors.

Responses have no schemas here: they are dataclasses of the packages that compute them.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bundlekeel.api.problems import KINDS, TYPE_PREFIX
from bundlekeel.leader.cycle.plan_responses import MOST_SCALE, PlanRequest
from bundlekeel.leader.gate.responses import Mode
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import REASONS
from bundlekeel.model.names import NEW_BROKER
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.pulsar.formats.external_input import clean


def _printable(text: str) -> str:
    if clean(text) != text:
        raise ValueError("must have no control character, line separator, or character that changes the text direction")
    return text


def _legible(text: str) -> str:
    """Return a text for the journal unchanged. Raises ValueError if it is blank or has more than one line."""
    if not text.strip():
        raise ValueError("must not be blank")
    return _printable(text).strip()


Name = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_printable)]
NewBroker = Annotated[str, Field(max_length=255, pattern=NEW_BROKER, examples=["new-1"])]
Scalar = bool | int | float | str | list[str]
_LEGIBLE = AfterValidator(_legible)
# The rules of `_legible` as a pattern for the OpenAPI document: no forbidden character, and at least one that is not
# whitespace.
_REFUSED = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_ANY = rf"[^\x00-\x1f\x7f-\x9f{_REFUSED}]*"
_PATTERN = {"pattern": rf"^{_ANY}[^\x00-\x20\x7f-\xa0{_REFUSED}]{_ANY}$"}
Reason = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        description="reason, which is recorded in the journal",
        examples=["ticket 4711"],
        json_schema_extra=_PATTERN,
    ),
    _LEGIBLE,
]
By = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="requester; over TCP replaced by the authenticated name",
        json_schema_extra=_PATTERN,
    ),
    _LEGIBLE,
]

BUNDLE = "shop/orders/0x00000000_0x10000000"
BROKER = "broker-1.pulsar:8080"
TOPIC = "persistent://shop/orders/created"

# Types of names in paths, and of filters of lists.
InPath = Annotated[str, Path(min_length=1, max_length=4096)]
BrokerId = Annotated[InPath, Path(description="a broker id", examples=[BROKER])]
BundleOrTopic = Annotated[InPath, Path(description="a bundle, or a topic of the bundle", examples=[BUNDLE])]
PlanHash = Annotated[InPath, Path(description="hash of a plan", examples=["5f0c3a1be2d4977a"])]
TaskId = Annotated[
    InPath, Path(description="id of a task, from the response that created it", examples=["req-0000000012"])
]
OfBroker = Annotated[str | None, Query(max_length=1024, description="only rows of this broker", examples=[BROKER])]
OfNamespace = Annotated[
    str | None, Query(max_length=1024, description="only rows of this tenant/namespace", examples=["shop/orders"])
]
Here = Annotated[bool, Query(description="do not forward the request to another sidecar")]


def _with_example(schema: dict[str, Any]) -> None:
    """Add an example of the whole body to a schema, made of the first example of each field."""
    fields = schema["properties"].items()
    schema["examples"] = [{name: field["examples"][0] for name, field in fields if "examples" in field}]


class Body(BaseModel):
    """A request body: an unknown field is an error, and numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, json_schema_extra=_with_example)


class PlanBody(Body):
    """A dry run of a plan, with overrides of the current settings. It changes nothing."""

    # The web page offers these examples.
    strategy: str | None = Field(
        default=None,
        max_length=100,
        description=f"one of {', '.join(STRATEGIES)}",
        examples=[*STRATEGIES],
        json_schema_extra={"x-extensible-enum": [*STRATEGIES]},
    )
    placement: str | None = Field(
        default=None,
        max_length=100,
        description=f"one of {', '.join(PLACEMENTS)}",
        examples=[*PLACEMENTS],
        json_schema_extra={"x-extensible-enum": [*PLACEMENTS]},
    )
    parameters: dict[Name, Scalar] = Field(
        default_factory=dict, max_length=200, description="parameters by Bundlekeel's name or by Pulsar's key"
    )
    remove_brokers: list[Name] = Field(default_factory=list, max_length=1000, description="plan without these brokers")
    add_brokers: list[NewBroker] = Field(
        default_factory=list,
        max_length=100,
        description="plan with these additional brokers, which are empty and of median size",
    )
    traffic_scale: float = Field(
        default=1.0,
        gt=0,
        le=MOST_SCALE,
        strict=True,
        description="factor by which the traffic of all bundles is multiplied",
    )
    ignore_hit_counts: bool | None = Field(
        default=None,
        strict=True,
        description="true: plan moves immediately; false: wait until the imbalance has lasted; null: true if the "
        "request changes brokers or traffic, else false",
    )
    forwarded: bool = Field(
        default=False, strict=True, description="set by followers that forward a request; clients never set it"
    )

    def request(self) -> PlanRequest:
        """Return these options of a plan in the form that the service uses."""
        return PlanRequest.of(self.model_dump())


class AssignmentBody(Body):
    """The bundles, topics or namespace whose brokers are computed in a dry run."""

    bundle: Name | None = Field(default=None, description="a bundle: tenant/namespace/range")
    topic: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="a topic of the bundle", examples=[TOPIC]
    )
    namespace: Name | None = Field(default=None, description="every bundle of tenant/namespace")
    bundles: list[Name] = Field(default_factory=list, max_length=200, description="several bundles")
    topics: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        default_factory=list, max_length=200, description="several topics"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.names():
            raise ValueError("name at least one bundle, topic or namespace")
        return self

    def names(self) -> list[str]:
        """Return all bundles, topics and namespaces of the request in one list."""
        single = [name for name in (self.bundle, self.topic, self.namespace) if name is not None]
        return [*single, *self.bundles, *self.topics]


class ReasonBody(Body):
    """Reason and requester, which are recorded in the journal."""

    reason: Reason
    by: By = "unix socket"


class PauseBody(ReasonBody):
    """A pause, for a limited time or until resumed."""

    seconds: float | None = Field(
        default=None, gt=0, le=365 * 86400, strict=True, description="duration; absent: until resumed", examples=[3600]
    )


class ModeBody(ReasonBody):
    """A new mode, at most the mode in the settings file."""

    mode: Mode = Field(description="at most the mode of the settings file", examples=["recommend"])


class FieldFault(BaseModel):
    """A fault in a field of a request."""

    field: str = Field(description="path in the body (`a.b`), or name of a parameter; `body`: the whole body")
    reason: str = Field(description="the fault")
    value: Any = Field(default=None, description="received value, if known")
    allowed: str | None = Field(default=None, description="allowed values, if known")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(
        description="kind of error, as a URI",
        json_schema_extra={"x-extensible-enum": [TYPE_PREFIX + kind for _, kind in KINDS]},
    )
    title: str = Field(description="name of the status")
    status: int = Field(description="HTTP status")
    detail: str = Field(description="description of the error")
    field: str | None = Field(
        default=None, description="for an invalid value (422): the field of the first fault, see `errors`"
    )
    value: Any = Field(
        default=None, description="for an invalid value (422): the value of the first fault, see `errors`"
    )
    allowed: str | None = Field(
        default=None, description="for an invalid value (422): the allowed values of the first fault, see `errors`"
    )
    code: str | None = Field(
        default=None,
        description="for a conflict (409) or `forbidden` (403): the reason, a code in docs/reference/codes.md or "
        "docs/reference/api.md",
        json_schema_extra={"x-extensible-enum": [*REASONS, *Code]},
    )
    difference: list[str] | None = Field(default=None, description="for a conflict: the reasons as text")
    errors: list[FieldFault] | None = Field(default=None, description="for an invalid value (422): all faults")
    request_id: str | None = Field(
        default=None, description="id in the header `X-Request-ID`; log lines of the request contain it"
    )
