"""Loads of brokers from their Prometheus counters, which replace older values of load reports.

A reading of the counters costs the broker time (0.07 s with 24 topics, seconds with 10,000). So brokers are read rarely
while nothing changes, and often for a while after a sign of a change: this sidecar became leader, a broker joined or
left, a load differs from the previous one, or loads do not show recent moves yet. Between readings, the CPU time of the
brokers is read (a probe). Probes are cheap and show a change within seconds (`CpuSignal`). A sidecar in a broker's pod
notices a change even earlier, and sends the leader a signal (`alarm`).

While moves are executed, brokers are read rarely, because lookups at a broker that writes its counters take longer.
A broker always rests for several times the duration of its last response. Only the leader reads counters.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import numpy as np
import structlog

from bundlekeel.model.codes import Code
from bundlekeel.model.counters import CounterReading, MeasuredLoad, measured, others_share, with_measured
from bundlekeel.model.double_service import NO_GROWTH, DoubleService
from bundlekeel.model.errors import AdminApiError, CodecError, StoreError
from bundlekeel.model.load import BrokerEndpoint, BrokerReport, Floats
from bundlekeel.model.names import FULL_UPPER, parse_bundle
from bundlekeel.ports import Clock, Metadata, RawClusterView, TopicCounters
from bundlekeel.pulsar.counters.broker_counters import BrokerCounters
from bundlekeel.pulsar.counters.cpu_signal import CpuSignal
from bundlekeel.pulsar.counters.demand import QUICK_REST, CounterDemand, CounterOptions
from bundlekeel.pulsar.counters.left_brokers import LeftBrokers
from bundlekeel.pulsar.work import bounded

_log = structlog.get_logger(__name__)

# Usually a broker rests for this many times the duration of its response (while something changes: `QUICK_REST`).
REST: Final = 20.0
# A reading costs this process about 100 microseconds of CPU per topic (`evidence.counters_cost`). All readings together
# take at most half a core, and a whole core while something changes.
TOPICS_A_SECOND: Final = 0.5 / 100e-6
QUICK_TOPICS_A_SECOND: Final = 1.0 / 100e-6
# After a change of load, two readings in quick succession: the second one contains nothing from before the change.
CONFIRM_READINGS: Final = 2
CONFIRM_SECONDS: Final = 2.0
# While a broker responds to probes, its metrics page is read less often. The pause is `PROBED_REST` times the duration
# of a reading, or longer if all readings would need more than a fifth of a core here. It is at most `PROBED_SHARE` of
# the broker's statistics interval: otherwise a new load report would be newer than the last two readings.
PROBED_REST: Final = 60.0
PROBED_TOPICS_A_SECOND: Final = 0.2 / 100e-6
PROBED_SHARE: Final = 0.75
# A probe takes 3 to 4 ms of CPU here, mostly in httpx. So all probes together take at most a tenth of a core.
PROBES_A_SECOND: Final = 25.0
# Ignore smaller changes of a broker's CPU use, in cores.
LEAST_CORES: Final = 0.005
# Ignore values that leave the usual range by less than this share of the largest CPU use of any broker.
UNUSUAL_SHARE: Final = 0.05
# A single probe is a sign of a change if it leaves the usual range by this many times the ignored change.
STRONG_SIGN: Final = 3.0
# At the start of a term, and while the list of brokers changes, brokers are read quickly for this long.
START_SECONDS: Final = 30.0
# A load that differs from the previous reading by more than this share of the largest load is a sign of a change.
CHANGED_SHARE: Final = 0.1
# The largest CPU use of a broker's process in this time serves to estimate the share of the host's other processes.
PROCESS_SECONDS: Final = 240.0
# Query a broker that refused its counters again after this long.
REFUSED_SECONDS: Final = 60.0
_TURN_SECONDS: Final = 0.5
# Limits, because a broker's page can name any namespaces, and each costs a read of the metadata store and memory.
_NEW_NAMESPACES: Final = 2000
_MOST_NAMESPACES: Final = 50_000
# If one response contains several readings, show each one for this long, so that a cycle uses each.
_SHOWN_SECONDS: Final = 2.0
# At the beginning of a term all brokers change from reports to counters together, or after this long.
_TOGETHER_SECONDS: Final = 8.0


class LiveLoads:
    """Reads the counters of brokers and computes their loads, for one `ClusterSource`.

    `statistics_seconds`: returns the seconds between two updates of a broker's statistics; if these are at most the
    reading interval, load reports are as good as counters. `share_of`: for a broker that does not report its cores,
    requests the share of CPU used since the last request; returns None for other brokers. `other_assigner`: returns the
    class by which a broker assigns topics to bundles (`topicBundleAssignmentStrategy`); "": the default, or unknown.
    `buffers_pages`: returns whether a broker's page may be older than the request (`metricsBufferResponse`).
    `on_news`: called after each reading that results in a load.
    """

    def __init__(
        self,
        counters: TopicCounters,
        metadata: Metadata,
        clock: Clock,
        options: CounterOptions,
        closing: Callable[[], Awaitable[None]] | None = None,
        cpu_seconds: Callable[[str], Awaitable[float]] | None = None,
        demand: CounterDemand | None = None,
    ) -> None:
        """Store the dependencies.

        `closing`: closes the source of counters at the end; None: another object closes it. `cpu_seconds`: reads a
        broker's CPU time (a probe); None: Prometheus is read, so there are no probes, because readings cost the brokers
        nothing, and double service is not detected, because only the start of a scrape is known.
        """
        self._closing = closing
        self._cpu_seconds = cpu_seconds
        self.demand = demand or CounterDemand()
        self.statistics_seconds: Callable[[str], float] = lambda _broker: 60.0
        self.share_of: Callable[[str], Awaitable[float | None]] = _not_asked
        self.other_assigner: Callable[[str], str] = lambda _broker: ""
        self.buffers_pages: Callable[[str], bool] = lambda _broker: False
        self.on_news: Callable[[], None] = lambda: None
        self._counters = counters
        self._metadata = metadata
        self._clock = clock
        self._options = options
        self._brokers: dict[str, BrokerCounters] = {}
        # Bundle boundaries of the namespaces in the counters. A namespace is read again if a report has other bundles.
        self._boundaries: dict[str, list[int]] = {}
        self._divided: dict[str, tuple[str, ...]] = {}
        # Last values of each bundle with their time, from any broker, oldest first: the traffic of completely measured
        # bundles, and the rates of replicators.
        self._last: dict[tuple[Literal["traffic", "replicated"], str], tuple[int, Floats]] = {}
        self.double_service = DoubleService()
        self._left = LeftBrokers(counters, clock, self.double_service, self._edges, options)
        self._topics = 0
        self._quick_until = float("-inf")
        self._together_until = float("-inf")
        self._slots = asyncio.Semaphore(options.at_once)
        self._probe_slots = asyncio.Semaphore(options.at_once)
        # Time of the last unusual probe, and of the last alarm of each kind that led to readings.
        self._unusual_at = float("-inf")
        self._alarmed_at = dict.fromkeys(("probe", "signal"), float("-inf"))

    def register(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Set the brokers that are alive. The counters of a restarted broker start at 0."""
        brokers = {}
        for broker, endpoint in endpoints.items():
            entry = self._brokers.get(broker)
            if entry is None or entry.endpoint.start_timestamp != endpoint.start_timestamp:
                self._quicken()
                if entry is not None:
                    self._end(entry)
                    self.double_service.end(broker)
                self._left.remove(endpoint)
                since_ms = self._clock.wall_ms() if self._brokers else 0
                entry = BrokerCounters(endpoint=endpoint, since_ms=since_ms, timely=self._clock.boot())
            brokers[broker] = entry
        timed = self._times_are_certain()
        for broker in self._brokers.keys() - brokers.keys():
            self._quicken()
            self._end(self._brokers[broker])
            if timed:
                self._left.add(self._brokers[broker].endpoint)
        self._brokers = brokers

    def use(self, demand: CounterDemand) -> None:
        """Replace the functions that decide when counters are read."""
        self.demand = demand

    async def run(self) -> None:
        """Read the counters of each broker when they are due, until cancelled."""
        reading = False
        while True:
            reads = self._reads()
            if reads != reading:
                self._restart()
            reading = reads
            if reads and (self.demand.moving() or self.demand.urgent()):
                self._confirm(1)
            for place, (broker, entry) in enumerate(self._brokers.items() if reads else ()):
                share = place / len(self._brokers)
                if entry.task is None and self._due(broker, entry, share):
                    entry.task = asyncio.create_task(self._read(broker, entry), name=f"counters {broker}")
                elif entry.task is None and entry.probe is None and self._probe_due(broker, entry, share):
                    entry.probe = asyncio.create_task(self._probe(broker, entry), name=f"probe {broker}")
            if reads:
                self._left.read_due()
            await self._clock.sleep(_TURN_SECONDS)

    async def close(self) -> None:
        """Cancel the readings and probes in progress."""
        tasks = [task for entry in self._brokers.values() for task in (entry.task, entry.probe) if task is not None]
        tasks += self._left.clear()
        for entry in self._brokers.values():
            self._end(entry)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._closing is not None:
            await self._closing()

    def alarm(self, sign: Literal["probe", "signal"] = "signal") -> bool:
        """Read the counters of each broker twice in quick succession, because of a sign of a change.

        Does nothing, and returns False, if counters are not read, or if the last alarm by this kind of sign is less
        than `CONFIRM_READINGS` intervals old. So false signs of a kind cost no more than one reading per interval.
        """
        now = self._clock.boot()
        if not self._reads() or now < self._alarmed_at[sign] + CONFIRM_READINGS * self._options.interval:
            return False
        self._alarmed_at[sign] = now
        self._confirm()
        return True

    def fused(self, picture: RawClusterView) -> RawClusterView:
        """Return the cluster view in which newer loads from counters replace those of load reports."""
        self._count(sum(report.num_topics for report in picture.reports))
        for report in picture.reports:
            if self._divided.get(report.broker_id) != report.bundle_names:
                self._divided[report.broker_id] = report.bundle_names
                self._check_boundaries(report.bundle_names)
        if self._clock.boot() < self._together_until:
            if not all(self._answered(broker, entry) for broker, entry in self._brokers.items()):
                return picture
            self._together_until = float("-inf")
        for entry in self._brokers.values():
            entry.state = "waiting"  # a broker without a report has no load
        reports = tuple(self._newer(report) for report in picture.reports)
        return replace(picture, reports=reports, served_twice=self.double_service.reports(self._clock.wall_ms()))

    def states(self) -> dict[str, str]:
        """Return the source of each broker's load: `live` for counters, else the reason why its load report is used.

        Empty while counters are not read, as in a sidecar that does not lead.
        """
        if not self.demand.wanted():
            return {}
        if self._topics > self._options.max_topics:
            return dict.fromkeys(self._brokers, "too_many_topics")
        return {broker: "refused" if entry.refused else entry.state for broker, entry in self._brokers.items()}

    def refusals(self) -> dict[str, str]:
        """Return the brokers that do not return their counters, with the reason."""
        return {broker: entry.refused for broker, entry in self._brokers.items() if entry.refused}

    def doubts(self) -> dict[str, str]:
        """Return the brokers whose counters disagree with their reports, and how."""
        return {broker: self._brokers[broker].doubt for broker, state in self.states().items() if state == "disagree"}

    def ages(self) -> dict[str, float]:
        """Return the seconds since the last reading of each broker whose counters are used."""
        now_ms, live = self._clock.wall_ms(), {name for name, state in self.states().items() if state == "live"}
        loads = {broker: entry.load for broker, entry in self._brokers.items() if broker in live}
        return {broker: max(0.0, (now_ms - load.to_ms) / 1000) for broker, load in loads.items() if load is not None}

    def outdated(self) -> dict[str, float]:
        """Return the brokers whose counters are too old compared with their load reports, and for how many seconds."""
        late = [broker for broker, state in self.states().items() if state == "outdated"]
        return {broker: self._clock.boot() - self._brokers[broker].timely for broker in late}

    # --- small parts -------------------------------------------------------------------------------------

    def _count(self, topics: int) -> None:
        if self._topics <= self._options.max_topics < topics:
            _log.info("counters are not read: too many topics; load reports are used", topics=topics)
        self._topics = topics

    def _reads(self) -> bool:
        return self.demand.wanted() and self._topics <= self._options.max_topics

    def _times_are_certain(self) -> bool:
        """Return whether each page is written between request and response, which shows double service."""
        return self._cpu_seconds is not None and not any(map(self.buffers_pages, self._brokers))

    def _restart(self) -> None:
        """Drop all readings, because this sidecar starts or stops leading."""
        for entry in self._brokers.values():
            entry.forget()
            entry.read_at, entry.refused, entry.state = float("-inf"), "", "waiting"
        self._last = {}
        self.double_service.clear()
        self._left.clear()
        self._together_until = self._clock.boot() + _TOGETHER_SECONDS
        self._quicken()

    def _quicken(self) -> None:
        """Read counters often for `START_SECONDS`, because loads are likely to change."""
        self._quick_until = self._clock.boot() + START_SECONDS

    def _confirm(self, readings: int = CONFIRM_READINGS) -> None:
        """Read the counters of each broker `readings` times in quick succession, however long a reading takes."""
        for entry in self._brokers.values():
            entry.quick_readings = max(entry.quick_readings, readings)

    def _answered(self, broker: str, entry: BrokerCounters) -> bool:
        return entry.load is not None or entry.refused != "" or not self._worth(broker)

    def _worth(self, broker: str) -> bool:
        """Return whether counters can be newer than load reports: the statistics interval exceeds `quick_interval`."""
        return self.statistics_seconds(broker) > self._options.quick_interval

    def _due(self, broker: str, entry: BrokerCounters, share: float) -> bool:
        """Return whether to read a broker's counters now.

        Readings of the brokers are spread over the interval (`share`: position of this broker in it, 0 to 1). So a
        change that concerns several brokers is noticed within a part of the interval."""
        quick, now = self._options.quick_interval, self._clock.boot()
        if not self._worth(broker):
            return False
        hurry = self._hurries(entry)
        if entry.quick_readings > 0:
            quick = min(quick, CONFIRM_SECONDS)
        pace, rest, rate = (
            (quick, QUICK_REST, QUICK_TOPICS_A_SECOND) if hurry else (self._options.interval, REST, TOPICS_A_SECOND)
        )
        pace = max(pace, self._topics / rate)
        if entry.signal.values and not hurry and not self.demand.in_flight():
            pause = max(PROBED_REST * entry.took, self._topics / PROBED_TOPICS_A_SECOND)
            pace = max(pace, min(pause, PROBED_SHARE * self.statistics_seconds(broker)))
        if entry.refused:
            pace, rest = REFUSED_SECONDS, REST
        if now < entry.read_at + entry.took * (1 + rest):
            return False
        if hurry or entry.refused or entry.read_at == float("-inf"):
            return now >= entry.read_at + pace
        return _is_turn(now, entry.read_at, pace, share)

    def _hurries(self, entry: BrokerCounters) -> bool:
        return (entry.quick_readings > 0 or self._clock.boot() < self._quick_until) and not self.demand.in_flight()

    def _probe_due(self, broker: str, entry: BrokerCounters, share: float) -> bool:
        """Return whether to read a broker's CPU time (a probe) now: not while counters are read often, or moves run.

        A broker whose CPU share is requested (`share_of`) is not probed: its JVM returns the share since the last
        request, and a probe counts as a request.
        """
        if self._cpu_seconds is None or entry.load is None or entry.load.cpu_share is not None:
            return False
        if self._hurries(entry) or self.demand.in_flight() or not self._worth(broker):
            return False
        now, pace = self._clock.boot(), REFUSED_SECONDS if entry.probe_failed else self._probe_pace()
        rested = now >= entry.probe_at + entry.probe_took * (1 + REST)
        # The first probe after a reading only starts a measurement, so it is sent immediately.
        begins = entry.signal.before is None and not entry.probe_failed
        return rested and (begins or _is_turn(now, entry.probe_at, pace, share))

    def _probe_pace(self) -> float:
        return max(self._options.quick_interval, len(self._brokers) / PROBES_A_SECOND)

    async def _probe(self, broker: str, entry: BrokerCounters) -> None:
        """Read a broker's CPU time, to notice a change of its load. After a failure, its counters are read more often,
        and its CPU time again later."""
        assert self._cpu_seconds is not None
        try:
            async with self._probe_slots:
                entry.probe_at = self._clock.boot()
                try:
                    seconds = await self._cpu_seconds(broker)
                finally:
                    entry.probe_took = self._clock.boot() - entry.probe_at
            entry.probe_failed = False
            self._check_signal(entry, seconds)
        except AdminApiError as error:
            if not entry.probe_failed:
                _log.info("CPU time could not be read; counters are read more often", broker=broker, error=str(error))
            entry.signal, entry.probe_failed = CpuSignal(), True
        finally:
            entry.probe = None

    def _check_signal(self, entry: BrokerCounters, cpu_seconds: float) -> None:
        """Read the counters of all brokers if the CPU use in this probe is very unusual, or unusual soon after another
        unusual probe of any broker.

        A single unusual probe may be noise. A false alarm costs no more than readings without probes.
        """
        now = self._clock.boot()
        largest = max((item.signal.values[-1] for item in self._brokers.values() if item.signal.values), default=0.0)
        margin = max(LEAST_CORES, UNUSUAL_SHARE * largest)
        surprise = entry.signal.surprise(entry.probe_at + entry.probe_took / 2, cpu_seconds)
        if surprise <= margin:
            return
        sign = surprise > STRONG_SIGN * margin or now - self._unusual_at <= 1.5 * self._probe_pace()
        self._unusual_at = now
        if sign:
            self.alarm("probe")

    async def _read(self, broker: str, entry: BrokerCounters) -> None:
        try:
            async with self._slots:
                entry.read_at, entry.quick_readings = self._clock.boot(), max(0, entry.quick_readings - 1)
                try:
                    readings = await self._counters.counters(entry.endpoint)
                finally:
                    entry.took = self._clock.boot() - entry.read_at
            entry.refused = ""
            await self._take(entry, readings)
        except (AdminApiError, CodecError, StoreError) as error:
            if not entry.refused:
                _log.info("counters could not be read; load reports are used", broker=broker, error=str(error))
            entry.refused = str(error)
            entry.forget()
        finally:
            entry.task = None
            # The broker used CPU to write the page. Start a new measurement, so that this is not taken for a change.
            entry.signal.before = None

    async def _take(self, entry: BrokerCounters, readings: Sequence[CounterReading]) -> None:
        # Prometheus may still have scrapes of the previous process.
        readings = [item for item in readings if item.from_ms >= entry.since_ms]
        if not readings:
            return
        edges = await self._edges({name for item in readings for name in item.namespaces})
        first = entry.reading is None
        entry.reading = entry.reading or readings[0]
        share = await self.share_of(entry.endpoint.broker_id)
        # The readings of a new broker are used one at a time, because a shedder counts hits per new load.
        for place, reading in enumerate(readings[1:] if first else readings[-1:]):
            if place:
                await self._clock.sleep(_SHOWN_SECONDS)
                share = await self.share_of(entry.endpoint.broker_id)
            await self._measure(entry, reading, edges, share)

    async def _edges(self, namespaces: set[str]) -> dict[str, list[int]]:
        """Return the bundle boundaries of these namespaces.

        Raises CodecError if too many namespaces are new, because a broker could report any number of them."""
        if len(self._boundaries) > _MOST_NAMESPACES:
            self._boundaries.clear()
        edges = {name: boundaries for name in namespaces if (boundaries := self._boundaries.get(name)) is not None}
        new = sorted(namespaces - edges.keys())

        async def read(namespace: str) -> None:
            bounds = await self._metadata.boundaries(namespace) or [0, FULL_UPPER]
            edges[namespace] = self._boundaries[namespace] = bounds

        await bounded([partial(read, name) for name in new[:_NEW_NAMESPACES]])
        if len(new) > _NEW_NAMESPACES:
            text = f"the counters name {len(new)} new namespaces; at most {_NEW_NAMESPACES} are looked up at a time"
            raise CodecError(text, code=Code.REPORT_TOO_LARGE)
        return edges

    async def _measure(
        self, entry: BrokerCounters, reading: CounterReading, edges: Mapping[str, Sequence[int]], share: float | None
    ) -> None:
        if entry.reading is None:
            return  # the term has ended in the meantime
        load = await asyncio.to_thread(measured, entry.reading, reading, edges)
        if load is None:
            return
        entry.reading = reading
        if load.bundles:
            entry.topics_ms = load.to_ms
        broker = entry.endpoint.broker_id
        if self._times_are_certain():
            self.double_service.add(broker, load.growth)
        else:
            self.double_service.clear()
        load = replace(load, cpu_share=share, traffic=self._with_replicators(load, broker), growth=NO_GROWTH)
        entry.agreement.add(load, int(1000 * self.statistics_seconds(broker)))
        change: Floats = load.traffic.sum(axis=0) - entry.loads[-1].traffic.sum(axis=0) if entry.loads else np.zeros(4)
        changed = bool((np.abs(change) > CHANGED_SHARE * self._largest()).any())
        entry.loads = [item for item in entry.loads if item.from_ms >= load.to_ms - 1000 * PROCESS_SECONDS] + [load]
        entry.load, entry.total = load, tuple(load.traffic.sum(axis=0).tolist())
        if changed:
            self._confirm()
        for row in np.flatnonzero(load.whole).tolist():
            self._store_last("traffic", load.bundles[row], load.to_ms, load.traffic[row])
        oldest_ms = load.to_ms - int(2000 * self.statistics_seconds(broker))
        while self._last and (first := next(iter(self._last.items())))[1][0] < oldest_ms:
            del self._last[first[0]]
        self.on_news()

    def _store_last(self, kind: Literal["traffic", "replicated"], bundle: str, at_ms: int, figures: Floats) -> None:
        self._last.pop((kind, bundle), None)
        self._last[kind, bundle] = at_ms, figures

    def _with_replicators(self, load: MeasuredLoad, broker: str) -> Floats:
        """Return the traffic of `load`. For bundles without rates of replicators, add the last known rates.

        A broker exports these rates only after its first statistics of the bundle."""
        traffic, since_ms = load.traffic.copy(), load.to_ms - 1000 * self.statistics_seconds(broker)
        for row, bundle in enumerate(load.bundles):
            if load.replicated[row].any():
                self._store_last("replicated", bundle, load.to_ms, load.replicated[row])
            else:
                at_ms, sent = self._last.get(("replicated", bundle), (0, 0.0))
                traffic[row] += sent if at_ms >= since_ms else 0.0
        return traffic

    def _check_boundaries(self, bundles: Sequence[str]) -> None:
        for text in bundles:
            namespace, _, _ = text.rpartition("/")
            edges = self._boundaries.get(namespace)
            if edges is not None:
                name = parse_bundle(text)
                at = bisect_left(edges, name.lower)
                if edges[at : at + 2] != [name.lower, name.upper]:
                    del self._boundaries[namespace]

    def _largest(self) -> Floats:
        """Return the largest value of any broker for each column of `model.load.TRAFFIC`, shape (4,)."""
        totals = [entry.total for entry in self._brokers.values() if entry.load is not None]
        return np.array([max(column) for column in zip(*totals, strict=True)] or [0.0] * 4)

    def _newer(self, report: BrokerReport) -> BrokerReport:
        entry = self._brokers.get(report.broker_id)
        if entry is None:
            return report
        entry.state, newer = self._choose_report(entry, report)
        entry.timely = entry.timely if entry.state == "outdated" else self._clock.boot()
        return newer

    def _choose_report(self, entry: BrokerCounters, report: BrokerReport) -> tuple[str, BrokerReport]:
        if not self._worth(report.broker_id):
            return "quick_reports", report
        if entry.load is None or entry.endpoint.start_timestamp != report.start_timestamp:
            return "waiting", report
        # The values of a report may be as old as the start of the statistics interval before the last one.
        lag_ms = int(2000 * self.statistics_seconds(report.broker_id))
        oldest_ms = report.updated_ms - lag_ms
        # Prometheus' clock may be ahead of ours. A load that begins in the future would make moves count as settled.
        if not oldest_ms <= entry.load.from_ms <= self._clock.wall_ms():
            return "outdated", report
        # If a metrics collector drops the counters of topics, a broker seems to have none. Believe that only if its
        # report agrees, or if its counters contained topics recently.
        if not entry.load.bundles and report.num_topics > 0 and oldest_ms > entry.topics_ms:
            return "no_topics", report
        new_report = entry.replacement is None or entry.replacement[0] is not report
        if entry.replacement is None or new_report or entry.replacement[1] is not entry.load:
            if entry.replacement is not None and (entry.replacement[0].cores is None) != (report.cores is None):
                entry.others = 0.0  # the value of a host does not apply to a container, or vice versa
            # Loads from the time of an old report are dropped one at a time, so a new estimate would be less exact.
            newer = entry.replacement is None or entry.replacement[0].updated_ms < report.updated_ms
            if newer or entry.load.from_ms < report.updated_ms:
                entry.others = others_share(report, entry.loads, entry.others, lag_ms)
            recent = self._recent_traffic(entry.load.bundles, max(oldest_ms, entry.load.to_ms - lag_ms))
            self._compare(entry, report)
            combined = None if entry.doubt else with_measured(report, entry.load, recent, entry.others)
            entry.replacement = report, entry.load, combined or report
        if entry.replacement[2] is not report:
            return "live", entry.replacement[2]
        return "disagree" if entry.doubt else "no_cpu", report

    def _compare(self, entry: BrokerCounters, report: BrokerReport) -> None:
        broker, trusted = report.broker_id, not entry.doubt
        entry.agreement.compare(report, int(1000 * self.statistics_seconds(broker)))
        entry.doubt = entry.agreement.doubt(self.other_assigner(broker))
        if entry.doubt and trusted:
            text = "counters disagree with load reports; reports are used"
            _log.warning(text, code=Code.COUNTERS_DISAGREE, broker=broker, reason=entry.doubt)

    def _recent_traffic(self, bundles: Sequence[str], since_ms: int) -> dict[str, Floats]:
        """Return the traffic of the bundles that were measured completely since `since_ms`."""
        traffic = {bundle: self._last.get(("traffic", bundle)) for bundle in bundles}
        return {bundle: last[1] for bundle, last in traffic.items() if last is not None and last[0] >= since_ms}

    @staticmethod
    def _end(entry: BrokerCounters) -> None:
        for task in (entry.task, entry.probe):
            if task is not None:
                task.cancel()


def _is_turn(now: float, last: float, pace: float, share: float) -> bool:
    """Return whether a broker's turn to be read began between the times `last` and `now` (seconds).

    Its turns begin every `pace` seconds, shifted by `share` (0 to 1) of `pace`."""
    return (now - share * pace) // pace > (last - share * pace) // pace


async def _not_asked(_broker: str) -> float | None:
    return None
