"""Responses about quota groups."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated

from bundlekeel.leader.gate.responses import Mode
from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.response_fields import By, CodeName, Detail, Reason, Sentence
from bundlekeel.views.picture import CodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesView(Answer):
    """Rates per second; null: no limit, or unknown."""

    publish_messages: Annotated[float | None, Doc("published messages per second")]
    publish_bytes: Annotated[float | None, Doc("published bytes per second")]
    dispatch_messages: Annotated[float | None, Doc("delivered messages per second")]
    dispatch_bytes: Annotated[float | None, Doc("delivered bytes per second")]


Origin = Annotated[str, Doc("source of the group's declaration", of=("settings", "api"))]
RateKind = Annotated[str, Doc("kind of rate", grows=[item.name for item in fields(RatesView)])]
Limits = Annotated[RatesView, Doc("limits over all brokers")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedUsageView(Answer):
    """The usage of a group that a broker last reported to other brokers, converted to rates per second."""

    broker: Annotated[str, Doc("broker ID, or the service URL if no known broker has that address")]
    registered: Annotated[
        bool, Doc("whether the broker is registered; the reports of a broker that left can still count")
    ]
    reported: Annotated[RatesView, Doc("reported usage; null: none yet")]
    measured: Annotated[
        RatesView | None,
        Doc("measured throughput of the group's topics on the broker; null: it has no topics of the group"),
    ]
    publish_age_seconds: Annotated[float | None, Doc("age of the broker's last report on publishing; null: none")]
    dispatch_age_seconds: Annotated[float | None, Doc("age of the broker's last report on delivery; null: none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView(Answer):
    """A quota group. Fields are null until the leader has measured them."""

    name: Annotated[str, Doc("name of the group")]
    origin: Origin
    by: By
    reason: Reason
    since_ms: Annotated[int, Doc("time at which the group was set; 0: declared in the settings")]
    members: Annotated[list[str], Doc("`t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed")]
    limits: Limits
    namespaces: Annotated[int | None, Doc("number of namespaces in the group")] = None
    topics: Annotated[int | None, Doc("number of topics in the group")] = None
    held_back: Annotated[int | None, Doc("number of topics at their limit")] = None
    held_back_seconds: Annotated[float | None, Doc("sum over all topics of the seconds at their limit")] = None
    usage: Annotated[RatesView | None, Doc("throughput of its topics")] = None
    brokers: Annotated[
        dict[str, RatesView] | None,
        Doc("usage by broker; with very many groups, of the most loaded brokers only"),
    ] = None
    shares: Annotated[RatesView | None, Doc("sum of the shares of its topics")] = None
    used_ratio: Annotated[RatesView | None, Doc("usage divided by the limit")] = None
    skew_loss: Annotated[RatesView | None, Doc("unused shares, because the demand is in too few partitions")] = None
    excess: Annotated[RatesView | None, Doc("by how much the sum of shares exceeds the limit")] = None
    defects: Annotated[list[CodeView], Doc("faults of Pulsar's enforcement in this group")] = field(
        default_factory=list
    )
    reported: Annotated[list[ReportedUsageView], Doc("reports between brokers; empty: none")] = field(
        default_factory=list
    )
    planned: Annotated[list[str], Doc("written or planned changes of its ResourceGroup and namespaces")] = field(
        default_factory=list
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRate(Answer):
    """A rate in a topic policy; -1: no limit."""

    messages: Annotated[int, Doc("messages per second")]
    bytes: Annotated[int, Doc("bytes per second")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView(Answer):
    """A topic of a group."""

    topic: Annotated[str, Doc("name of the topic")]
    brokers: Annotated[list[str], Doc("brokers that serve the topic")]
    partitions: Annotated[int, Doc("number of partitions")]
    usage: Annotated[RatesView, Doc("current throughput")]
    demand: Annotated[
        RatesView, Doc("estimated demand, as a share: its most loaded partition times the number of partitions")
    ]
    share: Annotated[RatesView, Doc("share of the limit that the topic may use")]
    loss: Annotated[RatesView, Doc("unused share, because the demand is in too few partitions")]
    partition_rate: Annotated[RatesView, Doc("current limit of each partition")]
    held_back: Annotated[list[RateKind], Doc("kinds of rate that are at their limit")]
    change: Annotated[dict[str, WrittenRate | None], Doc("written or planned rates by side; null: the rate is removed")]
    codes: Annotated[list[CodeName], Doc("codes of why nothing is written")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetailView(GroupView):
    """A group with its busiest topics."""

    rows: Annotated[list[TopicView], Doc("most loaded topics")] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportView(Answer):
    """State of the leader's subscription to the brokers' reports about groups."""

    state: Annotated[
        str, Doc("off: brokers do not report, or there are no groups", of=("off", "connecting", "ok", "stuck", "down"))
    ] = "off"
    detail: Detail = ""
    since_ms: Annotated[int, Doc("time since which reports are received without a gap")] = 0
    fault: Annotated[str, Doc("why the newest unusable message could not be used; empty: none")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritesView(Answer):
    """Changes of rates in the last quota cycle."""

    written: Annotated[int, Doc("number of written changes")] = 0
    planned: Annotated[int, Doc("number of planned changes")] = 0
    failed: Annotated[int, Doc("number of failed changes")] = 0
    held: Annotated[int, Doc("number of topic policies and ResourceGroups that Bundlekeel set")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasView(Answer):
    """All quota groups and their enforcement."""

    enforcer: Annotated[str, Doc("`quotas.enforcer` of the settings", of=("off", "native", "policies"))]
    mode: Annotated[Mode, Doc("mode in effect")]
    acting: Annotated[bool, Doc("whether rates are written")]
    obstacle: Annotated[str | None, Doc("code of the obstacle to writing; null: none", grows=Code)]
    sentence: Sentence
    wall_ms: Annotated[int | None, Doc("start of the leader's last quota cycle; null: none yet")]
    cycle_seconds: Annotated[float, Doc("time between two quota cycles")]
    problems: Annotated[list[str], Doc("problems of the groups")]
    writes: Annotated[WritesView, Doc("changes of rates in the last quota cycle")]
    left: Annotated[dict[str, int], Doc("number of topic rates that are not written, by code", keys=Code)]
    explanations: Annotated[dict[str, str], Doc("meanings of the codes in `obstacle` and `left`", keys=Code)]
    transport: Annotated[TransportView, Doc("subscription to the reports between brokers")]
    groups: Annotated[list[GroupView], Doc("groups in the order of their declaration")]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWhyView(Answer):
    """Reasons for the current throughput of a group or topic."""

    name: Annotated[str, Doc("name of the requested object")]
    kind: Annotated[str, Doc("kind of the requested object", of=("group", "topic"))]
    group: Annotated[str, Doc("group of the topic, or the group itself")]
    sentences: Annotated[list[str], Doc("reasons as sentences")]
    codes: Annotated[list[CodeView], Doc("codes in those sentences")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetView(Answer):
    """Response to the creation, change or reset of a quota group."""

    name: Annotated[str, Doc("name of the group")]
    origin: Origin
    members: Annotated[list[str], Doc("`t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed")]
    limits: Annotated[RatesView | None, Doc("limits over all brokers; null: the settings no longer declare the group")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRemoved(Answer):
    """Response to the removal of a quota group."""

    name: Annotated[str, Doc("name of the group")]
    origin: Origin
