"""`ZkLoadSource`, `ZkOwnership` and `ZkMetadata` on a real ZooKeeper: the contract that the fakes keep too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import quote_plus

import pytest
from kazoo.client import KazooClient

from bundlekeel.model.load import BundleAverages
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.metadata import ZkMetadata, ZkOwnership
from bundlekeel.pulsar.zookeeper.source import BROKERS, BUNDLE_DATA, ZkLoadSource
from dev.cluster import Cluster
from tests.integration.test_zookeeper_source import MAX_BYTES, WINDOW, modular
from tests.support.contracts.brokers import CHECKS, BrokersWorld
from tests.support.contracts.zookeeper import chroot, client, connect, put, silence, store, zookeeper
from tests.support.memory_source import RealClock

__all__ = ["chroot", "client", "store", "zookeeper"]

pytestmark = pytest.mark.zookeeper

_COLUMNS = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")


class ZkBrokers:
    """`BrokersWorld` over znodes; the stores are two chroots."""

    def __init__(self, cluster: Cluster, kazoo: KazooClient, local: ZkClient, configuration: ZkClient) -> None:
        self._cluster, self._kazoo, self._local = cluster, kazoo, local
        self.loads = ZkLoadSource(local, batch_window_seconds=WINDOW, max_report_bytes=MAX_BYTES, clock=RealClock())
        self.ownership = ZkOwnership(local)
        self.metadata = ZkMetadata(local, configuration)

    def report(self, broker: str, last_update: int) -> None:
        put(self._kazoo, f"{BROKERS}/{broker}", modular(broker, last_update=last_update), ephemeral=True)

    def spoil(self, broker: str) -> None:
        self._kazoo.set(f"{BROKERS}/{broker}", b"")

    def remove(self, broker: str) -> None:
        self._kazoo.delete(f"{BROKERS}/{broker}")

    def average(self, averages: BundleAverages) -> None:
        short = {
            "maxSamples": 10,
            "numSamples": averages.short_samples,
            **dict(zip(_COLUMNS, averages.short, strict=True)),
        }
        long = {
            "maxSamples": 1000,
            "numSamples": averages.long_samples,
            **dict(zip(_COLUMNS, averages.long, strict=True)),
        }
        record = {"shortTermData": short, "longTermData": long, "topics": averages.topics}
        put(self._kazoo, f"{BUNDLE_DATA}/{averages.bundle}", json.dumps(record).encode())

    def own(self, bundle: str, broker: str, *, disabled: bool = False) -> None:
        node = {"nativeUrl": "pulsar://h:6650", "httpUrl": f"http://{broker}", "disabled": disabled}
        put(self._kazoo, f"/namespace/{bundle}", json.dumps(node).encode(), ephemeral=True)

    def disown(self, bundle: str) -> None:
        self._kazoo.delete(f"/namespace/{bundle}")

    def divide(self, namespace: str, boundaries: list[int]) -> None:
        bounds = {"boundaries": [f"0x{bound:08x}" for bound in boundaries], "numBundles": len(boundaries) - 1}
        record = json.dumps({"bundles": bounds}).encode()
        put(self._kazoo, f"/config/admin/policies/{namespace}", record)
        put(self._kazoo, f"/admin/local-policies/{namespace}", record)

    def tenant(self, name: str) -> None:
        put(self._kazoo, f"/config/admin/policies/{name}", b"")

    def partition(self, topic: str, partitions: int) -> None:
        put(self._kazoo, f"/config/admin/partitioned-topics/{_path(topic)}", b'{"partitions":%d}' % partitions)

    def topic(self, name: str) -> None:
        put(self._kazoo, f"/managed-ledgers/{_path(name)}", b"")

    def lead(self, broker: str) -> None:
        put(self._kazoo, "/loadbalance/leader", json.dumps({"brokerId": broker}).encode(), ephemeral=True)

    async def suspend(self) -> None:
        await silence(self._cluster, self._local)


def _path(topic: str) -> str:
    """Return the path of a topic's records in Pulsar: namespace, domain, and its URL-encoded name."""
    domain, _, rest = topic.partition("://")
    tenant, namespace, local = rest.split("/", 2)
    # java.net.URLEncoder leaves the asterisk and encodes the tilde.
    return f"{tenant}/{namespace}/{domain}/{quote_plus(local, safe='*').replace('~', '%7E')}"


@pytest.fixture
async def world(zookeeper: Cluster, chroot: str, client: ZkClient, store: KazooClient) -> AsyncIterator[ZkBrokers]:
    """Two sessions of ours and a plain client."""
    store.create("/config")
    store.ensure_path(BROKERS)
    configuration = await connect(zookeeper, f"{chroot}/config")
    value = ZkBrokers(zookeeper, store, client, configuration)
    yield value
    zookeeper.resume("zookeeper")
    await value.loads.close()
    await configuration.close()


@pytest.mark.parametrize("check", CHECKS)
async def test_zookeeper_keeps_the_contract(world: ZkBrokers, check: Callable[[BrokersWorld], Awaitable[None]]) -> None:
    await check(world)
