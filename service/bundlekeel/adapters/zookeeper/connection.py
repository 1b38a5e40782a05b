"""How ZooKeeper is reached: its address as Pulsar writes it, our identity (SASL DIGEST-MD5, TLS client certificate),
and how its servers are verified (TLS).

kazoo's own TLS trusts the system's certificates besides the file it is given, and does not check host names unless
told so: the socket is made here instead. kazoo connects anew after each failure, and so renewed certificates are taken.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.security import CREATOR_ALL_ACL

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.tls import ClientTls


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """`owned`: nodes we create are for this identity only. `tls` None: the plain client port."""

    username: str = ""
    password: str = ""
    owned: bool = False
    tls: ClientTls | None = None

    def __repr__(self) -> str:
        return f"StoreIdentity(username={self.username!r}, owned={self.owned}, tls={self.tls})"

    def options(self) -> dict[str, Any]:
        """Arguments of `KazooClient`."""
        found: dict[str, Any] = {}
        if self.username:
            found["sasl_options"] = {
                "mechanism": "DIGEST-MD5",
                "username": self.username,
                "password": self.password,
            }
        if self.owned:
            found["default_acl"] = CREATOR_ALL_ACL
        return found

    def secure(self, kazoo: Any, limit: float, note: Callable[[str], None]) -> None:
        """Connect within `limit` seconds, TLS included. `note` is told, in kazoo's thread, what is wrong with names,
        connection, TLS or our identity, and "" once it is not. ConfigError for files that cannot be used."""
        handler, connection = kazoo.handler, kazoo._connection
        resolve = connection._expand_client_hosts

        def resolved() -> Any:
            found = resolve()
            if not found:
                note(f"{', '.join(host for host, _ in kazoo.hosts)}: the name cannot be resolved (DNS)")
            return found

        connection._expand_client_hosts = resolved
        handler.create_connection = self._connector(handler.create_connection, limit, note)
        if self.tls is not None:
            handler.select = _select_with_pending(handler.select)
        authenticate = connection._authenticate_with_sasl

        def noted(*args: Any, **options: Any) -> None:
            try:
                authenticate(*args, **options)
            except KazooException as error:
                why = "wrong user or password, or the server does not ask for it"
                note(f"SASL as {self.username} failed ({type(error).__name__}): {why}")
                raise
            note("")

        connection._authenticate_with_sasl = noted

    def _connector(self, connect: Callable[..., Any], limit: float, note: Callable[[str], None]) -> Callable[..., Any]:
        context = None if self.tls is None else self.tls.context(field="store.tls_trust_certs_file")

        def connected(*args: Any, **options: Any) -> Any:
            try:
                plain = connect(*args, **{**options, "timeout": limit})
            except OSError as error:
                note(f"{options.get('hostname')}: {_words(error, limit)}")
                raise
            if context is None:
                note("")
                return plain
            try:
                plain.settimeout(limit)
                secured = context.wrap_socket(plain, server_hostname=options.get("hostname"))
            except OSError as error:
                plain.close()
                note(f"TLS with {options.get('hostname')}: {error}")
                raise
            note("")
            return secured

        return connected


def _words(error: OSError, limit: float) -> str:
    """What a person does something about."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused; nothing listens there"
    return f"no answer within {limit:g} s" if isinstance(error, TimeoutError) else (error.strerror or str(error))


def _select_with_pending(select: Callable[..., Any]) -> Callable[..., Any]:
    """What TLS has decrypted already is ready, though the socket has nothing: several answers may come in one record,
    and kazoo would see the second only with its next ping."""

    def ready(read: Sequence[Any], write: Sequence[Any], *rest: Any) -> Any:
        pending = [item for item in read if isinstance(item, ssl.SSLSocket) and item.pending()]
        return (pending, [], []) if pending else select(read, write, *rest)

    return ready


def cut(connection: socket.socket) -> None:
    """End a connection from another thread. Not by `SSLSocket.shutdown`, which takes the TLS layer from under the
    thread that reads."""
    socket.socket.shutdown(connection, socket.SHUT_RDWR)


ANONYMOUS = StoreIdentity()


# Store addresses as Pulsar writes them (`metadataStoreUrl`, `configurationMetadataStoreUrl`).

DEFAULT_PORT = 2181

_HOST = re.compile(r"^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?$")
_SCHEME = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):")
_PORT_FIRST = re.compile(r"^\d+(?:[,/]|$)")
_ALLOWED = "zk:host:2181,host:2181/chroot, or the same without zk:"
_OTHER_STORES = {"etcd", "oxia", "rocksdb", "memory"}


def parse_store_url(url: str, *, field: str = "metadata_store") -> tuple[str, str]:
    """Split `zk:h1:2181,h2:2181/pulsar` into `("h1:2181,h2:2181", "/pulsar")`; no chroot is `""`.

    A bare host list is taken too, as Pulsar does, and BookKeeper's `metadata-store:` in front is dropped.
    Raises ConfigError that names `field` for another kind of store and for anything that is no address.
    """
    text = url.strip().removeprefix("metadata-store:")
    rest = text.removeprefix("zk:")
    if text.startswith("zk:") and _PORT_FIRST.match(rest):
        rest = text  # a host that happens to be called `zk`, with its port
    scheme = _SCHEME.match(rest)
    if scheme is not None and _PORT_FIRST.match(rest[scheme.end() :]):
        scheme = None
    if scheme is not None and (scheme["scheme"] in _OTHER_STORES or rest[scheme.end() :].startswith("//")):
        raise ConfigError(
            f"{field}: Bundlekeel coordinates through ZooKeeper, {scheme['scheme']!r} is not supported "
            f"(got {url!r}). With such a store only `observe` over the admin API works.",
            field=field,
            value=url,
            allowed=_ALLOWED,
        )
    hosts, _, chroot = rest.partition("/")
    names = [_host(name.strip(), url, field) for name in hosts.split(",")]
    parts = [part for part in chroot.split("/") if part]
    if {".", ".."} & set(parts):
        raise ConfigError(f"{field}: the chroot of {url!r} is not a path", field=field, value=url, allowed=_ALLOWED)
    return ",".join(names), "".join(f"/{part}" for part in parts)


def _host(name: str, url: str, field: str) -> str:
    match = _HOST.match(name)
    port = int(match["port"] or DEFAULT_PORT) if match is not None else 0
    if match is None or not 0 < port < 65536:
        raise ConfigError(f"{field}: {name!r} in {url!r} is not host:port", field=field, value=url, allowed=_ALLOWED)
    return name if match["port"] else f"{name}:{DEFAULT_PORT}"
