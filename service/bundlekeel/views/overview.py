"""Overview of the cluster for the web page: the largest bundles of each broker, and the sum of its other bundles.

Also contains the change marks, by which the page detects that it must load values again.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import numpy as np

from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.state.leadership import Leadership
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.model.load import THROUGHPUT_IN, THROUGHPUT_OUT
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.views.listings import MOST_DRAWN
from bundlekeel.views.picture import CycleView, Marks, OverviewBroker, OverviewBundle, OverviewNamespace, OverviewView


def draw_overview(snapshot: Snapshot | None, largest: int) -> OverviewView:
    """Return the overview with the `largest` bundles of each broker, at most `MOST_DRAWN` in total."""
    if snapshot is None:
        return OverviewView(wall_ms=None, namespaces=[], brokers=[])
    table = snapshot.bundles
    size = table.short[:, THROUGHPUT_IN] + table.short[:, THROUGHPUT_OUT]
    by_namespace = np.bincount(table.namespace, weights=size, minlength=len(table.namespaces))
    order = np.argsort(-by_namespace, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    rows = []
    largest = min(largest, max(1, MOST_DRAWN // max(1, len(snapshot.brokers))))
    for number, broker in enumerate(snapshot.brokers.ids):
        first = int(table.starts[number])
        mine = size[table.rows_of(number)]
        largest_rows = np.argsort(-mine, kind="stable")[:largest]
        rows.append(
            OverviewBroker(
                broker=broker,
                bundles=[
                    OverviewBundle(
                        bundle=table.names[first + row],
                        namespace=int(place[table.namespace[first + row]]),
                        throughput=float(mine[row]),
                    )
                    for row in largest_rows.tolist()
                ],
                other_bundles=len(mine) - len(largest_rows),
                other_throughput=max(0.0, float(mine.sum() - mine[largest_rows].sum())),
            )
        )
    names = [
        OverviewNamespace(namespace=table.namespaces[row], throughput=float(by_namespace[row]))
        for row in order.tolist()
    ]
    return OverviewView(wall_ms=snapshot.wall_ms, namespaces=names, brokers=rows)


def changes(
    cycle: Cycle, shared_state: SharedState, leadership: Leadership, *, connected: bool, last: CycleView | None
) -> Marks:
    """Return change marks: short values, of which at least one differs after a change that the web page shows."""
    leader = leadership.leader
    return Marks(
        picture=cycle.snapshot.wall_ms if cycle.snapshot is not None else 0,
        cycle=str(last.id) if last else "",
        leader=f"{leader.id} {leader.epoch}" if leader else "",
        store=connected,
        moves=shared_state.moves[-1]["wall_ms"] if shared_state.moves else 0,
        tasks=_mark(shared_state.tasks),
        requests=_mark(shared_state.desired),
    )


def _mark(value: Any) -> str:
    return f"{zlib.crc32(msgspec.json.encode(value, enc_hook=repr)):08x}"
