"""Operators' requests at any replica: who may ask what, what the dry run of a drain shows, stops, and a second
person.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.state.documents import Pause
from bundlekeel.leader.state.shared_state import DESIRED
from bundlekeel.model.codes import Code, explain
from bundlekeel.model.errors import Conflict, Forbidden, NotFound, SnapshotError
from bundlekeel.requests.drain import GUESS_SECONDS, PARALLEL
from bundlekeel.requests.executions import REQUEST_MAX_AGE_MS
from bundlekeel.requests.review import EXPIRES_MS
from bundlekeel.requests.tasks import Stopping
from tests.support.builders import bundle_name
from tests.support.world import BROKERS, PIN, FakeCluster, FakeSidecar, WallClock

B1, B2, B3 = BROKERS
WHO: dict[str, Any] = {"reason": "disks", "by": "ann"}
BUNDLE = bundle_name(0)
NAMESPACE = BUNDLE.rpartition("/")[0]


async def both(**more: Any) -> tuple[FakeSidecar, FakeSidecar]:
    """A leader and a follower that have seen the cluster; nothing has moved yet."""
    cluster = FakeCluster({B1: [0.1, 0.05, 0.0], B2: [0.1], B3: [0.1]})
    leader, other = await FakeSidecar(cluster, "a", **more).lead(), await FakeSidecar(cluster, "b", **more).lead()
    for sidecar in (leader, other):
        await sidecar.cycle.turn()
    return leader, other


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


async def test_a_request_whose_answer_was_lost_may_be_sent_again() -> None:
    sidecar, _ = await both()
    service, requests = sidecar.service, sidecar.service.requests
    for _ in range(2):
        await requests.drain(B1, dry_run=False, **WHO)
        await requests.warm(B2, dry_run=False, **WHO)
        await requests.cordon(B1, **WHO)
        await requests.pin(BUNDLE, seconds=60, **WHO)
        await requests.exclude("t:t", seconds=None, **WHO)
        await requests.pause_scope("tenant:t", seconds=60, **WHO)
        await service.pause(seconds=60, **WHO)
        await service.set_mode("act", **WHO)
        await service.resume(**WHO)
    view = await requests.operations()
    assert [len(rows) for rows in (view.drains, view.warms, view.cordons, view.pins, view.exclusions)] == [1] * 5
    ends = [
        lambda: requests.uncordon(B1, **WHO),
        lambda: requests.unpin(BUNDLE, **WHO),
        lambda: requests.include("t:t", **WHO),
        lambda: requests.resume_scope("tenant:t", **WHO),
    ]
    for end in ends:
        await end()
        with pytest.raises(NotFound):
            await end()


async def test_a_transfer_that_is_sent_again_moves_nothing_more() -> None:
    """Left twice before the leader took either: the second task fails with what changed; left later it is refused."""
    leader, other = await both()
    ask = {"to": B3, "execute": True, **WHO}
    tasks = [(await other.service.requests.transfer(BUNDLE, **ask)).task for _ in range(2)]
    await leader.executions.serve()
    first, second = [await leader.service.requests.task(str(task)) for task in tasks]
    assert (first.state, second.state) == ("done", "failed") and first.hash == second.hash
    assert second.difference == [f"{BUNDLE} is owned by {B3} now"]
    with pytest.raises(Conflict):
        await leader.service.requests.transfer(BUNDLE, **ask)


async def test_what_is_asked_of_a_broker_stands_with_it() -> None:
    leader, other = await both()
    await other.service.requests.cordon(B2, **WHO)
    await other.service.requests.drain(B1, dry_run=False, **WHO)
    await leader.shared_state.refresh()
    for sidecar in (leader, other):
        rows = sidecar.service.brokers()
        assert [(row.broker, row.requested) for row in rows] == [(B1, "drain"), (B2, "cordon"), (B3, "")]


@pytest.mark.parametrize(
    ("hindered", "value"),
    [
        ("an outage", ""),
        ("shedding", "BrokersShedThemselves"),
        ("unknown settings", "BrokerSettingsUnknown"),
        ("no channel", "ChannelNotFollowed"),
    ],
)
async def test_what_holds_all_moves_stands_with_the_requests(hindered: str, value: str) -> None:
    """Rule: the obstacle of the leader's last cycle is shown on every replica; a held drain has no estimated end."""
    cluster = FakeCluster({B1: [0.1, 0.05], B2: [0.1], B3: [0.1]}, shedding=hindered == "shedding")
    leader, other = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    if hindered == "unknown settings":
        leader.admin.unauthorized = other.admin.unauthorized = frozenset({B3})
    if hindered == "no channel":
        cluster.source.mode = "extensible"
        await leader.channel.turn()
    for sidecar in (leader, other):
        await sidecar.cycle.turn()
    await other.service.requests.drain(B1, dry_run=False, **WHO)
    if hindered == "an outage":
        cluster.source.remove(B2, B3)
        await leader.cycle.turn()
        cluster.publish()
    for sidecar in (leader, other):
        await sidecar.shared_state.refresh()
        await sidecar.cycle.turn()
    await other.shared_state.refresh()
    assert other.shared_state.shared.report["obstacle"] == (value or "SettlingAfterOutage")
    for sidecar in (leader, other):
        view = await sidecar.service.requests.operations()
        assert (view.held, view.held_explanation) == (value, explain(value))
        assert (view.drains[0].eta_seconds is None) is bool(value)
        assert (await sidecar.service.requests.warm(B2, dry_run=True, **WHO)).held == value


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


async def test_the_last_open_broker_is_not_cordoned() -> None:
    leader, other = await both()
    await leader.service.requests.drain(B1, dry_run=False, **WHO)
    await leader.service.requests.cordon(B2, **WHO)
    await leader.service.requests.cordon(B2, **WHO | {"reason": "new disks"})
    assert not other.shared_state.desired.cordons
    with pytest.raises(Conflict, match=f"no other broker is open .* all but {B3} are drained or cordoned; uncordon"):
        await other.service.requests.cordon(B3, **WHO)
    await leader.shared_state.refresh()
    assert set(leader.shared_state.desired.cordons) == {B2}
    await leader.service.requests.uncordon(B1, **WHO)
    assert (await other.service.requests.cordon(B3, **WHO)).state == "cordoned"


async def test_cordons_asked_at_two_replicas_at_once_leave_one_broker() -> None:
    leader, other = await both()
    faces = {B1: leader.service.requests, B2: other.service.requests, B3: other.service.requests}
    views = [service.cordon(broker, **WHO) for broker, service in faces.items()]
    answers = await asyncio.gather(*views, return_exceptions=True)
    assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [Conflict]
    await leader.shared_state.refresh()
    assert len(leader.shared_state.desired.cordons) == 2


async def test_drains_asked_at_two_replicas_at_once_leave_one_broker() -> None:
    leader, other = await both()
    faces = {B1: leader.service.requests, B2: other.service.requests, B3: other.service.requests}
    views = [service.drain(broker, dry_run=False, **WHO) for broker, service in faces.items()]
    answers = await asyncio.gather(*views, return_exceptions=True)
    (refused,) = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(refused, Conflict) and "no other broker" in str(refused)
    await leader.shared_state.refresh()
    assert len(leader.shared_state.desired.drains) == 2


async def test_a_warm_that_brings_nothing_says_why() -> None:
    """The broker has its share, or what could come is bound."""
    leader, _ = await both()
    dry = await leader.service.requests.warm(B1, dry_run=True, **WHO)
    assert (dry.moves, dry.detail) == ([], "it carries its share: its load is 15.0%, the mean 11.7%")
    pinned = dict.fromkeys(leader.cluster.shares, PIN)
    await leader.shared_state.change_desired(lambda result: msgspec.structs.replace(result, pinned=pinned))
    dry = await leader.service.requests.warm(B2, dry_run=True, **WHO)
    assert dry.moves == [] and dry.detail.endswith(": 3 Pinned")


async def test_a_broker_cordoned_at_another_replica_is_not_warmed() -> None:
    """The replica that is asked has not read of the cordon yet."""
    leader, other = await both()
    await leader.service.requests.cordon(B2, **WHO)
    assert B2 not in other.shared_state.desired.cordons
    with pytest.raises(Conflict, match="uncordon it first"):
        await other.service.requests.warm(B2, dry_run=False, **WHO)
    await leader.shared_state.refresh()
    assert leader.shared_state.desired.warms == {}


async def test_nobody_knows_these() -> None:
    """Brokers that are not registered, pins and exclusions that are not there."""
    leader, _ = await both()
    service = leader.service.requests
    for call in (
        service.drain("b9:8080", dry_run=True, **WHO),
        service.warm("b9:8080", dry_run=True, **WHO),
        service.cordon("b9:8080", **WHO),
        service.uncordon(B1, **WHO),
        service.unpin(BUNDLE, **WHO),
        service.include("t:shop", **WHO),
        service.resume_scope("tenant:shop", **WHO),
        service.stop("req-9", **WHO),
    ):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(NotFound):
        await service.task("req-9")


async def test_before_the_first_picture_nothing_is_shown() -> None:
    """A sidecar that has seen nothing says so."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    with pytest.raises(SnapshotError, match="no picture of the cluster yet; try again in a few seconds"):
        await sidecar.service.requests.drain(B1, dry_run=True, **WHO)


async def test_a_sidecar_without_a_seat_names_one_that_has_one() -> None:
    """It never sees the cluster, so to try again would not help."""
    cluster = FakeCluster()
    leader = await FakeSidecar(cluster, "a", settings={"leadership.seats": 1}).lead()
    leader.leadership.member = replace(leader.leadership.member, url="http://a:8090")
    other = await FakeSidecar(cluster, "b", settings={"leadership.seats": 1}).lead()
    expected = r"no picture of the cluster: no seat is free \(leadership.seats is 1\); ask a: bundlekeel --url "
    with pytest.raises(SnapshotError, match=expected):
        await other.service.requests.drain(B1, dry_run=True, **WHO)
    with pytest.raises(SnapshotError, match=expected):
        await other.service.make_plan(PlanRequest())
    with pytest.raises(NotFound, match=expected):
        await other.service.why(B1)


async def test_wishes_are_asked_for_again_while_an_unreadable_document_is_a_pause() -> None:
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    await sidecar.coordination.write_shared(DESIRED, b"torn", version=None)
    await sidecar.shared_state.refresh()
    assert "`bundlekeel pause` keeps a copy" in sidecar.shared_state.desired.pause.reason
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


async def test_manually_is_dry_until_told_and_needs_mode_act() -> None:
    """Executed at a follower, carried out by the leader."""
    leader, other = await both()
    answer = await other.service.requests.transfer(BUNDLE, to=B3, **WHO)
    assert (answer.dry_run, answer.task, answer.state, answer.held) == (True, None, "planned", "")
    answer = await other.service.requests.transfer(BUNDLE, to=B3, execute=True, **WHO)
    assert (answer.dry_run, answer.state) == (False, "waiting")
    await leader.executions.serve()
    task = await leader.service.requests.task(answer.task)
    assert (task.state, task.by, task.reason) == ("done", "ann", "disks")
    assert leader.cluster.owners()[BUNDLE] == B3
    with pytest.raises(Conflict, match="SameBroker") as refused:
        await leader.service.requests.transfer(BUNDLE, to=B3, execute=True, override_cool_down=True, **WHO)
    assert refused.value.code == "SameBroker"
    careful = await FakeSidecar(leader.cluster, "c", mode="recommend").lead()
    await careful.cycle.turn()
    for looked_at in (
        await careful.service.requests.unload(BUNDLE),
        await careful.service.requests.unload_namespace(NAMESPACE),
        await careful.service.requests.drain(B1, dry_run=True, **WHO),
    ):
        assert (looked_at.held, looked_at.held_explanation) == ("RecommendOnly", Code.RECOMMEND_ONLY.explanation)
    with pytest.raises(Forbidden, match="mode is `recommend`"):
        await careful.service.requests.unload(BUNDLE, execute=True, **WHO)


async def test_a_task_is_known_from_the_moment_it_was_asked_for() -> None:
    """At any replica: it waits for the leader, it runs, it is done."""
    leader, other = await both()
    service = other.service.requests
    task = (await service.transfer(BUNDLE, to=B3, execute=True, **WHO)).task
    for sidecar in (leader, other):
        waiting = await sidecar.service.requests.task(task)
        assert (waiting.task, waiting.kind, waiting.state) == (task, "transfer", "waiting")
        assert (waiting.by, waiting.reason, waiting.moves) == ("ann", "disks", [])
    current: list[str] = []

    async def look() -> None:
        current.append((await service.task(task)).state)

    looks: list[asyncio.Task[None]] = []
    leader.cluster.model.after_unload = lambda _bundle: looks.append(asyncio.ensure_future(look()))
    await leader.executions.serve()
    await asyncio.gather(*looks)
    assert current == ["running"]
    await other.shared_state.refresh()
    assert (await service.task(task)).state == "done"


async def test_what_waited_too_long_is_not_carried_out() -> None:
    """No sidecar led for a while: who asked has given up, or asked again."""
    cluster = FakeCluster({B1: [0.1, 0.05], B2: [0.1], B3: [0.1]}, clock=WallClock())
    sidecar = await FakeSidecar(cluster).lead()
    await sidecar.cycle.turn()
    service = sidecar.service.requests
    task = (await service.transfer(BUNDLE, to=B3, execute=True, **WHO)).task
    cluster.clock.offset += REQUEST_MAX_AGE_MS / 1000 + 60
    cluster.publish()
    await sidecar.executions.serve()
    task_view = await service.task(task)
    assert (task_view.state, task_view.moves) == ("failed", [])
    assert task_view.detail == "not carried out: too old, it waited for 11 min, 10 min are the limit; ask again"
    assert cluster.model.unloads == []
    task = (await service.transfer(BUNDLE, to=B3, execute=True, **WHO)).task
    await sidecar.executions.serve()
    assert (await service.task(task)).state == "done"


async def plan_of_three(sidecar: FakeSidecar) -> tuple[str, dict[str, Any]]:
    """A plan of several moves, and the request that carries it out."""
    plan = await sidecar.planner.make(PlanRequest())
    moves = [[move.bundle, move.source, move.target] for move in plan.moves]
    assert len(moves) >= 2
    return plan.hash, {"hash": plan.hash, "moves": moves, "request": {}, **WHO}


async def uneven(**settings: str) -> FakeSidecar:
    """A leader that has seen an uneven cluster, and was paused meanwhile."""
    sidecar = await FakeSidecar(FakeCluster(), settings=settings).lead()
    pause = Pause(reason="look", by="ann", since_ms=1)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=pause))
    await sidecar.cycle.turn()
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=None))
    return sidecar


async def test_a_stopped_task_begins_no_further_move() -> None:
    """Stopped after its first move was begun: the others are refused, and the task says so."""
    sidecar = await uneven()
    service = sidecar.service.requests
    _, body = await plan_of_three(sidecar)
    asked_ms = sidecar.clock.wall_ms()
    task = await sidecar.shared_state.leave_request(body)
    left_ms = (await service.task(task)).left_ms
    assert asked_ms <= left_ms <= sidecar.clock.wall_ms()
    stopped: list[asyncio.Task[Any]] = []

    def on_first(bundle: str) -> None:
        if not stopped:
            operator_request = service._operator_request("enough", "bob")
            desired = sidecar.shared_state.desired
            changed = msgspec.structs.replace(desired, stops={task: operator_request})
            stopped.append(asyncio.ensure_future(sidecar.shared_state.change_desired(lambda _: changed)))

    sidecar.cluster.model.after_unload = on_first
    sidecar.executor._limits = replace(sidecar.executor._limits, max_in_flight=1, max_in_flight_per_broker=1)
    sidecar.executor.begin(sidecar.shared_state.current_epoch())
    await sidecar.executions.serve()
    task_view = await service.task(task)
    assert (task_view.state, task_view.left_ms) == ("stopped", left_ms), (
        "two tasks may have one hash: the time tells them apart"
    )
    outcomes = [move.outcome for move in task_view.moves]
    assert outcomes[0] == "done" and set(outcomes[1:]) == {"refused"}
    assert {move.code for move in task_view.moves[1:]} == {"Stopped"}
    assert sidecar.executor.request is None
    with pytest.raises(Conflict, match="stopped already"):
        await service.stop(task, **WHO)


@pytest.mark.parametrize(("stays", "state"), [(1, "done"), (99, "failed")])
async def test_a_plan_fails_when_none_of_its_moves_landed(stays: int, state: str) -> None:
    """The first, or each, is back at its source: the rows of `moves` say which."""
    sidecar = await uneven()
    _, body = await plan_of_three(sidecar)
    sources = {bundle: source for bundle, source, _ in body["moves"][:stays]}
    model = sidecar.cluster.model
    model.after_unload = lambda bundle: model.own(bundle, sources[bundle]) if bundle in sources else None
    task = await sidecar.shared_state.leave_request(body)
    await sidecar.executions.serve()
    task_view = await sidecar.service.requests.task(task)
    assert task_view.state == state
    assert {row.bundle for row in task_view.moves if row.code == Code.STILL_AT_SOURCE} == set(sources)


async def test_a_task_stopped_while_it_waits_moves_nothing() -> None:
    """The leader has not taken it yet; old stops are forgotten by the next one."""
    sidecar = await uneven()
    service = sidecar.service.requests
    await sidecar.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, stops={"req-old": service._operator_request("x", "y")})
    )
    _, body = await plan_of_three(sidecar)
    task = await sidecar.shared_state.leave_request(body)
    assert (await service.stop(task, **WHO)).state == "stopping"
    await sidecar.executions.serve()
    task_view = await service.task(task)
    assert task_view.state == "stopped" and task_view.detail.endswith("before this move was started (by ann: disks)")
    assert sidecar.cluster.model.unloads == []


async def test_a_follower_that_has_not_looked_since_stops_a_task_under_way() -> None:
    """Neither waiting any more nor known to the follower yet: it looks before it says there is no such task."""
    leader, other = await both()
    service = other.service.requests
    task = (await service.transfer(BUNDLE, to=B2, execute=True, **WHO)).task
    requests: list[asyncio.Task[Any]] = []
    leader.cluster.model.after_unload = lambda _: requests.append(asyncio.ensure_future(service.stop(task, **WHO)))
    await leader.executions.serve()
    assert await requests[0] == Stopping(task=task, state="stopping")


async def test_a_second_person_approves_and_the_plan_is_carried_out() -> None:
    sidecar = await uneven(review="required")
    service = sidecar.service.requests
    hash_, body = await plan_of_three(sidecar)
    left = await service.submit(hash_, "plan", body)
    assert left == {"task": "", "state": "proposed", "review": hash_}
    (row,) = await service.reviews()
    assert (row.state, row.actions, row.by) == ("proposed", ["approve", "discard"], "ann")
    with pytest.raises(Conflict, match="proposed already"):
        await service.submit(hash_, "plan", body)
    with pytest.raises(Forbidden, match="another operator"):
        await service.approve(hash_, reason="me", by=" Ann ")
    approved = await service.approve(hash_, reason="fine", by="bob")
    assert (approved.state, approved.reviewer, approved.actions) == ("executing", "bob", ["stop"])
    await sidecar.executions.serve()
    (row,) = await service.reviews()
    assert (row.state, row.actions) == ("done", [])
    with pytest.raises(Conflict, match="it is done"):
        await service.discard(hash_, reason="late", by="bob")
    assert sidecar.cluster.model.unloads


async def test_an_approved_plan_that_has_changed_is_aborted() -> None:
    sidecar = await uneven(review="required")
    service = sidecar.service.requests
    hash_, body = await plan_of_three(sidecar)
    await service.submit(hash_, "plan", {**body, "moves": body["moves"][:1]})
    await service.approve(hash_, reason="fine", by="bob")
    await sidecar.executions.serve()
    (row,) = await service.reviews()
    assert row.state == "aborted"
    assert sidecar.cluster.model.unloads == []


async def test_what_is_discarded_or_too_old_is_not_carried_out() -> None:
    sidecar = await uneven(review="required")
    service = sidecar.service.requests
    hash_, body = await plan_of_three(sidecar)
    await service.submit(hash_, "plan", body)
    assert (await service.discard(hash_, reason="no", by="ann")).state == "discarded"
    with pytest.raises(Conflict, match="nothing may be done"):
        await service.approve(hash_, reason="fine", by="bob")
    await service.submit(hash_, "plan", body)
    sidecar.clock.offset += EXPIRES_MS / 1000 + 1
    with pytest.raises(Conflict, match="expired"):
        await service.approve(hash_, reason="fine", by="bob")
    with pytest.raises(NotFound):
        await service.approve("feed", reason="fine", by="bob")
    assert await sidecar.shared_state.take_requests() == []


async def test_moves_manually_wait_for_the_second_person_too() -> None:
    """Otherwise they would be the way around it."""
    sidecar = await uneven(review="required")
    service = sidecar.service.requests
    answer = await service.transfer(BUNDLE, to=B3, execute=True, **WHO)
    assert (answer.task, answer.state) == (None, "proposed")
    assert await sidecar.shared_state.take_requests() == []
    await service.approve(answer.review, reason="fine", by="bob")
    await sidecar.executions.serve()
    assert sidecar.cluster.owners()[BUNDLE] == B3
