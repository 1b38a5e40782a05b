"""Connections to ZooKeeper: addresses, names that do not resolve, closed ports, SASL and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.errors import ConfigError, StoreError
from bundlekeel.model.store_urls import parse_store_url
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.connection import StoreIdentity
from bundlekeel.settings.tls import ClientTls
from tests.support.contracts.coordination import eventually
from tests.support.security import Certificates

_EXISTS, _CLOSE, _SASL = 3, -11, 102
_STAT = struct.pack(">qqqqiiiqiiq", 1, 1, 1, 1, 7, 0, 0, 0, 0, 0, 1)


class TinyZooKeeper:
    """Answers connect, ping, exists and close. Answers to `exists` wait until `batch` of them are due, and leave in one
    TLS record. With `password` it takes SASL DIGEST-MD5 of that password, and drops whoever has another, as the real
    one does. `shown`: the certificates that clients showed, `users` who got through SASL."""

    def __init__(self, context: ssl.SSLContext, *, batch: int = 1, password: str = "") -> None:
        self._context = context
        self._batch = batch
        self._password = password
        self.shown: list[object] = []
        self.users: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(plain, server_side=True) as secured:
                    self.shown.append(secured.getpeercert())
                    self._serve(secured)
            except OSError:
                plain.close()

    def _serve(self, connection: ssl.SSLSocket) -> None:
        self._read(connection)
        connection.sendall(_framed(struct.pack(">iiqi16s?", 0, 10_000, 4711, 16, b"p" * 16, False)))
        due: list[bytes] = []
        while request := self._read(connection):
            xid, kind = struct.unpack(">ii", request[:8])
            body = _STAT if kind == _EXISTS else b""
            if kind == _SASL:
                challenge = self._challenge(request[12:])
                if challenge is None:
                    return
                body = struct.pack(">i", len(challenge)) + challenge
            answer = _framed(struct.pack(">iqi", xid, 1, 0) + body)
            if kind != _EXISTS:
                connection.sendall(answer)
                if kind == _CLOSE:
                    return
                continue
            due.append(answer)
            if len(due) == self._batch:
                connection.sendall(b"".join(due))
                due.clear()

    def _challenge(self, sent: bytes) -> bytes | None:
        """RFC 2831, the server's side; None for a wrong answer."""
        if not sent:
            return b'realm="zk-sasl-md5",nonce="n0nce",qop="auth",charset=utf-8,algorithm=md5-sess'
        mapping = dict(re.findall(r'([a-z-]+)="?([^",]*)"?', sent.decode()))

        def digest(a2: str) -> str:
            secret = hashlib.md5(f"{mapping['username']}:zk-sasl-md5:{self._password}".encode()).digest()
            a1 = secret + f":n0nce:{mapping['cnonce']}".encode()
            parts = (_md5(a1), "n0nce", mapping["nc"], mapping["cnonce"], "auth", _md5(a2.encode()))
            return _md5(":".join(parts).encode())

        if mapping["response"] != digest(f"AUTHENTICATE:{mapping['digest-uri']}"):
            return None
        self.users.append(mapping["username"])
        return b"rspauth=" + digest(f":{mapping['digest-uri']}").encode()

    def _read(self, connection: ssl.SSLSocket) -> bytes:
        def exactly(size: int) -> bytes:
            data = b""
            while len(data) < size:
                more = connection.recv(size - len(data))
                if not more:
                    return b""
                data += more
            return data

        head = exactly(4)
        return exactly(struct.unpack(">i", head)[0]) if head else b""


def _md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def _framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def server_context(pair: tuple[Path, Path], client_ca: Path | None = None) -> ssl.SSLContext:
    """A server that shows this certificate, and wants one of that CA when given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


@asynccontextmanager
async def client(
    zookeeper: TinyZooKeeper, tls: ClientTls, *, username: str = "", password: str = ""
) -> AsyncIterator[ZkClient]:
    """Started, not yet connected."""
    zk_client = ZkClient(
        f"127.0.0.1:{zookeeper.port}",
        "",
        session_seconds=10.0,
        call_timeout_seconds=2.0,
        identity=StoreIdentity(tls=tls, username=username, password=password, owned=bool(username)),
    )
    zk_client.start()
    try:
        yield zk_client
    finally:
        await zk_client.close()
        zookeeper.close()


async def until_connected(result: ZkClient) -> None:
    """Or the test fails."""

    async def connected() -> bool:
        return result.connected

    await eventually(connected, within=10.0)


async def test_a_call_over_mtls(tmp_path: Path) -> None:
    """Certificate and host name are checked, ours is shown."""
    ours = Certificates(tmp_path)
    cert, key = ours.issue("me", "sidecar.example", common_name="bundlekeel")
    zookeeper = TinyZooKeeper(server_context(ours.issue("zk"), ours.ca))
    async with client(zookeeper, ClientTls(trust_certs=ours.ca, cert=cert, key=key)) as zk:
        await until_connected(zk)
        stat = await zk.exists("/")
        assert stat is not None and stat.version == 7 and zk.negotiated_seconds == 10.0
        assert "sidecar.example" in str(zookeeper.shown)


async def test_two_answers_in_one_record_are_both_read_at_once(tmp_path: Path) -> None:
    ours = Certificates(tmp_path)
    zookeeper = TinyZooKeeper(server_context(ours.issue("zk")), batch=3)
    async with client(zookeeper, ClientTls(trust_certs=ours.ca)) as zk:
        await until_connected(zk)
        results = await asyncio.gather(*(zk.exists("/") for _ in range(3)))
        assert [stat.version for stat in results if stat] == [7, 7, 7]


@pytest.mark.parametrize("wrong", ["host", "authority"])
async def test_a_server_that_is_not_trusted_is_not_talked_to(tmp_path: Path, wrong: str) -> None:
    """No session begins, and a call says what is wrong with the certificate."""
    ours, other = Certificates(tmp_path, "ours"), Certificates(tmp_path, "other")
    pair = ours.issue("zk", "other.example") if wrong == "host" else other.issue("zk")
    zookeeper = TinyZooKeeper(server_context(pair))
    async with client(zookeeper, ClientTls(trust_certs=ours.ca)) as zk:

        async def is_refused() -> bool:
            try:
                await zk.exists("/")
            except StoreError as error:
                return "CERTIFICATE_VERIFY_FAILED" in str(error)
            return False

        await eventually(is_refused, within=10.0)
        assert not zk.connected and zk.session_id in (None, 0)


async def test_sasl_with_the_right_password(tmp_path: Path) -> None:
    """DIGEST-MD5 inside TLS, before the first call; the password itself does not travel."""
    ours = Certificates(tmp_path)
    zookeeper = TinyZooKeeper(server_context(ours.issue("zk")), password="c4nary")
    async with client(zookeeper, ClientTls(trust_certs=ours.ca), username="keel", password="c4nary") as zk:
        await until_connected(zk)
        assert await zk.exists("/") is not None and zookeeper.users == ["keel"]


async def test_sasl_with_a_wrong_password_says_so_and_tries_again(tmp_path: Path) -> None:
    ours = Certificates(tmp_path)
    zookeeper = TinyZooKeeper(server_context(ours.issue("zk")), password="right")
    async with client(zookeeper, ClientTls(trust_certs=ours.ca), username="keel", password="c4nary") as zk:

        async def has_failed() -> bool:
            try:
                await zk.exists("/")
            except StoreError as error:
                assert "c4nary" not in str(error)
                return "SASL as keel failed" in str(error)
            return False

        await eventually(has_failed, within=10.0)
        zookeeper._password = "c4nary"

        async def connected() -> bool:
            return zk.connected and await zk.exists("/") is not None

        await eventually(connected, within=20.0)


async def test_unusable_files_stop_the_start(tmp_path: Path) -> None:
    """Before anything is connected, with the setting's name."""
    with pytest.raises(ConfigError) as error:
        ZkClient(
            "127.0.0.1:1",
            "",
            session_seconds=10.0,
            call_timeout_seconds=2.0,
            identity=StoreIdentity(tls=ClientTls(trust_certs=tmp_path / "none")),
        )
    assert error.value.field == "store.tls_trust_certs_file"


def closed_port() -> int:
    """A port of this machine where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("127.0.0.1", "127.0.0.1: the connection is refused; nothing listens there"),
        ("no-such-host.invalid", "no-such-host.invalid: the name cannot be resolved (DNS)"),
    ],
)
async def test_a_name_that_is_unknown_and_a_port_that_is_closed_are_told_apart(host: str, message: str) -> None:
    client = ZkClient(f"{host}:{closed_port()}", "", session_seconds=2, call_timeout_seconds=0.5)
    assert client.obstacle == ""

    async def is_logged() -> bool:
        return client.obstacle == message

    client.start()
    try:
        await eventually(is_logged, within=15.0)
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("zk:h1:2181,h2:2182/pulsar", ("h1:2181,h2:2182", "/pulsar")),
        ("zk:h1:2181", ("h1:2181", "")),
        ("h1:2181,h2/a/b/", ("h1:2181,h2:2181", "/a/b")),
        ("zk:h1,h2/", ("h1:2181,h2:2181", "")),
        (" zk:h1:1, h2:2 ", ("h1:1,h2:2", "")),
        ("metadata-store:zk:h:2181/pulsar", ("h:2181", "/pulsar")),
        ("zk:[::1]:2181,[fe80::1]/p", ("[::1]:2181,[fe80::1]:2181", "/p")),
        ("zk:2181/p", ("zk:2181", "/p")),
        ("zookeeper-0.zk.svc:2181", ("zookeeper-0.zk.svc:2181", "")),
    ],
)
def test_what_pulsar_writes_is_understood(url: str, expected: tuple[str, str]) -> None:
    """Hosts get the default port, the chroot loses its last slash."""
    assert parse_store_url(url) == expected


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("etcd:http://h:2379", "etcd"),
        ("oxia://h:6648", "oxia"),
        ("rocksdb:///tmp/x", "rocksdb"),
        ("memory:local", "memory"),
        ("http://h:2181", "http"),
        ("zk://h:2181", "''"),
        ("zk:", "''"),
        ("", "''"),
        ("h1:2181,,h2", "''"),
        ("h:0", "h:0"),
        ("h:70000", "h:70000"),
        ("h:port", "h:port"),
        ("h:2181/a/../b", "chroot"),
    ],
)
def test_what_is_no_zookeeper_is_refused_by_name(url: str, named: str) -> None:
    """The error names the setting, what is wrong with it and what is allowed."""
    with pytest.raises(ConfigError, match=named) as caught:
        parse_store_url(url, field="stores.metadata")
    assert caught.value.field == "stores.metadata"
    assert caught.value.value == url
    assert "zk:" in caught.value.allowed


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """No text does anything but parse or raise ConfigError, and what parses parses again to itself."""
    try:
        hosts, chroot = parse_store_url(text)
    except ConfigError:
        return
    assert parse_store_url(hosts + chroot) == (hosts, chroot)
