"""A real ZooKeeper for tests: fixture `zookeeper`, sessions that are ended from outside, a World over it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient

from bundlekeel.ports import Coordination
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.coordination import ZkCoordination
from dev.cluster import Cluster, ClusterSpec
from tests.support.contracts.coordination import eventually
from tests.support.memory_source import RealClock

SESSION_SECONDS = 2.0
CALL_SECONDS = 0.5


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[Cluster]:
    """One ZooKeeper per test module that imports this."""
    with Cluster(ClusterSpec(brokers=0)) as cluster:
        yield cluster


@pytest.fixture
def chroot(zookeeper: Cluster) -> Iterator[str]:
    """Create a chroot for each test. The sidecar's client never creates one."""
    path = f"/test-{uuid.uuid4().hex[:8]}"
    with_kazoo(zookeeper.zk_hosts, lambda kazoo: kazoo.create(path))
    yield path


@pytest.fixture
async def client(zookeeper: Cluster, chroot: str) -> AsyncIterator[ZkClient]:
    """A connected client below the chroot."""
    client_ = await connect(zookeeper, chroot)
    yield client_
    await client_.close()


@pytest.fixture
def store(zookeeper: Cluster, chroot: str) -> Iterator[KazooClient]:
    """A plain kazoo client below the chroot, which writes what brokers write."""
    with plain(zookeeper.zk_hosts + chroot) as kazoo:
        yield kazoo


@contextmanager
def plain(hosts: str) -> Iterator[KazooClient]:
    """A plain, blocking kazoo client with a session of its own."""
    kazoo = KazooClient(hosts=hosts, timeout=10.0)
    kazoo.start(timeout=20)
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


def with_kazoo(hosts: str, action: Any) -> Any:
    """Call `action` with a plain client and return its result."""
    with plain(hosts) as kazoo:
        return action(kazoo)


def put(kazoo: KazooClient, path: str, data: bytes, *, ephemeral: bool = False) -> None:
    """Write a node, with its missing parents."""
    if kazoo.exists(path):
        kazoo.set(path, data)
    else:
        kazoo.create(path, data, ephemeral=ephemeral, makepath=True)


async def silence(zookeeper: Cluster, client: ZkClient) -> None:
    """SIGSTOP the server, and wait until our client has noticed."""
    zookeeper.pause("zookeeper")
    await eventually(lambda: not client.connected, within=5 * SESSION_SECONDS)


async def connect(
    zookeeper: Cluster, chroot: str, *, session_seconds: float = SESSION_SECONDS, call_seconds: float = CALL_SECONDS
) -> ZkClient:
    """Return a client that is connected."""
    client_ = ZkClient(zookeeper.zk_hosts, chroot, session_seconds=session_seconds, call_timeout_seconds=call_seconds)
    client_.start()
    await until_connected(client_)
    return client_


async def until_connected(client: ZkClient, *, not_session: int | None = None) -> None:
    """Wait for a live session. `not_session`: id of an earlier session, which does not count."""
    await eventually(lambda: client.connected and client.session_id not in (None, not_session))


async def end_session(client: ZkClient) -> None:
    """End a client's session from a second client with the same id and password, as its owner would."""
    identity = client._kazoo.client_id
    assert identity is not None

    def close_it() -> None:
        twin = KazooClient(hosts=client.hosts, client_id=identity, timeout=SESSION_SECONDS)
        twin.start(timeout=10)
        twin.stop()
        twin.close()

    await asyncio.to_thread(close_it)
    await until_connected(client, not_session=identity[0])


class ZooKeeperWorld:
    """World over a real ZooKeeper: each sidecar has a session of its own below one chroot."""

    # A silent store is noticed by the call's time limit; two of our calls make two round trips.
    patience = 2 * CALL_SECONDS + 0.5

    def __init__(self, zookeeper: Cluster, chroot: str) -> None:
        self.zookeeper = zookeeper
        self._chroot = chroot
        self._sidecars: list[tuple[ZkCoordination, ZkClient]] = []

    async def join(self) -> Coordination:
        """Start one more sidecar."""
        client = ZkClient(
            self.zookeeper.zk_hosts, self._chroot, session_seconds=SESSION_SECONDS, call_timeout_seconds=CALL_SECONDS
        )
        sidecar = ZkCoordination(client, root="/bundlekeel/test", clock=RealClock())
        self._sidecars.append((sidecar, client))
        await sidecar.start()
        await until_connected(client)
        return sidecar

    async def expire(self, who: Coordination) -> None:
        """End its session at the server."""
        await end_session(self.client_of(who))

    def client_of(self, who: Coordination) -> ZkClient:
        """The session of a sidecar."""
        return next(client for sidecar, client in self._sidecars if sidecar is who)

    async def freeze(self) -> None:
        """SIGSTOP the server."""
        self.zookeeper.pause("zookeeper")

    async def thaw(self) -> None:
        """SIGCONT the server."""
        self.zookeeper.resume("zookeeper")

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(sidecar.close() for sidecar, _ in self._sidecars))
