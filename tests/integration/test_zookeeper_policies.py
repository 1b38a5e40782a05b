"""`ZkMetadata.policies` on a real ZooKeeper: the contract, and that nothing is read again without need."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from bundlekeel.ports import Metadata, PolicyRecords
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.metadata import ZkMetadata
from bundlekeel.pulsar.zookeeper.policies import NEW_PER_CALL, WatchedNodes
from dev.cluster import Cluster
from tests.support.contracts.policies import CHECKS, CLUSTER, SPACES, PolicyWorld, check_changes_are_seen, settle
from tests.support.contracts.zookeeper import chroot, client, connect, end_session, put, store, zookeeper

__all__ = ["chroot", "client", "store", "zookeeper"]

pytestmark = pytest.mark.zookeeper

CLUSTERS = f"/config/admin/clusters/{CLUSTER}"


class ZkWorld:
    """`PolicyWorld` over znodes; the stores are two chroots."""

    def __init__(self, kazoo: KazooClient, metadata: ZkClient, configuration: ZkClient) -> None:
        self.kazoo, self.local, self.configuration = kazoo, metadata, configuration
        self.metadata: Metadata = ZkMetadata(metadata, configuration)

    def put(self, path: str, data: bytes | None) -> None:
        """Write or delete a node."""
        if data is None:
            self.kazoo.delete(path)
        else:
            put(self.kazoo, path, data)

    async def put_isolation(self, policies: dict[str, Any] | None) -> None:
        """One node with all of them."""
        data = None if policies is None else json.dumps(policies).encode()
        self.put(f"{CLUSTERS}/namespaceIsolationPolicies", data)

    async def put_domain(self, name: str, brokers: list[str] | None) -> None:
        """A node each."""
        data = None if brokers is None else json.dumps({"brokers": brokers}).encode()
        self.put(f"{CLUSTERS}/failureDomain/{name}", data)

    async def put_group(self, namespace: str, group: str | None) -> None:
        """Among the local policies; without a group the field is left out."""
        record = {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}
        record |= {"namespaceAntiAffinityGroup": group} if group else {}
        self.put(f"/admin/local-policies/{namespace}", b"{" if group is None else json.dumps(record).encode())

    async def suspend(self) -> None:
        """Our session with the configuration store ends."""
        await self.configuration.close()


@pytest.fixture
async def world(zookeeper: Cluster, chroot: str, client: ZkClient, store: KazooClient) -> AsyncIterator[ZkWorld]:
    """Two sessions of ours and a plain client."""
    store.create(CLUSTERS, makepath=True)
    configuration = await connect(zookeeper, f"{chroot}/config")
    yield ZkWorld(store, client, configuration)
    await configuration.close()


@pytest.mark.parametrize("check", CHECKS)
async def test_zookeeper_keeps_the_contract(world: ZkWorld, check: Callable[[PolicyWorld], Awaitable[None]]) -> None:
    await check(world)


async def test_a_lost_session_loses_no_change(world: ZkWorld) -> None:
    """Watches go with the session: what changed meanwhile is read again."""
    await check_changes_are_seen(world)
    await world.put_group("t/a", "g")
    await settle(world, PolicyRecords(anti_affinity={"t/a": "g"}))
    await end_session(world.local)
    await world.put_group("t/a", "h")
    await settle(world, PolicyRecords(anti_affinity={"t/a": "h"}))


async def test_nothing_is_read_twice(world: ZkWorld) -> None:
    """A node that did not change costs no request, present or absent; a changed one costs one."""
    await world.put_group("t/a", "g")
    nodes = WatchedNodes(world.local)
    paths = [f"/admin/local-policies/{name}" for name in SPACES]
    first = [await nodes.data(path) for path in paths]
    assert [data is not None for data in first] == [True, False, False]
    assert all(nodes.knows(path) for path in paths)
    assert [await nodes.data(path) for path in paths] == first
    nodes.keep_only({paths[0]})
    assert [nodes.knows(path) for path in paths] == [True, False, False]
    assert len(nodes) == 1


async def test_many_namespaces_are_read_in_portions(world: ZkWorld, zookeeper: Cluster, chroot: str) -> None:
    """Unread namespaces count as unreadable, so none of their bundles moves. The next call reads them."""
    names = [f"t/n{number}" for number in range(NEW_PER_CALL + 10)]
    # Next to a load, one of many reads can wait for longer than the limit of other tests.
    patient = await connect(zookeeper, chroot, call_seconds=10.0)
    try:
        metadata = ZkMetadata(patient, world.configuration)
        first = await metadata.policies(CLUSTER, names)
        assert first.unreadable == frozenset(names[NEW_PER_CALL:])
        assert not (await metadata.policies(CLUSTER, names)).unreadable
    finally:
        await patient.close()
