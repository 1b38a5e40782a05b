"""Notices of an outage by one sidecar for users and the other sidecars, to the second, and which notices it trusts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from bundlekeel.leader.gate.outage import KNOWN_MS, OUTAGE, SKEW_MS, OutageRecord, settle_for
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.memory_coordination import MemoryCoordination
from tests.support.virtual_time import LoopClock, staged
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

# Settling takes 180 s, and missing brokers are waited for four times as long.
QUIET, PATIENCE_MS = 180.0, 720_000


def virtually(scenario: Callable[[FakeCluster], Awaitable[None]]) -> None:
    """Run a scenario over a cluster in virtual time."""

    async def run() -> None:
        await scenario(FakeCluster(clock=LoopClock()))

    run_virtually(run())


async def looks(seconds: int, *sidecars: FakeSidecar) -> None:
    """A turn and a look a second of each."""
    for _ in range(seconds):
        await asyncio.sleep(1.0)
        for sidecar in sidecars:
            await sidecar.leadership.turn()
            await sidecar.outage.look()


async def notice(cluster: FakeCluster) -> tuple[OutageRecord, int]:
    """The shared document and its version."""
    node = cluster.store.nodes[OUTAGE]
    return msgspec.json.decode(node.data, type=OutageRecord), node.version


async def say(sidecar: FakeSidecar, record: OutageRecord, version: int | None = None) -> None:
    await sidecar.coordination.write_shared(OUTAGE, msgspec.json.encode(record), version=version)


def shrink(cluster: FakeCluster) -> None:
    """Two of three brokers leave at once."""
    cluster.source.remove(*BROKERS[1:])


def build_record(cluster: FakeCluster, *, ago: float = 0.0, by: str = "x", over: bool = False) -> OutageRecord:
    at = cluster.clock.wall_ms() - int(1000 * ago)
    return OutageRecord(by=by, why="it was away", since_ms=at, back_ms=at, expected=("b9:8080",), over=over)


@staged(virtually)
async def test_a_look_a_second(cluster: FakeCluster) -> None:
    """For ever, whatever it finds."""
    sidecar = await FakeSidecar(cluster).lead()
    task = asyncio.create_task(sidecar.outage.run())
    await asyncio.sleep(10.5)
    began = sidecar.outage.state.checked
    await asyncio.sleep(5.0)
    task.cancel()
    assert sidecar.outage.state.checked - began == pytest.approx(5.0)
    assert cluster.clock.boot() - sidecar.outage.state.checked == pytest.approx(0.5)


def test_how_long_a_look_counts() -> None:
    """Twice as long as one takes, with its call."""
    settle = settle_for(90.0, 3.0)
    assert (settle.seconds, settle.step) == (90.0, 8.0)


@staged(virtually)
async def test_what_people_are_told(cluster: FakeCluster) -> None:
    """While the store is away, while brokers are missing, while the registry is not quiet; and the metric with it."""
    sidecar = await FakeSidecar(cluster).lead()
    await looks(2, sidecar)
    cluster.store.freeze()
    await looks(12, sidecar)
    view = sidecar.outage.view()
    assert view is not None
    # The session lasts 10 s; times are those of 14 November 2023, 22:13:20 UTC and the seconds since.
    assert view.sentence == "the metadata store did not answer for 12 s, and does not answer yet"
    assert (view.away, view.missing, view.quiet_seconds, view.until_ms) == (True, [], 0.0, 0)
    cluster.store.thaw()
    shrink(cluster)
    await looks(6, sidecar)
    view = sidecar.outage.view()
    assert view is not None
    # Back for 5 s: 715 s of patience are left.
    assert (view.away, view.missing) == (False, list(BROKERS[1:]))
    assert view.until_ms == cluster.clock.wall_ms() + 715_000
    assert view.sentence == (
        "the metadata store did not answer for 12 s; waiting for b2:8080, b3:8080, then 180 s without a change of "
        "the registry; at the latest at 22:25:35Z"
    )
    assert sidecar.metric("settling_after_outage_seconds").endswith(" 715.0")
    cluster.publish()
    await looks(4, sidecar)
    view = sidecar.outage.view()
    assert view is not None
    assert (view.missing, view.quiet_seconds) == ([], 3.0)
    assert view.sentence == (
        "the metadata store did not answer for 12 s; all brokers are back; waiting for 180 s without a "
        "change of the registry (3 s so far), until 22:16:41Z"
    )
    assert sidecar.metric("settling_after_outage_seconds").endswith(" 177.0")
    assert sidecar.metric("outages_total 1.0")


def test_the_session_counts_as_it_was_granted() -> None:
    """The store grants 20 s where 10 were requested: 15 s of silence are not an outage."""

    class Granted(FakeSidecar):
        def connect(self) -> MemoryCoordination:
            return MemoryCoordination(self.cluster.store, session_seconds=20.0)

    async def scenario(cluster: FakeCluster) -> None:
        sidecar = await Granted(cluster).lead()
        unheard = FakeSidecar(cluster, "b")
        await looks(1, sidecar)
        cluster.store.freeze()
        await looks(15, sidecar, unheard)
        assert sidecar.outage.view() is None and unheard.outage.view() is not None
        await looks(5, sidecar)
        assert sidecar.outage.view() is not None

    virtually(scenario)


@staged(virtually)
async def test_an_outage_is_said_once_with_what_was_there_before(cluster: FakeCluster) -> None:
    sidecar = await FakeSidecar(cluster).lead()
    await looks(2, sidecar)
    cluster.store.freeze()
    await looks(15, sidecar)
    cluster.store.thaw()
    await looks(1, sidecar)
    text, version = await notice(cluster)
    now = cluster.clock.wall_ms()
    # The first look that got no answer was 15 s ago, but for the second before it that is counted with it.
    assert text == OutageRecord(
        by="a",
        why="the metadata store did not answer for 15 s",
        since_ms=now - 16_000,
        back_ms=now,
        expected=BROKERS,
        over=False,
    )
    await looks(10, sidecar)
    assert await notice(cluster) == (text, version)
    await looks(200, sidecar)
    assert sidecar.outage.view() is None
    closed, version = await notice(cluster)
    assert closed == msgspec.structs.replace(text, over=True), "its author leads, and has seen it settle"
    shrink(cluster)
    await looks(1, sidecar)
    second, after = await notice(cluster)
    assert (second.why, second.over, after) == ("2 of 3 brokers left the registry at once", False, version + 1)
    assert sidecar.metric("outages_total 2.0")


@pytest.mark.parametrize(("ago", "believed"), [(PATIENCE_MS / 1000, True), (PATIENCE_MS / 1000 + 0.001, False)])
@staged(virtually)
async def test_an_old_notice_is_not_believed(cluster: FakeCluster, ago: float, believed: bool) -> None:
    sidecar = await FakeSidecar(cluster).lead()
    await say(sidecar, build_record(cluster, ago=ago))
    await sidecar.outage.look()
    assert (sidecar.outage.view() is not None) == believed
    assert (await notice(cluster))[0].over != believed


@pytest.mark.parametrize(("watched_ms", "believed"), [(SKEW_MS, True), (SKEW_MS + 10, False)])
@staged(virtually)
async def test_who_watched_all_the_while_knows_better(cluster: FakeCluster, watched_ms: int, believed: bool) -> None:
    """A leader that saw nothing closes the notice; within what two clocks may differ it believes it."""
    sidecar = await FakeSidecar(cluster).lead()
    await asyncio.sleep(watched_ms / 1000)
    await sidecar.leadership.turn()
    await sidecar.leadership.turn()
    assert sidecar.leadership.leading
    await say(sidecar, build_record(cluster))
    await sidecar.outage.look()
    view = sidecar.outage.view()
    assert (view.missing if view is not None else None) == (["b9:8080"] if believed else None)
    text, version = await notice(cluster)
    assert (text.over, version) == (not believed, int(not believed))
    assert text.by == "x" and bool(sidecar.metric("outages_total 1.0")) == believed


@staged(virtually)
async def test_a_follower_closes_no_notice(cluster: FakeCluster) -> None:
    """Even where it saw nothing: that is the leader's to say."""
    await FakeSidecar(cluster, "a").lead()
    follower = await FakeSidecar(cluster, "b").lead()
    await looks(60, follower)
    await say(follower, build_record(cluster))
    await looks(2, follower)
    assert await notice(cluster) == ((await notice(cluster))[0], 0)
    assert not (await notice(cluster))[0].over and follower.outage.view() is None


@staged(virtually)
async def test_what_two_saw_is_waited_for_together(cluster: FakeCluster) -> None:
    """Brokers that only the other one knew of are waited for as well; one's own reason stays, and no second notice is
    written."""
    sidecar = await FakeSidecar(cluster).lead()
    await looks(60, sidecar)
    await say(sidecar, build_record(cluster))
    shrink(cluster)
    await looks(1, sidecar)
    view = sidecar.outage.view()
    assert view is not None
    assert (view.missing, view.why) == ([*BROKERS[1:], "b9:8080"], "2 of 3 brokers left the registry at once")
    assert await notice(cluster) == (msgspec.structs.replace((await notice(cluster))[0], by="x"), 0)
    assert not (await notice(cluster))[0].over and sidecar.metric("outages_total 1.0")


@staged(virtually)
async def test_a_closed_notice_ends_the_outage_it_is_about_alone(cluster: FakeCluster) -> None:
    sidecar = await FakeSidecar(cluster).lead()
    await looks(2, sidecar)
    await say(sidecar, build_record(cluster, over=True))
    shrink(cluster)
    await looks(1, sidecar)
    text, version = await notice(cluster)
    assert sidecar.outage.view() is not None and (text.by, text.over, version) == ("a", False, 1)
    await say(sidecar, msgspec.structs.replace(text, over=True), version)
    await looks(1, sidecar)
    assert sidecar.outage.view() is None


@staged(virtually)
async def test_the_closed_notice_of_the_last_outage_does_not_end_the_next_one(cluster: FakeCluster) -> None:
    sidecar = await FakeSidecar(cluster).lead()
    await looks(2, sidecar)
    for number in (1, 2):
        cluster.store.freeze()
        await looks(15, sidecar)
        cluster.store.thaw()
        await looks(170, sidecar)
        assert sidecar.outage.view() is not None and not (await notice(cluster))[0].over, f"outage {number}"
        await looks(20, sidecar)
        assert sidecar.outage.view() is None and (await notice(cluster))[0].over
    assert sidecar.metric("outages_total 2.0")


def test_a_notice_of_the_same_moment_by_somebody_else_is_enough() -> None:
    """Our write comes second and is dropped."""

    class Second(MemoryCoordination):
        other = b""

        async def write_shared(self, path: str, data: bytes, *, version: int | None) -> int:
            if self.other:
                await super().write_shared(path, self.other, version=version)
            return await super().write_shared(path, data, version=version)

    class Slower(FakeSidecar):
        def connect(self) -> Second:
            return Second(self.cluster.store)

    async def scenario(cluster: FakeCluster) -> None:
        sidecar = await Slower(cluster).lead()
        await looks(2, sidecar)
        assert isinstance(sidecar.coordination, Second)
        sidecar.coordination.other = msgspec.json.encode(build_record(cluster))
        shrink(cluster)
        await looks(1, sidecar)
        assert (await notice(cluster))[0].by == "x" and sidecar.outage.view() is not None

    virtually(scenario)


@staged(virtually)
async def test_a_notice_nobody_can_read_is_written_over(cluster: FakeCluster) -> None:
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.coordination.write_shared(OUTAGE, b"{", version=None)
    await looks(2, sidecar)
    assert sidecar.outage.view() is None and cluster.store.nodes[OUTAGE].data == b"{"
    shrink(cluster)
    await looks(1, sidecar)
    assert (await notice(cluster))[0].by == "a"


@staged(virtually)
async def test_a_registry_that_cannot_be_read_is_no_empty_one(cluster: FakeCluster) -> None:
    """The store answers, the brokers' records do not come: nothing has shrunk."""
    sidecar = await FakeSidecar(cluster).lead()
    await looks(2, sidecar)
    cluster.source.suspended = True
    await looks(60, sidecar)
    assert sidecar.outage.view() is None
    cluster.source.suspended = False
    shrink(cluster)
    await looks(1, sidecar)
    assert sidecar.outage.view() is not None


@pytest.mark.parametrize(("ago_ms", "is_known"), [(0, True), (KNOWN_MS, True), (KNOWN_MS + 1, False), (-1, False)])
@staged(virtually)
async def test_how_old_a_record_of_brokers_may_be(cluster: FakeCluster, ago_ms: int, is_known: bool) -> None:
    """An hour; one from the future is another clock's."""
    sidecar = await FakeSidecar(cluster).lead()
    shrink(cluster)
    sidecar.outage.remember(BROKERS, cluster.clock.wall_ms() - ago_ms)
    await sidecar.outage.look()
    assert (sidecar.outage.view() is not None) == is_known
