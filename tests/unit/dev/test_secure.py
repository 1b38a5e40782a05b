"""The parts of a secured local cluster, without starting one."""

from __future__ import annotations

import stat
from pathlib import Path

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import load_der_public_key

from bundlekeel.settings.tls import ClientTls, ServerTls
from dev.cluster.cli import build_parser, foreground_flags
from dev.cluster.conf import broker_conf, zookeeper_conf
from dev.cluster.secure import ROLES, STORE_USERS, SUPER_USERS, Security
from dev.cluster.spec import ClusterError, ClusterSpec, broker_info
from tests.unit.cli.test_tls import client, served, status


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> Security:
    """One set of files."""
    return Security(tmp_path_factory.mktemp("run") / "secure", ["127.0.1.1", "127.0.1.2"])


def test_only_the_owner_can_read_them(security: Security) -> None:
    """Keys, tokens and passwords are in a directory of mode 0700, in files of mode 0600."""
    assert stat.S_IMODE(security.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in security.directory.iterdir()} == {0o600}


def test_tokens_are_what_pulsar_checks(security: Security) -> None:
    """RS256, the role as subject, checked with the public key as Pulsar reads it (DER)."""
    public = load_der_public_key(security.token_public_key.read_bytes())
    for role in ROLES:
        claims = jwt.decode(security.tokens[role].read_text(), public, algorithms=["RS256"])  # type: ignore[arg-type]
        assert claims == {"sub": role}
    assert "client" not in SUPER_USERS


def test_no_secret_on_a_command_line_or_in_a_configuration(security: Security) -> None:
    broker = broker_info(1, 8443, 6651, "bind", secure=True)
    output = [
        *security.zookeeper_flags(),
        *security.store_client_flags(),
        zookeeper_conf(ClusterSpec(), Path("d"), 1, security.zookeeper_settings(2)),
        broker_conf(ClusterSpec(), broker, "zk:x", "zk:x", security.broker_settings(8443, 6651)),
    ]
    hidden = [*security.passwords.values(), *(path.read_text() for path in security.tokens.values())]
    assert not any(secret in line for secret in hidden for line in output)
    assert all(f'user_{name}="{security.passwords[name]}"' in security.server_jaas.read_text() for name in STORE_USERS)
    assert security.passwords["bundlekeel"] not in security.client_jaas.read_text()


def test_a_secured_broker_listens_with_tls_only(security: Security) -> None:
    """No plain port; the addresses say so too."""
    broker = broker_info(2, 8443, 6651, "bind", secure=True)
    assert (broker.web_url, broker.service_url) == ("https://127.0.1.2:8443", "pulsar+ssl://127.0.1.2:6651")
    assert broker.bind_web_url == broker.web_url and broker.broker_id == "127.0.1.2:8443"
    text = broker_conf(ClusterSpec(), broker, "zk:x", "zk:x", security.broker_settings(8443, 6651))
    lines = dict(line.split("=", 1) for line in text.splitlines())
    assert (lines["webServicePort"], lines["brokerServicePort"]) == ("", "")
    assert (lines["webServicePortTls"], lines["brokerServicePortTls"]) == ("8443", "6651")
    assert lines["authenticationEnabled"] == lines["authorizationEnabled"] == "true"


def test_a_secured_zookeeper_wants_sasl(security: Security) -> None:
    lines = dict(
        line.split("=", 1)
        for line in zookeeper_conf(ClusterSpec(), Path("d"), 1, security.zookeeper_settings(2)).splitlines()
    )
    assert lines["secureClientPort"] == "2" and lines["sessionRequireClientSASLAuth"] == "true"
    assert lines["secureClientPortAddress"] == "127.0.0.1"


async def test_certificates_hold_for_the_brokers_addresses(security: Security) -> None:
    """A client that trusts the CA reaches a server that shows one of them; one that does not, does not."""
    async with served(ServerTls(cert=security.broker.cert, key=security.broker.key)) as url:
        async with client(ClientTls(trust_certs=security.ca)) as http:
            assert await status(http, url) == 200
        async with client(ClientTls()) as stranger:
            with pytest.raises(httpx.ConnectError):
                await status(stranger, url)


def test_the_command_line_has_it() -> None:
    """`up --secure`, also detached; a proxy in front is refused."""
    arguments = build_parser().parse_args(["up", "--secure", "--detach"])
    assert "--secure" in foreground_flags(arguments)
    assert "--secure" not in foreground_flags(build_parser().parse_args(["up"]))
    with pytest.raises(ClusterError, match="proxied"):
        ClusterSpec(secure=True, advertise="proxy")
