"""S.21: connections without a request give way to new ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bundlekeel.api import ApiServer
from bundlekeel.api.server import Protection
from tests.support.shop import Shop

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ADDRESSES = [f"127.0.0.{number}" for number in range(1, 5)]
# The body never comes: the request stays in work.
IN_WORK = (
    b"POST /api/v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n"
)


class Peers:
    """Clients of one listener, each from an address of its choice."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self, address: str, request: bytes = b"") -> Peer:
        """Open a connection and send `request`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        self.writers.append(writer)
        writer.write(request)
        return reader, writer

    async def status(self, address: str, path: str = "/api/v1/state", peer: Peer | None = None) -> int:
        """Return the status of a GET on `peer`, or on a new connection; 0 if the server closes it."""
        reader, writer = peer or await self.open(address)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(10):
            head = await reader.readline()
        return int(head.split()[1]) if head else 0


@asynccontextmanager
async def serving(max_connections: int = 256) -> AsyncIterator[Peers]:
    """A running listener and its clients."""
    server = ApiServer(Shop().service, "127.0.0.1", 0, None, protection=Protection(max_connections=max_connections))
    peers = Peers(int((await server.start()).rpartition(":")[2]))
    try:
        yield peers
    finally:
        for writer in peers.writers:
            writer.close()
        await server.stop()


@pytest.mark.parametrize("sent", [b"", b"GET /api/v1/state HTTP/1.1\r\n"])
async def test_s21_idle_connections_of_four_addresses_do_not_block_access(sent: bytes) -> None:
    async with serving() as peers:
        for address in ADDRESSES:
            for _ in range(64):
                await peers.open(address, sent)
        assert [await peers.status(address) for address in [*ADDRESSES, "127.0.0.5"] * 3] == [200] * 15


async def test_s21_the_connection_that_waits_longest_gives_way() -> None:
    """A client that has had a response a moment ago keeps its connection; one that waits since before is closed."""
    async with serving(max_connections=8) as peers:
        used, idle = [await peers.open("127.0.0.1") for _ in range(2)]
        # Without a response to `idle`, the server may see this connection only after it has served `used`.
        for peer in (idle, used):
            assert await peers.status("", peer=peer) == 200
            head = await peer[0].readuntil(b"\r\n\r\n")
            await peer[0].readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
        assert await peers.status("127.0.0.1") == 200
        async with asyncio.timeout(10):
            assert await idle[0].read() == b""
        used[1].write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(10):
            await used[0].readuntil(b"HTTP/1.1 200")


async def test_s21_requests_in_work_are_not_cut_and_probes_keep_their_places() -> None:
    async with serving(max_connections=8) as peers:
        working = [await peers.open(address, IN_WORK) for address in ADDRESSES for _ in range(2)]
        for reader, _ in working:
            async with asyncio.timeout(10):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        for _ in range(40):
            await peers.open("127.0.0.5")
        refused = await peers.open("127.0.0.6")
        assert await peers.status("", peer=refused) == 503
        assert b"connection: close" in await refused[0].readuntil(b"\r\n\r\n")
        assert await peers.status("127.0.0.6", "/livez") == 200
        for reader, writer in working:
            writer.write(b'{"a": "b"}')
            async with asyncio.timeout(10):
                assert (await reader.readline()).startswith(b"HTTP/1.1 422")
