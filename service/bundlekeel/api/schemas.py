"""What requests may say, strictly, and how errors look; answers are in `daemon.answers`."""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bundlekeel.api.problems import KINDS, TYPE_PREFIX
from bundlekeel.codec.external_input import clean
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import REASONS
from bundlekeel.core.model.names import NEW_BROKER
from bundlekeel.core.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.daemon.answers.picture import Mode
from bundlekeel.daemon.answers.plans import MOST_SCALE, PlanRequest


def _printable(text: str) -> str:
    if clean(text) != text:
        raise ValueError("must have no control character, line separator, or character that changes the text direction")
    return text


def _legible(text: str) -> str:
    """What ends in the journal says something, on one line."""
    if not text.strip():
        raise ValueError("must say something")
    return _printable(text).strip()


Name = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_printable)]
NewBroker = Annotated[str, Field(max_length=255, pattern=NEW_BROKER, examples=["new-1"])]
Scalar = bool | int | float | str | list[str]
_LEGIBLE = AfterValidator(_legible)
# The same for who reads the document: no such character, and something beside blanks.
_REFUSED = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_ANY = rf"[^\x00-\x1f\x7f-\x9f{_REFUSED}]*"
_PATTERN = {"pattern": rf"^{_ANY}[^\x00-\x20\x7f-\xa0{_REFUSED}]{_ANY}$"}
Reason = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        description="why; it ends in the journal",
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
        description="who asks; over TCP the name that the credentials belong to",
        json_schema_extra=_PATTERN,
    ),
    _LEGIBLE,
]

BUNDLE = "shop/orders/0x00000000_0x10000000"
BROKER = "broker-1.pulsar:8080"
TOPIC = "persistent://shop/orders/created"

# Names in paths, and filters of lists.
InPath = Annotated[str, Path(min_length=1, max_length=4096)]
BrokerId = Annotated[InPath, Path(description="a broker id", examples=[BROKER])]
BundleOrTopic = Annotated[InPath, Path(description="a bundle, or a topic for the bundle it is in", examples=[BUNDLE])]
PlanHash = Annotated[InPath, Path(description="the hash of a plan", examples=["5f0c3a1be2d4977a"])]
TaskId = Annotated[
    InPath, Path(description="the id of a task, as the answer that began it says", examples=["req-0000000012"])
]
OfBroker = Annotated[str | None, Query(max_length=1024, description="only those of this broker", examples=[BROKER])]
OfNamespace = Annotated[
    str | None, Query(max_length=1024, description="only those of this tenant/namespace", examples=["shop/orders"])
]
Here = Annotated[bool, Query(description="ask no other sidecar")]


def _with_example(schema: dict[str, Any]) -> None:
    """One of the whole body, of the first examples of its fields."""
    fields = schema["properties"].items()
    schema["examples"] = [{name: field["examples"][0] for name, field in fields if "examples" in field}]


class Body(BaseModel):
    """A request body: an unknown field is an error, and numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, json_schema_extra=_with_example)


class PlanBody(Body):
    """A dry run: overrides on top of the running settings. Nothing is touched."""

    # The examples are what the web page offers.
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
        default_factory=dict, max_length=200, description="parameters by our name or by Pulsar's key"
    )
    remove_brokers: list[Name] = Field(
        default_factory=list, max_length=1000, description="plan as if these brokers were gone"
    )
    add_brokers: list[NewBroker] = Field(
        default_factory=list, max_length=100, description="plan as if these were there too, empty, of middle size"
    )
    traffic_scale: float = Field(
        default=1.0, gt=0, le=MOST_SCALE, strict=True, description="plan as if all traffic were this many times"
    )
    ignore_hit_counts: bool | None = Field(
        default=None,
        strict=True,
        description="skip the waiting period; null: where brokers or traffic are not as they are",
    )
    forwarded: bool = Field(
        default=False, strict=True, description="clients never set it: a follower does that passes the request on"
    )

    def request(self) -> PlanRequest:
        """The value the service takes."""
        return PlanRequest.of(self.model_dump())


class AssignmentBody(Body):
    """What to place, dry: one bundle, topic or namespace, or several."""

    bundle: Name | None = Field(default=None, description="a bundle: tenant/namespace/range")
    topic: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="a topic, for the bundle it is in", examples=[TOPIC]
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
        """Everything that was asked about."""
        single = [name for name in (self.bundle, self.topic, self.namespace) if name is not None]
        return [*single, *self.bundles, *self.topics]


class ReasonBody(Body):
    """Why, and who asks; both end in the journal."""

    reason: Reason
    by: By = "unix socket"


class PauseBody(ReasonBody):
    """A pause, for a while or until resumed."""

    seconds: float | None = Field(
        default=None, gt=0, le=365 * 86400, strict=True, description="absent: until resumed", examples=[3600]
    )


class ModeBody(ReasonBody):
    """A mode within the ceiling of the settings file."""

    mode: Mode = Field(description="at most the mode of the settings file", examples=["recommend"])


class FieldFault(BaseModel):
    """A field of a request that would not do."""

    field: str = Field(
        description="its path in the body (`a.b`), or the name of a parameter; `body`: the body as a whole"
    )
    reason: str = Field(description="what is wrong with it")
    value: Any = Field(default=None, description="what was given, where it is known")
    allowed: str | None = Field(default=None, description="what is allowed, where it is known")


class Problem(BaseModel):
    """An error, as RFC 9457 has it."""

    type: str = Field(
        description="the kind of error, as a URI",
        json_schema_extra={"x-extensible-enum": [TYPE_PREFIX + kind for _, kind in KINDS]},
    )
    title: str = Field(description="the status in words")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what is wrong, in words")
    field: str | None = Field(default=None, description="with a wrong value: `field` of the first of `errors`")
    value: Any = Field(default=None, description="with a wrong value: `value` of the first of `errors`")
    allowed: str | None = Field(default=None, description="with a wrong value: `allowed` of the first of `errors`")
    code: str | None = Field(
        default=None,
        description="with a conflict (409) or `forbidden` (403): the reason, a code of docs/reference/codes.md or a "
        "word of docs/reference/api.md",
        json_schema_extra={"x-extensible-enum": [*REASONS, *Code]},
    )
    difference: list[str] | None = Field(default=None, description="with a conflict: the reasons, as text")
    errors: list[FieldFault] | None = Field(default=None, description="with a wrong value (422): every fault")
    request_id: str | None = Field(
        default=None, description="as in the header `X-Request-ID`; log lines of the request name it"
    )
