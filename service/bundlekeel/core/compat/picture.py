"""What Pulsar's own shedders and placements look at, as columns: one row a broker, one row a bundle.

Rows are in the order in which the `ConcurrentHashMap`s of Java's `LoadData` give them: running sums are made in that
order, and of equal brokers the first one counts. Where a class goes over a `HashMap` of its own, `hashes` give the
order of equals; without hashes that is the order of the rows. A bundle may stand in the reports of two brokers (in
transit), and then both may unload it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final

import numpy as np

from bundlekeel.core.compat.javamaps import table_of
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats, Ints
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.snapshot import Bools

# `ModularLoadManagerImpl`: what a bundle without any data is taken for, in msg/s, msg/s, bytes/s, bytes/s.
DEFAULT_TRAFFIC: Final = (50.0, 50.0, 50_000.0, 50_000.0)

# Namespaces of heartbeats and SLA monitors; only `getBundleDataForLoadShedding` looks at them. Since 4.1 a
# three-part (v1) namespace is no namespace any more, and its bundles are shed like any other's.
_WORD: Final = r"[-=:.\w]+"
_BROKER: Final = r"[-=.\w]+:[0-9]+"
_MONITORS: Final = {
    "4.0": re.compile(rf"pulsar/(?:{_WORD}/)?{_BROKER}|sla-monitor/{_WORD}/{_BROKER}", re.ASCII),
    "4.2": re.compile(rf"(?:pulsar|sla-monitor)/{_BROKER}", re.ASCII),
}
_SUSPECTS: Final = ("pulsar/", "sla-monitor/")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BundleColumns:
    """`BundleData` of every known bundle. Traffic columns as in `core.model.load.TRAFFIC`.

    `samples`: shape (n, 4), short maximum and number, long maximum and number. `suspects`: rows whose names look
    like those of heartbeats. `index`: row by name; empty where rows are known without looking up names. `hashes`:
    what Java's maps sort the names by, or None.
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
        """Rows of heartbeat and SLA bundles, by the rule of this release."""
        pattern = _MONITORS[release]
        return [row for row in self.suspects if pattern.fullmatch(namespace_of(self.names[row]))]


def suspects(names: Sequence[str]) -> tuple[int, ...]:
    """Rows of the names that may be those of heartbeats or SLA monitors."""
    return tuple(row for row, name in enumerate(names) if name.startswith(_SUSPECTS))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompatPicture:
    """One `LoadData`. `percent`: shape (b, 4), float32 values of CPU, direct memory, bandwidth in and out.

    `traffic`: shape (b, 4), what the reports say. `bundle_count`: how many bundles a report names, known or not.
    The known ones of broker b are `held[starts[b]:starts[b + 1]]` (rows of `bundles`), in any order. `stats`: the
    names in its `lastStats`, in their order, or None when those are just the bundles it holds. `recent`: rows of
    bundles unloaded recently. `excluded`: (broker or bundle, why) for records that Pulsar cannot use. `hashes`: what
    Java's maps sort the brokers' names by, or None.
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
        """(owner, row) of every figure in the reports, in their order; row -1 where no data is known."""
        if self.stats is None:
            return np.repeat(np.arange(len(self.brokers)), np.diff(self.starts)), self.held
        counts = [len(names) for names in self.stats]
        known = map(self.bundles.index.get, chain.from_iterable(self.stats), repeat(-1))
        rows: Ints = np.fromiter(known, dtype=np.int64, count=sum(counts))
        return np.repeat(np.arange(len(counts)), counts), rows

    def rate(self) -> Floats:
        """msg/s in and out of every broker."""
        return total(self.traffic, RATE_IN, RATE_OUT)

    def throughput(self) -> Floats:
        """Bytes/s in and out of every broker."""
        return total(self.traffic, THROUGHPUT_IN, THROUGHPUT_OUT)

    def usage(self, params: Parameters) -> Floats:
        """`getMaxResourceUsageWithWeight`: ratio per broker; NaN never wins, and nothing at all gives -inf."""
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
        """The bundles that may be shed at all: neither unloaded recently nor of a heartbeat or SLA monitor."""
        monitors, hashes = self.bundles.monitors(release), self.bundles.hashes
        mask = np.ones(len(self.bundles.names), dtype=bool)
        mask[monitors] = False
        mask[list(self.recent)] = False
        # `getBundleDataForLoadShedding` fills a HashMap with all but the monitors.
        buckets = None if hashes is None else hashes & (table_of(len(mask) - len(monitors)) - 1)
        return Movable(self, mask, buckets)


@dataclass(frozen=True, slots=True)
class Movable:
    """Which bundles may be shed, and the buckets in which a HashMap gives equal ones."""

    picture: CompatPicture
    mask: Bools
    buckets: Ints | None

    def ranked(self, broker: int, values: Floats) -> tuple[Ints, Floats]:
        """A broker's bundles (rows) and their values, largest first; NaN comes before everything, as
        `Double.compare` has it, and equal ones come as Java's stable sort leaves them."""
        starts = self.picture.starts
        rows = self.picture.held[starts[broker] : starts[broker + 1]]
        rows = rows[self.mask[rows]]
        found = values[rows]
        last: Ints = ~sort_key(found)
        order = np.lexsort((rows, last) if self.buckets is None else (rows, self.buckets[rows], last))
        return rows[order], found[order]


def percent(usage: Floats, limit: Floats) -> Floats:
    """`ResourceUsage.percentUsage`: float32 all the way, 0 where the limit is not above 0."""
    seen = limit > 0
    with np.errstate(all="ignore"):
        ratio = usage.astype(np.float32) / np.where(seen, limit, 1.0).astype(np.float32)
        found: Floats = np.where(seen, (ratio * np.float32(100)).astype(np.float64), 0.0)
    return found


def total(traffic: Floats, first: int, second: int) -> Floats:
    """The sum of two columns, as Java adds a pair of doubles."""
    with np.errstate(invalid="ignore"):
        added: Floats = traffic[:, first] + traffic[:, second]
    return added


def sort_key(values: Floats) -> Ints:
    """Whole numbers that sort as `Double.compare` does: -0.0 below 0.0, NaN above infinity."""
    bits = values.view(np.int64)
    keys: Ints = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    blind = np.isnan(values)
    if blind.any():
        keys[blind] = 2**63 - 1
    return keys


def running_sum(values: Floats) -> float:
    """The sum of doubles added one after the other (numpy's own `sum` adds in pairs)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.cumsum(values)[-1]) if len(values) else 0.0


def smoothed(before: Mapping[str, float], brokers: Sequence[str], usage: Floats, weight: float) -> Floats:
    """`history * weight + (1 - weight) * usage`; the usage itself for a broker that has no history yet."""
    known = np.array([broker in before for broker in brokers], dtype=bool)
    history = np.array([before.get(broker, 0.0) for broker in brokers], dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        mixed: Floats = np.where(known, history * weight + (1 - weight) * usage, usage)
    return mixed
