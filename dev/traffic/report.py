"""Measurements of the clients: per topic, in total, and every break in service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dev.traffic.bundles import covers

GapKind = Literal["publish", "consume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A break in the service of one topic.

    kind: "publish" between two acknowledged sends, "consume" between two messages received.
    start_wall_ms: wall-clock time of the last success before the break.
    seconds: length of the break, including the ordinary interval between two messages.
    open: the break had not ended when the report was made.
    """

    topic: str
    bundle: str
    kind: GapKind
    start_wall_ms: float
    seconds: float
    open: bool = False

    @property
    def end_wall_ms(self) -> float:
        """Wall-clock time of the first success after the break, or of the report if the break had not ended."""
        return self.start_wall_ms + 1000 * self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """One topic: counts of messages, longest silences (seconds), publish latencies (ms).

    sent: distinct messages given to the client, including failed ones that are still retried.
    acked: distinct messages that a broker acknowledged. consumed: distinct messages received.
    unconsumed: acknowledged and not received yet. lost: acknowledged and not received when the run is over.
    duplicated: received again as another stored message (the client resent it).
    redelivered: the same stored message received again (it had not been acknowledged).
    failed_sends: attempts that failed and were tried again.
    """

    topic: str
    bundle: str
    rate: float
    sent: int
    acked: int
    consumed: int
    unconsumed: int
    lost: int
    duplicated: int
    redelivered: int
    failed_sends: int
    publish_gap_seconds: float
    consume_gap_seconds: float
    publish_p50_ms: float
    publish_p99_ms: float
    publish_max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficReport:
    """The measurements of all topics; counts are sums over the topics, longest silences are maxima.

    started_wall_ms: when steady traffic started. seconds: how long it has run.
    final: whether the report comes from ``stop``; only then can ``lost`` be above 0.
    end_to_end_*: time from the first attempt to send a message until it was received.
    errors: number of failed attempts by the name of the client's error.
    skipped: messages not sent because the generator was late or a topic's client queue full.
    stall_seconds: longest pause of the generator itself, which can be the cause of gaps up to this length.
    cpu_seconds: processor time used by the generator's process.
    """

    started_wall_ms: float
    seconds: float
    final: bool
    sent: int
    acked: int
    consumed: int
    unconsumed: int
    lost: int
    duplicated: int
    redelivered: int
    failed_sends: int
    skipped: int
    errors: dict[str, int]
    publish_gap_seconds: float
    consume_gap_seconds: float
    publish_p50_ms: float
    publish_p99_ms: float
    publish_max_ms: float
    end_to_end_p50_ms: float
    end_to_end_p99_ms: float
    end_to_end_max_ms: float
    stall_seconds: float
    cpu_seconds: float
    topics: list[TopicReport] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def gaps_around(self, bundle: str, wall_ms: float, window_seconds: float, kind: GapKind | None = None) -> list[Gap]:
        """Return the listed gaps of a bundle's topics that overlap the time ``wall_ms`` ± ``window_seconds``.

        ``bundle`` is "tenant/namespace/0x…_0x…" or only the range; it can be the result of a later split.
        """
        low, high = wall_ms - 1000 * window_seconds, wall_ms + 1000 * window_seconds
        return [
            gap
            for gap in self.gaps
            if kind in (None, gap.kind)
            and gap.start_wall_ms <= high
            and gap.end_wall_ms >= low
            and covers(bundle, gap.topic)
        ]

    def gap_around(self, bundle: str, wall_ms: float, window_seconds: float, kind: GapKind | None = None) -> float:
        """Return the longest time (seconds) for which clients of a bundle were cut off around ``wall_ms``.

        0.0: no gap is long enough to be listed (``gap_floor_seconds`` of the spec). See ``gaps_around``.
        """
        return max((g.seconds for g in self.gaps_around(bundle, wall_ms, window_seconds, kind)), default=0.0)
