"""Where counters are read, by the settings."""

from __future__ import annotations

from bundlekeel.adapters.admin import HttpBrokerAdmin
from bundlekeel.adapters.clock import SystemClock
from bundlekeel.adapters.prometheus import PrometheusCounters, PrometheusOptions
from bundlekeel.daemon.sources.counters import CounterOptions, LiveLoads
from bundlekeel.ports import Metadata
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.tls import ClientTls
from bundlekeel.wiring.security import token_of


def live_loads(
    loaded: LoadedSettings, admin: HttpBrokerAdmin, metadata: Metadata, clock: SystemClock
) -> LiveLoads | None:
    """None where reports alone are gone by. ConfigError."""
    given = loaded.settings.counters
    if given.source == "off":
        return None
    options = CounterOptions(interval=given.interval, quick_interval=given.quick_interval, max_topics=given.max_topics)
    if given.source == "brokers":
        return LiveLoads(admin, metadata, clock, options)
    prometheus = _prometheus(loaded, clock)
    return LiveLoads(prometheus, metadata, clock, options, prometheus.close)


def _prometheus(loaded: LoadedSettings, clock: SystemClock) -> PrometheusCounters:
    given = loaded.settings.prometheus
    return PrometheusCounters(
        PrometheusOptions(
            url=given.url or "",
            labels=given.labels,
            broker_label=given.broker_label,
            window=given.window,
            timeout=given.timeout,
        ),
        clock,
        tls=ClientTls(trust_certs=loaded.located(given.tls_trust_certs_file), verify=given.tls_verify),
        token=token_of(loaded, given),
    )
