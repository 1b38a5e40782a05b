"""The app over a fake service, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from bundlekeel.api import create_app
from tests.support.fake_service import FakeService
from tests.unit.api.test_routes import client


@pytest.fixture
def service() -> FakeService:
    """A fresh fake."""
    return FakeService()


@pytest.fixture
async def http(service: FakeService) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app with every route."""
    async with client(create_app(service, mutations=True)) as made:
        yield made
