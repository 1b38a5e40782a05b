"""Find topics that two brokers serve at the same time, by the counters of both brokers.

One broker serves a topic. If two brokers do, for example because one of them missed the end of its session, clients of
both use the topic, and messages can be lost.

A broker certainly served a topic between two of its readings if the topic is in both and its counters grew. If such
times of two brokers overlap, both served the topic. A move cannot cause that: the source removes the topic from its
metrics before the target loads it, so the source's last reading with the topic is older than the target's first one.
Counters that restart, with a broker or a topic, are not growth.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.load import Ints

# The content of a metrics page can be older than the request: brokers send a page to several clients.
PAGE_AGE_MS: Final = 1000
# A report ends after this many readings of each of its brokers that do not confirm it,
CLEAR_READINGS: Final = 3
# or after this time without readings that confirm it.
EXPIRY_MS: Final = 300_000
_HASH_BITS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Topics that one broker certainly served from `from_ms` to `to_ms` (Unix ms).

    `rows`: index of each bundle that has such topics, by name. `topics`: shape (n,), bundle index times 2^32 plus the
    topic's hash, sorted. Topics of a bundle with equal hashes count as one.
    """

    from_ms: int = 0
    to_ms: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    topics: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def hashes(self, bundle: str) -> Ints:
        """Return the hashes of the topics in a bundle, sorted."""
        row = self.rows[bundle]
        first, end = np.searchsorted(self.topics, [row << _HASH_BITS, (row + 1) << _HASH_BITS])
        hashes: Ints = self.topics[first:end] - (row << _HASH_BITS)
        return hashes

    def overlaps(self, other: Growth) -> bool:
        """Return whether both times overlap."""
        return self.from_ms < other.to_ms and other.from_ms < self.to_ms


NO_GROWTH: Final = Growth()


def growth_of(
    during: tuple[int, int],
    bundles: tuple[str, ...],
    bundle: Ints,
    hashes: Ints,
    grew: NDArray[np.bool_],
    whole: NDArray[np.bool_],
) -> Growth:
    """Return the topics that a broker served between two readings.

    Args:
        during: End of the first reading and start of the second one, Unix ms.
        bundle: Bundle of each row (a topic or subscription of the second reading); negative: unknown.
        hashes: Hash of each row's topic.
        grew: Mask of the rows whose counters grew.
        whole: Mask of the rows whose counters did not restart, without topics that were loaded meanwhile.
    """
    mine = bundle >= 0
    topics = (bundle << _HASH_BITS) | hashes
    served = np.setdiff1d(topics[mine & grew & whole], topics[mine & ~whole])
    rows = np.unique(served >> _HASH_BITS).tolist()
    return Growth(
        from_ms=during[0], to_ms=during[1] - PAGE_AGE_MS, rows={bundles[row]: row for row in rows}, topics=served
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTwice(Answer):
    """A bundle with topics that two brokers, or more, serve at the same time."""

    bundle: Annotated[str, Doc("the bundle")]
    brokers: Annotated[tuple[str, ...], Doc("ids of the brokers, in ascending order")]
    topics: Annotated[int, Doc("number of topics that two of the brokers served, by the last reading that showed it")]
    since_ms: Annotated[int, Doc("start of the first reading that showed it")]
    confirmed_ms: Annotated[int, Doc("end of the last reading that showed it")]


@dataclass(slots=True, kw_only=True)
class _Report:
    """A report, and the readings of each broker since the last one that confirmed it."""

    served: ServedTwice
    unconfirmed: dict[str, int]

    @property
    def ended(self) -> bool:
        return min(self.unconfirmed.values()) >= CLEAR_READINGS


class DoubleService:
    """Compares the last `Growth` of each broker with those of all others, and keeps the reports of double service."""

    def __init__(self) -> None:
        self._growths: dict[str, Growth] = {}
        # Brokers by bundle, and the bundles with several brokers: usually only those that have just moved.
        self._brokers: dict[str, set[str]] = {}
        self._shared: set[str] = set()
        self._reports: dict[str, _Report] = {}

    def add(self, broker: str, growth: Growth) -> None:
        """Replace the last growth of a broker, and update the reports."""
        self._replace(broker, growth)
        for report in self._reports.values():
            if broker in report.unconfirmed:
                report.unconfirmed[broker] += 1
        for bundle in self._shared & growth.rows.keys():
            for other in self._brokers[bundle] - {broker}:
                self._compare(bundle, broker, other)
        self._reports = {bundle: report for bundle, report in self._reports.items() if not report.ended}

    def clear(self) -> None:
        """Drop everything, because no further readings continue the last ones."""
        self._growths, self._brokers, self._shared, self._reports = {}, {}, set(), {}

    def forget(self, broker: str) -> None:
        """Drop the growth of a broker whose next readings do not continue the last ones."""
        self._replace(broker, NO_GROWTH)
        del self._growths[broker]

    def end(self, broker: str) -> None:
        """Drop the growth and the reports of a broker whose process ended."""
        self.forget(broker)
        for bundle, report in list(self._reports.items()):
            report.unconfirmed.pop(broker, None)
            if len(report.unconfirmed) < 2:
                del self._reports[bundle]
            else:
                report.served = replace(report.served, brokers=tuple(sorted(report.unconfirmed)))

    def names(self, broker: str) -> bool:
        """Return whether a report names this broker."""
        return any(broker in report.unconfirmed for report in self._reports.values())

    def reports(self, now_ms: int) -> tuple[ServedTwice, ...]:
        """Return the reports at this time, by bundle."""
        current = [
            report.served for report in self._reports.values() if now_ms - report.served.confirmed_ms < EXPIRY_MS
        ]
        return tuple(sorted(current, key=lambda item: item.bundle))

    def _replace(self, broker: str, growth: Growth) -> None:
        before = self._growths.get(broker, NO_GROWTH).rows
        self._growths[broker] = growth
        for bundle in before.keys() ^ growth.rows.keys():
            brokers = self._brokers.setdefault(bundle, set())
            brokers ^= {broker}
            if len(brokers) > 1:
                self._shared.add(bundle)
            else:
                self._shared.discard(bundle)
            if not brokers:
                del self._brokers[bundle]

    def _compare(self, bundle: str, broker: str, other: str) -> None:
        growth, others = self._growths[broker], self._growths[other]
        if not growth.overlaps(others):
            return
        topics = len(np.intersect1d(growth.hashes(bundle), others.hashes(bundle), assume_unique=True))
        if not topics:
            return
        report = self._reports.get(bundle)
        unconfirmed = {**(report.unconfirmed if report is not None else {}), broker: 0, other: 0}
        served = ServedTwice(
            bundle=bundle,
            brokers=tuple(sorted(unconfirmed)),
            topics=topics,
            since_ms=growth.from_ms if report is None else report.served.since_ms,
            confirmed_ms=max(growth.to_ms, others.to_ms),
        )
        self._reports[bundle] = _Report(served=served, unconfirmed=unconfirmed)
