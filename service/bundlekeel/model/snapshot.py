"""The snapshot: the cluster's brokers and bundles at the start of one cycle, as immutable columns.

Brokers are sorted by id, bundles are grouped by owner. Values are rounded here, before planning, so that a recorded
snapshot gives the same plan again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.averages import Averages
from bundlekeel.model.capacity import CapacityOverride, match_capacity, wrong_limit_marks
from bundlekeel.model.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    DIRECT_MEMORY,
    KILOBIT_PER_BYTE,
    MSG_RATE,
    RATE_IN,
    RATE_OUT,
    REPORTED_RESOURCES,
    RESOURCES,
    THROUGHPUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    BrokerReport,
    ExcludedBroker,
    Floats,
    Ints,
)
from bundlekeel.model.names import is_system_bundle

Bools = NDArray[np.bool_]
_DECIMALS: Final = 3
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTable:
    """Live brokers with usable reports. Matrices have one row per broker, columns `RESOURCES` or `TRAFFIC`.

    `from_traffic`: resources whose usage is computed from the traffic, because the setting `capacity` limits them; the
    usage of the others is reported. `overridden`: resources with a limit from `capacity`, and with `!` those whose
    limit cannot be true. `persistent`, `non_persistent`: whether the broker serves such topics; empty: all brokers do.
    `rows`: row number by broker id.
    """

    ids: tuple[str, ...]
    usage: Floats
    limit: Floats
    from_traffic: Bools
    overridden: tuple[tuple[str, ...], ...]
    traffic: Floats
    last_update: Ints
    start_timestamp: Ints
    topics: Ints
    load_managers: tuple[str, ...]
    versions: tuple[str, ...]
    persistent: tuple[bool, ...] = ()
    non_persistent: tuple[bool, ...] = ()
    rows: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", {broker: row for row, broker in enumerate(self.ids)})

    def __len__(self) -> int:
        return len(self.ids)

    def takes_persistent(self) -> Bools:
        """Return a mask of the brokers that serve persistent topics (`enablePersistentTopics`)."""
        return np.array(self.persistent or (True,) * len(self.ids), dtype=bool)

    def takes_non_persistent(self) -> Bools:
        """Return a mask of the brokers that serve non-persistent topics (`enableNonPersistentTopics`)."""
        return np.array(self.non_persistent or (True,) * len(self.ids), dtype=bool)

    def wrong(self) -> Bools:
        """Return a mask of the limits that cannot be true, brokers by `RESOURCES` (see `wrong_limit_marks`)."""
        if not any(self.overridden):
            return np.zeros((len(self), len(RESOURCES)), dtype=bool)
        rows = [[f"!{name}" in touched for name in RESOURCES] for touched in self.overridden]
        return np.array(rows, dtype=bool).reshape(len(self), len(RESOURCES))

    def percent(self) -> Floats:
        """Return the usage in percent of the limit, computed in float32 as Pulsar does; 0 without a positive limit."""
        return percent_usage(self.usage, self.limit)


def percent_usage(usage: Floats, limit: Floats) -> Floats:
    """Return `ResourceUsage.percentUsage()`: 32-bit float division times 100, 0 without a positive limit."""
    blind = ~(limit > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = usage.astype(np.float32) / np.where(blind, 1.0, limit).astype(np.float32)
    percent = (ratio * np.float32(100)).astype(np.float64)
    percent[blind] = 0.0
    return percent


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleTable:
    """Owned bundles, grouped by owner: the bundles of broker b are the rows `starts[b]:starts[b + 1]`.

    `owner`: row number of the broker. `namespace`: index into `namespaces`. `latest`: traffic in the last report,
    `short`, `long`: short-term and long-term averages, columns of `TRAFFIC`. `samples`: number of samples of both
    averages. `counts`: topics, consumers, producers. `system`: whether it is a heartbeat, SLA or `pulsar/system`
    bundle.
    """

    names: tuple[str, ...]
    starts: Ints
    owner: Ints
    namespaces: tuple[str, ...]
    namespace: Ints
    latest: Floats
    short: Floats
    long: Floats
    samples: Ints
    counts: Ints
    system: Bools
    _rows_by_name: dict[str, list[int]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def rows_of(self, broker: int) -> slice:
        """Return the rows of the bundles of one broker. `broker`: row number of the broker."""
        return slice(int(self.starts[broker]), int(self.starts[broker + 1]))

    def rows_named(self, names: Collection[str]) -> list[int]:
        """Return the row numbers of the bundles with these names, ascending; unknown names are ignored.

        The search reads all names and its results are cached, so one early call for many bundles saves time.
        """
        new: dict[str, list[int]] = {name: [] for name in names if name not in self._rows_by_name}
        if new:
            present = np.fromiter(map(new.__contains__, self.names), dtype=bool, count=len(self.names))
            for row in np.flatnonzero(present).tolist():
                new[self.names[row]].append(row)
            self._rows_by_name.update(new)
        return sorted(row for name in names for row in self._rows_by_name[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Brokers and bundles of the cluster at one time; immutable.

    `mode`: `modular` or `extensible`. `excluded`: live brokers without a usable report. `registered`: number of live
    brokers, with or without a usable report. `intervals`: by row of the broker, the maximum age, in ms, of values from
    Prometheus counters at `last_update`; 0: the broker reported its values itself; (): all brokers did.
    """

    wall_ms: int
    mode: str
    brokers: BrokerTable
    bundles: BundleTable
    excluded: tuple[ExcludedBroker, ...]
    registered: int
    digest: str
    intervals: tuple[int, ...] = ()

    def interval_ms(self, row: int) -> int:
        """Return the maximum age (ms) of the counters of the broker in this row; 0: it reported its values itself."""
        return self.intervals[row] if self.intervals else 0

    @property
    def counted(self) -> Bools:
        """Return a mask of the brokers whose values come from Prometheus counters, not from load reports."""
        return np.array(self.intervals or [0] * len(self.brokers)) > 0

    @property
    def slowest_seconds(self) -> float | None:
        """Return the largest value of `intervals`, in seconds; None if a broker reported its values itself."""
        return max(self.intervals) / 1000 if self.intervals and all(self.intervals) else None

    def broker_row(self, broker_id: str) -> int:
        """Return the row number of a broker; -1 if it is not in the snapshot."""
        return self.brokers.rows.get(broker_id, -1)


def build_snapshot(
    *,
    reports: Sequence[BrokerReport],
    averages: Averages,
    wall_ms: int,
    mode: str = "modular",
    excluded: Iterable[ExcludedBroker] = (),
    capacity: Sequence[CapacityOverride] = (),
) -> Snapshot:
    """Build a read-only snapshot from reports and averages.

    A bundle that two brokers report (in transit) belongs to the broker with the newer report, and its traffic is
    subtracted from the total of the other broker. Values are rounded, so that a recorded snapshot is identical.
    """
    ordered = sorted(reports, key=lambda report: report.broker_id)
    dropped = tuple(excluded)
    if mode == "extensible":
        # The score of an extensible broker is in percent of the broker, not of a core (model/extensible.py).
        capacity = [replace(item, cores=None) for item in capacity]
    names = [name for report in ordered for name in report.bundle_names]
    rows = np.concatenate([averages.rows(()), *map(averages.rows_of, ordered)])
    keep = _without_duplicates(ordered, names, rows)
    brokers = _broker_table(ordered, keep, capacity)
    if any(mask is not None for mask in keep):
        marks = np.concatenate(
            [np.ones(len(r.bundle_names), bool) if k is None else k for r, k in zip(ordered, keep, strict=True)]
        )
        names, rows = [name for name, mask in zip(names, marks.tolist(), strict=True) if mask], rows[marks]
    bundles = _bundle_table(ordered, keep, _Named(names, rows, averages))
    freeze(brokers, bundles)
    return Snapshot(
        wall_ms=wall_ms,
        mode=mode,
        brokers=brokers,
        bundles=bundles,
        excluded=dropped,
        registered=len(ordered) + len(dropped),
        digest=digest_of(brokers, bundles, dropped),
        intervals=intervals if any(intervals := tuple(report.interval_ms for report in ordered)) else (),
    )


def freeze(*tables: BrokerTable | BundleTable) -> None:
    """Make all arrays of these tables read-only."""
    for table in tables:
        for item in fields(table):
            value = getattr(table, item.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


def _broker_table(
    reports: Sequence[BrokerReport],
    keep: Sequence[Bools | None],
    capacity: Sequence[CapacityOverride],
) -> BrokerTable:
    count = len(reports)
    shape = count, len(RESOURCES)
    usage, limit, from_traffic = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool)
    traffic = np.zeros((count, 4))
    overridden: list[tuple[str, ...]] = []
    for row, report in enumerate(reports):
        usage[row, :REPORTED_RESOURCES], limit[row, :REPORTED_RESOURCES] = report.usage, report.limit
        traffic[row] = report.traffic
        if (mask := keep[row]) is not None and not mask.all():
            traffic[row] = np.maximum(traffic[row] - report.bundle_traffic[~mask].sum(axis=0), 0.0)
        override = match_capacity(capacity, report.broker_id)
        touched = _apply_capacity(override, usage[row], limit[row], from_traffic[row]) if override else ()
        # An extensible broker's usage is a score of any size, so its limit of 100 does not prove anything.
        marks = wrong_limit_marks(usage[row], limit[row]) if report.cores is None else ()
        overridden.append((*touched, *marks))
    fill_from_traffic(usage, traffic, from_traffic)
    usage, limit, traffic = (np.round(values, _DECIMALS) for values in (usage, limit, traffic))
    return BrokerTable(
        ids=tuple(report.broker_id for report in reports),
        usage=usage,
        limit=limit,
        from_traffic=from_traffic,
        overridden=tuple(overridden),
        traffic=traffic,
        last_update=np.array([report.updated_ms for report in reports], dtype=np.int64),
        start_timestamp=np.array([report.started_ms for report in reports], dtype=np.int64),
        topics=np.array([report.num_topics for report in reports], dtype=np.int64),
        load_managers=tuple(report.load_manager for report in reports),
        versions=tuple(report.version for report in reports),
        persistent=tuple(report.persistent_topics_enabled for report in reports),
        non_persistent=tuple(report.non_persistent_topics_enabled for report in reports),
    )


def _apply_capacity(override: CapacityOverride, usage: Floats, limit: Floats, from_traffic: Bools) -> tuple[str, ...]:
    """Set in place the limits that the override replaces or ignores; return the names of these resources.

    `usage`, `limit`, `from_traffic`: rows of one broker.
    """
    touched: list[str] = []
    if override.nic_gbps is not None:
        for resource in (BANDWIDTH_IN, BANDWIDTH_OUT):
            # A NIC without a reported limit has no reported usage either, so the bundles' traffic is used.
            from_traffic[resource] = not limit[resource] > 0
            limit[resource] = override.nic_gbps * 1e6
            touched.append(RESOURCES[resource])
    for resource, value in (
        (CPU, None if override.cores is None else override.cores * 100.0),
        (DIRECT_MEMORY, override.direct_memory_mb),
        (MSG_RATE, override.msg_rate),
        (THROUGHPUT, override.throughput),
    ):
        if value is not None:
            limit[resource] = value
            from_traffic[resource] = resource in (MSG_RATE, THROUGHPUT)
            touched.append(RESOURCES[resource])
    for name in override.ignore:
        for resource in (BANDWIDTH_IN, BANDWIDTH_OUT) if name == "bandwidth" else (RESOURCES.index(name),):
            limit[resource] = 0.0
            usage[resource] = 0.0
            from_traffic[resource] = False
            touched.append(RESOURCES[resource])
    return tuple(dict.fromkeys(touched))


def fill_from_traffic(usage: Floats, traffic: Floats, from_traffic: Bools) -> None:
    """Compute, in place, the usage of the resources in the mask `from_traffic` from the brokers' traffic."""
    derived = np.zeros_like(usage)
    derived[:, BANDWIDTH_IN] = traffic[:, THROUGHPUT_IN] * KILOBIT_PER_BYTE
    derived[:, BANDWIDTH_OUT] = traffic[:, THROUGHPUT_OUT] * KILOBIT_PER_BYTE
    derived[:, MSG_RATE] = traffic[:, RATE_IN] + traffic[:, RATE_OUT]
    derived[:, THROUGHPUT] = traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]
    np.copyto(usage, derived, where=from_traffic)


@dataclass(frozen=True, slots=True)
class _Named:
    """Names of all bundles of a snapshot, and their row numbers in `averages` (-1: not in it)."""

    names: list[str]
    rows: Ints
    averages: Averages


def _bundle_table(reports: Sequence[BrokerReport], keep: Sequence[Bools | None], named: _Named) -> BundleTable:
    names = named.names
    sizes = [len(r.bundle_names) if k is None else int(k.sum()) for r, k in zip(reports, keep, strict=True)]
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    latest = _stack(
        [r.bundle_traffic if k is None else r.bundle_traffic[k] for r, k in zip(reports, keep, strict=True)], 4
    )
    counts = _stack(
        [r.bundle_counts if k is None else r.bundle_counts[k] for r, k in zip(reports, keep, strict=True)], 3
    )
    short, long, samples = named.averages.columns(named.rows)
    # A stored average above 0 that rounds to 0 predicts nothing, so the present report replaces it.
    short = np.where((short > 0) & (np.round(short, _DECIMALS) == 0), latest, short)
    latest, short, long = (np.round(values, _DECIMALS) for values in (latest, short, long))
    namespaces, namespace = named.averages.namespaces(names, named.rows)
    # The namespace alone shows a system bundle, so the check runs once per namespace.
    system_namespace = np.array([is_system_bundle(f"{text}/x") for text in namespaces], dtype=bool)
    return BundleTable(
        names=tuple(names),
        starts=starts,
        owner=np.repeat(np.arange(len(reports), dtype=np.int64), sizes),
        namespaces=namespaces,
        namespace=namespace,
        latest=latest,
        short=short,
        long=long,
        samples=samples,
        counts=counts.astype(np.int64),
        system=system_namespace[namespace] if names else np.zeros(0, dtype=bool),
    )


def _stack(parts: list[Floats] | list[Ints], width: int) -> Floats:
    return np.concatenate(parts) if parts else np.zeros((0, width))


def _without_duplicates(reports: Sequence[BrokerReport], names: list[str], rows: Ints) -> list[Bools | None]:
    """Return, for each report, a mask without the bundles that a newer report lists too; None: keep all bundles."""
    has_row = rows >= 0
    unknown = [names[place] for place in np.flatnonzero(~has_row).tolist()]
    if len(set(unknown)) == len(unknown) and not (np.bincount(rows[has_row]) > 1).any():
        return [None] * len(reports)
    claimed: dict[str, int] = {}
    for row, report in enumerate(reports):
        for name in report.bundle_names:
            other = claimed.setdefault(name, row)
            if other != row and report.updated_ms > reports[other].updated_ms:
                claimed[name] = row
    return [
        np.fromiter((claimed[n] == row for n in report.bundle_names), dtype=bool, count=len(report.bundle_names))
        for row, report in enumerate(reports)
    ]


def grouped(bundles: BundleTable, owner: Ints, brokers: int) -> BundleTable:
    """Return the bundles in the order of new owners; bundles without an owner are dropped.

    `owner`: row number of each bundle's new broker, -1: none. `brokers`: number of brokers.
    """
    order = np.argsort(owner, kind="stable")[np.count_nonzero(owner < 0) :]
    starts = np.zeros(brokers + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner[order], minlength=brokers), out=starts[1:])
    return replace(
        bundles,
        names=tuple(bundles.names[row] for row in order.tolist()),
        starts=starts,
        owner=owner[order],
        namespace=bundles.namespace[order],
        latest=bundles.latest[order],
        short=bundles.short[order],
        long=bundles.long[order],
        samples=bundles.samples[order],
        counts=bundles.counts[order],
        system=bundles.system[order],
    )


def digest_of(brokers: BrokerTable, bundles: BundleTable, excluded: tuple[ExcludedBroker, ...]) -> str:
    """Return 32 hex digits of SHA-256 over brokers and bundles: equal digests mean equal input of a plan."""
    sha = hashlib.sha256()
    for text in (brokers.ids, bundles.names, tuple(item.broker_id for item in excluded)):
        sha.update("\0".join(text).encode())
        sha.update(b"\1")
    for matrix in (
        brokers.usage,
        brokers.limit,
        brokers.from_traffic,
        brokers.traffic,
        brokers.last_update,
        brokers.start_timestamp,
        brokers.topics,
        brokers.takes_persistent(),
        bundles.starts,
        bundles.latest,
        bundles.short,
        bundles.long,
        bundles.samples,
        bundles.counts,
    ):
        sha.update(np.ascontiguousarray(matrix).tobytes())
    return sha.hexdigest()[:32]
