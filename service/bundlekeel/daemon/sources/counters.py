"""Brokers' loads by their counters: read when it is worth it, and put in place of older figures.

A reading costs the broker time (0.07 s with 24 topics, seconds with 10,000), so it is made at leisure while nothing
changes, and in quick succession for a while after anything that suggests a change: the beginning of a term, a broker
that comes or goes, a load that differs from the one before, and while moves of ours do not show yet. While moves are
carried out it is at leisure: a broker that writes its counters answers lookups later. Whatever is wanted, a broker
rests for several times as long as its answer took. Only who leads reads.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import structlog

from bundlekeel.core.model.counters import CounterReading, MeasuredLoad, measured, with_measured
from bundlekeel.core.model.errors import AdminApiError, StoreError
from bundlekeel.core.model.load import BrokerEndpoint, BrokerReport, Floats
from bundlekeel.core.model.names import FULL_UPPER, parse_bundle
from bundlekeel.ports import Clock, Metadata, Picture, TopicCounters

_log = structlog.get_logger(__name__)

# So many times as long as an answer took a broker rests: at leisure, and while something changes.
REST: Final = 20.0
QUICK_REST: Final = 4.0
# A topic costs us about 32 microseconds a reading, and takes no more of a core than these shares.
TOPICS_A_SECOND: Final = 0.25 / 32e-6
QUICK_TOPICS_A_SECOND: Final = 0.5 / 32e-6
# So long after a sign of change it is read quickly: two hits of a shedder, and what its moves do.
ATTENTION_SECONDS: Final = 30.0
# A load that differs by so much of the largest one from the reading before is a sign.
CHANGED_SHARE: Final = 0.1
# A load that went up and down within this time is a wave, and its mean over this time is what to go by.
WAVE_SECONDS: Final = 120.0
# A broker that refuses is asked again after this long.
REFUSED_SECONDS: Final = 60.0
_TURN_SECONDS: Final = 0.5
# The older ones of several readings that are there at once are shown for so long: a cycle sees each of them.
_SHOWN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterOptions:
    """Seconds. `interval`: between two readings of a broker while nothing changes; `quick_interval`: while something
    does. `at_once`: brokers that are asked at the same time. `max_topics`: of more topics in all nothing is read: by
    the time all brokers were, the first figures would be as old as reports."""

    interval: float = 15.0
    quick_interval: float = 3.0
    at_once: int = 8
    max_topics: int = 300_000


@dataclass(slots=True, kw_only=True)
class _Known:
    """One broker in its present life: its readings of the last `WAVE_SECONDS`, the newest one begun at `asked` by the
    boot clock and made in `took` seconds; `totals`: what it carried between each two of them; `load`: what they say.
    `shown`: the report, the load and what was made of both last. `refused`: it gave none."""

    endpoint: BrokerEndpoint
    readings: list[CounterReading] = field(default_factory=list)
    totals: list[Floats] = field(default_factory=list)
    load: MeasuredLoad | None = None
    shown: tuple[BrokerReport, MeasuredLoad, BrokerReport] | None = None
    asked: float = float("-inf")
    took: float = 0.0
    refused: bool = False
    task: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """What was read is too old to be half of a measurement."""
        self.readings, self.totals, self.load = [], [], None


class LiveLoads:
    """Owned by one `ClusterSource`, which passes it brokers and bundles and reads its figures.

    `wanted`: whether readings are worth it now; `moving`: whether moves of ours do not show yet; `in_flight`: whether
    some of them are being carried out. `statistics_seconds`:
    how often a broker computes its own figures: where that is at least as often, its reports are as good. `share_of`:
    asks a broker that does not tell its cores which share of its CPU it used since it was asked last, None for others.
    `on_news`: called after each reading that made a load.
    """

    def __init__(
        self,
        counters: TopicCounters,
        metadata: Metadata,
        clock: Clock,
        options: CounterOptions,
        closing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`closing`: awaited at the end, where nobody else closes what counters are read by."""
        self._closing = closing
        self.wanted: Callable[[], bool] = bool
        self.moving: Callable[[], bool] = bool
        self.in_flight: Callable[[], bool] = bool
        self.statistics_seconds: Callable[[str], float] = lambda _broker: 60.0
        self.share_of: Callable[[str], Awaitable[float | None]] = _not_asked
        self.on_news: Callable[[], None] = lambda: None
        self._counters = counters
        self._metadata = metadata
        self._clock = clock
        self._options = options
        self._brokers: dict[str, _Known] = {}
        # Of the namespaces that brokers count topics of; one that reports divide otherwise is asked for anew.
        self._boundaries: dict[str, list[int]] = {}
        self._divided: dict[str, tuple[str, ...]] = {}
        # Of bundles that were measured whole: their traffic, wherever that was.
        self._traffic: dict[str, Floats] = {}
        self._topics = 0
        self._quick_until = float("-inf")
        self._slots = asyncio.Semaphore(options.at_once)

    def register(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Exactly these are alive. A broker that restarted counts from nothing."""
        kept = {}
        for broker, endpoint in endpoints.items():
            known = self._brokers.get(broker)
            if known is None or known.endpoint.start_timestamp != endpoint.start_timestamp:
                self._quicken()
                known = _Known(endpoint=endpoint)
            kept[broker] = known
        gone = self._brokers.keys() - kept.keys()
        for broker in gone:
            self._quicken()
            self._end(self._brokers[broker])
        self._brokers = kept

    async def run(self) -> None:
        """For ever: read each broker when it is due."""
        reading = False
        while True:
            wanted = self.wanted() and self._topics <= self._options.max_topics
            if wanted != reading:
                self._begin_anew()
            reading = wanted
            if wanted and self.moving():
                self._quicken()
            for broker, known in self._brokers.items() if wanted else ():
                if known.task is None and self._due(broker, known):
                    known.task = asyncio.create_task(self._read(broker, known), name=f"counters {broker}")
            await self._clock.sleep(_TURN_SECONDS)

    async def close(self) -> None:
        """End what is under way."""
        tasks = [known.task for known in self._brokers.values() if known.task is not None]
        for known in self._brokers.values():
            self._end(known)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._closing is not None:
            await self._closing()

    def fused(self, picture: Picture) -> Picture:
        """The picture, a broker's figures by its counters where those are newer than what it reported."""
        self._count(sum(report.num_topics for report in picture.reports))
        for report in picture.reports:
            if self._divided.get(report.broker_id) != report.bundle_names:
                self._divided[report.broker_id] = report.bundle_names
                self._check_boundaries(report.bundle_names)
        reports = tuple(self._newer(report) for report in picture.reports)
        return replace(picture, reports=reports)

    # --- small parts -------------------------------------------------------------------------------------

    def _count(self, topics: int) -> None:
        if self._topics <= self._options.max_topics < topics:
            _log.info("counters are not read: too many topics; load reports are used", topics=topics)
        self._topics = topics

    def _begin_anew(self) -> None:
        """A term begins or ends."""
        for known in self._brokers.values():
            known.forget()
            known.asked = float("-inf")
        self._traffic = {}
        self._quicken()

    def _quicken(self) -> None:
        """Something suggests that loads change, or are about to."""
        self._quick_until = self._clock.boot() + ATTENTION_SECONDS

    def _due(self, broker: str, known: _Known) -> bool:
        quick, now = self._options.quick_interval, self._clock.boot()
        if self.statistics_seconds(broker) <= quick:
            return False
        hurry = now < self._quick_until and not self.in_flight()
        pace, rest, rate = (
            (quick, QUICK_REST, QUICK_TOPICS_A_SECOND) if hurry else (self._options.interval, REST, TOPICS_A_SECOND)
        )
        pace = max(pace, self._topics / rate)
        if known.refused:
            pace, rest = REFUSED_SECONDS, REST
        return now >= known.asked + max(pace, known.took * (1 + rest))

    async def _read(self, broker: str, known: _Known) -> None:
        try:
            async with self._slots:
                known.asked = self._clock.boot()
                try:
                    readings = await self._counters.counters(known.endpoint)
                finally:
                    known.took = self._clock.boot() - known.asked
            known.refused = False
            await self._take(known, readings)
        except (AdminApiError, StoreError) as error:
            if not known.refused:
                _log.info("counters could not be read; load reports are used", broker=broker, error=str(error))
            known.refused = True
            known.forget()
        finally:
            known.task = None

    async def _take(self, known: _Known, readings: Sequence[CounterReading]) -> None:
        for namespace in {name for reading in readings for name in reading.namespaces} - self._boundaries.keys():
            self._boundaries[namespace] = await self._metadata.boundaries(namespace) or [0, FULL_UPPER]
        first = not known.readings
        known.readings = known.readings or [readings[0]]
        share = await self.share_of(known.endpoint.broker_id)
        # Of a broker that is new to us the readings are shown one after the other: to a shedder each is a hit.
        for place, reading in enumerate(readings[1:] if first else readings[-1:]):
            if place:
                await self._clock.sleep(_SHOWN_SECONDS)
                share = await self.share_of(known.endpoint.broker_id)
            await self._measure(known, reading, share)

    async def _measure(self, known: _Known, reading: CounterReading, share: float | None) -> None:
        if not known.readings:
            return  # a term ended meanwhile
        made = await asyncio.to_thread(measured, known.readings[-1], reading, self._boundaries)
        if made is None:
            return
        changed = self._differs(known.load, made)
        if self._waves(known, reading, made):
            made = await asyncio.to_thread(measured, known.readings[0], reading, self._boundaries) or made
        elif changed:
            self._quicken()
        known.load = made if share is None else replace(made, cpu_share=share)
        for row in np.flatnonzero(made.whole).tolist():
            self._traffic[made.bundles[row]] = made.traffic[row]
        self.on_news()

    def _waves(self, known: _Known, reading: CounterReading, made: MeasuredLoad) -> bool:
        """Note a reading. Whether the load went up and down by a good part of the largest one within `WAVE_SECONDS`,
        and not because bundles came or went."""
        same = known.load is not None and set(known.load.bundles) == set(made.bundles)
        if self.moving() or not same:
            known.readings, known.totals = known.readings[-1:], []
        known.readings.append(reading)
        known.totals.append(made.traffic.sum(axis=0))
        while len(known.totals) > 1 and known.readings[0].to_ms < reading.to_ms - 1000 * WAVE_SECONDS:
            del known.readings[0], known.totals[0]
        steps = np.diff(np.array(known.totals), axis=0)
        large = CHANGED_SHARE * self._largest()
        return bool(((steps > large).any(axis=0) & (steps < -large).any(axis=0)).any())

    def _check_boundaries(self, bundles: Sequence[str]) -> None:
        for text in bundles:
            namespace, _, _ = text.rpartition("/")
            edges = self._boundaries.get(namespace)
            if edges is not None:
                name = parse_bundle(text)
                at = bisect_left(edges, name.lower)
                if edges[at : at + 2] != [name.lower, name.upper]:
                    del self._boundaries[namespace]

    def _differs(self, before: MeasuredLoad | None, now: MeasuredLoad) -> bool:
        """Whether a load changed by a good part of the largest one."""
        if before is None:
            return False
        change = np.abs(now.traffic.sum(axis=0) - before.traffic.sum(axis=0))
        return bool((change > CHANGED_SHARE * self._largest()).any())

    def _largest(self) -> Floats:
        """The largest load of a broker, shape (4,)."""
        loads = [known.load.traffic.sum(axis=0) for known in self._brokers.values() if known.load is not None]
        largest: Floats = np.array(loads).reshape(-1, 4).max(axis=0, initial=0.0)
        return largest

    def _newer(self, report: BrokerReport) -> BrokerReport:
        known = self._brokers.get(report.broker_id)
        if known is None or known.load is None or known.endpoint.start_timestamp != report.start_timestamp:
            return report
        # What a broker reports is of the statistics interval before the last one, at worst.
        oldest_ms = report.last_update - int(2000 * self.statistics_seconds(report.broker_id))
        if known.load.from_ms < oldest_ms:
            return report
        if known.shown is None or known.shown[0] is not report or known.shown[1] is not known.load:
            known.shown = report, known.load, with_measured(report, known.load, self._traffic) or report
        return known.shown[2]

    @staticmethod
    def _end(known: _Known) -> None:
        if known.task is not None:
            known.task.cancel()


async def _not_asked(_broker: str) -> float | None:
    return None
