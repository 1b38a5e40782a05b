"""Errors of clients and traffic of topics, read from real brokers: the values exist, and reading them changes
nothing.
"""

from __future__ import annotations

import asyncio

import pytest

from bundlekeel.model.counters import MeasuredLoad, measured
from bundlekeel.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN
from dev.traffic import Traffic
from tests.chaos.stage import traffic_spec
from tests.integration.conftest import RealWorld
from tests.support.contracts.coordination import eventually

NAMESPACE = "public/client-signs"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


async def _measured(world: RealWorld) -> dict[str, MeasuredLoad]:
    """Return the brokers' load by two readings of their counters, three seconds apart."""
    edges = {NAMESPACE: await world.metadata.boundaries(NAMESPACE) or []}
    first = {broker: await world.admin.counters(endpoint) for broker, endpoint in world.endpoints.items()}
    await asyncio.sleep(3.0)
    after = {broker: await world.admin.counters(endpoint) for broker, endpoint in world.endpoints.items()}
    loads = {broker: measured(first[broker][0], after[broker][0], edges) for broker in after}
    return {broker: load for broker, load in loads.items() if load is not None}


async def test_figures_of_real_brokers(real_world: RealWorld) -> None:
    """Clients that connect and publish show in the counters, whose differences are the rates that they publish with, at
    the bundles' owners; and no mutation is asked for."""
    brokers = sorted(real_world.endpoints)
    before = {broker: await real_world.admin.client_signs(broker) for broker in brokers}
    spec = traffic_spec(real_world.cluster, NAMESPACE, bundles=4, rate_total_msgs=100.0)
    traffic, after = Traffic(spec), dict(before)
    await asyncio.to_thread(traffic.prepare)
    try:
        await asyncio.to_thread(traffic.start)

        async def counted() -> bool:
            after.update({broker: await real_world.admin.client_signs(broker) for broker in brokers})
            more = sum(after[broker].connections - before[broker].connections for broker in brokers)
            return more > 0 and any(after[broker].latency_ms is not None for broker in brokers)

        await eventually(counted, within=60.0)
        loads = await _measured(real_world)
        owners = [await real_world.ownership.owner(name) for load in loads.values() for name in load.bundles]
    finally:
        await asyncio.to_thread(traffic.close)
    assert all(after[broker].failures >= before[broker].failures >= 0 for broker in brokers)
    assert all(after[broker].lookups_failed is not None for broker in brokers)
    total = sum(load.traffic.sum(axis=0) for load in loads.values())
    assert total[RATE_IN] == pytest.approx(100.0, rel=0.25)
    assert total[RATE_OUT] == pytest.approx(100.0, rel=0.25)
    assert total[THROUGHPUT_IN] > 100 * spec.message_bytes * 0.75
    assert [owner.broker_id for owner in owners if owner] == [b for b, load in loads.items() for _ in load.bundles]
    assert len(owners) == spec.bundles
    assert all(load.whole.all() and 0 < (load.cpu_cores or 0.0) < 2 for load in loads.values())
    assert real_world.permit.asked == 0
