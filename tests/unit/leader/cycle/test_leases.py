"""A term is a value: a task started under one lease never continues under another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from bundlekeel.leader.execution.intents import MoveOutcome, intent_path
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import LeadershipLost
from bundlekeel.model.members import Member
from bundlekeel.model.plan import Move
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support import builders, split_bench
from tests.support.builders import bundle_name
from tests.support.executor_bench import BUNDLE as MOVED
from tests.support.executor_bench import Bench
from tests.support.memory_admin import MemoryAdmin
from tests.support.memory_coordination import MemoryCoordination
from tests.support.virtual_time import LoopClock
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

SOURCE, FIRST, SECOND = BROKERS
BUNDLE = bundle_name(0)


class HeldAdmin(MemoryAdmin):
    """Unloads wait, as while a connection is made, until they are let go; then they go the usual way."""

    held: asyncio.Event | None = None
    waiting = 0

    async def unload(self, *arguments: Any, **named: Any) -> Any:
        if self.held is not None:
            self.waiting += 1
            await self.held.wait()
        return await super().unload(*arguments, **named)


class HeldSidecar(FakeSidecar):
    admin: HeldAdmin

    def reach(self) -> HeldAdmin:
        return HeldAdmin(self.cluster.model)


def move(target: str, source: str = SOURCE) -> Move:
    return builders.move(BUNDLE, source, target)


async def allow(_bundle: str, _destination: str) -> None:
    """Policies forbid nothing."""


async def ready(sidecar: FakeSidecar) -> FakeSidecar:
    """Leading, and knowing its brokers."""
    sidecar.executor.forbids = allow
    _, picture = await sidecar.observer.snapshot()
    sidecar.admin.set_endpoints(picture.endpoints)
    return await sidecar.lead()


async def later(condition: Any, *, seconds: float = 1.0) -> None:
    """Wait until it holds."""
    for _ in range(int(1000 * seconds)):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


async def carry_out(sidecar: FakeSidecar, expected: Move) -> list[MoveOutcome]:
    epoch = sidecar.leadership.epoch
    assert epoch is not None
    return await sidecar.executor.carry_out([expected], epoch=epoch, cycle=1, on_outcome=lambda _: None)


async def test_h05_an_attempt_of_an_earlier_term_is_refused_in_a_later_one_of_the_same_leader() -> None:
    """A (epoch 1) waits in the admin call; B (2) settles and moves the bundle; A leads again (3).

    The old call of A must not be sent, or the bundle is unloaded again without an intent.
    """
    cluster = FakeCluster()
    a, b = HeldSidecar(cluster, "a"), FakeSidecar(cluster, "b")
    await ready(a)
    a.admin.held = asyncio.Event()
    old = asyncio.create_task(carry_out(a, move(FIRST)))
    await later(lambda: a.admin.waiting)
    cluster.store.expire(a.coordination)
    await ready(b)
    for _ in range(6):
        # Until the intent that A left must be over.
        cluster.clock.offset += 5.0
        await b.leadership.turn()
        settled = await b.executor.settle()
    assert (b.leadership.epoch, settled.frozen) == (2, frozenset())
    assert [item.outcome for item in await carry_out(b, move(SECOND))] == ["done"]
    cluster.store.expire(b.coordination)
    await a.leadership.turn()
    await a.leadership.turn()
    assert a.leadership.leading and a.leadership.epoch == 3
    unloads = len(cluster.model.unloads)
    a.admin.held.set()
    assert [item.code for item in await old] == [Code.NOT_LEADER]
    assert len(cluster.model.unloads) == unloads
    assert cluster.owners()[BUNDLE] == SECOND


class SlowTakeover(FakeSidecar):
    """Takeover of the state of earlier leaders that takes `seconds` of the loop's time."""

    settings: ClassVar = {"leadership.heartbeat": 1.0}
    seconds = 9.5

    def __init__(self, *given: Any, **more: Any) -> None:
        self.won: list[int] = []
        super().__init__(*given, **more)
        self.leadership.on_won = self._on_won

    def connect(self) -> MemoryCoordination:
        return MemoryCoordination(self.cluster.store, session_seconds=10.0)

    async def _on_won(self, epoch: int) -> None:
        self.won.append(epoch)
        await asyncio.sleep(self.seconds)


def test_h06_a_takeover_slower_than_the_lease_leads() -> None:
    """The lease is renewed while everything is taken over: with 9.5 s of it, and with 25 s, in a session of 10 s."""

    async def lead(seconds: float) -> SlowTakeover:
        sidecar = SlowTakeover(FakeCluster(clock=LoopClock()))
        sidecar.seconds = seconds
        await sidecar.coordination.start()
        for _ in range(4):
            await sidecar.leadership.turn()
        assert sidecar.leadership.leading
        return sidecar

    for seconds in (9.5, 25.0):
        sidecar = run_virtually(lead(seconds))
        assert (sidecar.won, sidecar.leadership.epoch) == ([1], 1)


def test_h06_nothing_is_permitted_while_taking_over() -> None:
    """The lease is there, the term has not begun: neither a move nor a state of this epoch."""

    async def scenario() -> None:
        sidecar = SlowTakeover(FakeCluster(clock=LoopClock()))
        await sidecar.coordination.start()
        turn = asyncio.create_task(sidecar.leadership.turn())
        await asyncio.sleep(5.0)
        assert sidecar.leadership.lease is not None and not sidecar.leadership.leading
        with pytest.raises(LeadershipLost):
            sidecar.leadership.permit(1)
        await turn
        sidecar.leadership.permit(1)

    run_virtually(scenario())


def test_h06_a_lease_lost_while_taking_over_ends_the_takeover() -> None:
    async def scenario() -> None:
        sidecar = SlowTakeover(FakeCluster(clock=LoopClock()))
        await sidecar.coordination.start()
        turn = asyncio.create_task(sidecar.leadership.turn())
        await asyncio.sleep(2.5)
        sidecar.cluster.store.expire(sidecar.coordination)
        began = asyncio.get_running_loop().time()
        await turn
        assert asyncio.get_running_loop().time() - began < 2.0
        assert (sidecar.leadership.leading, sidecar.leadership.lease) == (False, None)
        await sidecar.leadership.turn()
        assert (sidecar.won, sidecar.leadership.epoch) == ([1, 2], 2)

    run_virtually(scenario())


def test_h06_the_deadline_counts_from_the_request_that_was_answered() -> None:
    """Not from the end of a slow takeover: while the store is silent, it lasts as long as after its last renewal."""

    async def scenario() -> None:
        sidecar = SlowTakeover(FakeCluster(clock=LoopClock()))
        sidecar.seconds = 0.9
        await sidecar.coordination.start()
        await sidecar.leadership.turn()
        assert sidecar.leadership.lease_remaining == pytest.approx(9.0 - 0.9, abs=0.01)

    run_virtually(scenario())


class SlowAnswers(MemoryCoordination):
    """The store takes 2 s to answer who leads."""

    async def campaign(self, member: Member) -> int | None:
        result = await super().campaign(member)
        await asyncio.sleep(2.0)
        return result

    async def still_leading(self, epoch: int) -> bool:
        result = await super().still_leading(epoch)
        await asyncio.sleep(2.0)
        return result


class FarSidecar(FakeSidecar):
    def connect(self) -> MemoryCoordination:
        return SlowAnswers(self.cluster.store, session_seconds=10.0)


def test_h06_the_deadline_counts_from_the_send() -> None:
    """Not from the answer, won or renewed."""

    async def scenario() -> None:
        sidecar = FarSidecar(FakeCluster(clock=LoopClock()))
        await sidecar.coordination.start()
        await sidecar.leadership.turn()
        assert sidecar.leadership.lease_remaining == pytest.approx(7.0, abs=0.01)
        await asyncio.sleep(1.0)
        await sidecar.leadership.turn()
        assert sidecar.leadership.lease_remaining == pytest.approx(7.0, abs=0.01)

    run_virtually(scenario())


class Unexpected(MemoryAdmin):
    """Unload calls that end in an unexpected error."""

    async def unload(self, *_arguments: Any, **_named: Any) -> Any:
        raise ZeroDivisionError("\ud800")

    async def split(self, *_arguments: Any, **_named: Any) -> Any:
        raise ZeroDivisionError("\ud800")


async def test_h05_an_unexpected_end_of_a_move_is_recorded() -> None:
    """The intent goes with the record of the move: it does not freeze the bundle for the rest of the term."""
    bench = Bench()
    bench.admin = Unexpected(bench.model)
    bench.admin.set_endpoints(bench.model.endpoints())
    recorded: list[MoveOutcome] = []
    bench.executor = bench.build(changes=lambda outcome: recorded.append(outcome) or ())
    await bench.lead()
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.INTERNAL_ERROR)
    assert "ZeroDivisionError" in outcome.error and outcome.error.encode()
    assert (bench.heard, recorded, await bench.intents()) == ([outcome], [outcome], [])


async def test_h05_an_unexpected_end_of_a_split_is_recorded() -> None:
    bench = split_bench.Bench()
    admin = Unexpected(bench.model)
    admin.set_endpoints(bench.model.endpoints())
    bench.splitter.ports = replace(bench.world, commands=admin)
    await bench.lead()
    outcome = await bench.split()
    assert (outcome.outcome, outcome.code, await bench.intents()) == ("unknown", Code.INTERNAL_ERROR, [])


async def test_h05_a_move_that_is_cancelled_leaves_its_intent() -> None:
    bench = await Bench().lead()
    bench.admin = admin = HeldAdmin(bench.model)
    admin.set_endpoints(bench.model.endpoints())
    admin.held = asyncio.Event()
    bench.executor = bench.build()
    moving = asyncio.create_task(bench.move())
    await later(lambda: admin.waiting)
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)
    assert await bench.intents() == [intent_path(MOVED)]


async def test_h05_state_of_an_earlier_term_is_not_stored_in_a_later_one() -> None:
    """A cycle of epoch 1 that ends in epoch 2 of the same leader stores nothing."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    sidecar.cluster.store.expire(sidecar.coordination)
    await sidecar.leadership.turn()
    await sidecar.leadership.turn()
    assert sidecar.shared_state.current_epoch() == 2
    with pytest.raises(LeadershipLost):
        await sidecar.shared_state.save(CycleState(cycle=7), {}, epoch=1)
    assert sidecar.shared_state.shared.cycle_state.cycle != 7
