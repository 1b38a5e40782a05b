"""Approval by a second operator with concurrent requests: discards during an approval, store failures, lost tasks."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.leader.state.shared_state import KEPT_TASKS, SharedState
from bundlekeel.model.errors import Conflict, Forbidden, NotFound, StoreError
from bundlekeel.model.response_fields import Json
from bundlekeel.requests.review import EXPIRES_MS, Reviews
from tests.support.world import FakeCluster, FakeSidecar
from tests.unit.requests.sidecars import B1, B2, B3, BUNDLE, WHO, plan_of_three, seeing

ID = "proposal"


async def proposed() -> tuple[FakeSidecar, Reviews]:
    """A leader that does not balance by itself, and a proposed transfer."""
    sidecar = await FakeSidecar(FakeCluster({B1: [0.1, 0.1], B2: [0.2], B3: [0.2]})).lead()
    await sidecar.cycle.turn()
    reviews = Reviews(sidecar.coordination, sidecar.shared_state, sidecar.clock, required=True)
    _, operator_request = await sidecar.operator_requests.plan_move(BUNDLE, B3)
    await reviews.submit(ID, "transfer", "one bundle", {**operator_request, "reason": "r", "by": "ann"})
    return sidecar, reviews


async def read_review(reviews: Reviews) -> Json:
    """The proposal as people see it."""
    (row,) = await reviews.all()
    return row


def on_request(monkeypatch: pytest.MonkeyPatch, shared_state: SharedState, step: Any) -> None:
    """Let `step` happen once, right before a request is left."""
    leave, steps = shared_state.leave_request, [step]

    async def left(body: Any) -> str:
        while steps:
            await steps.pop()()
        return await leave(body)

    monkeypatch.setattr(shared_state, "leave_request", left)


async def test_a_discard_amid_an_approval_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Approved, then discarded by another one before the request is left: the leader asks again and refuses."""
    sidecar, reviews = await proposed()

    async def discarded() -> None:
        await reviews.discard(ID, reason="no", by="carl")

    on_request(monkeypatch, sidecar.shared_state, discarded)
    with pytest.raises(Conflict, match="discarded meanwhile"):
        await reviews.approve(ID, reason="fine", by="bob")
    await sidecar.executions.serve()
    assert sidecar.cluster.model.unloads == []
    (task,) = sidecar.shared_state.tasks
    assert (task["state"], task["detail"]) == ("failed", "not executed: the proposal is discarded")
    assert (await read_review(reviews)).state == "discarded"


async def test_an_approval_that_the_store_cut_short_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request was left: the proposal is approved still, and may be approved again, or discarded."""
    sidecar, reviews = await proposed()

    async def failing() -> None:
        raise StoreError("no answer")

    on_request(monkeypatch, sidecar.shared_state, failing)
    with pytest.raises(StoreError):
        await reviews.approve(ID, reason="fine", by="bob")
    row = await read_review(reviews)
    assert (row.state, row.actions) == ("approved", ["approve", "discard"])
    assert (await reviews.approve(ID, reason="fine", by="bob")).state == "executing"
    await sidecar.executions.serve()
    assert sidecar.cluster.owners()[BUNDLE] == B3
    assert (await read_review(reviews)).state == "done"


async def test_an_approval_left_twice_is_carried_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store took the first request but said no more: the second approval's task finds that it is not its turn."""
    sidecar, reviews = await proposed()
    await sidecar.shared_state.leave_request({**await body_of(reviews), "approved_by": "bob", "review": ID})

    async def served() -> None:
        await sidecar.executions.serve()

    # Between this approval and its request the leader carries out the one that is there.
    on_request(monkeypatch, sidecar.shared_state, served)
    row = await reviews.approve(ID, reason="fine", by="bob")
    assert row.state == "done"
    await sidecar.executions.serve()
    first, second = sidecar.shared_state.tasks
    assert (first["state"], second["state"], row.task) == ("done", "failed", first["task"])
    assert second["detail"] == "not executed: the proposal is done"
    assert len(sidecar.cluster.model.unloads) == 1


async def body_of(reviews: Reviews) -> dict[str, Any]:
    items, _ = await reviews._read()
    return items[0].body


async def test_a_proposal_that_is_done_stays_done_when_its_task_is_forgotten() -> None:
    """Tasks are kept for a while only; how it ended is in the proposal."""
    sidecar, reviews = await proposed()
    await reviews.approve(ID, reason="fine", by="bob")
    await sidecar.executions.serve()
    for _ in range(KEPT_TASKS):
        await sidecar.shared_state.leave_request({"kind": "levitate"})
    await sidecar.executions.serve()
    assert {task["kind"] for task in sidecar.shared_state.tasks} == {"levitate"}
    row = await read_review(reviews)
    assert (row.state, row.actions) == ("done", [])


async def test_a_proposal_whose_leader_died_amid_its_task_is_aborted() -> None:
    sidecar, reviews = await proposed()
    await reviews.approve(ID, reason="fine", by="bob")
    task = (await read_review(reviews)).task
    await reviews.begin(ID, task)
    sidecar.shared_state.remember_task({"task": task, "state": "running"})
    await sidecar.shared_state.close_request(task, sidecar.shared_state.current_epoch())
    sidecar.shared_state.tasks = []
    assert (await read_review(reviews)).state == "executing"
    await sidecar.executions.serve()
    assert (await read_review(reviews)).state == "aborted"


async def test_what_waits_for_the_leader_is_not_called_lost() -> None:
    _, reviews = await proposed()
    await reviews.approve(ID, reason="fine", by="bob")
    await reviews.settle()
    assert (await read_review(reviews)).state == "executing"


async def test_an_approval_without_a_task_expires_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sidecar, reviews = await proposed()

    async def failing() -> None:
        raise StoreError("no answer")

    on_request(monkeypatch, sidecar.shared_state, failing)
    with pytest.raises(StoreError):
        await reviews.approve(ID, reason="fine", by="bob")
    sidecar.clock.offset += EXPIRES_MS / 1000 + 1
    with pytest.raises(Conflict, match="is expired"):
        await reviews.approve(ID, reason="fine", by="bob")


async def test_a_second_person_approves_and_the_plan_is_carried_out() -> None:
    sidecar = await seeing(FakeCluster(), settings={"review": "required"})
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
    with pytest.raises(Conflict, match="is done"):
        await service.discard(hash_, reason="late", by="bob")
    assert sidecar.cluster.model.unloads


async def test_an_approved_plan_that_has_changed_is_aborted() -> None:
    sidecar = await seeing(FakeCluster(), settings={"review": "required"})
    service = sidecar.service.requests
    hash_, body = await plan_of_three(sidecar)
    await service.submit(hash_, "plan", {**body, "moves": body["moves"][:1]})
    await service.approve(hash_, reason="fine", by="bob")
    await sidecar.executions.serve()
    (row,) = await service.reviews()
    assert row.state == "aborted"
    assert sidecar.cluster.model.unloads == []


async def test_what_is_discarded_or_too_old_is_not_carried_out() -> None:
    sidecar = await seeing(FakeCluster(), settings={"review": "required"})
    service = sidecar.service.requests
    hash_, body = await plan_of_three(sidecar)
    await service.submit(hash_, "plan", body)
    assert (await service.discard(hash_, reason="no", by="ann")).state == "discarded"
    with pytest.raises(Conflict, match="possible actions: none"):
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
    sidecar = await seeing(FakeCluster(), settings={"review": "required"})
    service = sidecar.service.requests
    answer = await service.transfer(BUNDLE, to=B3, execute=True, **WHO)
    assert (answer.task, answer.state) == (None, "proposed")
    assert await sidecar.shared_state.take_requests() == []
    await service.approve(answer.review, reason="fine", by="bob")
    await sidecar.executions.serve()
    assert sidecar.cluster.owners()[BUNDLE] == B3
