"""Responses about owners: of a topic or bundle, and the broker that an unowned bundle would get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.parameter_table import PLACEMENTS
from bundlekeel.model.response_fields import Broker, Bundle, Explanation, Sentence
from bundlekeel.pulsar.channel.responses import UnitView

OwnershipState = Literal["owned", "unowned", "unloading"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Answer):
    """The owner of a topic or bundle. The request never assigns the bundle."""

    topic: Annotated[str | None, Doc("the topic or partition; null: the request named a bundle")] = None
    topic_exists: Annotated[
        bool | None,
        Doc("false: the topic is not stored, and a client creates it by using it; null: the request named a bundle"),
    ] = None
    hash: Annotated[str | None, Doc("hash of the topic: 0x and eight hex digits; null: the request named a bundle")] = (
        None
    )
    bundle: Bundle
    broker: Annotated[str | None, Doc("broker that owns the bundle; null: none")]
    state: Annotated[OwnershipState, Doc("whether a broker owns the bundle")]
    web_url: Annotated[str, Doc("admin address of the owner")]
    service_url: Annotated[str, Doc("client address of the owner, for the requested listener")]
    listener: Annotated[str | None, Doc("requested advertised listener; null: none")]
    preallocated_to: Annotated[str | None, Doc("broker that the bundle is in transit to; null: none")]
    channel: Annotated[UnitView | None, Doc("entry in the ownership channel")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedView(Answer):
    """A broker that a step of the pipeline dropped."""

    broker: Broker
    code: Annotated[str, Doc("code of why the broker is not a candidate", grows=Code)]
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView(Answer):
    """One step of the assignment pipeline."""

    name: Annotated[str, Doc("name of the step")]
    candidates: Annotated[list[str], Doc("remaining brokers after the step")]
    dropped: Annotated[list[DroppedView], Doc("dropped brokers with their codes")]
    note: Annotated[str, Doc("other effects of the step")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentView(Answer):
    """The broker that would receive a bundle if no broker owned it."""

    topic: Annotated[str | None, Doc("requested topic; null: the request named a bundle")]
    hash: Annotated[str | None, Doc("hash of the topic, which determines the bundle; null: the request named a bundle")]
    bundle: Bundle
    owner: Annotated[str | None, Doc("broker that owns the bundle now; null: none")]
    state: Annotated[OwnershipState, Doc("whether a broker owns the bundle now")]
    preallocated: Annotated[str | None, Doc("broker that the bundle is in transit to; null: none")]
    chosen: Annotated[
        str | None, Doc("broker that would receive it; null: any of the candidates (`round_robin`), or none (`code`)")
    ]
    one_of: Annotated[
        list[str], Doc("brokers, including `chosen`, from which Pulsar selects at random or in turn; empty: no choice")
    ] = field(default_factory=list)
    placement: Annotated[str, Doc("placement of the brokers, which selects the target", grows=PLACEMENTS)]
    candidates: Annotated[list[str], Doc("remaining candidates")]
    code: Annotated[str | None, Doc("code of why no broker is selected; null: one or any is", grows=Code)]
    sentence: Sentence
    steps: Annotated[list[StepView], Doc("steps of the pipeline, in order")]
