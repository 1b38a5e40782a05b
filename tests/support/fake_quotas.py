"""Quota groups for API and CLI tests: answers as `answers.quotas` defines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import msgspec

from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.quotas.groups import KINDS, QuotaGroup
from bundlekeel.quotas.responses import (
    GroupDetailView,
    GroupRemoved,
    GroupSetView,
    GroupView,
    QuotasView,
    QuotaWhyView,
    RatesView,
    ReportedUsageView,
    TopicView,
    TransportView,
    WritesView,
    WrittenRate,
)
from bundlekeel.quotas.service import sentence_of, topic_why
from bundlekeel.views.picture import CodeView

NOW_MS = 1_790_000_000_000
TOPIC = "persistent://acme/orders/new"


def rates(*values: float | None) -> RatesView:
    """Return rates in the order of the kinds, None for the kinds that are missing."""
    return RatesView(**dict(zip(KINDS, (*values, *[None] * (len(KINDS) - len(values))), strict=True)))


def _reported_usage() -> list[ReportedUsageView]:
    """Return the usage of a present broker and of one that is gone."""
    return [
        ReportedUsageView(
            broker="b1:8080",
            registered=True,
            reported=rates(400.0, 8e6, 890.0, 9e6),
            measured=rates(410.0, 8.1e6, 900.0, 1e7),
            publish_age_seconds=42.0,
            dispatch_age_seconds=71.5,
        ),
        ReportedUsageView(
            broker="pulsar://b9:6650",
            registered=False,
            reported=rates(13.0, 1e5),
            measured=None,
            publish_age_seconds=3600.0,
            dispatch_age_seconds=None,
        ),
    ]


class FakeQuotas:
    """`unseen`: the leader has not looked yet. `obstacle`: why nothing is written."""

    def __init__(self, called: Callable[[str, Any], None]) -> None:
        self._called = called
        self.unseen = False
        self.obstacle: str | None = Code.RECOMMEND_ONLY.value

    def _group(self) -> GroupDetailView:
        declared = GroupDetailView(
            name="acme",
            origin="settings",
            by="",
            reason="",
            since_ms=0,
            members=["t:acme"],
            limits=rates(500.0, 1e7),
            defects=[],
            reported=[],
            planned=[],
        )
        if self.unseen:
            return declared
        code = Code.DISPATCH_NOT_ENFORCED
        return replace(
            declared,
            namespaces=2,
            topics=16,
            held_back=12,
            held_back_seconds=840.0,
            usage=rates(480.0, 9.5e6, 900.0, 1e7),
            brokers={"b1:8080": rates(410.0, 8.1e6, 800.0, 9e6), "b2:8080": rates(70.0, 1.4e6, 100.0, 1e6)},
            shares=rates(500.0, 1e7),
            used_ratio=rates(0.96, 0.95),
            skew_loss=rates(0.0, 0.0, 0.0, 0.0),
            excess=rates(0.0, 0.0, 0.0, 0.0),
            defects=[CodeView(code=code.value, detail="900 messages/s", explanation=EXPLANATIONS[code])],
            reported=_reported_usage(),
        )

    async def view(self) -> QuotasView:
        """One group."""
        self._called("quotas", None)
        quotas_view = QuotasView(
            enforcer="policies",
            mode="recommend",
            acting=False,
            obstacle=self.obstacle,
            sentence="",
            wall_ms=None if self.unseen else NOW_MS,
            cycle_seconds=10.0,
            problems=["quotas.groups.acme.members = 't:nobody': unknown tenant"],
            writes=WritesView(written=0, planned=4, failed=0, held=0),
            left={Code.TOPIC_POLICIES_OFF.value: 2},
            explanations={c.value: EXPLANATIONS[c] for c in (Code.RECOMMEND_ONLY, Code.TOPIC_POLICIES_OFF)},
            transport=TransportView(state="down", detail="not allowed", since_ms=0, fault=""),
            groups=[msgspec.convert(asdict(self._group()), GroupView)],
        )
        return replace(quotas_view, sentence=sentence_of(quotas_view))

    async def group(self, name: str) -> GroupDetailView:
        """With one topic."""
        self._called("quota", name)
        return replace(self._group(), name=name, rows=[self._topic()])

    def _topic(self) -> TopicView:
        return TopicView(
            topic=TOPIC,
            brokers=["b1:8080", "b2:8080"],
            partitions=4,
            usage=rates(40.0, 1e6, 80.0, 1e6),
            demand=rates(160.0, 4e6),
            share=rates(44.0, 2e6),
            loss=rates(4.0, 0.0),
            partition_rate=rates(11.0),
            held_back=["publish_messages"],
            change={"publish": WrittenRate(messages=11, bytes=500_000), "dispatch": None},
            codes=[Code.BUDGET_OF_RATES.value],
        )

    async def why(self, name: str, *, here: bool = False) -> QuotaWhyView:
        """Explain a topic, or a group by its topic."""
        self._called("why_quota", (name, here))
        kind = "topic" if "://" in name else "group"
        return replace(topic_why(name, "acme", asdict(self._topic())), kind=kind)

    async def put(self, group: QuotaGroup, *, reason: str, by: str) -> GroupSetView:
        self._called("set_quota", (group, reason, by))
        limits = RatesView(**asdict(group.limits))
        return GroupSetView(name=group.name, origin="api", members=list(group.members), limits=limits)

    async def remove(self, name: str, *, reason: str, by: str) -> GroupRemoved:
        self._called("remove_quota", (name, reason, by))
        return GroupRemoved(name=name, origin="settings")

    async def reset(self, name: str, *, reason: str, by: str) -> GroupSetView:
        self._called("reset_quota", (name, reason, by))
        return GroupSetView(name=name, origin="settings", members=["t:acme"], limits=rates(500.0, 1e7))
