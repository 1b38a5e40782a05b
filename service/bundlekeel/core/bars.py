"""Bars: targets that the guard forbids, as policies forbid others: whole brokers, the way back, useless pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bundlekeel.core.codes import Code
from bundlekeel.core.guard_state import GuardState
from bundlekeel.core.load import Ints
from bundlekeel.core.params import Parameters
from bundlekeel.core.scope import closed_brokers
from bundlekeel.core.snapshot import Bools, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Rows of a snapshot. `closed`: brokers that take nothing, and why. `back`: by bundle the broker it left so lately
    that it does not return, with the time (ms) from which on it may. `pairs`: (source, target) that did not help."""

    closed: Mapping[int, Code]
    back: Mapping[int, tuple[int, int]]
    pairs: frozenset[tuple[int, int]]

    def forbidden(self, rows: Ints, source: int, target: int) -> Bools:
        """Which of these bundles of `source` may not go to `target`."""
        if (source, target) in self.pairs or target in self.closed:
            return np.ones(len(rows), dtype=bool)
        if not self.back:
            return np.zeros(len(rows), dtype=bool)
        places = (self.back.get(row, (-1, 0))[0] == target for row in rows.tolist())
        return np.fromiter(places, dtype=bool, count=len(rows))

    def forbidden_targets(self, row: int, source: int, targets: Ints) -> Bools:
        """Which of these targets the bundle may not go to."""
        left = self.back.get(row, (-1, 0))[0]
        barred = (item == left or item in self.closed or (source, item) in self.pairs for item in targets.tolist())
        return np.fromiter(barred, dtype=bool, count=len(targets))

    def code(self, row: int, source: int, target: int) -> Code | None:
        """Why this bundle may not go there, or None."""
        if target in self.closed:
            return self.closed[target]
        if self.back.get(row, (-1, 0))[0] == target:
            return Code.NO_RETURN
        return Code.QUARANTINED if (source, target) in self.pairs else None


def bars_of(snapshot: Snapshot, guard: GuardState, params: Parameters) -> Bars | None:
    """The bars that hold at the snapshot's time, or None when nothing is barred."""
    index = {broker: row for row, broker in enumerate(snapshot.brokers.ids)}
    closed = closed_brokers(snapshot.brokers.ids, guard, params, snapshot.wall_ms)
    pairs = frozenset(
        (index[source], index[target])
        for (source, target), expiry in guard.quarantined.items()
        if source in index and target in index and expiry > snapshot.wall_ms
    )
    back = _ways_back(snapshot, guard, params, index)
    return Bars(closed=closed, back=back, pairs=pairs) if closed or back or pairs else None


def _ways_back(
    snapshot: Snapshot, guard: GuardState, params: Parameters, index: Mapping[str, int]
) -> dict[int, tuple[int, int]]:
    length = int(1000 * params.no_return_seconds)
    free_at = {
        name: (index[moved.source], moved.at_ms + length)
        for name, moved in guard.recent.items()
        if moved.source in index and moved.at_ms + length > snapshot.wall_ms
    }
    names, owner = snapshot.bundles.names, snapshot.bundles.owner
    rows = snapshot.bundles.rows_named(free_at)
    return {row: free_at[names[row]] for row in rows if int(owner[row]) != free_at[names[row]][0]}
