"""The working copy that a plan is made on: predicted load of every broker while moves are added one by one.

A bundle's pressure on a resource is the broker's usage times the bundle's share of the broker's traffic (short-term
averages): bandwidth in by bytes in, bandwidth out by bytes out, direct memory by bytes, CPU by the mean of its shares
of messages and bytes. On the target it is the same absolute amount against the target's own limit, so unequal
brokers are compared fairly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bundlekeel.core.ledger import Entry, Ledger
from bundlekeel.core.load import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    DIRECT_MEMORY,
    MSG_RATE,
    RATE_IN,
    RATE_OUT,
    REPORTED_RESOURCES,
    RESOURCES,
    THROUGHPUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Floats,
    Ints,
)
from bundlekeel.core.params import Parameters
from bundlekeel.core.plan import BrokerLoad, Move, Traffic4
from bundlekeel.core.snapshot import Bools, Snapshot, fill_from_traffic, percent_usage


def weights_of(params: Parameters) -> Floats:
    """Weights in the order of `RESOURCES`; resources that only overrides define count fully."""
    return np.array(
        [
            params.cpu_weight,
            params.direct_memory_weight,
            params.bandwidth_in_weight,
            params.bandwidth_out_weight,
            1.0,
            1.0,
        ]
    )


def score_of(usage: Floats, limit: Floats, weights: Floats) -> Floats:
    """Max weighted usage as a ratio (`getMaxResourceUsageWithWeight`), one value a row."""
    scored: Floats = (percent_usage(usage, limit) * weights).max(axis=1, initial=0.0) / 100
    return scored


def _share(part: Floats, total: float) -> Floats:
    shared: Floats = part / total if total > 0 else np.zeros_like(part)
    return shared


@dataclass(frozen=True, slots=True)
class Offer:
    """The bundles of one broker against one target, row by row of `rows`: what each would do to both scores."""

    rows: Ints
    source_after: Floats
    target_after: Floats


class Draft:
    """Predicted state of the cluster; mutable, lives for one `plan()` call."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, params: Parameters) -> None:
        brokers = snapshot.brokers
        self.snapshot = snapshot
        self.params = params
        self.weights = weights_of(params)
        self.limit = brokers.limit
        self.reported = score_of(brokers.usage, brokers.limit, self.weights)
        self.usage = brokers.usage.copy()
        self.traffic = brokers.traffic.copy()
        self.bundle_count = np.diff(snapshot.bundles.starts).astype(np.int64)
        self.topics = brokers.topics.copy()
        self.moved: Bools = np.zeros(len(snapshot.bundles), dtype=bool)
        self.in_books: Bools = np.zeros(len(snapshot.bundles), dtype=bool)
        self._leaving: Bools = np.zeros(len(snapshot.bundles), dtype=bool)
        self._incoming: Floats = np.zeros_like(brokers.traffic)
        self.moves: list[Move] = []
        self._pressure: dict[int, Floats] = {}
        self._long_rate: Floats | None = None
        self._apply_ledger(ledger)
        self.score = score_of(self.usage, self.limit, self.weights)
        self._before = (self.score.copy(), self.traffic.copy(), self.bundle_count.copy())

    # --- books ---

    def _apply_ledger(self, ledger: Ledger) -> None:
        if not ledger.entries:
            return
        snapshot, index = self.snapshot, {broker: row for row, broker in enumerate(self.snapshot.brokers.ids)}
        for baseline in ledger.baselines:
            row = index.get(baseline.broker)
            if row is not None:
                host = ~snapshot.brokers.from_traffic[row, :REPORTED_RESOURCES]
                self.usage[row, :REPORTED_RESOURCES][host] = np.array(baseline.usage)[host]
        rows = {name: row for row, name in enumerate(snapshot.bundles.names)}
        for entry in ledger.entries:
            self._apply_entry(entry, index, rows.get(entry.bundle, -1))
        np.maximum(self.usage, 0.0, out=self.usage)
        np.maximum(self.traffic, 0.0, out=self.traffic)
        fill_from_traffic(self.usage, self.traffic, snapshot.brokers.from_traffic)

    def _apply_entry(self, entry: Entry, index: dict[str, int], bundle_row: int) -> None:
        bundles = self.snapshot.bundles
        owner = int(bundles.owner[bundle_row]) if bundle_row >= 0 else -1
        if bundle_row >= 0:
            self.in_books[bundle_row] = True
        expected = np.array(entry.traffic)
        pressure = np.array(entry.pressure)
        pressure[REPORTED_RESOURCES:] = 0.0
        source, target = index.get(entry.source, -1), index.get(entry.target, -1)
        if source >= 0 and not entry.source_settled:
            self.usage[source] -= pressure
            if owner == source and source != target:
                self._leaving[bundle_row] = True
                self.traffic[source] -= bundles.latest[bundle_row]
                self.bundle_count[source] -= 1
        if target >= 0 and not entry.target_settled:
            self.usage[target] += pressure
            here = owner == target
            self.traffic[target] += expected - (bundles.latest[bundle_row] if here else 0.0)
            self.bundle_count[target] += 0 if here else 1
            if not here:
                self._incoming[target] += expected

    # --- pressures and offers ---

    def pressure(self, broker: int) -> Floats:
        """What each of the broker's reported bundles uses of each resource; shape (n, 6), absolute units."""
        known = self._pressure.get(broker)
        if known is None:
            known = self._pressure[broker] = self._compute_pressure(broker)
        return known

    def _compute_pressure(self, broker: int) -> Floats:
        rows = self.snapshot.bundles.rows_of(broker)
        short = self.snapshot.bundles.short[rows]
        here = np.where(self._leaving[rows][:, None], 0.0, short)
        totals = here.sum(axis=0) + self._incoming[broker]
        share = np.divide(here, totals, out=np.zeros_like(here), where=totals > 0)
        rate_share = _share(here[:, RATE_IN] + here[:, RATE_OUT], totals[RATE_IN] + totals[RATE_OUT])
        size_share = _share(
            here[:, THROUGHPUT_IN] + here[:, THROUGHPUT_OUT], totals[THROUGHPUT_IN] + totals[THROUGHPUT_OUT]
        )
        shares = np.zeros((len(here), len(RESOURCES)))
        shares[:, CPU] = (rate_share + size_share) / 2
        shares[:, DIRECT_MEMORY] = size_share
        shares[:, BANDWIDTH_IN] = share[:, THROUGHPUT_IN]
        shares[:, BANDWIDTH_OUT] = share[:, THROUGHPUT_OUT]
        shares[:, MSG_RATE] = rate_share
        shares[:, THROUGHPUT] = size_share
        computed: Floats = shares * self.usage[broker]
        return computed

    def movable(self, broker: int, eligible: Bools) -> Ints:
        """Rows of the broker's bundles that may still be chosen: eligible, not moved yet, not in the books."""
        rows = self.snapshot.bundles.rows_of(broker)
        free = eligible[rows] & ~self.moved[rows] & ~self.in_books[rows]
        found: Ints = np.flatnonzero(free) + rows.start
        return found

    def offer(self, rows: Ints, source: int, target: int) -> Offer:
        """What moving each of these bundles, alone, from `source` to `target` would do to both scores."""
        start = int(self.snapshot.bundles.starts[source])
        pressure = self.pressure(source)[rows - start]
        source_after = np.maximum(self.usage[source] - pressure, 0.0)
        target_after = self.usage[target] + pressure
        return Offer(
            rows,
            score_of(source_after, self.limit[source], self.weights),
            score_of(target_after, self.limit[target], self.weights),
        )

    def long_rate(self) -> Floats:
        """Long-term msg/s in and out per broker (`TimeAverageBrokerData`), moves of this draft included."""
        if self._long_rate is None:
            bundles = self.snapshot.bundles
            per_bundle = bundles.long[:, RATE_IN] + bundles.long[:, RATE_OUT]
            summed = np.bincount(bundles.owner, weights=per_bundle, minlength=len(self.score))
            self._long_rate = summed.astype(np.float64)
        return self._long_rate

    def traffic_of(self, row: int) -> Traffic4:
        """Short-term traffic of a bundle as a plain tuple."""
        a, b, c, d = (float(value) for value in self.snapshot.bundles.short[row])
        return a, b, c, d

    # --- moving ---

    def take(self, row: int, source: int, target: int, *, rule: str, threshold: float, runner_up: int = -1) -> Move:
        """Add one move to the draft and update both brokers' predicted load."""
        bundles, ids = self.snapshot.bundles, self.snapshot.brokers.ids
        pressure = self.pressure(source)[row - int(bundles.starts[source])]
        before = float(self.score[source]), float(self.score[target])
        self.usage[source] = np.maximum(self.usage[source] - pressure, 0.0)
        self.usage[target] += pressure
        self.traffic[source] = np.maximum(self.traffic[source] - bundles.short[row], 0.0)
        self.traffic[target] += bundles.short[row]
        both = [source, target]
        self.score[both] = score_of(self.usage[both], self.limit[both], self.weights)
        self.bundle_count[source] -= 1
        self.bundle_count[target] += 1
        self.topics[source] -= bundles.counts[row, 0]
        self.topics[target] += bundles.counts[row, 0]
        if self._long_rate is not None:
            rate = bundles.long[row, RATE_IN] + bundles.long[row, RATE_OUT]
            self._long_rate[source] -= rate
            self._long_rate[target] += rate
        self.moved[row] = True
        move = Move(
            bundle=bundles.names[row],
            source=ids[source],
            target=ids[target],
            rule=rule,
            threshold=threshold,
            source_before=before[0],
            source_after=float(self.score[source]),
            target_before=before[1],
            target_after=float(self.score[target]),
            runner_up=ids[runner_up] if runner_up >= 0 else "",
            traffic=self.traffic_of(row),
            pressure=tuple(float(value) for value in pressure),
        )
        self.moves.append(move)
        return move

    def loads(self) -> tuple[BrokerLoad, ...]:
        """The table before and after, one row a broker, in id order."""
        score, traffic, count = self._before
        return tuple(
            BrokerLoad(
                broker=broker,
                score_before=float(score[row]),
                score_after=float(self.score[row]),
                msg_rate_before=float(traffic[row, RATE_IN] + traffic[row, RATE_OUT]),
                msg_rate_after=float(self.traffic[row, RATE_IN] + self.traffic[row, RATE_OUT]),
                throughput_before=float(traffic[row, THROUGHPUT_IN] + traffic[row, THROUGHPUT_OUT]),
                throughput_after=float(self.traffic[row, THROUGHPUT_IN] + self.traffic[row, THROUGHPUT_OUT]),
                bundles_before=int(count[row]),
                bundles_after=int(self.bundle_count[row]),
            )
            for row, broker in enumerate(self.snapshot.brokers.ids)
        )
