"""Load data of extensible brokers (PIP-192), and their conversion into reports and a snapshot.

**Scores.** An extensible broker reports its own score (`weightedMaxEMA`: weighted, smoothed, with heap), but not the
absolute capacity behind it. So the score is stored as CPU usage, in percent of a limit of 100 on every broker. The
other resources get no limit, and all weights are 1 in a snapshot of mode `extensible` (planning/scores.py). A bundle
then causes a part of its broker's score, as Pulsar's TransferShedder assumes, and the planning package needs no
special case. Two alternatives are worse. With an override of `throughput`, the score of an idle broker would be 0 and
its limit unknown. A separate table of scores would have to pass through all modules of planning.

**Other bundles.** A broker reports only its largest bundles. The rest of its traffic is stored as one more bundle with
the namespace of the broker's SLA monitor, which never moves. So the share of a bundle refers to the whole traffic, and
the reported bundles do not count as all bundles of the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.model.averages import Averages
from bundlekeel.model.load import CPU, REPORTED_RESOURCES, BrokerReport, BundleAverages, ExcludedBroker, Floats, Ints
from bundlekeel.model.snapshot import Snapshot, build_snapshot

LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
_REST: Final = "sla-monitor/{broker}/0x00000000_0xffffffff"
# A broker measures its total traffic and its bundles at different times. A difference below this share does not count
# as traffic of other bundles.
_REST_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoadData:
    """Load data that one extensible broker published. Scores are ratios (0.85 is 85 %), times are in ms.

    `traffic`: shape (4,), columns of `model.load.TRAFFIC`. `cores`: CPU cores the broker may use, 0: not reported.
    `used_cores`: CPU cores that its container or host uses, 0: unknown. `least_usage`: used share of its most used
    resource, without CPU and heap. `faults`: (code, field) of each value that was missing or invalid and was replaced.
    """

    broker_id: str
    weighted_max_ema: float
    throughput_ema: float
    max_resource_usage: float
    traffic: Floats
    bundle_count: int
    topics: int
    updated_at: int
    faults: tuple[tuple[str, str], ...] = ()
    cores: float = 0.0
    used_cores: float = 0.0
    least_usage: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLoads:
    """Loads of one broker's bundles in reported order: its largest bundles (lowest load first), or all.

    `traffic`: shape (n, 4), columns of `model.load.TRAFFIC`; `counts`: (n, 3) topics, consumers, producers. `faults`:
    (code, field) of each value that was missing or invalid and was replaced.
    """

    names: tuple[str, ...] = ()
    traffic: Floats
    counts: Ints
    faults: tuple[tuple[str, str], ...] = ()


def load_unknown(load: BrokerLoadData) -> tuple[str, str] | None:
    """Return the first fault (code, field) because of which the broker's load is unknown; None if it is known."""
    needed = ("weightedMaxEMA", "updatedAt", "msgThroughputIn", "msgThroughputOut")
    return next((fault for fault in load.faults if fault[1] in needed), None)


def extensible_snapshot(
    loads: Iterable[BrokerLoadData],
    tops: Mapping[str, BundleLoads],
    *,
    wall_ms: int,
    excluded: Iterable[ExcludedBroker] = (),
) -> Snapshot:
    """Build a read-only snapshot of an extensible cluster.

    `loads`: load data of the brokers; brokers whose load is unknown are excluded. `tops`: largest bundles by broker.
    `excluded`: registered brokers without usable load data. The averages have one sample, the present traffic.
    """
    reports, left_out = [], list(excluded)
    for load in loads:
        fault = load_unknown(load)
        if fault is None:
            reports.append(report_of(load, tops.get(load.broker_id, NO_BUNDLES)))
        else:
            left_out.append(ExcludedBroker(broker_id=load.broker_id, code=fault[0], detail=fault[1]))
    return build_snapshot(
        reports=reports,
        averages=_sampled_once(reports),
        wall_ms=wall_ms,
        mode="extensible",
        excluded=left_out,
    )


def is_rest(bundle: str) -> bool:
    """Return whether this bundle name stands for the traffic of a broker's unreported bundles (see `report_of`)."""
    return bundle.startswith(_REST.partition("{")[0]) and bundle.endswith(_REST.rpartition("}")[2])


NO_BUNDLES: Final = BundleLoads(traffic=np.zeros((0, 4)), counts=np.zeros((0, 3), dtype=np.int64))


def report_of(load: BrokerLoadData, top: BundleLoads) -> BrokerReport:
    """Return a broker's report from its load data and its largest bundles; one more bundle has all other traffic."""
    usage, limit = np.zeros(REPORTED_RESOURCES), np.zeros(REPORTED_RESOURCES)
    usage[CPU], limit[CPU] = 100 * load.weighted_max_ema, 100.0
    names, traffic, counts = top.names, top.traffic, top.counts
    rest = np.maximum(load.traffic - traffic.sum(axis=0), 0.0)
    if load.bundle_count > len(names) or (rest > _REST_SHARE * load.traffic).any():
        names = (*names, _REST.format(broker=load.broker_id))
        traffic, counts = np.vstack([traffic, rest]), np.vstack([counts, np.zeros((1, 3), dtype=np.int64)])
    return BrokerReport(
        broker_id=load.broker_id,
        usage=usage,
        limit=limit,
        traffic=np.maximum(load.traffic, traffic.sum(axis=0)),
        last_update=load.updated_at,
        num_topics=load.topics,
        bundle_names=names,
        bundle_traffic=traffic,
        bundle_counts=counts,
        load_manager=LOAD_MANAGER,
        faults=load.faults,
        cores=load.cores,
        used_cores=load.used_cores,
        least_usage=load.least_usage,
    )


def _sampled_once(reports: Sequence[BrokerReport]) -> Averages:
    averages = Averages()
    for report in sorted(reports, key=lambda item: item.last_update):
        averages.seed(
            BundleAverages(
                bundle=name,
                short=(rates[0], rates[1], rates[2], rates[3]),
                long=(rates[0], rates[1], rates[2], rates[3]),
                short_samples=1,
                long_samples=1,
                topics=topics,
            )
            for name, rates, topics in zip(
                report.bundle_names, report.bundle_traffic.tolist(), report.bundle_counts[:, 0].tolist(), strict=True
            )
        )
    return averages
