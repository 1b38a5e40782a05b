"""Counters of the virtual brokers, in the form of `pulsar.counters.counters`, which reads those of real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np

from bundlekeel.model.counters import CounterReading
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.model.names import FULL_UPPER
from bundlekeel.ports import Clock
from bundlekeel.simulator.balancers import cluster_index
from bundlekeel.simulator.bundles import GONE
from bundlekeel.simulator.cluster import VirtualCluster

# A real broker needs this long to return its metrics page (docs/reference/counters-cost.md).
READ_SECONDS: Final = 0.07
READ_SECONDS_PER_TOPIC: Final = 0.0003
# A real broker with 0.3 cores needs this long to return its CPU seconds (`evidence.counters_cost --signals`).
PROBE_SECONDS: Final = 0.09


class ClusterCounters:
    """Exact counters (`ports.TopicCounters`) and bundle boundaries (`ports.Metadata`) of a virtual cluster."""

    def __init__(self, cluster: VirtualCluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        bundles = cluster.bundles
        names = dict(zip(bundles.namespace.tolist(), bundles.names, strict=True))
        self._namespaces = {row: name.rpartition("/")[0] for row, name in names.items()}

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """Return the values of a broker's counters at the end of the read. A dead broker never responds."""
        cluster, bundles, place = self._cluster, self._cluster.bundles, cluster_index(broker.broker_id)
        topics = int(bundles.topics[cluster.rows_of(place)].sum())
        await self._clock.sleep(READ_SECONDS + READ_SECONDS_PER_TOPIC * topics)
        if not cluster.running[place]:
            await asyncio.Future()  # the caller cancels the read when the broker's node is gone
        rows = np.flatnonzero(bundles.owner[bundles.topic_bundle] == place)
        bundle, now_ms = bundles.topic_bundle[rows], self._clock.wall_ms()
        # Within a tick loads do not change.
        seconds = (now_ms - cluster.wall_ms) / 1000
        carried = cluster.carried[rows] + seconds * cluster.topic_loads()[rows]
        spaces, space = np.unique(bundles.namespace[bundle], return_inverse=True)
        return [
            CounterReading(
                from_ms=now_ms,
                to_ms=now_ms,
                namespaces=tuple(map(self._namespaces.__getitem__, spaces.tolist())),
                namespace=space,
                keys=rows.astype(np.uint64),
                topic=np.ones(len(rows), dtype=bool),
                hashes=bundles.topic_hash[rows],
                counters=carried[:, None] * bundles.unit[bundle],
                sessions=np.repeat(bundles.clients_per_topic[bundle, None] // 2, 2, axis=1),
                cpu_seconds=self._cpu(place),
            )
        ]

    async def cpu_seconds(self, broker_id: str) -> float:
        """Return the CPU seconds of a broker's process. A dead broker never responds."""
        cluster, place = self._cluster, cluster_index(broker_id)
        await self._clock.sleep(PROBE_SECONDS)
        if not cluster.running[place]:
            await asyncio.Future()  # the caller cancels the read when the broker's node is gone
        return self._cpu(place)

    def _cpu(self, place: int) -> float:
        seconds = (self._clock.wall_ms() - self._cluster.wall_ms) / 1000
        return float(self._cluster.cpu_seconds[place] + seconds * self._cluster.own_busy()[place])

    async def boundaries(self, namespace: str) -> list[int]:
        """Return the hash boundaries of a namespace's bundles, in ascending order."""
        bundles = self._cluster.bundles
        rows = [row for row, name in enumerate(bundles.names) if name.rpartition("/")[0] == namespace]
        present = [row for row in rows if bundles.owner[row] != GONE]
        return [*sorted(bundles.lower[present].tolist()), FULL_UPPER]
