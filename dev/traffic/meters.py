"""Counters for clients: which sequence numbers arrived, with which latency, and the longest times without a message."""

from __future__ import annotations

import math
from collections.abc import Iterable

# Eight buckets per factor of two, so that the error of a quantile is below 10 %.
BUCKETS_PER_DOUBLING = 8
SMALLEST_MS = 0.01
BUCKETS = 200


class SeqTracker:
    """A set of sequence numbers that uses little memory: it stores all consecutive numbers from 0 on as one number."""

    def __init__(self) -> None:
        self.next = 0
        self.count = 0
        self._ahead: set[int] = set()

    def add(self, seq: int) -> bool:
        """Add a number. Return False if the set contained it already."""
        if seq < self.next or seq in self._ahead:
            return False
        self.count += 1
        if seq != self.next:
            self._ahead.add(seq)
            return True
        self.next += 1
        while self._ahead and self.next in self._ahead:
            self._ahead.remove(self.next)
            self.next += 1
        return True

    def __contains__(self, seq: int) -> bool:
        return seq < self.next or seq in self._ahead

    def missing(self, other: SeqTracker) -> int:
        """Return how many numbers ``other`` contains and this set does not."""
        run = range(self.next, other.next)
        return sum(seq not in self for seq in run) + sum(seq not in self for seq in other._ahead)


class Latencies:
    """A histogram of durations in milliseconds; the maximum is exact, quantiles within 10 %."""

    def __init__(self) -> None:
        self.max_ms = 0.0
        self._buckets = [0] * BUCKETS

    def add(self, ms: float) -> None:
        """Add one duration."""
        self.max_ms = max(self.max_ms, ms)
        index = int(math.log2(ms / SMALLEST_MS) * BUCKETS_PER_DOUBLING) if ms > SMALLEST_MS else 0
        self._buckets[min(index, BUCKETS - 1)] += 1

    def quantile(self, share: float) -> float:
        """Return the duration (ms) that ``share`` (0..1) of all durations do not exceed; 0 before the first ``add``."""
        target = share * sum(self._buckets)
        passed = 0
        for index, count in enumerate(self._buckets):
            passed += count
            if count and passed >= target:
                return min(self.max_ms, SMALLEST_MS * math.exp2((index + 1) / BUCKETS_PER_DOUBLING))
        return 0.0

    @staticmethod
    def joined(parts: Iterable[Latencies]) -> Latencies:
        """Return the sum of several histograms."""
        whole = Latencies()
        for part in parts:
            whole.max_ms = max(whole.max_ms, part.max_ms)
            whole._buckets = [a + b for a, b in zip(whole._buckets, part._buckets, strict=True)]
        return whole


class GapMeter:
    """Finds the long silences between events that ought to come regularly.

    A silence is listed when it lasts at least ``floor`` seconds longer than the expected interval.
    Times are monotonic seconds.
    """

    # Largest number of listed gaps, for clients that are disconnected again and again.
    MAX_GAPS = 1000

    def __init__(self, floor: float, expected: float) -> None:
        """``expected``: usual interval between two events, in seconds."""
        self.floor = floor + expected
        self.longest = 0.0
        self.gaps: list[tuple[float, float]] = []
        self._last: float | None = None

    def restart(self, now: float) -> None:
        """Start the measurement at monotonic time `now`; earlier events do not count."""
        self._last = now
        self.longest = 0.0
        self.gaps.clear()

    def mark(self, now: float) -> None:
        """Record an event at monotonic time `now`."""
        if self._last is not None:
            silence = now - self._last
            self.longest = max(self.longest, silence)
            if silence >= self.floor and len(self.gaps) < self.MAX_GAPS:
                self.gaps.append((self._last, silence))
        self._last = now

    def open_gap(self, now: float) -> tuple[float, float] | None:
        """Return (start, seconds) of a silence that has not ended, if it is long enough to be listed; else None."""
        if self._last is None or now - self._last < self.floor:
            return None
        return self._last, now - self._last
