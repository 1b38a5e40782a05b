"""Brokers' loads by their counters: read when it is worth it, and put in place of older figures.

A reading costs the broker time (0.07 s with 24 topics, seconds with 10,000), so it is made at leisure while nothing
changes, and in quick succession for a while after anything that suggests a change: the beginning of a term, a broker
that comes or goes, a load that differs from the one before, and while moves of ours do not show yet. In between, probes
of the brokers' CPU time show a change within seconds (`CpuSignal`). While moves are
carried out it is at leisure: a broker that writes its counters answers lookups later. Whatever is wanted, a broker
rests for several times as long as its answer took. Only who leads reads.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

import numpy as np
import structlog

from bundlekeel.core.model.agreement import Agreement
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.counters import (
    CounterReading,
    MeasuredLoad,
    measured,
    others_share,
    with_measured,
)
from bundlekeel.core.model.errors import AdminApiError, CodecError, StoreError
from bundlekeel.core.model.load import BrokerEndpoint, BrokerReport, Floats
from bundlekeel.core.model.names import FULL_UPPER, parse_bundle
from bundlekeel.daemon.sources.cpu_signal import CpuSignal
from bundlekeel.ports import Clock, Metadata, RawClusterView, TopicCounters
from bundlekeel.work import bounded

_log = structlog.get_logger(__name__)

# So many times as long as an answer took a broker rests: at leisure, and while something changes.
REST: Final = 20.0
QUICK_REST: Final = 4.0
# A topic costs us about 100 microseconds a reading (`evidence.counters_cost`), and all take no more of a core than these
# shares.
TOPICS_A_SECOND: Final = 0.5 / 100e-6
QUICK_TOPICS_A_SECOND: Final = 1.0 / 100e-6
# After a change of load, two readings in quick succession: the second one contains nothing from before the change.
CONFIRM_READINGS: Final = 2
CONFIRM_SECONDS: Final = 2.0
# While probes of a broker are answered, its page is read less often: it rests for this many times as long as the page
# took, and all pages take no more than this share of a core here. Two readings and their age have to fit into two
# statistics intervals: otherwise a new report replaces them. So the pause has at most this part of an interval.
PROBED_REST: Final = 60.0
PROBED_TOPICS_A_SECOND: Final = 0.2 / 100e-6
PROBED_SHARE: Final = 0.75
# A probe needs 3 to 4 ms here, most of them in httpx: all of them take no more than a tenth of a core.
PROBES_A_SECOND: Final = 25.0
# A smaller change of a broker's CPU use, in cores, is not a sign.
LEAST_CORES: Final = 0.005
# Nor is one that is outside of the usual range by less than this share of the largest use.
UNUSUAL_SHARE: Final = 0.05
# A single probe is a sign if it is outside of the usual range by this many times the least change.
STRONG_SIGN: Final = 3.0
# At the start of a term, and while the list of brokers changes, brokers are read quickly for this long.
START_SECONDS: Final = 30.0
# A load that differs by so much of the largest one from the reading before is a sign.
CHANGED_SHARE: Final = 0.1
# The largest CPU use of the broker's process in this time separates it from other processes of the host.
PROCESS_SECONDS: Final = 240.0
# A broker that refuses is asked again after this long.
REFUSED_SECONDS: Final = 60.0
_TURN_SECONDS: Final = 0.5
# A broker's page can name any namespaces, and each is a read of the metadata store and a place in memory.
_NEW_NAMESPACES: Final = 2000
_MOST_NAMESPACES: Final = 50_000
# The older ones of several readings that are there at once are shown this long, so that a cycle sees each of them.
_SHOWN_SECONDS: Final = 2.0
# At the beginning of a term the brokers' figures change from reports to counters together, or after so long.
_TOGETHER_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterOptions:
    """Seconds. `interval`: between two readings of a broker while nothing changes; `quick_interval`: while something
    does. `at_once`: brokers that are asked at the same time. `max_topics`: of more topics in all nothing is read: by
    the time all brokers were, the first figures would be as old as reports."""

    interval: float = 15.0
    quick_interval: float = 3.0
    at_once: int = 8
    max_topics: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterDemand:
    """Reasons to read counters, each a function."""

    wanted: Callable[[], bool] = bool
    """Whether readings are worth their cost now."""
    moving: Callable[[], bool] = bool
    """Whether loads do not show some of Bundlekeel's moves yet."""
    in_flight: Callable[[], bool] = bool
    """Whether moves are being executed."""
    urgent: Callable[[], bool] = bool
    """Whether a decision may be due before the next reading."""


@dataclass(slots=True, kw_only=True)
class _Known:
    """One broker in its present life. `since_ms`: when that was first seen, by our clock, 0: when this process began.
    The last reading was begun at `asked` by the boot clock and made in `took` seconds;
    `loads`: what each two readings said in the last `PROCESS_SECONDS`; `load`: the last one,
    and its `total` over bundles; `topics_ms`: when its counters were of topics last.
    `shown`: the report, the load and what was made of both last; `others`: the share of the CPU that the broker's
    process does not use. `refused`: why it gave none. `state`: `live`, or why its report is shown instead; `timely`:
    when it was last another than `outdated`, by the boot clock. `doubt`: why `load` is not used; "": it is.
    `quick_readings`: how many readings in quick succession are still to come. `signal`: values of probes. The last
    probe was sent at `probe_at` and took `probe_took`; `probe_failed`: whether it failed."""

    endpoint: BrokerEndpoint
    since_ms: int = 0
    reading: CounterReading | None = None
    loads: list[MeasuredLoad] = field(default_factory=list)
    load: MeasuredLoad | None = None
    agreement: Agreement = field(default_factory=Agreement)
    doubt: str = ""
    total: tuple[float, ...] = ()
    topics_ms: int = 0
    shown: tuple[BrokerReport, MeasuredLoad, BrokerReport] | None = None
    others: float = 0.0
    asked: float = float("-inf")
    took: float = 0.0
    refused: str = ""
    state: str = "waiting"
    timely: float = 0.0
    task: asyncio.Task[None] | None = None
    quick_readings: int = 0
    signal: CpuSignal = field(default_factory=CpuSignal)
    probe_at: float = 0.0
    probe_took: float = 0.0
    probe_failed: bool = False
    probe: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """What was read is too old to be half of a measurement."""
        self.reading, self.loads, self.load, self.agreement.loads = None, [], None, []
        self.signal, self.probe_failed = CpuSignal(), False


class LiveLoads:
    """Owned by one `ClusterSource`, which passes it brokers and bundles and reads its figures.

    `statistics_seconds`: how often a broker computes its own figures: where that is at least as often, its reports are
    as good. `share_of`: asks a broker that does not report its cores for the share of its CPU it used since the last
    request, None for other brokers.
    `other_assigner`: class of a broker's own `topicBundleAssignmentStrategy`; "": Pulsar's, or unknown.
    `on_news`: called after each reading that made a load.
    """

    def __init__(
        self,
        counters: TopicCounters,
        metadata: Metadata,
        clock: Clock,
        options: CounterOptions,
        closing: Callable[[], Awaitable[None]] | None = None,
        cpu_seconds: Callable[[str], Awaitable[float]] | None = None,
        demand: CounterDemand = CounterDemand(),
    ) -> None:
        """`closing`: awaited at the end, where nothing else closes what counters are read by. `cpu_seconds`: probes a
        broker (`ports.BrokerAdmin`); None: readings are cheap for brokers."""
        self._closing = closing
        self._cpu_seconds = cpu_seconds
        self.demand = demand
        self.statistics_seconds: Callable[[str], float] = lambda _broker: 60.0
        self.share_of: Callable[[str], Awaitable[float | None]] = _not_asked
        self.other_assigner: Callable[[str], str] = lambda _broker: ""
        self.on_news: Callable[[], None] = lambda: None
        self._counters = counters
        self._metadata = metadata
        self._clock = clock
        self._options = options
        self._brokers: dict[str, _Known] = {}
        # Of the namespaces that brokers count topics of; one that reports divide otherwise is asked for anew.
        self._boundaries: dict[str, list[int]] = {}
        self._divided: dict[str, tuple[str, ...]] = {}
        # Last known figures of bundles, wherever that was, and when; oldest first: the traffic of those that were
        # measured whole, and what replicators send.
        self._last: dict[tuple[Literal["traffic", "replicated"], str], tuple[int, Floats]] = {}
        self._topics = 0
        self._quick_until = float("-inf")
        self._together_until = float("-inf")
        self._slots = asyncio.Semaphore(options.at_once)
        self._probe_slots = asyncio.Semaphore(options.at_once)
        # When a probe was unusual last, and when that led to readings.
        self._unusual_at = self._alarmed_at = float("-inf")

    def register(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Exactly these are alive. A broker that restarted counts from nothing."""
        kept = {}
        for broker, endpoint in endpoints.items():
            known = self._brokers.get(broker)
            if known is None or known.endpoint.start_timestamp != endpoint.start_timestamp:
                self._quicken()
                if known is not None:
                    self._end(known)
                since_ms = self._clock.wall_ms() if self._brokers else 0
                known = _Known(endpoint=endpoint, since_ms=since_ms, timely=self._clock.boot())
            kept[broker] = known
        gone = self._brokers.keys() - kept.keys()
        for broker in gone:
            self._quicken()
            self._end(self._brokers[broker])
        self._brokers = kept

    def use(self, demand: CounterDemand) -> None:
        """Read counters for these reasons from now on."""
        self.demand = demand

    async def run(self) -> None:
        """Read each broker when it is due, until cancelled."""
        reading = False
        while True:
            wanted = self.demand.wanted() and self._topics <= self._options.max_topics
            if wanted != reading:
                self._begin_anew()
            reading = wanted
            if wanted and (self.demand.moving() or self.demand.urgent()):
                self._confirm(1)
            for place, (broker, known) in enumerate(self._brokers.items() if wanted else ()):
                share = place / len(self._brokers)
                if known.task is None and self._due(broker, known, share):
                    known.task = asyncio.create_task(self._read(broker, known), name=f"counters {broker}")
                elif known.task is None and known.probe is None and self._probe_due(broker, known, share):
                    known.probe = asyncio.create_task(self._probe(broker, known), name=f"probe {broker}")
            await self._clock.sleep(_TURN_SECONDS)

    async def close(self) -> None:
        """End what is under way."""
        tasks = [task for known in self._brokers.values() for task in (known.task, known.probe) if task is not None]
        for known in self._brokers.values():
            self._end(known)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._closing is not None:
            await self._closing()

    def fused(self, picture: RawClusterView) -> RawClusterView:
        """The picture, a broker's figures by its counters where those are newer than what it reported."""
        self._count(sum(report.num_topics for report in picture.reports))
        for report in picture.reports:
            if self._divided.get(report.broker_id) != report.bundle_names:
                self._divided[report.broker_id] = report.bundle_names
                self._check_boundaries(report.bundle_names)
        if self._clock.boot() < self._together_until:
            if not all(self._answered(broker, known) for broker, known in self._brokers.items()):
                return picture
            self._together_until = float("-inf")
        for known in self._brokers.values():
            known.state = "waiting"  # one that the picture lacks is shown by nothing
        reports = tuple(self._newer(report) for report in picture.reports)
        return replace(picture, reports=reports)

    def states(self) -> dict[str, str]:
        """By broker what its figures come from: `live` for its counters, otherwise why they come from its report.
        Nothing while nothing is read, as at a follower."""
        if not self.demand.wanted():
            return {}
        if self._topics > self._options.max_topics:
            return dict.fromkeys(self._brokers, "too_many_topics")
        return {broker: "refused" if known.refused else known.state for broker, known in self._brokers.items()}

    def refusals(self) -> dict[str, str]:
        """The brokers that do not tell their counters, and why."""
        return {broker: known.refused for broker, known in self._brokers.items() if known.refused}

    def doubts(self) -> dict[str, str]:
        """Return the brokers whose counters disagree with their reports, and how."""
        return {broker: self._brokers[broker].doubt for broker, state in self.states().items() if state == "disagree"}

    def ages(self) -> dict[str, float]:
        """Seconds since the last reading of each broker that is shown by its counters."""
        now_ms, live = self._clock.wall_ms(), {name for name, state in self.states().items() if state == "live"}
        loads = {broker: known.load for broker, known in self._brokers.items() if broker in live}
        return {broker: max(0.0, (now_ms - load.to_ms) / 1000) for broker, load in loads.items() if load is not None}

    def outdated(self) -> dict[str, float]:
        """Seconds for which brokers have been `outdated`."""
        late = [broker for broker, state in self.states().items() if state == "outdated"]
        return {broker: self._clock.boot() - self._brokers[broker].timely for broker in late}

    # --- small parts -------------------------------------------------------------------------------------

    def _count(self, topics: int) -> None:
        if self._topics <= self._options.max_topics < topics:
            _log.info("counters are not read: too many topics; load reports are used", topics=topics)
        self._topics = topics

    def _begin_anew(self) -> None:
        """A term begins or ends."""
        for known in self._brokers.values():
            known.forget()
            known.asked, known.refused, known.state = float("-inf"), "", "waiting"
        self._last = {}
        self._together_until = self._clock.boot() + _TOGETHER_SECONDS
        self._quicken()

    def _quicken(self) -> None:
        """Something suggests that loads are about to change."""
        self._quick_until = self._clock.boot() + START_SECONDS

    def _confirm(self, readings: int = CONFIRM_READINGS) -> None:
        """Read each broker this many times in quick succession, however long its page takes."""
        for known in self._brokers.values():
            known.quick_readings = max(known.quick_readings, readings)

    def _answered(self, broker: str, known: _Known) -> bool:
        return known.load is not None or known.refused != "" or not self._worth(broker)

    def _worth(self, broker: str) -> bool:
        """Whether a broker computes its own figures more rarely than it would be read."""
        return self.statistics_seconds(broker) > self._options.quick_interval

    def _due(self, broker: str, known: _Known, share: float) -> bool:
        """Return whether to read a broker. Brokers take turns, `share` of an interval apart, so that a change which
        concerns several of them shows in a part of the interval."""
        quick, now = self._options.quick_interval, self._clock.boot()
        if not self._worth(broker):
            return False
        hurry = self._hurries(known)
        if known.quick_readings > 0:
            quick = min(quick, CONFIRM_SECONDS)
        pace, rest, rate = (
            (quick, QUICK_REST, QUICK_TOPICS_A_SECOND) if hurry else (self._options.interval, REST, TOPICS_A_SECOND)
        )
        pace = max(pace, self._topics / rate)
        if known.signal.values and not hurry and not self.demand.in_flight():
            pause = max(PROBED_REST * known.took, self._topics / PROBED_TOPICS_A_SECOND)
            pace = max(pace, min(pause, PROBED_SHARE * self.statistics_seconds(broker)))
        if known.refused:
            pace, rest = REFUSED_SECONDS, REST
        if now < known.asked + known.took * (1 + rest):
            return False
        if hurry or known.refused or known.asked == float("-inf"):
            return now >= known.asked + pace
        return _is_turn(now, known.asked, pace, share)

    def _hurries(self, known: _Known) -> bool:
        return (known.quick_readings > 0 or self._clock.boot() < self._quick_until) and not self.demand.in_flight()

    def _probe_due(self, broker: str, known: _Known, share: float) -> bool:
        """Return whether to probe a broker: while it is read at leisure, and no moves are being carried out.

        A JVM that is asked for its share of the CPU (`share_of`) reports it since the last request: it is not probed.
        """
        if self._cpu_seconds is None or known.load is None or known.load.cpu_share is not None:
            return False
        if self._hurries(known) or self.demand.in_flight() or not self._worth(broker):
            return False
        now, pace = self._clock.boot(), REFUSED_SECONDS if known.probe_failed else self._probe_pace()
        rested = now >= known.probe_at + known.probe_took * (1 + REST)
        # The first probe after a page begins a measurement, so it is sent at once.
        begins = known.signal.before is None and not known.probe_failed
        return rested and (begins or _is_turn(now, known.probe_at, pace, share))

    def _probe_pace(self) -> float:
        return max(self._options.quick_interval, len(self._brokers) / PROBES_A_SECOND)

    async def _probe(self, broker: str, known: _Known) -> None:
        """Probe a broker. Whatever fails, its page is read at the usual interval, and it is probed again later."""
        assert self._cpu_seconds is not None
        try:
            async with self._probe_slots:
                known.probe_at = self._clock.boot()
                try:
                    seconds = await self._cpu_seconds(broker)
                finally:
                    known.probe_took = self._clock.boot() - known.probe_at
            known.probe_failed = False
            self._check_signal(known, seconds)
        except AdminApiError as error:
            if not known.probe_failed:
                _log.info("CPU time could not be read; counters are read more often", broker=broker, error=str(error))
            known.signal, known.probe_failed = CpuSignal(), True
        finally:
            known.probe = None

    def _check_signal(self, known: _Known, cpu_seconds: float) -> None:
        """Read all brokers if this probe is very unusual, or if it and the one before it, of any broker, are unusual.

        A single one may be noise. A false sign costs no more than the readings that are usual without probes.
        """
        now = self._clock.boot()
        largest = max((item.signal.values[-1] for item in self._brokers.values() if item.signal.values), default=0.0)
        margin = max(LEAST_CORES, UNUSUAL_SHARE * largest)
        surprise = known.signal.surprise(known.probe_at + known.probe_took / 2, cpu_seconds)
        if surprise <= margin:
            return
        sign = surprise > STRONG_SIGN * margin or now - self._unusual_at <= 1.5 * self._probe_pace()
        self._unusual_at = now
        if sign and now >= self._alarmed_at + CONFIRM_READINGS * self._options.interval:
            self._alarmed_at = now
            self._confirm()

    async def _read(self, broker: str, known: _Known) -> None:
        try:
            async with self._slots:
                known.asked, known.quick_readings = self._clock.boot(), max(0, known.quick_readings - 1)
                try:
                    readings = await self._counters.counters(known.endpoint)
                finally:
                    known.took = self._clock.boot() - known.asked
            known.refused = ""
            await self._take(known, readings)
        except (AdminApiError, CodecError, StoreError) as error:
            if not known.refused:
                _log.info("counters could not be read; load reports are used", broker=broker, error=str(error))
            known.refused = str(error)
            known.forget()
        finally:
            known.task = None
            # The CPU that the page cost the broker is not a sign.
            known.signal.before = None

    async def _take(self, known: _Known, readings: Sequence[CounterReading]) -> None:
        # Prometheus may still have scrapes of the process before.
        readings = [item for item in readings if item.from_ms >= known.since_ms]
        if not readings:
            return
        edges = await self._edges({name for item in readings for name in item.namespaces})
        first = known.reading is None
        known.reading = known.reading or readings[0]
        share = await self.share_of(known.endpoint.broker_id)
        # Of a broker that is new to us the readings are shown one after the other: to a shedder each is a hit.
        for place, reading in enumerate(readings[1:] if first else readings[-1:]):
            if place:
                await self._clock.sleep(_SHOWN_SECONDS)
                share = await self.share_of(known.endpoint.broker_id)
            await self._measure(known, reading, edges, share)

    async def _edges(self, namespaces: set[str]) -> dict[str, list[int]]:
        """Return the boundaries of these namespaces. Raises CodecError if too many are new: a broker names them."""
        if len(self._boundaries) > _MOST_NAMESPACES:
            self._boundaries.clear()
        edges = {name: known for name in namespaces if (known := self._boundaries.get(name)) is not None}
        new = sorted(namespaces - edges.keys())

        async def read(namespace: str) -> None:
            found = await self._metadata.boundaries(namespace) or [0, FULL_UPPER]
            edges[namespace] = self._boundaries[namespace] = found

        await bounded([partial(read, name) for name in new[:_NEW_NAMESPACES]])
        if len(new) > _NEW_NAMESPACES:
            text = f"the counters name {len(new)} new namespaces; at most {_NEW_NAMESPACES} are looked up at a time"
            raise CodecError(text, code=Code.REPORT_TOO_LARGE)
        return edges

    async def _measure(
        self, known: _Known, reading: CounterReading, edges: Mapping[str, Sequence[int]], share: float | None
    ) -> None:
        if known.reading is None:
            return  # a term ended meanwhile
        made = await asyncio.to_thread(measured, known.reading, reading, edges)
        if made is None:
            return
        known.reading = reading
        if made.bundles:
            known.topics_ms = made.to_ms
        broker = known.endpoint.broker_id
        made = replace(made, cpu_share=share, traffic=self._with_replicators(made, broker))
        known.agreement.add(made, int(1000 * self.statistics_seconds(broker)))
        change: Floats = made.traffic.sum(axis=0) - known.loads[-1].traffic.sum(axis=0) if known.loads else np.zeros(4)
        changed = bool((np.abs(change) > CHANGED_SHARE * self._largest()).any())
        known.loads = [item for item in known.loads if item.from_ms >= made.to_ms - 1000 * PROCESS_SECONDS] + [made]
        known.load, known.total = made, tuple(made.traffic.sum(axis=0).tolist())
        if changed:
            self._confirm()
        for row in np.flatnonzero(made.whole).tolist():
            self._keep("traffic", made.bundles[row], made.to_ms, made.traffic[row])
        oldest_ms = made.to_ms - int(2000 * self.statistics_seconds(broker))
        while self._last and (first := next(iter(self._last.items())))[1][0] < oldest_ms:
            del self._last[first[0]]
        self.on_news()

    def _keep(self, kind: Literal["traffic", "replicated"], bundle: str, at_ms: int, figures: Floats) -> None:
        self._last.pop((kind, bundle), None)
        self._last[kind, bundle] = at_ms, figures

    def _with_replicators(self, load: MeasuredLoad, broker: str) -> Floats:
        """Return the traffic of `load`, with the last rates of a bundle's replicators where it has none.

        A broker reports no rates of a bundle's replicators before its first statistics of the bundle."""
        traffic, since_ms = load.traffic.copy(), load.to_ms - 1000 * self.statistics_seconds(broker)
        for row, bundle in enumerate(load.bundles):
            if load.replicated[row].any():
                self._keep("replicated", bundle, load.to_ms, load.replicated[row])
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
        """Return the largest load of a broker, shape (4,)."""
        totals = [known.total for known in self._brokers.values() if known.load is not None]
        return np.array([max(column) for column in zip(*totals, strict=True)] or [0.0] * 4)

    def _newer(self, report: BrokerReport) -> BrokerReport:
        known = self._brokers.get(report.broker_id)
        if known is None:
            return report
        known.state, made = self._shown(known, report)
        known.timely = known.timely if known.state == "outdated" else self._clock.boot()
        return made

    def _shown(self, known: _Known, report: BrokerReport) -> tuple[str, BrokerReport]:
        if not self._worth(report.broker_id):
            return "quick_reports", report
        if known.load is None or known.endpoint.start_timestamp != report.start_timestamp:
            return "waiting", report
        # What a broker reports is of the statistics interval before the last one, at worst.
        lag_ms = int(2000 * self.statistics_seconds(report.broker_id))
        oldest_ms = report.updated_ms - lag_ms
        # Prometheus' clock may be ahead of ours: what
        # began later than now would settle moves unseen.
        if not oldest_ms <= known.load.from_ms <= self._clock.wall_ms():
            return "outdated", report
        # Who collects counters may drop those of topics: a broker is without any if it had some, and says so in time.
        if not known.load.bundles and report.num_topics > 0 and oldest_ms > known.topics_ms:
            return "no_topics", report
        anew = known.shown is None or known.shown[0] is not report
        if known.shown is None or anew or known.shown[1] is not known.load:
            if known.shown is not None and (known.shown[0].cores is None) != (report.cores is None):
                known.others = 0.0  # of the host before, of the container now, or the other way round
            # Loads of the time of an older report are forgotten one by one, so it says less and less.
            newer = known.shown is None or known.shown[0].updated_ms < report.updated_ms
            if newer or known.load.from_ms < report.updated_ms:
                known.others = others_share(report, known.loads, known.others, lag_ms)
            lately = self._lately(known.load.bundles, max(oldest_ms, known.load.to_ms - lag_ms))
            self._compare(known, report)
            made = None if known.doubt else with_measured(report, known.load, lately, known.others)
            known.shown = report, known.load, made or report
        if known.shown[2] is not report:
            return "live", known.shown[2]
        return "disagree" if known.doubt else "no_cpu", report

    def _compare(self, known: _Known, report: BrokerReport) -> None:
        broker, trusted = report.broker_id, not known.doubt
        known.agreement.compare(report, int(1000 * self.statistics_seconds(broker)))
        known.doubt = known.agreement.doubt(self.other_assigner(broker))
        if known.doubt and trusted:
            _log.warning("load reports are used", code=Code.COUNTERS_DISAGREE, broker=broker, reason=known.doubt)

    def _lately(self, bundles: Sequence[str], since_ms: int) -> dict[str, Floats]:
        """The traffic of those that were measured whole since then."""
        found = {bundle: self._last.get(("traffic", bundle)) for bundle in bundles}
        return {bundle: last[1] for bundle, last in found.items() if last is not None and last[0] >= since_ms}

    @staticmethod
    def _end(known: _Known) -> None:
        for task in (known.task, known.probe):
            if task is not None:
                task.cancel()


def _is_turn(now: float, last: float, pace: float, share: float) -> bool:
    """Return whether a turn has begun since `last`. Turns are `pace` apart, and begin at `share` of it."""
    return (now - share * pace) // pace > (last - share * pace) // pace


async def _not_asked(_broker: str) -> float | None:
    return None
