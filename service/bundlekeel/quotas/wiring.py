"""Quota groups of a sidecar."""

from __future__ import annotations

from bundlekeel.leader.cycle.status import CycleStatus
from bundlekeel.leader.gate.gate import Gate
from bundlekeel.quotas.cycle import QuotaParts, Quotas
from bundlekeel.quotas.service import QuotaService
from bundlekeel.quotas.usage_listener import UsageListener
from bundlekeel.wiring.reading import Reading


def quotas_of(reading: Reading, status: CycleStatus, gate: Gate) -> QuotaService:
    """Return the service of quota groups, with the cycle that enforces them."""
    loaded, out = reading.loaded, reading.outside
    service_url = loaded.settings.extensible.service_url
    usage_listener = UsageListener(
        out.usage_feed,
        out.config,
        out.clock,
        service_urls=(service_url,) if service_url else (),
        prefer_tls=loaded.settings.admin.encrypted_first,
    )
    parts = QuotaParts(
        settings=loaded.settings.quotas,
        admin=out.admin.quotas,
        commands=out.admin.quotas,
        permit=reading.leadership.permit,
        usage_listener=usage_listener,
        metadata=out.metadata,
        config=out.config,
        coordination=out.coordination,
        shared_state=reading.shared_state,
        status=status,
        gate=gate,
        journal=reading.journal,
        telemetry=out.telemetry,
        clock=out.clock,
        ceiling=loaded.settings.mode,
    )
    return QuotaService(Quotas(parts), parts, reading.leadership, reading.peers)
