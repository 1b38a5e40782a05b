"""What stands on a sidecar over fakes: its runtime, and operators' requests."""

from __future__ import annotations

from typing import Any

from bundlekeel.core.model.errors import StoreError
from bundlekeel.core.model.load import CapacityOverride
from bundlekeel.daemon.operations.doctor import DoctorContext
from bundlekeel.daemon.operations.operator_requests import OperatorRequests
from bundlekeel.daemon.operations.reload import Reload
from bundlekeel.daemon.operations.reviews import Reviews
from bundlekeel.daemon.runtime import RuntimeParts
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from tests.support.world import FakeSidecar


class NoPeers:
    """Nobody is asked over HTTP."""

    async def make_plan(self, url: str, request: object) -> dict[str, Any]:
        raise StoreError(url)

    async def plan(self, url: str, hash_: str) -> dict[str, Any] | None:
        raise StoreError(url)

    async def quota_why(self, url: str, topic: str) -> dict[str, Any] | None:
        raise StoreError(url)

    async def close(self) -> None:
        """Nothing is open."""


def doctor_context(
    sidecar: FakeSidecar, *, mode: str = "recommend", capacity: tuple[CapacityOverride, ...] = ()
) -> DoctorContext:
    """What `doctor` looks at on this sidecar."""
    return DoctorContext(
        coordination=sidecar.coordination,
        source=sidecar.cluster.source,
        metadata=sidecar.cluster.metadata,
        admin=sidecar.admin,
        config=sidecar.config,
        clock=sidecar.clock,
        mode=mode,
        heartbeat_seconds=2.0,
        store_address="zk:zk1:2181/pulsar",
        capacity=capacity,
        used=lambda values: to_parameters(Settings(), values),
    )


def runtime_parts(sidecar: FakeSidecar, *, interval_seconds: float = 1.0) -> RuntimeParts:
    """The runtime's parts of this sidecar, with nothing beside the cycles."""
    return RuntimeParts(
        clock=sidecar.clock,
        coordination=sidecar.coordination,
        source=sidecar.cluster.source,
        admin=sidecar.admin,
        journal=sidecar.journal,
        telemetry=sidecar.telemetry,
        peers=NoPeers(),
        leadership=sidecar.leadership,
        shared_state=sidecar.shared_state,
        observer=sidecar.observer,
        executor=sidecar.executor,
        cycle=sidecar.cycle,
        executions=sidecar.executions,
        operations=sidecar.operations,
        reload=Reload(
            LoadedSettings.defaults(), sidecar.effective_parameters, sidecar.journal, sidecar.telemetry, sidecar.clock
        ),
        interval_seconds=interval_seconds,
    )


def operator_requests(sidecar: FakeSidecar, *, review: bool = False) -> OperatorRequests:
    """The operators' requests of this sidecar."""
    return OperatorRequests(
        shared_state=sidecar.shared_state,
        cycle=sidecar.cycle,
        drain_tracker=sidecar.operations,
        manual_moves=sidecar.manual_moves,
        review_store=Reviews(sidecar.coordination, sidecar.shared_state, sidecar.clock, required=review),
        metadata=sidecar.cluster.metadata,
        ownership=sidecar.cluster.model,
        journal=sidecar.journal,
        clock=sidecar.clock,
        gate=sidecar.gate,
    )
