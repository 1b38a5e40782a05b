"""Pulsar's admin REST API. httpx lives only here and in the CLI's client."""

from bundlekeel.adapters.admin.client import HttpBrokerAdmin
from bundlekeel.adapters.admin.transport import AdminOptions
from bundlekeel.tls import ClientTls as AdminTls

__all__ = ["AdminOptions", "AdminTls", "HttpBrokerAdmin"]
