"""The fake and the real adapter of quotas keep the same promises over the same brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from bundlekeel.model.errors import AdminFault, AdminRefused, AdminTimeout, LeadershipLost
from bundlekeel.ports import TopicLoad
from bundlekeel.pulsar.admin import HttpBrokerAdmin
from bundlekeel.quotas.admin import HttpQuotaAdmin
from bundlekeel.quotas.ports import NamespaceRates
from bundlekeel.quotas.rules.rate_plan import PUBLISH, PolicyKey, Rate
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup
from tests.support.admin_kit import Kit
from tests.support.contracts.admin import Permit, Recorder
from tests.support.contracts.quotas import (
    NAMESPACE,
    PARTITIONED,
    PUBLISHED,
    TOPIC,
    QuotaContract,
    QuotaHarness,
)
from tests.support.http_brokers import Answer, HttpBrokers, answer
from tests.support.http_quotas import HttpQuotaBrokers
from tests.support.memory_admin import BrokerModel
from tests.support.memory_source import RealClock
from tests.support.quota_model import MemoryQuotaAdmin
from tests.unit.pulsar.test_admin_http import brokers, make  # fixtures

__all__ = ["brokers", "make"]

BUNDLE = f"{NAMESPACE}/0x00000000_0xffffffff"
EVENTS = f"persistent://{NAMESPACE}/__change_events"


def fill(model: BrokerModel) -> None:
    """Two topics at the second broker, one of them partitioned, and one of Pulsar's own."""
    model.own(BUNDLE, model.brokers[1])
    model.add_loads(
        BUNDLE,
        TopicLoad(topic=TOPIC, hash=1, traffic=(5.0, 10.0, 500.0, 1000.5)),
        TopicLoad(topic=f"{PARTITIONED}-partition-0", hash=2, traffic=(1.0, 2.0, 3.0, 4.0)),
        TopicLoad(topic=EVENTS, hash=3, traffic=(1.0, 1.0, 1.0, 1.0)),
    )


def harness_of(admin: MemoryQuotaAdmin | HttpBrokerAdmin, model: BrokerModel) -> QuotaHarness:
    async def set_rates(publish: Rate, dispatch: Rate) -> None:
        model.quotas.namespaces[NAMESPACE] = NamespaceRates(publish=publish, dispatch=dispatch)

    port = admin if isinstance(admin, MemoryQuotaAdmin) else HttpQuotaAdmin(admin.http)
    return QuotaHarness(admin=port, broker=model.brokers[1], cluster="local", set_namespace_rates=set_rates)


class TestMemoryQuotaAdmin(QuotaContract):
    """The fake."""

    @pytest.fixture
    def harness(self) -> QuotaHarness:
        model = BrokerModel(["b1:8080", "b2:8080"])
        fill(model)
        return harness_of(MemoryQuotaAdmin(model), model)


class TestHttpQuotaAdmin(QuotaContract):
    """The real adapter, over real sockets."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[QuotaHarness]:
        brokers = HttpQuotaBrokers(2)
        fill(brokers.model)
        async with brokers.serve():
            admin = HttpBrokerAdmin(telemetry=Recorder(), clock=RealClock())
            admin.set_endpoints(brokers.endpoints())
            yield harness_of(admin, brokers.model)
            await admin.close()


@pytest.fixture(params=["memory", "http"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[QuotaHarness, BrokerModel, Permit]]:
    """Either adapter with a permit that can be withdrawn."""
    permit = Permit()
    if request.param == "memory":
        model = BrokerModel(["b1:8080", "b2:8080"])
        fill(model)
        yield harness_of(MemoryQuotaAdmin(model), model), model, permit
        return
    brokers = HttpQuotaBrokers(2)
    model = brokers.model
    fill(model)
    async with brokers.serve():
        admin = HttpBrokerAdmin(telemetry=Recorder(), clock=RealClock())
        admin.set_endpoints(brokers.endpoints())
        yield harness_of(admin, model), model, permit
        await admin.close()


async def test_rates_of_topics(both: tuple[QuotaHarness, BrokerModel, Permit]) -> None:
    harness, _, _ = both
    rates = await harness.admin.topic_rates(harness.broker, [NAMESPACE])
    assert (rates.broker, rates.names) == (harness.broker, (TOPIC, f"{PARTITIONED}-partition-0"))
    assert rates.rates.tolist() == [[5.0, 500.0, 10.0, 1000.5], [1.0, 3.0, 2.0, 4.0]]


async def test_nothing_mutates_without_permit(both: tuple[QuotaHarness, BrokerModel, Permit]) -> None:
    """Not even reading a topic's policy: that may assign its bundle. What only reads needs no permit."""
    harness, model, permit = both
    permit.error = LeadershipLost("over")
    for call in (
        harness.admin.topic_rate(PUBLISHED, permit=permit),
        harness.admin.set_topic_rate(PUBLISHED, Rate(1), permit=permit),
        harness.admin.set_topic_rate(PUBLISHED, None, permit=permit),
        harness.admin.set_resource_group("g", ResourceGroup(1), permit=permit),
        harness.admin.set_resource_group("g", None, permit=permit),
        harness.admin.attach(NAMESPACE, "g", permit=permit),
        harness.admin.attach(NAMESPACE, "", permit=permit),
    ):
        with pytest.raises(LeadershipLost):
            await call
    assert (model.quotas.rates, model.quotas.groups) == ({}, {})
    assert await harness.admin.resource_group("g") is None
    assert (await harness.admin.namespace_rates(NAMESPACE, "local")).publish is None


async def test_topic_policies_off(both: tuple[QuotaHarness, BrokerModel, Permit]) -> None:
    """Refused with 405."""
    harness, model, permit = both
    model.quotas.on = False
    with pytest.raises(AdminRefused) as caught:
        await harness.admin.topic_rate(PUBLISHED, permit=permit)
    assert caught.value.status == 405


@pytest.mark.parametrize("body", [b"<html>", b'{"publishThrottlingRateInMsg": "x"}', b"[]"])
async def test_answers_that_are_none(body: bytes) -> None:
    """A proxy's page, another type."""
    brokers = HttpQuotaBrokers(1)
    fill_at = PolicyKey(topic=TOPIC, side=PUBLISH)
    brokers.always(0, answer(200, body=body))
    async with brokers.serve():
        admin = HttpBrokerAdmin(telemetry=Recorder(), clock=RealClock())
        admin.set_endpoints(brokers.endpoints())
        with pytest.raises(AdminFault):
            await HttpQuotaAdmin(admin.http).topic_rate(fill_at, permit=Permit())
        await admin.close()


async def test_a_mutation_of_unknown_outcome_is_not_tried_elsewhere(
    brokers: HttpBrokers, make: Callable[..., Kit]
) -> None:
    """A ResourceGroup whose request got no answer is not sent to the next broker; a read is."""
    order = sorted(range(3), key=brokers.ids.__getitem__)
    brokers.script(order[0], lambda _request: Answer(reset=True), lambda _request: Answer(reset=True))
    kit = make()
    with pytest.raises(AdminTimeout):
        await HttpQuotaAdmin(kit.admin.http).set_resource_group("gold", None, permit=kit.permit)
    assert len(brokers.seen) == 1
    assert await kit.admin.dynamic_configuration() == {}
    assert len(brokers.seen) == 3
