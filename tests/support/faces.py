"""What stands on a sidecar over fakes: its runtime, and the face of people's wishes."""

from __future__ import annotations

from typing import Any

from bundlekeel.core.model.errors import StoreError
from bundlekeel.daemon.gate.outage import OutageWatch
from bundlekeel.daemon.operations.operator_requests import Wishing, WishingParts
from bundlekeel.daemon.operations.reload import Reload
from bundlekeel.daemon.operations.reviews import Reviews
from bundlekeel.daemon.runtime import RuntimeParts
from bundlekeel.settings.load import LoadedSettings
from tests.support.world import FakeSidecar


class NoPeers:
    """Nobody is asked over HTTP."""

    async def make_plan(self, url: str, request: object) -> dict[str, Any]:
        """See `ports.Peers`."""
        raise StoreError(url)

    async def plan(self, url: str, hash_: str) -> dict[str, Any] | None:
        """See `ports.Peers`."""
        raise StoreError(url)

    async def quota_why(self, url: str, topic: str) -> dict[str, Any] | None:
        """See `ports.Peers`."""
        raise StoreError(url)

    async def close(self) -> None:
        """Nothing is open."""


def runtime_parts(
    sidecar: FakeSidecar, *, interval_seconds: float = 1.0, outage: OutageWatch | None = None
) -> RuntimeParts:
    """The runtime's parts of this sidecar; it looks for outages only if told."""
    return RuntimeParts(
        clock=sidecar.clock,
        coordination=sidecar.coordination,
        source=sidecar.cluster.source,
        admin=sidecar.admin,
        journal=sidecar.journal,
        telemetry=sidecar.telemetry,
        peers=NoPeers(),
        leadership=sidecar.leadership,
        sharing=sidecar.sharing,
        observer=sidecar.observer,
        hand=sidecar.hand,
        cycle=sidecar.cycle,
        executions=sidecar.executions,
        operations=sidecar.operations,
        reload=Reload(LoadedSettings.defaults(), sidecar.overlay, sidecar.journal, sidecar.telemetry, sidecar.clock),
        interval_seconds=interval_seconds,
        outage=outage,
    )


def wishing(sidecar: FakeSidecar, *, review: bool = False) -> Wishing:
    """The face of this sidecar's wishes."""
    return Wishing(
        WishingParts(
            sharing=sidecar.sharing,
            cycle=sidecar.cycle,
            operations=sidecar.operations,
            by_hand=sidecar.by_hand,
            reviews=Reviews(sidecar.coordination, sidecar.sharing, sidecar.clock, required=review),
            metadata=sidecar.cluster.metadata,
            ownership=sidecar.cluster.model,
            journal=sidecar.journal,
            clock=sidecar.clock,
            gate=sidecar.gate,
        )
    )
