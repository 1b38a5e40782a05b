"""What a sidecar has only by its settings: calibration, shadow strategies, notifications, quota groups, traces.

What calibration and traces take (pyarrow, OpenTelemetry) is loaded only where they are on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import structlog

from bundlekeel import __version__
from bundlekeel.adapters.notify import KubernetesEndpoint, KubernetesEvents
from bundlekeel.adapters.webhooks import Webhook, WebhookAddress
from bundlekeel.core.model.errors import ConfigError, StoreError
from bundlekeel.daemon.calibration.shadow import ShadowStrategies
from bundlekeel.daemon.calibration.watcher import Calibration
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.gate.gate import Gate
from bundlekeel.daemon.quotas.cycle import QuotaParts, Quotas
from bundlekeel.daemon.quotas.service import QuotaService
from bundlekeel.daemon.quotas.usage_listener import UsageListener
from bundlekeel.daemon.records.notifications import NotificationReceiver, Notifications
from bundlekeel.daemon.records.traces import Traces
from bundlekeel.daemon.state.effective_parameters import EffectiveParameters, merging
from bundlekeel.daemon.state.leadership import Leadership
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.ports import Clock, Journal, Peers, Telemetry
from bundlekeel.ports.history import CalibrationStore
from bundlekeel.ports.records import EVENTS
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.sections import WebhookSettings
from bundlekeel.tls import ClientTls
from bundlekeel.wiring.outside import Outside


def effective_parameters_of(loaded: LoadedSettings, shared_state: SharedState) -> EffectiveParameters:
    """The parameters of every plan. With calibration off nothing that was adopted earlier is in force."""
    off = loaded.settings.calibration.mode == "off"
    return EffectiveParameters(merging(loaded), lambda: None if off else shared_state.desired.adopted)


def calibration(
    loaded: LoadedSettings,
    out: Outside,
    *,
    store: Callable[[], CalibrationStore],
    effective_parameters: EffectiveParameters,
    shared_state: SharedState,
    gate: Gate,
    no_picture: Callable[[], str],
    journal: Journal,
) -> Calibration:
    """What answers for thresholds; it watches only where the settings say so."""
    given = loaded.settings.calibration
    return Calibration(
        mode=given.mode,
        rules=loaded.settings.adoption_rules,
        every_seconds=given.interval,
        interval_seconds=loaded.settings.cycle.interval,
        trial_seconds=given.trial,
        store=store,
        effective_parameters=effective_parameters,
        shared_state=shared_state,
        no_picture=no_picture,
        journal=journal,
        telemetry=out.telemetry,
        clock=out.clock,
        gate=gate,
    )


def shadow_strategies(loaded: LoadedSettings, telemetry: Telemetry, clock: Clock) -> ShadowStrategies | None:
    """Strategies that plan along, or None when the settings name none."""
    named = loaded.settings.shadow.strategies
    return ShadowStrategies(named, telemetry, clock) if named else None


def proposals(loaded: LoadedSettings) -> Callable[[], CalibrationStore]:
    """What opens the place of proposals. ConfigError when pyarrow is missing."""
    given = loaded.settings.calibration
    if given.mode == "off" or given.uri is None:
        return _nowhere
    try:
        adapter = import_module("bundlekeel.adapters.calibration")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ConfigError(
            "calibration needs pyarrow: pip install '.[history]' in the sources",
            field="calibration.mode",
            allowed="off",
        ) from None
    place: str | Path | None = given.uri if "://" in given.uri else loaded.located(Path(given.uri))

    def opened() -> CalibrationStore:
        store: CalibrationStore = adapter.calibration_folder(place)
        return store

    return opened


def _nowhere() -> CalibrationStore:
    raise StoreError("calibration is off")


# Receivers of notifications, as the settings say.


_log = structlog.get_logger(__name__)


def notifications(
    loaded: LoadedSettings,
    telemetry: Telemetry,
    clock: Clock,
    *,
    member: Callable[[], str],
    leads: Callable[[], bool],
) -> Notifications | None:
    """The notifications, or None without a receiver. ConfigError when a file of certificates cannot be used."""
    given = loaded.settings.notify
    sinks = [
        NotificationReceiver(
            name=item.name,
            notifier=_webhook(loaded, item, index),
            events=frozenset(item.events),
            min_severity=item.min_severity,
        )
        for index, item in enumerate(given.webhooks)
    ]
    if given.kubernetes == "auto":
        place = KubernetesEndpoint.found(os.environ, socket.gethostname())
        if place is None:
            _log.info("no service account token here: no Kubernetes events")
        else:
            tls = ClientTls(trust_certs=place.ca).context(field="notify.kubernetes")
            events = KubernetesEvents(place, tls=tls)
            sinks.append(NotificationReceiver(name="kubernetes", notifier=events, events=frozenset(EVENTS)))
    if not sinks:
        return None
    return Notifications(sinks, telemetry, clock, cluster=loaded.settings.cluster, member=member, leads=leads)


def _webhook(loaded: LoadedSettings, item: WebhookSettings, index: int) -> Webhook:
    trusted = loaded.located(item.tls_trust_certs_file)
    tls = None
    if trusted is not None:
        tls = ClientTls(trust_certs=trusted).context(field=f"notify.webhooks.{index}.tls_trust_certs_file")
    address = WebhookAddress(item.url.get_secret_value() if item.url else None, file=loaded.located(item.url_file))
    return Webhook(address, kind=item.kind, seconds=item.timeout, tls=tls, use_proxy=item.use_proxy)


# Quota groups of a sidecar, wired.


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


# Where traces go, as the settings say. OpenTelemetry is loaded only where it is used.


FIELD: Final = "traces.otlp_endpoint"


def traces_of(loaded: LoadedSettings, telemetry: Telemetry, clock: Clock, member: str) -> Traces | None:
    """What makes and sends traces, or None when the settings name no collector. ConfigError when OpenTelemetry is
    missing, or a file of certificates cannot be used."""
    given = loaded.settings.traces
    if given.otlp_endpoint is None:
        return None
    adapter = _traces_adapter()
    trusted = loaded.located(given.tls_trust_certs_file)
    if trusted is not None:
        # The library would report it with the first trace only.
        ClientTls(trust_certs=trusted).context(field="traces.tls_trust_certs_file")
    exporter = adapter.otlp_exporter(given.otlp_endpoint, seconds=given.timeout, trust_certs=trusted)
    resource = {
        "service.name": "bundlekeel",
        "service.version": __version__,
        "service.namespace": loaded.settings.cluster,
        "service.instance.id": member,
    }
    return Traces(adapter.OtlpTraces(exporter, telemetry, resource), clock)


def _traces_adapter() -> Any:
    try:
        return import_module("bundlekeel.adapters.traces")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            "traces need OpenTelemetry: pip install '.[otel]' in the sources",
            field=FIELD,
            allowed="null, without OpenTelemetry",
        ) from None
