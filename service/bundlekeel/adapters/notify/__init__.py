"""Receivers of notifications: webhooks and the events of Kubernetes."""

from bundlekeel.adapters.notify.kubernetes import KubernetesEvents, Place
from bundlekeel.adapters.notify.webhook import Address, Webhook

__all__ = ["Address", "KubernetesEvents", "Place", "Webhook"]
