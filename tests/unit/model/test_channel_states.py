"""The conflict resolver, its table and the owners in it (tests/parity compares the resolver with Java)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bundlekeel.model.channel_states import (
    ACTIVE,
    IN_FLIGHT,
    MAX_REJECTED,
    MAX_VERSION,
    MIN_VERSION,
    OVER_METADATA_STORE,
    OVER_SYSTEM_TOPIC,
    ChannelTable,
    ServiceUnit,
    UnitState,
    owner_of,
    should_keep_left,
)
from bundlekeel.ports import Channel, ChannelVariant
from tests.support.contracts.channel import ChannelContract, following
from tests.support.memory_channel import MemoryChannel
from tests.support.memory_source import RealClock

BUNDLE = "shop/a/0x00000000_0x80000000"
OWNED = ServiceUnit(state=UnitState.OWNED, destination="b1:8080", timestamp_ms=5, version=7)
RELEASING = ServiceUnit(state=UnitState.RELEASING, destination="b2:8080", source="b1:8080", version=8)


def test_every_state_has_its_successors() -> None:
    """The two tables differ only where compaction, or a missing entry, comes in."""
    assert set(OVER_SYSTEM_TOPIC) == set(OVER_METADATA_STORE) == set(UnitState)
    different = {state for state in UnitState if OVER_SYSTEM_TOPIC[state] != OVER_METADATA_STORE[state]}
    assert different == {UnitState.INIT, UnitState.FREE}
    assert {UnitState.OWNED} == ACTIVE - IN_FLIGHT


@pytest.mark.parametrize("store", [False, True])
def test_a_lawful_successor_wins_once(store: bool) -> None:
    """And read again, or older, it loses."""
    assert not should_keep_left(OWNED, RELEASING, store=store)
    assert should_keep_left(RELEASING, RELEASING, store=store)
    assert should_keep_left(RELEASING, OWNED, store=store)


@pytest.mark.parametrize("store", [False, True])
def test_a_tombstone_always_wins(store: bool) -> None:
    """Whatever was there, and also where nothing was."""
    assert not should_keep_left(OWNED, None, store=store) and not should_keep_left(None, None, store=store)


def test_a_gap_is_compaction_over_the_topic_and_a_conflict_over_the_store() -> None:
    """Even where the transition, or force, would say something else."""
    later = replace(OWNED, destination="b3:8080", version=9)
    for unit in (later, replace(later, force=True)):
        assert not should_keep_left(OWNED, unit, store=False)
        assert should_keep_left(OWNED, unit, store=True)


def test_the_first_entry() -> None:
    """Over the topic anything but Init can be first; over the store anything of version 1."""
    assert not should_keep_left(None, OWNED, store=False)
    assert should_keep_left(None, OWNED, store=True)
    assert not should_keep_left(None, replace(OWNED, version=1), store=True)
    first = ServiceUnit(state=UnitState.INIT, destination="b1:8080")
    assert should_keep_left(None, first, store=False) and not should_keep_left(None, first, store=True)


def test_after_the_largest_version_comes_the_smallest() -> None:
    assert (MIN_VERSION, MAX_VERSION) == (-9_223_372_036_854_775_808, 9_223_372_036_854_775_807)
    last = replace(OWNED, version=MAX_VERSION)
    assert not should_keep_left(last, replace(RELEASING, version=MIN_VERSION), store=False)
    assert should_keep_left(last, replace(RELEASING, version=MIN_VERSION + 1), store=False)


def test_force_breaks_every_rule_but_the_version() -> None:
    """The leader broker gives a bundle to another owner at once."""
    changed = replace(OWNED, destination="b2:8080", version=8)
    assert should_keep_left(OWNED, changed, store=False)
    assert not should_keep_left(OWNED, replace(changed, force=True), store=False)
    assert should_keep_left(OWNED, replace(changed, force=True, version=7), store=False)


@pytest.mark.parametrize(
    ("destination", "source", "loses"),
    [
        ("b2:8080", "b1:8080", False),
        ("", "b1:8080", False),
        ("b1:8080", "b1:8080", True),
        ("b2:8080", "b2:8080", True),
        ("b2:8080", "", True),
    ],
)
def test_only_the_owner_is_released_and_not_to_itself(destination: str, source: str, loses: bool) -> None:
    """An unload names no destination."""
    unit = replace(RELEASING, destination=destination, source=source)
    assert should_keep_left(OWNED, unit, store=False) is loses


@pytest.mark.parametrize(("destination", "source"), [("b3:8080", "b1:8080"), ("b2:8080", "b3:8080"), ("b2:8080", "")])
def test_brokers_of_a_transfer_stay(destination: str, source: str) -> None:
    assigning = replace(RELEASING, state=UnitState.ASSIGNING, version=9)
    assert not should_keep_left(RELEASING, assigning, store=False)
    assert should_keep_left(RELEASING, replace(assigning, destination=destination, source=source), store=False)


@pytest.mark.parametrize(
    ("unit", "owner"),
    [
        (None, None),
        (ServiceUnit(state=UnitState.FREE, source="b1:8080"), None),
        (ServiceUnit(state=UnitState.DELETED, source="b1:8080"), None),
        (ServiceUnit(state=UnitState.INIT, destination="b1:8080"), None),
        (OWNED, ("b1:8080", False)),
        (ServiceUnit(state=UnitState.SPLITTING, source="b1:8080"), ("b1:8080", True)),
        (RELEASING, ("b2:8080", True)),
        (replace(RELEASING, destination=""), ("", True)),
        (ServiceUnit(state=UnitState.ASSIGNING, destination="b2:8080", source="b1:8080"), ("b2:8080", True)),
    ],
)
def test_owner_as_lookups_answer(unit: ServiceUnit | None, owner: tuple[str, bool] | None) -> None:
    """A bundle on its way belongs to its destination; a splitting one to its source."""
    assert owner_of(unit) == owner


def test_table_takes_in_and_tells_what_lost() -> None:
    """The age is that of the present entry; a tombstone takes all of it away."""
    table = ChannelTable()
    assert table.apply(BUNDLE, OWNED, 100)
    assert not table.apply(BUNDLE, replace(RELEASING, source="b3:8080"), 110)
    assert table.seen_ms == {BUNDLE: 100} and [lost.wall_ms for lost in table.rejected] == [110]
    assert table.apply(BUNDLE, RELEASING, 120)
    assert table.units == {BUNDLE: RELEASING} and table.seen_ms == {BUNDLE: 120}
    assert table.apply(BUNDLE, None, 130) and table.apply(BUNDLE, None, 131)
    assert not table.units and not table.seen_ms


def test_what_is_read_twice_lost_to_nobody() -> None:
    """A reader that comes back reads the last message again."""
    table = ChannelTable()
    table.apply(BUNDLE, OWNED, 100)
    assert not table.apply(BUNDLE, replace(OWNED), 200)
    assert not table.rejected and table.seen_ms == {BUNDLE: 100}


def test_only_the_newest_losses_are_kept() -> None:
    """In the order in which they came."""
    table = ChannelTable()
    table.apply(BUNDLE, OWNED, 0)
    for at in range(MAX_REJECTED + 5):
        table.apply(BUNDLE, replace(OWNED, destination="b2:8080"), at)
    assert [lost.wall_ms for lost in table.rejected] == list(range(5, MAX_REJECTED + 5))


def test_a_store_is_believed() -> None:
    table = ChannelTable(store=True)
    table.replace(BUNDLE, OWNED, 100)
    later = replace(OWNED, destination="b2:8080", version=11)
    assert not table.apply(BUNDLE, later, 110)
    table.replace(BUNDLE, later, 120)
    table.replace(BUNDLE, replace(later), 130)
    assert table.units == {BUNDLE: later} and table.seen_ms == {BUNDLE: 120}
    table.replace(BUNDLE, None, 140)
    assert not table.units and not table.seen_ms


BROKERS = ("a:8080", "b:8080")
BUNDLES = tuple(f"t/n/0x{low:08x}_0x{min(low + 2**30, 2**32 - 1):08x}" for low in range(0, 2**32, 2**30))


class MemoryKit:
    """One channel in memory with obedient brokers."""

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
    bundle, owner = await kit.own(0)
    async with following(kit) as channel:
        assert not kit.channel.publish(bundle, UnitState.OWNED, BROKERS[1])
        view = await channel.view()
    assert view.units[bundle].destination == owner
    assert [(lost.bundle, lost.unit.destination) for lost in view.rejected] == [(bundle, BROKERS[1])]
