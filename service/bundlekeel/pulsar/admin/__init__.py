"""Pulsar's admin REST API. Only this package and the CLI's client import httpx for it."""

from bundlekeel.adapters.admin.client import HttpBrokerAdmin
from bundlekeel.adapters.admin.transport import AdminOptions
from bundlekeel.tls import ClientTls as AdminTls

__all__ = ["AdminOptions", "AdminTls", "HttpBrokerAdmin"]
