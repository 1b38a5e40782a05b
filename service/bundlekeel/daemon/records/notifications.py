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

from bundlekeel.core.channel.findings import FindingCode
from bundlekeel.core.model.codes import Code, explain
from bundlekeel.core.model.errors import CodecError, NotificationError
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


# Which journal records become notifications, and their texts.


# What people do that makes the balancer stop, or go on.
_STOPS: Final = ("pause", "resume", "mode", "stop", "takeover", "handback", "deadman")
# Written by every replica about a document all of them see.
_SHARED: Final = ("takeover", "handback", "deadman")
# Obstacles that are the normal state of a sidecar, or that an operator's request has notified already.
_QUIET: Final = frozenset({Code.NOT_LEADER, Code.OBSERVE_ONLY, Code.RECOMMEND_ONLY, Code.PAUSED, Code.OUTSIDE_WINDOW})
# Outcomes of moves and splits that a person may want to look at.
_ODD: Final = ("unknown", "refused")


class NotificationTexts:
    """Makes notifications of records, oldest first. Remembers only what stopped the leader last.

    A stop is sent when a second cycle in a row says the same: one undecided cycle right after a start is not sent.
    """

    def __init__(self, *, cluster: str, member: Callable[[], str], leads: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._member = member
        self._leads = leads
        self._seen = self._stopped = ""

    def of(self, record: Mapping[str, Any]) -> list[Notification]:
        """The notices of one record: none for most."""
        kind = str(record.get("kind", ""))
        if kind == "cycle":
            return self._cycle(record)
        if kind == "request":
            return self._request_text(record)
        if kind == "finding":
            return self._finding(record) if self._leads() else []
        if kind == "external_move":
            text = str(record.get("sentence", ""))
            return [
                self._made("findings", "warning", "ExternalMove", text, record, ("bundle", "source", "destination"))
            ]
        if kind == "adoption":
            reason = str(record.get("code") or "ThresholdsAdopted")
            severity: Severity = "warning" if record.get("reverted") else "info"
            return [
                self._made("adoption", severity, reason, str(record.get("sentence", "")), record, ("version", "by"))
            ]
        return []

    def _cycle(self, record: Mapping[str, Any]) -> list[Notification]:
        """What a leader's cycle carried out, and whether something stops it since."""
        if record.get("epoch") is None:
            self._seen = self._stopped = ""
            return []
        found = []
        outcomes = {*_words(record.get("outcomes")), *_words(record.get("splits"))}
        if outcomes:
            odd = not outcomes.isdisjoint(_ODD)
            text = str(record.get("sentence", ""))
            keys = ("cycle", "epoch", "code", "outcomes", "splits", "plan")
            found.append(self._made("executions", "warning" if odd else "info", "CarriedOut", text, record, keys))
        undecided = record.get("code") if record.get("plan") is None else ""
        code = str(record.get("obstacle") or undecided or "")
        loud, before = "" if code in _QUIET else code, self._seen
        self._seen = loud
        if loud != self._stopped and loud in (before, ""):
            found.append(self._obstacle(loud, record))
            self._stopped = loud
        return found

    def _obstacle(self, code: str, record: Mapping[str, Any]) -> Notification:
        if not code:
            text = f"the leader acts again; before, it was stopped by {self._stopped}"
            return self._made("stops", "info", "ActsAgain", text, record, ("cycle", "epoch"))
        text = f"nothing is carried out: {explain(code) or code}"
        return self._made("stops", "warning", code, text, record, ("cycle", "epoch"))

    def _request_text(self, record: Mapping[str, Any]) -> list[Notification]:
        what, text = str(record.get("what", "")), str(record.get("sentence", ""))
        first = what.split(maxsplit=1)[0] if what else ""
        if first in _SHARED and not self._leads():
            return []
        if first in ("thresholds", "adopt", "revert"):
            return [self._made("adoption", "info", "ThresholdsAsked", text, record, ("what", "by", "reason"))]
        severity: Severity = "warning" if first == "deadman" else "info"
        event: Event = "stops" if first in _STOPS else "executions"
        return [self._made(event, severity, _camel(first) or "Asked", text, record, ("what", "by", "reason"))]

    def _finding(self, record: Mapping[str, Any]) -> list[Notification]:
        code, gone = str(record.get("code", "")), record.get("event") == "gone"
        severity: Severity = "info" if gone else "critical" if code == FindingCode.OWNED_TWICE else "warning"
        keys = ("event", "count", "bundles", "brokers", "remedy")
        return [self._made("findings", severity, code, str(record.get("sentence", "")), record, keys)]

    def _made(
        self,
        event: Event,
        severity: Severity,
        reason: str,
        text: str,
        record: Mapping[str, Any],
        keys: tuple[str, ...],
    ) -> Notification:
        return Notification(
            event=event,
            severity=severity,
            reason=reason,
            text=text,
            wall_ms=int(record.get("wall_ms") or 0),
            cluster=self._cluster,
            member=self._member(),
            details={key: record[key] for key in keys if key in record},
        )


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, Mapping) else ()


def _camel(word: str) -> str:
    return word[:1].upper() + word[1:]
