"""Creates the objects of quota groups for a sidecar, and restores earlier rates for the command `handback`."""

from __future__ import annotations

from bundlekeel.leader.cycle.status import CycleStatus
from bundlekeel.leader.gate.gate import Gate
from bundlekeel.leader.runtime import Background
from bundlekeel.pulsar.admin import HttpBrokerAdmin
from bundlekeel.pulsar.topics.process import TopicsProcess
from bundlekeel.quotas.admin import HttpQuotaAdmin
from bundlekeel.quotas.cycle import QuotaAdapters, QuotaParts, Quotas
from bundlekeel.quotas.enforcing.restore import give_quotas_back, put_quotas_aside, quotas_owned
from bundlekeel.quotas.published.usage_feed import TopicUsageFeed
from bundlekeel.quotas.published.usage_listener import UsageListener
from bundlekeel.quotas.service import QuotaService
from bundlekeel.quotas.settings import QuotaSettings
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.clock import SystemClock
from bundlekeel.wiring.feature import FeatureParts
from bundlekeel.wiring.outside import Outside, topics_options
from bundlekeel.wiring.reading import Reading


def adapters_of(loaded: LoadedSettings, admin: HttpBrokerAdmin, clock: SystemClock) -> QuotaAdapters:
    """Return the client for rates, which uses the connections of `admin`, and the reader of published usage."""
    process = TopicsProcess(topics_options(loaded), clock=clock)
    http = HttpQuotaAdmin(admin.http)
    return QuotaAdapters(admin=http, commands=http, usage_feed=TopicUsageFeed(process, clock=clock))


def parts_of(reading: Reading, status: CycleStatus, gate: Gate) -> FeatureParts:
    """Return the service of quota groups, with the cycle that enforces them."""
    loaded, out = reading.loaded, reading.outside
    adapters: QuotaAdapters = out.adapters["quotas"]
    service_url = loaded.settings.extensible.service_url
    usage_listener = UsageListener(
        adapters.usage_feed,
        out.config,
        out.clock,
        service_urls=(service_url,) if service_url else (),
        prefer_tls=loaded.settings.admin.encrypted_first,
    )
    parts = QuotaParts(
        settings=loaded.settings.section(QuotaSettings),
        adapters=adapters,
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
    quotas = Quotas(parts)
    return FeatureParts(
        service=QuotaService(quotas, parts, reading.leadership, reading.peers),
        tasks=[Background("quotas", quotas.run)],
        limited=quotas.limited,
    )


async def hand_back(loaded: LoadedSettings, out: Outside, *, taken_over: bool, reason: str, by: str) -> list[str]:
    """Restore rates and ResourceGroups from before the quota groups. Returns messages for the operator."""
    adapters: QuotaAdapters = out.adapters["quotas"]
    aside: list[str] = []
    enforced = loaded.settings.section(QuotaSettings).enforcer != "off"
    if not taken_over and (enforced or await quotas_owned(out.coordination)):
        # Prevent a running leader from writing rates first, because it would set the restored ones again.
        aside = await put_quotas_aside(out.coordination, out.clock, reason=reason, by=by)
    back = await give_quotas_back(adapters.admin, adapters.commands, out.config, out.coordination, out.clock)
    return aside + back
