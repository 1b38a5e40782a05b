"""State of each broker with the extensible load manager, and load reports made from it. Pure: times are parameters.

Only the registry (ephemeral znodes) shows which brokers are alive. The load topics contain each broker's load. A broker
that deletes its load data (it sends a tombstone at each move) is still alive, and its last load data stay valid. A
broker that is not registered is removed immediately, even if it has load data. The loads of a broker's bundles come
from `/admin/v2/broker-stats/topics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.extensible import NO_BUNDLES, BrokerLoadData, BundleLoads, load_unknown, report_of
from bundlekeel.model.load import THROUGHPUT_IN, BrokerEndpoint, BrokerReport, ExcludedBroker, Floats
from bundlekeel.model.numbers import setting
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
# The last state of a broker stays valid for this many failed requests for its statistics, and for this many seconds
# without the load topics: a change of the leader broker or a short pause must not exclude a broker.
GRACE_POLLS: Final = 3
GRACE_SECONDS: Final = 30.0
# Seconds between two requests for the CPU load of a broker that does not report it: at first, and later. Writing the
# response (100 KB) takes the broker 0.2 s of CPU, which the next response includes.
CPU_FIRST_SECONDS: Final = 6.0
CPU_SECONDS: Final = 30.0
_DETAIL_CHARACTERS: Final = 256


class Instant(NamedTuple):
    """The current time: Unix time in ms, and seconds since the machine's boot."""

    wall_ms: int
    boot: float


@dataclass(slots=True, kw_only=True)
class KnownBroker:
    """One registered broker since its last start. Fields `..._boot` are times in seconds since the machine's boot."""

    endpoint: BrokerEndpoint
    latest: LatestLoad = field(default_factory=LatestLoad)
    stats: BundleLoads | None = None
    """Its newest statistics, received at `stats_boot`."""
    stats_boot: float = float("-inf")
    news_boot: float = float("-inf")
    """Last time at which its statistics counted as new (see `ExtensibleBrokers`)."""
    last_update: int = 0
    """Time of its last new measurement, Unix ms (see `ExtensibleBrokers`)."""
    cpu: float | None = None
    """Used share of its CPU (0 to 1), requested (last at `cpu_boot`) while the broker reports no load score."""
    cpu_boot: float = float("-inf")
    cpu_awaited: bool = False
    """Whether a usable response about the CPU is still expected."""
    error: str = ""
    responded: bool = False
    """Whether a response or an error was received from it."""
    unreachable: bool = False


class ScoreScale(NamedTuple):
    """Base for estimates of load scores (`weightedMaxEMA`) that brokers have not reported.

    `per_byte`: score per byte/s of all brokers that reported a score. `least`: the lowest of these scores.
    """

    per_byte: float
    least: float


class ExtensibleBrokers:
    """State of all extensible brokers; mutable, owned by one `ClusterSource`.

    **`last_update` of a report** is the time, in ms, of the last new measurement of a broker: a message of the load
    topics, statistics that differ from the previous ones, or unchanged statistics after a whole statistics interval.
    Whenever it grows, averages add a sample, and strategies count a measurement above a limit. The time of the load
    data would not be enough: a broker with a steady load sends none for 15 minutes, and a steady imbalance would not be
    noticed. The time of the last request would count one measurement several times. `last_update` is a time of arrival
    by the clock of this process, and never decreases.
    """

    def __init__(self, *, bundles: BundlesSetting, stats_interval: float) -> None:
        """Start without brokers. Set `settings_of` afterwards: it returns a broker's settings, None if unknown."""
        self.brokers: dict[str, KnownBroker] = {}
        self.settings_of: BrokerSettings = _unknown
        self._bundles = bundles
        self._fresh_seconds = max(GRACE_SECONDS, GRACE_POLLS * stats_interval)
        self._feed_ok_boot = float("-inf")
        self._feed_ok = False

    # --- input ---

    def register(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Set the brokers that are alive. The data of a restarted broker are dropped."""
        brokers = {}
        for broker, endpoint in endpoints.items():
            entry = self.brokers.get(broker)
            if entry is None or entry.endpoint.start_timestamp != endpoint.start_timestamp:
                entry = KnownBroker(endpoint=endpoint)
            entry.endpoint = endpoint
            brokers[broker] = entry
        self.brokers = brokers

    def take_in(self, tables: LoadTables, now: Instant) -> None:
        """Store the newest messages of the load topics."""
        self._feed_ok = tables.status.state == "ok"
        if self._feed_ok:
            self._feed_ok_boot = now.boot
        for broker, entry in self.brokers.items():
            latest = tables.latest.get(broker, LatestLoad())
            if latest.load is not None and latest.load.updated_at < entry.endpoint.start_timestamp:
                continue  # sent before the restart
            before, entry.latest = entry.latest, latest
            if latest.load is not None and latest.load_ms != before.load_ms:
                _advance(entry, latest.load_ms)
            if latest.bundles_ms != before.bundles_ms and not self._uses_stats(entry, now):
                _advance(entry, latest.bundles_ms)

    def polled(self, broker: str, loads: BundleLoads, now: Instant) -> bool:
        """Store a broker's statistics. Returns whether they are a new measurement."""
        entry = self.brokers.get(broker)
        if entry is None:
            return False
        changed = entry.stats is None or entry.unreachable or _differ(entry.stats, loads)
        entry.unreachable = False
        news = changed or now.boot - entry.news_boot >= self.stats_seconds(broker)
        entry.stats, entry.stats_boot, entry.error, entry.responded = loads, now.boot, "", True
        if news:
            entry.news_boot = now.boot
            _advance(entry, now.wall_ms)
        return news

    def failed(self, broker: str, error: str, *, unreachable: bool = False) -> bool:
        """Store that a broker's statistics could not be read. Returns whether the broker is now excluded, and was not
        before.

        `unreachable`: the broker refuses connections. It has most likely failed, so it is excluded from now on.
        """
        entry = self.brokers.get(broker)
        if entry is None:
            return False
        news = unreachable and not entry.unreachable
        entry.error, entry.responded, entry.unreachable = error, True, unreachable
        return news

    # --- queries ---

    def stats_seconds(self, broker: str) -> float:
        """Return the seconds between two updates of this broker's statistics."""
        return self._number(broker, STATS_SECONDS_KEY, STATS_SECONDS)

    def other_assigner(self, broker: str) -> str:
        """Return the class by which this broker assigns topics to bundles (PIP-255); "": the default, or unknown."""
        name = (self.settings_of(broker) or {}).get(ASSIGNER_KEY, "").strip()
        return "" if name == ASSIGNER else name

    def buffers_pages(self, broker: str) -> bool:
        """Return whether this broker is known to answer with an older metrics page, by default of up to a minute."""
        return (self.settings_of(broker) or {}).get("metricsBufferResponse", "").strip().lower() == "true"

    def wants_stats(self, broker: str, now: Instant) -> bool:
        """Return whether to request this broker's statistics.

        True with `extensible.bundles: all`. With `top`, True only while the load topics lack the broker's load."""
        entry = self.brokers.get(broker)
        if entry is None:
            return False
        return self._bundles == "all" or not self._feed_ok or not self._scored(entry, now)

    def wants_cpu(self, broker: str, now: Instant) -> bool:
        """Return whether to request this broker's CPU load now: its load score is unknown, and the last request is
        old."""
        if not self.lacks_score(broker, now):
            return False
        entry = self.brokers[broker]
        return now.boot - entry.cpu_boot >= (CPU_FIRST_SECONDS if entry.cpu is None else CPU_SECONDS)

    def lacks_score(self, broker: str, now: Instant) -> bool:
        """Return whether this broker is registered, but has not reported a load score recently."""
        entry = self.brokers.get(broker)
        return entry is not None and not self._scored(entry, now)

    def reported_cpu(self, broker: str, load: float | None, now: Instant) -> None:
        """Store the used share of a broker's CPU, 0 to 1; None: the broker did not return it.

        A JVM returns the mean since the previous request of any client. The first response may include the start of the
        JVM and is not used. If several sidecars send requests, a response may cover only a short time, so it is
        averaged with the previous value.
        """
        entry = self.brokers.get(broker)
        if entry is None:
            return
        first, entry.cpu_boot = entry.cpu_boot == float("-inf"), now.boot
        entry.cpu_awaited = first and load is not None
        if first or load is None:
            entry.cpu = None
        else:
            entry.cpu = load if entry.cpu is None else (load + entry.cpu) / 2

    def unasked(self) -> list[str]:
        """Return the brokers from which neither statistics nor load data nor an error have arrived yet."""
        return [broker for broker, entry in self.brokers.items() if not entry.responded and entry.latest.load is None]

    def awaited(self, now: Instant) -> list[str]:
        """Return the brokers without load data whose JVM will soon report its CPU.

        Until then only their traffic is known, which is not enough to move bundles to them.
        """
        return [broker for broker, entry in self.brokers.items() if entry.cpu_awaited and not self._scored(entry, now)]

    def reports(self, now: Instant) -> tuple[list[BrokerReport], list[ExcludedBroker]]:
        """Return the reports of brokers with enough data, and why the others are excluded; sorted by broker id."""
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

    def _report(self, entry: KnownBroker, scale: ScoreScale | None, now: Instant) -> BrokerReport | ExcludedBroker:
        if entry.unreachable:
            return _exclude(entry, Code.ADMIN_UNREACHABLE, entry.error)
        load, stats = entry.latest.load, entry.stats
        scored = load is not None and self._scored(entry, now)
        if stats is not None and self._uses_stats(entry, now):
            if load is not None and scored:
                fresh = self._feed_ok or now.boot - self._feed_ok_boot <= self._fresh_seconds
                marks = () if fresh else ((Code.STALE_SCORE.value, "weightedMaxEMA"),)
                return _build_report(entry, _with_traffic(load, stats), stats, marks)
            score = self._estimate_score(entry, stats, scale)
            if score is not None:
                return _build_report(entry, _imputed(entry, stats, score), stats, ())
            return _exclude(
                entry,
                Code.NO_LOAD_DATA,
                "no load data received since the start of this sidecar, and none of another broker to estimate "
                "its load from",
            )
        if load is not None and scored and now.boot - self._feed_ok_boot <= self._fresh_seconds:
            marks = ((Code.TOP_BUNDLES_ONLY.value, "bundles"),) if self._bundles == "all" else ()
            return _build_report(entry, load, entry.latest.bundles or NO_BUNDLES, marks)
        if load is not None or stats is not None:
            return _exclude(entry, Code.OUT_DATED_DATA, entry.error or "its load data are too old")
        code, detail = entry.latest.fault or (Code.NO_LOAD_DATA.value, entry.error or "no load data and no answer yet")
        return _exclude(entry, code, detail)

    def _uses_stats(self, entry: KnownBroker, now: Instant) -> bool:
        fresh = now.boot - entry.stats_boot <= self._fresh_seconds
        return fresh and (self._bundles == "all" or not self._feed_ok or not self._scored(entry, now))

    def _scored(self, entry: KnownBroker, now: Instant) -> bool:
        """Return whether the broker has reported a load score recently. The age of a score counts from its arrival in
        this process."""
        load = entry.latest.load
        if load is None or load_unknown(load) is not None:
            return False
        ttl = self._number(entry.endpoint.broker_id, TTL_SECONDS_KEY, TTL_SECONDS)
        return now.wall_ms - entry.latest.load_ms <= 1000 * ttl

    def _estimate_score(self, entry: KnownBroker, stats: BundleLoads, scale: ScoreScale | None) -> float | None:
        """Return an estimated load score of a broker without load data; None: not possible yet.

        The score is the CPU load of its JVM times the broker's CPU weight. If that load is unknown, the score is the
        broker's traffic times the other brokers' score per byte/s. It is then at least their lowest score (an idle
        broker has a score, too), and at most 1 (nearly idle brokers have too high a score per byte).
        """
        if entry.cpu is not None:
            return entry.cpu * self._number(entry.endpoint.broker_id, CPU_WEIGHT_KEY, 1.0)
        if scale is None:
            return None
        by_traffic = min(1.0, scale.per_byte * _size(stats.traffic.sum(axis=0)))
        # While the JVM is about to respond, ignore the lowest score, which may be that of a busy broker.
        return by_traffic if entry.cpu_awaited else max(scale.least, by_traffic)

    def _scale(self, now: Instant) -> ScoreScale | None:
        """Return the base for estimated scores; None: no broker with traffic has reported a load yet.

        The sum of scores is divided by the sum of traffic. A mean of quotients would be wrong, because the score of a
        nearly idle broker does not come from its traffic.
        """
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


def _imputed(entry: KnownBroker, stats: BundleLoads, score: float) -> BrokerLoadData:
    """Return load data made from statistics and an estimated score (`ExtensibleBrokers._estimate_score`)."""
    traffic = stats.traffic.sum(axis=0)
    return BrokerLoadData(
        broker_id=entry.endpoint.broker_id,
        weighted_max_ema=score,
        throughput_ema=_size(traffic),
        max_resource_usage=score,
        traffic=traffic,
        bundle_count=len(stats.names),
        topics=int(stats.counts[:, 0].sum()),
        updated_at=entry.last_update,
        faults=((Code.IMPUTED_SCORE.value, "weightedMaxEMA"),),
    )


def _with_traffic(load: BrokerLoadData, stats: BundleLoads) -> BrokerLoadData:
    """Return the broker's load data with the traffic of its statistics, which are newer than its last message.

    If a bundle could not be read, the traffic is at least the message's traffic. The number of bundles comes from the
    message, because statistics omit bundles without a loaded topic.
    """
    traffic = stats.traffic.sum(axis=0)
    if any(code == Code.WRONG_TYPE for code, _ in stats.faults):
        traffic = np.maximum(traffic, load.traffic)
    return replace(load, traffic=traffic, topics=int(stats.counts[:, 0].sum()))


def _build_report(
    entry: KnownBroker, load: BrokerLoadData, bundles: BundleLoads, marks: tuple[tuple[str, str], ...]
) -> BrokerReport:
    endpoint, latest = entry.endpoint, entry.latest
    faults = (*load.faults, *bundles.faults, *marks)
    return replace(
        report_of(replace(load, updated_at=entry.last_update, faults=faults), bundles),
        start_timestamp=endpoint.start_timestamp,
        clock_ahead_ms=0 if latest.load is None else latest.load.updated_at - latest.load_ms,
        persistent_topics_enabled=endpoint.persistent_topics_enabled,
        non_persistent_topics_enabled=endpoint.non_persistent_topics_enabled,
        version=endpoint.version,
    )


def _exclude(entry: KnownBroker, code: str, detail: str) -> ExcludedBroker:
    return ExcludedBroker(broker_id=entry.endpoint.broker_id, code=code, detail=detail[:_DETAIL_CHARACTERS])


def _advance(entry: KnownBroker, at_ms: int) -> None:
    entry.last_update = max(at_ms, entry.last_update + 1)


def _differ(one: BundleLoads, other: BundleLoads) -> bool:
    return not (
        one.names == other.names
        and np.array_equal(one.traffic, other.traffic)
        and np.array_equal(one.counts, other.counts)
    )


def _size(traffic: Floats) -> float:
    """Return the throughput in plus out, in bytes/s."""
    return float(traffic[THROUGHPUT_IN:].sum())
