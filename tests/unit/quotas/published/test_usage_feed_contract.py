"""The feed of brokers' usage keeps its promises: the one in memory, and the adapter over a client that is scripted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bundlekeel.pulsar.topics.process import TopicsOptions, TopicsProcess
from bundlekeel.pulsar.topics.wire import FromChild, Live, Lost, Opened
from bundlekeel.quotas.ports import UsageFeed
from bundlekeel.quotas.published.usage_feed import TopicUsageFeed
from bundlekeel.quotas.published.usage_messages import UsageMessage
from tests.support.contracts.usage import FIRST, LITTLE, MUCH, SECOND, UsageContract, listening, tables_where
from tests.support.memory_source import RealClock
from tests.support.memory_usage import MemoryUsageFeed, encode_usage, usage_message
from tests.support.topics_stage import NOBODY, SCRIPTED, message, tell

# Two moments that a clock of milliseconds tells apart.
MOMENT = 0.002


class MemoryKit:
    """One feed in memory."""

    patience = 5.0
    service_urls: Sequence[str] = NOBODY

    def __init__(self) -> None:
        self.feed = MemoryUsageFeed(RealClock())

    def make(self) -> UsageFeed:
        """The only one there is."""
        return self.feed

    async def say(self, message: UsageMessage) -> None:
        await asyncio.sleep(MOMENT)
        self.feed.say(message)

    async def say_nonsense(self) -> None:
        self.feed.spoil("broker is missing")

    async def interrupt(self, feed: UsageFeed) -> None:
        self.feed.become("down", "killed")

    async def mend(self, feed: UsageFeed) -> None:
        await asyncio.sleep(MOMENT)
        self.feed.become("ok")


class ScriptedKit:
    """The real adapter; its client says what is written for it."""

    patience = 60.0
    service_urls: Sequence[str] = NOBODY

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.child = 0

    def make(self) -> UsageFeed:
        """One after the other: each has a client of its own."""
        self.child += 1
        self._parts = 0
        self.directory.joinpath(str(self.child)).mkdir()
        self._say(Opened("usage"), Live("usage"))
        command = (sys.executable, str(SCRIPTED), str(self.directory / str(self.child)))
        return TopicUsageFeed(TopicsProcess(TopicsOptions(), clock=RealClock(), command=command), clock=RealClock())

    def _say(self, *lines: FromChild | str) -> None:
        self._parts += 1
        tell(self.directory / str(self.child) / f"1.{self._parts}", *lines)

    def end(self) -> None:
        """The client dies."""
        self._say("!")

    async def say(self, said: UsageMessage) -> None:
        self._say(message("usage", "", encode_usage(said)))

    async def say_nonsense(self) -> None:
        self._say(message("usage", "", b"nonsense"))
        await asyncio.sleep(0.1)

    async def interrupt(self, feed: UsageFeed) -> None:
        self._say(Lost("usage", "away"))

    async def mend(self, feed: UsageFeed) -> None:
        await asyncio.sleep(MOMENT)
        self._say(Live("usage"))


class TestMemoryFeed(UsageContract):
    """The fake."""

    @pytest.fixture
    async def kit(self) -> MemoryKit:
        return MemoryKit()


class TestScriptedClient(UsageContract):
    """The real adapter."""

    @pytest.fixture
    async def kit(self, tmp_path: Path) -> ScriptedKit:
        return ScriptedKit(tmp_path)


async def test_the_longest_silent_brokers_are_dropped() -> None:
    """Brokers that come and go under ever new names do not fill the memory."""
    clock = RealClock()
    feed = TopicUsageFeed(TopicsProcess(TopicsOptions(), clock=clock), clock=clock, most_brokers=2)
    for broker in (FIRST, SECOND, FIRST, "pulsar://b3:6650"):
        feed.received(message("usage", "", encode_usage(usage_message(broker, acme=(LITTLE, MUCH)))))
    assert set(feed.tables().latest) == {FIRST, "pulsar://b3:6650"}
    feed.received(message("usage", "", None, size=9_999_999))
    assert "9999999" in feed.tables().fault


async def test_why_it_does_not_listen(tmp_path: Path) -> None:
    """A topic that cannot be read says why, and so does a client that is gone."""
    kit = ScriptedKit(tmp_path)
    async with listening(kit) as feed:
        await kit.interrupt(feed)
        assert (await tables_where(kit, feed, lambda tables: tables.status.state == "down")).status.detail == "away"
        kit.end()
        await tables_where(
            kit, feed, lambda tables: tables.status.state == "down" and "told to end" in tables.status.detail
        )
