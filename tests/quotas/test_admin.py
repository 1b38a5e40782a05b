"""The adapter of quotas keeps its contract over real brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from bundlekeel.ports import BrokerEndpoint
from bundlekeel.pulsar.admin import HttpBrokerAdmin
from bundlekeel.quotas.admin import HttpQuotaAdmin
from bundlekeel.quotas.rules.rate_plan import Rate
from dev.cluster import Cluster
from dev.traffic.admin import ensure_namespace, place_all_on, request
from tests.support.contracts.admin import Recorder
from tests.support.contracts.quotas import NAMESPACE, PARTITIONED, TOPIC, QuotaContract, QuotaHarness
from tests.support.memory_source import RealClock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def with_topics(quota_cluster: Cluster) -> Cluster:
    """The cluster with the contract's topics, both served by the second broker."""
    first, second, *_ = quota_cluster.brokers
    ensure_namespace(first.web_url, NAMESPACE, 4)
    plain = f"{first.web_url}/admin/v2/{NAMESPACE.join(('persistent/', '/'))}"
    assert request("PUT", f"{plain}{quote(TOPIC.rpartition('/')[2])}")[0] == 204
    assert request("PUT", f"{plain}{PARTITIONED.rpartition('/')[2]}/partitions", 2)[0] == 204
    place_all_on(second.broker_id, second.web_url, [TOPIC, *(f"{PARTITIONED}-partition-{n}" for n in range(2))])
    # No client uses it, and only loaded topics have statistics.
    assert request("GET", f"{plain}{quote(TOPIC.rpartition('/')[2])}/stats")[0] == 200
    return quota_cluster


class TestRealBrokers(QuotaContract):
    """The real adapter over a real cluster."""

    @pytest.fixture
    async def harness(self, with_topics: Cluster) -> AsyncIterator[QuotaHarness]:
        admin = HttpBrokerAdmin(telemetry=Recorder(), clock=RealClock())
        admin.set_endpoints(
            {b.broker_id: BrokerEndpoint(broker_id=b.broker_id, web_url=b.web_url) for b in with_topics.brokers}
        )
        first, second, *_ = with_topics.brokers
        base = f"{first.web_url}/admin/v2/namespaces/{NAMESPACE}"

        async def set_rates(publish: Rate, dispatch: Rate) -> None:
            body = {"publishThrottlingRateInMsg": publish.messages, "publishThrottlingRateInByte": publish.size}
            assert request("POST", f"{base}/publishRate", body)[0] == 204
            body = {
                "dispatchThrottlingRateInMsg": dispatch.messages,
                "dispatchThrottlingRateInByte": dispatch.size,
                "ratePeriodInSecond": dispatch.period,
            }
            assert request("POST", f"{base}/dispatchRate", body)[0] == 204

        quotas = HttpQuotaAdmin(admin.http)
        yield QuotaHarness(admin=quotas, broker=second.broker_id, cluster="local", set_namespace_rates=set_rates)
        request("DELETE", f"{base}/publishRate")
        request("DELETE", f"{base}/dispatchRate")
        await admin.close()
