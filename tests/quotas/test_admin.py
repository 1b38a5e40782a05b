"""The adapter of quotas keeps its contract over real brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

import pytest

from bundlekeel.adapters.admin import HttpBrokerAdmin
from bundlekeel.core.quotas.enforce import Rate
from bundlekeel.ports import BrokerEndpoint
from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.traffic.admin import ensure_namespace, place_all_on, request
from tests.support.contracts.admin import Recorder
from tests.support.contracts.quotas import NAMESPACE, PARTITIONED, TOPIC, QuotaContract, QuotaHarness
from tests.support.memory_source import RealClock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[Cluster]:
    """Two brokers and the contract's topics, both served by the second one."""
    with open_cluster(ClusterSpec(brokers=2, mode="modular")) as cluster:
        first, second = cluster.brokers
        ensure_namespace(first.web_url, NAMESPACE, 4)
        plain = f"{first.web_url}/admin/v2/{NAMESPACE.join(('persistent/', '/'))}"
        assert request("PUT", f"{plain}{quote(TOPIC.rpartition('/')[2])}")[0] == 204
        assert request("PUT", f"{plain}{PARTITIONED.rpartition('/')[2]}/partitions", 2)[0] == 204
        place_all_on(second.broker_id, second.web_url, [TOPIC, *(f"{PARTITIONED}-partition-{n}" for n in range(2))])
        # Nobody uses it: only what is loaded has statistics.
        assert request("GET", f"{plain}{quote(TOPIC.rpartition('/')[2])}/stats")[0] == 200
        yield cluster


class TestRealBrokers(QuotaContract):
    """The real adapter over a real cluster."""

    @pytest.fixture
    async def harness(self, two_brokers: Cluster) -> AsyncIterator[QuotaHarness]:
        admin = HttpBrokerAdmin(telemetry=Recorder(), clock=RealClock())
        admin.set_endpoints(
            {b.broker_id: BrokerEndpoint(broker_id=b.broker_id, web_url=b.web_url) for b in two_brokers.brokers}
        )
        first, second = two_brokers.brokers
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

        yield QuotaHarness(admin=admin.quotas, broker=second.broker_id, cluster="local", set_namespace_rates=set_rates)
        request("DELETE", f"{base}/publishRate")
        request("DELETE", f"{base}/dispatchRate")
        await admin.close()
