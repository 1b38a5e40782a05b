"""Pauses of everything and of one scope."""

from __future__ import annotations

import msgspec
import pytest

from bundlekeel.api.service import Service
from bundlekeel.leader.state.documents import Pause
from bundlekeel.leader.state.shared_state import DESIRED
from bundlekeel.model.errors import ConfigError, NotFound
from bundlekeel.model.parameters import Parameters
from tests.support.page_world import PageCluster, PageSidecar
from tests.support.world import FakeCluster, FakeSidecar
from tests.unit.requests.sidecars import B1, B2, WHO, both, draining


async def test_wishes_are_asked_for_again_while_an_unreadable_document_is_a_pause() -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    await sidecar.coordination.write_shared(DESIRED, b"torn", version=None)
    await sidecar.shared_state.refresh()
    assert "`bundlekeel pause` copies them" in sidecar.shared_state.desired.pause.reason
    await sidecar.service.pause(seconds=None, **WHO)
    await sidecar.service.requests.cordon(B1, **WHO)
    other = await FakeSidecar(sidecar.cluster, "b").lead()
    assert not other.shared_state.unreadable[DESIRED] and B1 in other.shared_state.desired.cordons
    assert other.service.state().paused is not None
    await other.service.resume(**WHO)
    assert other.service.state().paused is None and B1 in other.shared_state.desired.cordons


async def test_a_resume_that_ended_nothing_is_no_deed() -> None:
    """`summary` would list it under people; whoever asked is in the records of kind audit."""
    service = (await FakeSidecar(FakeCluster()).lead()).service
    await service.resume(**WHO)
    assert await service.journal(10, kind="request") == []
    await service.pause(**WHO, seconds=None)
    await service.resume(**WHO)
    assert [record["what"] for record in await service.journal(10, kind="request")] == ["pause", "resume"]


async def test_an_emergency_pause_and_a_drain_need_no_leader() -> None:
    """Whoever can reach the store may write; the next leader finds it."""
    leader, other = await both()
    leader.cluster.store.expire(leader.coordination)
    await other.service.requests.drain(B1, dry_run=False, **WHO)
    await other.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, pause=Pause(reason="r", by="ann", since_ms=1))
    )
    await other.leadership.turn()
    await other.shared_state.refresh()
    other.cycle.adopt(other.shared_state.taken_over(), other.leadership.epoch)
    report = await other.cycle.turn()
    assert report.obstacle is not None and report.obstacle.code == "Paused"
    assert len(other.cluster.model.owned_by(B1)) == 3


async def test_a_paused_scope_is_left_alone_and_refuses_each_move() -> None:
    """No move of a paused namespace is planned; one that is asked for is refused right before its call."""
    cluster = FakeCluster()
    sidecar = await draining(cluster, B1)
    pause = Pause(reason="release", by="ann", since_ms=1)
    await sidecar.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, pauses={"namespace:t/ns": pause})
    )
    await sidecar.cycle.turn()
    assert len(cluster.model.owned_by(B1)) == 6
    await sidecar.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, pauses={f"broker:{B2}": pause, "tenant:other": pause})
    )
    await sidecar.cycle.turn()
    assert len(cluster.model.owned_by(B1)) == 0
    assert cluster.model.owned_by(B2) == []


async def test_a_pause_with_a_scope_ends_by_itself() -> None:
    cluster = FakeCluster()
    sidecar = await draining(cluster, B1)
    pause = Pause(reason="release", by="ann", since_ms=1, until_ms=sidecar.clock.wall_ms() + 2000)
    await sidecar.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, pauses={"tenant:t": pause})
    )
    await sidecar.cycle.turn()
    assert len(cluster.model.owned_by(B1)) == 6
    sidecar.clock.offset += 2.1
    cluster.publish()
    await sidecar.cycle.turn()
    assert cluster.model.owned_by(B1) == []


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
