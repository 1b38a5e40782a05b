"""Compute the load of a broker from two readings of its topics' Prometheus counters.

Brokers compute rates once per statistics interval (60 s), and sample their CPU once a minute. Their counters
(`pulsar_in_messages_total` and three similar ones, `process_cpu_seconds_total`) are exact at any time, so two readings
a few seconds apart show the present load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.double_service import NO_GROWTH, Growth, growth_of
from bundlekeel.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    DIRECT_MEMORY,
    KILOBIT_PER_BYTE,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    BrokerReport,
    Floats,
    Ints,
)
from bundlekeel.model.names import BundleName

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReading:
    """Counters of one broker's topics with traffic, read between `from_ms` and `to_ms` (Unix ms).

    A row is a topic (incoming traffic, sessions) or one of its subscriptions (outgoing traffic), because a subscription
    can end before its topic.

    `keys`: shape (n,), identify the rows; a row has the same key in every reading. `topic`: shape (n,), whether a row
    is a topic. `namespace`: shape (n,), index into `namespaces`. `hashes`: shape (n,), hash of the topic. `counters`:
    shape (n, 4), messages and bytes, in the order of `model.load.TRAFFIC`. `sessions`: shape (n, 2), consumers and
    producers. `cpu_seconds`: CPU time of the process since its start. `direct_memory_bytes`: present use. None: not
    reported.

    `replicated`: shape (n, 4), columns of `TRAFFIC`: traffic of replicators. A broker has no counter for this traffic,
    but reports the mean of its last statistics interval. None: no replicators.
    """

    from_ms: int
    to_ms: int
    namespaces: tuple[str, ...]
    namespace: Ints
    keys: NDArray[np.uint64]
    topic: NDArray[np.bool_]
    hashes: Ints
    counters: Floats
    sessions: Ints
    replicated: Floats | None = None
    cpu_seconds: float | None = None
    direct_memory_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """Load of a broker and its n bundles between two readings of its counters.

    `traffic`: shape (n, 4), columns of `TRAFFIC`. `replicated`: shape (n, 4), the part of `traffic` that replicators
    send. `counts`: shape (n, 3), topics, consumers, producers. `whole`: shape (n,), whether all topics of the bundle
    were in both readings; otherwise its traffic is a minimum. `cpu_cores`: CPU use in cores; None: not reported.
    `cpu_share`: used share (0 to 1) of the CPU limit, read from the JVM if the number of cores is unknown.
    `least_cores`: lower limit of the CPU use, in cores: the broker reads it at an unknown time between request and
    response. `growth`: topics that the broker served in this time.
    """

    from_ms: int
    to_ms: int
    bundles: tuple[str, ...]
    traffic: Floats
    replicated: Floats
    counts: Ints
    whole: NDArray[np.bool_]
    cpu_cores: float | None
    direct_memory_bytes: float | None
    cpu_share: float | None = None
    least_cores: float = 0.0
    growth: Growth = NO_GROWTH


def measured(
    before: CounterReading, after: CounterReading, boundaries: Mapping[str, Sequence[int]]
) -> MeasuredLoad | None:
    """Return the load between two readings of one broker's counters; None if `after` is not later than `before`.

    The broker must not have restarted between them. `boundaries`: hash boundaries by namespace; topics of other
    namespaces are ignored.
    """
    seconds = (after.from_ms + after.to_ms - before.from_ms - before.to_ms) / 2000
    if seconds <= 0:
        return None
    passed, complete = _passed(before, after)
    bundles, bundle = _bundles(after, boundaries)
    mine = bundle >= 0
    traffic, counts = np.zeros((len(bundles), 4)), np.zeros((len(bundles), 3), dtype=np.int64)
    replicated = np.zeros_like(traffic)
    np.add.at(traffic, bundle[mine], passed[mine] / seconds)
    if after.replicated is not None:
        np.add.at(replicated, bundle[mine], after.replicated[mine])
    counts[:, 0] = np.bincount(bundle[mine & after.topic], minlength=len(bundles))
    np.add.at(counts[:, 1:], bundle[mine], after.sessions[mine])
    whole = np.ones(len(bundles), dtype=bool)
    whole[bundle[mine & ~complete]] = False
    cpu, least = None, 0.0
    if before.cpu_seconds is not None and after.cpu_seconds is not None and after.cpu_seconds >= before.cpu_seconds:
        cpu = (after.cpu_seconds - before.cpu_seconds) / seconds
        least = 1000 * (after.cpu_seconds - before.cpu_seconds) / (after.to_ms - before.from_ms)
    return MeasuredLoad(
        from_ms=before.from_ms,
        to_ms=after.to_ms,
        bundles=bundles,
        traffic=traffic + replicated,
        replicated=replicated,
        counts=counts,
        whole=whole,
        cpu_cores=cpu,
        direct_memory_bytes=after.direct_memory_bytes,
        least_cores=least,
        growth=growth_of(
            (before.to_ms, after.from_ms), bundles, bundle, after.hashes, passed.max(axis=1) > 0, complete
        ),
    )


def _passed(before: CounterReading, after: CounterReading) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the increase of the counters of each row of `after`, and a mask of the rows whose increase is complete.

    Rows that are not in `before` count from 0. For a topic this is incomplete, because another broker may have counted
    before.
    """
    order = np.argsort(before.keys)
    place = np.searchsorted(before.keys, after.keys, sorter=order)
    row = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros(len(after.keys), dtype=np.int64)
    counted = before.keys[row] == after.keys if len(order) else np.zeros(len(after.keys), dtype=bool)
    passed = after.counters.copy()
    passed[counted] -= before.counters[row[counted]]
    # Counters of topics that were unloaded and loaded again restart at 0.
    again = (passed < 0).any(axis=1)
    passed[again] = after.counters[again]
    return passed, (counted | ~after.topic) & ~again


def _bundles(reading: CounterReading, boundaries: Mapping[str, Sequence[int]]) -> tuple[tuple[str, ...], Ints]:
    """Return the bundles that have topics in the reading, and for each row of the reading the index of its bundle.

    The index is -1 if the hash boundaries of the row's namespace are unknown.
    """
    names: list[str] = []
    bundle = np.full(len(reading.hashes), -1, dtype=np.int64)
    for code, namespace in enumerate(reading.namespaces):
        edges = boundaries.get(namespace)
        if edges is None:
            continue
        rows = np.flatnonzero(reading.namespace == code)
        part = np.searchsorted(np.array(edges[1:-1], dtype=np.int64), reading.hashes[rows], side="right")
        present, place = np.unique(part, return_inverse=True)
        bundle[rows] = place + len(names)
        names += [str(BundleName(namespace=namespace, lower=edges[at], upper=edges[at + 1])) for at in present.tolist()]
    return tuple(names), bundle


def others_share(report: BrokerReport, loads: Sequence[MeasuredLoad], before: float, lag_ms: int) -> float:
    """Return the share of the CPU limit (0 to 1) that processes other than the broker use.

    A broker reports the CPU of its container, where its functions may run too, or of its host
    (`LinuxBrokerHostUsageImpl`), as a mean of up to `lag_ms` before the report. The CPU that the broker's process used
    in that time (`loads`, from counters) gives a lower and an upper bound for the share of the others. Within these
    bounds, the previous result `before` is kept, so that moves of bundles do not look like a change of other processes.
    """
    host, limit = float(report.usage[CPU]), float(report.limit[CPU])
    if report.cores is not None:
        host, limit = 100 * report.used_cores, 100 * report.cores
    if limit <= 0:
        return 0.0
    with_cpu = [load for load in loads if load.cpu_cores is not None]
    during = [item for item in with_cpu if item.to_ms > report.updated_ms - lag_ms and item.from_ms < report.updated_ms]
    used = [100 * (item.cpu_cores or 0.0) / limit for item in during or with_cpu]
    if not used:
        return before
    least, most = max(0.0, host / limit - max(used)), max(0.0, host / limit - min(used))
    return max(before, least) if not during else min(max(before, least), most)


def with_measured(
    report: BrokerReport, load: MeasuredLoad, latest: Mapping[str, Floats], others: float = 0.0
) -> BrokerReport | None:
    """Return the report with the values of `load` instead of its own; None if CPU use counts but was not measured.

    The report then lists the bundles with topics in the second reading. `latest`: last measured traffic of bundles,
    shape (4,), on any broker; it replaces the incomplete measurement of a bundle that arrived between the readings.
    `others`: share of the CPU that other processes use (`others_share`).
    """
    usage = _usage(report, load, others)
    if usage is None:
        return None
    traffic = load.traffic
    if not load.whole.all():
        traffic_by_bundle = dict(zip(report.bundle_names, report.bundle_traffic, strict=True)) | dict(latest)
        traffic = traffic.copy()
        for row in np.flatnonzero(~load.whole).tolist():
            traffic[row] = np.maximum(traffic[row], traffic_by_bundle.get(load.bundles[row], 0.0))
    total = traffic.sum(axis=0)
    for resource, column in ((BANDWIDTH_IN, THROUGHPUT_IN), (BANDWIDTH_OUT, THROUGHPUT_OUT)):
        more = (total[column] - report.traffic[column]) * KILOBIT_PER_BYTE
        if report.limit[resource] > 0:
            usage[resource] = max(0.0, usage[resource] + more)
    return replace(
        report,
        usage=usage,
        traffic=total,
        last_update=load.to_ms,
        written_ms=0,
        interval_ms=load.to_ms - load.from_ms,
        num_topics=int(load.counts[:, 0].sum()),
        bundle_names=load.bundles,
        bundle_traffic=traffic,
        bundle_counts=load.counts,
    )


def _usage(report: BrokerReport, load: MeasuredLoad, others: float) -> Floats | None:
    """Return the report's usage with measured CPU and direct memory; None if CPU counts but was not measured."""
    usage = report.usage.copy()
    if report.limit[CPU] > 0:
        cores, share = report.limit[CPU] / 100 if report.cores is None else report.cores, load.cpu_share
        if cores > 0 and load.cpu_cores is not None:
            # Only the certain part of the CPU use may prove that the limit is wrong.
            share = min(load.cpu_cores, max(cores, load.least_cores)) / cores
        if share is None:
            return None
        if others > 0:
            share = min(1.0, share + others)
        usage[CPU] = max(share, report.least_usage) * report.limit[CPU]
    if load.direct_memory_bytes is not None and report.limit[DIRECT_MEMORY] > 0:
        usage[DIRECT_MEMORY] = load.direct_memory_bytes / _MIB
    return usage
