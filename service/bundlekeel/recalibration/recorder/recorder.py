"""Record every cycle of the leader: the input of `plan()` and its results.

The cycle only puts its input into a short queue. One thread computes the changes and writes them to the local log.
Another thread publishes finished minutes and cleans up the history store. So a slow or unreachable store does not delay
cycles or the log. If the queue or the log is full, cycles are not recorded, and the next record contains their number.
"""

from __future__ import annotations

import asyncio
import platform
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import structlog

from bundlekeel import __version__
from bundlekeel.model.errors import HistoryError, StoreError
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.ports import Clock, Telemetry
from bundlekeel.recalibration.history.frames import frame_of, outcome_of
from bundlekeel.recalibration.history.ports import MINUTE_MS, HistoryStore, HistoryWal, Segment, hour_of
from bundlekeel.recalibration.history.record import Frame, recorded
from bundlekeel.recalibration.recorder.history_keeping import UpkeepResult, tidy_store

_log = structlog.get_logger(__name__)

# Highest number of queued cycles. The queue is short because each entry contains a whole snapshot.
QUEUE = 4
# Seconds between two attempts to publish, also after an error of the store.
PUBLISH_SECONDS = 5.0
RETRY_SECONDS = 30.0
TIDY_SECONDS = 600.0
CLOSE_SECONDS = 5.0
SOFTWARE = f"bundlekeel {__version__}, Python {platform.python_version()}, numpy {np.__version__}"

Places = tuple[HistoryWal, HistoryStore]


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedCycle:
    """A cycle to record. Since the cycle before it in the queue, `skipped` cycles had no plan, and `dropped` cycles
    found the queue full."""

    epoch: int
    plan_input: PlanInput
    result: PlanResult
    report: Mapping[str, Any]
    skipped: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Last:
    """Time and frame of the last record; the next record contains the changes since that frame."""

    epoch: int
    cycle: int
    hour: tuple[str, int]
    minute: int
    frame: Frame


class Recorder:
    """Records cycles. `places` opens the local log and the store; after a StoreError it is called again.

    `leads`: whether this sidecar is the leader; only a leader cleans up the store. `keep_days`: files older than this
    are deleted; None: no file is deleted. `wal_max_bytes`: if the local log is larger, cycles are not recorded.
    """

    def __init__(
        self,
        places: Callable[[], Places],
        telemetry: Telemetry,
        clock: Clock,
        *,
        leads: Callable[[], bool],
        keep_days: int | None = None,
        wal_max_bytes: int = 1 << 30,
        tidy: Callable[[HistoryStore, int, int | None], UpkeepResult] = tidy_store,
    ) -> None:
        self._tidy_with = tidy
        self._open = places
        self._telemetry = telemetry
        self._clock = clock
        self._leads = leads
        self._keep_days = keep_days
        self._wal_max_bytes = wal_max_bytes
        self._places: Places | None = None
        self._queue: deque[_QueuedCycle] = deque()
        self._arrived = asyncio.Event()
        self._skipped = self._dropped = 0
        self._unwritten = self._torn = 0
        self._last: _Last | None = None
        self._tidied_at: float | None = None
        self._writer = ThreadPoolExecutor(1, "history-write")
        self._publisher = ThreadPoolExecutor(1, "history-publish")

    def take(
        self, epoch: int | None, plan_input: PlanInput | None, result: PlanResult | None, report: Mapping[str, Any]
    ) -> None:
        """Queue a cycle, unless `epoch` is None (the sidecar does not lead). Returns immediately and never raises."""
        if epoch is None:
            self._skipped = self._dropped = 0
        elif plan_input is None or result is None:
            self._skipped += 1
        elif len(self._queue) >= QUEUE:
            self._dropped += 1
            self._telemetry.count("history_cycles_total", outcome="dropped_queue")
        else:
            self._queue.append(
                _QueuedCycle(
                    epoch=epoch,
                    plan_input=plan_input,
                    result=result,
                    report=report,
                    skipped=self._skipped,
                    dropped=self._dropped,
                )
            )
            self._skipped = self._dropped = 0
            self._arrived.set()

    async def run(self) -> None:
        """Write queued cycles to the local log and publish them, until cancelled."""
        while self._places is None:
            try:
                self._places = await self._in(self._writer, self._open)
            except StoreError as error:
                _log.warning(
                    "history is not recorded yet, because its local log or its store cannot be opened; retrying",
                    error=str(error),
                )
                await asyncio.sleep(RETRY_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_on())
            tasks.create_task(self._publish_on())

    async def close(self) -> None:
        """Write and publish the remaining cycles, for at most `CLOSE_SECONDS`. Later starts publish what remains."""
        if self._places is not None:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._drain()
                    await self._in(self._writer, self._places[0].roll)
                    await self._in(self._publisher, self._publish)
            except (TimeoutError, StoreError, HistoryError) as error:
                _log.warning(
                    "history could not be published before the exit; the local log keeps it for the next start",
                    error=str(error) or "no time left",
                )
            self._places[0].close()
        self._writer.shutdown(wait=False, cancel_futures=True)
        self._publisher.shutdown(wait=False, cancel_futures=True)

    # --- writing ---

    async def _write_on(self) -> None:
        while True:
            self._arrived.clear()
            await self._drain()
            try:
                async with asyncio.timeout(PUBLISH_SECONDS):
                    await self._arrived.wait()
            except TimeoutError:
                await self._in(self._writer, self._roll_when_over)

    async def _drain(self) -> None:
        while self._queue:
            await self._in(self._writer, partial(self._write, self._queue.popleft()))

    def _write(self, queued: _QueuedCycle) -> None:
        """Compute the changes and write them to the log. Runs in the writer's thread."""
        assert self._places is not None
        wal, started = self._places[0], self._clock.boot()
        cycle, wall_ms = int(queued.report["cycle"]), queued.plan_input.snapshot.wall_ms
        dropped = queued.dropped + self._unwritten
        last, hour, minute = self._last, hour_of(wall_ms), wall_ms // MINUTE_MS
        goes_on = last is not None and (last.epoch, last.hour) == (queued.epoch, hour)
        if last is not None and last.minute != minute:
            wal.roll()
        frame = frame_of(queued.plan_input)
        outcome = outcome_of(queued.result, dict(queued.report), acted=bool(queued.report["acted"]), software=SOFTWARE)
        record = recorded(
            (last.cycle, last.frame) if last is not None and goes_on else None,
            frame,
            epoch=queued.epoch,
            cycle=cycle,
            outcome=replace(outcome, skipped=queued.skipped, dropped=dropped),
        )
        # Assume that writing fails, also by an unexpected error. This is reset below, after the write.
        self._unwritten = dropped + queued.skipped + 1
        try:
            if wal.size > self._wal_max_bytes:
                raise StoreError("the local log is full: the history store does not accept files")
            wal.append(queued.epoch, record)
        except StoreError as error:
            self._telemetry.count("history_cycles_total", outcome="dropped_disk")
            _log.warning("cycle could not be recorded and is missing in the history", cycle=cycle, error=str(error))
            return
        self._unwritten = 0
        self._last = _Last(epoch=queued.epoch, cycle=cycle, hour=hour, minute=minute, frame=frame)
        self._telemetry.count("history_cycles_total", outcome="recorded")
        self._telemetry.gauge("history_wal_bytes", wal.size)
        self._telemetry.time("history_write_seconds", self._clock.boot() - started)

    def _roll_when_over(self) -> None:
        over = self._last is not None and self._last.minute != self._clock.wall_ms() // MINUTE_MS
        if over and self._places is not None:
            self._places[0].roll()

    # --- publishing ---

    async def _publish_on(self) -> None:
        while True:
            wait = PUBLISH_SECONDS
            try:
                await self._in(self._publisher, self._publish)
                await self._tidy()
            except StoreError as error:
                self._telemetry.count("history_store_errors_total")
                _log.warning(
                    "history could not be published; the local log keeps it until an attempt succeeds", error=str(error)
                )
                wait = RETRY_SECONDS
            await asyncio.sleep(wait)

    def _publish(self) -> None:
        """Publish every finished segment, oldest first. Runs in the publisher's thread."""
        assert self._places is not None
        wal, store = self._places
        for segment in wal.closed():
            try:
                records = wal.records(segment)
                if records:
                    store.publish(segment.epoch, segment.seq, records)
                    self._telemetry.count("history_files_total", what="published")
            except HistoryError as error:
                self._keep_out(segment, error)
            else:
                wal.discard(segment)
        torn, self._torn = wal.torn - self._torn, wal.torn
        if torn:
            self._telemetry.count("history_torn_total", torn, where="log")
        self._telemetry.gauge("history_wal_bytes", wal.size)

    def _keep_out(self, segment: Segment, error: HistoryError) -> None:
        assert self._places is not None
        self._places[0].set_aside(segment)
        self._telemetry.count("history_torn_total", where="log")
        _log.warning(
            "minute of history cannot be published; its file in the local log was renamed and stays there",
            epoch=segment.epoch,
            seq=segment.seq,
            error=str(error),
        )

    async def _tidy(self) -> None:
        now = self._clock.boot()
        if not self._leads() or (self._tidied_at is not None and now - self._tidied_at < TIDY_SECONDS):
            return
        self._tidied_at = now
        await self._in(self._publisher, self._tidy_store)

    def _tidy_store(self) -> None:
        assert self._places is not None
        done = self._tidy_with(self._places[1], self._clock.wall_ms(), self._keep_days)
        for what, amount in (("merged", done.merged), ("removed", done.removed), ("set_aside", len(done.aside))):
            if amount:
                self._telemetry.count("history_files_total", amount, what=what)
        for path in done.aside:
            self._telemetry.count("history_torn_total", where="file")
            _log.warning("unreadable history file moved aside; its cycles are missing in the history", path=path)

    async def _in(self, threads: ThreadPoolExecutor, work: Callable[[], Any]) -> Any:
        """Run work in a thread and return its result. A cancellation does not interrupt the work."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(threads, work))
