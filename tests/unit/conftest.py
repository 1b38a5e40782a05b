"""The app over a sidecar in memory, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.apps import create_app
from tests.support.shop import Shop
from tests.support.spied import Spied
from tests.unit.api.test_routes import client


@pytest.fixture
async def shop() -> Shop:
    """A leader after two cycles."""
    return await Shop().open()


@pytest.fixture
def service(shop: Shop) -> Spied:
    return Spied(shop.service)


@pytest.fixture
async def http(service: Spied) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app with every route."""
    async with client(create_app(service, mutations=True)) as http:
        yield http
