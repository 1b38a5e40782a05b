"""Leadership: our own deadline, fencing, campaigning anew, and what a suspended store forbids."""

from __future__ import annotations

import pytest
import structlog

from bundlekeel.core.model.errors import LeadershipLost, StoreError
from bundlekeel.ports import Member
from tests.support.memory_coordination import MemoryCoordination
from tests.support.world import FakeCluster, FakeSidecar


async def test_permit_ends_with_our_own_deadline() -> None:
    """Past the deadline nothing may be sent, whatever the library says about the session."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.leadership.permit(1)
    session = sidecar.coordination.session_seconds
    sidecar.clock.offset = session * 0.9 + 0.01
    assert sidecar.coordination.connected
    with pytest.raises(LeadershipLost):
        sidecar.leadership.permit(1)
    with pytest.raises(LeadershipLost):
        sidecar.leadership.current_epoch()


async def test_heartbeat_renews_the_deadline() -> None:
    """An answered heartbeat counts from the moment it was sent."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.clock.offset = 5.0
    await sidecar.leadership.turn()
    assert sidecar.leadership.lease_remaining == pytest.approx(9.0, abs=0.2)


async def test_suspended_store_forbids_at_once() -> None:
    """While the connection is suspended nothing is asked, although the deadline has not passed; the term goes on."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.cluster.store.suspend(sidecar.coordination)
    assert sidecar.leadership.leading
    with pytest.raises(StoreError) as raised:
        sidecar.leadership.permit(1)
    assert not isinstance(raised.value, LeadershipLost)
    sidecar.cluster.store.resume(sidecar.coordination)
    sidecar.leadership.permit(1)


async def test_a_term_whose_deadline_passed_is_never_resumed() -> None:
    """The store answers late that we still lead: whoever asked meanwhile was refused for good, so a new term begins."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    before = sidecar.leadership.epoch
    sidecar.clock.offset = sidecar.coordination.session_seconds
    with pytest.raises(LeadershipLost):
        sidecar.leadership.permit(1)
    await sidecar.leadership.turn()
    sidecar.leadership.permit(2)
    with pytest.raises(LeadershipLost):
        sidecar.leadership.permit(1)
    assert before is not None
    assert sidecar.leadership.epoch == before + 1


async def test_one_leads_the_others_follow_and_one_takes_over() -> None:
    """Three contend, one leads; when its session ends the next one leads with a higher epoch."""
    cluster = FakeCluster()
    sidecars = [await FakeSidecar(cluster, name).lead() for name in "abc"]
    assert [item.leadership.role for item in sidecars] == ["leader", "follower", "follower"]
    first = sidecars[0].leadership.epoch
    cluster.store.expire(sidecars[0].coordination)
    for item in sidecars[1:]:
        await item.leadership.turn()
    assert [item.leadership.role for item in sidecars[1:]] == ["leader", "follower"]
    assert sidecars[1].leadership.epoch is not None and first is not None
    assert sidecars[1].leadership.epoch > first
    await sidecars[0].leadership.turn()
    assert sidecars[0].leadership.epoch is None


async def test_fourth_sidecar_sits_on_the_bench() -> None:
    """At most three seats contend; the next one waits and takes a seat that becomes free."""
    cluster = FakeCluster()
    sidecars = [await FakeSidecar(cluster, name).lead() for name in "abcd"]
    assert sidecars[3].leadership.role == "bench"
    cluster.store.expire(sidecars[1].coordination)
    await sidecars[3].leadership.turn()
    assert sidecars[3].leadership.role == "follower"


async def test_leads_again_after_its_own_deadline_passed_in_a_living_session() -> None:
    """A leader that dropped itself while its node lived on campaigns anew; otherwise nobody would ever lead."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    before = sidecar.leadership.epoch
    sidecar.leadership._drop("test")
    await sidecar.leadership.turn()
    assert sidecar.leadership.leading
    assert before is not None and sidecar.leadership.epoch is not None
    assert sidecar.leadership.epoch > before


async def test_resigning_frees_leadership_at_once() -> None:
    """A stopping leader does not make the others wait for its session to end."""
    cluster = FakeCluster()
    first, second = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    await first.leadership.stop()
    await second.leadership.turn()
    assert second.leadership.leading


class NoChroot(MemoryCoordination):
    """Connected, but nothing can be made below its root."""

    missing = True

    async def members(self) -> list[Member]:
        """As `NodeLayout` says it."""
        if self.missing:
            raise StoreError("/bundlekeel cannot be made: its parent is missing. Does the chroot '/wrong' exist?")
        return await super().members()


async def test_why_nobody_can_lead_is_said_once_and_kept_for_readyz() -> None:
    """A missing chroot does not end by itself: one warning, however often it is tried; then none."""

    class Sidecar(FakeSidecar):
        def connect(self) -> MemoryCoordination:
            return NoChroot(self.cluster.store)

    sidecar = Sidecar(FakeCluster())
    await sidecar.coordination.start()
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            await sidecar.leadership.turn()
    warned = [line["error"] for line in logs if line["log_level"] == "warning"]
    assert len(warned) == 1 and "chroot '/wrong'" in warned[0] and sidecar.leadership.fault == warned[0]
    assert isinstance(sidecar.coordination, NoChroot)
    sidecar.coordination.missing = False
    await sidecar.leadership.turn()
    assert sidecar.leadership.leading and not sidecar.leadership.fault
