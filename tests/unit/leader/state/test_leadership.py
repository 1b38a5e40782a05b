"""Leadership: own deadline, fencing, repeated campaigns, and limits while the store is suspended; to the second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import structlog

from bundlekeel.leader.state.leadership import Leadership, Lease
from bundlekeel.model.errors import Forbidden, LeadershipLost, StoreError
from bundlekeel.model.members import Member
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.settings.model import LeadershipSettings
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_source import MemoryMetadata
from tests.support.virtual_time import LoopClock, staged
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


async def test_before_the_first_connection_nothing_is_warned_of() -> None:
    """A start takes a second: the store is not away. Its readiness says what is awaited."""
    sidecar = FakeSidecar(FakeCluster())
    with structlog.testing.capture_logs() as logs:
        await sidecar.leadership.turn()
        assert "not connected" in sidecar.leadership.fault
        await sidecar.coordination.start()
        await sidecar.leadership.turn()
    assert [line["event"] for line in logs] == ["leadership won"]
    sidecar.cluster.store.suspend(sidecar.coordination)
    with structlog.testing.capture_logs() as logs:
        await sidecar.leadership.turn()
    assert [line["event"] for line in logs] == ["could not renew or acquire leadership; retrying at the next heartbeat"]


class Place:
    """One sidecar's leadership: session 10 s, margin a tenth, a turn a second."""

    def __init__(self, store: MemoryStore, name: str, clock: LoopClock, **more: Any) -> None:
        self.store, self.clock = store, clock
        self.coordination = more.pop("coordination", None) or MemoryCoordination(store, session_seconds=10.0)
        self.telemetry = PrometheusTelemetry()
        self.metadata = more.pop("metadata", None) or MemoryMetadata()
        self.leadership = Leadership(
            self.coordination,
            clock,
            self.telemetry,
            Member(id=name),
            LeadershipSettings(seats=2, heartbeat=1.0, margin_ratio=0.1),
            metadata=self.metadata,
            **more,
        )

    async def join(self) -> Place:
        """Connect and take a turn."""
        await self.coordination.start()
        await self.leadership.turn()
        return self

    def told(self) -> dict[str, float]:
        result = {}
        for line in self.telemetry.render("text/plain")[0].decode().splitlines():
            name, _, value = line.rpartition(" ")
            name = name.removeprefix("bundlekeel_")
            if name in ("leader", "lease_remaining_seconds", "store_connected", "epoch") or (
                "transitions_total{" in name and float(value)
            ):
                result[name] = float(value)
        return result


def virtually(scenario: Callable[[Callable[..., Place]], Awaitable[None]]) -> None:
    """Run a scenario in virtual time; it is given what makes sidecars of one store and one clock."""

    async def run() -> None:
        store, clock = MemoryStore(), LoopClock()
        await scenario(lambda name, **more: Place(store, name, clock, **more))

    run_virtually(run())


def test_a_lease_is_over_at_its_deadline() -> None:
    lease = Lease(epoch=1, deadline=100.0)
    assert [lease.remaining(boot) for boot in (90.0, 99.5, 100.0, 105.0)] == [10.0, 0.5, 0.0, 0.0]


@staged(virtually)
async def test_what_metrics_tell_of_a_term(place: Callable[..., Place]) -> None:
    first, second = place("a"), place("b")
    await first.leadership.turn()
    assert first.told() == {"leader": 0, "lease_remaining_seconds": 0, "store_connected": 0, "epoch": -1}
    await first.join()
    await second.join()
    assert first.told() == {
        "leader": 1,
        "lease_remaining_seconds": 9,
        "store_connected": 1,
        "epoch": 1,
        'leader_transitions_total{to="follower"}': 1,
        'leader_transitions_total{to="leader"}': 1,
    }
    follows = {"leader": 0, "lease_remaining_seconds": 0, "store_connected": 1, "epoch": 1}
    assert second.told() == follows | {'leader_transitions_total{to="follower"}': 1}
    first.store.suspend(first.coordination)
    await asyncio.sleep(4.0)
    await first.leadership.turn()
    assert [first.told()[name] for name in ("leader", "lease_remaining_seconds", "store_connected")] == [1, 5, 0]
    await asyncio.sleep(5.0)
    await first.leadership.turn()
    assert first.told()["leader"] == 0 and first.told()['leader_transitions_total{to="follower"}'] == 2
    assert (first.leadership.role, first.leadership.leader, first.leadership.lease) == ("follower", None, None)


@staged(virtually)
async def test_everybody_knows_who_leads_and_who_is_there(place: Callable[..., Place]) -> None:
    """The leader, a follower and one without a seat alike; a seat that is taken later is known with the next turn."""
    first, second, third = await place("a").join(), await place("b").join(), await place("c").join()
    for item in (first, second, third):
        await item.leadership.turn()
        assert item.leadership.leader is not None
        assert (item.leadership.leader.id, item.leadership.leader.epoch) == ("a", 1)
        assert [(member.id, member.seat) for member in item.leadership.members] == [("a", 0), ("b", 1)]
    assert [item.leadership.role for item in (first, second, third)] == ["leader", "follower", "bench"]
    assert [item.leadership.member.seat for item in (first, second)] == [0, 1]


@staged(virtually)
async def test_settings_that_were_read_anew_are_known_with_the_next_turn(place: Callable[..., Place]) -> None:
    first, second = await place("a").join(), await place("b").join()
    for item in (first, second):
        item.leadership.member = replace(item.leadership.member, settings=f"of {item.leadership.member.id}")
        await item.leadership.turn()
    await second.leadership.turn()
    assert [member.settings for member in second.leadership.members] == ["of a", "of b"]


@staged(virtually)
async def test_who_loses_its_seat_waits_for_another(place: Callable[..., Place]) -> None:
    first, second, third = await place("a").join(), await place("b").join(), await place("c").join()
    second.store.expire(second.coordination)
    for item in (third, second):
        await item.leadership.turn()
    assert [item.leadership.role for item in (first, second, third)] == ["leader", "bench", "follower"]
    third.store.expire(third.coordination)
    await second.leadership.turn()
    assert (second.leadership.role, second.leadership.member.seat) == ("follower", 1)


@staged(virtually)
async def test_a_campaign_that_somebody_else_won_names_the_winner(place: Callable[..., Place]) -> None:
    """Two campaign at the same moment: one leads, the other follows it in the same turn."""
    both = [place("a"), place("b")]
    await asyncio.gather(*(item.join() for item in both))
    assert sorted(item.leadership.role for item in both) == ["follower", "leader"]
    winner, loser = sorted(both, key=lambda item: item.leadership.role, reverse=True)
    assert loser.leadership.leader is not None
    assert loser.leadership.leader.id == winner.leadership.member.id
    assert (loser.leadership.lease, loser.leadership.epoch) == (None, None)


@staged(virtually)
async def test_who_stops_leads_no_more_and_campaigns_no_more(place: Callable[..., Place]) -> None:
    only = await place("a").join()
    running = asyncio.create_task(only.leadership.run())
    await asyncio.sleep(2.5)
    await only.leadership.stop()
    assert not only.leadership.leading and await only.coordination.leader() is None
    with pytest.raises(LeadershipLost):
        only.leadership.permit(1)
    await asyncio.sleep(2.5)
    assert running.done()
    await only.leadership.turn()
    assert (only.leadership.epoch, await only.coordination.leader()) == (None, None)


@staged(virtually)
async def test_to_stop_needs_no_store(place: Callable[..., Place]) -> None:
    """The session's end frees the leadership; a sidecar that never led resigns nothing."""
    first, second = await place("a").join(), await place("b").join()
    await second.leadership.stop()
    assert first.leadership.leading and await first.coordination.still_leading(1)
    first.store.suspend(first.coordination)
    await first.leadership.stop()
    assert not first.leadership.leading


@staged(virtually)
async def test_no_sidecar_leads_after_a_migration_of_the_store(place: Callable[..., Place]) -> None:
    """During it the leader stays, because the migration may fail. Afterwards it resigns, and no new term starts."""
    metadata = MemoryMetadata()
    first, second = await place("a", metadata=metadata).join(), await place("b", metadata=metadata).join()
    for phase, leader in (("PREPARATION", "a"), ("COPYING", "a"), ("COMPLETED", "")):
        metadata.migrate(phase)
        for item in (first, second, first, second):
            await item.leadership.turn()
            assert item.leadership.leading == (item.leadership.member.id == leader)
    assert await first.coordination.leader() is None
    assert {item.leadership.role for item in (first, second)} == {"follower"}
    assert "oxia://o:6648/mig" in first.leadership.fault
    restarted = await place("a", metadata=metadata).join()
    assert not restarted.leadership.leading


@staged(virtually)
async def test_turns_come_with_the_heartbeat_and_with_each_change(place: Callable[..., Place]) -> None:
    """A second apart; a leader that resigns is followed at once."""
    first, second = await place("a").join(), place("b")
    await second.coordination.start()
    running = [asyncio.create_task(item.leadership.run()) for item in (first, second)]
    await asyncio.sleep(20.25)
    assert first.leadership.lease_remaining == pytest.approx(8.75)
    await first.leadership.stop()
    await asyncio.sleep(0.01)
    assert second.leadership.leading
    await second.leadership.stop()
    await asyncio.sleep(1.0)
    assert all(task.done() for task in running)


@staged(virtually)
async def test_where_nothing_may_be_changed_no_permit_is_given(place: Callable[..., Place]) -> None:
    """A leader of mode `recommend` writes its state, and changes no broker."""
    only = await place("a", acts=False).join()
    assert only.leadership.current_epoch() == 1
    with pytest.raises(Forbidden):
        only.leadership.permit(1)


@staged(virtually)
async def test_a_term_that_could_not_be_begun_is_won_anew(place: Callable[..., Place]) -> None:
    only = place("a")
    won: list[int] = []

    async def fails_once(epoch: int) -> None:
        won.append(epoch)
        if epoch == 1:
            raise StoreError("away")

    only.leadership.on_won = fails_once
    await only.join()
    assert (only.leadership.lease, only.leadership.epoch, only.leadership.role) == (None, None, "follower")
    await only.leadership.turn()
    assert (won, only.leadership.epoch, only.leadership.leading) == ([1, 2], 2, True)


class Silent(MemoryCoordination):
    """Coordination that stops to report the leader from `silent` on."""

    silent = False

    async def still_leading(self, epoch: int) -> bool:
        if self.silent:
            raise StoreError("no answer")
        return await super().still_leading(epoch)


@staged(virtually)
async def test_a_store_that_is_silent_during_a_takeover_ends_it_at_the_deadline(place: Callable[..., Place]) -> None:
    """Not at its first silence; and what took over so slowly is cancelled."""
    store = place("x").store
    only = place("a", coordination=Silent(store, session_seconds=10.0))
    ended: list[float] = []

    async def slow(_epoch: int) -> None:
        only.coordination.silent = True
        try:
            await asyncio.sleep(60.0)
        finally:
            ended.append(asyncio.get_running_loop().time())

    only.leadership.on_won = slow
    await only.join()
    assert ended == [pytest.approx(9.0, abs=1.01)] and ended[0] >= 9.0
    assert (only.leadership.lease, only.leadership.epoch, only.leadership.role) == (None, None, "follower")
