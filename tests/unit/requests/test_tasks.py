"""Tasks at any replica: they are known, end, and can be stopped."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import Conflict
from bundlekeel.requests.executions import REQUEST_MAX_AGE_MS
from bundlekeel.requests.tasks import Stopping
from tests.support.world import FakeCluster, FakeSidecar, WallClock
from tests.unit.requests.sidecars import (
    B1,
    B2,
    B3,
    BUNDLE,
    WHO,
    both,
    plan_of_three,
    seeing,
)


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


async def test_a_stopped_task_begins_no_further_move() -> None:
    """Stopped after its first move was begun: the others are refused, and the task says so."""
    sidecar = await seeing(FakeCluster())
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
    sidecar = await seeing(FakeCluster())
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
    sidecar = await seeing(FakeCluster())
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
