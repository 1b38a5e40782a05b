"""The channel in memory keeps the promises of the real ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bundlekeel.core.channel.states import UnitState
from bundlekeel.ports import Channel, ChannelVariant
from tests.support.contracts.channel import ChannelContract, following
from tests.support.memory_channel import MemoryChannel
from tests.support.memory_source import RealClock

BROKERS = ("a:8080", "b:8080")
BUNDLES = tuple(f"t/n/0x{low:08x}_0x{min(low + 2**30, 2**32 - 1):08x}" for low in range(0, 2**32, 2**30))


class MemoryKit:
    """One channel in memory, whose brokers do as they are told."""

    patience = 5.0
    service_urls: Sequence[str] = ()

    def __init__(self, variant: ChannelVariant) -> None:
        self.variant = variant
        self.channel = MemoryChannel(RealClock(), variant=variant)

    def make(self) -> Channel:
        """The only one there is."""
        return self.channel

    async def own(self, number: int) -> tuple[str, str]:
        bundle = BUNDLES[number]
        unit = self.channel.table.units.get(bundle)
        if unit is None or unit.state is not UnitState.OWNED:
            self.channel.own(bundle, BROKERS[0])
        return bundle, self.channel.table.units[bundle].destination

    async def transfer(self, bundle: str) -> str:
        owner = self.channel.table.units[bundle].destination
        self.channel.transfer(bundle, BROKERS[owner == BROKERS[0]])
        return BROKERS[owner == BROKERS[0]]

    async def unload(self, bundle: str) -> None:
        self.channel.unload(bundle)

    async def split(self, bundle: str) -> tuple[str, str]:
        low, high = (int(edge, 16) for edge in bundle.rpartition("/")[2].split("_"))
        return self.channel.split(bundle, (low + high) // 2)

    async def owned(self) -> dict[str, str]:
        units = self.channel.table.units
        return {bundle: unit.destination for bundle, unit in units.items() if unit.state is UnitState.OWNED}

    async def interrupt(self, channel: Channel) -> None:
        self.channel.suspended = True

    async def mend(self, channel: Channel) -> None:
        self.channel.suspended = False


@pytest.fixture(params=["system_topic", "metadata_store"])
async def kit(request: pytest.FixtureRequest) -> MemoryKit:
    """Brokers in memory, by the rules of either variant."""
    return MemoryKit(request.param)


class TestMemoryChannel(ChannelContract):
    """The contract."""


async def test_what_loses_is_told(kit: MemoryKit) -> None:
    """A message that is no lawful successor changes nothing and is among the rejected."""
    bundle, owner = await kit.own(0)
    async with following(kit) as channel:
        assert not kit.channel.publish(bundle, UnitState.OWNED, BROKERS[1])
        view = await channel.view()
    assert view.units[bundle].destination == owner
    assert [(lost.bundle, lost.unit.destination) for lost in view.rejected] == [(bundle, BROKERS[1])]
