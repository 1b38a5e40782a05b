"""Ownership, metadata and the client itself on a real ZooKeeper with hand-written znodes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from bundlekeel.model.errors import CodecError, StaleWrite, StoreError, StoreMigrated
from bundlekeel.model.names import parse_topic
from bundlekeel.model.scalable import Segment
from bundlekeel.pulsar.zookeeper.client import NodeExists, NodeMissing, TransactionFailed, TransactionStep, ZkClient
from bundlekeel.pulsar.zookeeper.metadata import ZkMetadata, ZkOwnership
from dev.cluster import Cluster
from tests.support.contracts.coordination import eventually
from tests.support.contracts.zookeeper import (
    SESSION_SECONDS,
    chroot,
    client,
    connect,
    end_session,
    put,
    store,
    zookeeper,
)

__all__ = ["chroot", "client", "store", "zookeeper"]

pytestmark = pytest.mark.zookeeper

BUNDLE = "public/default/0x00000000_0x80000000"


@pytest.fixture
async def metadata(zookeeper: Cluster, chroot: str, client: ZkClient, store: KazooClient) -> AsyncIterator[ZkMetadata]:
    """Over the store, and a configuration store below another chroot."""
    store.create("/config")
    configuration = await connect(zookeeper, f"{chroot}/config")
    yield ZkMetadata(client, configuration)
    await configuration.close()


async def test_an_owner_that_cannot_be_read(client: ZkClient, store: KazooClient) -> None:
    """A broken node is an error, not a bundle without an owner."""
    store.create(f"/namespace/{BUNDLE}", b"", ephemeral=True, makepath=True)
    with pytest.raises(CodecError):
        await ZkOwnership(client).owner(BUNDLE)


async def test_boundaries_of_a_namespace(metadata: ZkMetadata, store: KazooClient) -> None:
    """Boundaries come from the local policies, else from the policies; a namespace in neither store is None."""
    assert await metadata.boundaries("t/ns") is None
    two = {"bundles": {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}}
    one = {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}
    store.create("/config/admin/policies/t/ns", json.dumps(one).encode(), makepath=True)
    assert await metadata.boundaries("t/ns") == [0, 0xFFFFFFFF]
    store.create("/admin/local-policies/t/ns", json.dumps(two).encode(), makepath=True)
    assert await metadata.boundaries("t/ns") == [0, 0x80000000, 0xFFFFFFFF]
    store.set("/admin/local-policies/t/ns", b"")
    assert await metadata.boundaries("t/ns") == [0, 0xFFFFFFFF]
    store.delete("/config/admin/policies/t/ns")
    with pytest.raises(CodecError):
        await metadata.boundaries("t/ns")


async def test_partitions_that_cannot_be_read(metadata: ZkMetadata, store: KazooClient) -> None:
    """A broken record counts as none; fields that are not known are passed over."""
    root = "/config/admin/partitioned-topics/t/ns/persistent"
    store.create(f"{root}/more", b'{"partitions":4,"x":1}', makepath=True)
    store.create(f"{root}/broken", b"{", makepath=True)
    assert await metadata.partitions("persistent://t/ns/more") == 4
    assert await metadata.partitions("persistent://t/ns/broken") == 0


async def test_another_configuration_store_is_followed(zookeeper: Cluster, chroot: str, store: KazooClient) -> None:
    """Policies are read there from then on, and the session ends with the metadata's."""
    store.create("/config/admin/policies/t/ns", makepath=True)
    local = await connect(zookeeper, chroot)
    metadata = ZkMetadata(local, local)
    assert await metadata.namespaces() == []
    other = ZkClient(zookeeper.zk_hosts, f"{chroot}/config", session_seconds=2, call_timeout_seconds=5)
    metadata.follow(other)
    await eventually(lambda: other.connected)
    assert await metadata.namespaces() == ["t/ns"]
    await metadata.close()
    assert not other.connected and local.connected
    await local.close()


async def test_leader_of_the_brokers(metadata: ZkMetadata, store: KazooClient) -> None:
    """The load-manager leader's broker id, of either load manager, with and without `brokerId`."""
    assert await metadata.metadata_leader() is None
    store.create("/loadbalance/extension/leader", b'{"serviceUrl":"http://x:1"}', makepath=True)
    assert await metadata.metadata_leader() == "x:1"
    store.create("/loadbalance/leader", b'{"brokerId":"h:8080","serviceUrl":"http://h:8080"}')
    assert await metadata.metadata_leader() == "h:8080"


async def test_the_negotiated_session_time_out_is_the_servers(zookeeper: Cluster, chroot: str) -> None:
    """We ask for an hour and learn what the server grants (20 ticks of 500 ms)."""
    greedy = ZkClient(zookeeper.zk_hosts, chroot, session_seconds=3600, call_timeout_seconds=1)
    assert greedy.negotiated_seconds == 0.0
    await greedy.close()
    greedy = await connect(zookeeper, chroot, session_seconds=3600)
    assert greedy.negotiated_seconds == 10.0
    await greedy.close()


async def test_calls_on_a_client_that_is_not_connected_fail_at_once(zookeeper: Cluster) -> None:
    """Nothing waits in kazoo's queue: not before start, not while connecting, not after close."""
    lost = ZkClient("127.0.0.1:1", "", session_seconds=2, call_timeout_seconds=5)
    for action in (lambda: None, lost.start):
        action()
        started = time.monotonic()
        with pytest.raises(StoreError, match="not connected"):
            await lost.get("/")
        assert time.monotonic() - started < 2.5  # half of what a call may take
    assert not lost.connected
    assert lost.session_id is None
    await lost.close()
    await lost.close()


async def test_watches_fire_once_and_on_the_loop(client: ZkClient, store: KazooClient) -> None:
    """A watch is called on the loop's own thread, once, and not for the loss of the connection."""
    fired = asyncio.Event()
    calls = []

    def watch() -> None:
        assert asyncio.get_running_loop() is not None
        calls.append(1)
        fired.set()

    assert await client.exists("/x", watch) is None
    store.create("/x", b"1")
    await asyncio.wait_for(fired.wait(), 5)
    store.set("/x", b"2")
    assert await client.get("/x", watch) is not None
    await end_session(client)
    data = await client.get("/x")
    assert data is not None
    assert data[0] == b"2"
    assert calls == [1]


async def test_listeners_hear_of_lost_sessions(client: ZkClient) -> None:
    """A session that ends is reported, and so is its successor."""
    events: list[str] = []
    client.add_listener(events.append)
    await end_session(client)
    await asyncio.sleep(0.05)
    assert events[-1] == "connected"
    assert "lost" in events
    client.remove_listener(events.append)
    client.remove_listener(events.append)


async def test_faults_are_ours(client: ZkClient) -> None:
    """kazoo's exceptions become our errors. The error of a transaction contains the failed step and the reason."""
    await client.create("/n", b"1")
    with pytest.raises(NodeExists):
        await client.create("/n")
    with pytest.raises(NodeMissing):
        await client.create("/no/n")
    with pytest.raises(StaleWrite):
        await client.set("/n", b"", version=7)
    with pytest.raises(NodeMissing):
        await client.set("/no", b"", version=-1)
    with pytest.raises(TransactionFailed) as caught:
        await client.transaction(
            [
                TransactionStep(kind="set", path="/n", data=b"2"),
                TransactionStep(kind="check", path="/n", version=5),
                TransactionStep(kind="delete", path="/n"),
            ]
        )
    assert (caught.value.index, caught.value.fault) == (1, "bad_version")
    results = await client.transaction(
        [
            TransactionStep(kind="create", path="/m", data=b""),
            TransactionStep(kind="set", path="/n", data=b"2"),
            TransactionStep(kind="delete", path="/m"),
        ]
    )
    assert [stat.version if stat else None for stat in results] == [None, 1, None]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_kazoo_is_started_again_when_its_thread_dies(client: ZkClient) -> None:
    """An unexpected exception in kazoo's thread ends the session, not the sidecar."""
    connection = client._kazoo._connection
    honest = connection._connect
    deaths = []

    def broken(*args: object) -> object:
        connection._connect = honest
        deaths.append(args)
        raise RuntimeError("a bug in kazoo")

    connection._connect = broken
    client._cut_connection()
    await eventually(lambda: deaths and client.connected)
    assert await client.exists("/") is not None


async def test_closing_against_a_unresponsive_server_does_not_hang(zookeeper: Cluster, chroot: str) -> None:
    """Farewell has a time limit."""
    leaving = await connect(zookeeper, chroot)
    zookeeper.pause("zookeeper")
    try:
        started = time.monotonic()
        await leaving.close()
        assert time.monotonic() - started < SESSION_SECONDS
    finally:
        zookeeper.resume("zookeeper")


# --- a migration to another store (PIP-454) ---

MIGRATION = "/pulsar/migration-coordinator/migration"


def phase(name: str) -> bytes:
    """The record as the brokers' coordinator writes it."""
    return json.dumps({"phase": name, "targetUrl": "oxia://o:6648/mig"}).encode()


async def test_n_p_a_store_migration_is_watched(metadata: ZkMetadata, store: KazooClient) -> None:
    """Each change is seen without a read: as CHANGED, until it is read again."""
    assert (await metadata.migration()).phase == "NOT_STARTED"
    for name in ("PREPARATION", "COPYING", "FAILED", "PREPARATION", "COMPLETED"):
        put(store, MIGRATION, phase(name))
        await eventually(lambda: metadata.migration_now.phase == "CHANGED")
        state = await metadata.migration()
        assert (state.phase, state.target) == (name, "oxia://o:6648/mig")
        assert metadata.migration_now == state and state.stamp > 0
    store.set(MIGRATION, b"\xff")
    assert (await metadata.migration()).code == "StoreMigrating"
    await eventually(lambda: metadata.migration_now.code == "StoreMigrating")
    await metadata.migration()
    store.delete(MIGRATION)
    await eventually(lambda: metadata.migration_now.phase == "CHANGED")
    assert (await metadata.migration()).code is None


async def test_n_p_the_watch_outlives_the_session(metadata: ZkMetadata, client: ZkClient, store: KazooClient) -> None:
    """A lost connection takes the watch along; the next read sets it again."""
    await metadata.migration()
    await end_session(client)
    await eventually(lambda: client.connected, within=15.0)
    await metadata.migration()
    put(store, MIGRATION, phase("PREPARATION"))
    await eventually(lambda: metadata.migration_now.phase == "CHANGED")


async def test_n_p_owners_are_refused_once_the_brokers_use_another_store(client: ZkClient, store: KazooClient) -> None:
    """The old nodes live as long as the sessions of the brokers, and name the old owner."""
    owner = {"nativeUrl": "pulsar://b1:6650", "httpUrl": "http://b1:8080", "disabled": False}
    put(store, f"/namespace/{BUNDLE}", json.dumps(owner).encode(), ephemeral=True)
    for name in ("PREPARATION", "COPYING", "FAILED"):
        put(store, MIGRATION, phase(name))
        assert await ZkOwnership(client).owner(BUNDLE) is not None
    put(store, MIGRATION, phase("COMPLETED"))
    with pytest.raises(StoreMigrated, match="oxia://o:6648/mig"):
        await ZkOwnership(client).owner(BUNDLE)


async def test_scalable_topics_of_a_bundle(metadata: ZkMetadata, store: KazooClient) -> None:
    """Pulsar 5.0: the topic and its segments; before its first scalable topic, the store is read once for them. The
    first segment of a migrated topic is the topic itself."""
    whole = "t/ns/0x00000000_0xffffffff"
    store.create("/managed-ledgers/t/ns/persistent/a%2Fb", makepath=True)
    assert await metadata.topics(whole) == ["persistent://t/ns/a/b"]
    assert await metadata.segments("topic://t/ns/hot") == []
    store.create("/topics/t/ns/hot", LAYOUT.replace(b"65535}", b"32767}").replace(b'"0":', SECOND), makepath=True)
    store.create("/topics/t/ns/a%2Fb", LAYOUT.replace(b'"state"', b'"legacyTopicName":"persistent://t/ns/a/b","state"'))
    for descriptor in ("0000-7fff-0", "8000-ffff-1", "unknown"):
        store.create(f"/managed-ledgers/t/ns/segment/hot/{descriptor}", makepath=True)
    segments = ["segment://t/ns/hot/0000-7fff-0", "segment://t/ns/hot/8000-ffff-1"]

    async def topics() -> bool:
        return await metadata.topics(whole) == [
            "persistent://t/ns/a/b",
            *segments,
            "topic://t/ns/a/b",
            "topic://t/ns/hot",
        ]

    for _ in range(50):
        if await topics():
            break
        await asyncio.sleep(0.1)
    assert await topics()
    assert await metadata.segments("topic://t/ns/hot") == segments
    assert await metadata.segments("topic://t/ns/a/b") == ["persistent://t/ns/a/b"]
    assert await metadata.partitions(segments[0]) == 0


async def test_layouts_of_scalable_topics_are_watched(metadata: ZkMetadata, store: KazooClient) -> None:
    """A split changes the layout: the next call returns it. An unreadable layout hides no other one."""
    assert await metadata.layouts() == []
    store.create("/topics/t/ns/hot", LAYOUT, makepath=True)
    store.create("/topics/t/ns/bad", b"{")
    segment = Segment(topic=parse_topic("topic://t/ns/hot"), number=0, name="segment://t/ns/hot/0000-ffff-0")
    await eventually_equal(metadata, [segment])
    assert await metadata.segment_load(segment) == (0, 0, 0, 0)
    store.create("/topics/t/ns/hot/segments/0/load", b'{"msgRateIn":1,"byteRateIn":3}', makepath=True)
    assert await metadata.segment_load(segment) == (1, 0, 3, 0)
    store.set("/topics/t/ns/hot", LAYOUT.replace(b'"sealedAtMs":0', b'"sealedAtMs":7'))
    await eventually_equal(metadata, [replace(segment, changed_ms=7)])
    store.delete("/topics/t/ns/hot", recursive=True)
    await eventually_equal(metadata, [])


LAYOUT = b'{"epoch":0,"segments":{"0":{"hashRange":{"start":0,"end":65535},"state":"ACTIVE","sealedAtMs":0}}}'
SECOND = b'"1":{"hashRange":{"start":32768,"end":65535}},"0":'


async def eventually_equal(metadata: ZkMetadata, expected: list[Segment]) -> None:
    """Wait until the layouts are as expected."""
    for _ in range(50):
        if await metadata.layouts() == expected:
            return
        await asyncio.sleep(0.1)
    assert await metadata.layouts() == expected
