"""The fake and the real admin adapter keep the same promises over the same brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bundlekeel.adapters.admin import HttpBrokerAdmin
from tests.support.contracts.admin import AdminContract, Harness, Permit, Recorder, fill
from tests.support.http_brokers import HttpBrokers
from tests.support.memory_admin import BrokerModel, MemoryAdmin
from tests.support.memory_source import RealClock


class TestMemoryAdmin(AdminContract):
    """The fake."""

    @pytest.fixture
    def harness(self) -> Harness:
        model = BrokerModel(["b1:8080", "b2:8080", "b3:8080"])
        fill(model)
        permit = Permit()
        admin = MemoryAdmin(model, permit=permit)
        admin.set_endpoints(model.endpoints())
        return Harness(admin=admin, model=model, permit=permit)


class TestHttpBrokerAdmin(AdminContract):
    """The real adapter, over real sockets."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[Harness]:
        brokers = HttpBrokers()
        fill(brokers.model)
        permit = Permit()
        async with brokers.serve():
            admin = HttpBrokerAdmin(telemetry=Recorder(), permit=permit, clock=RealClock())
            admin.set_endpoints(brokers.endpoints())
            yield Harness(admin=admin, model=brokers.model, permit=permit)
            await admin.close()
