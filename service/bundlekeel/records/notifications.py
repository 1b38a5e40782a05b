"""Send notifications about journal records, in parallel to the cycles.

Notifications never delay or fail a cycle. Each receiver has a bounded queue and one task that sends. If the queue is
full, or sending fails several times, a notification is counted and dropped; the journal contains its record.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from bundlekeel.model.errors import CodecError, NotificationError
from bundlekeel.ports import Clock, Journal, Telemetry
from bundlekeel.ports.records import SEVERITIES, Event, Notification, Notifier, Severity
from bundlekeel.records.notification_texts import NotificationTexts

_log = structlog.get_logger(__name__)

# Highest number of queued notifications per receiver; beyond it the oldest is dropped.
QUEUE: Final = 200
# Seconds to wait before each further attempt.
BACKOFF: Final = (1.0, 4.0, 15.0, 60.0)
CLOSE_SECONDS: Final = 3.0


@dataclass(slots=True, kw_only=True)
class NotificationReceiver:
    """A receiver, its filter, and its queue of notifications."""

    name: str
    notifier: Notifier
    events: frozenset[Event]
    min_severity: Severity = "info"
    waiting: deque[Notification] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, notice: Notification) -> bool:
        """Return whether the receiver accepts this notification."""
        return notice.event in self.events and SEVERITIES.index(notice.severity) >= SEVERITIES.index(self.min_severity)


class Notifications:
    """All receivers of notifications in one sidecar.

    `leads`: returns whether the sidecar leads; only the leader sends findings, which all replicas have."""

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
        """Queue the notifications of a journal record. Returns immediately and never raises."""
        for notice in self._notices.of(record):
            for sink in self._sinks:
                if sink.wants(notice):
                    self._take(sink, notice)

    def _take(self, sink: NotificationReceiver, notice: Notification) -> None:
        if len(sink.waiting) >= QUEUE:
            del sink.waiting[1]  # the first one is being sent
            self._telemetry.count("notifications_total", sink=sink.name, outcome="dropped")
        sink.waiting.append(notice)
        sink.arrived.set()
        self._measure(sink)

    async def run(self) -> None:
        """Send until cancelled. Each receiver has its own task, so a receiver that hangs does not delay the others."""
        async with asyncio.TaskGroup() as tasks:
            for sink in self._sinks:
                tasks.create_task(self._serve(sink))

    async def close(self) -> None:
        """Try for a few seconds to send the queued notifications, each once, then close the connections."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(self._empty(sink, ()) for sink in self._sinks))
        except TimeoutError:
            _log.warning("notifications not sent before the stop", left=sum(len(sink.waiting) for sink in self._sinks))
        await asyncio.gather(*(sink.notifier.close() for sink in self._sinks))

    async def _serve(self, sink: NotificationReceiver) -> None:
        while True:
            await sink.arrived.wait()
            sink.arrived.clear()
            await self._empty(sink, BACKOFF)

    async def _empty(self, sink: NotificationReceiver, backoff: Sequence[float]) -> None:
        while sink.waiting:
            # Keep the notification in the queue while it is sent. So it is counted, and not lost if this task is
            # cancelled.
            outcome = await self._send(sink, sink.waiting[0], backoff)
            sink.waiting.popleft()
            self._telemetry.count("notifications_total", sink=sink.name, outcome=outcome)
            self._measure(sink)

    async def _send(self, sink: NotificationReceiver, notice: Notification, backoff: Sequence[float]) -> str:
        """Send a notification; repeat it after each pause in `backoff` (seconds). Return `sent` or `failed`."""
        for pause in (*backoff, None):
            try:
                await sink.notifier.send(notice)
                return "sent"
            except (NotificationError, CodecError) as error:
                _log.info(
                    "notification was not accepted by its receiver",
                    sink=sink.name,
                    reason=notice.reason,
                    error=str(error),
                )
                if isinstance(error, CodecError) or not error.again or pause is None:
                    break
                await self._clock.sleep(pause)
        _log.warning("notification given up and dropped", sink=sink.name, reason=notice.reason, text=notice.text)
        return "failed"

    def _measure(self, sink: NotificationReceiver) -> None:
        self._telemetry.gauge("notifications_waiting", float(len(sink.waiting)), sink=sink.name)


class ObservedJournal:
    """A `ports.Journal` that writes each record to `journal`, then passes it to `observe`."""

    def __init__(self, journal: Journal, observe: Callable[[Mapping[str, Any]], None]) -> None:
        self._journal = journal
        self._observe = observe
        self.tail, self.since, self.close = journal.tail, journal.since, journal.close

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record, then pass it to the observer."""
        self._journal.append(record)
        self._observe(record)


class DatedJournal:
    """A `ports.Journal` that converts times in records to the host's clock, which may have been set since the start.

    `stepped_ms`: returns the ms by which the host's clock was set since the process started."""

    _MOMENTS = ("wall_ms", "started_ms", "landed_ms")

    def __init__(self, journal: Journal, stepped_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._stepped_ms = stepped_ms
        self.tail, self.since, self.close = journal.tail, journal.since, journal.close

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record with converted times."""
        by = self._stepped_ms()
        dated = {name: record[name] + by for name in self._MOMENTS if record.get(name)}
        self._journal.append({**record, **dated})
