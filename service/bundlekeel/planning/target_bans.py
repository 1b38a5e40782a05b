"""Target brokers that the guard forbids, in addition to policies.

Some brokers accept no bundle. A bundle may not return to the broker that it left recently. Nothing moves between two
brokers if earlier moves between them did not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Ints
from bundlekeel.model.snapshot import Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetBans:
    """Brokers to which the guard forbids moves; brokers and bundles are row numbers of a snapshot.

    `closed`: code of each broker that accepts no bundle. `back`: by bundle, the broker that it recently left, and the
    time (ms) from which it may return. `pairs`: (source, target) pairs whose moves did not help.
    """

    closed: Mapping[int, Code]
    back: Mapping[int, tuple[int, int]]
    pairs: frozenset[tuple[int, int]]

    def forbidden(self, rows: Ints, source: int, target: int) -> Bools:
        """Return a mask of these bundles of `source` that may not move to `target`."""
        if (source, target) in self.pairs or target in self.closed:
            return np.ones(len(rows), dtype=bool)
        if not self.back:
            return np.zeros(len(rows), dtype=bool)
        places = (self.back.get(row, (-1, 0))[0] == target for row in rows.tolist())
        return np.fromiter(places, dtype=bool, count=len(rows))

    def forbidden_targets(self, row: int, source: int, targets: Ints) -> Bools:
        """Return a mask of the targets to which the bundle `row` of `source` may not move."""
        left = self.back.get(row, (-1, 0))[0]
        banned = (item == left or item in self.closed or (source, item) in self.pairs for item in targets.tolist())
        return np.fromiter(banned, dtype=bool, count=len(targets))

    def code(self, row: int, source: int, target: int) -> Code | None:
        """Return the code of the ban that keeps the bundle `row` from `target`; None: there is no ban."""
        if target in self.closed:
            return self.closed[target]
        if self.back.get(row, (-1, 0))[0] == target:
            return Code.NO_RETURN
        return Code.QUARANTINED if (source, target) in self.pairs else None
