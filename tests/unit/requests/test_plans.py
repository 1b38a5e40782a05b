"""Plans at any replica: found wherever they were made, and refused at once when they would not be the same any more."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from typing import Any

import msgspec
import pytest

from bundlekeel.api.schemas import PlanBody
from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.cycle.planner import parameters_of
from bundlekeel.leader.state.documents import Desired, Pause
from bundlekeel.model.errors import Conflict, Forbidden, NotFound, StoreError
from bundlekeel.model.members import Member
from bundlekeel.model.parameters import Parameters, compat_defaults
from bundlekeel.model.response_fields import Json
from bundlekeel.requests.plans import Plans, request_of
from tests.support.builders import bundle_name
from tests.support.world import BROKERS, PATIENT, PIN, FakeCluster, FakeSidecar
from tests.unit.leader.cycle.test_splits import CHILDREN, PARENT, hot_cluster

WHO: dict[str, Any] = {"reason": "even it out", "by": "ann"}
AT_ONCE = PlanRequest(ignore_hit_counts=True)


class Replicas:
    """Two sidecars that reach each other as over HTTP; `away` do not answer. Implements `ports.Peers`."""

    def __init__(self) -> None:
        self.plans: dict[str, Plans] = {}
        self.away: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def _of(self, url: str, what: str) -> Plans:
        self.asked.append((url, what))
        if url in self.away:
            raise StoreError(f"{url} does not answer")
        return self.plans[url]

    async def make_plan(self, url: str, request: Any) -> Json:
        model = PlanBody.model_validate(request).request()
        return asdict(await self._of(url, "make_plan").make(model))

    async def plan(self, url: str, hash_: str) -> Json | None:
        try:
            return asdict(await self._of(url, "plan").find(hash_, here=True))
        except NotFound:
            return None

    async def close(self) -> None:
        """Nothing is open."""

    def join(self, sidecar: FakeSidecar, url: str) -> Plans:
        """The plans of this sidecar, which the others find under the URL."""
        self.plans[url] = Plans(
            leadership=sidecar.leadership,
            planner=sidecar.planner,
            peers=self,
            operator_requests=sidecar.service.requests,
        )
        return self.plans[url]


async def two(cluster: FakeCluster | None = None, *, ceiling: str = "act") -> tuple[Replicas, FakeSidecar, FakeSidecar]:
    """A leader `a` and a follower `b` that have seen an uneven cluster."""
    cluster, replicas = cluster or FakeCluster(), Replicas()
    created = []
    for name in "ab":
        sidecar = FakeSidecar(cluster, name, mode=ceiling, params=PATIENT)
        sidecar.leadership.member = Member(id=name, url=f"http://{name}")
        replicas.join(sidecar, f"http://{name}")
        created.append(await sidecar.lead())
    leader, follower = created
    for sidecar in (leader, follower, leader):
        await sidecar.leadership.turn()
        await sidecar.cycle.turn()
    assert leader.leadership.leading and not follower.leadership.leading
    return replicas, leader, follower


async def test_a_plan_is_found_at_every_replica_wherever_it_was_made() -> None:
    replicas, leader, _ = await two()
    a, b = replicas.plans["http://a"], replicas.plans["http://b"]
    plan = await a.make(AT_ONCE)
    assert plan.moves and (await b.find(plan.hash)).moves == plan.moves
    assert replicas.asked == [("http://a", "plan")]
    with pytest.raises(NotFound):
        await b.find("feed", here=True)
    replicas.away.add("http://a")
    alone = await b.make(PlanRequest(ignore_hit_counts=True, parameters={"max_moves_per_cycle": 1}))
    replicas.away.clear()
    assert not alone.by_leader and (await a.find(alone.hash)).request == alone.request
    left = await b.execute(plan.hash, **WHO)
    await leader.executions.serve()
    (task,) = leader.shared_state.tasks
    assert (task["task"], task["state"]) == (left.task, "done")
    expected = {move.bundle: move.target for move in plan.moves}
    assert {bundle: leader.cluster.owners()[bundle] for bundle in expected} == expected


async def test_a_plan_nobody_knows_is_not_found() -> None:
    replicas, leader, _ = await two()
    a, b = replicas.plans["http://a"], replicas.plans["http://b"]
    with pytest.raises(NotFound, match="no plan feed"):
        await b.find("feed")
    replicas.away.add("http://a")
    with pytest.raises(NotFound, match="a did not answer"):
        await b.find("feed")
    replicas.asked.clear()
    for name in ("..", "x/../../pause", "FEED", ""):
        with pytest.raises(NotFound):
            await b.find(name)
    assert replicas.asked == []
    replicas.away.clear()
    plan = await a.make(AT_ONCE)
    leader.clock.offset += 16 * 60
    with pytest.raises(NotFound):
        await b.execute(plan.hash, **WHO)


@pytest.mark.parametrize("at", ["http://a", "http://b"])
@pytest.mark.parametrize("away", [set(), {"http://a"}], ids=["reached", "leader away"])
async def test_a_plan_whose_inputs_changed_is_refused_at_once(at: str, away: set[str]) -> None:
    replicas, leader, follower = await two()
    plans = replicas.plans[at]
    plan = await plans.make(AT_ONCE)
    replicas.away |= away
    first = plan.moves[0].bundle
    leader.cluster.model.owners[first] = leader.cluster.model.owners.pop(first).__class__(broker_id=BROKERS[1])
    leader.cluster.publish()
    for sidecar in (leader, follower):
        await sidecar.cycle.turn()
    with pytest.raises(Conflict, match="the inputs changed since the plan was made") as caught:
        await plans.execute(plan.hash, **WHO)
    assert any(first in line for line in caught.value.difference)
    assert await leader.shared_state.take_requests() == [] and leader.cluster.model.unloads == []


async def test_the_splits_of_a_plan_are_carried_out_too() -> None:
    replicas, leader, _ = await two(hot_cluster())
    plans = replicas.plans["http://b"]
    plan = await plans.make(AT_ONCE)
    assert [split.bundle for split in plan.splits] == [PARENT] and plan.moves == []
    left = await plans.execute(plan.hash, **WHO)
    assert (left.moves, left.splits) == (0, 1)
    await leader.executions.serve()
    (task,) = await leader.service.tasks()
    assert (task.state, task.detail) == ("done", "1 of 1 split")
    assert {*CHILDREN} <= leader.cluster.owners().keys()
    await leader.cycle.turn()
    with pytest.raises(Conflict) as caught:
        await plans.execute(plan.hash, **WHO)
    assert f"{PARENT} would no longer be split" in caught.value.difference


async def test_a_pause_amid_a_plan_leaves_its_other_splits() -> None:
    """The gate is asked before each; the task says how far it came."""
    cluster = FakeCluster({BROKERS[0]: [0.4, 0.4], BROKERS[1]: [0.1], BROKERS[2]: []})
    for bundle in (PARENT, bundle_name(1)):
        cluster.put_topics(bundle, 0.2, 0.2)
    cluster.publish()
    replicas, leader, _ = await two(cluster)
    result = await replicas.plans["http://a"].make(AT_ONCE)
    assert len(result.splits) == 2 and result.moves == []
    await replicas.plans["http://a"].execute(result.hash, **WHO)
    pauses = list[asyncio.Task[Any]]()

    def paused(desired: Desired) -> Desired:
        return msgspec.structs.replace(desired, pause=Pause(reason="r", by="ann", since_ms=1))

    divided = cluster.model.after_split

    def pause(bundle: str, children: tuple[str, ...]) -> None:
        divided(bundle, children)
        pauses.append(asyncio.create_task(leader.shared_state.change_desired(paused)))

    cluster.model.after_split = pause
    await leader.executions.serve()
    (task,) = leader.shared_state.tasks
    assert (task["state"], task["detail"][:30]) == ("failed", "1 of 2 split; not carried out:")
    assert len(pauses) == 1


async def test_a_plan_is_running_while_its_splits_are_and_cycles_between_them_are_no_part_of_it() -> None:
    """It may be stopped; and what a cycle moves by itself meanwhile is asked of the gate as such, and recorded so."""
    cluster = FakeCluster({BROKERS[0]: [0.4, 0.4], BROKERS[1]: [0.01, 0.01], BROKERS[2]: []})
    for bundle in (PARENT, bundle_name(1)):
        cluster.put_topics(bundle, 0.2, 0.2)
    cluster.publish()
    replicas, leader, _ = await two(cluster)
    result = await replicas.plans["http://a"].make(AT_ONCE)
    left = await replicas.plans["http://a"].execute(result.hash, **WHO)
    assert left.splits == 2
    states, turns, divided = list[str](), list[asyncio.Task[Any]](), cluster.model.after_split

    async def drained() -> None:
        await leader.service.requests.drain(BROKERS[1], dry_run=False, **WHO)
        await leader.cycle.turn()

    def between(bundle: str, children: tuple[str, ...]) -> None:
        divided(bundle, children)
        states.extend(task["state"] for task in leader.shared_state.tasks)
        if not turns:
            turns.append(asyncio.create_task(drained()))

    cluster.model.after_split = between
    await leader.executions.serve()
    await turns[0]
    assert states == ["running", "running"]
    records = leader.journal.tail(10, kind="move")
    assert records and left.task not in {record["cycle"] for record in records}
    assert leader.executor.request is None and [task["state"] for task in leader.shared_state.tasks] == ["done"]


async def test_what_was_carried_out_is_not_carried_out_again() -> None:
    """The second time its bundles are where they were to go: a conflict, and no second task."""
    replicas, leader, _ = await two()
    for url in ("http://a", "http://b"):
        result = await replicas.plans["http://a"].make(AT_ONCE)
        if url == "http://a":
            await replicas.plans[url].execute(result.hash, **WHO)
            await leader.executions.serve()
            done = result.hash
        with pytest.raises(Conflict):
            await replicas.plans[url].execute(done, **WHO)
    assert len(leader.shared_state.tasks) == 1 and await leader.shared_state.take_requests() == []


async def test_a_task_that_fails_for_what_changed_says_what() -> None:
    """Changed between the answer and the leader's own look: the task has the difference."""
    replicas, leader, _ = await two()
    result = await replicas.plans["http://a"].make(AT_ONCE)
    await replicas.plans["http://a"].execute(result.hash, **WHO)
    await leader.shared_state.change_desired(
        lambda desired: desired.__class__(pinned={result.moves[0].bundle: PIN}),
    )
    await leader.executions.serve()
    (task,) = leader.shared_state.tasks
    assert task["state"] == "failed"
    assert f"{result.moves[0].bundle} would no longer move" in task["difference"]


async def test_nothing_is_carried_out_where_the_mode_forbids_it() -> None:
    """Before anything is planned again; a what-if never is, wherever it was made."""
    replicas, _, _ = await two(ceiling="recommend")
    a, b = replicas.plans["http://a"], replicas.plans["http://b"]
    plan = await a.make(AT_ONCE)
    with pytest.raises(Forbidden, match="mode is `recommend`"):
        await b.execute(plan.hash, **WHO)
    replicas, _, _ = await two()
    a, acting = replicas.plans["http://a"], replicas.plans["http://b"]
    for changed in ({"traffic_scale": 2.0}, {"add_brokers": ("new-1",)}):
        other = await a.make(PlanRequest(ignore_hit_counts=True, **changed))
        with pytest.raises(Forbidden, match="what-if"):
            await acting.execute(other.hash, **WHO)


async def test_what_waits_for_the_leader_is_among_the_tasks() -> None:
    """At every replica from the moment it was asked for, once, and then what became of it; a store that is away
    hides nothing that is known."""
    replicas, leader, follower = await two()
    a, b = replicas.plans["http://a"], replicas.plans["http://b"]
    plan = await a.make(AT_ONCE)
    left = await b.execute(plan.hash, **WHO)
    for sidecar in (leader, follower):
        (task,) = await sidecar.service.tasks()
        assert (task.task, task.state, task.hash) == (left.task, "waiting", plan.hash)
        assert (task.by, task.reason) == (WHO["by"], WHO["reason"])
    await leader.executions.serve()
    for sidecar in (leader, follower):
        (task,) = await sidecar.service.tasks()
        assert (task.task, task.state) == (left.task, "done")
    follower.cluster.store.suspend(follower.coordination)
    assert [item.state for item in await follower.service.tasks()] == ["done"]


async def test_tasks_of_another_release_are_shown_with_what_they_have() -> None:
    """It may have stored fewer fields of a task, and of its moves."""
    _, _, follower = await two()
    moved = {"bundle": bundle_name(0), "outcome": "done"}
    follower.shared_state.tasks = [{"task": "r1", "state": "done", "moves": [moved]}, {"task": "r2", "state": "failed"}]
    follower.cluster.store.suspend(follower.coordination)
    first, second = await follower.service.tasks()
    assert (first.task, first.hash, first.moves[0].outcome, first.moves[0].code) == ("r1", "", "done", None)
    assert (second.state, second.moves) == ("failed", [])


async def test_a_follower_passes_added_brokers_on_to_the_leader() -> None:
    replicas, _, _ = await two()
    request = PlanRequest(ignore_hit_counts=True, add_brokers=("new-1", "new-2"))
    result = await replicas.plans["http://b"].make(request)
    assert result.by_leader and replicas.asked == [("http://a", "make_plan")]
    assert request_of({"request": json.loads(json.dumps(result.request))}) == request


async def test_a_sidecar_of_the_release_before_reads_a_plan_without_added_brokers() -> None:
    replicas, leader, _ = await two()
    result = await replicas.plans["http://a"].make(AT_ONCE)
    await replicas.plans["http://b"].execute(result.hash, **WHO)
    ((_, body),) = await leader.shared_state.take_requests()
    assert "add_brokers" not in result.request and "add_brokers" not in body["request"]
    assert "add_brokers" not in AT_ONCE.to_json() and PlanRequest(add_brokers=("x",)).to_json()["add_brokers"] == ("x",)


async def test_a_what_if_in_another_form_begins_with_its_defaults() -> None:
    native = replace(Parameters(), compat="4.2", **compat_defaults("4.2", "avg"))
    corrected = parameters_of(PlanRequest(parameters={"compat": "none"}), native)
    assert (corrected.min_unload_message_rate, corrected.max_unload_ratio) == (0.0, Parameters().max_unload_ratio)
    back = parameters_of(PlanRequest(parameters={"compat": "4.2", "min_unload_throughput": 7}), corrected)
    assert (back.min_unload_message_rate, back.min_unload_throughput) == (1000.0, 7.0)
