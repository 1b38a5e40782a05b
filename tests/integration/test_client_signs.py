"""How clients fare, read from real brokers: the figures are there, and asking for them changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from dev.traffic import Traffic, TrafficSpec
from tests.integration.conftest import RealWorld
from tests.support.contracts.coordination import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


async def test_figures_of_real_brokers(real_world: RealWorld) -> None:
    """Clients that connect and publish show in the counters, and no mutation is asked for."""
    brokers = sorted(real_world.endpoints)
    before = {broker: await real_world.admin.client_signs(broker) for broker in brokers}
    spec = TrafficSpec(
        service_url=real_world.cluster.service_url,
        admin_url=real_world.cluster.brokers[0].web_url,
        namespace="public/client-signs",
        bundles=4,
        rate_total_msgs=100.0,
    )
    traffic, after = Traffic(spec), dict(before)
    await asyncio.to_thread(traffic.prepare)
    try:
        await asyncio.to_thread(traffic.start)

        async def counted() -> bool:
            after.update({broker: await real_world.admin.client_signs(broker) for broker in brokers})
            more = sum(after[broker].connections - before[broker].connections for broker in brokers)
            return more > 0 and any(after[broker].latency_ms is not None for broker in brokers)

        await eventually(counted, within=60.0)
    finally:
        await asyncio.to_thread(traffic.close)
    assert all(after[broker].failures >= before[broker].failures >= 0 for broker in brokers)
    assert all(after[broker].lookups_failed is not None for broker in brokers)
    assert real_world.permit.asked == 0
