"""Hash ranges of the ownership channel's entries by namespace: finds overlaps, and entries within a range."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from typing import Final, NamedTuple

from bundlekeel.model.channel_states import ACTIVE, ServiceUnit, UnitState

# Only running splits nest ranges, so real ranges nest less deeply. The limit avoids quadratic time for false entries.
_DEEPEST: Final = 8


class RangeEntry(NamedTuple):
    """One entry of the channel and its hash range [lower, upper)."""

    lower: int
    upper: int
    bundle: str
    unit: ServiceUnit


class Ranges:
    """The entries of a channel by namespace, sorted by lower bound; with equal bounds the widest range comes first."""

    def __init__(self, units: Mapping[str, ServiceUnit]) -> None:
        """Sort the entries. `units`: by full bundle name, whose last 22 characters are `/0xLLLLLLLL_0xUUUUUUUU`."""
        self._spaces: dict[str, list[RangeEntry]] = {}
        for bundle, unit in units.items():
            entry = RangeEntry(int(bundle[-19:-11], 16), int(bundle[-8:], 16), bundle, unit)
            self._spaces.setdefault(bundle[:-22], []).append(entry)
        for entries in self._spaces.values():
            entries.sort(key=_order)

    def covered(self, bundle: str, *, itself: bool = True) -> bool:
        """Return whether an entry is inside the hash range of `bundle`. `itself`: whether the entry of `bundle`
        counts."""
        lower, upper = int(bundle[-19:-11], 16), int(bundle[-8:], 16)
        entries = self._spaces.get(bundle[:-22], [])
        later = islice(entries, bisect_left(entries, (lower, -upper), key=_order), None)
        return any(
            entry.upper <= upper and (itself or entry.bundle != bundle)
            for entry in takewhile(lambda entry: entry.lower < upper, later)
        )

    def overlaps(self) -> Iterator[tuple[RangeEntry, RangeEntry]]:
        """Yield pairs of active entries whose ranges overlap, the one with the smaller lower bound first.

        A running split is the only valid overlap (the parent is Splitting, the child is inside it), so it is omitted.
        """
        for entries in self._spaces.values():
            opened: list[RangeEntry] = []
            for entry in entries:
                if entry.unit.state not in ACTIVE:
                    continue
                opened = [earlier for earlier in opened if earlier.upper > entry.lower][-_DEEPEST:]
                for earlier in opened:
                    if not _splits_into(earlier, entry):
                        yield earlier, entry
                opened.append(entry)


def _order(entry: RangeEntry) -> tuple[int, int]:
    return entry[0], -entry[1]


def _splits_into(parent: RangeEntry, child: RangeEntry) -> bool:
    return parent.unit.state is UnitState.SPLITTING and child.upper <= parent.upper
