"""The running sidecar: its tasks, and the order in which they start and stop.

Leadership and cycles are separate tasks, so that a move that hangs does not end the leadership. After SIGTERM, moves in
progress finish, or the next leader determines their outcome. Then leadership is released, and the exit code is 0.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.gate.outage import OutageWatch
from bundlekeel.leader.state.leadership import BENCH, Leadership
from bundlekeel.model.errors import BundlekeelError, LeadershipLost, StoreError, WrongCluster
from bundlekeel.ports import Coordination, LoadSource

_log = structlog.get_logger(__name__)

CHECKPOINT_SECONDS = 600.0
# Seconds between two searches for open moves of earlier leaders: their writes can arrive after the start of a term.
INTENTS_SECONDS = 10.0
# A sidecar exits at most this many seconds after the signal, even if something hangs. Below: the deadlines of the
# steps, in seconds after the signal. Time that a step does not need is left for the next steps.
STOP_SECONDS = 20.0
_MOVES_UNTIL, _API_UNTIL, _TASKS_UNTIL, _LEADERSHIP_UNTIL = 12.0, 15.0, 16.0, 17.0
# Seconds to wait for moves in progress. Their outcomes are written afterwards.
_MOVES_SECONDS = 11.0
_HOUSEKEEPING_SECONDS = 1.0
_STORE_WARNING_SECONDS = 60.0


class Server(Protocol):
    """The API server."""

    async def start(self) -> str:
        """Start listening and return the URL."""

    async def stop(self) -> None:
        """Stop listening."""


@dataclass(frozen=True, slots=True)
class Background:
    """A task that runs in parallel to the cycles. `close` is called after all tasks have ended."""

    name: str
    run: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeParts:
    """All parts that the runtime starts and stops.

    `execute_requests`: executes the operators' requests that wait. `look_at_drains`: receives the bundles in transit,
    and returns whether another bundle has arrived at a drained broker. `on_hangup`: called at SIGHUP.
    `closers`: close other parts at the end, by the name of the part.
    """

    coordination: Coordination
    source: LoadSource
    leadership: Leadership
    cycle: Cycle
    execute_requests: Callable[[], Awaitable[None]]
    look_at_drains: Callable[[Collection[str]], Awaitable[bool]]
    on_hangup: Callable[[], None]
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
        """Start to stop the sidecar, as after SIGTERM."""
        self._stop.set()

    def hurry(self) -> None:
        """Start the next cycle now, without waiting for its interval."""
        self._hurry.set()

    # --- tasks ---

    def bodies(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The runtime's own tasks: their functions by name."""
        return {
            "observer": self._observe,
            "cycles": self._cycles,
            "housekeeping": self._housekeeping,
            "executions": self._executions,
            "operations": self._drains,
        }

    async def root(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        """Run a task until the sidecar stops. After an unexpected error, log and count it, and restart the task."""
        self._parts.cycle.telemetry.count("unexpected_errors_total", 0.0, where=name)
        while not self._stop.is_set():
            try:
                await body()
            except WrongCluster as error:
                self._wrong = error
                self._stop.set()
            except BundlekeelError as error:
                _log.warning("task interrupted; it restarts after a second", task=name, error=str(error))
            except Exception:  # noqa: BLE001 - top of a root task
                _log.exception("task failed; it restarts after a second", task=name)
                self._parts.cycle.telemetry.count("unexpected_errors_total", where=name)
            await self._pause(1.0)

    async def _observe(self) -> None:
        """Observe the cluster while this sidecar has a seat. Without a seat it cannot lead, and waits for one."""
        while self._parts.leadership.role == BENCH:
            await self._pause(0.2)
            if self._stop.is_set():
                return
        if not self._observing:
            # Restore before the first report, which would load the few averages that brokers store. Restored averages
            # are used only for unknown bundles.
            await self._parts.cycle.observer.restore(self._parts.cycle.shared_state.read_averages())
            self._observing = True
            await self._parts.source.start()
        await self._parts.cycle.observer.follow()

    async def _cycles(self) -> None:
        parts = self._parts
        while not self._stop.is_set():
            self._turn_began = parts.cycle.clock.boot()
            # Reports that arrive during the cycle are for the next one.
            parts.cycle.observer.fresh.clear()
            if self._observing and parts.leadership.role != BENCH:
                try:
                    await parts.cycle.shared_state.refresh()
                except StoreError as error:
                    _log.info("shared state could not be read; the cycle uses the last known state", error=str(error))
                await parts.cycle.turn()
            self.last_turn_boot = parts.cycle.clock.boot()
            await self._until_next()

    async def _until_next(self) -> None:
        """Wait for the next cycle: one interval, or less if new reports arrive, but at least a fifth of it.

        The first snapshot and a new term end the wait earlier. If limits on one cycle stopped a plan's moves, the next
        cycle starts after a fifth of the interval."""
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
        """Each second, re-read requests, find outcomes of earlier moves, store averages, measure the loop's lag."""
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
                _log.info("housekeeping interrupted; retrying in a second", error=str(error))

    def _warn_about_store(self) -> None:
        now = self._parts.cycle.clock.boot()
        if self._parts.coordination.connected:
            if self._store_warned_at is not None:
                _log.info("the metadata store responds again")
            self._store_warned_at = None
        elif self._store_warned_at is None or now - self._store_warned_at >= _STORE_WARNING_SECONDS:
            self._store_warned_at = now
            text = "the metadata store does not answer; nothing moves until it does"
            _log.warning(text, error=self._parts.coordination.obstacle)

    async def _executions(self) -> None:
        """Execute operators' requests, in a separate task, so that long executions do not delay the housekeeping."""
        while not self._stop.is_set():
            await self._pause(_HOUSEKEEPING_SECONDS)
            if self._parts.coordination.connected and self._parts.leadership.leading:
                await self._parts.execute_requests()

    async def _drains(self) -> None:
        """Keep drained brokers empty: start a cycle as soon as a bundle lands there.

        This is a separate task, because it calls brokers, which may hang."""
        parts = self._parts
        while not self._stop.is_set():
            await self._pause(_HOUSEKEEPING_SECONDS)
            if not parts.leadership.leading:
                continue
            if await parts.look_at_drains(parts.cycle.cycle_state.ledger.under_way()):
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
        """Record which moves of earlier leaders, whose outcome is open, have arrived.

        Their bundles still must not move, but plans then count the bundles' load at the target."""
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
                _log.warning("second signal received, exiting immediately", signal=number)
                signal.raise_signal(signal.SIGKILL)
            _log.info("stopping", signal=number)
            # The interpreter waits for threads, which may hang in a disk. SIGALRM ends the process nevertheless.
            signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS + 1.0)
            self._stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._parts.on_hangup)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _shut_down(self, tasks: list[asyncio.Task[None]], servers: Sequence[Server]) -> None:
        """Stop moves first, while this sidecar still leads, then the leadership, then all other parts in parallel."""
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
            text = "moves did not end before the stop; the next leader determines their outcomes"
            _log.warning(text, bundles=list(left))

    async def _by(self, deadline: float, **steps: Awaitable[None]) -> None:
        """Run these steps in parallel, and cancel those that are still running at the deadline (loop time).

        An error of a step sets the exit code to 1."""
        names: dict[asyncio.Future[None], str] = {asyncio.ensure_future(step): name for name, step in steps.items()}
        if not names:
            return
        done, late = await asyncio.wait(names, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        for task in late:
            task.cancel()
            _log.warning("a step of the shutdown was cancelled, because it took too long", step=names[task])
        for task in done:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._failed = True
                _log.error("a step of the shutdown failed; the exit code is 1", step=names[task], exc_info=error)


async def begin_term(epoch: int, cycle: Cycle, outage: OutageWatch) -> None:
    """Start a term: make the first write, restore the last leader's state and averages, check its open moves."""
    executor, shared_state = cycle.executor, cycle.shared_state
    executor.begin(epoch)
    await shared_state.begin_term(epoch)
    outage.remember(shared_state.shared.cycle_state.brokers, shared_state.shared.wall_ms)
    await cycle.observer.restore(shared_state.read_averages())
    for outcome in (await executor.settle()).settled:
        cycle.book(outcome)
