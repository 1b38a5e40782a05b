"""Pins, exclusions and pauses: valid names, the number of matches, and their end."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.api.service import Service
from bundlekeel.model.errors import ConfigError, NotFound
from bundlekeel.model.parameters import Parameters
from tests.support.page_world import PageCluster, PageSidecar
from tests.unit.requests.test_operator_requests import B1, BUNDLE, WHO, both


async def test_pins_exclusions_and_paused_scopes_come_and_go() -> None:
    leader, _ = await both()
    service = leader.service.requests
    pinned = await service.pin(BUNDLE, seconds=None, **WHO)
    assert (pinned.broker, pinned.until_ms) == (B1, 0)
    await service.exclude("n:shop/*", seconds=1.0, **WHO)
    await service.pause_scope("namespace:t/ns", seconds=1.0, **WHO)
    view = await service.operations()
    for row in (pinned, *view.pins, *view.exclusions):
        assert (row.by, row.reason) == ("ann", "disks") and pinned.since_ms <= row.since_ms <= leader.clock.wall_ms()
    assert view.pins[0].since_ms == pinned.since_ms > 0
    assert [row.bundle for row in view.pins] == [BUNDLE]
    assert [row.pattern for row in view.exclusions] == ["n:shop/*"]
    assert [row.scope for row in view.pauses] == ["namespace:t/ns"]
    leader.clock.offset += 1.1
    view = await service.operations()
    assert (view.exclusions, view.pauses) == ([], [])
    await service.unpin(BUNDLE, **WHO)
    await service.include("n:shop/*", **WHO)
    await service.resume_scope("namespace:t/ns", **WHO)
    desired = leader.shared_state.desired
    assert (desired.pinned, desired.excluded, desired.pauses) == ({}, {}, {})


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


@pytest.mark.parametrize(
    "call",
    [
        lambda service: service.exclude("shop/*", seconds=None, **WHO),
        lambda service: service.pause_scope("shop", seconds=None, **WHO),
        lambda service: service.pause_scope("topic:x", seconds=None, **WHO),
        lambda service: service.pause_scope("tenant: ", seconds=None, **WHO),
    ],
)
async def test_what_cannot_be_meant_is_refused(call: Any) -> None:
    """Patterns and scopes without what they need."""
    leader, _ = await both()
    with pytest.raises(ConfigError):
        await call(leader.service.requests)


@pytest.mark.parametrize(
    "scope",
    ["namespace:a/b/c", "namespace:a", "tenant:a/b", "tenant:a b", "tenant:a\0", "tenant:*", "tenant:[",
     "broker:", "broker:*", "tenant", "", "Tenant:t"],
)  # fmt: skip
async def test_a_scope_that_cannot_be_is_refused(scope: str) -> None:
    """With the field and the value; nothing is stored that could never match."""
    leader, _ = await both()
    with pytest.raises(ConfigError) as caught:
        await leader.service.requests.pause_scope(scope, seconds=None, **WHO)
    assert (caught.value.field, caught.value.value) == ("scope", scope) and caught.value.allowed
    assert leader.shared_state.desired.pauses == {}


async def test_a_scope_says_how_much_it_matches() -> None:
    """Blanks around it are not meant; a tenant that has nothing yet is legal, and the answer says 0; an unknown broker
    is not excluded either. The end of a pause without one is null."""
    leader, _ = await both()
    service = leader.service.requests
    owned = len(leader.cluster.model.owned_by(B1))
    for inputs, stored, bundles in (
        (" tenant: t ", "tenant:t", len(leader.cluster.shares)),
        ("namespace:t/ns", "namespace:t/ns", len(leader.cluster.shares)),
        (f"broker:{B1}", f"broker:{B1}", owned),
        ("tenant:nosuch", "tenant:nosuch", 0),
    ):
        view = await service.pause_scope(inputs, seconds=None, **WHO)
        assert (view.scope, view.bundles, view.until_ms) == (stored, bundles, None)
        assert list(leader.shared_state.desired.pauses) == [stored]
        assert (await service.resume_scope(inputs, **WHO)).scope == stored
    excluded = await service.exclude(f" r:{B1}", seconds=None, **WHO)
    assert (excluded.pattern, excluded.bundles) == (f"r:{B1}", owned)
    for pattern in ("n:none/*", "n:none/ns", "t:none", "r:none*"):
        assert (await service.exclude(pattern, seconds=None, **WHO)).bundles == 0, "legal, though nothing matches yet"
    with pytest.raises(NotFound, match="no broker 'b9:1'"):
        await service.exclude("r:b9:1", seconds=None, **WHO)
    with pytest.raises(NotFound, match="no broker 'b9:1'"):
        await service.pause_scope("broker:b9:1", seconds=None, **WHO)


@pytest.fixture
async def service() -> Service:
    """Return the service of a leader after one cycle."""
    cluster = PageCluster({"b1:8080": [("shop/orders", 0.3)], "b2:8080": []})
    sidecar = PageSidecar(cluster, mode="act", params=Parameters(), pace=0.0)
    await sidecar.lead()
    await sidecar.cycle.turn()
    return sidecar.service


async def test_a_pause_without_an_end_ends_at_null(service: Service) -> None:
    """Null is until resumed, in the answer and in the state; 0 would be 1970. With an end it is that time."""
    result = await service.pause(reason="look", by="ann", seconds=None)
    for view in (result, service.state().paused):
        assert view.until_ms is None
        assert (view.reason, view.by) == ("look", "ann")
    result = await service.pause(reason="look", by="ann", seconds=60)
    assert service.state().paused.until_ms == result.until_ms == result.since_ms + 60_000


async def test_the_state_says_what_exactly_stops_the_leader() -> None:
    cluster = PageCluster({"b1:8080": [("shop/orders", 0.3)], "b2:8080": []})
    sidecar = PageSidecar(cluster, mode="act", params=Parameters(), pace=0.0)
    await sidecar.lead()
    await sidecar.cycle.turn()
    before = sidecar.service.state()
    assert (before.acting_obstacle, before.acting_detail) == (None, "")
    await sidecar.service.pause(reason="look", by="ann", seconds=None)
    await sidecar.cycle.turn()
    stopped = sidecar.service.state()
    assert (stopped.acting_obstacle, stopped.acting_detail) == ("Paused", "by ann: look")


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
