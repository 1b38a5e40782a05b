"""What is known of each extensible broker, and the reports that follow from it. No I/O and no clock: times come in.

Who is alive, the registry alone says (an ephemeral znode). The load topics say how loaded a broker is: a broker that
takes its load data back (a tombstone, at each move) is alive, and what it said last stands; one that is not registered
is out of the picture at once, whatever the tables still hold. `/admin/v2/broker-stats/topics` says what its bundles
carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.extensible import NO_BUNDLES, BrokerLoadData, BundleLoads, load_unknown, report_of
from bundlekeel.core.model.load import THROUGHPUT_IN, BrokerEndpoint, BrokerReport, ExcludedBroker, Floats
from bundlekeel.core.model.numbers import setting
from bundlekeel.ports import LatestLoad, LoadTables

BundlesSetting = Literal["all", "top"]
BrokerSettings = Callable[[str], Mapping[str, str] | None]

STATS_SECONDS_KEY: Final = "statsUpdateFrequencyInSecs"
CPU_WEIGHT_KEY: Final = "loadBalancerCPUResourceWeight"
ASSIGNER_KEY: Final = "topicBundleAssignmentStrategy"
ASSIGNER: Final = "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner"
TTL_SECONDS_KEY: Final = "loadBalancerBrokerLoadDataTTLInSeconds"
STATS_SECONDS: Final = 60.0
TTL_SECONDS: Final = 1800.0
# A broker is believed to be as it was for so many failed polls, and for so long without the load topics: a change of
# their leader, or a pause of one broker, is no reason to plan without it.
GRACE_POLLS: Final = 3
GRACE_SECONDS: Final = 30.0
# How often the CPU of a broker that did not report it is asked for, at first and later. The answer is 100 KB and costs
# the broker 0.2 s: over six seconds an eighth of a quarter core, and the next answers count less and less of it.
CPU_FIRST_SECONDS: Final = 6.0
CPU_SECONDS: Final = 30.0
_DETAIL_CHARACTERS: Final = 256


class Instant(NamedTuple):
    """Now, on both clocks: wall time in ms, boot time in seconds."""

    wall_ms: int
    boot: float


@dataclass(slots=True, kw_only=True)
class KnownBroker:
    """One registered broker in its present life. `stats`: its newest answer, at `stats_boot`; `news_boot`: when an
    answer counted as news; `last_update`: see `ExtensibleBrokers`; `cpu`: used share of its CPU, asked for at
    `cpu_boot` while it reports no score, and `cpu_awaited` until it can be told; `asked`: an answer or an error was
    had.
    """

    endpoint: BrokerEndpoint
    latest: LatestLoad = field(default_factory=LatestLoad)
    stats: BundleLoads | None = None
    stats_boot: float = float("-inf")
    news_boot: float = float("-inf")
    last_update: int = 0
    cpu: float | None = None
    cpu_boot: float = float("-inf")
    cpu_awaited: bool = False
    error: str = ""
    asked: bool = False
    unreachable: bool = False


class ScoreScale(NamedTuple):
    """What scores are imputed by: score per byte/s of the brokers that reported one, and the least score of them."""

    per_byte: float
    least: float


class ExtensibleBrokers:
    """Everything known of the extensible brokers; mutable, owned by one `ClusterSource`.

    **`last_update` of a report** is the moment, in ms, at which something new was known of the broker: a message of
    the load topics, an answer of its statistics that differs from the one before, or one
    that still agrees after a whole statistics interval. Averages add a sample, and strategies count a hit, whenever it
    grows. The time of the load data alone would stand still for 15 minutes at a broker that changes little, which is
    when a steady imbalance shows; the time of each poll would take one measurement for six. It never goes back, and
    is a time of arrival here, whatever the broker's clock says.
    """

    def __init__(self, *, bundles: BundlesSetting, stats_interval: float) -> None:
        """`settings_of` may be set: what a broker runs with, None while it could not be asked."""
        self.brokers: dict[str, KnownBroker] = {}
        self.settings_of: BrokerSettings = _unknown
        self._bundles = bundles
        self._fresh_seconds = max(GRACE_SECONDS, GRACE_POLLS * stats_interval)
        self._feed_ok_boot = float("-inf")
        self._feed_ok = False

    # --- what comes in ---

    def register(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Exactly these are alive. A broker that restarted begins anew."""
        kept = {}
        for broker, endpoint in endpoints.items():
            known = self.brokers.get(broker)
            if known is None or known.endpoint.start_timestamp != endpoint.start_timestamp:
                known = KnownBroker(endpoint=endpoint)
            known.endpoint = endpoint
            kept[broker] = known
        self.brokers = kept

    def take_in(self, tables: LoadTables, now: Instant) -> None:
        """Take in the load topics' tables."""
        self._feed_ok = tables.state == "ok"
        if self._feed_ok:
            self._feed_ok_boot = now.boot
        for broker, known in self.brokers.items():
            latest = tables.latest.get(broker, LatestLoad())
            if latest.load is not None and latest.load.updated_at < known.endpoint.start_timestamp:
                continue  # said before it restarted
            before, known.latest = known.latest, latest
            if latest.load is not None and latest.load_ms != before.load_ms:
                _advance(known, latest.load_ms)
            if latest.bundles_ms != before.bundles_ms and not self._uses_stats(known, now):
                _advance(known, latest.bundles_ms)

    def polled(self, broker: str, loads: BundleLoads, now: Instant) -> bool:
        """Take in a broker's statistics; True when they are news."""
        known = self.brokers.get(broker)
        if known is None:
            return False
        changed = known.stats is None or known.unreachable or _differ(known.stats, loads)
        known.unreachable = False
        news = changed or now.boot - known.news_boot >= self.stats_seconds(broker)
        known.stats, known.stats_boot, known.error, known.asked = loads, now.boot, "", True
        if news:
            known.news_boot = now.boot
            _advance(known, now.wall_ms)
        return news

    def failed(self, broker: str, error: str, *, unreachable: bool = False) -> bool:
        """A broker's statistics could not be had. `unreachable`: it takes no connections, so it is most likely dead
        and its registration about to end: from now on it takes no part. True when that is news."""
        known = self.brokers.get(broker)
        if known is None:
            return False
        news = unreachable and not known.unreachable
        known.error, known.asked, known.unreachable = error, True, unreachable
        return news

    # --- what is asked ---

    def stats_seconds(self, broker: str) -> float:
        """How often this broker computes its statistics."""
        return self._number(broker, STATS_SECONDS_KEY, STATS_SECONDS)

    def other_assigner(self, broker: str) -> str:
        """Return the class by which this broker assigns topics to bundles (PIP-255); "": Pulsar's own, or unknown."""
        name = (self.settings_of(broker) or {}).get(ASSIGNER_KEY, "").strip()
        return "" if name == ASSIGNER else name

    def wants_stats(self, broker: str, now: Instant) -> bool:
        """Whether this broker's statistics are needed: always, or while the load topics do not tell enough of it."""
        known = self.brokers.get(broker)
        if known is None:
            return False
        return self._bundles == "all" or not self._feed_ok or not self._scored(known, now)

    def wants_cpu(self, broker: str, now: Instant) -> bool:
        """Whether this broker's CPU is to be asked for: while its own score is not known, and not too often."""
        if not self.lacks_score(broker, now):
            return False
        known = self.brokers[broker]
        return now.boot - known.cpu_boot >= (CPU_FIRST_SECONDS if known.cpu is None else CPU_SECONDS)

    def lacks_score(self, broker: str, now: Instant) -> bool:
        """Whether this is a broker whose own score is not known."""
        known = self.brokers.get(broker)
        return known is not None and not self._scored(known, now)

    def reported_cpu(self, broker: str, load: float | None, now: Instant) -> None:
        """Take in the used share of a broker's CPU, 0..1; None when it gave none.

        A JVM answers with the mean since it was last asked. The first answer may include its start and is not used; the
        others may cover a moment only, where several sidecars ask, so half of the one before stays.
        """
        known = self.brokers.get(broker)
        if known is None:
            return
        first, known.cpu_boot = known.cpu_boot == float("-inf"), now.boot
        known.cpu_awaited = first and load is not None
        if first or load is None:
            known.cpu = None
        else:
            known.cpu = load if known.cpu is None else (load + known.cpu) / 2

    def unasked(self) -> list[str]:
        """Brokers of which neither statistics nor load data were had yet, nor an error."""
        return [broker for broker, known in self.brokers.items() if not known.asked and known.latest.load is None]

    def awaited(self, now: Instant) -> list[str]:
        """Brokers without load data whose JVM will soon answer how busy they are. Until then they are shown by
        their traffic alone, which is enough to watch them, and too little to move anything to them."""
        return [broker for broker, known in self.brokers.items() if known.cpu_awaited and not self._scored(known, now)]

    def reports(self, now: Instant) -> tuple[list[BrokerReport], list[ExcludedBroker]]:
        """A report of each broker of which enough is known, and why there is none of the others; by broker id."""
        scale = self._scale(now)
        reports, excluded = [], []
        for broker in sorted(self.brokers):
            report = self._report(self.brokers[broker], scale, now)
            if isinstance(report, BrokerReport):
                reports.append(report)
            else:
                excluded.append(report)
        return reports, excluded

    # --- one broker ---

    def _report(self, known: KnownBroker, scale: ScoreScale | None, now: Instant) -> BrokerReport | ExcludedBroker:
        if known.unreachable:
            return _left_out(known, Code.ADMIN_UNREACHABLE, known.error)
        load, stats = known.latest.load, known.stats
        scored = load is not None and self._scored(known, now)
        if stats is not None and self._uses_stats(known, now):
            if load is not None and scored:
                fresh = self._feed_ok or now.boot - self._feed_ok_boot <= self._fresh_seconds
                marks = () if fresh else ((Code.STALE_SCORE.value, "weightedMaxEMA"),)
                return _made(known, _with_traffic(load, stats), stats, marks)
            score = self._guess(known, stats, scale)
            if score is not None:
                return _made(known, _imputed(known, stats, score), stats, ())
            return _left_out(
                known, Code.NO_LOAD_DATA, "no load data since we listen, and none of another broker with traffic"
            )
        if load is not None and scored and now.boot - self._feed_ok_boot <= self._fresh_seconds:
            marks = ((Code.TOP_BUNDLES_ONLY.value, "bundles"),) if self._bundles == "all" else ()
            return _made(known, load, known.latest.bundles or NO_BUNDLES, marks)
        if load is not None or stats is not None:
            return _left_out(known, Code.OUT_DATED_DATA, known.error or "its load data are too old")
        code, detail = known.latest.fault or (Code.NO_LOAD_DATA.value, known.error or "no load data and no answer yet")
        return _left_out(known, code, detail)

    def _uses_stats(self, known: KnownBroker, now: Instant) -> bool:
        fresh = now.boot - known.stats_boot <= self._fresh_seconds
        return fresh and (self._bundles == "all" or not self._feed_ok or not self._scored(known, now))

    def _scored(self, known: KnownBroker, now: Instant) -> bool:
        """Whether the broker's own score is known and not too old (measured by when it came in: clocks differ)."""
        load = known.latest.load
        if load is None or load_unknown(load) is not None:
            return False
        ttl = self._number(known.endpoint.broker_id, TTL_SECONDS_KEY, TTL_SECONDS)
        return now.wall_ms - known.latest.load_ms <= 1000 * ttl

    def _guess(self, known: KnownBroker, stats: BundleLoads, scale: ScoreScale | None) -> float | None:
        """The score of a broker without load data: by its JVM's CPU, weighted as the broker does; where it
        gives none, what the others have per byte/s, not below the least of theirs (an idle broker has a score too)
        and not above 1 (a quotient of nearly idle brokers says little of a busy one). None: wait."""
        if known.cpu is not None:
            return known.cpu * self._number(known.endpoint.broker_id, CPU_WEIGHT_KEY, 1.0)
        if scale is None:
            return None
        by_traffic = min(1.0, scale.per_byte * _size(stats.traffic.sum(axis=0)))
        # While its JVM is about to answer. The least of the others may be that of the only busy one.
        return by_traffic if known.cpu_awaited else max(scale.least, by_traffic)

    def _scale(self, now: Instant) -> ScoreScale | None:
        """None while no broker with traffic has reported a load. Sums, not the mean of quotients: what an idle broker's
        score comes from is not its traffic, and would count for most of such a mean."""
        loads = [k.latest.load for k in self.brokers.values() if k.latest.load is not None and self._scored(k, now)]
        carried = sum(_size(load.traffic) for load in loads)
        if not carried > 0:
            return None
        return ScoreScale(
            per_byte=sum(load.weighted_max_ema for load in loads) / carried,
            least=min(load.weighted_max_ema for load in loads),
        )

    def _number(self, broker: str, key: str, default: float) -> float:
        return setting(self.settings_of(broker) or {}, key, default)


def _unknown(_broker: str) -> Mapping[str, str] | None:
    return None


def _imputed(known: KnownBroker, stats: BundleLoads, score: float) -> BrokerLoadData:
    """Load data made of statistics and a guessed score (`ExtensibleBrokers._guess`)."""
    traffic = stats.traffic.sum(axis=0)
    return BrokerLoadData(
        broker_id=known.endpoint.broker_id,
        weighted_max_ema=score,
        throughput_ema=_size(traffic),
        max_resource_usage=score,
        traffic=traffic,
        bundle_count=len(stats.names),
        topics=int(stats.counts[:, 0].sum()),
        updated_at=known.last_update,
        faults=((Code.IMPUTED_SCORE.value, "weightedMaxEMA"),),
    )


def _with_traffic(load: BrokerLoadData, stats: BundleLoads) -> BrokerLoadData:
    """The broker's score with the traffic of its statistics, which are newer than its last message; not less than the
    message says where a bundle of them could not be read. Its bundle count stays: bundles without a loaded topic are
    in the count alone."""
    traffic = stats.traffic.sum(axis=0)
    if any(code == Code.WRONG_TYPE for code, _ in stats.faults):
        traffic = np.maximum(traffic, load.traffic)
    return replace(load, traffic=traffic, topics=int(stats.counts[:, 0].sum()))


def _made(
    known: KnownBroker, load: BrokerLoadData, bundles: BundleLoads, marks: tuple[tuple[str, str], ...]
) -> BrokerReport:
    endpoint, latest = known.endpoint, known.latest
    faults = (*load.faults, *bundles.faults, *marks)
    return replace(
        report_of(replace(load, updated_at=known.last_update, faults=faults), bundles),
        start_timestamp=endpoint.start_timestamp,
        clock_ahead_ms=0 if latest.load is None else latest.load.updated_at - latest.load_ms,
        persistent_topics_enabled=endpoint.persistent_topics_enabled,
        non_persistent_topics_enabled=endpoint.non_persistent_topics_enabled,
        version=endpoint.version,
        web_url=endpoint.web_url,
        web_url_tls=endpoint.web_url_tls,
        service_url=endpoint.service_url,
    )


def _left_out(known: KnownBroker, code: str, detail: str) -> ExcludedBroker:
    return ExcludedBroker(broker_id=known.endpoint.broker_id, code=code, detail=detail[:_DETAIL_CHARACTERS])


def _advance(known: KnownBroker, at_ms: int) -> None:
    known.last_update = max(at_ms, known.last_update + 1)


def _differ(one: BundleLoads, other: BundleLoads) -> bool:
    return not (
        one.names == other.names
        and np.array_equal(one.traffic, other.traffic)
        and np.array_equal(one.counts, other.counts)
    )


def _size(traffic: Floats) -> float:
    """Bytes/s in and out."""
    return float(traffic[THROUGHPUT_IN:].sum())
