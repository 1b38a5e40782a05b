"""The recorder: cycles in, files out, and never a cycle held up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bundlekeel.model.errors import StoreError
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.recalibration.history.frames import frame_of, outcome_of
from bundlekeel.recalibration.history.ports import HOUR_MS, HistoryFile
from bundlekeel.recalibration.history.record import Frame, HistoryRecord, recorded
from bundlekeel.recalibration.history.replay import rebuilt, replay
from bundlekeel.recalibration.parquet import FileWal, ParquetStore
from bundlekeel.recalibration.recorder.history_reading import check, replayed
from bundlekeel.recalibration.recorder.recorder import QUEUE, Recorder
from bundlekeel.records.metrics import PrometheusTelemetry
from tests.support.history_cases import START_MS, sequence
from tests.support.memory_history import MemoryStore, MemoryWal
from tests.support.world import FakeCluster, FakeSidecar, TestClock


class StoppedClock(TestClock):
    """Wall clock that a test stops at a time."""

    __test__ = False
    wall = START_MS

    def wall_ms(self) -> int:
        return self.wall


class SlowWal(MemoryWal):
    """Takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.entered = threading.Event(), threading.Event()

    def append(self, epoch: int, record: HistoryRecord) -> None:
        """Wait first."""
        self.entered.set()
        self.gate.wait(30)
        super().append(epoch, record)


class Bench:
    """A recorder over fakes, and cycles for it."""

    def __init__(self, wal: Any = None, store: Any = None, **options: Any) -> None:
        self.wal, self.store = wal or MemoryWal(), store or MemoryStore()
        self.telemetry = PrometheusTelemetry()
        self.clock = StoppedClock()
        self.recorder = Recorder(
            lambda: (self.wal, self.store), self.telemetry, self.clock, leads=lambda: True, **options
        )

    def take(self, inputs: Sequence[PlanInput], *, epoch: int | None = 1, first: int = 1) -> None:
        """Cycles that are over."""
        for cycle, item in enumerate(inputs, first):
            self.recorder.take(epoch, item, plan(item), {"cycle": cycle, "acted": False})

    async def recorded(self, inputs: Sequence[PlanInput], *, epoch: int | None = 1, first: int = 1) -> None:
        """Each written before the next one comes."""
        for cycle, item in enumerate(inputs, first):
            before = self.written()
            self.take([item], epoch=epoch, first=cycle)
            if epoch is not None:
                await self.until(lambda: self.written() > before)  # noqa: B023 - awaited at once

    def told(self, name: str, **labels: str) -> float:
        """A counter."""
        return self.telemetry.registry.get_sample_value(f"bundlekeel_{name}", labels) or 0.0

    def written(self) -> float:
        """Cycles that were written, or that the log refused."""
        return sum(self.told("history_cycles_total", outcome=text) for text in ("recorded", "dropped_disk"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Started, and at the end closed as the runtime does it."""
        task = asyncio.create_task(self.recorder.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.recorder.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let threads work until it holds."""
        while not holds():  # noqa: ASYNC110 - other threads work
            await asyncio.sleep(0.005)

    def published(self) -> list[HistoryRecord]:
        """Every record of the fake store, in order."""
        return [record for file in sorted(self.store.held, key=_order) for record in self.store.held[file]]


def _order(file: HistoryFile) -> tuple[int, int]:
    return file.epoch, file.first


async def test_every_cycle_of_the_leader_replays() -> None:
    bench = Bench()
    inputs = list(sequence(20, 1, start_ms=START_MS + HOUR_MS - 100_000))
    async with bench.running():
        await bench.recorded(inputs)
    records = bench.published()
    assert [record.cycle for record in records] == list(range(1, 21))
    assert [record.cycle for record in records if record.full] == [1, 11]
    assert all(replay(item).same for item in rebuilt(records))
    assert [(file.hour, file.first, file.size) for file in sorted(bench.store.held)] == [
        (22, 1, 4),
        (22, 2, 6),
        (23, 3, 6),
        (23, 4, 4),
    ]
    assert bench.wal.held == {}
    assert bench.told("history_cycles_total", outcome="recorded") == 20


async def test_a_follower_records_nothing() -> None:
    """Cycles without an epoch leave no trace, and the leader's first cycle is a whole picture."""
    bench = Bench()
    inputs = list(sequence(4, 2))
    async with bench.running():
        await bench.recorded(inputs[:2], epoch=None)
        await bench.recorded(inputs[2:], epoch=4, first=3)
    assert [(record.epoch, record.cycle, record.full) for record in bench.published()] == [(4, 3, True), (4, 4, False)]


async def test_a_leader_change_leaves_no_gap_and_no_double(tmp_path: Path) -> None:
    """Two sidecars in sequence, one of them killed with its last minute in the log only and started again: each cycle
    is there once, and `history check` reports no error.
    """
    inputs = list(sequence(12, 3))
    store = ParquetStore(tmp_path / "store")
    killed = FileWal(tmp_path / "wal-a")
    one = Bench(killed, store)
    task = asyncio.create_task(one.recorder.run())
    await one.recorded(inputs[:5], epoch=1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    killed.close()
    other = Bench(FileWal(tmp_path / "wal-b"), store)
    async with other.running():
        await other.recorded(inputs[5:], epoch=2, first=6)
    assert check(store)["cycles"] == 7
    again = Bench(FileWal(tmp_path / "wal-a"), store)
    async with again.running():
        await again.until(lambda: again.wal.closed() == [])
    result = check(store)
    assert (result["ok"], result["cycles"], result["gaps"], result["doubles"]) == (True, 12, [], [])
    assert replayed(store)["same"] == 12


async def test_a_slow_disk_never_holds_up_a_cycle_and_what_is_dropped_is_said() -> None:
    wal = SlowWal()
    bench = Bench(wal)
    inputs = list(sequence(QUEUE + 5, 4))
    async with bench.running():
        bench.take(inputs[:1])
        await bench.until(wal.entered.is_set)
        bench.take(inputs[1:-1], first=2)
        dropped = bench.told("history_cycles_total", outcome="dropped_queue")
        wal.gate.set()
        await bench.until(lambda: bench.written() == QUEUE + 1)
        await bench.recorded(inputs[-1:], first=len(inputs))
    assert dropped == 3
    records = bench.published()
    assert [record.cycle for record in records] == [1, *range(2, QUEUE + 2), QUEUE + 5]
    assert records[-1].outcome.dropped == 3
    assert all(replay(item).same for item in rebuilt(records))
    assert check(bench.store)["ok"]


async def test_a_full_disk_costs_cycles_and_nothing_else() -> None:
    bench = Bench()
    inputs = list(sequence(6, 5))
    async with bench.running():
        await bench.recorded(inputs[:2])
        bench.wal.full = True
        await bench.recorded(inputs[2:4], first=3)
        bench.wal.full = False
        await bench.recorded(inputs[4:], first=5)
    records = bench.published()
    assert [(record.cycle, record.base, record.outcome.dropped) for record in records] == [
        (1, 0, 0),
        (2, 1, 0),
        (5, 2, 2),
        (6, 5, 0),
    ]
    assert all(replay(item).same for item in rebuilt(records))
    assert check(bench.store)["dropped"] == 2


async def test_a_store_that_is_away_is_waited_for_in_the_log() -> None:
    """Nothing is lost while the store does not answer: the log keeps it, and the next start publishes it."""
    bench = Bench()
    bench.store.away = True
    inputs = list(sequence(8, 6))
    async with bench.running():
        await bench.recorded(inputs)
        await bench.until(lambda: bench.told("history_store_errors_total") >= 1 or bool(bench.wal.closed()))
    bench.store.away = False
    assert bench.published() == []
    later = Bench(bench.wal, bench.store)
    async with later.running():
        await later.until(lambda: bench.wal.held == {})
    assert [record.cycle for record in bench.published()] == list(range(1, 9))


async def test_a_full_log_stops_recording_not_the_cycle() -> None:
    """With more than `wal_max_bytes` unpublished, further cycles are counted as dropped."""
    bench = Bench(wal_max_bytes=2500)
    bench.store.away = True
    async with bench.running():
        await bench.recorded(list(sequence(5, 7)))
    assert bench.told("history_cycles_total", outcome="recorded") == 3
    assert bench.told("history_cycles_total", outcome="dropped_disk") == 2


async def test_cycles_without_a_plan_are_told_from_missing_ones() -> None:
    """A cycle that could not look has nothing to record; the next record counts it, so that there is no gap."""
    bench = Bench()
    inputs = list(sequence(2, 8))
    async with bench.running():
        await bench.recorded(inputs[:1])
        bench.recorder.take(1, None, None, {"cycle": 2, "acted": False})
        await bench.recorded(inputs[1:], first=3)
    assert [(record.cycle, record.outcome.skipped) for record in bench.published()] == [(1, 0), (3, 1)]
    result = check(bench.store)
    assert (result["ok"], result["undecided"]) == (True, 1)


async def test_places_that_cannot_be_opened_are_tried_again(tmp_path: Path) -> None:
    """A log folder in use by another process is no reason not to start; nothing is raised to the cycle."""
    wal = FileWal(tmp_path)
    bench = Bench()
    tries: list[str] = []

    def places() -> Any:
        try:
            return FileWal(tmp_path), bench.store
        except StoreError as error:
            tries.append(str(error))
            raise

    blocked = Recorder(places, bench.telemetry, bench.clock, leads=lambda: True)
    task = asyncio.create_task(blocked.run())
    await bench.until(lambda: bool(tries))
    item = next(sequence(1, 9))
    blocked.take(1, item, plan(item), {"cycle": 1, "acted": False})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await blocked.close()
    wal.close()
    assert "in use by another process" in tries[0]


async def test_the_leader_keeps_the_store_tidy() -> None:
    bench = Bench(keep_days=3)
    for day in range(4):
        start = START_MS - day * 24 * HOUR_MS
        for seq in (1, 2):
            changed = replace(next(sequence(1, day)), seed=day)
            changed = replace(changed, snapshot=replace(changed.snapshot, wall_ms=start))
            record = recorded(
                None,
                frame_of(changed),
                epoch=day + 1,
                cycle=seq,
                outcome=outcome_of(plan(changed), {}, acted=False, software="test"),
            )
            bench.store.publish(day + 1, seq, [record])
    bench.clock.wall = START_MS + 2 * HOUR_MS
    async with bench.running():
        await bench.until(lambda: len(bench.store.held) == 3)
    assert {(file.epoch, file.first, file.last) for file in bench.store.held} == {(1, 1, 2), (2, 1, 2), (3, 1, 2)}


class RecordedSidecar(FakeSidecar):
    """A sidecar whose cycles are recorded at once, in memory."""

    def __init__(self, cluster: FakeCluster, name: str = "a") -> None:
        self.records: list[HistoryRecord] = []
        self.undecided: list[Mapping[str, Any]] = []
        self._before: tuple[int, Frame] | None = None
        super().__init__(cluster, name)
        self.cycle.listeners = (self.heard,)

    def heard(
        self, epoch: int | None, given: PlanInput | None, result: PlanResult | None, record: Mapping[str, Any]
    ) -> None:
        """Record what a leader planned with."""
        if epoch is None:
            return
        if given is None or result is None:
            self.undecided.append(record)
            return
        outcome = outcome_of(result, dict(record), acted=record["acted"], software="test")
        frame, cycle = frame_of(given), int(record["cycle"])
        self.records.append(recorded(self._before, frame, epoch=epoch, cycle=cycle, outcome=outcome))
        self._before = cycle, frame


async def test_every_cycle_of_a_leader_replays_with_what_it_did() -> None:
    sidecar = await RecordedSidecar(FakeCluster()).lead()
    reports = [await sidecar.cycle.turn() for _ in range(4)]
    assert [item.outcome.plan_hash for item in sidecar.records] == [
        report.plan.hash for report in reports if report.plan is not None
    ]
    result = [replay(item) for item in rebuilt(sidecar.records)]
    assert [item.same for item in result] == [True] * 4
    first = sidecar.records[0].outcome
    assert first.acted and first.planned == result[0].moves > 0
    assert first.details["report"]["outcomes"] == {"done": first.planned}
    assert len(first.details["moves"]) == first.planned


async def test_the_new_leaders_records_go_on_where_the_old_ones_ended() -> None:
    """The first sidecar resigns, the second one leads: cycle numbers follow on, under another epoch, and a follower
    recorded nothing meanwhile."""
    cluster = FakeCluster()
    first = await RecordedSidecar(cluster, "a").lead()
    second = await RecordedSidecar(cluster, "b").lead()
    await first.cycle.turn()
    await second.cycle.turn()
    assert second.records == []
    await first.leadership.stop()
    await second.lead()
    await second.cycle.turn()
    together = [*first.records, *second.records]
    assert [(item.cycle, item.full) for item in together] == [(1, True), (2, True)]
    assert together[0].epoch < together[1].epoch
    assert [replay(item).same for item in rebuilt(together)] == [True, True]


async def test_a_cycle_that_cannot_look_is_told_as_undecided() -> None:
    """Without a picture there is no plan to record, but the recorder hears of the cycle."""
    cluster = FakeCluster()
    sidecar = await RecordedSidecar(cluster).lead()
    await sidecar.cycle.turn()
    cluster.source.suspended = True
    await sidecar.cycle.turn()
    assert [record["cycle"] for record in sidecar.undecided] == [2]
    assert len(sidecar.records) == 1
