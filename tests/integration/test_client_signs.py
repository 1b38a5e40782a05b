"""How clients fare, read from real brokers: the figures are there, and asking for them changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from dev.traffic import Traffic, TrafficSpec
from tests.integration.conftest import RealWorld

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
    traffic = Traffic(spec)
    await asyncio.to_thread(traffic.prepare)
    try:
        await asyncio.to_thread(traffic.start)
        await asyncio.sleep(5.0)
        after = {broker: await real_world.admin.client_signs(broker) for broker in brokers}
    finally:
        await asyncio.to_thread(traffic.close)
    assert sum(after[b].connections - before[b].connections for b in brokers) > 0
    assert all(after[broker].failures >= before[broker].failures >= 0 for broker in brokers)
    assert all(after[broker].lookups_failed is not None for broker in brokers)
    assert any(after[broker].latency_ms is not None for broker in brokers)
    assert real_world.permit.asked == 0
