"""Owners that are dead before their registration ends: they refuse connections, or lost their bundles by force.

The leader broker gives the bundles of a broker away within some tenths of a second after its registration is gone,
often before that is known here. So entries that were replaced by force are remembered for a moment, and counted as
findings once the broker that had them is missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from bundlekeel.core.channel.findings import ChannelFinding, Deadlines, FindingCode, Watching, findings
from bundlekeel.core.channel.states import ServiceUnit, owner_of
from bundlekeel.core.model.codes import Code
from bundlekeel.daemon.answers.channel import FindingView
from bundlekeel.ports import ChannelView, Picture

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


# Owners that refuse connections: dead, most likely, some seconds before their registration ends with its session.


REMEDY = (
    "look at the broker's process and log; its bundles have no other owner before its metadata session ends, then the "
    "leader broker gives them away"
)


class UnreachableOwners:
    """Since when which registered broker cannot be reached, as the picture says (`AdminUnreachable`)."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def rows(self, picture: Picture, units: Mapping[str, ServiceUnit], now_ms: int) -> list[FindingView]:
        """One finding a broker that owns bundles by the channel, as `channel_watch` tells them; by broker."""
        dead = {item.broker_id: item.detail for item in picture.excluded if item.code == Code.ADMIN_UNREACHABLE}
        self._since = {broker: self._since.get(broker, now_ms) for broker in dead}
        if not dead:
            return []
        owners = Counter(found.broker_id for unit in units.values() if (found := owner_of(unit)) is not None)
        return [
            FindingView(
                code=FindingCode.OWNER_UNREACHABLE.value,
                bundle="",
                brokers=[broker],
                state=None,
                since_ms=self._since[broker],
                deadline_ms=0,
                detail=f"{broker} owns {owners[broker]} bundles and cannot be reached: {dead[broker]}",
                remedy=REMEDY,
            )
            for broker in sorted(dead)
            if owners[broker]
        ]
