"""Input of Pulsar's own shedders and placements, as columns: one row per broker, and one row per bundle.

Rows have the order of the `ConcurrentHashMap`s in Java's `LoadData`, because sums depend on that order, and the first
of equal brokers is chosen. If a class iterates over its own `HashMap`, `hashes` determine the order of equal values;
without hashes, equal values have the order of the rows. A bundle in transit can be in the reports of two brokers, and
both can unload it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final

import numpy as np

from bundlekeel.compat.javamaps import table_of
from bundlekeel.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats, Ints
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Bools

# `ModularLoadManagerImpl`: traffic of a bundle without data, in msg/s, msg/s, bytes/s, bytes/s.
DEFAULT_TRAFFIC: Final = (50.0, 50.0, 50_000.0, 50_000.0)

# Namespaces of heartbeats and SLA monitors; only `getBundleDataForLoadShedding` checks them. Since 4.1, the pattern
# does not match three-part (v1) namespaces any more, and their bundles are shed like all others.
_WORD: Final = r"[-=:.\w]+"
_BROKER: Final = r"[-=.\w]+:[0-9]+"
_MONITORS: Final = re.compile(rf"(?:pulsar|sla-monitor)/{_BROKER}", re.ASCII)
_MONITORS_4_0: Final = re.compile(rf"pulsar/(?:{_WORD}/)?{_BROKER}|sla-monitor/{_WORD}/{_BROKER}", re.ASCII)
_SUSPECTS: Final = ("pulsar/", "sla-monitor/")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BundleColumns:
    """`BundleData` of every known bundle, one row per bundle.

    index: row by name; empty if no name has to be looked up.
    short, long: short-term and long-term average traffic, columns as in `model.load.TRAFFIC`.
    samples: shape (n, 4), maximum and present number of short-term samples, then of long-term samples.
    topics: number of topics.
    suspects: rows whose names may be those of heartbeats or SLA monitors.
    hashes: spread hashes of the names in Java's maps; None: bundles with equal values are in the order of rows.
    """

    names: Sequence[str]
    index: Mapping[str, int]
    short: Floats
    long: Floats
    samples: Ints
    topics: Ints
    suspects: tuple[int, ...]
    hashes: Ints | None = None

    def monitors(self, release: str) -> list[int]:
        """Return the rows of heartbeat and SLA bundles, by the rule of this release."""
        pattern = _MONITORS_4_0 if release == "4.0" else _MONITORS
        return [row for row in self.suspects if pattern.fullmatch(namespace_of(self.names[row]))]


def suspects(names: Sequence[str]) -> tuple[int, ...]:
    """Return the rows of the names that may be those of heartbeats or SLA monitors."""
    return tuple(row for row, name in enumerate(names) if name.startswith(_SUSPECTS))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompatPicture:
    """Content of one `LoadData`, which Pulsar passes to a shedder. All arrays about brokers have one row per broker.

    brokers: broker ids.
    percent: usage in percent of the limit, in float32 precision; columns CPU, direct memory, bandwidth in and out.
    traffic: the load reports' totals, columns as in `model.load.TRAFFIC`.
    bundle_count: number of bundles in each load report, including bundles without `BundleData`.
    starts, held: broker b's bundles with `BundleData` are `held[starts[b]:starts[b + 1]]`, rows of `bundles`.
    stats: bundle names in each load report's `lastStats`, in their order; None: each broker has the bundles in `held`.
    bundles: the known bundles.
    recent: rows (in `bundles`) of recently unloaded bundles.
    excluded: load reports and `BundleData` that Pulsar cannot use, as (broker or bundle, reason).
    hashes: spread hashes of the broker ids in Java's maps; None: brokers with equal values are in the order of rows.
    """

    brokers: tuple[str, ...]
    percent: Floats
    traffic: Floats
    bundle_count: Ints
    starts: Ints
    held: Ints
    stats: tuple[Collection[str], ...] | None
    bundles: BundleColumns
    recent: tuple[int, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()
    hashes: Ints | None = None

    def stat_rows(self) -> tuple[Ints, Ints]:
        """Return (broker rows, bundle rows): one pair per bundle in the load reports, in the order of the reports.

        Bundle row -1: the bundle has no `BundleData`.
        """
        if self.stats is None:
            return np.repeat(np.arange(len(self.brokers)), np.diff(self.starts)), self.held
        counts = [len(names) for names in self.stats]
        numbers = map(self.bundles.index.get, chain.from_iterable(self.stats), repeat(-1))
        rows: Ints = np.fromiter(numbers, dtype=np.int64, count=sum(counts))
        return np.repeat(np.arange(len(counts)), counts), rows

    def rate(self) -> Floats:
        """Return the sum of msg/s in and out of every broker."""
        return total(self.traffic, RATE_IN, RATE_OUT)

    def throughput(self) -> Floats:
        """Return the sum of bytes/s in and out of every broker."""
        return total(self.traffic, THROUGHPUT_IN, THROUGHPUT_OUT)

    def usage(self, params: Parameters) -> Floats:
        """Return `getMaxResourceUsageWithWeight` of every broker, as a ratio.

        NaN is ignored; -inf if all values are NaN.
        """
        weights = (
            params.cpu_weight,
            params.direct_memory_weight,
            params.bandwidth_in_weight,
            params.bandwidth_out_weight,
        )
        best = np.full(len(self.brokers), -np.inf)
        with np.errstate(invalid="ignore"):
            for column, weight in enumerate(weights):
                weighted = self.percent[:, column] * weight
                best = np.where(weighted > best, weighted, best)
        scored: Floats = best / 100
        return scored

    def movable(self, release: str) -> Movable:
        """Return the bundles that may be shed: neither recently unloaded, nor of a heartbeat or SLA monitor."""
        monitors, hashes = self.bundles.monitors(release), self.bundles.hashes
        mask = np.ones(len(self.bundles.names), dtype=bool)
        mask[monitors] = False
        mask[list(self.recent)] = False
        # `getBundleDataForLoadShedding` fills a HashMap with all bundles except those of monitors.
        buckets = None if hashes is None else hashes & (table_of(len(mask) - len(monitors)) - 1)
        return Movable(self, mask, buckets)


@dataclass(frozen=True, slots=True)
class Movable:
    """A mask of the bundles that may be shed, and their buckets in Java's HashMap, which order equal values."""

    picture: CompatPicture
    mask: Bools
    buckets: Ints | None

    def ranked(self, broker: int, values: Floats) -> tuple[Ints, Floats]:
        """Return a broker's bundles (rows) and their values, largest first, in the order of Java's stable sort.

        NaN comes first, as in `Double.compare`.
        """
        starts = self.picture.starts
        rows = self.picture.held[starts[broker] : starts[broker + 1]]
        rows = rows[self.mask[rows]]
        sizes = values[rows]
        last: Ints = ~sort_key(sizes)
        order = np.lexsort((rows, last) if self.buckets is None else (rows, self.buckets[rows], last))
        return rows[order], sizes[order]


def percent(usage: Floats, limit: Floats) -> Floats:
    """Return `ResourceUsage.percentUsage`, computed in float32; 0 if the limit is not above 0."""
    limited = limit > 0
    with np.errstate(all="ignore"):
        ratio = usage.astype(np.float32) / np.where(limited, limit, 1.0).astype(np.float32)
        percentages: Floats = np.where(limited, (ratio * np.float32(100)).astype(np.float64), 0.0)
    return percentages


def total(traffic: Floats, first: int, second: int) -> Floats:
    """Return the sum of two columns of `traffic` in each row, as Java adds two doubles."""
    with np.errstate(invalid="ignore"):
        added: Floats = traffic[:, first] + traffic[:, second]
    return added


def sort_key(values: Floats) -> Ints:
    """Return integers that sort as `Double.compare` does: -0.0 below 0.0, NaN above infinity."""
    bits = values.view(np.int64)
    keys: Ints = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    blind = np.isnan(values)
    if blind.any():
        keys[blind] = 2**63 - 1
    return keys


def running_sum(values: Floats) -> float:
    """Return the sum of doubles, added one at a time (numpy's own `sum` adds in pairs)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.cumsum(values)[-1]) if len(values) else 0.0


def smoothed(before: Mapping[str, float], brokers: Sequence[str], usage: Floats, weight: float) -> Floats:
    """Return each broker's `history * weight + (1 - weight) * usage`, or its usage if it has no history."""
    has_history = np.array([broker in before for broker in brokers], dtype=bool)
    history = np.array([before.get(broker, 0.0) for broker in brokers], dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        mixed: Floats = np.where(has_history, history * weight + (1 - weight) * usage, usage)
    return mixed
