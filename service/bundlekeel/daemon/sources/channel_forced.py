"""What brokers mended faster than it could be seen: bundles taken by force from a broker that turned out to be dead.

The leader broker gives the bundles of a broker away within some tenths of a second after its registration is gone,
often before that is known here. So entries that were replaced by force are remembered for a moment, and counted as
findings once the broker that had them is missed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from bundlekeel.core.channel.findings import ChannelFinding, Deadlines, FindingCode, Watching, findings
from bundlekeel.core.channel.states import ServiceUnit
from bundlekeel.ports import ChannelView

BY_REGISTRY: Final = frozenset({FindingCode.OWNER_NOT_ALIVE, FindingCode.TARGET_NOT_ALIVE})
REMEMBERED_MS: Final = 10_000


class ForcedEntries:
    """Entries that were replaced by force lately."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[ServiceUnit, int]] = {}

    def note(self, previous: ChannelView | None, view: ChannelView, now_ms: int) -> None:
        """Compare two looks at the channel."""
        self._before = {b: (unit, at) for b, (unit, at) in self._before.items() if now_ms - at < REMEMBERED_MS}
        if previous is None or previous.variant != view.variant or previous.generation == view.generation:
            return
        for bundle, unit in view.units.items():
            before = previous.units.get(bundle)
            if unit.force and before is not None and before.version != unit.version:
                self._before[bundle] = (before, now_ms)

    def findings(
        self, registered: Collection[str], gone_ms: Mapping[str, int], deadlines: Deadlines, now_ms: int
    ) -> list[ChannelFinding]:
        """What was wrong with them, each told once. `gone_ms`: as of `Absences`."""
        units = {bundle: unit for bundle, (unit, _) in self._before.items()}
        seen = dict.fromkeys(units, 0)
        watching = Watching(gone_ms=gone_ms)
        found = [
            item
            for item in findings(units, seen, (), registered, deadlines, now_ms, watching=watching)
            if item.code in BY_REGISTRY and item.brokers[0] in gone_ms
        ]
        for item in found:
            self._before.pop(item.bundle, None)
        return found
