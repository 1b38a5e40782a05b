"""A balancer like Pulsar's extensible load manager: TransferShedder (`compat.transfer`) runs once a minute.

It follows Pulsar 4.2. Each broker smooths its score every few seconds and publishes the score with its report. With
every refresh of its statistics it also publishes its largest bundles, without those of namespaces with policies. After
a broker unloaded or received a bundle, both publications are deleted. The score is published again a few seconds later,
and smoothing starts again. The bundles are published again with the next refresh. Until then the shedder does nothing.
A bundle moves directly to its target.

Simplifications: reports are written under the conditions of the modular load manager, CPU is the only usage in them,
and a delayed report contains the score at its arrival.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.compat.in_plan import largest
from bundlekeel.compat.picture import percent
from bundlekeel.compat.transfer import Load, TopBundle, TransferPicture, find_bundles
from bundlekeel.model.load import THROUGHPUT_IN, THROUGHPUT_OUT
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import Policies
from bundlekeel.simulator.balancers import UNUSABLE, RunBooks, cluster_index
from bundlekeel.simulator.cluster import ANYWHERE, VirtualCluster
from bundlekeel.simulator.native import GRACE_SECONDS, SHEDDING_INTERVAL
from bundlekeel.simulator.reports import broker_id

# Pulsar's `TOMBSTONE_DELAY_IN_MILLIS`: a broker deletes its published load at most once in this time.
TOMBSTONE_SECONDS = 10.0
BOTH_WAYS = [THROUGHPUT_IN, THROUGHPUT_OUT]


@dataclass(kw_only=True)
class NativeTransfer:
    """The balancer of brokers with the extensible load manager. `params.compat`: the Pulsar release to follow."""

    params: Parameters
    policies: Policies = field(default_factory=Policies)
    books: RunBooks = field(default_factory=RunBooks)
    hits: int = 0
    recent: dict[str, float] = field(default_factory=dict)
    recent_brokers: dict[str, int] = field(default_factory=dict)
    # By broker: smoothed score and throughput; published load; time and refresh of the last deletion of that load.
    _smoothed: dict[int, tuple[float, float]] = field(default_factory=dict)
    _loads: dict[int, Load] = field(default_factory=dict)
    _vanished: dict[int, float] = field(default_factory=dict)
    _unnamed: dict[int, int] = field(default_factory=dict)
    _processed: tuple[int, int] = (0, 0)

    def turn(self, cluster: VirtualCluster, landed: list[tuple[str, str]]) -> None:
        """Smooth and publish the brokers' scores, and shed once a minute."""
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
        """Update each broker's smoothed score with its present usage, as Pulsar's `BrokerLoadData.update` does."""
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
        """Delete the published load of each broker that lost (also by a split) or received a bundle."""
        moved, divided = cluster.moved[self._processed[0] :], cluster.divided[self._processed[1] :]
        self._processed = (len(cluster.moved), len(cluster.divided))
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
        start = timer() if timer else 0.0
        outcome = find_bundles(self._picture(cluster, registered), self.params, self.hits)
        if timer:
            self.books.slowest = max(self.books.slowest, timer() - start)
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
        reporting = [b for b in registered if reporter.visible[b] is not None and not UNUSABLE.get(reporter.bad[b])]
        row_of, owner, namespace = bundles.index, bundles.owner, bundles.namespace

        def transferable(bundle: str, source: str, target: str) -> bool:
            row = row_of[bundle]
            there = allowed is None or bool(allowed[namespace[row], cluster_index(target)])
            return there and owner[row] == cluster_index(source)

        return TransferPicture(
            now_ms=cluster.wall_ms,
            brokers={broker_id(b): self._loads[b] for b in reporting},
            top={
                broker_id(b): self._top(cluster, b)
                for b in registered
                if self._unnamed.get(b, -1) < reporter.refreshes[b]
            },
            missing=[broker_id(b) for b in registered if b not in reporting],
            recent=self.recent,
            recent_brokers=self.recent_brokers,
            transferable=transferable,
        )

    def _top(self, cluster: VirtualCluster, broker: int) -> list[TopBundle]:
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
