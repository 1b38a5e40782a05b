"""Clocks that are set, and clocks that differ: rests and deadlines go by the boot clock and by first sight."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from bundlekeel.leader.execution.intents import FirstSeen, Intent, MoveOutcome, intent_path, settle_intents
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.rebase import rebased
from bundlekeel.model.load import RESOURCES
from bundlekeel.model.members import Member
from bundlekeel.planning.costs import BrokerEvidence, CpuCosts
from bundlekeel.planning.effects import EffectRecords, PairRecord
from bundlekeel.planning.guard.external_moves import ExternalMoves
from bundlekeel.planning.guard.state import RecentMove
from bundlekeel.planning.ledger import Ledger, LedgerEntry
from bundlekeel.planning.memory import BrokerCourse, Excess, Hits, StrategyMemory
from bundlekeel.ports import DocumentChange
from bundlekeel.records.journal import FileJournal
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.records.notifications import DatedJournal
from bundlekeel.requests.takeover import SHEDDING
from bundlekeel.wiring.clock import SystemClock
from tests.support.executor_bench import BUNDLE, B, C, VirtualClock
from tests.support.memory_admin import BrokerModel
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.world import FakeCluster, FakeSidecar, TestClock, with_params
from tests.unit.requests.test_failsafe import AFTER, Watchman, taken_over

HOUR_MS = 3_600_000


class SetClock(SystemClock):
    """The real clock of a machine whose wall clock a test sets; `offset` pushes the boot clock."""

    def __init__(self) -> None:
        self.step_ms, self.offset = 0, 0.0
        super().__init__(wall=lambda: time.time_ns() // 1_000_000 + self.step_ms + int(1000 * self.offset))

    def boot(self) -> float:
        return super().boot() + self.offset


@pytest.mark.parametrize("hours", [-2, 2])
async def test_h04_a_wall_clock_that_is_set_voids_no_cool_down(hours: int) -> None:
    """Two hours forward or back: what was moved rests on, and is free when its cool-down is over by the boot clock."""
    clock = SetClock()
    cluster = FakeCluster(clock=clock)  # type: ignore[arg-type]
    sidecar = await FakeSidecar(cluster, params=with_params(cool_down_seconds=600.0)).lead()
    moved = {item.bundle for item in (await sidecar.cycle.turn()).outcomes}
    assert moved
    clock.step_ms = hours * HOUR_MS
    for _ in range(3):
        clock.offset += 5.0
        await sidecar.leadership.turn()
        cluster.publish()
        again = {item.bundle for item in (await sidecar.cycle.turn()).outcomes}
        assert not again & moved
    assert set(sidecar.cycle.cycle_state.recent) >= moved
    for _ in range(120):
        clock.offset += 5.0
        await sidecar.leadership.turn()
    cluster.publish()
    await sidecar.cycle.turn()
    resting = {
        name for name, item in sidecar.cycle.cycle_state.recent.items() if item.at_ms + 600_000 > clock.wall_ms()
    }
    assert not resting & moved


def test_h04_what_people_read_follows_the_wall_clock() -> None:
    """The journal's moments are those of the clock on the wall, however often it was set."""

    clock = SetClock()
    clock.step_ms = 2 * HOUR_MS
    assert abs(clock.stepped_ms() - 2 * HOUR_MS) < 1000
    journal = DatedJournal(FileJournal(None, telemetry=PrometheusTelemetry()), lambda: 2 * HOUR_MS)
    journal.append({"wall_ms": 5, "started_ms": 3, "landed_ms": 0, "seconds": 2})
    assert journal.tail(1) == [
        {"wall_ms": 5 + 2 * HOUR_MS, "started_ms": 3 + 2 * HOUR_MS, "landed_ms": 0, "seconds": 2}
    ]


class Ahead(TestClock):
    """Another machine's clock: `ahead_ms` before the one it shares the boot clock with."""

    def __init__(self, clock: TestClock, ahead_ms: int) -> None:
        super().__init__()
        self._clock, self._ahead_ms = clock, ahead_ms

    def boot(self) -> float:
        return self._clock.boot()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self._ahead_ms


def intent_of(bundle: str, source: str, target: str, *, epoch: int, wall_ms: int, number: int = 1) -> Intent:
    """What the leader of that epoch writes, with 120 s to go."""
    return Intent(
        id=f"{epoch}.{number}",
        bundle=bundle,
        source=source,
        destination=target,
        epoch=epoch,
        member="m1",
        wall_ms=wall_ms,
        deadline_ms=wall_ms + 120_000,
        cycle_id="",
        topic="",
    )


@pytest.mark.parametrize("hours", [-2, 0, 2])
async def test_h04_a_successor_counts_rests_from_first_sight(hours: int) -> None:
    """Its clock is two hours ahead or behind: of a rest as much is left as was left when the state was stored."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    now = cluster.clock.wall_ms()
    rests = CycleState(cycle=3, recent={"t/ns/x": RecentMove(at_ms=now - 100_000, source="b1:8080")}, completed_ms=now)
    await first.shared_state.save(rests, {}, epoch=1)
    other = FakeCluster(clock=Ahead(cluster.clock, hours * HOUR_MS), store=cluster.store)
    second = FakeSidecar(other, "b")
    await second.coordination.start()
    cluster.store.expire(first.coordination)
    await second.leadership.turn()
    assert second.leadership.leading
    found = second.shared_state.taken_over()
    age = second.clock.wall_ms() - found.recent["t/ns/x"].at_ms
    assert age == pytest.approx(100_000, abs=5_000)
    assert found.completed_ms == now, "the failsafe job judges that one"


async def test_h04_a_follower_that_watched_counts_on() -> None:
    """First sight was while the first leader led: what has passed since counts."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster, "a").lead()
    second = await FakeSidecar(FakeCluster(clock=Ahead(cluster.clock, HOUR_MS), store=cluster.store), "b").lead()
    now = cluster.clock.wall_ms()
    await first.shared_state.save(CycleState(recent={"t/ns/x": RecentMove(at_ms=now, source="s")}), {}, epoch=1)
    await second.shared_state.refresh()
    cluster.clock.offset += 60.0
    cluster.store.expire(first.coordination)
    await second.leadership.turn()
    age = second.clock.wall_ms() - second.shared_state.taken_over().recent["t/ns/x"].at_ms
    assert age == pytest.approx(60_000, abs=5_000)


async def call_after_the_state(cluster: FakeCluster, others: list[FakeSidecar]) -> LedgerEntry:
    """Of a leader that stores its state, and announces a move minutes later, when that has its turn; then it dies. The
    others saw the state at once."""
    first = await FakeSidecar(cluster, "a").lead()
    for other in others:
        await other.lead()
    (bundle, source), now = next(iter(cluster.owners().items())), cluster.clock.wall_ms()
    load = {"traffic": (1.0,) * 4, "pressure": (0.0,) * len(RESOURCES)}
    entry = LedgerEntry(bundle=bundle, source=source, target="b3:8080", opened_ms=now, **load)
    await first.shared_state.save(CycleState(ledger=Ledger(entries=(entry,))), {}, epoch=1)
    for other in others:
        await other.shared_state.refresh()
    cluster.clock.offset += 300.0
    intent = intent_of(bundle, source, entry.target, epoch=1, wall_ms=cluster.clock.wall_ms())
    await first.coordination.write_fenced(1, [DocumentChange(path=intent.path, data=intent.encode(), create=True)])
    cluster.store.expire(first.coordination)
    return entry


@pytest.mark.parametrize("between", ["none", "settles", "waits"])
@pytest.mark.parametrize("hours", [-2, 0, 2])
async def test_h04_a_move_settled_in_a_later_term_rests_from_then_on(hours: int, between: str) -> None:
    """And not from when the state was stored. Or a leader with another clock comes in between: it settles the move and
    dies before it stores a state, or stores one while the move is open."""
    cluster = FakeCluster()
    clocks = [Ahead(cluster.clock, n * hours * HOUR_MS) for n in (1, 2)]
    middle, last = (
        FakeSidecar(FakeCluster(clock=clock, store=cluster.store), name)
        for clock, name in zip(clocks, "bc", strict=True)
    )
    moved = await call_after_the_state(cluster, [middle, last])
    if between == "settles":
        middle.cluster.model.own(moved.bundle, moved.target)
    if between != "none":
        await middle.leadership.turn()
        assert middle.shared_state.frozen == (frozenset() if between == "settles" else {moved.bundle})
    if between == "waits":
        await middle.shared_state.save(middle.shared_state.taken_over(), {}, epoch=2)
        await last.shared_state.refresh()
    cluster.store.expire(middle.coordination)
    last.cluster.model.own(moved.bundle, moved.target)
    await last.leadership.turn()
    assert last.leadership.leading
    found, now = last.shared_state.taken_over(), last.clock.wall_ms()
    assert now - found.recent[moved.bundle].at_ms == pytest.approx(0, abs=5_000)
    (booked,) = found.ledger.entries
    assert now - booked.landed_ms == pytest.approx(0, abs=5_000)
    assert now - booked.opened_ms == pytest.approx(300_000, abs=5_000)


@pytest.mark.parametrize(
    ("epoch", "ended", "booked"), [(0, 5, False), (1, -1, False), (1, 0, True), (1, 5, True), (2, -5, True)]
)
async def test_h04_which_record_is_that_of_an_open_move(epoch: int, ended: int, booked: bool) -> None:
    """One of the term that stored the state, ended since it was booked; or one of a later term, by whatever clock."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    now = sidecar.clock.wall_ms()
    entry = LedgerEntry(bundle=BUNDLE, source=B, target=C, opened_ms=now, traffic=(1.0,) * 4, pressure=())
    await sidecar.shared_state.save(CycleState(ledger=Ledger(entries=(entry,))), {}, epoch=1)
    found = MoveOutcome(bundle=BUNDLE, source=B, destination=C, outcome="done", landed_on=C, epoch=epoch)
    sidecar.shared_state.moves.append(found.record() | {"wall_ms": now + ended, "landed_ms": now + ended})
    taken = sidecar.shared_state.taken_over()
    assert (BUNDLE in taken.recent, len(taken.ledger.entries)) == (booked, int(booked))


def remembered(later: int) -> StrategyMemory:
    """Counts and costs with all their times this much later, in ms."""
    excess = Excess(side="hot", since_ms=3 + later, seconds=2.0, cost=5.0)
    course = BrokerCourse(level=0.5, until_ms=9 + later, excess=excess)
    evidence = BrokerEvidence(reported=4 + later, since=2 + later)
    return StrategyMemory(
        courses={"s": course},
        split_hits={"s": Hits(side="split", low=2, reported=7 + later, at_ms=9 + later)},
        costs=CpuCosts(brokers={"s": evidence}, compared=6 + later),
    )


def test_h04_every_moment_of_a_standing_is_rebased() -> None:
    """Nested ones, and names with a moment; none stays none, and lengths and counters are no moments."""
    entry = LedgerEntry(bundle="x", source="s", target="t", opened_ms=5, landed_ms=0, traffic=(1.0,) * 4, pressure=())
    cycle_state = CycleState(
        cycle=4,
        memory=remembered(0),
        ledger=Ledger(entries=(entry,)),
        effects=EffectRecords(
            reverted=(("x", 8),), pairs=(PairRecord(source="s", target="t", useless=1, at_ms=4, until_ms=6),)
        ),
        external_moves=ExternalMoves(undone=(("y", 2),), rest_until_ms=1),
    )
    found = rebased(cycle_state, 100)
    assert found == replace(
        cycle_state,
        memory=remembered(100),
        ledger=Ledger(entries=(replace(entry, opened_ms=105),)),
        effects=EffectRecords(
            reverted=(("x", 108),), pairs=(PairRecord(source="s", target="t", useless=1, at_ms=104, until_ms=106),)
        ),
        external_moves=ExternalMoves(undone=(("y", 102),), rest_until_ms=101),
    )


@pytest.mark.parametrize("ahead", [-140.0, 0.0, 140.0])
async def test_h08_a_frozen_intent_is_settled_by_first_sight(ahead: float) -> None:
    """Written just now with 120 s to go, by a clock 140 s behind ours or ahead of it: frozen for all of them."""
    store, model, clock = MemoryStore(), BrokerModel([B, C]), VirtualClock()
    model.add(BUNDLE, B)
    coordination = MemoryCoordination(store)
    await coordination.start()
    assert await coordination.campaign(Member(id="m2")) == 1
    written = clock.wall_ms() - int(1000 * ahead)
    intent = intent_of(BUNDLE, B, C, epoch=0, wall_ms=written)
    await coordination.write_fenced(1, [DocumentChange(path=intent_path(BUNDLE), data=intent.encode(), create=True)])
    seen: FirstSeen = {}

    async def frozen() -> bool:
        found = await settle_intents(coordination, model, epoch=1, clock=clock, first_seen=seen)
        return bool(found.frozen)

    assert await frozen()
    clock.now += 134.9
    assert await frozen()
    clock.now += 0.2
    assert not await frozen()


async def test_h08_the_next_intent_of_a_bundle_has_its_own_first_sight() -> None:
    """Of two intents left by two leaders, one after the other, the second one is frozen for its whole length too."""
    store, model, clock = MemoryStore(), BrokerModel([B, C]), VirtualClock()
    model.add(BUNDLE, B)
    coordination = MemoryCoordination(store)
    await coordination.start()
    await coordination.campaign(Member(id="m2"))
    seen: FirstSeen = {}
    for number in (1, 2):
        intent = intent_of(BUNDLE, B, C, epoch=0, wall_ms=clock.wall_ms(), number=number)
        await coordination.write_fenced(
            1, [DocumentChange(path=intent_path(BUNDLE), data=intent.encode(), create=True)]
        )
        found = await settle_intents(coordination, model, epoch=1, clock=clock, first_seen=seen)
        assert found.frozen == {BUNDLE}
        clock.now += 136.0
        found = await settle_intents(coordination, model, epoch=1, clock=clock, first_seen=seen)
        assert not found.frozen


async def test_h22_the_failsafe_looks_again_before_each_write() -> None:
    """A cycle is completed while the brokers are asked what they run with: nothing is written."""
    cluster, watchman = await taken_over()
    sidecar = await FakeSidecar(cluster).lead()
    cluster.clock.offset += AFTER + 1
    context = watchman.context

    class Late(Watchman):
        async def context(self):  # type: ignore[no-untyped-def]
            await sidecar.leadership.turn()
            cluster.publish()
            assert (await sidecar.cycle.turn()).completed
            return await context()

    late = Late(cluster)
    await late.coordination.start()
    found = await late.judge()
    assert found.state == "alive"
    assert not watchman.changes()
    assert cluster.model.dynamic[SHEDDING] == "false"


async def test_h22_a_sign_of_life_between_two_writes_stops_the_second() -> None:
    """Two overrides are to be restored; a cycle is completed after the first: the second stays."""
    cluster, watchman = await taken_over()
    assert len(cluster.model.dynamic) == 2
    sidecar = await FakeSidecar(cluster).lead()
    cluster.clock.offset += AFTER + 1

    class Waking(type(watchman.admin)):  # type: ignore[misc]
        async def delete_dynamic(self, key, *, permit, look_again):  # type: ignore[no-untyped-def]
            await super().delete_dynamic(key, permit=permit, look_again=look_again)
            await sidecar.leadership.turn()
            cluster.publish()
            await sidecar.cycle.turn()

    watchman.admin = Waking(cluster.model)
    watchman.admin.set_endpoints(cluster.model.endpoints())
    found = await watchman.judge()
    assert found.state == "alive"
    assert len(watchman.changes()) == 1
