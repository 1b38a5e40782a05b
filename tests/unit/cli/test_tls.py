"""TLS and mTLS of the API, of the other sidecars, of the command line and of the admin client; certificates are renewed
while everything runs."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from typer.testing import CliRunner

from bundlekeel.api import ApiServer
from bundlekeel.api.server import PROBE_CONNECTIONS, Protection
from bundlekeel.model.errors import ConfigError, StoreError
from bundlekeel.settings.tls import ClientTls, ServerTls
from bundlekeel.wiring.peers import HttpPeers
from tests.support.apps import ROUTES, make_app
from tests.support.contracts.coordination import eventually
from tests.support.fake_wiring import FakeWiring
from tests.support.security import Certificates, Tokens, access_for
from tests.support.shop import QUOTA_TOPIC, Shop


@asynccontextmanager
async def served(tls: ServerTls | None, **more: Any) -> AsyncIterator[str]:
    """The API on a loopback port."""
    context = tls.context(field="api.tls.cert_file") if tls else None
    service = (await Shop().open()).service
    server = ApiServer(service, "127.0.0.1", 0, None, protection=Protection(tls=context, **more), features=ROUTES)
    url = await server.start()
    try:
        yield url
    finally:
        await server.stop()


def client(trusted: ClientTls) -> httpx.AsyncClient:
    """One that checks certificates, with a fresh connection for each request."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(verify=trusted.context(field="test"), trust_env=False, limits=limits)


async def status(http: httpx.AsyncClient, url: str) -> int:
    return (await http.get(f"{url}/api/v1/state")).status_code


async def test_https_with_a_renewed_certificate(tmp_path: Path) -> None:
    """A certificate of another CA is taken by the next connection, without a restart; a half-written one is not."""
    old, new = Certificates(tmp_path, "old"), Certificates(tmp_path, "new")
    cert, key = old.issue("server")
    async with served(ServerTls(cert=cert, key=key)) as url:
        assert url.startswith("https://")
        async with client(ClientTls(trust_certs=old.ca)) as with_old, client(ClientTls(trust_certs=new.ca)) as with_new:
            assert await status(with_old, url) == 200
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await status(with_new, url)
            new.issue("server")
            assert await status(with_new, url) == 200
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await status(with_old, url)
            cert.write_text("-----BEGIN CERTIFICATE-----\nhalf")
            assert await status(with_new, url) == 200, "the last good one stays"


async def test_a_client_takes_a_renewed_trust(tmp_path: Path) -> None:
    """Clients read their files again too: a CA that is exchanged is trusted, the old one no longer."""
    old, new = Certificates(tmp_path, "old"), Certificates(tmp_path, "new")
    trust = tmp_path / "trust.pem"
    trust.write_bytes(old.ca.read_bytes())
    cert, key = new.issue("server")
    async with served(ServerTls(cert=cert, key=key)) as url, client(ClientTls(trust_certs=trust)) as http:
        with pytest.raises(httpx.ConnectError):
            await status(http, url)
        trust.write_bytes(new.ca.read_bytes())
        assert await status(http, url) == 200


async def test_the_system_is_not_trusted_besides_a_file(tmp_path: Path) -> None:
    """Rule: a configured CA replaces the system's: a public CA that signs for a forged name is not trusted."""
    ours = Certificates(tmp_path)
    context = ClientTls(trust_certs=ours.ca).context(field="test")
    assert isinstance(context, ssl.SSLContext)
    assert len(context._renewed().get_ca_certs()) == 1  # type: ignore[attr-defined]


async def test_a_wrong_host_name(tmp_path: Path) -> None:
    """A certificate of the right CA for another host is refused, unless nothing is to be checked."""
    ours = Certificates(tmp_path)
    cert, key = ours.issue("server", "other.example")
    async with served(ServerTls(cert=cert, key=key)) as url:
        async with client(ClientTls(trust_certs=ours.ca)) as strict:
            with pytest.raises(httpx.ConnectError, match=r"(?i)mismatch"):
                await status(strict, url)
        async with client(ClientTls(verify=False)) as careless:
            assert await status(careless, url) == 200


async def test_old_tls_is_refused(tmp_path: Path) -> None:
    """TLS 1.2 at least, at both ends."""
    ours = Certificates(tmp_path)
    cert, key = ours.issue("server")
    for result in (ServerTls(cert=cert, key=key).context(field="x"), ClientTls(trust_certs=ours.ca).context(field="x")):
        assert result._renewed().minimum_version == ssl.TLSVersion.TLSv1_2  # type: ignore[attr-defined]
    assert ClientTls().context(field="x").minimum_version == ssl.TLSVersion.TLSv1_2


async def test_mtls_and_a_client_ca_that_changes(tmp_path: Path) -> None:
    """Only clients with a certificate of the client CA get through, also after that CA was exchanged."""
    servers, clients, others = (Certificates(tmp_path, name) for name in ("servers", "clients", "others"))
    cert, key = servers.issue("server")
    mine, theirs = clients.issue("mine", "me"), others.issue("theirs", "them")
    ca = tmp_path / "client-ca.pem"
    ca.write_bytes(clients.ca.read_bytes())
    async with served(ServerTls(cert=cert, key=key, client_ca=ca)) as url:

        async def ask_status(bundles: tuple[Path, Path] | None) -> int | str:
            own = {} if bundles is None else {"cert": bundles[0], "key": bundles[1]}
            async with client(ClientTls(trust_certs=servers.ca, **own)) as http:
                try:
                    return await status(http, url)
                except (httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError, ssl.SSLError):
                    return "refused"

        assert [await ask_status(None), await ask_status(mine), await ask_status(theirs)] == ["refused", 200, "refused"]
        ca.write_bytes(others.ca.read_bytes())
        assert [await ask_status(None), await ask_status(mine), await ask_status(theirs)] == ["refused", "refused", 200]


@pytest.mark.parametrize("broken", ["missing", "empty", "other key"])
def test_files_that_cannot_be_used_say_which_setting(tmp_path: Path, broken: str) -> None:
    ours = Certificates(tmp_path)
    cert, key = ours.issue("server")
    if broken == "missing":
        key.unlink()
    elif broken == "empty":
        cert.write_bytes(b"")
    else:
        key.write_bytes(ours.issue("other")[1].read_bytes())
    with pytest.raises(ConfigError, match=r"server\.crt") as error:
        ServerTls(cert=cert, key=key).context(field="api.tls.cert_file")
    assert error.value.field == "api.tls.cert_file"
    with pytest.raises(ConfigError):
        ClientTls(trust_certs=tmp_path / "none").context(field="x")


def test_a_file_of_certificates_that_is_missing(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    answer = CliRunner().invoke(make_app(FakeWiring), ["status", "--url", "https://b:1", "--tls-ca", str(missing)])
    assert answer.exit_code == 2
    expected = " ".join(answer.stderr.split())
    assert expected == f"error: --tls-ca: TLS files {missing} cannot be used: No such file or directory"


async def test_peers_show_certificate_and_token(tmp_path: Path) -> None:
    """A follower reaches the leader over mTLS with its token; without either, as a viewer or over HTTP it does not."""
    ours, tokens = Certificates(tmp_path), Tokens(tmp_path)
    cert, key = ours.issue("server")
    own = ClientTls(trust_certs=ours.ca, cert=cert, key=key).context(field="x")
    access, quota_path = access_for(tokens), f"quotas/{quote(QUOTA_TOPIC, safe='')}/why"
    async with served(ServerTls(cert=cert, key=key, client_ca=ours.ca), access=access) as url:
        for tls, token, answered in (
            (own, lambda: tokens.tokens["operator"], True),
            (own, None, False),
            (own, lambda: tokens.tokens["viewer"], False),
            (ClientTls(trust_certs=ours.ca).context(field="x"), lambda: tokens.tokens["operator"], False),
        ):
            peers = HttpPeers(tls=tls, token=token)
            try:
                plan = (await peers.make_plan(url, {}))["hash"]
                assert answered and (await peers.plan(url, plan) or {})["hash"] == plan
                assert await peers.plan(url, "feed") is None
                assert (await peers.get(url, quota_path) or {})["name"] == QUOTA_TOPIC
            except StoreError as error:
                assert not answered and tokens.tokens["operator"] not in str(error)
            finally:
                await peers.close()
    async with served(None) as plain:
        peers = HttpPeers(tls=own, token=lambda: pytest.fail("the token was taken out for plain HTTP"))
        with pytest.raises(StoreError, match="https"):
            await peers.make_plan(plain, {})
        await peers.close()


@contextmanager
def running(**protection: Any) -> Iterator[str]:
    """The API in a thread of its own, for commands that block."""
    ready, ends = threading.Event(), threading.Event()
    results: list[str] = []

    async def serve() -> None:
        service = (await Shop().open()).service
        server = ApiServer(service, "127.0.0.1", 0, None, protection=Protection(**protection))
        results.append(await server.start())
        ready.set()
        await asyncio.to_thread(ends.wait)
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield results[0]
    finally:
        ends.set()
        thread.join(20)


def test_the_command_line_over_mtls_with_a_token(tmp_path: Path) -> None:
    """Files name CA, certificate and token; a missing token says which option would give it."""
    ours, tokens = Certificates(tmp_path), Tokens(tmp_path)
    cert, key = ours.issue("server")
    tls = ServerTls(cert=cert, key=key, client_ca=ours.ca).context(field="x")
    (tmp_path / "token").write_text(tokens.tokens["operator"] + "\n")
    (tmp_path / "bad").write_text("two words")
    mtls = ["--tls-ca", str(ours.ca), "--tls-cert", str(cert), "--tls-key", str(key)]
    with running(tls=tls, access=access_for(tokens)) as url:

        def run(*arguments: str) -> Any:
            return CliRunner().invoke(make_app(FakeWiring), [*arguments, "--url", url])

        paused = run("pause", "--reason", "x", "--token-file", str(tmp_path / "token"), *mtls, "-o", "json")
        assert paused.exit_code == 0 and json.loads(paused.output)["by"] == "the-operator"
        refused = run("mode", "observe", "--reason", "x", "--token-file", str(tmp_path / "token"), *mtls)
        assert refused.exit_code == 4 and "needs role admin" in refused.output
        missing = run("brokers", *mtls)
        assert missing.exit_code == 4 and "--token-file" in missing.output
        assert run("brokers", "--token-file", str(tmp_path / "bad"), *mtls).exit_code == 2
        assert run("brokers", "--token-file", str(tmp_path / "none"), *mtls).exit_code == 2
        assert run("brokers", "--tls-ca", str(ours.ca)).exit_code == 3, "without a certificate of ours"
        assert run("brokers").exit_code == 3, "and this CA is not the system's"


# --- connections -------------------------------------------------------------------------------------------


async def test_too_many_connections_are_closed_at_once() -> None:
    async with served(None, max_connections=32) as url:
        port = int(url.rpartition(":")[2])
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12 + PROBE_CONNECTIONS)]
        async with asyncio.timeout(10):
            ended = [await reader.read(1) for reader, _ in opened[8:12]]
        assert ended == [b""] * 4
        for _, writer in opened:
            writer.close()
        async with httpx.AsyncClient(trust_env=False) as http:

            async def answers() -> bool:
                return await status(http, url) == 200

            await eventually(answers, within=10.0)


async def test_a_head_that_never_ends_is_not_waited_for() -> None:
    """Slow loris: a connection on which no whole request comes is closed, also one that was used before."""
    async with served(None, head_seconds=0.3) as url:
        port = int(url.rpartition(":")[2])
        head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
        silent, _w1 = await asyncio.open_connection("127.0.0.1", port)
        slow, slow_writer = await asyncio.open_connection("127.0.0.1", port)
        slow_writer.write(head)
        used, used_writer = await asyncio.open_connection("127.0.0.1", port)
        used_writer.write(head + b"\r\n")
        async with asyncio.timeout(10):
            assert (await used.readline()).startswith(b"HTTP/1.1 200")
            used_writer.write(head)
            assert await silent.read() == b"" and await slow.read() == b""
            await used.read()
        for writer in (_w1, slow_writer, used_writer):
            writer.close()


async def test_too_many_requests_at_once_get_503() -> None:
    """Beyond the limit a request is told to come again; probes are answered all the same."""
    service, gate = (await Shop().open()).service, asyncio.Event()
    plan = service.make_plan

    async def slow(request: Any) -> Any:
        await gate.wait()
        return await plan(request)

    service.make_plan = slow  # type: ignore[method-assign]
    server = ApiServer(service, "127.0.0.1", 0, None, protection=Protection(max_concurrent=2))
    url = await server.start()
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        waiting = [asyncio.create_task(http.post("/api/v1/plans", json={})) for _ in range(2)]

        async def too_busy() -> bool:
            return (await http.get("/api/v1/state")).status_code == 503

        await eventually(too_busy, within=10.0)
        busy = await http.get("/api/v1/state")
        assert busy.headers["retry-after"] == "1" and busy.json()["type"].endswith("too-busy")
        assert (await http.get("/livez")).status_code == (await http.get("/metrics")).status_code == 200
        gate.set()
        assert [(await item).status_code for item in waiting] == [200, 200]
        assert (await http.get("/api/v1/state")).status_code == 200
    await server.stop()
