"""A loop like the modular load manager's: the leader sheds once a minute with Pulsar's classes (`core.compat`), bare.

What differs from Bundlekeel here is what differs in Pulsar 4.2: no ledger and no guard (only bundles unloaded in the
last 30 minutes are left alone); averages get one sample of every bundle for every report of any broker; destinations
are drawn one by one while the picture stays the same (`ModularLoadManagerImpl.doLoadShedding`, `selectBroker`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bundlekeel.core.compat import BundleColumns, CompatPicture, Placer, shed
from bundlekeel.core.compat.in_plan import largest
from bundlekeel.core.compat.picture import percent, suspects
from bundlekeel.core.compat.transfer import Load, TopBundle, TransferPicture, find_bundles
from bundlekeel.core.model.averages import Averages
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, BrokerReport, Ints
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.policies import Policies
from bundlekeel.core.planning.memory import CompatMemory
from bundlekeel.sim.balancers import UNUSABLE, RunBooks, cluster_index
from bundlekeel.sim.bundles import GONE
from bundlekeel.sim.cluster import ANYWHERE, VirtualCluster
from bundlekeel.sim.reports import broker_id

SHEDDING_INTERVAL: Final = 60.0
GRACE_SECONDS: Final = 30 * 60.0
# loadBalancerNamespaceBundleMaxTopics, MaxSessions, MaxMsgRate, MaxBandwidthMbytes, loadBalancerNamespaceMaximumBundles
MAX_TOPICS: Final = 1000
MAX_SESSIONS: Final = 1000
MAX_RATE: Final = 30_000.0
MAX_BANDWIDTH: Final = 100 * 1024 * 1024.0
MAX_BUNDLES: Final = 128
# loadBalancerNamespaceBundleSplitConditionHitCountThreshold, loadBalancerMaxNumberOfBundlesToSplitPerCycle
SPLIT_HITS: Final = 3
SPLITS_A_CYCLE: Final = 10


@dataclass(kw_only=True)
class Native:
    """The brokers' own balancer. `params.compat` names the release."""

    params: Parameters
    seed: int = 0
    averages: Averages = field(default_factory=Averages)
    memory: CompatMemory = field(default_factory=CompatMemory)
    recent: dict[str, float] = field(default_factory=dict)
    books: RunBooks = field(default_factory=RunBooks)
    _samples: int = 0

    def turn(self, cluster: VirtualCluster, landed: list[tuple[str, str]]) -> None:
        """Sample on every report, shed once a minute."""
        for _ in cluster.reporter.take_fresh():
            self._sample(cluster)
        if cluster.now % SHEDDING_INTERVAL < 1e-6:
            self._shed(cluster)

    def _sample(self, cluster: VirtualCluster) -> None:
        """`updateBundleData`: every notification adds a sample of every bundle, from whatever its broker wrote last."""
        self._samples += 1
        for item in cluster.reports():
            # Averages take a report once; another start time makes it a new one, and counts for nothing else.
            self.averages.add_report(replace(item, start_timestamp=self._samples), now_ms=cluster.wall_ms)

    def _shed(self, cluster: VirtualCluster) -> None:
        now, timer = cluster.now, self.books.timer
        self.recent = {name: at for name, at in self.recent.items() if at >= now - GRACE_SECONDS}
        usable = [item for item in cluster.reports() if not UNUSABLE.get(cluster.reporter.bad[_index(item)])]
        if len(usable) < 2:
            return
        begun = timer() if timer else 0.0
        picture = self._picture(usable)
        result = shed(picture, self.params, self.memory, self.params.strategy, self.params.compat)
        placer = Placer(picture, self.params, result.memory, self.params.placement, self.seed + int(now))
        targets = [(row, owner, self._target(cluster, picture, placer, row)) for row, owner in result.unload]
        self.memory = placer.memory()
        if timer:
            self.books.slowest = max(self.books.slowest, timer() - begun)
        self.books.cycles += 1
        self.books.verdicts[result.verdict.code.value] += 1
        for row, owner, target in targets:
            self._unload(cluster, picture, (row, owner, target))

    def _unload(self, cluster: VirtualCluster, picture: CompatPicture, move: tuple[int, int, int]) -> None:
        row, owner, target = move
        if target < 0 or target == owner:
            return
        name, broker = picture.bundles.names[row], cluster_index(picture.brokers[target])
        held_by = cluster.bundles.owner[cluster.bundles.index[name]]
        if held_by == cluster_index(picture.brokers[owner]) and cluster.move(name, broker, by="balancer"):
            self.recent[name] = cluster.now
            self.books.unloaded(cluster.now, name, broker)

    def _target(self, cluster: VirtualCluster, picture: CompatPicture, placer: Placer, row: int) -> int:
        """Row of the broker that `selectBroker` answers with, -1 without any."""
        namespace = int(cluster.bundles.namespace[cluster.bundles.index[picture.bundles.names[row]]])
        candidates = np.arange(len(picture.brokers))
        if cluster.allowed is not None:
            brokers = [cluster_index(broker) for broker in picture.brokers]
            candidates = candidates[cluster.allowed[namespace, brokers]]
        if cluster.settings.evenly and len(candidates):
            counts = self._of_namespace(cluster, picture, namespace)[candidates]
            candidates = candidates[counts == counts.min()]
        _, chosen = placer.select(row, candidates)
        return chosen

    @staticmethod
    def _of_namespace(cluster: VirtualCluster, picture: CompatPicture, namespace: int) -> Ints:
        """How many bundles of a namespace each broker reports."""
        index, spaces = cluster.bundles.index, cluster.bundles.namespace
        mine = np.array([spaces[index[name]] == namespace for name in picture.bundles.names], dtype=bool)
        sizes = np.diff(picture.starts)
        of_broker = np.repeat(np.arange(len(sizes)), sizes)
        counts: Ints = np.bincount(of_broker[mine[picture.held]], minlength=len(sizes)).astype(np.int64)
        return counts

    def _picture(self, reports: Sequence[BrokerReport]) -> CompatPicture:
        names = list(dict.fromkeys(name for item in reports for name in item.bundle_names))
        index = {name: row for row, name in enumerate(names)}
        rows = self.averages.rows(names)
        short, long, samples = self.averages.columns(rows)
        topics = np.zeros(len(names), dtype=np.int64)
        for item in reports:
            topics[[index[name] for name in item.bundle_names]] = item.bundle_counts[:, 0]
        held = [np.fromiter(map(index.__getitem__, item.bundle_names), dtype=np.int64) for item in reports]
        starts = np.concatenate([[0], np.cumsum([len(part) for part in held])]).astype(np.int64)
        ten, thousand = np.full(len(names), 10), np.full(len(names), 1000)
        return CompatPicture(
            brokers=tuple(item.broker_id for item in reports),
            percent=percent(np.array([item.usage for item in reports]), np.array([item.limit for item in reports])),
            traffic=np.array([item.traffic for item in reports]),
            bundle_count=np.diff(starts),
            starts=starts,
            held=np.concatenate(held),
            stats=None,
            bundles=BundleColumns(
                names=names,
                index=index,
                short=short,
                long=long,
                samples=np.column_stack([ten, samples[:, 0], thousand, samples[:, 1]]),
                topics=topics,
                suspects=suspects(names),
            ),
            recent=tuple(index[name] for name in self.recent if name in index),
        )


def _index(report: BrokerReport) -> int:
    return cluster_index(report.broker_id)


@dataclass(kw_only=True)
class BrokerSplits:
    """The brokers' automatic splits, with any balancer: in the middle of the hash range.

    Modular (`BundleSplitterTask`): by long-term averages, and the halves are unloaded. `extensible` (`SplitScheduler`):
    by what the reports say now, seen several minutes in a row, and the halves stay.
    """

    extensible: bool = False
    averages: Averages = field(default_factory=Averages)
    hits: dict[str, int] = field(default_factory=dict)

    def turn(self, cluster: VirtualCluster) -> None:
        """Once a minute, split what is above a limit."""
        for item in cluster.reports():
            self.averages.add_report(item, now_ms=cluster.wall_ms)
        if cluster.now % SHEDDING_INTERVAL >= 1e-6:
            return
        bundles = cluster.bundles
        in_namespace = np.bincount(bundles.namespace[bundles.owner != GONE], minlength=int(bundles.namespace.max()) + 1)
        before, self.hits = self.hits, {}
        for item in cluster.reports():
            carried = item.bundle_traffic
            if not self.extensible:
                _, carried, _ = self.averages.columns(self.averages.rows(item.bundle_names))
            rate = carried[:, RATE_IN] + carried[:, RATE_OUT]
            size = carried[:, THROUGHPUT_IN] + carried[:, THROUGHPUT_OUT]
            topics, sessions = item.bundle_counts[:, 0], item.bundle_counts[:, 1:].sum(axis=1)
            hot = (topics > MAX_TOPICS) | (sessions > MAX_SESSIONS) | (rate > MAX_RATE) | (size > MAX_BANDWIDTH)
            names = [item.bundle_names[place] for place in np.flatnonzero(hot & (topics >= 2)).tolist()]
            if self.extensible:
                self.hits |= {name: before.get(name, 0) + 1 for name in names}
                names = [name for name in names if self.hits[name] > SPLIT_HITS][:SPLITS_A_CYCLE]
            for name in names:
                _split(cluster, name, in_namespace, unload=not self.extensible)


def _split(cluster: VirtualCluster, bundle: str, in_namespace: Ints, *, unload: bool) -> None:
    row = cluster.bundles.index[bundle]
    space, low, high = (int(column[row]) for column in _columns(cluster))
    if high - low < 2 or in_namespace[space] >= MAX_BUNDLES:
        return
    if cluster.split(bundle, [low + (high - low) // 2], by="brokers", unload=unload):
        in_namespace[space] += 1


def _columns(cluster: VirtualCluster) -> tuple[Ints, Ints, Ints]:
    return cluster.bundles.namespace, cluster.bundles.lower, cluster.bundles.upper


# A loop like the extensible load manager's own: TransferShedder (`core.compat.transfer`) once a minute, bare.
# What differs from the modular loop is what differs in Pulsar 4.2: each broker smooths its score every
# few seconds and publishes it with its report; its largest bundles with every refresh of its statistics. A broker
# that gave or took vanishes from both tables: its load is back a few seconds later with the smoothing begun anew,
# its bundles after the next refresh, and until then the shedder skips its turn. A bundle goes straight to the taker;
# only what policies and the channel allow is a candidate, and bundles of namespaces with policies are not named at
# all.
# Reports come when a modular broker would write one (the conditions are the same), CPU is the only usage they show,
# and a late report tells the score of its arrival.


# `TOMBSTONE_DELAY_IN_MILLIS`: a broker vanishes from the tables at most once in this time.
TOMBSTONE_SECONDS = 10.0
BOTH_WAYS = [THROUGHPUT_IN, THROUGHPUT_OUT]


@dataclass(kw_only=True)
class NativeTransfer:
    """The balancer of brokers with the extensible load manager. `params.compat` names the release."""

    params: Parameters
    policies: Policies = field(default_factory=Policies)
    books: RunBooks = field(default_factory=RunBooks)
    hits: int = 0
    recent: dict[str, float] = field(default_factory=dict)
    recent_brokers: dict[str, int] = field(default_factory=dict)
    # By broker: smoothed score and throughput; what it published; when it vanished, and at which refresh.
    _smoothed: dict[int, tuple[float, float]] = field(default_factory=dict)
    _loads: dict[int, Load] = field(default_factory=dict)
    _vanished: dict[int, float] = field(default_factory=dict)
    _unnamed: dict[int, int] = field(default_factory=dict)
    _seen: tuple[int, int] = (0, 0)

    def turn(self, cluster: VirtualCluster, landed: list[tuple[str, str]]) -> None:
        """Smooth and publish as brokers do, shed once a minute."""
        if cluster.now % cluster.settings.report_interval < 1e-6:
            self._smooth(cluster)
        for item in cluster.reporter.take_fresh():
            broker = cluster_index(item.broker_id)
            score, throughput = self._smoothed.get(broker, (1.0, 0.0))
            bytes_in, bytes_out = item.traffic[BOTH_WAYS].tolist()
            self._loads[broker] = Load(
                ema=score,
                throughput_ema=throughput,
                throughput_in=bytes_in,
                throughput_out=bytes_out,
                updated_at=item.last_update,
            )
        if cluster.now % SHEDDING_INTERVAL < 1e-6:
            self._shed(cluster)
        self._tombstones(cluster, landed)

    def _smooth(self, cluster: VirtualCluster) -> None:
        """`BrokerLoadData.update`: a share of the score before, the rest of the present one."""
        reporter, weight = cluster.reporter, self.params.history_weight
        scores = percent(reporter.cpu * 100, np.full(len(reporter.cpu), 100.0)) / 100 * self.params.cpu_weight
        for broker in np.flatnonzero(cluster.running).tolist():
            size = float(reporter.statistics(broker, cluster.bundles)[1][:, BOTH_WAYS].sum())
            score = float(scores[broker])
            before = self._smoothed.get(broker, (score, size))
            self._smoothed[broker] = (
                before[0] * weight + (1 - weight) * score,
                before[1] * weight + (1 - weight) * size,
            )

    def _tombstones(self, cluster: VirtualCluster, landed: list[tuple[str, str]]) -> None:
        """A broker that gave (also to a split) or took begins anew; it is not in the tables until it publishes
        again."""
        moved, divided = cluster.moved[self._seen[0] :], cluster.divided[self._seen[1] :]
        self._seen = (len(cluster.moved), len(cluster.divided))
        owners = [int(cluster.bundles.owner[cluster.bundles.index[item.children[0]]]) for item in divided]
        changed = {item.source for item in moved} | {cluster_index(broker) for _, broker in landed} | set(owners)
        for broker in sorted(changed):
            if broker < 0 or not (cluster.running[broker] and cluster.takes[broker]):
                continue
            self._smoothed.pop(broker, None)
            if cluster.now - self._vanished.get(broker, -TOMBSTONE_SECONDS) >= TOMBSTONE_SECONDS:
                self._vanished[broker] = cluster.now
                self._unnamed[broker] = cluster.reporter.refreshes[broker]
                cluster.reporter.forget(broker)

    def _shed(self, cluster: VirtualCluster) -> None:
        now, timer = cluster.now, self.books.timer
        self.recent = {name: at for name, at in self.recent.items() if at >= now - GRACE_SECONDS}
        registered = np.flatnonzero(cluster.running & cluster.takes).tolist()
        if len(registered) < 2:
            return
        begun = timer() if timer else 0.0
        outcome = find_bundles(self._picture(cluster, registered), self.params, self.hits)
        if timer:
            self.books.slowest = max(self.books.slowest, timer() - begun)
        self.hits = outcome.hits
        self.books.cycles += 1
        self.books.verdicts[outcome.reason.value] += 1
        for item in outcome.unloads:
            target = cluster_index(item.target) if item.target else ANYWHERE
            if cluster.move(item.bundle, target, by="balancer"):
                self.recent[item.bundle] = now
                self.recent_brokers[item.source] = cluster.wall_ms
                self.books.unloaded(now, item.bundle, target)

    def _picture(self, cluster: VirtualCluster, registered: list[int]) -> TransferPicture:
        reporter, bundles, allowed = cluster.reporter, cluster.bundles, cluster.allowed
        known = [b for b in registered if reporter.visible[b] is not None and not UNUSABLE.get(reporter.bad[b])]
        row_of, owner, namespace = bundles.index, bundles.owner, bundles.namespace

        def transferable(bundle: str, source: str, target: str) -> bool:
            row = row_of[bundle]
            there = allowed is None or bool(allowed[namespace[row], cluster_index(target)])
            return there and owner[row] == cluster_index(source)

        return TransferPicture(
            now_ms=cluster.wall_ms,
            brokers={broker_id(b): self._loads[b] for b in known},
            top={
                broker_id(b): self._top(cluster, b)
                for b in registered
                if self._unnamed.get(b, -1) < reporter.refreshes[b]
            },
            missing=[broker_id(b) for b in registered if b not in known],
            recent=self.recent,
            recent_brokers=self.recent_brokers,
            transferable=transferable,
        )

    def _top(self, cluster: VirtualCluster, broker: int) -> list[TopBundle]:
        """What the broker says of its largest bundles, lowest first."""
        rows, traffic = cluster.reporter.statistics(broker, cluster.bundles)
        named = [row for row in range(len(rows)) if traffic[row, BOTH_WAYS].sum() > 0]
        if self.policies.isolation and not self.params.bundles_with_policies:
            named = [row for row in named if not self._has_policy(cluster.bundles.names[int(rows[row])])]
        return [
            TopBundle(cluster.bundles.names[int(rows[named[place]])], *traffic[named[place], BOTH_WAYS].tolist())
            for place in largest(traffic[named], self.params.report_max_bundles).tolist()
        ]

    def _has_policy(self, bundle: str) -> bool:
        patterns = (pattern for item in self.policies.isolation for pattern in item.namespaces)
        return any(re.fullmatch(pattern, bundle.rpartition("/")[0]) for pattern in patterns)
