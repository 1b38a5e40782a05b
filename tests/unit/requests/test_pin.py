"""Pins of bundles."""

from __future__ import annotations

import pytest

from bundlekeel.model.errors import NotFound
from tests.unit.requests.sidecars import BUNDLE, WHO, both


async def test_a_bundle_is_meant_whatever_the_case_of_its_range() -> None:
    """It excluded nothing, and there was no pin to end."""
    leader, _ = await both()
    service = leader.service.requests
    leader.cluster.metadata.bundle_boundaries["t/ns"] = [0, 0xC0000000, 0xFFFFFFFF]
    upper, lower = "t/ns/0xC0000000_0xFFFFFFFF", "t/ns/0xc0000000_0xffffffff"
    assert (await service.pin(upper, seconds=None, **WHO)).bundle == lower
    assert (await service.exclude(f"b:{upper}", seconds=None, **WHO)).pattern == f"b:{lower}"
    assert (await service.include(f"b:{upper}", **WHO)).pattern == f"b:{lower}"
    leader.cluster.metadata.bundle_boundaries["t/ns"] = [0, 0xE0000000, 0xFFFFFFFF]  # it was divided since
    assert (await service.unpin(upper, **WHO)).bundle == lower


async def test_a_pin_ends_by_the_topic_that_it_was_asked_for() -> None:
    leader, _ = await both()
    service, metadata, whole = leader.service.requests, leader.cluster.metadata, "t/ns/0x00000000_0xffffffff"
    topic = next(iter(leader.cluster.model.topics[BUNDLE]))
    metadata.bundle_boundaries["t/ns"] = [0, 0xFFFFFFFF]
    metadata.add_topics([topic])
    assert (await service.pin(topic, seconds=None, **WHO)).bundle == whole
    assert (await service.unpin(topic, **WHO)).bundle == whole
    assert leader.shared_state.desired.pinned == {}
    await service.pin(topic, seconds=None, **WHO)
    metadata.bundle_boundaries["t/ns"] = [0, 0x80000000, 0xFFFFFFFF]
    with pytest.raises(NotFound, match="is not pinned"):
        await service.unpin(topic, **WHO)
    assert (await service.unpin(whole, **WHO)).bundle == whole
