"""The TCP proxy passes bytes on unchanged, and breaks connections in each of the ways it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.chaos import TcpProxy

SHORT_SECONDS = 0.3


class Echo:
    """Sends back whatever comes, and counts it."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.received = b""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                self.received += data
                connection.sendall(data)

    def close(self) -> None:
        """Accept no more."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[TcpProxy]:
    with TcpProxy(echo.address) as running:
        yield running


def connect(proxy: TcpProxy) -> socket.socket:
    """A connection through the proxy."""
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def ask(client: socket.socket, data: bytes) -> bytes:
    """Send, and read as much back."""
    client.sendall(data)
    received = b""
    while len(received) < len(data):
        piece = client.recv(65536)
        if not piece:
            break
        received += piece
    return received


def is_silent(client: socket.socket) -> bool:
    """Whether nothing comes for a moment; the connection stays."""
    client.settimeout(SHORT_SECONDS)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)
    return False


def test_bytes_pass_unchanged_and_ends_are_passed_on(proxy: TcpProxy) -> None:
    data = bytes(range(256)) * 2000
    with connect(proxy) as client:
        assert ask(client, data[:1000]) == data[:1000]
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        received = b""
        while len(received) < len(data):
            received += client.recv(65536)
        sender.join()
        assert received == data
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_delay_and_throttle_hold_pieces(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        proxy.delay(0.1)
        started = time.monotonic()
        assert ask(client, b"x") == b"x"
        assert time.monotonic() - started >= 0.2
        proxy.heal()
        proxy.throttle(1000.0)
        started = time.monotonic()
        assert ask(client, b"y" * 200) == b"y" * 200
        assert time.monotonic() - started >= 0.4


def test_cut_resets_what_is_open_and_takes_new_connections(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"x") == b"x"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(proxy) as client:
        assert ask(client, b"x") == b"x"


def test_refused_connections_end_at_once(proxy: TcpProxy) -> None:
    proxy.refuse()
    # The reset may come before the connection is seen to be made.
    with pytest.raises(ConnectionError), connect(proxy) as client:
        client.recv(1)
        client.sendall(b"x")
        client.recv(1)
    proxy.heal()
    with connect(proxy) as client:
        assert ask(client, b"x") == b"x"


def test_half_open_swallows_and_is_reset_when_healed(proxy: TcpProxy, echo: Echo) -> None:
    """Rule: a healed connection may not continue with holes in its stream."""
    with connect(proxy) as old:
        assert ask(old, b"x") == b"x"
        proxy.half_open()
        with connect(proxy) as new:
            for client in (old, new):
                client.sendall(b"lost")
                assert is_silent(client)
            assert echo.received == b"x"
            proxy.heal()
            for client in (old, new):
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
    with connect(proxy) as client:
        assert ask(client, b"y") == b"y"


def test_deaf_upwards_nothing_arrives_until_healed(proxy: TcpProxy, echo: Echo) -> None:
    with connect(proxy) as client:
        assert ask(client, b"a") == b"a"
        proxy.black_hole("up")
        client.sendall(b"b")
        assert is_silent(client)
        assert echo.received == b"a"
        proxy.heal()
        assert client.recv(1) == b"b"


def test_deaf_downwards_it_is_done_but_nobody_hears(proxy: TcpProxy, echo: Echo) -> None:
    with connect(proxy) as client:
        assert ask(client, b"a") == b"a"
        proxy.black_hole("down")
        client.sendall(b"b")
        assert is_silent(client)
        assert echo.received == b"ab"
        proxy.heal()
        assert client.recv(1) == b"b"


def test_the_target_away_resets(echo: Echo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    with TcpProxy(nobody) as proxy:
        with pytest.raises(ConnectionError), connect(proxy) as client:
            client.recv(1)
        deadline = time.monotonic() + 10.0
        while proxy.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        assert proxy.connections == 0


def test_not_running_it_says_so() -> None:
    proxy = TcpProxy("127.0.0.1:9")
    with pytest.raises(RuntimeError, match="not running"):
        proxy.cut()
    proxy.stop()
