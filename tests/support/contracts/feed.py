"""Tests that every `LoadFeed` must pass: the one in memory, and the one that reads topics of real brokers.

Subclass `FeedContract` in a test module and give it a fixture `kit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from bundlekeel.ports import LoadFeed, LoadTables
from tests.support.contracts.coordination import eventually

H_co = TypeVar("H_co", covariant=True)


class Patient(Protocol):
    """`patience`: seconds that a test waits at most for a change."""

    patience: float


class Feed(Protocol[H_co]):
    """The part of a feed that this contract and the contract of usage need."""

    def tables(self) -> H_co:
        """Return the received messages."""


class FeedKit(Patient, Protocol):
    """Brokers that publish load data, and the feeds that read it."""

    service_urls: Sequence[str]
    broker_ids: Sequence[str]

    def make(self) -> LoadFeed:
        """Return a feed that is not started. The test closes it."""

    async def say(self) -> None:
        """Make all brokers publish load data and top bundles soon, unless they always do."""

    async def withdraw(self) -> None:
        """Make a broker delete its load data and publish again shortly after, unless it has just done so."""

    async def interrupt(self, feed: LoadFeed) -> None:
        """Interrupt the feed's connection, at least for a moment, until `mend`."""

    async def mend(self, feed: LoadFeed) -> None:
        """Restore the feed's connection, unless it restores itself."""


@asynccontextmanager
async def listening(kit: FeedKit) -> AsyncIterator[LoadFeed]:
    """Yield a feed that has received messages of all brokers in both topics; close it at the end."""
    feed = kit.make()
    try:
        await feed.start(kit.service_urls)
        await tables_where(kit, feed, lambda tables: tables.status.state == "ok")
        await kit.say()
        await tables_where(kit, feed, lambda tables: heard_all(kit, tables))
        yield feed
    finally:
        await feed.close()


def heard_all(kit: FeedKit, tables: LoadTables) -> bool:
    """Return whether all brokers have sent a message in both topics."""
    loads = [tables.latest.get(broker_id) for broker_id in kit.broker_ids]
    return all(load is not None and load.load is not None and load.bundles is not None for load in loads)


async def tables_where(kit: Patient, feed: Feed[H_co], condition: Callable[[H_co], bool]) -> H_co:
    """Wait until the tables of a feed satisfy the condition, and return them."""
    return await eventually(lambda: tables if condition(tables := feed.tables()) else None, within=kit.patience)


class FeedContract:
    """The tests. Each docstring is the rule."""

    async def test_off_before_and_after(self, kit: FeedKit) -> None:
        """A feed that is not started, or closed, is off; asking it does no harm."""
        feed = kit.make()
        assert (feed.tables().status.state, feed.tables().latest) == ("off", {})
        await feed.start(kit.service_urls)
        await feed.start(kit.service_urls)
        await tables_where(kit, feed, lambda tables: tables.status.state == "ok")
        await feed.close()
        assert feed.tables().status.state == "off"

    async def test_brokers_are_heard(self, kit: FeedKit) -> None:
        """Each broker's load and top bundles, and when they came."""
        async with listening(kit) as feed:
            tables = feed.tables()
        assert tables.status.since_ms > 0
        for broker_id in kit.broker_ids:
            load = tables.latest[broker_id]
            assert load.load is not None
            assert load.load.broker_id == broker_id
            assert load.load.weighted_max_ema >= 0
            assert min(load.load_ms, load.bundles_ms) >= tables.status.since_ms
            assert load.fault is None

    async def test_withdrawn_figures_are_kept(self, kit: FeedKit) -> None:
        """A broker that takes its load data back has not vanished: what it said stays, marked until it reports."""
        async with listening(kit) as feed:
            loads: list[str] = []

            async def withdrawn() -> bool:
                await kit.withdraw()
                for _ in range(20):
                    tables = feed.tables()
                    loads.extend(broker for broker, load in tables.latest.items() if load.withdrawn_ms)
                    if loads:
                        assert heard_all(kit, tables)
                        assert tables.latest[loads[0]].withdrawn_ms >= tables.status.since_ms
                        return True
                    await feed.wait_changed(tables.generation, 0.1)
                return False

            await eventually(withdrawn, within=kit.patience)
            await kit.say()
            await tables_where(kit, feed, lambda tables: not tables.latest[loads[0]].withdrawn_ms)

    async def test_waiting(self, kit: FeedKit) -> None:
        """`wait_changed` returns for a message, with newer tables, and otherwise runs out."""
        async with listening(kit) as feed:
            before = feed.tables()
            waiting = asyncio.create_task(feed.wait_changed(before.generation, kit.patience))
            await kit.say()
            assert await waiting
            assert feed.tables().generation > before.generation
            assert not await feed.wait_changed(feed.tables().generation + 10_000, 0.1)

    async def test_tables_do_not_change(self, kit: FeedKit) -> None:
        async with listening(kit) as feed:
            before = feed.tables()
            times = {broker: load.bundles_ms for broker, load in before.latest.items()}
            await kit.say()
            await tables_where(
                kit,
                feed,
                lambda tables: all(tables.latest[broker].bundles_ms > times[broker] for broker in kit.broker_ids),
            )
            assert {broker: load.bundles_ms for broker, load in before.latest.items()} == times

    async def test_a_gap_is_said_and_figures_stay(self, kit: FeedKit) -> None:
        """The state reports the interruption and wakes waiting callers; later `since_ms` contains the start of the
        gap.
        """
        async with listening(kit) as feed:
            before = feed.tables()
            await kit.interrupt(feed)
            during = await tables_where(kit, feed, lambda tables: tables.status.state != "ok")
            assert during.generation > before.generation
            assert heard_all(kit, during)
            await kit.mend(feed)
            after = await tables_where(kit, feed, lambda tables: tables.status.state == "ok")
            assert heard_all(kit, after)
            assert after.status.since_ms > before.status.since_ms
            await kit.say()
            await tables_where(
                kit, feed, lambda tables: all(tables.latest[b].load_ms >= after.status.since_ms for b in kit.broker_ids)
            )
