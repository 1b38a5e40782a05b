"""Settling after an outage, in whole sidecars: nothing moves, everybody knows, and it survives a change of leader."""

from __future__ import annotations

from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.model.codes import Code
from tests.support.world import BROKERS, FakeCluster, FakeSidecar


async def looks(cluster: FakeCluster, seconds: float, *sidecars: FakeSidecar) -> None:
    """Time passes, each sidecar looks once a second and takes its leadership turns."""
    for _ in range(int(seconds)):
        cluster.clock.offset += 1.0
        for sidecar in sidecars:
            await sidecar.outage.look()
            await sidecar.leadership.turn()


def obstacle(cycle: Cycle) -> Code | None:
    assert cycle.report is not None
    return cycle.report.obstacle.code if cycle.report.obstacle is not None else None


async def away(cluster: FakeCluster, seconds: float, *sidecars: FakeSidecar) -> None:
    cluster.store.freeze()
    cluster.source.suspended = True
    await looks(cluster, seconds, *sidecars)
    cluster.store.thaw()
    cluster.source.suspended = False


async def test_nothing_moves_until_the_brokers_are_back_and_quiet() -> None:
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    await looks(cluster, 2, sidecar)
    await away(cluster, 15, sidecar)
    await looks(cluster, 1, sidecar)
    cluster.publish()
    report = await sidecar.cycle.turn()
    assert obstacle(sidecar.cycle) is Code.SETTLING_AFTER_OUTAGE
    assert report.plan is not None and report.plan.moves and not cluster.model.unloads
    assert "did not answer for 1" in report.sentence and "until" in report.sentence
    view = sidecar.outage.view()
    assert view is not None and view.missing == [] and view.until_ms > cluster.clock.wall_ms()
    assert sidecar.metric("outages_total 1.0") and not sidecar.metric("settling_after_outage_seconds 0.0")
    await looks(cluster, 181, sidecar)
    cluster.publish()
    assert (await sidecar.cycle.turn()).outcomes
    assert sidecar.outage.view() is None and sidecar.metric("settling_after_outage_seconds 0.0")


async def test_a_short_suspension_changes_nothing() -> None:
    """Shorter than the session: the next cycle acts."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    await looks(cluster, 2, sidecar)
    await away(cluster, 6, sidecar)
    await looks(cluster, 1, sidecar)
    cluster.publish()
    assert (await sidecar.cycle.turn()).outcomes


async def test_a_shrunken_registry_is_seen_by_the_very_cycle_that_would_act_on_it() -> None:
    """Two of three brokers gone in this picture: nothing is moved to the third, although no look came in between."""
    cluster = FakeCluster({broker: [0.3, 0.1] for broker in BROKERS})
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    moved = len(cluster.model.unloads)
    cluster.source.remove(*BROKERS[1:])
    await sidecar.cycle.turn()
    assert obstacle(sidecar.cycle) is Code.SETTLING_AFTER_OUTAGE
    cluster.publish()
    await sidecar.cycle.turn()
    assert obstacle(sidecar.cycle) is Code.SETTLING_AFTER_OUTAGE, "back, but not quiet yet"
    assert len(cluster.model.unloads) == moved


async def test_a_plan_under_way_stops_when_an_outage_begins() -> None:
    """Each move asks again: those after the shrinking are refused, typed."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    assert await sidecar.executor._not_now("t/ns/0x0_0x1") is None
    await looks(cluster, 1, sidecar)
    cluster.source.remove(*BROKERS[1:])
    await looks(cluster, 1, sidecar)
    refusal = await sidecar.executor._not_now("t/ns/0x0_0x1")
    assert refusal is not None and refusal.code is Code.SETTLING_AFTER_OUTAGE


async def test_a_plain_fail_over_acts_at_once() -> None:
    """The leader dies, nothing else: the follower's first cycle carries its plan out."""
    cluster = FakeCluster()
    first, second = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    await first.cycle.turn()
    await looks(cluster, 2, first, second)
    cluster.store.suspend(first.coordination)
    cluster.store.expire(first.coordination)
    cluster.clock.offset += 700
    cluster.publish()
    await second.leadership.turn()
    assert second.leadership.leading
    report = await second.cycle.turn()
    assert report.obstacle is None


async def test_a_new_leader_that_saw_the_outage_goes_on_waiting() -> None:
    """Every replica watches: the successor knows how long the registry has been quiet."""
    cluster = FakeCluster()
    first, second = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    await looks(cluster, 2, first, second)
    await away(cluster, 15, first, second)
    await looks(cluster, 100, first, second)
    leader, other = (first, second) if first.leadership.leading else (second, first)
    cluster.store.suspend(leader.coordination)
    cluster.store.expire(leader.coordination)
    await looks(cluster, 2, other)
    assert other.leadership.leading
    cluster.publish()
    await other.cycle.turn()
    assert obstacle(other.cycle) is Code.SETTLING_AFTER_OUTAGE
    await looks(cluster, 80, other)
    cluster.publish()
    assert (await other.cycle.turn()).outcomes


async def test_a_leader_that_started_after_the_outage_is_told() -> None:
    """It saw a store that answered from its first moment; the others say what was before."""
    cluster = FakeCluster()
    witness = await FakeSidecar(cluster, "a").lead()
    await looks(cluster, 2, witness)
    await away(cluster, 15, witness)
    # The witness comes back a moment later; a fresh sidecar leads.
    cluster.store.suspend(witness.coordination)
    cluster.store.expire(witness.coordination)
    fresh = await FakeSidecar(cluster, "b").lead()
    assert fresh.leadership.leading
    cluster.store.resume(witness.coordination)
    await looks(cluster, 1, witness, fresh)
    cluster.publish()
    await fresh.cycle.turn()
    assert obstacle(fresh.cycle) is Code.SETTLING_AFTER_OUTAGE
    await looks(cluster, 183, witness, fresh)
    cluster.publish()
    assert (await fresh.cycle.turn()).outcomes
    await looks(cluster, 1, witness, fresh)
    assert witness.outage.view() is None


async def test_a_sidecar_that_alone_was_cut_off_holds_up_nobody() -> None:
    cluster = FakeCluster()
    leader, cut = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    await looks(cluster, 60, leader, cut)
    cluster.store.suspend(cut.coordination)
    await looks(cluster, 20, leader, cut)
    assert cut.outage.view() is not None
    cluster.store.expire(cut.coordination)
    cluster.store.resume(cut.coordination)
    await looks(cluster, 3, cut, leader)
    assert cut.outage.view() is None and leader.outage.view() is None
    cluster.publish()
    assert (await leader.cycle.turn()).outcomes


async def test_a_new_leader_compares_with_what_the_last_one_saw() -> None:
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    await first.cycle.turn()
    assert first.shared_state.shared.cycle_state.brokers == BROKERS
    await first.coordination.close()
    cluster.source.remove(*BROKERS[1:])
    fresh = await FakeSidecar(cluster, "b").lead()
    await fresh.cycle.turn()
    assert obstacle(fresh.cycle) is Code.SETTLING_AFTER_OUTAGE
    assert fresh.outage.view() is not None


async def test_an_old_record_of_brokers_says_nothing() -> None:
    """Hours later the cluster may be smaller on purpose."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    await first.cycle.turn()
    await first.coordination.close()
    cluster.source.remove(*BROKERS[1:])
    cluster.clock.offset += 4000
    fresh = await FakeSidecar(cluster, "b").lead()
    await fresh.cycle.turn()
    assert fresh.outage.view() is None


async def test_what_a_person_asks_for_waits_as_well() -> None:
    """Executing a plan is refused with the same reason."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    cluster.source.remove(*BROKERS[1:])
    await looks(cluster, 1, sidecar)
    await sidecar.shared_state.leave_request({"hash": "x", "moves": [["t/ns/0x1_0x2", *BROKERS[:2]]], "request": {}})
    await sidecar.executions.serve()
    assert sidecar.shared_state.tasks[0]["state"] == "failed"
    assert "left the registry at once" in sidecar.shared_state.tasks[0]["detail"]
