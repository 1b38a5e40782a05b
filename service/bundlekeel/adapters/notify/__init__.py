"""Receivers of notifications: webhooks and the events of Kubernetes."""

from bundlekeel.adapters.notify.kubernetes import KubernetesEndpoint, KubernetesEvents
from bundlekeel.adapters.notify.webhook import Webhook, WebhookAddress

__all__ = ["KubernetesEndpoint", "KubernetesEvents", "Webhook", "WebhookAddress"]
