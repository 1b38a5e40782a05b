"""The two listening servers: bound addresses, the socket's mode, stale sockets, signals, stopping."""

from __future__ import annotations

import asyncio
import signal
import socket
import stat
from pathlib import Path

import httpx
import pytest

from bundlekeel.api import ApiServer
from bundlekeel.api.server import PROBE_CONNECTIONS, Protection
from bundlekeel.model.errors import ConfigError
from tests.support.shop import Shop


async def test_serves_both_and_stops(tmp_path: Path) -> None:
    """TCP reads, the socket also writes; after stop neither answers and the socket file is gone."""
    path = tmp_path / "run" / "keel.sock"
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    server = ApiServer((await Shop().open()).service, "127.0.0.1", 0, path)
    url = await server.start()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with httpx.AsyncClient(base_url=url, trust_env=False) as tcp:
        assert (await tcp.get("/api/v1/state")).status_code == 200
        assert (await tcp.post("/api/v1/pause", json={"reason": "x"})).status_code == 404
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(base_url="http://localhost", transport=transport) as unix:
        assert (await unix.post("/api/v1/pause", json={"reason": "x"})).status_code == 200
    await server.stop()
    await server.stop()
    assert not path.exists()
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get("/livez")


async def test_replaces_a_stale_socket_but_not_a_live_one(tmp_path: Path) -> None:
    """After a crash the file is left over; a second sidecar on the same path is a mistake."""
    path = tmp_path / "keel.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    server = ApiServer(Shop().service, "127.0.0.1", 0, path)
    await server.start()
    try:
        with pytest.raises(ConfigError, match="another sidecar"):
            await ApiServer(Shop().service, "127.0.0.1", 0, path).start()
    finally:
        await server.stop()


async def test_never_removes_what_is_no_socket(tmp_path: Path) -> None:
    """A wrong path must not cost a file."""
    path = tmp_path / "precious.yaml"
    path.write_text("x")
    with pytest.raises(ConfigError, match="not a socket"):
        await ApiServer(Shop().service, "127.0.0.1", 0, path).start()
    assert path.read_text() == "x"


async def test_a_taken_port_says_which_setting(tmp_path: Path) -> None:
    """The operator learns what to change."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match=r"api\.port"):
            await ApiServer(Shop().service, "127.0.0.1", other.getsockname()[1], None).start()
    with pytest.raises(ConfigError, match=r"api\.host"):
        await ApiServer(Shop().service, "no.such.host.invalid", 0, None).start()


async def test_stop_ends_requests_in_flight(tmp_path: Path) -> None:
    """A hanging request does not keep the process."""
    server = ApiServer(Shop().service, "127.0.0.1", 0, None)
    url = await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(b"POST /api/v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
    await writer.drain()
    async with asyncio.timeout(10):
        await server.stop()
    writer.close()
    del reader


async def test_one_address_does_not_take_all_connections(tmp_path: Path) -> None:
    """Rule: 256 idle connections of one address leave others, and the unix socket, usable. The newest few are kept for
    probes.
    """
    path = tmp_path / "keel.sock"
    server = ApiServer(Shop().service, "127.0.0.1", 0, path)
    url = await server.start()
    port = int(url.rpartition(":")[2])
    idle = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(256)]
    for reader, _ in idle[64:-PROBE_CONNECTIONS]:
        assert await reader.read(1) == b""
    owned = [await asyncio.open_unix_connection(str(path)) for _ in range(100)]
    async with httpx.AsyncClient(base_url=url, trust_env=False) as tcp:
        assert (await tcp.get("/livez")).status_code == 200
    async with httpx.AsyncClient(
        base_url="http://localhost", transport=httpx.AsyncHTTPTransport(uds=str(path))
    ) as unix:
        assert (await unix.get("/livez")).status_code == 200
    for _, writer in idle + owned:
        writer.close()
    await server.stop()


async def test_an_address_gets_its_connections_back() -> None:
    server = ApiServer(Shop().service, "127.0.0.1", 0, None, protection=Protection(max_connections=8))
    url = await server.start()
    async with httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_keepalive_connections=0)) as tcp:
        for _ in range(20):
            assert (await tcp.get("/livez")).status_code == 200
    await server.stop()
