"""A short suspension of the store between intent and call: the move is refused, the term and its executor continue."""

from __future__ import annotations

import asyncio

import pytest

from bundlekeel.leader.execution.intents import MoveOutcome, intent_path
from bundlekeel.leader.execution.move import LeaderTerm
from bundlekeel.leader.execution.split_intents import split_path
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import StoreError
from bundlekeel.ports import Document, DocumentChange
from bundlekeel.ports.commands import Permit, UnloadAnswer
from tests.support import split_bench
from tests.support.executor_bench import BUNDLE, Bench
from tests.support.memory_admin import MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination, MemoryStore


def permit(bench: Bench | split_bench.Bench) -> None:
    """The part of a leader's permit that this is about."""
    if not bench.coordination.connected:
        raise StoreError("the connection to the metadata store is suspended")


class Suspending(MemoryCoordination):
    """The connection is suspended as soon as the first intent is written."""

    done = False

    async def write_fenced(self, epoch: int, changes: list[DocumentChange]) -> None:  # type: ignore[override]
        await super().write_fenced(epoch, changes)
        if not self.done:
            self.done = True
            self.store.suspend(self)


async def suspending(mode: str = "modular") -> Bench:
    """A bench whose store goes away right behind the first intent, and a permit that asks for it."""
    bench = Bench(mode=mode)
    bench.coordination = Suspending(bench.store)
    bench.permit = lambda: permit(bench)  # type: ignore[assignment]
    bench.executor = bench.build(changes=lambda outcome: [record_of(outcome)])
    return await bench.lead()


def record_of(outcome: MoveOutcome) -> DocumentChange:
    return DocumentChange(path=f"moves/{outcome.intent_id}", data=outcome.outcome.encode(), create=True)


@pytest.mark.parametrize("mode", ["modular", "extensible"])
async def test_the_term_goes_on_when_the_store_is_back(mode: str) -> None:
    """Nothing is called while it is away; back again, the intent left open goes with its record, and moves are made."""
    bench = await suspending(mode)
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code, bench.unloads()) == ("refused", Code.STORE_UNAVAILABLE, 0)
    await bench.executor.flush()
    assert [item.intent_id for item in bench.executor.unrecorded] == ["1.1"]
    bench.store.resume(bench.coordination)
    assert await bench.intents() == [intent_path(BUNDLE)]
    await bench.executor.flush()
    assert (await bench.intents(), bench.executor.unrecorded) == ([], ())
    reading = await bench.coordination.read("moves/1.1")
    assert reading is not None
    assert reading.data == b"refused"
    assert (await bench.move()).outcome == "done"
    assert bench.unloads() == 1


class SlowReads(MemoryCoordination):
    """Reads of single nodes wait until they are let go."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def read(self, path: str) -> Document | None:
        await self.go_on.wait()
        return await super().read(path)


class HeldAdmin(MemoryAdmin):
    """Unloads wait until they are let go."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.model)
        self.set_endpoints(bench.model.endpoints())
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        self.asked.set()
        await self.go_on.wait()
        return await super().unload(bundle, destination=destination, at=at, permit=permit)


async def test_the_next_intent_of_a_bundle_is_not_taken_for_the_one_left() -> None:
    """The clearing up of a write that never arrived meets the intent of the next move: it stays until that is over."""
    bench = Bench()
    bench.coordination = slow = SlowReads(bench.store)
    bench.admin = admin = HeldAdmin(bench)
    bench.executor = bench.build()
    await bench.lead()
    bench.store.freeze()
    assert (await bench.move()).code == Code.STORE_UNAVAILABLE
    bench.store.thaw()
    slow.go_on.clear()
    clearing = asyncio.create_task(bench.executor.flush())
    moving = asyncio.create_task(bench.move())
    await admin.asked.wait()
    slow.go_on.set()
    await clearing
    assert await bench.intents() == [intent_path(BUNDLE)], "the call under way is still announced"
    assert bench.executor.unrecorded == ()
    admin.go_on.set()
    assert (await moving).outcome == "done"
    assert await bench.intents() == []


async def test_splits_go_on_when_the_store_is_back() -> None:
    """Nothing is called while it is away; back again, the intent left open goes, and the bundle is split."""
    bench = split_bench.Bench(coordination=Suspending)
    bench.splitter.term = LeaderTerm(epoch=1, member="m1", permit=lambda: permit(bench))
    await bench.lead()
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, bench.calls()) == ("refused", Code.STORE_UNAVAILABLE, 0)
    await bench.splitter.flush()
    bench.store.resume(bench.coordination)
    assert await bench.intents() == [split_path(split_bench.BUNDLE)]
    await bench.splitter.flush()
    assert await bench.intents() == []
    assert (await bench.split()).outcome == "done"
