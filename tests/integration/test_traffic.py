"""Measurements of the traffic generator on real brokers."""

from __future__ import annotations

import time

import pytest

from dev.cluster import Cluster
from dev.traffic import Traffic
from dev.traffic.admin import request
from tests.chaos.stage import traffic_spec

NAMESPACE = "public/behind"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_consumers_that_are_behind_lose_nothing(modular_cluster: Cluster) -> None:
    """Brokers deliver at a fifth of the rate. When publishing ends, most messages are still undelivered, for longer
    than the normal limit. None of them is lost.
    """
    spec = traffic_spec(modular_cluster, NAMESPACE, bundles=1, rate_total_msgs=200.0, drain_seconds=2.0)
    traffic = Traffic(spec)
    traffic.prepare()
    limit = {"dispatchThrottlingRateInMsg": 40, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    assert request("POST", f"{spec.admin_url}/admin/v2/namespaces/{NAMESPACE}/dispatchRate", limit)[0] == 204
    try:
        traffic.start()
        time.sleep(3.0)
        behind = traffic.report()
        assert behind.unconsumed > 2 * 40 * spec.drain_seconds and behind.lost == 0
        final = traffic.stop()
    finally:
        traffic.close()
    assert (final.lost, final.unconsumed) == (0, 0) and final.consumed == final.acked > 400
