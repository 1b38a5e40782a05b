"""Identity, TLS and own addresses: what the settings say, as the objects that the adapters and the API take."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from bundlekeel.adapters.clock import SystemClock
from bundlekeel.adapters.peers import HttpPeers
from bundlekeel.adapters.zookeeper.connection import StoreIdentity
from bundlekeel.api.audit import AuditTrail
from bundlekeel.api.auth import AccessRules
from bundlekeel.api.server import Protection
from bundlekeel.core.model.uris import WILDCARDS
from bundlekeel.ports import Telemetry
from bundlekeel.settings.credentials import Credentials, TokensFile
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.model import AdminSettings, Settings
from bundlekeel.settings.sections import PrometheusSettings
from bundlekeel.tls import ClientTls, ServerTls
from bundlekeel.token_source import TokenSource


def access_of(loaded: LoadedSettings, telemetry: Telemetry, clock: SystemClock) -> AccessRules | None:
    """How callers of the TCP port are known; None when no authentication is configured. ConfigError."""
    given = loaded.settings.api.auth
    if not given.on:
        return None
    tokens_file, key_file = loaded.located(given.tokens_file), loaded.located(given.jwt_key_file)
    keys = None
    if key_file is not None:
        # Cryptography is 9 MB that only these sidecars need.
        from bundlekeel.settings.jwt_keys import JwtKeys  # noqa: PLC0415

        issuer, audience = given.jwt_issuer or "", given.jwt_audience or ""
        keys = JwtKeys(key_file, issuer=issuer, audience=audience, role_claim=given.jwt_role_claim)
    return AccessRules(
        credentials=Credentials(TokensFile(tokens_file) if tokens_file is not None else None, keys),
        telemetry=telemetry,
        boot=clock.boot,
        anonymous_reads=given.anonymous_reads,
        failures_per_minute=given.failures_per_minute,
    )


def protection(
    loaded: LoadedSettings, telemetry: Telemetry, clock: SystemClock, record: Callable[[Mapping[str, Any]], None]
) -> Protection:
    """What stands before the API's routes; mutations are written down by `record`. ConfigError."""
    given = loaded.settings.api
    return Protection(
        access=access_of(loaded, telemetry, clock),
        trail=AuditTrail(record=record, wall_ms=clock.wall_ms, boot=clock.boot),
        tls=server_tls(loaded),
        max_concurrent=given.max_concurrent,
        max_connections=given.max_connections,
    )


def server_tls(loaded: LoadedSettings) -> ssl.SSLContext | None:
    """The API's certificate; None for plain HTTP. ConfigError."""
    given = loaded.settings.api.tls
    cert, key = loaded.located(given.cert_file), loaded.located(given.key_file)
    if cert is None or key is None:
        return None
    return ServerTls(cert=cert, key=key, client_ca=loaded.located(given.client_ca_file)).context(
        field="api.tls.cert_file"
    )


def peers_of(loaded: LoadedSettings) -> HttpPeers:
    """The other sidecars: our own certificate is shown to them, and the token made for it. ConfigError."""
    given, token_file = loaded.settings.api.tls, loaded.located(loaded.settings.api.auth.peer_token_file)
    tls = None
    if given.on or given.trust_certs_file is not None:
        tls = ClientTls(
            trust_certs=loaded.located(given.trust_certs_file),
            cert=loaded.located(given.cert_file),
            key=loaded.located(given.key_file),
        ).context(field="api.tls.trust_certs_file")
    token = TokenSource(file=token_file).current if token_file is not None else None
    return HttpPeers(tls=tls, token=token)


def store_identity(loaded: LoadedSettings) -> StoreIdentity:
    """Who we are to ZooKeeper, and how its servers are known."""
    given = loaded.settings.store
    password = given.sasl_password.get_secret_value() if given.sasl_password is not None else ""
    return StoreIdentity(
        username=given.sasl_username or "",
        password=password,
        owned=given.acl == "creator" or (given.acl == "auto" and given.has_identity),
        tls=ClientTls(
            trust_certs=loaded.located(given.tls_trust_certs_file),
            cert=loaded.located(given.tls_cert_file),
            key=loaded.located(given.tls_key_file),
            verify=given.tls_verify,
        )
        if given.tls
        else None,
    )


def token_of(loaded: LoadedSettings, given: AdminSettings | PrometheusSettings) -> TokenSource | None:
    """The bearer token of a section that has `token` and `token_file`; None without either."""
    if given.token is None and given.token_file is None:
        return None
    secret = given.token.get_secret_value() if given.token is not None else None
    return TokenSource(secret, file=loaded.located(given.token_file))


def broker_tls(loaded: LoadedSettings) -> ClientTls:
    """What is trusted of the brokers' certificates, and the one shown to them."""
    given = loaded.settings.admin
    return ClientTls(
        trust_certs=loaded.located(given.tls_trust_certs_file),
        cert=loaded.located(given.tls_cert_file),
        key=loaded.located(given.tls_key_file),
        verify=given.tls_verify,
    )


def advertised(settings: Settings, bound_url: str) -> str:
    """Where other sidecars reach us: as set, else as bound; bound to every address, by our host name."""
    if settings.api.advertised_url is None and settings.api.host in WILDCARDS:
        bound = urlsplit(bound_url)
        return f"{bound.scheme}://{socket.gethostname()}:{bound.port}"
    return settings.api.advertised_url or bound_url


def served_hosts(settings: Settings) -> tuple[str, ...]:
    """Host headers the API takes: those named, the one by which the other sidecars reach us, and where it listens. The
    full name of this host is not among them: asking for it (`socket.getfqdn`) may wait for DNS."""
    host, own = settings.api.host, settings.api.advertised_url
    bound = [] if host in WILDCARDS else [host]
    by_name = [socket.gethostname()] if own is None and not bound else []
    return (*settings.api.allowed_hosts, *([urlsplit(own).netloc] if own else by_name), *bound)
