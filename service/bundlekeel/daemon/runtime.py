"""The running sidecar: its tasks, in which order they start, and in which they stop.

Leadership and cycles are tasks of their own, so that a move that hangs never costs the lease. SIGTERM belongs to this
module: calls in flight finish or leave their intent to the next leader, leadership is released, exit code 0.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from bundlekeel.core.model.errors import BundlekeelError, LeadershipLost, StoreError, WrongCluster
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.gate.outage import OutageWatch
from bundlekeel.daemon.operations.drain_tracker import DrainTracker
from bundlekeel.daemon.operations.executions import Executions
from bundlekeel.daemon.operations.reload import Reload
from bundlekeel.daemon.state.leadership import BENCH, Leadership
from bundlekeel.ports import Coordination, LoadSource

_log = structlog.get_logger(__name__)

CHECKPOINT_SECONDS = 600.0
# A write of an earlier leader, or of another program, can arrive after the start of a term.
INTENTS_SECONDS = 10.0
# A stopped sidecar is gone within this time, whatever hangs. Each step is over at its moment after the signal; what it
# does not need is left to those after it.
STOP_SECONDS = 20.0
_MOVES_UNTIL, _API_UNTIL, _TASKS_UNTIL, _LEADERSHIP_UNTIL = 12.0, 15.0, 16.0, 17.0
# Moves in flight are waited for so long; their outcomes are written afterwards.
_MOVES_SECONDS = 11.0
_HOUSEKEEPING_SECONDS = 1.0
_STORE_WARNING_SECONDS = 60.0


class Server(Protocol):
    """The API server, seen from here."""

    async def start(self) -> str:
        """Listen; returns the URL."""

    async def stop(self) -> None:
        """Stop listening."""


@dataclass(frozen=True, slots=True)
class Background:
    """A task beside the cycles, and what closes its part when all tasks have ended."""

    name: str
    run: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeParts:
    """All parts that the runtime starts and stops. `closers`: close other parts at the end, by the name of the part."""

    coordination: Coordination
    source: LoadSource
    leadership: Leadership
    cycle: Cycle
    executions: Executions
    operations: DrainTracker
    reload: Reload
    interval_seconds: float
    background: Sequence[Background] = ()
    closers: Mapping[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)


class Runtime:
    """Runs one sidecar until it is stopped."""

    def __init__(self, parts: RuntimeParts) -> None:
        self._parts = parts
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._checkpoint_at = self._intents_at = 0.0
        self._store_warned_at: float | None = None
        self._observing = False
        self._failed = False
        self._wrong: WrongCluster | None = None
        self.last_turn_boot = self._turn_began = parts.cycle.clock.boot()

    async def run(
        self,
        servers: Sequence[Server] = (),
        more: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
        *,
        on_ready: Callable[[list[str]], None] | None = None,
    ) -> int:
        """Run until SIGTERM, SIGINT or `request_stop`; return the exit code. A second signal ends the process
        immediately. `more`: further tasks by name.

        Raises WrongCluster, after a normal stop, if brokers report that `cluster` is not their name or
        `configuration_store` not their store.
        """
        self._own_signals()
        parts = self._parts
        await parts.coordination.start()
        urls = [await server.start() for server in servers]
        if on_ready is not None:
            on_ready(urls)
        bodies = {
            "leadership": parts.leadership.run,
            **self.bodies(),
            "settings": parts.reload.run,
            **{item.name: item.run for item in parts.background},
            **(more or {}),
        }
        tasks = [asyncio.create_task(self.root(name, body)) for name, body in bodies.items()]
        await self._stop.wait()
        await self._shut_down(tasks, servers)
        if self._wrong is not None:
            raise self._wrong
        return 1 if self._failed else 0

    def request_stop(self) -> None:
        """Stop as SIGTERM does."""
        self._stop.set()

    def hurry(self) -> None:
        """Run the next cycle now."""
        self._hurry.set()

    # --- tasks ---

    def bodies(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The runtime's own tasks, by name."""
        return {
            "observer": self._observe,
            "cycles": self._cycles,
            "housekeeping": self._housekeeping,
            "executions": self._executions,
            "operations": self._operations,
        }

    async def root(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        """A root task: restarted a second after an unexpected error, which is logged and counted, from 0 on."""
        self._parts.cycle.telemetry.count("unexpected_errors_total", 0.0, where=name)
        while not self._stop.is_set():
            try:
                await body()
            except WrongCluster as error:
                self._wrong = error
                self._stop.set()
            except BundlekeelError as error:
                _log.warning("task interrupted", task=name, error=str(error))
            except Exception:  # noqa: BLE001 - top of a root task
                _log.exception("task failed", task=name)
                self._parts.cycle.telemetry.count("unexpected_errors_total", where=name)
            await self._pause(1.0)

    async def _observe(self) -> None:
        """Bench sidecars watch only the seats; a sidecar with a seat keeps full watches and warm averages."""
        while self._parts.leadership.role == BENCH:
            await self._pause(0.2)
            if self._stop.is_set():
                return
        if not self._observing:
            # Before the first report: what brokers stored (the top ten each) would else count as known already.
            await self._parts.cycle.observer.restore(self._parts.cycle.shared_state.read_averages())
            self._observing = True
            await self._parts.source.start()
        await self._parts.cycle.observer.follow()

    async def _cycles(self) -> None:
        """One cycle after the other, on whichever sidecar has a seat and sees the cluster."""
        parts = self._parts
        while not self._stop.is_set():
            self._turn_began = parts.cycle.clock.boot()
            # What is reported during the turn is for the next one.
            parts.cycle.observer.fresh.clear()
            if self._observing and parts.leadership.role != BENCH:
                try:
                    await parts.cycle.shared_state.refresh()
                except StoreError as error:
                    _log.info("shared state could not be read", error=str(error))
                await parts.cycle.turn()
            self.last_turn_boot = parts.cycle.clock.boot()
            await self._until_next()

    async def _until_next(self) -> None:
        """The interval, or sooner when fresh reports arrive, but never more often than five times an interval.

        The first picture and a term just won do not wait for that long, and a plan that the budgets of a cycle cut off
        goes on as soon as the next cycle may run: a fifth of the interval after the last one began.
        """
        fresh, interval = self._parts.cycle.observer.fresh, self._parts.interval_seconds
        first, shortest = self._parts.cycle.picture is None, interval / 5
        if not first:
            try:
                async with asyncio.timeout(max(0.0, self._turn_began + shortest - self._parts.cycle.clock.boot())):
                    await self._first_of(self._hurry, self._stop)
            except TimeoutError:
                pass
            if self._hurry.is_set() or self._parts.cycle.cut_off:
                self._hurry.clear()
                return
        try:
            async with asyncio.timeout(interval - shortest):
                await self._first_of(fresh, self._stop)
        except TimeoutError:
            return

    async def _first_of(self, *events: asyncio.Event) -> None:
        waiters = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()

    async def _housekeeping(self) -> None:
        """Once a second: desired state, intents of earlier terms, checkpoint of the averages, loop lag."""
        clock = self._parts.cycle.clock
        while not self._stop.is_set():
            before = clock.boot()
            await self._pause(_HOUSEKEEPING_SECONDS)
            lag = max(0.0, clock.boot() - before - _HOUSEKEEPING_SECONDS)
            self._parts.cycle.telemetry.gauge("event_loop_lag_seconds", lag)
            self._warn_about_store()
            if not self._parts.coordination.connected:
                continue
            try:
                await self._keep_term()
            except (StoreError, LeadershipLost) as error:
                _log.info("housekeeping interrupted", error=str(error))

    def _warn_about_store(self) -> None:
        """Log once a minute that the metadata store does not answer, and once that it does again."""
        now = self._parts.cycle.clock.boot()
        if self._parts.coordination.connected:
            if self._store_warned_at is not None:
                _log.info("the metadata store answers")
            self._store_warned_at = None
        elif self._store_warned_at is None or now - self._store_warned_at >= _STORE_WARNING_SECONDS:
            self._store_warned_at = now
            told = "the metadata store does not answer; waiting, nothing is done meanwhile"
            _log.warning(told, error=self._parts.coordination.obstacle)

    async def _executions(self) -> None:
        """Carry out operators' requests, in a task of its own: a long execution must not hold up the housekeeping."""
        while not self._stop.is_set():
            await self._pause(_HOUSEKEEPING_SECONDS)
            if self._parts.coordination.connected and self._parts.leadership.leading:
                await self._parts.executions.serve()

    async def _operations(self) -> None:
        """Keep drained brokers empty: what lands there is planned at once, in a task of its own, since brokers are
        called that may hang."""
        parts = self._parts
        while not self._stop.is_set():
            await self._pause(_HOUSEKEEPING_SECONDS)
            if not parts.leadership.leading:
                continue
            if await parts.operations.look(parts.cycle.cycle_state.ledger.under_way()):
                parts.cycle.observer.fresh.set()

    async def _keep_term(self) -> None:
        cycle, now = self._parts.cycle, self._parts.cycle.clock.boot
        await cycle.shared_state.refresh()
        if not self._parts.leadership.leading:
            return
        await cycle.executor.flush()
        if cycle.shared_state.frozen or not cycle.leads or now() >= self._intents_at:
            self._intents_at = now() + INTENTS_SECONDS
            settlement = await cycle.executor.settle()
            for outcome in settlement.settled:
                cycle.book(outcome)
            await self._look_for_arrivals()
        for split in cycle.executor.settled_splits():
            cycle.book_split(split)
        if now() >= self._checkpoint_at:
            self._checkpoint_at = now() + CHECKPOINT_SECONDS
            if len(cycle.observer.averages):
                await cycle.shared_state.save_averages(cycle.observer.averages)

    async def _look_for_arrivals(self) -> None:
        """Open moves of earlier leaders stay frozen, but the load of those that have arrived is known."""
        cycle = self._parts.cycle
        if cycle.leads and not cycle.busy.locked():
            open_moves = [
                entry
                for entry in cycle.cycle_state.ledger.entries
                if entry.bundle in cycle.shared_state.frozen and not entry.landed_ms
            ]
            cycle.arrived(await cycle.executor.arrived(open_moves))

    # --- stopping ---

    def _own_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            if self._stop.is_set():
                _log.warning("second signal: leaving at once", signal=number)
                signal.raise_signal(signal.SIGKILL)
            _log.info("stopping", signal=number)
            # The interpreter waits for threads that a dead disk or collector holds: the kernel does not (SIGALRM).
            signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS + 1.0)
            self._stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._parts.reload.ask)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not past a stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _shut_down(self, tasks: list[asyncio.Task[None]], servers: Sequence[Server]) -> None:
        """Moves first, while we still lead; then leadership; then the rest, at the same time."""
        parts, began = self._parts, asyncio.get_running_loop().time()
        await self._by(began + _MOVES_UNTIL, moves=self._stop_moves())
        await self._by(began + _API_UNTIL, **{f"api {number}": server.stop() for number, server in enumerate(servers)})
        for task in tasks:
            task.cancel()
        await self._by(began + _TASKS_UNTIL, **{task.get_name(): task for task in tasks})
        await self._by(began + _LEADERSHIP_UNTIL, leadership=parts.leadership.stop())
        await self._by(
            began + STOP_SECONDS,
            **{item.name: item.close() for item in parts.background if item.close is not None},
            source=parts.source.close(),
            coordination=parts.coordination.close(),
            **{name: close() for name, close in parts.closers.items()},
        )
        parts.cycle.journal.close()

    async def _stop_moves(self) -> None:
        left = await self._parts.cycle.executor.stop(_MOVES_SECONDS)
        if left:
            _log.warning("moves left to the next leader", bundles=list(left))

    async def _by(self, deadline: float, **steps: Awaitable[None]) -> None:
        """Take these steps at the same time; those that are not over at the deadline (loop time) are cancelled and not
        waited for, and what they raise makes the exit code 1."""
        names: dict[asyncio.Future[None], str] = {asyncio.ensure_future(step): name for name, step in steps.items()}
        if not names:
            return
        done, late = await asyncio.wait(names, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        for task in late:
            task.cancel()
            _log.warning("a step of the shutdown took too long", step=names[task])
        for task in done:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._failed = True
                _log.error("a step of the shutdown failed", step=names[task], exc_info=error)


async def begin_term(epoch: int, cycle: Cycle, outage: OutageWatch) -> None:
    """Write the first fenced document of a term, then restore what the last leader left: cycle state, averages and open
    intents."""
    executor, shared_state = cycle.executor, cycle.shared_state
    executor.begin(epoch)
    await shared_state.begin_term(epoch)
    outage.remember(shared_state.shared.cycle_state.brokers, shared_state.shared.wall_ms)
    await cycle.observer.restore(shared_state.read_averages())
    for outcome in (await executor.settle()).settled:
        cycle.book(outcome)
