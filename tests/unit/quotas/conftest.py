"""The app over a sidecar in memory, for the routes of quota groups."""

from __future__ import annotations

from tests.unit.api.conftest import http, service, shop

__all__ = ["http", "service", "shop"]
