"""Identity, TLS and addresses of a sidecar: objects for adapters and API, created from the settings."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from bundlekeel.api.audit import AuditTrail
from bundlekeel.api.auth import AccessRules
from bundlekeel.api.server import Protection
from bundlekeel.model.uris import WILDCARDS
from bundlekeel.ports import Telemetry
from bundlekeel.pulsar.zookeeper.connection import StoreIdentity
from bundlekeel.settings.credentials import Credentials, TokensFile
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.settings.model import AdminSettings, Settings
from bundlekeel.settings.sections import PrometheusSettings
from bundlekeel.settings.tls import ClientTls, ServerTls
from bundlekeel.settings.token_source import TokenSource
from bundlekeel.wiring.clock import SystemClock
from bundlekeel.wiring.peers import HttpPeers


def access_of(loaded: LoadedSettings, telemetry: Telemetry, clock: SystemClock) -> AccessRules | None:
    """Return the rules for credentials on the TCP port; None: no credentials are needed.

    Raises ConfigError if a file cannot be used.
    """
    section = loaded.settings.api.auth
    if not section.on:
        return None
    tokens_file, key_file = loaded.located(section.tokens_file), loaded.located(section.jwt_key_file)
    keys = None
    if key_file is not None:
        # Import it here: cryptography needs 9 MB of memory, and only sidecars with JWTs use it.
        from bundlekeel.settings.jwt_keys import JwtKeys  # noqa: PLC0415

        issuer, audience = section.jwt_issuer or "", section.jwt_audience or ""
        keys = JwtKeys(key_file, issuer=issuer, audience=audience, role_claim=section.jwt_role_claim)
    return AccessRules(
        credentials=Credentials(TokensFile(tokens_file) if tokens_file is not None else None, keys),
        telemetry=telemetry,
        boot=clock.boot,
        anonymous_reads=section.anonymous_reads,
        failures_per_minute=section.failures_per_minute,
    )


def protection(
    loaded: LoadedSettings, telemetry: Telemetry, clock: SystemClock, record: Callable[[Mapping[str, Any]], None]
) -> Protection:
    """Return the API's limits and rules for credentials. `record`: adds a mutating request to the journal.

    Raises ConfigError if a file cannot be used.
    """
    section = loaded.settings.api
    return Protection(
        access=access_of(loaded, telemetry, clock),
        trail=AuditTrail(record=record, wall_ms=clock.wall_ms, boot=clock.boot),
        tls=server_tls(loaded),
        max_concurrent=section.max_concurrent,
        max_connections=section.max_connections,
    )


def server_tls(loaded: LoadedSettings) -> ssl.SSLContext | None:
    """Return the TLS context with the API's certificate; None: plain HTTP. Raises ConfigError if a file is unusable."""
    section = loaded.settings.api.tls
    cert, key = loaded.located(section.cert_file), loaded.located(section.key_file)
    if cert is None or key is None:
        return None
    return ServerTls(cert=cert, key=key, client_ca=loaded.located(section.client_ca_file)).context(
        field="api.tls.cert_file"
    )


def peers_of(loaded: LoadedSettings) -> HttpPeers:
    """Return the client of the other sidecars. Raises ConfigError if a certificate or token cannot be used."""
    section, token_file = loaded.settings.api.tls, loaded.located(loaded.settings.api.auth.peer_token_file)
    tls = None
    if section.on or section.trust_certs_file is not None:
        tls = ClientTls(
            trust_certs=loaded.located(section.trust_certs_file),
            cert=loaded.located(section.cert_file),
            key=loaded.located(section.key_file),
        ).context(field="api.tls.trust_certs_file")
    token = TokenSource(file=token_file).current if token_file is not None else None
    return HttpPeers(tls=tls, token=token)


def store_identity(loaded: LoadedSettings) -> StoreIdentity:
    """Return the credentials of this process for ZooKeeper, and the certificates that it trusts there."""
    section = loaded.settings.store
    password = section.sasl_password.get_secret_value() if section.sasl_password is not None else ""
    return StoreIdentity(
        username=section.sasl_username or "",
        password=password,
        owned=section.acl == "creator" or (section.acl == "auto" and section.has_identity),
        tls=ClientTls(
            trust_certs=loaded.located(section.tls_trust_certs_file),
            cert=loaded.located(section.tls_cert_file),
            key=loaded.located(section.tls_key_file),
            verify=section.tls_verify,
        )
        if section.tls
        else None,
    )


def token_of(loaded: LoadedSettings, section: AdminSettings | PrometheusSettings) -> TokenSource | None:
    """Return the bearer token in a settings section, from `token` or `token_file`; None: neither is set."""
    if section.token is None and section.token_file is None:
        return None
    secret = section.token.get_secret_value() if section.token is not None else None
    return TokenSource(secret, file=loaded.located(section.token_file))


def broker_tls(loaded: LoadedSettings) -> ClientTls:
    """Return the certificates for connections to brokers: trusted certificates, and the client certificate."""
    section = loaded.settings.admin
    return ClientTls(
        trust_certs=loaded.located(section.tls_trust_certs_file),
        cert=loaded.located(section.tls_cert_file),
        key=loaded.located(section.tls_key_file),
        verify=section.tls_verify,
    )


def advertised(settings: Settings, bound_url: str) -> str:
    """Return the URL by which other sidecars reach this sidecar: from the settings, or else the listener's URL.

    If the listener listens on all addresses, the URL contains the host name.
    """
    if settings.api.advertised_url is None and settings.api.host in WILDCARDS:
        bound = urlsplit(bound_url)
        return f"{bound.scheme}://{socket.gethostname()}:{bound.port}"
    return settings.api.advertised_url or bound_url


def served_hosts(settings: Settings) -> tuple[str, ...]:
    """Return the Host headers that the API accepts: `api.allowed_hosts`, and the listening and advertised hosts.

    The full name of this host is not included, because `socket.getfqdn` can wait for DNS."""
    host, own = settings.api.host, settings.api.advertised_url
    bound = [] if host in WILDCARDS else [host]
    by_name = [socket.gethostname()] if own is None and not bound else []
    return (*settings.api.allowed_hosts, *([urlsplit(own).netloc] if own else by_name), *bound)
