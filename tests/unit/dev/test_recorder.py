"""The recorder passes everything on unchanged, records requests, and injects faults as configured."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from dev.cluster.spec import broker_info
from tests.support.http_server import serving
from tests.support.recorder import Recorder, Route

BODY = bytes(range(256)) * 40


class Backend(BaseHTTPRequestHandler):
    """Echoes requests; a few paths answer in special ways."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _echo(self) -> None:
        data = self._read()
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n")
        elif self.path == "/until-close":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(BODY)
        elif self.path == "/redirect":
            self.send_response(307)
            self.send_header("Location", "http://elsewhere:1/x?a=b")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/nothing":
            self.send_response(204)
            self.end_headers()
        else:
            answer = json.dumps({"method": self.command, "path": self.path, "length": len(data)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_HEAD = _echo


@pytest.fixture(scope="module")
def backend() -> Iterator[int]:
    with serving(Backend) as port:
        yield port


@pytest.fixture
def recorder(backend: int) -> Iterator[Recorder]:
    with Recorder([("127.0.0.1", 0, "127.0.0.1", backend)]) as running:
        yield running


@pytest.fixture
def client(recorder: Recorder) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(recorder.address(), timeout=3)
    yield connection
    connection.close()


def _get(client: http.client.HTTPConnection, path: str, method: str = "GET", **kwargs: object) -> tuple[int, bytes]:
    client.request(method, path, **kwargs)  # type: ignore[arg-type]
    response = client.getresponse()
    return response.status, response.read()


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/chunked", 200, b"hello world"),
        ("GET", "/until-close", 200, BODY),
        ("GET", "/redirect", 307, b""),
        ("GET", "/nothing", 204, b""),
        ("HEAD", "/plain", 200, b""),
        ("GET", "/plain", 200, b'{"method": "GET", "path": "/plain", "length": 0}'),
    ],
)
def test_answers_pass_unchanged(
    client: http.client.HTTPConnection, method: str, path: str, status: int, body: bytes
) -> None:
    assert _get(client, path, method) == (status, body)
    # The same client again: kept alive, or reopened where the target closed.
    assert _get(client, path, method) == (status, body)


def test_request_bodies_pass_unchanged(client: http.client.HTTPConnection) -> None:
    assert json.loads(_get(client, "/a", "PUT", body=BODY)[1])["length"] == len(BODY)
    chunked = _get(client, "/b", "POST", body=iter([BODY, BODY]), encode_chunked=True)
    assert json.loads(chunked[1])["length"] == 2 * len(BODY)


def test_records_what_was_asked(recorder: Recorder, client: http.client.HTTPConnection, backend: int) -> None:
    before = time.time() * 1000, time.clock_gettime(time.CLOCK_BOOTTIME)
    _get(client, "/x/0x00_0x10/unload?a=b&c=d", "PUT", headers={"User-Agent": "bundlekeel/1.0", "X-Y": "z"})
    port = client.sock.getsockname()[1]
    _get(client, "/other", headers={"User-Agent": "Pulsar-Java"})
    (request,) = recorder.requests(user_agent_prefix="bundlekeel")
    assert (request.method, request.path, request.query) == ("PUT", "/x/0x00_0x10/unload", "a=b&c=d")
    assert (request.client_port, request.target) == (port, f"127.0.0.1:{backend}")
    assert request.header("x-y") == "z"
    assert request.header("authorization") is None
    assert before[0] <= request.wall_ms <= time.time() * 1000
    assert before[1] <= request.boot_seconds <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert [r.path for r in recorder.requests()] == ["/x/0x00_0x10/unload", "/other"]
    recorder.clear()
    assert recorder.requests() == []


def test_pipelined_requests_are_answered_in_order(recorder: Recorder) -> None:
    recorder.answer("GET", "/second", 418, body="no")
    host, port = recorder.address().split(":")
    with socket.create_connection((host, int(port)), 3) as sock:
        sock.sendall(
            b"GET /first HTTP/1.1\r\nHost: h\r\n\r\nGET /second HTTP/1.1\r\nHost: h\r\n\r\n"
            b"GET /third HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        )
        text = b"".join(iter(lambda: sock.recv(65536), b""))
    assert text.index(b'"/first"') < text.index(b"418 Scripted") < text.index(b'"/third"')


def test_interim_answers_pass(recorder: Recorder) -> None:
    host, port = recorder.address().split(":")
    with socket.create_connection((host, int(port)), 3) as sock:
        sock.sendall(b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 100")
        sock.sendall(b"abc")
        answer = b""
        while b"}" not in answer:
            answer += sock.recv(65536)
    assert b'"length": 3' in answer


def test_scripted_answers_are_used_up_and_pick_their_requests(
    recorder: Recorder, client: http.client.HTTPConnection
) -> None:
    recorder.answer(
        "PUT", ".*/unload", 307, {"Location": "http://x/"}, times=2, user_agent_prefix="bundlekeel", where="http"
    )
    ours = {"User-Agent": "bundlekeel/1"}
    assert _get(client, "/b/unload", "PUT")[0] == 200
    assert _get(client, "/b/unload", headers=ours)[0] == 200
    assert _get(client, "/b/unload?x", "PUT", body=b"abc", headers=ours) == (307, b"")
    assert _get(client, "/b/unload", "PUT", headers=ours)[0] == 307
    assert _get(client, "/b/unload", "PUT", headers=ours)[0] == 200
    recorder.answer("*", "/.*", 503, body=b"busy", times=None)
    assert _get(client, "/a", "HEAD") == (503, b"")
    assert _get(client, "/b") == (503, b"busy")
    recorder.heal()
    assert _get(client, "/b")[0] == 200


def test_down_cuts_and_refuses_until_up(recorder: Recorder, client: http.client.HTTPConnection) -> None:
    address = recorder.address()
    assert _get(client, "/a")[0] == 200
    recorder.set_down(True, where=address)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        _get(client, "/b")
    client.close()
    with pytest.raises(ConnectionRefusedError):
        _get(client, "/c")
    client.close()
    recorder.set_down(False)
    assert recorder.address() == address
    assert _get(client, "/d")[0] == 200
    assert [r.path for r in recorder.requests()] == ["/a", "/d"]


def test_delay_holds_requests(recorder: Recorder, client: http.client.HTTPConnection) -> None:
    recorder.set_delay(0.2)
    began = time.monotonic()
    assert _get(client, "/a")[0] == 200
    assert time.monotonic() - began >= 0.2
    recorder.set_delay(0)
    began = time.monotonic()
    assert _get(client, "/a")[0] == 200
    assert time.monotonic() - began < 0.2


def test_frozen_takes_requests_and_answers_none(recorder: Recorder) -> None:
    recorder.freeze(True)
    client = http.client.HTTPConnection(recorder.address(), timeout=0.2)
    client.request("GET", "/a")
    with pytest.raises(TimeoutError):
        client.getresponse()
    client.close()
    assert [r.path for r in recorder.requests()] == ["/a"]
    recorder.heal()
    client = http.client.HTTPConnection(recorder.address(), timeout=3)
    assert _get(client, "/b")[0] == 200
    client.close()


def test_an_unreachable_target_cuts_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with Recorder([("127.0.0.1", 0, "127.0.0.1", port)]) as recorder:
        client = http.client.HTTPConnection(recorder.address(), timeout=3)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            _get(client, "/a")
        client.close()
        assert len(recorder.requests()) == 1


def test_what_is_not_http_cuts_the_connection(recorder: Recorder) -> None:
    host, port = recorder.address().split(":")
    with socket.create_connection((host, int(port)), 3) as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


async def test_bytes_pass_both_ways_on_tcp_routes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        route = Route("127.0.0.1", 0, "127.0.0.1", target.getsockname()[1], http=False)
        async with Recorder([route]) as recorder:
            host, port = recorder.address().split(":")
            with socket.create_connection((host, int(port)), 3) as near:
                far, _ = target.accept()
                with far:
                    near.sendall(BODY)
                    near.shutdown(socket.SHUT_WR)
                    assert b"".join(iter(lambda: far.recv(65536), b"")) == BODY
                    far.sendall(b"still here")
                    assert near.recv(100) == b"still here"
                    recorder.set_down(True, where="tcp")
                    with pytest.raises(ConnectionResetError):
                        near.recv(100)
            assert recorder.requests() == []


def test_stops_with_connections_open(backend: int) -> None:
    recorder = Recorder([("127.0.0.1", 0, "127.0.0.1", backend)])
    recorder.start()
    with pytest.raises(RuntimeError):
        recorder.start()
    client = http.client.HTTPConnection(recorder.address(), timeout=3)
    assert _get(client, "/a")[0] == 200
    recorder.stop()
    recorder.stop()
    client.close()
    assert [r.path for r in recorder.requests()] == ["/a"]


def test_a_taken_port_is_an_error(backend: int) -> None:
    with pytest.raises(OSError, match="in use"):
        Recorder([("127.0.0.1", backend, "127.0.0.1", backend)]).start()


def test_stands_before_a_cluster() -> None:
    recorder = Recorder.for_cluster([broker_info(2, 8080, 6650, "proxy")])
    assert recorder.routes == [
        Route("127.0.0.12", 8080, "127.0.1.2", 8080, http=True),
        Route("127.0.0.12", 6650, "127.0.1.2", 6650, http=False),
    ]
    with pytest.raises(ValueError, match="broker-1"):
        Recorder.for_cluster([broker_info(1, 8080, 6650, "bind")])
    with pytest.raises(ValueError, match="no address"):
        recorder.set_delay(1, where="127.0.0.1:1")
