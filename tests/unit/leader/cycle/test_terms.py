"""Meeting of two tasks or two terms: the adopted, stored, served and recorded state when leadership changes hands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.execution.intents import MoveOutcome, intent_path
from bundlekeel.leader.gate.in_force import pause_in_force
from bundlekeel.leader.state import shared_state
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.documents import Desired, decode
from bundlekeel.model.averages import Averages
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import StaleWrite, StoreError
from bundlekeel.ports import DocumentChange, RawClusterView
from tests.support.builders import bundle_name, stored
from tests.support.world import FakeCluster, FakeSidecar


class _SlowSource:
    """The cluster's source; something happens elsewhere while its picture is awaited."""

    def __init__(self, inner: Any, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._inner, self._meanwhile = inner, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def picture(self) -> RawClusterView:
        await self._meanwhile()
        view: RawClusterView = await self._inner.picture()
        return view


class _LostAnswers:
    """A store whose next fenced write takes effect, but whose answer is lost."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.lose = inner, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write_fenced(self, epoch: int, changes: list[DocumentChange]) -> None:
        await self._inner.write_fenced(epoch, changes)
        if self.lose:
            self.lose = False
            raise StoreError("no answer")


async def test_a_former_leader_shows_no_open_intents() -> None:
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, "a").lead()
    left = DocumentChange(path=intent_path(bundle_name(0)), data=b"{", create=True)
    await sidecar.coordination.write_fenced(1, [left])
    await sidecar.executor.settle()
    assert sidecar.service.state().intents == [bundle_name(0)]
    assert b"bundlekeel_open_intents 1.0" in sidecar.service.render_metrics("")[0]
    sidecar.leadership.epoch = None
    await sidecar.shared_state.refresh()
    assert sidecar.shared_state.frozen == {bundle_name(0)}
    cluster.store.expire(sidecar.coordination)
    await FakeSidecar(cluster, "b").lead()
    await sidecar.leadership.turn()
    await sidecar.shared_state.refresh()
    assert sidecar.service.state().intents == []
    assert b"bundlekeel_open_intents 0.0" in sidecar.service.render_metrics("")[0]


async def test_a_term_won_in_the_middle_of_a_turn_is_not_acted_upon() -> None:
    """A follower's turn that becomes a leader's neither acts nor stores: its books are older than those taken over."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    second = await FakeSidecar(cluster, "b").lead()

    async def leader_acts_and_dies() -> None:
        await first.cycle.turn()
        cluster.store.expire(first.coordination)
        await second.leadership.turn()

    second.observer._source = _SlowSource(cluster.source, leader_acts_and_dies)  # type: ignore[assignment]
    report = await second.cycle.turn()
    assert second.leadership.leading
    assert report.obstacle is not None and report.obstacle.code is Code.NOT_LEADER
    assert all(call[0] != "unload" for call in second.admin.calls)
    await first.shared_state.refresh()
    assert first.shared_state.shared.cycle_state.ledger == first.cycle.cycle_state.ledger, (
        "what the first leader stored still stands"
    )
    assert first.shared_state.shared.cycle_state.ledger.entries


async def test_requests_wait_until_the_books_are_taken_over() -> None:
    """A leader that has not begun its first cycle takes no request; then it does."""
    cluster = FakeCluster()
    first, second = await FakeSidecar(cluster, "a").lead(), await FakeSidecar(cluster, "b").lead()
    await first.cycle.turn()
    await first.shared_state.leave_request({"hash": "x", "moves": [["t/ns/0x1_0x2", "b1:8080", "b2:8080"]]})
    cluster.store.expire(first.coordination)
    await second.leadership.turn()
    await second.executions.serve()
    assert len(await second.shared_state.take_requests()) == 1
    await second.cycle.turn()
    await second.executions.serve()
    assert not await second.shared_state.take_requests()
    assert second.shared_state.tasks[0]["state"] == "failed"


async def test_an_execution_behind_a_cycle_sees_what_that_cycle_did() -> None:
    """Asked for the very moves that a cycle is making, it says that the inputs changed, and spoils no books."""
    leader = await FakeSidecar(FakeCluster()).lead()
    leader.cycle.adopt(leader.cycle.cycle_state, leader.leadership.epoch)
    leader.cycle.status.snapshot, leader.cycle.status.picture = await leader.observer.snapshot()
    leader.admin.set_endpoints(leader.cycle.picture.endpoints)
    await leader.config.refresh(leader.cycle.picture.endpoints)
    await leader.policies.refresh(leader.cycle.snapshot)
    plan = await leader.planner.make(PlanRequest())
    moves = [[move.bundle, move.source, move.target] for move in plan.moves]
    await leader.shared_state.leave_request({"hash": plan.hash, "moves": moves, "request": {}})
    turn = asyncio.create_task(leader.cycle.turn())
    await asyncio.sleep(0)
    assert leader.cycle.busy.locked()
    await leader.executions.serve()
    report = await turn
    moved = {outcome.bundle for outcome in report.outcomes}
    assert moved == {move[0] for move in moves}
    assert "inputs changed" in leader.shared_state.tasks[0]["detail"]
    assert leader.cycle.cycle_state.ledger.bundles() == moved
    assert len(leader.cluster.model.unloads) >= len(moved) == len(leader.moves())


@pytest.mark.parametrize("body", [{"moves": 5}, {"moves": [], "request": {"from_the_future": 1}}])
async def test_a_request_nobody_can_read_fails_by_itself(body: dict[str, Any]) -> None:
    """A body of another version is a failed task, not an error of housekeeping."""
    leader = await FakeSidecar(FakeCluster()).lead()
    await leader.cycle.turn()
    await leader.shared_state.leave_request(body)
    await leader.executions.serve()
    assert leader.shared_state.tasks[0]["state"] == "failed"
    assert "cannot be read" in leader.shared_state.tasks[0]["detail"]


async def test_an_execution_of_a_dead_leader_does_not_run_for_ever() -> None:
    """The next leader says of it that its leader is gone."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    first.shared_state.tasks = [{"task": "r1", "state": "running"}, {"task": "r0", "state": "done"}]
    await first.shared_state.save(CycleState(cycle=1), {}, epoch=first.shared_state.current_epoch())
    cluster.store.expire(first.coordination)
    second = await FakeSidecar(cluster, "b").lead()
    assert [task["state"] for task in second.shared_state.tasks] == ["failed", "done"]
    assert "leader is gone" in second.shared_state.tasks[0]["detail"]


async def test_state_is_stored_again_after_an_answer_was_lost() -> None:
    leader = await FakeSidecar(FakeCluster()).lead()
    store = _LostAnswers(leader.coordination)
    shared = shared_state.SharedState(store, leader.leadership, leader.clock)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        await shared.save(CycleState(cycle=1), {}, epoch=1)
    await shared.save(CycleState(cycle=2), {}, epoch=1)
    await leader.shared_state._read_leader_state()
    assert leader.shared_state.shared.cycle_state.cycle == 2


def _record(name: str) -> dict[str, Any]:
    return MoveOutcome(
        bundle=name, source="a", destination="b", outcome="done", intent_id=f"1.{name}", started_wall_ms=1
    ).record()


async def _chunk(leader: FakeSidecar) -> list[str]:
    results: list[str] = []
    for document in await leader.coordination.read_tree(shared_state.MOVES):
        results += [record["bundle"] for record in decode(document.data, list)]
    return results


async def test_a_repeated_record_keeps_those_written_meanwhile() -> None:
    """The write of one record fails, another one comes through: repeating the first must not undo the second."""
    leader = await FakeSidecar(FakeCluster()).lead()
    epoch = leader.shared_state.current_epoch()
    await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(_record("first")))
    leader.shared_state.move_change(_record("lost"))
    await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(_record("later")))
    await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(_record("lost")))
    assert await _chunk(leader) == ["first", "lost", "later"]
    assert [item["bundle"] for item in leader.shared_state.moves] == ["first", "lost", "later"]


@pytest.mark.parametrize(("first", "value"), [("unknown", "landed_elsewhere"), ("done", "done")])
async def test_a_move_settled_anew_is_recorded_once(first: str, value: str) -> None:
    leader = await FakeSidecar(FakeCluster()).lead()
    epoch = leader.shared_state.current_epoch()
    leader.shared_state.move_change(_record("x") | {"outcome": first})
    leader.shared_state.move_change(_record("y") | {"outcome": "done"})
    settled = _record("x") | {"outcome": "landed_elsewhere", "started_ms": 31}
    await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(settled))
    assert await _chunk(leader) == ["x", "y"]
    assert [item["outcome"] for item in leader.shared_state.moves] == [value, "done"]


async def test_a_new_chunk_is_made_by_whoever_wrote_into_it_first() -> None:
    """When the write that was to make it failed, the next ones fail too, until it is repeated; nothing is lost."""
    leader = await FakeSidecar(FakeCluster()).lead()
    epoch = leader.shared_state.current_epoch()
    leader.shared_state.move_change(_record("lost"))
    with pytest.raises(StaleWrite):
        await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(_record("later")))
    await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(_record("lost")))
    await leader.coordination.write_fenced(epoch, leader.shared_state.move_change(_record("later")))
    assert await _chunk(leader) == ["lost", "later"]


async def test_desired_state_nobody_can_read_counts_as_a_stop() -> None:
    """It may hold an emergency stop. Only a pause begins a new one."""
    leader = await FakeSidecar(FakeCluster()).lead()
    await leader.coordination.write_shared(shared_state.DESIRED, b"garbage", version=None)
    await leader.shared_state.refresh()
    report = await leader.cycle.turn()
    assert report.obstacle is not None and report.obstacle.code is Code.PAUSED
    await leader.shared_state.change_desired(lambda desired: Desired(mode=desired.mode), replace=True)
    await leader.shared_state.refresh()
    assert pause_in_force(leader.shared_state.desired, 1) is None


async def test_a_restarted_follower_starts_from_the_checkpoint() -> None:
    """Whoever has a seat reads the averages' checkpoint before the first report: it may lead next, and stores its own
    averages then. Otherwise a rolling restart would lose them all."""
    cluster = FakeCluster()
    leader = await FakeSidecar(cluster, "a").lead()
    checkpoint = Averages()
    checkpoint.seed([stored(bundle_name(0), 0.2, samples=700)])
    await leader.shared_state.save_averages(checkpoint)
    follower = await FakeSidecar(cluster, "b").lead()
    task = asyncio.create_task(follower.runtime._observe())
    async with asyncio.timeout(10):
        await follower.observer.fresh.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    result = {item.bundle: item.long_samples for item in follower.observer.averages.export()}
    assert result[bundle_name(0)] == 701
    assert result[bundle_name(1)] == 1


async def test_each_move_that_ends_is_a_sign_of_life() -> None:
    """A cycle of many slow moves is no reason for a restart."""
    leader = await FakeSidecar(FakeCluster()).lead()
    outcome = (await leader.cycle.turn()).outcomes[0]
    leader.clock.offset = 500.0
    before = leader.cycle.progress_boot
    leader.cycle.book(outcome)
    assert leader.cycle.progress_boot >= before + 500.0


async def test_metrics_say_when_the_next_cycle_is_due() -> None:
    leader = await FakeSidecar(FakeCluster()).lead()

    def due() -> float:
        lines = leader.service.render_metrics("")[0].decode().splitlines()
        (line,) = [line for line in lines if line.startswith("bundlekeel_cycle_due_seconds ")]
        return float(line.split()[1])

    interval = leader.loaded.settings.cycle.interval
    assert due() == pytest.approx(interval, abs=5.0)
    leader.clock.offset = 600.0
    assert due() == pytest.approx(interval - 600.0, abs=5.0)


async def test_a_checkpoint_of_a_large_cluster_fits_into_requests() -> None:
    """ZooKeeper takes a megabyte at a time: no write of ours is larger, and all averages come back; fewer, too."""
    leader = await FakeSidecar(FakeCluster()).lead()
    sizes: list[int] = []

    class Measured(_LostAnswers):
        async def write_fenced(self, epoch: int, changes: list[DocumentChange]) -> None:
            sizes.append(sum(len(change.data or b"") for change in changes))
            await self._inner.write_fenced(epoch, changes)

    shared = shared_state.SharedState(Measured(leader.coordination), leader.leadership, leader.clock)  # type: ignore[arg-type]
    bundles = [stored(f"tenant/ns-{hash(str(n)):x}/0x0_0x1", 0.1 + n / 7, samples=n % 1000) for n in range(12_000)]
    for amount in (len(bundles), 3_000):
        averages = Averages()
        averages.seed(bundles[:amount])
        expected = averages.export()
        storing = asyncio.create_task(shared.save_averages(averages))
        await asyncio.sleep(0)
        # Traffic measured in between is for the next one.
        averages.seed([stored("tenant/ns/0x0_0x1", 0.5)])
        await storing
        parts = [part async for part in leader.shared_state.read_averages()]
        assert len(expected) == amount and [item for part in parts for item in part] == expected
        assert max(map(len, parts)) < amount, "a large cluster's are not taken over at once"
    assert max(sizes) < 300_000
