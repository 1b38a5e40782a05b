"""What a broker's topics have carried since they were loaded, and the report that two readings of it make.

Brokers compute rates once in a statistics interval (60 s), and sample their CPU once a minute. The counters beside them
(`pulsar_in_messages_total` and its three sisters, `process_cpu_seconds_total`) are exact at every moment: two readings
a few seconds apart tell what a broker carries now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bundlekeel.core.model.load import (
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
from bundlekeel.core.model.names import BundleName

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReading:
    """Counters of one broker's loaded topics, read between two moments, in ms. A row is what is counted by itself: a
    topic (what comes in, its sessions) or one of its subscriptions (what goes out), which end without the topic.

    `keys`: shape (n,), the same in every reading and of no other row. `topic`: shape (n,), whether a row is a topic.
    `namespace`: shape (n,), place in `namespaces`; `hashes`: shape (n,), the topic's place in the hash space.
    `counters`: shape (n, 4), columns of `core.model.load.TRAFFIC` without "a second": messages and bytes. `sessions`:
    shape (n, 2), consumers and producers. `cpu_seconds`: what the process used since its start; `direct_memory_bytes`:
    what it uses now; None where the broker does not tell.

    `replicated`: shape (n, 4), columns of `TRAFFIC`: what replicators send. A broker does not count it, but reports the
    mean of its last statistics interval. None: no replicators.
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
    """What two readings say of a broker: rates of its bundles, and its CPU in cores (None: not told). `cpu_share`: the
    share of the CPU it may use, 0..1, where its JVM was asked for that: who does not tell its cores needs no other.
    `least_cores`: the least that its CPU can be, as a broker may read it at any time between request and response.

    `traffic`: shape (n, 4), columns of `TRAFFIC`; `counts`: shape (n, 3), topics, consumers, producers. `whole`: shape
    (n,), whether all topics of the bundle were there at both readings; otherwise the figures are the least there was.
    `replicated`: shape (n, 4), the part of `traffic` that replicators send.
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


def measured(
    before: CounterReading, after: CounterReading, boundaries: Mapping[str, Sequence[int]]
) -> MeasuredLoad | None:
    """What came between two readings of one broker in one life; None when they are no two.

    `boundaries` of the namespaces of `after`; topics of others are left out.
    """
    seconds = (after.from_ms + after.to_ms - before.from_ms - before.to_ms) / 2000
    if seconds <= 0:
        return None
    passed, known = _passed(before, after)
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
    whole[bundle[mine & ~known]] = False
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
    )


def _passed(before: CounterReading, after: CounterReading) -> tuple[Floats, NDArray[np.bool_]]:
    """What each row of `after` counted since `before`, or since it began: a topic's is not known in full then, a
    subscription's is, unless it was there before."""
    order = np.argsort(before.keys)
    place = np.searchsorted(before.keys, after.keys, sorter=order)
    row = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros(len(after.keys), dtype=np.int64)
    known = before.keys[row] == after.keys if len(order) else np.zeros(len(after.keys), dtype=bool)
    passed = after.counters.copy()
    passed[known] -= before.counters[row[known]]
    # What was unloaded and came back starts again from 0.
    again = (passed < 0).any(axis=1)
    passed[again] = after.counters[again]
    return passed, (known | ~after.topic) & ~again


def _bundles(reading: CounterReading, boundaries: Mapping[str, Sequence[int]]) -> tuple[tuple[str, ...], Ints]:
    """The bundles that hold topics, and each topic's place among them (-1: its namespace is not known)."""
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
    """Return the share of the CPU that other processes of the host use, 0 to 1.

    A broker reports the CPU of its container, where its functions may run too, or of its host
    (`LinuxBrokerHostUsageImpl`), as a mean of up to `lag_ms` before the report. What the broker's process used in that
    time bounds the share of the others from both sides. Within these bounds it stays as it was `before`, so that moves
    of bundles do not look like a change of other processes.
    """
    host, limit = float(report.usage[CPU]), float(report.limit[CPU])
    if report.cores is not None:
        host, limit = 100 * report.used_cores, 100 * report.cores
    if limit <= 0:
        return 0.0
    known = [load for load in loads if load.cpu_cores is not None]
    during = [item for item in known if item.to_ms > report.updated_ms - lag_ms and item.from_ms < report.updated_ms]
    used = [100 * (item.cpu_cores or 0.0) / limit for item in during or known]
    if not used:
        return before
    least, most = max(0.0, host / limit - max(used)), max(0.0, host / limit - min(used))
    return max(before, least) if not during else min(max(before, least), most)


def with_measured(
    report: BrokerReport, load: MeasuredLoad, known: Mapping[str, Floats], others: float = 0.0
) -> BrokerReport | None:
    """The report with what was measured in place of older figures; None when CPU counts and was not measured.

    The bundles are those whose topics the broker had at the second reading. `known`: traffic, shape (4,), of bundles as
    it was measured last, anywhere: of a bundle that came in between, that is better than the part that was seen here.
    `others`: the share of the CPU that is not the broker's own (`others_share`).
    """
    usage = _usage(report, load, others)
    if usage is None:
        return None
    traffic = load.traffic
    if not load.whole.all():
        told = dict(zip(report.bundle_names, report.bundle_traffic, strict=True)) | dict(known)
        traffic = traffic.copy()
        for row in np.flatnonzero(~load.whole).tolist():
            traffic[row] = np.maximum(traffic[row], told.get(load.bundles[row], 0.0))
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
    """Host usage with what the process says of itself now, in the report's units."""
    usage = report.usage.copy()
    if report.limit[CPU] > 0:
        cores, share = report.limit[CPU] / 100 if report.cores is None else report.cores, load.cpu_share
        if cores > 0 and load.cpu_cores is not None:
            # Only what is certain may prove that the limit is wrong.
            share = min(load.cpu_cores, max(cores, load.least_cores)) / cores
        if share is None:
            return None
        if others > 0:
            share = min(1.0, share + others)
        usage[CPU] = max(share, report.least_usage) * report.limit[CPU]
    if load.direct_memory_bytes is not None and report.limit[DIRECT_MEMORY] > 0:
        usage[DIRECT_MEMORY] = load.direct_memory_bytes / _MIB
    return usage
