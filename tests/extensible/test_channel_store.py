"""The ownership channel in the metadata store, on real brokers: the contract every channel keeps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from bundlekeel.adapters.zookeeper import ZkChannel, ZkClient
from bundlekeel.ports import Channel
from dev.cluster import Cluster
from tests.support.channel_cluster import BrokerCluster, ClusterKit
from tests.support.contracts.channel import ChannelContract
from tests.support.memory_source import RealClock

pytestmark = pytest.mark.cluster


class Gate:
    """A TCP way to ZooKeeper that can be shut: open connections are cut, new ones are cut at once."""

    def __init__(self, hosts: str) -> None:
        self._host, _, port = hosts.partition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.shut = False

    async def start(self) -> str:
        """Listen; the address to use instead."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Shut it."""
        self.shut = True
        for writer in self._open:
            writer.close()

    async def close(self) -> None:
        """Stop listening."""
        self.cut()
        assert self._server is not None
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.shut:
            writer.close()
            return
        there, back = await asyncio.open_connection(self._host, self._port)
        for source, target in ((reader, back), (there, writer)):
            self._open.add(target)
            task = asyncio.create_task(self._pump(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        self._open.discard(target)
        target.close()


@pytest.fixture
async def kit(store_cluster: Cluster) -> AsyncIterator[ClusterKit]:
    """A namespace of its own on the shared cluster; each follower has a session of its own, behind one gate."""
    gate, clients = Gate(store_cluster.zk_hosts), list[ZkClient]()
    hosts = await gate.start()

    def make() -> Channel:
        clients.append(ZkClient(hosts, "/pulsar", session_seconds=10.0, call_timeout_seconds=5.0))
        return ZkChannel(clients[-1], clock=RealClock())

    async def interrupt(_: Channel) -> None:
        gate.cut()

    async def mend(_: Channel) -> None:
        gate.shut = False

    yield ClusterKit(BrokerCluster(store_cluster), "metadata_store", make, interrupt, mend)
    for client in clients:
        await client.close()
    await gate.close()


class TestZkChannel(ChannelContract):
    """Every rule of the contract."""
