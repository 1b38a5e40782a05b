"""Quota groups of a sidecar, wired."""

from __future__ import annotations

from bundlekeel.bootstrap.outside import Outside
from bundlekeel.daemon.cycle import Cycle
from bundlekeel.daemon.leadership import Leadership
from bundlekeel.daemon.outage import OutageWatch
from bundlekeel.daemon.quota_service import QuotaService
from bundlekeel.daemon.quotas import QuotaParts, Quotas
from bundlekeel.daemon.settings_load import LoadedSettings
from bundlekeel.daemon.sharing import Sharing
from bundlekeel.ports import Journal, Peers


def quotas_of(
    loaded: LoadedSettings,
    out: Outside,
    sharing: Sharing,
    cycle: Cycle,
    outage: OutageWatch,
    journal: Journal,
    leadership: Leadership,
    peers: Peers,
) -> QuotaService:
    """What answers for groups, and in it what enforces them."""
    parts = QuotaParts(
        settings=loaded.settings.quotas,
        admin=out.admin.quotas,
        metadata=out.metadata,
        config=out.config,
        coordination=out.coordination,
        sharing=sharing,
        picture=lambda: cycle.picture,
        snapshot=lambda: cycle.snapshot,
        arriving=lambda: [(entry.bundle, entry.target) for entry in cycle.standing.ledger.entries],
        stop=outage.obstacle,
        journal=journal,
        telemetry=out.telemetry,
        clock=out.clock,
        ceiling=loaded.settings.mode,
    )
    return QuotaService(Quotas(parts), parts, leadership, peers)
