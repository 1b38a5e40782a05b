"""The broker of each bundle in one candidate's run, and the tables of a snapshot with these owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.names import parse_bundle
from bundlekeel.model.snapshot import Bools, BrokerTable, BundleTable, fill_from_traffic
from bundlekeel.planning.splitting.children import children_of
from bundlekeel.recalibration.backtest.events import NONE, CycleEvent

_DECIMALS = 3


class BundlePieces:
    """The bundles of one run: recorded bundles, and halves of bundles that the candidate split.

    A bundle here is called a piece. column: number of the recorded bundle (`CycleEvent`) that the piece is a part of;
    `share`: its part of that bundle's traffic, 0 to 1. owner: number of its broker, -1: none yet. rank: place in the
    order of names, in which brokers report. A half is visible while its recorded bundle is reported. `version` changes
    with every move and split.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.place: dict[str, int] = {}
        self.column: Ints = np.zeros(0, dtype=np.int64)
        self.share: Floats = np.zeros(0)
        self.owner: Ints = np.zeros(0, dtype=np.int64)
        self.alive: Bools = np.zeros(0, dtype=bool)
        self.rank: Ints = np.zeros(0, dtype=np.int64)
        self.whole = True
        self.version = 0
        self._texts = np.array([], dtype=object)

    def texts(self, rows: Ints) -> tuple[str, ...]:
        """Return the names of the pieces (bundles or halves) with these indices."""
        return tuple(self._texts[rows].tolist())

    def move(self, row: int, owner: int) -> None:
        """Set the owner of a piece (bundle or half) to another broker, by number."""
        self.owner[row] = owner
        self.version += 1

    def split(self, row: int, at: int) -> None:
        """Split a piece at hash `at` into two halves at the same broker. Each half gets half of the traffic."""
        column, share, owner = int(self.column[row]), float(self.share[row]) / 2, int(self.owner[row])
        self.alive[row] = False
        self._add([(name, column, share, owner) for name in children_of(self.names[row], (at,))])
        self.whole = False

    def add(self, event: CycleEvent, owners: Ints) -> None:
        """Add the bundles that arrive with this event.

        A bundle that was split from another one gets the owner that its parent (or the half of the parent that contains
        it) has in this run. Any other bundle gets its owner in `owners`, by number of the bundle.
        """
        self._add(
            [
                (
                    event.bundle_names[column],
                    column,
                    1.0,
                    self._home(event.bundle_names[column], parent, owners[column]),
                )
                for column, parent in event.arrived
            ]
        )

    def _home(self, name: str, parent: int, other: int) -> int:
        home = NONE
        for row in np.flatnonzero(self.column == parent).tolist() if parent != NONE else ():
            wide, child = parse_bundle(self.names[row]), parse_bundle(name)
            if (self.alive[row] or home == NONE) and wide.lower <= child.lower and child.upper <= wide.upper:
                home = int(self.owner[row])
        return home if home >= 0 else int(other)

    def _add(self, pieces: Sequence[tuple[str, int, float, int]]) -> None:
        """Add pieces, each as (name, column, share, owner)."""
        names, column, share, owner = zip(*pieces, strict=True)
        self.place |= {name: len(self.names) + number for number, name in enumerate(names)}
        self.names += names
        self.column = np.append(self.column, np.array(column, dtype=np.int64))
        self.share = np.append(self.share, share)
        self.owner = np.append(self.owner, np.array(owner, dtype=np.int64))
        self.alive = np.append(self.alive, np.ones(len(names), dtype=bool))
        self._texts = np.array(self.names, dtype=object)
        self.rank = np.empty(len(self.names), dtype=np.int64)
        self.rank[np.argsort(self._texts, kind="stable")] = np.arange(len(self.names))
        self.version += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipLayout:
    """Arrays of a snapshot that depend only on the owners of bundles and on which brokers are present.

    rows: pieces (bundles or halves) in the order of the snapshot; `owner`: row of each piece's broker. apart: pieces
    that are not at their recorded broker; `to`, `off`: rows of their broker in this run (-1: absent) and in the record.
    touched (B,): whether the load of a broker differs from the recorded load for this reason. `recorded`: whether all
    owners are the recorded ones, and no bundle is split.
    """

    rows: Ints
    owner: Ints
    starts: Ints
    names: tuple[str, ...]
    apart: Ints
    to: Ints
    off: Ints
    touched: Bools
    recorded: bool


def layout_of(pieces: BundlePieces, event: CycleEvent) -> OwnershipLayout:
    """Return the owners and the order of the pieces (bundles and halves) that are visible in an event."""
    count = len(event.brokers)
    row_of = np.full(len(event.broker_names) + 1, NONE, dtype=np.int64)  # the last entry is for pieces without a broker
    row_of[event.brokers] = np.arange(count)
    recorded = event.owner[pieces.column]
    reported = pieces.alive & (recorded >= 0)
    at = row_of[pieces.owner]
    visible = np.flatnonzero(reported & (at >= 0))
    rows = visible[np.lexsort((pieces.rank[visible], at[visible]))]
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(at[rows], minlength=count), out=starts[1:])
    apart = np.flatnonzero(reported & (pieces.owner != recorded))
    to, off = at[apart], row_of[recorded[apart]]
    touched = np.zeros(count + 1, dtype=bool)
    touched[to] = touched[off] = True
    return OwnershipLayout(
        rows=rows,
        owner=at[rows],
        starts=starts,
        names=pieces.texts(rows),
        apart=apart,
        to=to,
        off=off,
        touched=touched[:-1],
        recorded=pieces.whole and not len(apart),
    )


def difference(layout: OwnershipLayout, pieces: BundlePieces, event: CycleEvent) -> tuple[Floats, Ints]:
    """Return the traffic (B, 4) and number of topics (B,) that each broker has more (or less) than recorded."""
    size, apart, table = len(layout.touched), layout.apart, event.inputs.snapshot.bundles
    rows = event.row[pieces.column[apart]]
    moved = np.column_stack([table.latest[rows], table.counts[rows, 0]]) * pieces.share[apart][:, None]
    sums = np.zeros((size + 1, moved.shape[1]))
    np.add.at(sums, layout.to, moved)  # A piece without a broker is in the last, extra row.
    np.subtract.at(sums, layout.off, moved)
    return sums[:-1, :4], np.rint(sums[:-1, 4]).astype(np.int64)


def broker_table(
    layout: OwnershipLayout, pieces: BundlePieces, event: CycleEvent, per_unit: Floats, every_ms: int
) -> BrokerTable:
    """Return the brokers with the reports that they would write if they owned the bundles of this run.

    A broker with exactly its recorded bundles has its recorded report. The report of another broker is corrected for
    the traffic that it gained or lost. Counters keep their recorded age; a load report is at most `every_ms` ms old.
    """
    snapshot, touched = event.inputs.snapshot, layout.touched
    recorded = snapshot.brokers
    if not len(layout.apart):
        return recorded
    more, more_topics = difference(layout, pieces, event)
    usage, traffic, updated = recorded.usage.copy(), recorded.traffic.copy(), recorded.last_update.copy()
    traffic[touched] = np.round(np.maximum(traffic[touched] + more[touched], 0.0), _DECIMALS)
    new = np.maximum(usage[touched] + np.einsum("brk,bk->br", per_unit[touched], more[touched]), 0.0)
    fill_from_traffic(new, traffic[touched], recorded.from_traffic[touched])
    usage[touched] = np.round(new, _DECIMALS)
    reports = touched & ~snapshot.counted
    updated[reports] = np.maximum(updated[reports], snapshot.wall_ms - snapshot.wall_ms % every_ms)
    return replace(recorded, usage=usage, traffic=traffic, last_update=updated, topics=recorded.topics + more_topics)


def bundle_table(layout: OwnershipLayout, pieces: BundlePieces, event: CycleEvent) -> BundleTable:
    """Return the visible pieces (bundles and halves) with their values of this event."""
    recorded = event.inputs.snapshot.bundles
    if layout.recorded:
        return recorded
    rows = event.row[pieces.column[layout.rows]]
    latest, short, long = (table[rows] for table in (recorded.latest, recorded.short, recorded.long))
    counts = recorded.counts[rows]
    if not pieces.whole:
        share = pieces.share[layout.rows][:, None]
        latest, short, long = (np.round(table * share, _DECIMALS) for table in (latest, short, long))
        counts = np.where(counts > 0, np.maximum(np.rint(counts * share).astype(np.int64), 1), counts)
    present, first, place = np.unique(recorded.namespace[rows], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return BundleTable(
        names=layout.names,
        starts=layout.starts,
        owner=layout.owner,
        namespaces=tuple(recorded.namespaces[code] for code in present[order].tolist()),
        namespace=rank[place],
        latest=latest,
        short=short,
        long=long,
        samples=recorded.samples[rows],
        counts=counts,
        system=recorded.system[rows],
    )
