"""Notifications: observes the journal, makes notifications of its records, and sends them beside the cycles.

Nothing here can delay or fail a cycle: a record is taken at once, its notification waits in a bounded queue of each
receiver, and one task a receiver sends. What does not fit, or is not taken after some attempts, is counted and
forgotten; the journal has it all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from bundlekeel.core.model.errors import CodecError, NotificationError
from bundlekeel.daemon.records.notification_texts import NotificationTexts
from bundlekeel.ports import Clock, Journal, Telemetry
from bundlekeel.ports.records import SEVERITIES, Event, Notification, Notifier, Severity

_log = structlog.get_logger(__name__)

# Waiting notifications of one receiver; the oldest are dropped beyond it.
QUEUE: Final = 200
# Seconds before each further attempt.
BACKOFF: Final = (1.0, 4.0, 15.0, 60.0)
CLOSE_SECONDS: Final = 3.0


@dataclass(slots=True, kw_only=True)
class NotificationReceiver:
    """One receiver, which notifications it takes, and those not sent to it yet."""

    name: str
    notifier: Notifier
    events: frozenset[Event]
    min_severity: Severity = "info"
    waiting: deque[Notification] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, notice: Notification) -> bool:
        """Whether it takes this one."""
        return notice.event in self.events and SEVERITIES.index(notice.severity) >= SEVERITIES.index(self.min_severity)


class Notifications:
    """All receivers of one sidecar. `leads`: findings are sent by the leader only, every replica has them."""

    def __init__(
        self,
        sinks: Sequence[NotificationReceiver],
        telemetry: Telemetry,
        clock: Clock,
        *,
        cluster: str,
        member: Callable[[], str],
        leads: Callable[[], bool],
    ) -> None:
        self._sinks = tuple(sinks)
        self._telemetry = telemetry
        for sink in self._sinks:
            for outcome in ("sent", "failed", "dropped"):
                telemetry.count("notifications_total", 0.0, sink=sink.name, outcome=outcome)
        self._clock = clock
        self._notices = NotificationTexts(cluster=cluster, member=member, leads=leads)

    def observe(self, record: Mapping[str, Any]) -> None:
        """A journal record was written. Returns at once and never raises."""
        for notice in self._notices.of(record):
            for sink in self._sinks:
                if sink.wants(notice):
                    self._take(sink, notice)

    def _take(self, sink: NotificationReceiver, notice: Notification) -> None:
        if len(sink.waiting) >= QUEUE:
            del sink.waiting[1]  # the first one is being tried
            self._telemetry.count("notifications_total", sink=sink.name, outcome="dropped")
        sink.waiting.append(notice)
        sink.arrived.set()
        self._measure(sink)

    async def run(self) -> None:
        """Send until cancelled, each receiver in a task of its own: one that hangs holds up no other."""
        async with asyncio.TaskGroup() as tasks:
            for sink in self._sinks:
                tasks.create_task(self._serve(sink))

    async def close(self) -> None:
        """One attempt for what is left, within a few seconds; then the connections are closed."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(self._empty(sink, ()) for sink in self._sinks))
        except TimeoutError:
            _log.warning("notifications are not sent", left=sum(len(sink.waiting) for sink in self._sinks))
        await asyncio.gather(*(sink.notifier.close() for sink in self._sinks))

    async def _serve(self, sink: NotificationReceiver) -> None:
        while True:
            await sink.arrived.wait()
            sink.arrived.clear()
            await self._empty(sink, BACKOFF)

    async def _empty(self, sink: NotificationReceiver, backoff: Sequence[float]) -> None:
        while sink.waiting:
            # It stays in the queue while it is tried: it counts, and is not lost when this task is cancelled.
            outcome = await self._send(sink, sink.waiting[0], backoff)
            sink.waiting.popleft()
            self._telemetry.count("notifications_total", sink=sink.name, outcome=outcome)
            self._measure(sink)

    async def _send(self, sink: NotificationReceiver, notice: Notification, backoff: Sequence[float]) -> str:
        """`sent` or `failed`."""
        for pause in (*backoff, None):
            try:
                await sink.notifier.send(notice)
                return "sent"
            except (NotificationError, CodecError) as error:
                _log.info("notification not taken", sink=sink.name, reason=notice.reason, error=str(error))
                if isinstance(error, CodecError) or not error.again or pause is None:
                    break
                await self._clock.sleep(pause)
        _log.warning("notification given up", sink=sink.name, reason=notice.reason, text=notice.text)
        return "failed"

    def _measure(self, sink: NotificationReceiver) -> None:
        self._telemetry.gauge("notifications_waiting", float(len(sink.waiting)), sink=sink.name)


class ObservedJournal:
    """`ports.Journal` of whose records are passed to an observer as well, after they are written."""

    def __init__(self, journal: Journal, observe: Callable[[Mapping[str, Any]], None]) -> None:
        self._journal = journal
        self._observe = observe
        self.tail, self.since, self.close = journal.tail, journal.since, journal.close

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record, then pass it to the observer."""
        self._journal.append(record)
        self._observe(record)


class DatedJournal:
    """`ports.Journal` whose records carry the moments that people's clocks show. `stepped_ms`: how far the wall clock
    has been set since this process began."""

    _MOMENTS = ("wall_ms", "started_ms", "landed_ms")

    def __init__(self, journal: Journal, stepped_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._stepped_ms = stepped_ms
        self.tail, self.since, self.close = journal.tail, journal.since, journal.close

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record."""
        by = self._stepped_ms()
        dated = {name: record[name] + by for name in self._MOMENTS if record.get(name)}
        self._journal.append({**record, **dated})
