"""Owners that refuse connections: dead, most likely, some seconds before their registration ends with its session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bundlekeel.core.channel.findings import FindingCode
from bundlekeel.core.channel.states import ServiceUnit, owner_of
from bundlekeel.core.model.codes import Code
from bundlekeel.daemon.answers.channel import FindingView
from bundlekeel.ports import Picture

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
