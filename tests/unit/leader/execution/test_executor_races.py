"""Races around a move, an executor, a term and the shared state: each guard has a test that fails without it."""

from __future__ import annotations

import asyncio
from typing import Any

from bundlekeel.leader.execution.intents import MoveOutcome, MoveRequest
from bundlekeel.leader.execution.move import ExecutorLimits
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.shared_state import MOVES, STATE
from bundlekeel.model.codes import Code
from bundlekeel.model.plan import Refusal
from bundlekeel.ports import Document, DocumentChange, Owner
from tests.support.executor_bench import BUNDLE, A, B, Bench, C
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination
from tests.support.world import FakeCluster, FakeSidecar
from tests.unit.leader.cycle.test_leases import FIRST, carry_out, later, move, ready


async def test_moves_of_an_earlier_term_are_not_begun() -> None:
    """The executor gets the epoch that the moves were planned in; by now another term of ours has begun."""
    cluster = FakeCluster()
    sidecar = await ready(FakeSidecar(cluster))
    sidecar.executor.begin(2)
    done = await sidecar.executor.carry_out([move(FIRST)], epoch=1, cycle=1, on_outcome=lambda _: None)
    assert (done, cluster.model.unloads) == ([], [])
    sidecar.executor.begin(1)
    assert [item.outcome for item in await carry_out(sidecar, move(FIRST))] == ["done"]


class SlowTopics(MemoryAdmin):
    """Preparing a move takes `seconds`; `meanwhile` is called then."""

    def __init__(self, bench: Bench, seconds: float, meanwhile: Any) -> None:
        super().__init__(bench.model)
        self.set_endpoints(bench.model.endpoints())
        self._clock, self._seconds, self._meanwhile = bench.clock, seconds, meanwhile

    async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
        await self._clock.sleep(self._seconds)
        await self._meanwhile()
        return await super().topics_of_bundle(bundle, owner)


async def test_a_pause_that_arrives_during_slow_preparations_counts() -> None:
    """The policy was asked 2 s ago: it is asked again before anything is called."""
    bench, paused = Bench(), False

    async def pause() -> None:
        nonlocal paused
        paused = True

    async def policy(_request: MoveRequest) -> Refusal | None:
        return Refusal(code=Code.PAUSED) if paused else None

    bench.admin = SlowTopics(bench, 2.0, pause)
    bench.executor = bench.build(policy=policy)
    await bench.lead()
    assert (await bench.move()).code == Code.PAUSED
    assert (bench.unloads(), await bench.intents()) == (0, [])


async def test_a_stop_during_preparations_begins_nothing() -> None:
    """Stopped while the topics are asked for: neither an intent nor a call."""
    bench = Bench()
    stopping: list[asyncio.Task[tuple[str, ...]]] = []

    async def stop() -> None:
        stopping.append(asyncio.create_task(bench.executor.stop(1.0)))
        for _ in range(20):
            await asyncio.sleep(0)

    bench.admin = SlowTopics(bench, 0.1, stop)
    bench.executor = bench.build()
    await bench.lead()
    outcome = await bench.move()
    await asyncio.gather(*stopping)
    assert (outcome.outcome, outcome.code) == ("refused", Code.STOPPING)
    assert (bench.unloads(), await bench.intents()) == (0, [])


class HangingWrites(MemoryCoordination):
    """Writes that remove an intent hang until they are let go; how many were under way at once, at most."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.go_on, self.now, self.most = asyncio.Event(), 0, 0

    async def write_fenced(self, epoch: int, changes: Any) -> None:
        if all(change.data is not None for change in changes):
            await super().write_fenced(epoch, changes)
            return
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go_on.wait()
        self.now -= 1
        await super().write_fenced(epoch, changes)


async def test_records_are_written_one_after_the_other() -> None:
    """Two moves end while a write hangs: the second record builds on what the first one left."""
    bench = Bench(limits=ExecutorLimits(max_in_flight_per_broker=2))
    bench.coordination = hanging = HangingWrites(bench.store)
    other = "t/o/0x40000000_0x80000000"
    bench.model.add(other, A, "persistent://t/o/x")
    records: list[str] = []

    def record(outcome: MoveOutcome) -> list[DocumentChange]:
        records.append(outcome.bundle)
        data = ",".join(records).encode()
        return [DocumentChange(path="moves/1", data=data, create=len(records) == 1)]

    bench.executor = bench.build(changes=record)
    await bench.lead()
    moving = asyncio.gather(
        bench.executor.move(MoveRequest(bundle=BUNDLE, source=B, destination=C)),
        bench.executor.move(MoveRequest(bundle=other, source=A, destination=C)),
    )
    await later(lambda: hanging.now)
    for _ in range(3000):
        # The other one has long ended by now.
        await asyncio.sleep(0)
    assert (hanging.most, len(records)) == (1, 1)
    hanging.go_on.set()
    assert [item.outcome for item in await moving] == ["done", "done"]
    (stored,) = await bench.coordination.read_tree("moves")
    assert sorted(stored.data.decode().split(",")) == sorted([BUNDLE, other])
    assert bench.executor.unrecorded == ()


class SourceOnce(BrokerModel):
    """Right after an unload the source is seen as the owner once more, then the destination."""

    stale = 0

    async def owner(self, bundle: str) -> Owner | None:
        if self.unloads and not self.stale and bundle in self.owners:
            self.stale = 1
            return Owner(broker_id=B, web_url=f"http://{B}")
        return await super().owner(bundle)


async def test_the_source_seen_once_after_the_unload_is_no_outcome() -> None:
    bench = Bench()
    model = SourceOnce([A, B, C])
    model.add(BUNDLE, B, *bench.model.topics[BUNDLE])
    bench.model = model
    bench.admin = MemoryAdmin(model)
    bench.admin.set_endpoints(model.endpoints())
    bench.executor = bench.build()
    await bench.lead()
    outcome = await bench.move()
    assert model.stale == 1
    assert (outcome.outcome, outcome.landed_on) == ("done", C)


class SlowTree(MemoryCoordination):
    """Store in which reading `slow` blocks until released; the response is the value at the time of the request."""

    slow = STATE
    go_on: asyncio.Event | None = None
    asked = 0

    async def read_tree(self, path: str) -> list[Document]:
        result = await super().read_tree(path)
        if path == self.slow and self.go_on is not None:
            waiting, self.go_on = self.go_on, None
            self.asked += 1
            await waiting.wait()
        return result


class SlowReader(FakeSidecar):
    coordination: SlowTree

    def connect(self) -> SlowTree:
        return SlowTree(self.cluster.store)


async def test_a_slow_read_never_overwrites_newer_state() -> None:
    """A follower reads the state of epoch 1; before the answer is there it leads epoch 2 and has stored its own."""
    cluster = FakeCluster()
    first, second = await FakeSidecar(cluster, "a").lead(), await SlowReader(cluster, "b").lead()
    await first.shared_state.save(CycleState(cycle=1), {}, epoch=1)
    second.coordination.go_on = go_on = asyncio.Event()
    reading = asyncio.create_task(second.shared_state.refresh())
    await later(lambda: second.coordination.asked)
    cluster.store.expire(first.coordination)
    await second.leadership.turn()
    await second.shared_state.save(CycleState(cycle=9), {}, epoch=second.shared_state.current_epoch())
    go_on.set()
    await reading
    assert (second.shared_state.shared.cycle_state.cycle, second.shared_state.shared.epoch) == (9, 2)


async def test_a_slow_read_never_overwrites_newer_records() -> None:
    cluster = FakeCluster()
    first, second = await FakeSidecar(cluster, "a").lead(), await SlowReader(cluster, "b").lead()
    await first.shared_state.save(CycleState(cycle=1), {}, epoch=1)
    second.coordination.slow, second.coordination.go_on = MOVES, (go_on := asyncio.Event())
    reading = asyncio.create_task(second.shared_state.refresh())
    await later(lambda: second.coordination.asked)
    cluster.store.expire(first.coordination)
    await ready(second)
    await carry_out(second, move(FIRST))
    assert len(second.shared_state.moves) == 1
    go_on.set()
    await reading
    assert len(second.shared_state.moves) == 1
