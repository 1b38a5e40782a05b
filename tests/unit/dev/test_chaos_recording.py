"""The recorder as a witness: what each request asked for, and what its answer says of the effect."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.support.chaos.recording import AdminFaults, attempts, verdict_of
from tests.support.http_server import serving
from tests.support.recorder import Recorder

AGENT = {"User-Agent": "bundlekeel/0.1.0 (A)"}
UNLOAD = "/admin/v2/namespaces/t/ns/0x00000000_0x40000000/unload"


class Broker(BaseHTTPRequestHandler):
    """Answers with the status its path ends with, 204 otherwise."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def _answer(self) -> None:
        status = self.headers.get("X-Status", "204")
        self.send_response(int(status))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = _answer


@pytest.fixture(scope="module")
def broker() -> Iterator[int]:
    with serving(Broker) as port:
        yield port


@pytest.fixture
def recorder(broker: int) -> Iterator[Recorder]:
    with Recorder([("127.0.0.1", 0, "127.0.0.1", broker)]) as running:
        yield running


def ask(recorder: Recorder, method: str, path: str, status: int = 204, timeout: float = 5.0) -> int:
    """One request of sidecar A; the status."""
    connection = http.client.HTTPConnection(recorder.address(), timeout=timeout)
    try:
        connection.request(method, path, headers=AGENT | {"X-Status": str(status)})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(200, "ok"), (204, "ok"), (307, "failed"), (401, "failed"), (409, "failed"), (412, "failed"), (500, "unknown")],
)
def test_each_answer_has_its_verdict(recorder: Recorder, status: int, verdict: str) -> None:
    ask(recorder, "PUT", f"{UNLOAD}?destinationBroker=b2%3A8080", status)
    (attempt,) = attempts(recorder)
    assert (attempt.verb, attempt.bundle, attempt.member) == ("unload", "t/ns/0x00000000_0x40000000", "A")
    assert (attempt.status, attempt.verdict, attempt.destination) == (status, verdict, "b2:8080")
    assert attempt.answered is not None
    assert attempt.answered >= attempt.sent


def test_no_answer_is_unknown(recorder: Recorder) -> None:
    AdminFaults(recorder).hang()
    with pytest.raises(TimeoutError):
        ask(recorder, "PUT", UNLOAD, timeout=0.3)
    assert ask(recorder, "PUT", UNLOAD) == 204
    assert [(item.status, item.verdict) for item in attempts(recorder)] == [(None, "unknown"), (204, "ok")]
    assert verdict_of(None) == "unknown"


def test_a_connection_that_breaks_is_unknown(recorder: Recorder) -> None:
    recorder.freeze(True)
    host, _, port = recorder.address().rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as client:
        client.sendall(f"PUT {UNLOAD} HTTP/1.1\r\nHost: x\r\nUser-Agent: bundlekeel/1 (B)\r\n\r\n".encode())
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
    assert [(item.member, item.verdict) for item in attempts(recorder)] == [("B", "unknown")]


def test_only_what_changes_a_broker_counts(recorder: Recorder) -> None:
    """Reads and requests of others are left out; splits and claims are in."""
    ask(recorder, "GET", "/admin/v2/brokers/local")
    ask(recorder, "GET", UNLOAD)
    ask(recorder, "PUT", UNLOAD.replace("unload", "split"))
    ask(recorder, "GET", "/lookup/v2/topic/persistent/t/ns/x?authoritative=true")
    ask(recorder, "GET", "/lookup/v2/topic/persistent/t/ns/x")
    attempt_list = attempts(recorder, bundle_of=lambda topic: f"bundle of {topic}")
    assert [(item.verb, item.bundle) for item in attempt_list] == [
        ("split", "t/ns/0x00000000_0x40000000"),
        ("claim", "bundle of persistent/t/ns/x"),
    ]


def test_faults_answer_instead_of_the_broker(recorder: Recorder) -> None:
    faults = AdminFaults(recorder)
    faults.fail()
    faults.loop()
    assert [ask(recorder, "PUT", UNLOAD) for _ in range(3)] == [500, 307, 204]
    recorder.heal()
    assert ask(recorder, "PUT", UNLOAD) == 204
