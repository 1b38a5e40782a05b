"""Drains in a whole sidecar over fakes: emptied, kept empty, seen by every replica, and stopped by whoever may."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.state.documents import Desired, OperatorRequest, Pause
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminFault, Conflict
from bundlekeel.requests.drain import GUESS_SECONDS, PARALLEL
from bundlekeel.views import listings
from tests.support.memory_admin import Fault
from tests.support.world import PIN, FakeCluster, FakeSidecar, with_params
from tests.unit.requests.sidecars import B1, B2, B3, WHO, both, draining, want

BARE = "t/bare/0x00000000_0xffffffff"


async def test_a_broker_is_emptied_with_what_nobody_reports() -> None:
    """All six bundles and one without topics leave in one cycle; heartbeat namespaces stay."""
    cluster = FakeCluster()
    cluster.model.add(BARE, B1)
    cluster.model.add(f"pulsar/{B1}/0x00000000_0xffffffff", B1)
    sidecar = await draining(cluster, B1)
    report = await sidecar.cycle.turn()
    assert report.sentence.startswith("7 bundles leave draining brokers; ")
    assert cluster.model.owned_by(B1) == [f"pulsar/{B1}/0x00000000_0xffffffff"]
    assert BARE not in cluster.owners()
    assert f"{BARE} released" in sidecar.moves()
    await sidecar.drain_tracker.look(())
    (progress,) = sidecar.drain_tracker.record().values()
    assert (progress["state"], progress["left"], progress["moved"]) == ("empty", 0, 7)
    assert progress["emptied_ms"] > 0
    assert 'drain_bundles{broker="b1:8080"} 0.0' in sidecar.metric("drain_bundles")


async def test_the_progress_is_of_the_drain_that_was_asked_for_last() -> None:
    sidecar = await draining(FakeCluster(), B1)
    await sidecar.cycle.turn()
    await sidecar.drain_tracker.look(())
    follower = await FakeSidecar(sidecar.cluster, "b").lead()
    assert sidecar.drain_tracker.progress()[B1]["state"] == "empty" and B1 in follower.drain_tracker.progress()
    later = OperatorRequest(by="ann", reason="again", since_ms=sidecar.clock.wall_ms() + 1)
    await want(sidecar, Desired(drains={B1: later}))
    await follower.shared_state.refresh()
    assert sidecar.drain_tracker.progress() == follower.drain_tracker.progress() == {}
    await sidecar.drain_tracker.look(())
    progress = sidecar.drain_tracker.progress()[B1]
    assert (progress["state"], progress["moved"], progress["since_ms"]) == ("empty", 0, later.since_ms)


async def test_a_broker_kept_empty_counts_for_no_mean() -> None:
    cluster = FakeCluster({B1: [0.2, 0.2], B2: [0.2, 0.2]})
    sidecar = await draining(cluster, B3)
    await sidecar.cycle.turn()
    state = listings.imbalances(sidecar.cycle)
    plan = (await sidecar.planner.make(PlanRequest(traffic_scale=2.0))).finished
    assert plan is not None
    assert (state.score_max_mean, state.throughput_max_mean, plan.max_mean) == (1.0, 1.0, 1.0)
    for stat in ("score", "throughput"):
        assert f'load_spread_ratio{{stat="{stat}_max_mean"}} 1.0' in sidecar.metric("load_spread_ratio")
    assert sidecar.metric("broker_pair_difference_ratio").count("broker=") == 2
    assert [row.shares_load for row in sidecar.service.brokers()] == [True, True, False]
    assert sidecar.cycle.snapshot is not None
    answer = await sidecar.service.why(sidecar.cycle.snapshot.bundles.names[0])
    at, mean = re.findall(r"at ([\d.]+%)", answer.sentence)
    assert at == mean


async def test_the_books_forget_what_no_broker_owns() -> None:
    """A bundle that was only given up leaves no open entry: balancing must not wait for its report."""
    cluster = FakeCluster({B1: []})
    cluster.model.add(BARE, B1)
    sidecar = await draining(cluster, B1)
    await sidecar.cycle.turn()
    assert sidecar.moves() == [f"{BARE} released"]
    assert sidecar.cycle.cycle_state.ledger.entries == ()


async def test_what_lands_there_leaves_again_whatever_reports_say() -> None:
    cluster = FakeCluster()
    sidecar = await draining(cluster, B1)
    await sidecar.cycle.turn()
    assert not await sidecar.drain_tracker.look(())
    bundle = next(iter(cluster.owners()))
    cluster.model.own(bundle, B1)
    assert await sidecar.drain_tracker.look(sidecar.cycle.cycle_state.ledger.under_way())
    await sidecar.cycle.turn()
    assert cluster.model.owned_by(B1) == []
    assert sidecar.drain_tracker.record()[B1]["bundle_seconds"] > 0


async def test_a_broker_that_does_not_answer_is_not_called_empty() -> None:
    cluster = FakeCluster()
    sidecar = await draining(cluster, B1, drain_max_moves_per_cycle=2)
    sidecar.admin.fail("owned_bundles", *[Fault(error=AdminFault("500"))] * 3)
    await sidecar.cycle.turn()
    assert len(cluster.model.owned_by(B1)) == 4
    progress = sidecar.drain_tracker.record()[B1]
    assert (progress["state"], progress["left"], progress["eta_seconds"]) == ("unknown", None, None)
    assert progress["detail"] == "500"
    assert sidecar.cycle.cut_off


async def test_the_gauge_of_a_drain_goes_with_its_broker() -> None:
    cluster = FakeCluster()
    sidecar = await draining(cluster, B1)
    pinned = next(iter(cluster.owners()))
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pinned={pinned: PIN}))
    await sidecar.cycle.turn()
    await sidecar.drain_tracker.look(())
    left = 'drain_bundles{broker="b1:8080"} 1.0'
    assert left in sidecar.metric("drain_bundles")
    # One that does not answer is there all the same.
    sidecar.admin.fail("owned_bundles", Fault(error=AdminFault("500")))
    await sidecar.drain_tracker.look(())
    assert left in sidecar.metric("drain_bundles")
    cluster.source.remove(B1)
    await sidecar.cycle.turn()
    assert "broker=" not in sidecar.metric("drain_bundles")
    assert sidecar.drain_tracker.record()[B1]["detail"] == "not registered"


async def test_another_replica_shows_the_progress_and_goes_on() -> None:
    """It is in the leader's state; the request is in the shared one, so the next leader drains on."""
    cluster = FakeCluster()
    first = await draining(cluster, B1, drain_max_moves_per_cycle=2)
    second = await FakeSidecar(cluster, "b", params=with_params()).lead()
    await first.cycle.turn()
    await second.shared_state.refresh()
    # Two have left since the broker was asked: each bundle counts once, as left until it is asked again.
    progress = second.drain_tracker.progress()[B1]
    assert (progress["left"], progress["moved"]) == (6, 0)
    cluster.store.expire(first.coordination)
    await second.leadership.turn()
    await second.shared_state.refresh()
    second.cycle.adopt(second.shared_state.taken_over(), second.leadership.epoch)
    await second.cycle.turn()
    assert cluster.model.owned_by(B1) == []


async def test_pins_and_paused_scopes_hold_and_are_named() -> None:
    cluster = FakeCluster()
    sidecar = await draining(cluster, B1)
    pinned = next(iter(cluster.owners()))
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pinned={pinned: PIN}))
    await sidecar.cycle.turn()
    assert cluster.model.owned_by(B1) == [pinned]
    await sidecar.cycle.turn()
    assert sidecar.drain_tracker.record()[B1]["blocked"] == {"Pinned": 1}
    assert sidecar.drain_tracker.record()[B1]["state"] == "blocked"
    # It does not end automatically: the end is unknown.
    assert sidecar.drain_tracker.record()[B1]["eta_seconds"] is None


async def test_the_eta_is_a_guess_at_first_and_then_what_moves_took() -> None:
    """Nothing was measured yet, but a guess says more than nothing; an empty broker has nothing to wait for."""
    cluster = FakeCluster()
    sidecar = await draining(cluster, B1, drain_max_moves_per_cycle=2)
    drain = sidecar.shared_state.desired
    await want(sidecar, msgspec.structs.replace(drain, pause=Pause(reason="look", by="ann", since_ms=1)))
    await sidecar.cycle.turn()
    await want(sidecar, drain)
    assert sidecar.drain_tracker.record()[B1]["eta_seconds"] == 6 * GUESS_SECONDS / PARALLEL
    await sidecar.cycle.turn()
    await sidecar.drain_tracker.look(())
    took = [item["seconds"] for item in sidecar.shared_state.moves]
    assert len(took) == 2
    assert sidecar.drain_tracker.record()[B1]["eta_seconds"] == round(4 * sum(took) / len(took) / PARALLEL, 1)
    for _ in range(2):
        await sidecar.cycle.turn()
    await sidecar.drain_tracker.look(())
    assert sidecar.drain_tracker.record()[B1]["eta_seconds"] == 0.0


async def test_a_request_that_comes_after_the_plan_holds() -> None:
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()
    fake_sidecar = await FakeSidecar(cluster, "b", mode="recommend").cycle.turn()
    assert fake_sidecar.plan is not None
    (stays, goes), epoch = fake_sidecar.plan.moves[:2], sidecar.leadership.epoch
    assert epoch is not None
    snapshot, picture = await sidecar.observer.snapshot()
    sidecar.admin.set_endpoints(picture.endpoints)
    await sidecar.config.refresh(picture.endpoints)
    await sidecar.policies.refresh(snapshot)
    operator_request = OperatorRequest(by="ann", reason="disks", since_ms=1)
    changes: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (stays, {"pinned": {stays.bundle: PIN}}, "Pinned"),
        (goes, {"cordons": {goes.target: operator_request}}, "Cordoned"),
        (goes, {"drains": {goes.target: operator_request}}, "Cordoned"),
        (stays, {"excluded": {f"b:{stays.bundle}": PIN}}, "Excluded"),
        (stays, {"excluded": {"n:t/*": PIN}}, "Excluded"),
        (goes, {"excluded": {f"r:{goes.target}": PIN}}, "Excluded"),
    )
    for move, change, code in changes:
        await want(sidecar, Desired(**change))
        (outcome,) = await sidecar.executor.carry_out([move], epoch=epoch, cycle=1, on_outcome=lambda _: None)
        assert (outcome.outcome, outcome.code) == ("refused", code)
    assert cluster.model.unloads == []


@pytest.mark.parametrize(
    "changes",
    [
        {"excluded": {"n:t/n*": PIN}},
        {"excluded": {"t:t": PIN}},
        {"excluded": {"b:t/ns/*": PIN}},
        {"excluded": {f"r:{B1}": PIN}},
        {"pauses": {"namespace:t/n?": Pause(reason="release", by="ann", since_ms=1)}},
        {"pauses": {"tenant:*": Pause(reason="release", by="ann", since_ms=1)}},
    ],
)
async def test_what_is_left_alone_amid_a_plan_stays(changes: dict[str, Any]) -> None:
    """An exclusion or pause by pattern that comes after the first move holds all others."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster).lead()

    async def in_between(_bundle: str) -> None:
        await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, **changes))

    waiting: list[asyncio.Task[None]] = []
    cluster.model.after_unload = lambda bundle: waiting.append(asyncio.ensure_future(in_between(bundle)))
    sidecar.executor._limits = replace(sidecar.executor._limits, max_in_flight=1, max_in_flight_per_broker=1)
    sidecar.executor.begin(sidecar.shared_state.current_epoch())
    report = await sidecar.cycle.turn()
    first, *others = [(outcome.outcome, outcome.code) for outcome in report.outcomes]
    assert first[0] == "done" and others
    assert set(others) == {("refused", Code.EXCLUDED if "excluded" in changes else Code.PAUSED)}


async def test_a_drain_is_dry_first_and_then_a_request_any_replica_may_write() -> None:
    """The dry run lists what moves where; the request through a follower makes the leader empty the broker."""
    leader, other = await both()
    service = other.service.requests
    dry = await service.drain(B1, dry_run=True, **WHO)
    assert (dry.bundles, len(dry.moves), dry.refusals) == (3, 3, [])
    assert dry.sentence == f"3 bundles leave {B1}"
    assert dry.eta_seconds == 3 * GUESS_SECONDS / PARALLEL
    assert other.shared_state.desired.drains == {}
    await service.drain(B1, dry_run=False, **WHO)
    await leader.shared_state.refresh()
    await leader.cycle.turn()
    assert leader.cluster.model.owned_by(B1) == []
    (row,) = (await service.operations()).drains
    assert (row.broker, row.by, row.reason) == (B1, "ann", "disks")
    (record,) = other.journal.tail(10, kind="request")
    assert record["sentence"] == f"ann asked for the drain of {B1}: disks"
    ended = await service.uncordon(B1, **WHO)
    assert ended.ended == ["drain"]
    assert (await service.operations()).drains == []


async def test_the_last_broker_is_not_drained() -> None:
    leader, _ = await both()
    service = leader.service.requests
    await service.drain(B1, dry_run=False, **WHO)
    await service.cordon(B2, **WHO)
    with pytest.raises(Conflict, match="no other broker") as last:
        await service.drain(B3, dry_run=True, **WHO)
    with pytest.raises(Conflict, match="uncordon it first") as closed:
        await service.warm(B2, dry_run=False, **WHO)
    assert (last.value.code, closed.value.code) == ("last-broker", "Cordoned")


async def test_drains_asked_at_two_replicas_at_once_leave_one_broker() -> None:
    leader, other = await both()
    faces = {B1: leader.service.requests, B2: other.service.requests, B3: other.service.requests}
    views = [service.drain(broker, dry_run=False, **WHO) for broker, service in faces.items()]
    answers = await asyncio.gather(*views, return_exceptions=True)
    (refused,) = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(refused, Conflict) and "no other broker" in str(refused)
    await leader.shared_state.refresh()
    assert len(leader.shared_state.desired.drains) == 2
