"""The in-memory coordination keeps the contract that the ZooKeeper adapter keeps."""

from __future__ import annotations

import pytest

from bundlekeel.model.errors import StoreError
from bundlekeel.ports import Coordination
from tests.support.contracts.coordination import CoordinationContract, lead, member
from tests.support.memory_coordination import MemoryCoordination, MemoryStore


class MemoryWorld:
    """World over a MemoryStore."""

    patience = 0.1

    def __init__(self) -> None:
        self.store = MemoryStore()

    async def join(self) -> Coordination:
        """Start one more sidecar."""
        sidecar = MemoryCoordination(self.store)
        await sidecar.start()
        return sidecar

    async def expire(self, who: Coordination) -> None:
        """End its session."""
        assert isinstance(who, MemoryCoordination)
        self.store.expire(who)

    async def freeze(self) -> None:
        """Stop the store."""
        self.store.freeze()

    async def thaw(self) -> None:
        self.store.thaw()


class TestMemoryCoordination(CoordinationContract):
    """Contract, on the fake."""

    @pytest.fixture
    def world(self) -> MemoryWorld:
        return MemoryWorld()


async def test_a_suspended_sidecar_keeps_its_nodes_until_its_session_expires() -> None:
    """Being cut off costs the calls at once, but nodes only at expiry; back again means a new session."""
    world = MemoryWorld()
    a, b = await world.join(), await world.join()
    assert isinstance(a, MemoryCoordination)
    epoch = await lead(a, "a")
    world.store.suspend(a)
    with pytest.raises(StoreError):
        await a.still_leading(epoch)
    assert await b.campaign(member("b")) is None
    world.store.expire(a)
    assert not a.connected
    assert await b.campaign(member("b")) == epoch + 1
    world.store.resume(a)
    assert a.connected
    assert not await a.still_leading(epoch)
