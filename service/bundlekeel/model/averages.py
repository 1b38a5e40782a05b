"""Short-term and long-term averages of every bundle's traffic, as arrays with one row per bundle.

Rule (`TimeAverageMessageData`): n = min(n + 1, max), x = ((n - 1) * x + sample) / n. Here x is the average, n its
number of samples, and max is 10 (short term) or 1,000 (long term). A sample is added only if a broker's `lastUpdate`
has changed. Brokers themselves add a sample at every notification of any broker, so their "10 samples" are mostly
copies of one report (docs/concepts/averages.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import repeat

import numpy as np

from bundlekeel.model.load import BrokerReport, BundleAverages, Floats, Ints
from bundlekeel.model.names import namespace_of

SHORT_SAMPLES = 10
LONG_SAMPLES = 1000
# Pulsar's assumption for a bundle without measurements: 50 msg/s and 50,000 B/s in each direction.
DEFAULT_TRAFFIC = (50.0, 50.0, 50_000.0, 50_000.0)


class Averages:
    """Mutable table of averages, one row per bundle; the sidecar owns it, and snapshots copy from it.

    Traffic has the columns of `model.load.TRAFFIC`. A bundle that no report contains any more stays for some time,
    because a bundle in transit must not lose its history (Pulsar issue 20544).
    """

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._names: list[str] = []
        self._short: Floats = np.zeros((0, 4))
        self._long: Floats = np.zeros((0, 4))
        self._samples: Ints = np.zeros((0, 2), dtype=np.int64)
        self._topics: Ints = np.zeros(0, dtype=np.int64)
        self._seen: Ints = np.zeros(0, dtype=np.int64)
        # Each row's namespace, as an index into `_namespaces`, which contains all namespaces ever added.
        self._namespace: Ints = np.zeros(0, dtype=np.int64)
        self._namespaces: dict[str, int] = {}
        # By broker: stamp and bundles of the last added report, and the rows of these bundles.
        self._reported: dict[str, tuple[tuple[int, int], Sequence[str], Ints]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, bundle: str) -> bool:
        return bundle in self._index

    def unknown(self, bundles: Iterable[str]) -> list[str]:
        """Return those of `bundles` that are not in this table; `seed` them before their first sample is added."""
        return [name for name in bundles if name not in self._index]

    def seed(self, stored: Iterable[BundleAverages]) -> None:
        """Add bundles that are not in this table, with averages stored earlier; bundles in the table do not change."""
        fresh = [item for item in stored if item.bundle not in self._index]
        if not fresh:
            return
        rows = self._rows([item.bundle for item in fresh])
        self._short[rows] = [item.short for item in fresh]
        self._long[rows] = [item.long for item in fresh]
        samples = [(item.short_samples, item.long_samples) for item in fresh]
        self._samples[rows] = np.clip(samples, 0, (SHORT_SAMPLES, LONG_SAMPLES))
        self._topics[rows] = [item.topics for item in fresh]

    def add_report(self, report: BrokerReport, *, now_ms: int, skip: Collection[str] = ()) -> bool:
        """Add one sample for each bundle of a report; return False if this report was added before.

        `skip`: bundles in transit, because a report during their move is not a measurement.
        """
        stamp = (report.start_timestamp, report.last_update)
        last = self._reported.get(report.broker_id)
        if last is not None and last[0] == stamp:
            # A broker with a steady load reports only every 15 minutes, and still has the bundles of its last report.
            self._seen[last[2]] = now_ms
            return False
        rows = self._rows(report.bundle_names)
        self._reported[report.broker_id] = (stamp, report.bundle_names, rows)
        self._seen[rows] = now_ms
        traffic, counts = report.bundle_traffic, report.bundle_counts
        if skip:
            keep = np.fromiter((name not in skip for name in report.bundle_names), dtype=bool, count=len(rows))
            rows, traffic, counts = rows[keep], traffic[keep], counts[keep]
        if len(rows) == 0:
            return True
        samples = self._samples[rows] + 1
        np.minimum(samples[:, 0], SHORT_SAMPLES, out=samples[:, 0])
        np.minimum(samples[:, 1], LONG_SAMPLES, out=samples[:, 1])
        short_n, long_n = samples[:, 0:1], samples[:, 1:2]
        self._short[rows] = ((short_n - 1) * self._short[rows] + traffic) / short_n
        self._long[rows] = ((long_n - 1) * self._long[rows] + traffic) / long_n
        self._samples[rows] = samples
        self._topics[rows] = counts[:, 0]
        return True

    def touch(self, bundles: Iterable[str], now_ms: int) -> None:
        """Protect bundles in transit, which no report contains, from the next `forget_unseen`. `now_ms`: Unix ms."""
        rows = self.rows(list(bundles))
        self._seen[rows[rows >= 0]] = now_ms

    def forget_unseen(self, before_ms: int) -> int:
        """Drop the bundles that no report contained since `before_ms` (Unix ms); return how many were dropped."""
        keep = self._seen >= before_ms
        dropped = len(self._names) - int(keep.sum())
        if dropped:
            self._names = [name for name, keeps in zip(self._names, keep, strict=True) if keeps]
            self._index = {name: row for row, name in enumerate(self._names)}
            self._short, self._long = self._short[keep], self._long[keep]
            self._samples, self._topics, self._seen = self._samples[keep], self._topics[keep], self._seen[keep]
            self._namespace = self._namespace[keep]
            moved_to = np.cumsum(keep) - 1
            self._reported = {
                broker: (stamp, names, moved_to[rows[keep[rows]]])
                for broker, (stamp, names, rows) in self._reported.items()
                if keep[rows].any()
            }
        return dropped

    def rows(self, bundles: Sequence[str]) -> Ints:
        """Return the row number of each bundle in this table; -1 if a bundle is not in it."""
        return np.fromiter(map(self._index.get, bundles, repeat(-1)), dtype=np.int64, count=len(bundles))

    def rows_of(self, report: BrokerReport) -> Ints:
        """Return the row number of each bundle of a report (see `rows`); cached for a broker's last added report."""
        names, last = report.bundle_names, self._reported.get(report.broker_id)
        # Some rows of that report may have been dropped since.
        if last is None or last[1] is not names or len(last[2]) != len(names):
            return self.rows(names)
        return last[2]

    def namespaces(self, bundles: Sequence[str], rows: Ints) -> tuple[tuple[str, ...], Ints]:
        """Return the namespaces of these bundles in order of first appearance, and each bundle's index into them.

        `rows`: row number of each bundle in this table, -1: not in it. Names of bundles with a row are not parsed.
        """
        numbers = dict(self._namespaces)
        codes = self._namespace[rows] if len(self._names) else np.zeros(len(bundles), dtype=np.int64)
        for row in np.flatnonzero(rows < 0).tolist():
            codes[row] = numbers.setdefault(namespace_of(bundles[row]), len(numbers))
        present, first, place = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        texts = tuple(numbers)
        return tuple(texts[code] for code in present[order].tolist()), rank[place]

    def columns(self, rows: Ints) -> tuple[Floats, Floats, Ints]:
        """Return the averages of bundles by their row numbers.

        They are the short-term and the long-term traffic, shape (n, 4), and the number of samples of both, shape (n,
        2). Row -1 (a bundle that is not in this table) gives Pulsar's default traffic and 0 samples.
        """
        if len(self._names) == 0:
            filled = np.tile(np.array(DEFAULT_TRAFFIC), (len(rows), 1))
            return filled, filled.copy(), np.zeros((len(rows), 2), dtype=np.int64)
        short, long, samples = self._short[rows], self._long[rows], self._samples[rows]
        missing = rows < 0
        if missing.any():
            short[missing] = DEFAULT_TRAFFIC
            long[missing] = DEFAULT_TRAFFIC
            samples[missing] = 0
        return short, long, samples

    def of(self, bundle: str) -> BundleAverages | None:
        """Return the averages of one bundle, or None if it is not in this table."""
        row = self._index.get(bundle)
        return None if row is None else self.export(row, row + 1)[0]

    def copy(self) -> Averages:
        """Return an independent copy."""
        twin = Averages()
        vars(twin).update({name: value.copy() for name, value in vars(self).items()})
        return twin

    def export(self, start: int = 0, end: int | None = None) -> list[BundleAverages]:
        """Return the averages of all bundles, or of the rows from `start` to before `end`, to store them."""
        rows = slice(start, end)
        columns = (column[rows].tolist() for column in (self._short, self._long, self._samples, self._topics))
        return [
            BundleAverages(
                bundle=name,
                short=tuple(short),
                long=tuple(long),
                short_samples=short_samples,
                long_samples=long_samples,
                topics=topics,
            )
            for name, short, long, (short_samples, long_samples), topics in zip(
                self._names[rows], *columns, strict=True
            )
        ]

    def _rows(self, bundles: Sequence[str]) -> Ints:
        """Return the row number of each bundle; bundles without a row get one, with Pulsar's default traffic."""
        index = self._index
        added = [name for name in bundles if name not in index]
        if added:
            start = len(self._names)
            added = list(dict.fromkeys(added))
            for offset, name in enumerate(added):
                index[name] = start + offset
            self._names.extend(added)
            extra = len(added)
            defaults = np.tile(np.array(DEFAULT_TRAFFIC), (extra, 1))
            self._short = np.concatenate([self._short, defaults])
            self._long = np.concatenate([self._long, defaults])
            self._samples = np.concatenate([self._samples, np.zeros((extra, 2), dtype=np.int64)])
            self._topics = np.concatenate([self._topics, np.zeros(extra, dtype=np.int64)])
            self._seen = np.concatenate([self._seen, np.zeros(extra, dtype=np.int64)])
            namespaces = self._namespaces
            codes = [namespaces.setdefault(namespace_of(name), len(namespaces)) for name in added]
            self._namespace = np.concatenate([self._namespace, np.array(codes, dtype=np.int64)])
        return np.fromiter(map(index.__getitem__, bundles), dtype=np.int64, count=len(bundles))
