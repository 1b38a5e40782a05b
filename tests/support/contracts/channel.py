"""Contract of every `Channel`: the same tests for the fake and for both variants on real brokers.

Subclass `ChannelContract` in a test module and give it a fixture `kit`. A kit has its own namespace, in which only the
kit looks up bundles. On a shared cluster other bundles may change meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import pytest

from bundlekeel.model.channel_states import IN_FLIGHT, UnitState
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.ports import Channel, ChannelVariant, ChannelView
from tests.support.contracts.coordination import eventually


class ChannelKit(Protocol):
    """Brokers whose channel is followed. `patience` bounds, in seconds, how long a change may take to show."""

    variant: ChannelVariant
    patience: float
    service_urls: Sequence[str]

    def make(self) -> Channel:
        """One more follower, not started yet; the test closes it."""

    async def own(self, number: int) -> tuple[str, str]:
        """Look up a topic of bundle `number` (0 to 3) of the kit's namespace: the bundle, and who owns it now."""

    async def transfer(self, bundle: str) -> str:
        """Move an owned bundle to another broker, wait for the brokers' 204; the new owner."""

    async def unload(self, bundle: str) -> None:
        """Unload an owned bundle without a destination, wait for the brokers' 204; no broker owns it then."""

    async def split(self, bundle: str) -> tuple[str, str]:
        """Split an owned bundle in the middle, wait for the brokers' 204; the children, lower first."""

    async def owned(self) -> dict[str, str]:
        """Return the owner of each bundle as the brokers report it, without heartbeat and SLA bundles."""

    async def interrupt(self, channel: Channel) -> None:
        """Make this one unable to follow the channel, at least for a moment, until `mend`."""

    async def mend(self, channel: Channel) -> None:
        """Let it follow the channel again, if it does not find back by itself."""


@asynccontextmanager
async def following(kit: ChannelKit) -> AsyncIterator[Channel]:
    """A started follower that has read the channel through once; closed at the end."""
    channel = kit.make()
    try:
        await channel.start(kit.service_urls)
        await read(kit, channel)
        yield channel
    finally:
        await channel.close()


async def read(kit: ChannelKit, channel: Channel) -> ChannelView:
    """Wait for the channel's first view and return it."""
    return await eventually(channel.view, within=kit.patience)


async def shows(kit: ChannelKit, channel: Channel, bundle: str, owner: str) -> None:
    """Wait until the view says that this broker owns the bundle."""

    async def is_shown() -> bool:
        unit = (await channel.view()).units.get(bundle)
        return unit is not None and (unit.state, unit.destination) == (UnitState.OWNED, owner)

    await eventually(is_shown, within=kit.patience)


async def refused(kit: ChannelKit, channel: Channel) -> None:
    """Wait until the view is refused."""

    async def down() -> bool:
        try:
            await channel.view()
        except StoreError:
            return True
        return False

    await eventually(down, within=kit.patience)


class ChannelContract:
    """The tests. Each docstring is the rule."""

    async def test_nothing_is_shown_before_it_was_read_through(self, kit: ChannelKit) -> None:
        """Before the first complete reading there is no view."""
        channel = kit.make()
        try:
            with pytest.raises(SnapshotError):
                await channel.view()
        finally:
            await channel.close()

    async def test_a_view_is_whole(self, kit: ChannelKit) -> None:
        """The first view has every bundle that is owned, and since when; starting again does no harm."""
        bundle, owner = await kit.own(0)
        async with following(kit) as channel:
            await channel.start(kit.service_urls)
            view = await channel.view()
        assert view.variant == kit.variant
        assert (view.units[bundle].state, view.units[bundle].destination) == (UnitState.OWNED, owner)
        assert view.units[bundle].version >= 1
        assert view.seen_ms.keys() == view.units.keys()
        assert all(0 < ms <= view.wall_ms for ms in view.seen_ms.values())

    async def test_owners_are_those_the_brokers_name(self, kit: ChannelKit) -> None:
        """The view contains the owners that the brokers report."""
        for number in range(3):
            await kit.own(number)
        async with following(kit) as channel:

            async def agrees() -> bool:
                units = (await channel.view()).units
                settled = not any(unit.state in IN_FLIGHT for unit in units.values())
                owners = {name: unit.destination for name, unit in units.items() if unit.state is UnitState.OWNED}
                return settled and owners == await kit.owned()

            await eventually(agrees, within=kit.patience)

    async def test_one_bundle_is_as_new_as_the_call(self, kit: ChannelKit) -> None:
        """`unit` contains a change as soon as the broker has responded. `view` follows later."""
        bundle, owner = await kit.own(0)
        async with following(kit) as channel:
            for _ in range(5):
                owner = await kit.transfer(bundle)
                unit = await channel.unit(bundle)
                assert unit is not None
                assert (unit.state, unit.destination) == (UnitState.OWNED, owner)
            await shows(kit, channel, bundle, owner)

    async def test_an_unloaded_bundle_is_free(self, kit: ChannelKit) -> None:
        """A bundle that is unloaded without a destination is Free, with its last owner. The next lookup makes it
        Owned.
        """
        bundle, owner = await kit.own(1)
        async with following(kit) as channel:
            await kit.unload(bundle)
            unit = await channel.unit(bundle)
            assert unit is not None
            assert (unit.state, unit.destination, unit.source) == (UnitState.FREE, "", owner)
            _, owner = await kit.own(1)
            await shows(kit, channel, bundle, owner)

    async def test_a_split_bundle_gives_way_to_its_children(self, kit: ChannelKit) -> None:
        """Children are Owned where their parent was; it is Deleted, and soon has no entry."""
        bundle, owner = await kit.own(2)
        async with following(kit) as channel:
            children = await kit.split(bundle)
            for child in children:
                unit = await channel.unit(child)
                assert unit is not None
                assert (unit.state, unit.destination) == (UnitState.OWNED, owner)

            async def is_gone() -> bool:
                view = await channel.view()
                return bundle not in view.units and bundle not in view.seen_ms

            await eventually(is_gone, within=kit.patience)
            assert await channel.unit(bundle) is None

    async def test_a_bundle_nobody_wrote_of_has_no_entry(self, kit: ChannelKit) -> None:
        """No entry is None, which is Pulsar's Init."""
        async with following(kit) as channel:
            assert await channel.unit("no/where/0x00000000_0xffffffff") is None

    async def test_waiting(self, kit: ChannelKit) -> None:
        """`wait_changed` returns for a change, with a newer view, and otherwise runs out."""
        bundle, _ = await kit.own(0)
        async with following(kit) as channel:
            before = await channel.view()
            assert await channel.wait_changed(before.generation - 1, kit.patience)
            waiting = asyncio.create_task(channel.wait_changed(before.generation, kit.patience))
            owner = await kit.transfer(bundle)
            assert await waiting
            await shows(kit, channel, bundle, owner)
            after = await channel.view()
            assert after.generation > before.generation
            assert after.seen_ms[bundle] >= before.seen_ms[bundle]
            assert not await channel.wait_changed(after.generation + 1000, 0.1)

    async def test_a_view_does_not_change(self, kit: ChannelKit) -> None:
        bundle, first = await kit.own(0)
        async with following(kit) as channel:
            before = await channel.view()
            await shows(kit, channel, bundle, await kit.transfer(bundle))
            assert before.units[bundle].destination == first

    async def test_not_followed_is_said(self, kit: ChannelKit) -> None:
        """While the channel cannot be followed, the view is refused, not returned as if it were current. Later it is
        complete again, and an unchanged entry keeps its age.
        """
        bundle, owner = await kit.own(0)
        async with following(kit) as channel:
            before = await channel.view()
            await kit.interrupt(channel)
            await refused(kit, channel)
            await kit.mend(channel)
            await shows(kit, channel, bundle, owner)
            after = await channel.view()
            assert after.seen_ms[bundle] == before.seen_ms[bundle]
            owner = await kit.transfer(bundle)
            unit = await channel.unit(bundle)
            assert unit is not None
            assert unit.destination == owner

    async def test_closing_twice(self, kit: ChannelKit) -> None:
        """Closing is done once; again does no harm."""
        async with following(kit) as channel:
            await channel.close()
