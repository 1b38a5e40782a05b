"""The ownership channel in the metadata store, on a real ZooKeeper with entries written by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient

from bundlekeel.model.channel_states import ServiceUnit, UnitState
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.ports import ChannelView
from bundlekeel.pulsar.zookeeper import ZkChannel, ZkClient
from bundlekeel.pulsar.zookeeper.channel import SERVICE_UNITS
from bundlekeel.pulsar.zookeeper.client import Stat
from dev.cluster import Cluster
from tests.support.contracts.coordination import eventually
from tests.support.contracts.zookeeper import SESSION_SECONDS, chroot, client, end_session, silence, store, zookeeper
from tests.support.contracts.zookeeper import put as put_node
from tests.support.memory_source import RealClock
from tests.support.service_units import encode_service_unit

__all__ = ["chroot", "client", "store", "zookeeper"]

pytestmark = pytest.mark.zookeeper

BUNDLE = "public/default/0x00000000_0x40000000"


def owned(broker: str = "b1:8080", *, version: int = 2) -> bytes:
    """An entry of a bundle that is owned."""
    return encode_service_unit(ServiceUnit(state=UnitState.OWNED, destination=broker, version=version))


@pytest.fixture
async def channel(client: ZkClient) -> AsyncIterator[ZkChannel]:
    """A channel that is not started yet."""
    value = ZkChannel(client, clock=RealClock())
    yield value
    await value.close()


def put(store: KazooClient, bundle: str, data: bytes) -> None:
    """Write an entry."""
    put_node(store, f"{SERVICE_UNITS}/{bundle}", data)


async def until(channel: ZkChannel, condition: Callable[[ChannelView], Any]) -> ChannelView:
    """The first view that satisfies the condition."""

    async def read() -> ChannelView | None:
        view = await channel.view()
        return view if condition(view) else None

    current: ChannelView = await eventually(read, within=30)
    return current


def owners(view: ChannelView) -> dict[str, str]:
    """Destinations by bundle."""
    return {bundle: unit.destination for bundle, unit in view.units.items()}


def has_version(version: int, view: ChannelView) -> bool:
    """Whether the bundle's entry has come to this version."""
    return view.units[BUNDLE].version == version


async def test_a_channel_whose_root_comes_later(channel: ZkChannel, store: KazooClient) -> None:
    """A cluster that has never assigned a bundle is an empty view; the first entry makes root, tenant and namespace."""
    await channel.start()
    assert (await until(channel, lambda view: True)).units == {}
    put(store, BUNDLE, owned())
    view = await until(channel, lambda view: view.units)
    assert owners(view) == {BUNDLE: "b1:8080"}
    assert (view.variant, view.rejected) == ("metadata_store", ())


async def test_tenants_and_namespaces_come_and_go(channel: ZkChannel, store: KazooClient) -> None:
    """Every level is watched. A namespace of the old form has one more level. Nodes that are not bundles are
    ignored.
    """
    put(store, BUNDLE, owned())
    put(store, "pulsar/local/127.0.0.1:8080/0x00000000_0xffffffff", owned("b2:8080"))
    put(store, "public/default/readme", b"not an entry")
    await channel.start()
    assert len((await until(channel, lambda view: len(view.units) == 2)).units) == 2
    put(store, "other/ns/0x00000000_0xffffffff", owned("b3:8080"))
    put(store, "public/more/0x00000000_0xffffffff", owned("b3:8080"))
    await until(channel, lambda view: len(view.units) == 4)
    store.delete(f"{SERVICE_UNITS}/other", recursive=True)
    store.delete(f"{SERVICE_UNITS}/{BUNDLE}")
    assert sorted(owners(await until(channel, lambda view: len(view.units) == 2)).values()) == ["b2:8080", "b3:8080"]
    put(store, "other/ns/0x00000000_0xffffffff", owned("b1:8080"))
    assert owners(await until(channel, lambda view: len(view.units) == 3))["other/ns/0x00000000_0xffffffff"] == (
        "b1:8080"
    )


async def test_an_entry_that_comes_and_goes_over_and_over(channel: ZkChannel, store: KazooClient) -> None:
    """Whatever falls between two readings, the last word counts: of the bundle, and of its whole tenant."""
    await channel.start()
    for turn in range(1, 40):
        put(store, BUNDLE, owned(version=turn))
        await asyncio.sleep(0.013)
        store.delete(f"{SERVICE_UNITS}/public" if turn % 2 else f"{SERVICE_UNITS}/{BUNDLE}", recursive=True)
    put(store, BUNDLE, owned("last:8080", version=99))
    await until(channel, lambda view: owners(view) == {BUNDLE: "last:8080"})
    store.delete(f"{SERVICE_UNITS}", recursive=True)
    await until(channel, lambda view: not view.units)


class CountingClient(ZkClient):
    """A session that counts the nodes whose data it reads."""

    reads = 0

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> tuple[bytes, Stat] | None:
        self.reads += 1
        return await super().get(path, watch)


async def test_thousands_of_bundles_are_read_once(zookeeper: Cluster, chroot: str, store: KazooClient) -> None:
    """3,000 entries are 3,000 reads; a change is one more, and so is a change while the session was lost."""
    names = [f"t/n{space}/0x{i:08x}_0x{i + 1:08x}" for space in range(3) for i in range(1000)]
    for space in range(3):
        store.ensure_path(f"{SERVICE_UNITS}/t/n{space}")
    for creation in [store.create_async(f"{SERVICE_UNITS}/{name}", owned()) for name in names]:
        creation.get(timeout=20)
    client = CountingClient(zookeeper.zk_hosts, chroot, session_seconds=SESSION_SECONDS, call_timeout_seconds=5.0)
    channel = ZkChannel(client, clock=RealClock())
    try:
        await channel.start()
        first = await until(channel, lambda view: len(view.units) == 3000)
        assert client.reads == 3000
        put(store, names[7], owned("b2:8080", version=3))
        second = await until(channel, lambda view: view.units[names[7]].version == 3)
        assert client.reads == 3001
        assert second.seen_ms[names[8]] == first.seen_ms[names[8]]
        assert second.seen_ms[names[7]] >= first.seen_ms[names[7]]
        await end_session(client)
        put(store, names[9], owned("b3:8080", version=4))
        await until(channel, lambda view: view.units[names[9]].version == 4)
        assert client.reads == 3002
    finally:
        await channel.close()
        await client.close()


async def test_after_a_lost_session_all_is_seen_again(channel: ZkChannel, store: KazooClient, client: ZkClient) -> None:
    """Changes of every kind during the interruption, and later ones, appear."""
    put(store, BUNDLE, owned())
    put(store, "t/gone/0x00000000_0xffffffff", owned())
    await channel.start()
    await until(channel, lambda view: len(view.units) == 2)
    for turn in (3, 4):
        await end_session(client)
        put(store, BUNDLE, owned(version=turn))
        await until(channel, partial(has_version, turn))
    store.delete(f"{SERVICE_UNITS}/t", recursive=True)
    put(store, "t/new/0x00000000_0xffffffff", owned())
    await until(channel, lambda view: set(view.units) == {BUNDLE, "t/new/0x00000000_0xffffffff"})


async def test_while_suspended_there_is_no_view(
    channel: ZkChannel, store: KazooClient, client: ZkClient, zookeeper: Cluster
) -> None:
    """SIGSTOP of ZooKeeper: StoreError that says since when; after SIGCONT the truth without a restart."""
    put(store, BUNDLE, owned())
    await channel.start()
    await until(channel, lambda view: view.units)
    try:
        await silence(zookeeper, client)
        with pytest.raises(StoreError, match=r"no connection to ZooKeeper at .* for \d+\.\d s"):
            await channel.view()
        with pytest.raises(StoreError):
            await channel.unit(BUNDLE)
    finally:
        zookeeper.resume("zookeeper")
    await until(channel, lambda view: owners(view) == {BUNDLE: "b1:8080"})
    assert await channel.unit(BUNDLE) == (await channel.view()).units[BUNDLE]


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b'{"state":"Owned"}', b'{"state":"Sold","dstBroker":"b"}'])
async def test_an_entry_that_cannot_be_used(
    channel: ZkChannel, store: KazooClient, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """An unusable entry affects only itself: the view keeps the last valid state, and `unit` reports the fault."""
    put(store, BUNDLE, owned())
    await channel.start()
    await until(channel, lambda view: view.units)
    put(store, BUNDLE, data)
    put(store, "t/n/0x00000000_0xffffffff", owned())
    view = await until(channel, lambda view: len(view.units) == 2)
    await eventually(lambda: BUNDLE in caplog.text)
    assert view.units[BUNDLE].destination == "b1:8080"
    with pytest.raises(StoreError, match=BUNDLE):
        await channel.unit(BUNDLE)
    put(store, BUNDLE, owned("b2:8080", version=3))
    await until(channel, lambda view: view.units[BUNDLE].destination == "b2:8080")


async def test_a_storm_of_changes_is_few_views(channel: ZkChannel, store: KazooClient) -> None:
    """Hundreds of changes per second cause few views. The last change is in the last view."""
    names = [f"t/n/0x{i:08x}_0x{i + 1:08x}" for i in range(50)]
    for name in names:
        put(store, name, owned())
    await channel.start()
    before = await until(channel, lambda view: len(view.units) == 50)

    def storm() -> float:
        started = time.monotonic()
        for turn in range(3, 23):
            pending = [store.set_async(f"{SERVICE_UNITS}/{name}", owned(version=turn)) for name in names]
            for result in pending:
                result.get(timeout=20)
        return time.monotonic() - started

    seconds = await asyncio.to_thread(storm)
    after = await until(channel, lambda view: {unit.version for unit in view.units.values()} == {22})
    assert after.generation - before.generation <= seconds / 0.05 + 3


async def test_starting_without_a_store_is_no_error() -> None:
    """An unreachable store: start returns at once, the view is a SnapshotError, `unit` a StoreError."""
    lost = ZkClient("127.0.0.1:1", "/x", session_seconds=2, call_timeout_seconds=0.5)
    channel = ZkChannel(lost, clock=RealClock())
    await channel.start()
    with pytest.raises(SnapshotError):
        await channel.view()
    with pytest.raises(StoreError):
        await channel.unit(BUNDLE)
    await channel.close()
    await lost.close()


def test_the_entries_are_what_brokers_write() -> None:
    """The hand that writes here writes Jackson's form."""
    assert json.loads(owned()) == {
        "state": "Owned",
        "dstBroker": "b1:8080",
        "force": False,
        "timestamp": 0,
        "versionId": 2,
    }
