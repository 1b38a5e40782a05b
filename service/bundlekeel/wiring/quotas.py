"""Quota groups of a sidecar, wired."""

from __future__ import annotations

from bundlekeel.adapters.topics.process import TopicsProcess
from bundlekeel.adapters.topics.usage import TopicUsageFeed
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.gate.gate import Gate
from bundlekeel.daemon.quotas.cycle import QuotaParts, Quotas
from bundlekeel.daemon.quotas.reported_usage import UsageListener
from bundlekeel.daemon.quotas.service import QuotaService
from bundlekeel.daemon.state.leadership import Leadership
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.ports import Journal, Peers
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.outside import Outside, topics_options


def quotas_of(
    loaded: LoadedSettings,
    out: Outside,
    shared_state: SharedState,
    cycle: Cycle,
    gate: Gate,
    journal: Journal,
    leadership: Leadership,
    peers: Peers,
) -> QuotaService:
    """What answers for groups, and in it what enforces them."""
    service_url = loaded.settings.extensible.service_url
    usage_listener = UsageListener(
        TopicUsageFeed(TopicsProcess(topics_options(loaded), clock=out.clock), clock=out.clock),
        out.config,
        out.clock,
        service_urls=(service_url,) if service_url else (),
        prefer_tls=loaded.settings.admin.encrypted_first,
    )
    parts = QuotaParts(
        settings=loaded.settings.quotas,
        admin=out.admin.quotas,
        commands=out.admin.quotas,
        permit=leadership.permit,
        usage_listener=usage_listener,
        metadata=out.metadata,
        config=out.config,
        coordination=out.coordination,
        shared_state=shared_state,
        picture=lambda: cycle.picture,
        snapshot=lambda: cycle.snapshot,
        arriving=lambda: [(entry.bundle, entry.target) for entry in cycle.cycle_state.ledger.entries],
        gate=gate,
        journal=journal,
        telemetry=out.telemetry,
        clock=out.clock,
        ceiling=loaded.settings.mode,
    )
    return QuotaService(Quotas(parts), parts, leadership, peers)
