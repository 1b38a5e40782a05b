"""Contract of every `QuotaAdmin`. Mixed into a test class that builds one over brokers with topics of `NAMESPACE`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import pytest

from bundlekeel.model.errors import AdminRefused
from bundlekeel.ports.commands import by_person
from bundlekeel.quotas.ports import NamespaceRates, QuotaAdmin
from bundlekeel.quotas.rate_commands import QuotaCommands
from bundlekeel.quotas.rules.rate_plan import DISPATCH, PUBLISH, PolicyKey, Rate
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup
from tests.support.contracts.coordination import eventually

NAMESPACE = "public/default"
TOPIC = f"persistent://{NAMESPACE}/a b+ä"
PARTITIONED = f"persistent://{NAMESPACE}/parts"
PUBLISHED, DELIVERED = PolicyKey(topic=TOPIC, side=PUBLISH), PolicyKey(topic=TOPIC, side=DISPATCH)
GROUP = ResourceGroup(100, 1000, -1, 5000)


class Admin(QuotaAdmin, QuotaCommands, Protocol):
    """Reads and commands."""


@dataclass(frozen=True, kw_only=True)
class QuotaHarness:
    """`broker` owns both topics; `set_namespace_rates` sets the namespace's publish and dispatch rate."""

    admin: Admin
    broker: str
    cluster: str
    set_namespace_rates: Callable[[Rate, Rate], Awaitable[None]]


async def becomes(read: Callable[[], Awaitable[object]], expected: object) -> None:
    """Brokers answer from caches that follow a moment later."""

    async def is_so() -> bool:
        return await read() == expected

    await eventually(is_so)


class QuotaContract:
    """Inherit and provide the fixture `harness`."""

    @pytest.mark.parametrize(
        ("place", "rate"),
        [
            (PUBLISHED, Rate(50, -1)),
            (PUBLISHED, Rate(50, 2**40)),
            (DELIVERED, Rate(-1, 700)),
            (DELIVERED, Rate(10, 20, period=5)),
            (DELIVERED, Rate(10, 20, relative=True)),
            (PolicyKey(topic=PARTITIONED, side=PUBLISH), Rate(7, 8)),
        ],
    )
    async def test_topic_rates_round_trip(self, harness: QuotaHarness, place: PolicyKey, rate: Rate) -> None:
        """No rate, set, changed, removed; the name may contain special characters. Removing a missing rate is not an
        error.
        """
        admin = harness.admin
        assert await admin.topic_rate(place, permit=by_person) is None
        await admin.set_topic_rate(place, Rate(1, 1), permit=by_person)
        await admin.set_topic_rate(place, rate, permit=by_person)
        await becomes(lambda: admin.topic_rate(place, permit=by_person), rate)
        await admin.set_topic_rate(place, None, permit=by_person)
        await admin.set_topic_rate(place, None, permit=by_person)
        await becomes(lambda: admin.topic_rate(place, permit=by_person), None)

    async def test_unknown_topic(self, harness: QuotaHarness) -> None:
        """Refused with 404, and not created."""
        place = PolicyKey(topic=f"persistent://{NAMESPACE}/nobody", side=PUBLISH)
        for call in (
            harness.admin.topic_rate(place, permit=by_person),
            harness.admin.set_topic_rate(place, Rate(1), permit=by_person),
        ):
            with pytest.raises(AdminRefused) as caught:
                await call
            assert caught.value.status == 404

    async def test_namespace_rates(self, harness: QuotaHarness) -> None:
        """Only the rates of this cluster are read."""
        rates = await harness.admin.namespace_rates(NAMESPACE, harness.cluster)
        assert (rates.publish, rates.dispatch, rates.resource_group) == (None, None, "")
        await harness.set_namespace_rates(Rate(40, 4000), Rate(30, 3000, period=2))
        expected = NamespaceRates(publish=Rate(40, 4000), dispatch=Rate(30, 3000, period=2))
        await becomes(lambda: harness.admin.namespace_rates(NAMESPACE, harness.cluster), expected)
        assert (await harness.admin.namespace_rates(NAMESPACE, "elsewhere-too")).publish is None

    async def test_resource_groups(self, harness: QuotaHarness) -> None:
        """Made, changed, attached, refused while in use, detached, removed."""
        admin = harness.admin

        async def attached() -> str:
            return (await admin.namespace_rates(NAMESPACE, harness.cluster)).resource_group

        assert await admin.resource_group("acme") is None
        with pytest.raises(AdminRefused):
            await admin.attach(NAMESPACE, "acme", permit=by_person)
        await admin.set_resource_group("acme", ResourceGroup(1, 2, 3, 4), permit=by_person)
        await becomes(lambda: admin.resource_group("acme"), ResourceGroup(1, 2, 3, 4))
        await admin.set_resource_group("acme", GROUP, permit=by_person)
        await becomes(lambda: admin.resource_group("acme"), GROUP)
        await admin.attach(NAMESPACE, "acme", permit=by_person)
        await becomes(attached, "acme")
        with pytest.raises(AdminRefused):
            await admin.set_resource_group("acme", None, permit=by_person)
        await admin.attach(NAMESPACE, "", permit=by_person)
        await becomes(attached, "")
        await admin.set_resource_group("acme", None, permit=by_person)
        await becomes(lambda: admin.resource_group("acme"), None)

    async def test_topics_of_other_namespaces_are_not_told(self, harness: QuotaHarness) -> None:
        """Each topic with its broker; nothing of namespaces that were not asked for."""

        async def is_reported() -> bool:
            # Statistics are made at intervals: a topic that was loaded just now is in none yet.
            return TOPIC in (await harness.admin.topic_rates(harness.broker, [NAMESPACE])).names

        await eventually(is_reported)
        assert (await harness.admin.topic_rates(harness.broker, ["public/other"])).names == ()
        rates = await harness.admin.topic_rates(harness.broker, [NAMESPACE])
        assert rates.broker == harness.broker and (rates.rates >= 0).all()
