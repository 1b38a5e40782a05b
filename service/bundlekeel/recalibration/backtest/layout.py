"""The broker of each bundle in one candidate's run, and the tables of a snapshot with these owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.names import parse_bundle
from bundlekeel.model.snapshot import Bools, BrokerTable, BundleTable, fill_from_traffic
from bundlekeel.planning.splitting.children import children_of
from bundlekeel.recalibration.backtest.periods import StaticTraits, TrafficPeriod
from bundlekeel.recalibration.backtest.traffic import NO_BROKER

_DECIMALS = 3


class BundlePieces:
    """The bundles of one run: recorded bundles, and halves of bundles that the candidate split.

    A bundle here is called a piece. column: index of the recorded bundle that the piece is a part of; `share`: its part
    of that bundle's traffic, 0 to 1. owner: index of its broker, -1: none yet. rank: place in the order of names, in
    which brokers report. A half is visible in the periods in which its recorded bundle was reported. `version` changes
    with every move and split.
    """

    def __init__(self, bundles: tuple[str, ...], owner: Ints) -> None:
        count = len(bundles)
        self.names: list[str] = list(bundles)
        self.place = {name: row for row, name in enumerate(bundles)}
        self.column: Ints = np.arange(count, dtype=np.int64)
        self.share: Floats = np.ones(count)
        self.owner: Ints = owner.copy()
        self.alive: Bools = np.ones(count, dtype=bool)
        self.rank: Ints = np.arange(count, dtype=np.int64)
        self.whole = True
        self.version = 0
        self._texts = np.array(self.names, dtype=object)

    def texts(self, rows: Ints) -> tuple[str, ...]:
        """Return the names of the pieces (bundles or halves) with these indices."""
        return tuple(self._texts[rows].tolist())

    def move(self, row: int, owner: int) -> None:
        """Set the owner of a piece (bundle or half) to another broker, by index."""
        self.owner[row] = owner
        self.version += 1

    def split(self, row: int, at: int) -> None:
        """Split a piece at hash `at` into two halves at the same broker. Each half gets half of the traffic."""
        column, share, owner = int(self.column[row]), float(self.share[row]) / 2, int(self.owner[row])
        self.alive[row] = False
        self._add([(name, column, share, owner, True) for name in children_of(self.names[row], (at,))])

    def onto(self, bundles: tuple[str, ...], recorded: Ints, brokers: Ints) -> BundlePieces:
        """Return these pieces at the same brokers, with the indices of the next part of the history.

        bundles: names of the recorded bundles there. recorded: their owners, used for bundles that are new or whose
        broker is absent. brokers: new index by old index of a broker, -1: absent; the additional last entry is -1.
        """
        pieces = BundlePieces(bundles, recorded)
        place = dict(pieces.place)
        halves = []
        for row, (name, column) in enumerate(zip(self.names, self.column.tolist(), strict=True)):
            there = place.get(self.names[column])
            if there is None:
                continue
            home = int(brokers[self.owner[row]])
            owner = home if home >= 0 else int(recorded[there])
            if row == column:
                pieces.owner[there], pieces.alive[there] = owner, self.alive[row]
            else:
                halves.append((name, there, float(self.share[row]), owner, bool(self.alive[row])))
        if halves:
            pieces._add(halves)
        return pieces

    def _add(self, pieces: Sequence[tuple[str, int, float, int, bool]]) -> None:
        """Add pieces, each as (name, column, share, owner, alive)."""
        names, column, share, owner, alive = zip(*pieces, strict=True)
        self.place |= {name: len(self.names) + number for number, name in enumerate(names)}
        self.names += names
        self.column = np.append(self.column, np.array(column, dtype=np.int64))
        self.share = np.append(self.share, share)
        self.owner = np.append(self.owner, np.array(owner, dtype=np.int64))
        self.alive = np.append(self.alive, alive)
        self._texts = np.array(self.names, dtype=object)
        self.rank = np.empty(len(self.names), dtype=np.int64)
        self.rank[np.argsort(self._texts, kind="stable")] = np.arange(len(self.names))
        self.whole = False
        self.version += 1

    def appear(self, row: int, parent: int, recorded: int) -> None:
        """Set the owner of a recorded bundle that appears for the first time.

        `parent`: the bundle that it was split from, -1: none. The new bundle gets the owner that its parent (or the
        half of the parent that contains it) has in this run. Without a parent, it gets the recorded owner.
        """
        home = NO_BROKER
        if parent != NO_BROKER:
            home = int(self.owner[parent])
            child = parse_bundle(self.names[row])
            for half in np.flatnonzero((self.column == parent) & self.alive).tolist():
                wide = parse_bundle(self.names[half])
                if wide.lower <= child.lower and child.upper <= wide.upper:
                    home = int(self.owner[half])
        self.place[self.names[row]] = row
        self.move(row, home if home >= 0 else recorded)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipLayout:
    """Arrays of a snapshot that depend only on the owners of bundles and on which brokers are present.

    here: indices of the present brokers. rows: pieces (bundles or halves) in the order of the snapshot; `owner`: row of
    each piece's broker. apart: pieces that are not at their recorded broker. touched (B,): whether the load of a broker
    differs from the recorded load for this reason.
    """

    here: Ints
    rows: Ints
    owner: Ints
    starts: Ints
    names: tuple[str, ...]
    namespaces: tuple[str, ...]
    namespace: Ints
    system: Bools
    apart: Ints
    touched: Bools
    ids: tuple[str, ...]


def layout_of(pieces: BundlePieces, period: TrafficPeriod, traits: StaticTraits) -> OwnershipLayout:
    """Return the owners and the order of the pieces (bundles and halves) that are visible in a period."""
    brokers = period.traffic.brokers
    here = np.flatnonzero(period.traffic.present[period.number])
    row_of = np.full(len(brokers) + 1, NO_BROKER, dtype=np.int64)  # the last entry is for pieces without a broker
    row_of[here] = np.arange(len(here))
    recorded = period.owner[pieces.column]
    reported = pieces.alive & (recorded >= 0)
    at = row_of[pieces.owner]
    visible = np.flatnonzero(reported & (at >= 0))
    rows = visible[np.lexsort((pieces.rank[visible], at[visible]))]
    starts = np.zeros(len(here) + 1, dtype=np.int64)
    np.cumsum(np.bincount(at[rows], minlength=len(here)), out=starts[1:])
    apart = np.flatnonzero(reported & (pieces.owner != recorded))
    touched = np.zeros(len(brokers) + 1, dtype=bool)
    touched[pieces.owner[apart]] = touched[recorded[apart]] = True
    namespaces, namespace = _namespaces(traits, pieces.column[rows])
    return OwnershipLayout(
        here=here,
        rows=rows,
        owner=at[rows],
        starts=starts,
        names=pieces.texts(rows),
        namespaces=namespaces,
        namespace=namespace,
        system=traits.system[pieces.column[rows]],
        apart=apart,
        touched=touched[:-1],
        ids=tuple(brokers[row] for row in here.tolist()),
    )


def _namespaces(traits: StaticTraits, columns: Ints) -> tuple[tuple[str, ...], Ints]:
    present, first, place = np.unique(traits.namespace[columns], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return tuple(traits.namespaces[code] for code in present[order].tolist()), rank[place]


def difference(layout: OwnershipLayout, pieces: BundlePieces, period: TrafficPeriod) -> tuple[Floats, Ints]:
    """Return the traffic (B, 4) and number of topics (B,) that each broker has more (or less) than recorded."""
    size, apart = len(layout.touched), layout.apart
    columns = pieces.column[apart]
    moved = np.column_stack([period.rates[columns], period.counts[columns, 0]]) * pieces.share[apart][:, None]
    to, off = pieces.owner[apart], period.owner[columns]
    sums = np.empty((size, moved.shape[1]))
    for number, weights in enumerate(moved.T):
        # A piece without a broker is in the last, extra bin.
        gained = np.bincount(np.where(to < 0, size, to), weights=weights, minlength=size + 1)
        sums[:, number] = gained[:size] - np.bincount(off, weights=weights, minlength=size)
    return sums[:, :4], np.rint(sums[:, 4]).astype(np.int64)


def broker_table(
    layout: OwnershipLayout, pieces: BundlePieces, period: TrafficPeriod, traits: StaticTraits, every_ms: int
) -> BrokerTable:
    """Return the brokers with the reports that they would write if they owned the bundles of this run.

    A broker with exactly its recorded bundles has its recorded report. The report of another broker is corrected for
    the traffic that it gained or lost, and is at most `every_ms` ms old.
    """
    here, traffic, number = layout.here, period.traffic, period.number
    usage, carried, topics = traffic.usage[number], traffic.carried[number], traffic.topics[number]
    reported = traffic.reported[number]
    if len(layout.apart):
        more, more_topics = difference(layout, pieces, period)
        touched = layout.touched
        usage, carried, topics, reported = usage.copy(), carried.copy(), topics + more_topics, reported.copy()
        carried[touched] = np.round(np.maximum(carried[touched] + more[touched], 0.0), _DECIMALS)
        new = np.maximum(usage[touched] + np.einsum("brk,bk->br", traffic.per_unit[touched], more[touched]), 0.0)
        fill_from_traffic(new, carried[touched], traits.from_traffic[touched])
        usage[touched] = np.round(new, _DECIMALS)
        latest_ms = period.wall_ms - period.wall_ms % every_ms
        reported[touched] = np.maximum(reported[touched], latest_ms)
    rows = here.tolist()
    return BrokerTable(
        ids=layout.ids,
        usage=usage[here],
        limit=period.limit[here],
        from_traffic=traits.from_traffic[here],
        overridden=tuple(traits.overridden[row] for row in rows),
        traffic=carried[here],
        last_update=reported[here],
        start_timestamp=traffic.started[number][here],
        topics=topics[here],
        load_managers=tuple(traits.load_managers[row] for row in rows),
        versions=tuple(traits.versions[row] for row in rows),
        persistent=_flags(traits.persistent, rows),
        non_persistent=_flags(traits.non_persistent, rows),
    )


def _flags(values: tuple[int, ...], rows: list[int]) -> tuple[bool, ...]:
    flags = [values[row] for row in rows]
    return () if NO_BROKER in flags else tuple(map(bool, flags))


def bundle_table(layout: OwnershipLayout, pieces: BundlePieces, period: TrafficPeriod) -> BundleTable:
    """Return the visible pieces (bundles and halves) with their values of this period."""
    columns = pieces.column[layout.rows]
    latest, short, long = (table[columns] for table in (period.rates, period.short, period.long))
    counts = period.counts[columns]
    if not pieces.whole:
        share = pieces.share[layout.rows][:, None]
        latest, short, long = (np.round(table * share, _DECIMALS) for table in (latest, short, long))
        counts = np.where(counts > 0, np.maximum(np.rint(counts * share).astype(np.int64), 1), counts)
    return BundleTable(
        names=layout.names,
        starts=layout.starts,
        owner=layout.owner,
        namespaces=layout.namespaces,
        namespace=layout.namespace,
        latest=latest,
        short=short,
        long=long,
        samples=period.samples[columns],
        counts=counts,
        system=layout.system,
    )
