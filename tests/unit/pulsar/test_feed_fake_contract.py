"""The feed in memory keeps the promises of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bundlekeel.ports import LoadFeed
from tests.support.contracts.feed import FeedContract
from tests.support.memory_feed import MemoryFeed, broker_load, bundle_loads
from tests.support.memory_source import RealClock


class MemoryKit:
    """One feed in memory, for which three brokers publish."""

    patience = 5.0
    service_urls: Sequence[str] = ("pulsar://a:6650",)
    broker_ids: Sequence[str] = ("a:8080", "b:8080", "c:8080")

    def __init__(self) -> None:
        self.clock = RealClock()
        self.feed = MemoryFeed(self.clock)

    def make(self) -> LoadFeed:
        """The only one there is."""
        return self.feed

    async def say(self) -> None:
        await asyncio.sleep(0.002)  # another millisecond than the one before
        now = self.clock.wall_ms()
        for broker_id in self.broker_ids:
            self.feed.say(broker_load(broker_id, 0.5, [1.0, 1.0, 10.0, 10.0], now), bundles=bundle_loads())

    async def withdraw(self) -> None:
        self.feed.withdraw(self.broker_ids[1])

    async def interrupt(self, feed: LoadFeed) -> None:
        self.feed.become("down", "killed")

    async def mend(self, feed: LoadFeed) -> None:
        await asyncio.sleep(0.002)
        self.feed.become("ok")


@pytest.fixture
async def kit() -> MemoryKit:
    """Brokers in memory."""
    return MemoryKit()


class TestMemoryFeed(FeedContract):
    """The contract."""
