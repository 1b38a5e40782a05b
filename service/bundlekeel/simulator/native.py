"""A balancer like Pulsar's modular load manager: the leader sheds once a minute with Pulsar's classes (`compat`).

As in Pulsar 4.2, only bundles unloaded in the last 30 minutes are skipped, and moves that reports do not show yet are
not considered. A report of any broker adds a sample to the averages of all bundles. The destinations of one round are
selected one at a time, and each selection uses the same loads (`ModularLoadManagerImpl.doLoadShedding`,
`selectBroker`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bundlekeel.compat.picture import percent, suspects
from bundlekeel.compat.shedders import BundleColumns, CompatPicture, Placer, shed
from bundlekeel.model.averages import Averages
from bundlekeel.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, BrokerReport, Ints
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.memory import CompatMemory
from bundlekeel.simulator.balancers import UNUSABLE, RunBooks, cluster_index
from bundlekeel.simulator.bundles import GONE
from bundlekeel.simulator.cluster import VirtualCluster

SHEDDING_INTERVAL: Final = 60.0
GRACE_SECONDS: Final = 30 * 60.0
# Defaults of loadBalancerNamespaceBundle{MaxTopics,MaxSessions,MaxMsgRate,MaxBandwidthMbytes} and
# loadBalancerNamespaceMaximumBundles.
MAX_TOPICS: Final = 1000
MAX_SESSIONS: Final = 1000
MAX_RATE: Final = 30_000.0
MAX_BANDWIDTH: Final = 100 * 1024 * 1024.0
MAX_BUNDLES: Final = 128
# Defaults of loadBalancerNamespaceBundleSplitConditionHitCountThreshold and
# loadBalancerMaxNumberOfBundlesToSplitPerCycle.
SPLIT_HITS: Final = 3
SPLITS_A_CYCLE: Final = 10


@dataclass(kw_only=True)
class Native:
    """The balancer of brokers with the modular load manager. `params.compat`: the Pulsar release to follow."""

    params: Parameters
    seed: int = 0
    averages: Averages = field(default_factory=Averages)
    memory: CompatMemory = field(default_factory=CompatMemory)
    recent: dict[str, float] = field(default_factory=dict)
    books: RunBooks = field(default_factory=RunBooks)
    _samples: int = 0

    def turn(self, cluster: VirtualCluster, landed: list[tuple[str, str]]) -> None:
        """Add samples to the averages for each new report, and shed once a minute."""
        for _ in cluster.reporter.take_fresh():
            self._sample(cluster)
        if cluster.now % SHEDDING_INTERVAL < 1e-6:
            self._shed(cluster)

    def _sample(self, cluster: VirtualCluster) -> None:
        """Add a sample of every bundle from its broker's last report, once per new report (`updateBundleData`)."""
        self._samples += 1
        for item in cluster.reports():
            # The averages ignore a report that they had before. Another start time makes it a new one.
            self.averages.add_report(replace(item, start_timestamp=self._samples), now_ms=cluster.wall_ms)

    def _shed(self, cluster: VirtualCluster) -> None:
        now, timer = cluster.now, self.books.timer
        self.recent = {name: at for name, at in self.recent.items() if at >= now - GRACE_SECONDS}
        usable = [item for item in cluster.reports() if not UNUSABLE.get(cluster.reporter.bad[_index(item)])]
        if len(usable) < 2:
            return
        start = timer() if timer else 0.0
        picture = self._picture(usable)
        result = shed(picture, self.params, self.memory, self.params.strategy, self.params.compat)
        placer = Placer(picture, self.params, result.memory, self.params.placement, self.seed + int(now))
        targets = [(row, owner, self._target(cluster, picture, placer, row)) for row, owner in result.unload]
        self.memory = placer.memory()
        if timer:
            self.books.slowest = max(self.books.slowest, timer() - start)
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
        """Return the index of the broker that Pulsar's `selectBroker` returns, -1: it returns no broker."""
        namespace = int(cluster.bundles.namespace[cluster.bundles.index[picture.bundles.names[row]]])
        candidates = np.arange(len(picture.brokers))
        if cluster.allowed is not None:
            brokers = [cluster_index(broker) for broker in picture.brokers]
            candidates = candidates[cluster.allowed[namespace, brokers]]
        if cluster.settings.evenly and len(candidates):
            counts = self._of_namespace(cluster, picture, namespace)[candidates]
            candidates = candidates[counts == counts.min()]
        _, target = placer.select(row, candidates)
        return target

    @staticmethod
    def _of_namespace(cluster: VirtualCluster, picture: CompatPicture, namespace: int) -> Ints:
        """Return how many bundles of a namespace each broker's report contains."""
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
        owned = [np.fromiter(map(index.__getitem__, item.bundle_names), dtype=np.int64) for item in reports]
        starts = np.concatenate([[0], np.cumsum([len(part) for part in owned])]).astype(np.int64)
        ten, thousand = np.full(len(names), 10), np.full(len(names), 1000)
        return CompatPicture(
            brokers=tuple(item.broker_id for item in reports),
            percent=percent(np.array([item.usage for item in reports]), np.array([item.limit for item in reports])),
            traffic=np.array([item.traffic for item in reports]),
            bundle_count=np.diff(starts),
            starts=starts,
            held=np.concatenate(owned),
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
    """The automatic splits of brokers, in the middle of the hash range. They work in addition to any balancer.

    The modular load manager (`BundleSplitterTask`) splits by long-term averages and unloads both halves. The extensible
    one (`SplitScheduler`) splits a bundle whose reports are above a limit for several minutes; the halves stay on their
    broker.
    """

    extensible: bool = False
    averages: Averages = field(default_factory=Averages)
    hits: dict[str, int] = field(default_factory=dict)

    def turn(self, cluster: VirtualCluster) -> None:
        """Once a minute, split the bundles that are above a limit."""
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
