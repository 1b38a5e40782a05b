"""Real clusters, started once per session, and our adapters over them."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from bundlekeel.leader.execution.executor import TermExecutor
from bundlekeel.leader.execution.intents import MoveRequest
from bundlekeel.leader.execution.move import ExecutorLimits, LeaderTerm, MovePorts
from bundlekeel.model.members import Member
from bundlekeel.ports import BrokerEndpoint, Ownership
from bundlekeel.pulsar.admin import AdminOptions, HttpBrokerAdmin
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.coordination import ZkCoordination
from bundlekeel.pulsar.zookeeper.metadata import ZkMetadata, ZkOwnership
from bundlekeel.requests.takeover import TakeoverContext
from dev.cluster import Cluster, ClusterSpec, open_cluster
from tests.support.contracts.admin import Permit, Recorder
from tests.support.contracts.coordination import eventually
from tests.support.memory_source import RealClock

W = TypeVar("W", bound="RealWorld")


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

    kind = HttpBrokerAdmin

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.clock = RealClock()
        self.permit = Permit()
        self.telemetry = Recorder()
        self.admin = self.kind(telemetry=self.telemetry, clock=self.clock, options=AdminOptions(read_timeout=95))
        self.endpoints = {
            b.broker_id: BrokerEndpoint(broker_id=b.broker_id, web_url=b.web_url, service_url=b.service_url)
            for b in cluster.brokers
        }
        self.admin.set_endpoints(self.endpoints)
        self.store, self.configuration, mine = (
            ZkClient(cluster.zk_hosts, chroot, session_seconds=10.0, call_timeout_seconds=3.0)
            for chroot in ("/pulsar", "/config", "/pulsar")
        )
        self.ownership: Ownership = ZkOwnership(self.store)
        self.metadata = ZkMetadata(self.store, self.configuration)
        self.coordination = ZkCoordination(mine, root=f"/bundlekeel/{uuid.uuid4().hex[:8]}", clock=self.clock)
        self.epoch = -1

    @property
    def ports(self) -> MovePorts:
        """Return the ports of executor and splitter."""
        return MovePorts(
            admin=self.admin,
            commands=self.admin,
            coordination=self.coordination,
            ownership=self.ownership,
            metadata=self.metadata,
            clock=self.clock,
            load_manager=lambda: self.cluster.spec.mode,
        )

    @property
    def term(self) -> LeaderTerm:
        """This sidecar's."""
        return LeaderTerm(epoch=self.epoch, member="test", permit=self.permit)

    def executor(self, limits: ExecutorLimits | None = None) -> TermExecutor:
        """An executor over the cluster."""
        return TermExecutor(self.ports, self.term, limits=limits)

    def takeover(self) -> TakeoverContext:
        """Return the context of takeover and handback."""
        return TakeoverContext(
            admin=self.admin,
            commands=self.admin,
            coordination=self.coordination,
            metadata=self.metadata,
            endpoints=self.endpoints,
            clock=self.clock,
        )

    async def owner_of(self, bundle: str) -> str:
        """Return the owner of a bundle; "" without one and in transit."""
        owner = await self.ownership.owner(bundle)
        return owner.broker_id if owner is not None and not owner.disabled else ""

    async def requests_for(self, bundles: list[str], rng: random.Random) -> list[MoveRequest]:
        """Each of these bundles that has an owner, to another broker than that."""
        requests = []
        for bundle in bundles:
            if source := await self.owner_of(bundle):
                target = rng.choice([broker for broker in self.endpoints if broker != source])
                requests.append(MoveRequest(bundle=bundle, source=source, destination=target))
        return requests

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


@asynccontextmanager
async def started(world: W) -> AsyncIterator[W]:
    """Connected, and closed at the end."""
    await world.start()
    yield world
    await world.close()


@pytest.fixture
async def real_world(modular_cluster: Cluster) -> AsyncIterator[RealWorld]:
    """Our adapters over the modular cluster."""
    async with started(RealWorld(modular_cluster)) as world:
        yield world
