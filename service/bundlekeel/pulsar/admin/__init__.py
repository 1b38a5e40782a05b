"""Pulsar's admin REST API. Only this package and the CLI's client import httpx for it."""

from bundlekeel.pulsar.admin.client import HttpBrokerAdmin
from bundlekeel.pulsar.admin.transport import AdminOptions
from bundlekeel.settings.tls import ClientTls as AdminTls

__all__ = ["AdminOptions", "AdminTls", "HttpBrokerAdmin"]
