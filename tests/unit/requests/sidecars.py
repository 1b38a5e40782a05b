"""Sidecars that have seen a cluster, for the tests of operators' requests."""

from __future__ import annotations

from typing import Any

import msgspec

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.state.documents import Desired, OperatorRequest, Pause
from tests.support.builders import bundle_name
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params

B1, B2, B3 = BROKERS
BUNDLE = bundle_name(0)
WHO: dict[str, Any] = {"reason": "disks", "by": "ann"}


async def both(**more: Any) -> tuple[FakeSidecar, FakeSidecar]:
    """A leader and a follower that have seen the cluster; nothing has moved yet."""
    cluster = FakeCluster({B1: [0.1, 0.05, 0.0], B2: [0.1], B3: [0.1]})
    leader, other = await FakeSidecar(cluster, "a", **more).lead(), await FakeSidecar(cluster, "b", **more).lead()
    for sidecar in (leader, other):
        await sidecar.cycle.turn()
    return leader, other


async def plan_of_three(sidecar: FakeSidecar) -> tuple[str, dict[str, Any]]:
    """A plan of several moves, and the request that carries it out."""
    plan = await sidecar.planner.make(PlanRequest())
    moves = [[move.bundle, move.source, move.target] for move in plan.moves]
    assert len(moves) >= 2
    return plan.hash, {"hash": plan.hash, "moves": moves, "request": {}, **WHO}


async def seeing(cluster: FakeCluster | None = None, **more: Any) -> FakeSidecar:
    sidecar = await FakeSidecar(cluster or FakeCluster({B1: [0.2, 0.1], B2: [0.15], B3: [0.15]}), **more).lead()
    pause = Pause(reason="look", by="ann", since_ms=1)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=pause))
    await sidecar.cycle.turn()
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=None))
    return sidecar


async def carried_out(sidecar: FakeSidecar, operator_request: dict[str, Any]) -> dict[str, Any]:
    """The task of this request after the leader served it."""
    task = await sidecar.shared_state.leave_request({**operator_request, "reason": "r", "by": "ann"})
    await sidecar.executions.serve()
    (tasks,) = [item for item in sidecar.shared_state.tasks if item["task"] == task]
    return tasks


async def draining(cluster: FakeCluster, *brokers: str, name: str = "a", **params: object) -> FakeSidecar:
    """A leading sidecar that is to drain these brokers."""
    sidecar = await FakeSidecar(cluster, name, params=with_params(**params)).lead()
    operator_request = OperatorRequest(by="ann", reason="disks", since_ms=sidecar.clock.wall_ms() - 1)
    requests = dict.fromkeys(brokers, operator_request)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, drains=requests))
    return sidecar


async def want(sidecar: FakeSidecar, desired: Desired) -> None:
    """Nothing but this."""
    await sidecar.shared_state.change_desired(lambda _: desired)
