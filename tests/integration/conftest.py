"""Real clusters, started once a session, and our adapters over them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from bundlekeel.adapters.admin import AdminOptions, HttpBrokerAdmin
from bundlekeel.adapters.zookeeper.client import ZkClient
from bundlekeel.adapters.zookeeper.coordination import ZkCoordination
from bundlekeel.adapters.zookeeper.metadata import ZkMetadata, ZkOwnership
from bundlekeel.ports import BrokerEndpoint, Member
from dev.cluster import Cluster, ClusterSpec, open_cluster
from tests.support.contracts.admin import Permit, Recorder
from tests.support.contracts.coordination import eventually
from tests.support.memory_source import RealClock


@pytest.fixture(scope="session")
def modular_cluster() -> Iterator[Cluster]:
    """Three brokers of the modular load manager with fast statistics."""
    with open_cluster(ClusterSpec(brokers=3, mode="modular")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def zookeeper_only() -> Iterator[Cluster]:
    """A ZooKeeper without brokers."""
    with open_cluster(ClusterSpec(brokers=0)) as cluster:
        yield cluster


class RealWorld:
    """The ports over a real cluster; this sidecar leads `epoch` below a root of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.clock = RealClock()
        self.permit = Permit()
        self.telemetry = Recorder()
        self.admin = HttpBrokerAdmin(telemetry=self.telemetry, clock=self.clock, options=AdminOptions(read_timeout=95))
        self.endpoints = {
            b.broker_id: BrokerEndpoint(broker_id=b.broker_id, web_url=b.web_url, service_url=b.service_url)
            for b in cluster.brokers
        }
        self.admin.set_endpoints(self.endpoints)
        self.store, self.configuration, mine = (
            ZkClient(cluster.zk_hosts, chroot, session_seconds=10.0, call_timeout_seconds=3.0)
            for chroot in ("/pulsar", "/config", "/pulsar")
        )
        self.ownership = ZkOwnership(self.store)
        self.metadata = ZkMetadata(self.store, self.configuration)
        self.coordination = ZkCoordination(mine, root=f"/bundlekeel/{uuid.uuid4().hex[:8]}", clock=self.clock)
        self.epoch = -1

    async def start(self) -> None:
        """Connect and lead."""
        self.store.start()
        self.configuration.start()
        await self.coordination.start()
        parts = (self.store, self.configuration, self.coordination)
        await eventually(lambda: all(part.connected for part in parts), within=15.0)
        epoch = await self.coordination.campaign(Member(id="test"))
        assert epoch is not None
        self.epoch = epoch

    async def close(self) -> None:
        """End all sessions."""
        await self.admin.close()
        await self.coordination.close()
        await self.store.close()
        await self.configuration.close()


@pytest.fixture
async def real_world(modular_cluster: Cluster) -> AsyncIterator[RealWorld]:
    """Our adapters over the modular cluster."""
    world = RealWorld(modular_cluster)
    await world.start()
    yield world
    await world.close()
