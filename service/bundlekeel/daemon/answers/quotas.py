"""Answers about quota groups."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.daemon.answers.doc import By, CodeName, Detail, Reason, Sentence
from bundlekeel.daemon.answers.picture import CodeView, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesView(Answer):
    """Rates a second; null: no limit, or nothing to tell."""

    publish_messages: Annotated[float | None, Doc("messages published a second")]
    publish_bytes: Annotated[float | None, Doc("bytes published a second")]
    dispatch_messages: Annotated[float | None, Doc("messages delivered a second")]
    dispatch_bytes: Annotated[float | None, Doc("bytes delivered a second")]


Origin = Annotated[str, Doc("where it was declared", of=("settings", "api"))]
RateKind = Annotated[str, Doc("a kind of rate", grows=[item.name for item in fields(RatesView)])]
Limits = Annotated[RatesView, Doc("the limits, over all brokers")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedUsageView(Answer):
    """What a broker last reported to the others about a group; Pulsar's figures are per period, these per second."""

    broker: Annotated[str, Doc("its service URL if no broker of that address was seen")]
    registered: Annotated[bool, Doc("false: it is gone, and its last report may still count")]
    reported: Annotated[RatesView, Doc("what it reported; null: nothing yet")]
    measured: Annotated[RatesView | None, Doc("what its topics of the group pass; null: none was seen there")]
    publish_age_seconds: Annotated[float | None, Doc("since it reported what is published; null: never")]
    dispatch_age_seconds: Annotated[float | None, Doc("since it reported what is delivered; null: never")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView(Answer):
    """A group. What the leader has not seen yet is null."""

    name: Annotated[str, Doc("the name of the group")]
    origin: Origin
    by: By
    reason: Reason
    since_ms: Annotated[int, Doc("when it was set; 0: it is of the settings")]
    members: Annotated[list[str], Doc("`t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed")]
    limits: Limits
    namespaces: Annotated[int | None, Doc("how many are in it")] = None
    topics: Annotated[int | None, Doc("how many are in it")] = None
    held_back: Annotated[int | None, Doc("topics that are at their limit")] = None
    held_back_seconds: Annotated[float | None, Doc("topics times seconds at their limit")] = None
    usage: Annotated[RatesView | None, Doc("what its topics pass")] = None
    brokers: Annotated[
        dict[str, RatesView] | None,
        Doc("usage by broker that serves it; where there are very many groups, of the busiest ones"),
    ] = None
    shares: Annotated[RatesView | None, Doc("the shares of its topics, added up")] = None
    used_ratio: Annotated[RatesView | None, Doc("usage of the limit")] = None
    skew_loss: Annotated[RatesView | None, Doc("shares lost because demand sits in too few partitions")] = None
    excess: Annotated[RatesView | None, Doc("by how much shares add up to more than the limit")] = None
    defects: Annotated[list[CodeView], Doc("what Pulsar does to it that its limits do not ask for")] = field(
        default_factory=list
    )
    reported: Annotated[list[ReportedUsageView], Doc("what brokers report to each other; empty where they do not")] = (
        field(default_factory=list)
    )
    planned: Annotated[list[str], Doc("what was, or is to be, written of its ResourceGroup and its namespaces")] = (
        field(default_factory=list)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRate(Answer):
    """A rate as it is written to a topic; -1: no limit."""

    messages: Annotated[int, Doc("messages a second")]
    bytes: Annotated[int, Doc("bytes a second")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView(Answer):
    """A topic of a group."""

    topic: Annotated[str, Doc("the name of the topic")]
    brokers: Annotated[list[str], Doc("those that serve it")]
    partitions: Annotated[int, Doc("how many partitions it has")]
    usage: Annotated[RatesView, Doc("what it passes now")]
    demand: Annotated[RatesView, Doc("what it is known to want, as a share: its busiest partition times their number")]
    share: Annotated[RatesView, Doc("what it may pass")]
    loss: Annotated[RatesView, Doc("what of the share is not used, since demand sits in too few partitions")]
    partition_rate: Annotated[RatesView, Doc("what each partition may pass now")]
    held_back: Annotated[list[RateKind], Doc("kinds of rate at their limit")]
    change: Annotated[dict[str, WrittenRate | None], Doc("what was, or would be, written, by side; null: taken away")]
    codes: Annotated[list[CodeName], Doc("why nothing is written, as codes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetailView(GroupView):
    """A group with its busiest topics."""

    rows: Annotated[list[TopicView], Doc("its busiest topics")] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportView(Answer):
    """Whether the leader receives what brokers report to each other about groups."""

    state: Annotated[
        str, Doc("off: they do not, or there are no groups", of=("off", "connecting", "ok", "stuck", "down"))
    ] = "off"
    detail: Detail = ""
    since_ms: Annotated[int, Doc("listening without a gap since then")] = 0
    fault: Annotated[str, Doc("of the newest message that could not be used, why not")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritesView(Answer):
    """Changes of rates of the last cycle."""

    written: Annotated[int, Doc("how many were written")] = 0
    planned: Annotated[int, Doc("how many there were")] = 0
    failed: Annotated[int, Doc("how many could not be written")] = 0
    held: Annotated[int, Doc("places with a rate that Bundlekeel set")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasView(Answer):
    """All groups, and how they are enforced."""

    enforcer: Annotated[str, Doc("`quotas.enforcer` of the settings", of=("off", "native", "policies"))]
    mode: Annotated[Mode, Doc("the mode in force")]
    acting: Annotated[bool, Doc("whether rates are written")]
    obstacle: Annotated[str | None, Doc("the code of why not; null: nothing prevents it", grows=Code)]
    sentence: Sentence
    wall_ms: Annotated[int | None, Doc("when the leader looked last")]
    cycle_seconds: Annotated[float, Doc("how often it looks")]
    problems: Annotated[list[str], Doc("what is wrong with groups")]
    writes: Annotated[WritesView, Doc("changes of rates of the last cycle")]
    left: Annotated[dict[str, int], Doc("rates of topics that are not written, by code", keys=Code)]
    explanations: Annotated[dict[str, str], Doc("what the codes of obstacle and left mean", keys=Code)]
    transport: Annotated[TransportView, Doc("whether the leader receives what brokers report to each other")]
    groups: Annotated[list[GroupView], Doc("in the order of their declaration")]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWhyView(Answer):
    """Why a group or topic passes what it passes."""

    name: Annotated[str, Doc("what was asked about")]
    kind: Annotated[str, Doc("what was asked about", of=("group", "topic"))]
    group: Annotated[str, Doc("the group it is in")]
    sentences: Annotated[list[str], Doc("why it passes that much")]
    codes: Annotated[list[CodeView], Doc("the codes in those sentences")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetView(Answer):
    """A group that was set."""

    name: Annotated[str, Doc("the name of the group")]
    origin: Origin
    members: Annotated[list[str], Doc("`t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed")]
    limits: Annotated[RatesView | None, Doc("null: the settings do not declare it any more")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRemoved(Answer):
    """A group that was taken out of force."""

    name: Annotated[str, Doc("the name of the group")]
    origin: Origin
