"""The fake and the real admin adapter keep the same promises over the same brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bundlekeel.pulsar.admin import HttpBrokerAdmin
from tests.support.contracts.admin import AdminContract, Harness, Permit, Recorder, fill
from tests.support.contracts.admin_extensible import ExtensibleAdminContract, ExtensibleHarness
from tests.support.extensible_brokers import ExtensibleModel
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
        admin = MemoryAdmin(model)
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
            admin = HttpBrokerAdmin(telemetry=Recorder(), clock=RealClock())
            admin.set_endpoints(brokers.endpoints())
            yield Harness(admin=admin, model=brokers.model, permit=permit)
            await admin.close()


class TestMemoryAdminExtensible(ExtensibleAdminContract):
    """The fake over brokers of the extensible load manager."""

    @pytest.fixture
    def harness(self) -> ExtensibleHarness:
        model = ExtensibleModel(["b1:8080", "b2:8080", "b3:8080"])
        fill(model)
        admin = MemoryAdmin(model)
        admin.set_endpoints(model.endpoints())
        return ExtensibleHarness(admin=admin, model=model)


class TestHttpBrokerAdminExtensible(ExtensibleAdminContract):
    """The real adapter over such brokers."""

    @pytest.fixture
    async def harness(self) -> AsyncIterator[ExtensibleHarness]:
        brokers = HttpBrokers(model=ExtensibleModel)
        model = brokers.model
        assert isinstance(model, ExtensibleModel)
        fill(model)
        async with brokers.serve():
            admin = HttpBrokerAdmin(telemetry=Recorder(), clock=RealClock())
            admin.set_endpoints(brokers.endpoints())
            yield ExtensibleHarness(admin=admin, model=model)
            await admin.close()
