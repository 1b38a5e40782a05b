"""Tests that every `UsageFeed` must pass: the one in memory, and the real one with scripted messages and with brokers.

Subclass `UsageContract` in a test module and give it a fixture `kit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from bundlekeel.quotas.ports import ReceivedUsage, UsageFeed, UsageTables
from bundlekeel.quotas.published.usage_messages import PassedUsage, UsageMessage
from tests.support.contracts.coordination import eventually
from tests.support.contracts.feed import Patient, tables_where
from tests.support.memory_usage import usage_message

FIRST, SECOND = "pulsar://b1:6650", "pulsar://b2:6650"
LITTLE, MUCH = PassedUsage(messages=3, size=300), PassedUsage(messages=2**40, size=2**62)


class UsageKit(Patient, Protocol):
    """A topic to which tests publish usage messages, and the feeds that read it."""

    service_urls: Sequence[str]

    def make(self) -> UsageFeed:
        """Return a feed that is not started. The test closes it."""

    async def say(self, message: UsageMessage) -> None:
        """Publish a message of a broker."""

    async def say_nonsense(self) -> None:
        """Publish bytes that cannot be decoded."""

    async def interrupt(self, feed: UsageFeed) -> None:
        """Interrupt the feed's connection, at least for a moment, until `mend`."""

    async def mend(self, feed: UsageFeed) -> None:
        """Restore the feed's connection, unless it restores itself."""


@asynccontextmanager
async def listening(kit: UsageKit) -> AsyncIterator[UsageFeed]:
    """Yield a feed that is connected; close it at the end."""
    feed = kit.make()
    try:
        await feed.start(kit.service_urls)
        await tables_where(kit, feed, lambda tables: tables.status.state == "ok")
        yield feed
    finally:
        await feed.close()


async def heard(kit: UsageKit, feed: UsageFeed, message: UsageMessage) -> UsageTables:
    """Publish `message` until the feed has received it: its groups are then the groups of its broker."""
    before = feed.tables()

    def is_shown(tables: UsageTables) -> bool:
        groups = tables.latest.get(message.broker, {})
        usages = {item.group: item for item in message.groups}
        return groups.keys() == usages.keys() and all(
            (usages[name].publish is None or newer(groups[name].publish_ms, name, "publish_ms"))
            and (usages[name].dispatch is None or newer(groups[name].dispatch_ms, name, "dispatch_ms"))
            for name in groups
        )

    def newer(at_ms: int, name: str, side: str) -> bool:
        before_usage = before.latest.get(message.broker, {}).get(name, ReceivedUsage())
        return at_ms > int(getattr(before_usage, side))

    async def is_stated() -> bool:
        await kit.say(message)
        # Not over and over: what comes late would be news to the next rule.
        for _ in range(60):
            if is_shown(feed.tables()):
                return True
            await asyncio.sleep(0.05)
        return False

    await eventually(is_stated, within=kit.patience)
    return feed.tables()


class UsageContract:
    """The tests. Each docstring is the rule."""

    async def test_off_before_and_after(self, kit: UsageKit) -> None:
        """A feed that is not started, or closed, is off and knows nothing; asking it does no harm."""
        feed = kit.make()
        assert feed.tables() == UsageTables()
        async with listening(kit) as feed:
            await feed.start(kit.service_urls)
            await heard(kit, feed, usage_message(FIRST, acme=(LITTLE, MUCH)))
        assert feed.tables() == UsageTables()

    async def test_what_is_said_is_heard(self, kit: UsageKit) -> None:
        """Each broker's figures by group, when they came; a side that is left out is as it was, with its age."""
        async with listening(kit) as feed:
            await heard(kit, feed, usage_message(FIRST, acme=(LITTLE, MUCH), other=(MUCH, None)))
            before = await heard(kit, feed, usage_message(SECOND, acme=(None, LITTLE)))
            assert before.latest.keys() >= {FIRST, SECOND}
            first, second = before.latest[FIRST], before.latest[SECOND]["acme"]
            assert (first["acme"].publish, first["acme"].dispatch) == (LITTLE, MUCH)
            assert (first["other"].publish, first["other"].dispatch, first["other"].dispatch_ms) == (MUCH, None, 0)
            assert (second.publish, second.publish_ms, second.dispatch) == (None, 0, LITTLE)
            assert 0 < before.status.since_ms <= first["acme"].publish_ms <= second.dispatch_ms
            after = (await heard(kit, feed, usage_message(FIRST, acme=(None, LITTLE)))).latest[FIRST]["acme"]
            assert (after.publish, after.dispatch) == (LITTLE, LITTLE)
            assert after.publish_ms == first["acme"].publish_ms < after.dispatch_ms
            assert before.latest[FIRST] is first and first["acme"].dispatch == MUCH, (
                "what was handed out stays as it was"
            )

    async def test_nonsense_changes_nothing_else(self, kit: UsageKit) -> None:
        """A broken message is reported as a fault. Earlier values stay, and the next valid message is received."""
        async with listening(kit) as feed:
            before = await heard(kit, feed, usage_message(FIRST, acme=(LITTLE, MUCH)))
            assert before.fault == ""

            async def is_reported() -> bool:
                await kit.say_nonsense()
                return feed.tables().fault != ""

            await eventually(is_reported, within=kit.patience)
            assert feed.tables().latest[FIRST]["acme"].publish == LITTLE
            await heard(kit, feed, usage_message(SECOND, acme=(LITTLE, MUCH)))

    async def test_a_gap_is_said_and_figures_stay(self, kit: UsageKit) -> None:
        """The state reports the interruption; later `since_ms` contains the start of the gap."""
        async with listening(kit) as feed:
            before = await heard(kit, feed, usage_message(FIRST, acme=(LITTLE, MUCH)))
            await kit.interrupt(feed)
            during = await tables_where(kit, feed, lambda tables: tables.status.state != "ok")
            assert during.latest[FIRST]["acme"].publish == LITTLE
            await kit.mend(feed)
            after = await tables_where(kit, feed, lambda tables: tables.status.state == "ok")
            assert after.status.since_ms > before.status.since_ms
            assert after.latest[FIRST]["acme"].publish == LITTLE
            await heard(kit, feed, usage_message(FIRST, acme=(MUCH, MUCH)))
