"""Creates the receivers of notifications that the settings name."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import structlog

from bundlekeel.ports import Clock, Telemetry
from bundlekeel.ports.records import EVENTS
from bundlekeel.records.kubernetes_events import KubernetesEndpoint, KubernetesEvents
from bundlekeel.records.notifications import NotificationReceiver, Notifications
from bundlekeel.records.webhooks import Webhook, WebhookAddress
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.sections import WebhookSettings
from bundlekeel.settings.tls import ClientTls

_log = structlog.get_logger(__name__)


def notifications(
    loaded: LoadedSettings,
    telemetry: Telemetry,
    clock: Clock,
    *,
    member: Callable[[], str],
    leads: Callable[[], bool],
) -> Notifications | None:
    """Return the notifications with their receivers; None: the settings name no receiver.

    Raises ConfigError if a file with certificates cannot be used.
    """
    section = loaded.settings.notify
    receivers = [
        NotificationReceiver(
            name=item.name,
            notifier=_webhook(loaded, item, index),
            events=frozenset(item.events),
            min_severity=item.min_severity,
        )
        for index, item in enumerate(section.webhooks)
    ]
    if section.kubernetes == "auto":
        place = KubernetesEndpoint.from_environment(os.environ, socket.gethostname())
        if place is None:
            _log.info("no Kubernetes events are sent, because the pod has no service account token")
        else:
            tls = ClientTls(trust_certs=place.ca).context(field="notify.kubernetes")
            events = KubernetesEvents(place, tls=tls)
            receivers.append(NotificationReceiver(name="kubernetes", notifier=events, events=frozenset(EVENTS)))
    if not receivers:
        return None
    return Notifications(receivers, telemetry, clock, cluster=loaded.settings.cluster, member=member, leads=leads)


def _webhook(loaded: LoadedSettings, item: WebhookSettings, index: int) -> Webhook:
    trusted = loaded.located(item.tls_trust_certs_file)
    tls = None
    if trusted is not None:
        tls = ClientTls(trust_certs=trusted).context(field=f"notify.webhooks.{index}.tls_trust_certs_file")
    address = WebhookAddress(item.url.get_secret_value() if item.url else None, file=loaded.located(item.url_file))
    return Webhook(address, kind=item.kind, seconds=item.timeout, tls=tls, use_proxy=item.use_proxy)
