"""The ownership channel in the metadata store, on real brokers: the contract every channel keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bundlekeel.ports import Channel
from bundlekeel.pulsar.zookeeper import ZkChannel, ZkClient
from dev.cluster import Cluster
from tests.support.channel_cluster import BrokerCluster, ClusterKit
from tests.support.chaos.proxy import TcpProxy
from tests.support.contracts.channel import ChannelContract
from tests.support.memory_source import RealClock

pytestmark = pytest.mark.cluster


@pytest.fixture
async def kit(store_cluster: Cluster) -> AsyncIterator[ClusterKit]:
    """A namespace of its own on the shared cluster; each follower has a session of its own, behind one proxy."""
    clients: list[ZkClient] = []

    def make() -> Channel:
        clients.append(ZkClient(proxy.address, "/pulsar", session_seconds=10.0, call_timeout_seconds=5.0))
        return ZkChannel(clients[-1], clock=RealClock())

    async def interrupt(_: Channel) -> None:
        proxy.refuse()

    async def mend(_: Channel) -> None:
        proxy.heal()

    with TcpProxy(store_cluster.zk_hosts) as proxy:
        yield ClusterKit(BrokerCluster(store_cluster), "metadata_store", make, interrupt, mend)
        for client in clients:
            await client.close()


class TestZkChannel(ChannelContract):
    """Every rule of the contract."""
