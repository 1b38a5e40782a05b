"""The state of one topic's clients, fed by three threads: pacer, send callbacks, message listener."""

from __future__ import annotations

import struct
import threading
import time
from collections import deque

from dev.traffic.meters import GapMeter, Latencies, SeqTracker
from dev.traffic.report import Gap, GapKind, TopicReport
from dev.traffic.spec import HEADER_BYTES, TopicPlan, TrafficSpec

MAX_PENDING = 1000
# Seconds before a failed message is sent again, so that retries to a dead topic do not use all CPU.
RETRY_SECONDS = 0.2
REMEMBERED_IDS = 4000
_HEADER = struct.Struct(">QQq")

MessageKey = tuple[int, int, int]


class TopicState:
    """Counts, meters and the retry queue of one topic.

    No method calls the Pulsar client, so a thread that holds the lock of this object never waits for the client's lock.
    """

    def __init__(self, plan: TopicPlan, slowest: float, spec: TrafficSpec, run: int) -> None:
        """``slowest`` is the lowest rate (messages/s) of the topic. ``run`` marks this run's messages, so that messages
        of an earlier run are ignored.
        """
        self.plan = plan
        self.run = run
        self.acked = SeqTracker()
        self.received = SeqTracker()
        self.errors: dict[str, int] = {}
        self.publish = Latencies()
        self.end_to_end = Latencies()
        self._publish_gaps = GapMeter(spec.gap_floor_seconds, 1 / slowest)
        self._consume_gaps = GapMeter(spec.gap_floor_seconds, 1 / slowest)
        self._padding = bytes(spec.message_bytes - HEADER_BYTES)
        self._lock = threading.Lock()
        self._next_seq = 0
        self._outstanding = 0
        self._retries: deque[tuple[float, int, int]] = deque()
        self._ids: dict[int, MessageKey] = {}
        self._failed = self._duplicated = self._redelivered = 0

    # --- publish side ----------------------------------------------------------------------

    def next_message(self) -> tuple[int, int] | None:
        """Return (sequence number, wall-clock ns of the first attempt) of a new message; None if the queue is full."""
        with self._lock:
            if self._outstanding + len(self._retries) >= MAX_PENDING:
                return None
            self._outstanding += 1
            self._next_seq += 1
            return self._next_seq - 1, time.time_ns()

    def due_retry(self, now: float) -> tuple[int, int] | None:
        """Return (sequence number, wall-clock ns of the first attempt) of a failed message that is due again,
        or None.
        """
        with self._lock:
            if not self._retries or self._retries[0][0] > now:
                return None
            self._outstanding += 1
            _, seq, first_ns = self._retries.popleft()
            return seq, first_ns

    def payload(self, seq: int, first_ns: int) -> bytes:
        """Return the bytes of a message. They contain its number and the time of the first attempt."""
        return _HEADER.pack(self.run, seq, first_ns) + self._padding

    def on_acked(self, seq: int, sent: float, now: float) -> None:
        """Record that a broker has stored a message. ``sent``: start of this attempt (monotonic seconds)."""
        with self._lock:
            self._outstanding -= 1
            self.acked.add(seq)
            self.publish.add(1000 * (now - sent))
            self._publish_gaps.mark(now)

    def on_failed(self, seq: int, first_ns: int, now: float, error: str) -> None:
        """Record a failed attempt. The message will be sent again with the same sequence number."""
        with self._lock:
            self._outstanding -= 1
            self._failed += 1
            self.errors[error] = self.errors.get(error, 0) + 1
            self._retries.append((now + RETRY_SECONDS, seq, first_ns))

    @property
    def unsettled(self) -> int:
        """Return how many messages were sent and not acknowledged, including those that wait for a retry."""
        return self._outstanding + len(self._retries)

    # --- consume side ----------------------------------------------------------------------

    def on_message(self, data: bytes, key: MessageKey, now: float) -> None:
        """Record a received message. ``key``: its message id (ledger, entry, batch index)."""
        run, seq, first_ns = _HEADER.unpack_from(data)
        if run != self.run:
            return
        with self._lock:
            if self.received.add(seq):
                self.end_to_end.add((time.time_ns() - first_ns) / 1e6)
                self._consume_gaps.mark(now)
                self._ids[seq] = key
                if len(self._ids) > REMEMBERED_IDS:
                    del self._ids[next(iter(self._ids))]
            elif self._ids.get(seq) == key:
                self._redelivered += 1
            else:
                self._duplicated += 1

    @property
    def unconsumed(self) -> int:
        """Return how many acknowledged messages have not been received."""
        with self._lock:
            return self.received.missing(self.acked)

    # --- measuring -------------------------------------------------------------------------

    def restart_meters(self, now: float) -> None:
        """Restart the measurement at monotonic time `now`, because the first connection is not a break in service."""
        with self._lock:
            self._publish_gaps.restart(now)
            self._consume_gaps.restart(now)
            self.publish, self.end_to_end = Latencies(), Latencies()

    def report(self, final: bool) -> TopicReport:
        """Return the counts so far. If ``final``, acknowledged messages that were not received count as lost."""
        with self._lock:
            waiting = self.received.missing(self.acked)
            return TopicReport(
                topic=self.plan.topic,
                bundle=self.plan.bundle,
                rate=self.plan.rate,
                sent=self._next_seq,
                acked=self.acked.count,
                consumed=self.received.count,
                unconsumed=waiting,
                lost=waiting if final else 0,
                duplicated=self._duplicated,
                redelivered=self._redelivered,
                failed_sends=self._failed,
                publish_gap_seconds=self._publish_gaps.longest,
                consume_gap_seconds=self._consume_gaps.longest,
                publish_p50_ms=self.publish.quantile(0.5),
                publish_p99_ms=self.publish.quantile(0.99),
                publish_max_ms=self.publish.max_ms,
            )

    def gaps(self, until: float) -> list[Gap]:
        """Return the listed gaps, with those that still last at monotonic time ``until``."""
        with self._lock:
            gaps = self._gaps_of("publish", self._publish_gaps, until)
            return gaps + self._gaps_of("consume", self._consume_gaps, until)

    def _gaps_of(self, kind: GapKind, meter: GapMeter, until: float) -> list[Gap]:
        to_wall = time.time() - time.monotonic()
        spans = [(start, seconds, False) for start, seconds in meter.gaps]
        if (last := meter.open_gap(until)) is not None:
            spans.append((*last, True))
        return [
            Gap(
                topic=self.plan.topic,
                bundle=self.plan.bundle,
                kind=kind,
                start_wall_ms=1000 * (start + to_wall),
                seconds=seconds,
                open=is_open,
            )
            for start, seconds, is_open in spans
        ]
