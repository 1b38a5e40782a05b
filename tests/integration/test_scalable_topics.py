"""Scalable topics of Pulsar 5.0 on real brokers: names, bundles, moves without clients, and a split of a segment."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from itertools import pairwise
from typing import Any

import pytest

from bundlekeel.leader.execution.intents import MoveRequest
from bundlekeel.model.names import bundle_for_hash, parse_topic
from bundlekeel.model.scalable import changed_bundles
from bundlekeel.requests.takeover import SHEDDING
from bundlekeel.requests.where import where
from dev.traffic.admin import ensure_namespace
from tests.chaos.stage import admin
from tests.integration.conftest import RealWorld

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.environ.get("PULSAR") != "5.0", reason="only Pulsar 5.0 has scalable topics (PULSAR=5.0)"),
]

NAMESPACE = "demo/scalable"


async def created(world: RealWorld) -> tuple[str, dict[str, dict[str, Any]]]:
    """Create a scalable topic of two segments. Returns its name and its segments in the statistics, by number."""
    broker, topic = world.cluster.brokers[0], f"hot-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(ensure_namespace, broker.web_url, NAMESPACE, 8)
    await asyncio.to_thread(admin, broker, "PUT", f"scalable/{NAMESPACE}/{topic}?numInitialSegments=2", {})
    return f"topic://{NAMESPACE}/{topic}", await segments_of(world, topic)


async def segments_of(world: RealWorld, topic: str) -> dict[str, dict[str, Any]]:
    """Return the segments in the statistics of a topic, by number."""
    body = await asyncio.to_thread(admin, world.cluster.brokers[0], "GET", f"scalable/{NAMESPACE}/{topic}/stats")
    return dict(json.loads(body)["layout"]["segments"])


async def bundle_of(world: RealWorld, topic: str) -> str:
    """Return the bundle of a topic by its name, and check that the store lists the topic there."""
    bounds = await world.metadata.boundaries(NAMESPACE)
    assert bounds is not None
    bundle = str(bundle_for_hash(NAMESPACE, bounds, parse_topic(topic).hash))
    assert topic in await world.metadata.topics(bundle)
    return bundle


async def test_names_and_owners_are_those_of_the_brokers(real_world: RealWorld) -> None:
    """The statistics contain each segment's name and owner; the hash of the whole name gives its bundle."""
    topic, segments = await created(real_world)
    rows = await where(topic, metadata=real_world.metadata, ownership=real_world.ownership)
    owners = {row.topic: row.broker for row in rows}
    assert {item["name"]: item["ownerBroker"] for item in segments.values()}.items() <= owners.items()
    assert [row.topic for row in rows] == [topic, *sorted(item["name"] for item in segments.values())]
    for name in owners:
        assert name is not None
        await bundle_of(real_world, name)
    names = {item.name for item in await real_world.metadata.layouts() if str(item.topic) == topic}
    assert names == {item["name"] for item in segments.values()}


async def test_the_bundle_of_a_segment_without_clients_lands(real_world: RealWorld) -> None:
    """After the unload no client looks the segment up, so the executor does."""
    _, segments = await created(real_world)
    bundle = await bundle_of(real_world, segments["0"]["name"])
    source = await real_world.owner_of(bundle)
    target = next(broker for broker in real_world.endpoints if broker != source)
    await real_world.admin.set_dynamic(SHEDDING, "false", permit=real_world.permit)
    try:
        outcome = await real_world.executor().move(MoveRequest(bundle=bundle, source=source, destination=target))
    finally:
        await real_world.admin.delete_dynamic(SHEDDING, permit=real_world.permit)
    print(f"\n{outcome}")  # noqa: T201
    assert (outcome.outcome, await real_world.owner_of(bundle)) == ("done", target)


async def test_a_split_of_a_segment_is_detected(real_world: RealWorld) -> None:
    """The bundles of the parent and of both children changed now."""
    topic, _ = await created(real_world)
    local, before_ms = parse_topic(topic).local, real_world.clock.wall_ms() - 1_000
    assert not [item for item in await real_world.metadata.layouts() if str(item.topic) == topic and item.changed_ms]
    await asyncio.to_thread(admin, real_world.cluster.brokers[0], "POST", f"scalable/{NAMESPACE}/{local}/split/0", {})
    after = await segments_of(real_world, local)
    assert len(after) == 4
    changed = {await bundle_of(real_world, after[number]["name"]) for number in ("0", "2", "3")}
    for _ in range(50):
        segments = [item for item in await real_world.metadata.layouts() if str(item.topic) == topic]
        bounds = await real_world.metadata.boundaries(NAMESPACE)
        assert bounds is not None
        bundles = [f"{NAMESPACE}/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds)]
        if changed_bundles(segments, bundles, before_ms).keys() == changed:
            return
        await asyncio.sleep(0.1)
    assert changed_bundles(segments, bundles, before_ms).keys() == changed
