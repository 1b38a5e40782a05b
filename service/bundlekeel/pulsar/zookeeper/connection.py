"""Connections to ZooKeeper: address in Pulsar's form, identity (SASL DIGEST-MD5 or TLS client certificate), TLS.

kazoo's own TLS trusts the system's certificates in addition to the configured file, and does not check host names by
default. So sockets are created here instead. Certificates are loaded for each connection, so renewed ones are used.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.security import CREATOR_ALL_ACL

from bundlekeel.settings.tls import ClientTls


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """User and encryption of connections to ZooKeeper.

    `owned`: only this user can access nodes that it creates. `tls` None: no encryption.
    """

    username: str = ""
    password: str = ""
    owned: bool = False
    tls: ClientTls | None = None

    def __repr__(self) -> str:
        return f"StoreIdentity(username={self.username!r}, owned={self.owned}, tls={self.tls})"

    def options(self) -> dict[str, Any]:
        """Return the arguments of `KazooClient` for this user."""
        arguments: dict[str, Any] = {}
        if self.username:
            arguments["sasl_options"] = {
                "mechanism": "DIGEST-MD5",
                "username": self.username,
                "password": self.password,
            }
        if self.owned:
            arguments["default_acl"] = CREATOR_ALL_ACL
        return arguments

    def secure(self, kazoo: Any, limit: float, note: Callable[[str], None]) -> None:
        """Make `kazoo` connect within `limit` seconds, TLS included.

        `note` is called in kazoo's thread with the reason why connecting failed (DNS, network, TLS, user), and with ""
        after a success. Raises ConfigError if a file cannot be used.
        """
        handler, connection = kazoo.handler, kazoo._connection
        resolve = connection._expand_client_hosts

        def resolved() -> Any:
            hosts = resolve()
            if not hosts:
                note(f"{', '.join(host for host, _ in kazoo.hosts)}: the name cannot be resolved (DNS)")
            return hosts

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
    """Return the reason of a failed connection in words for operators."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused; nothing listens there"
    return f"no answer within {limit:g} s" if isinstance(error, TimeoutError) else (error.strerror or str(error))


def _select_with_pending(select: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `select` for which a connection is ready if its TLS layer or its socket has data.

    Several responses may arrive in one TLS record. kazoo would read the second one only at its next ping.
    """

    def ready(read: Sequence[Any], write: Sequence[Any], *rest: Any) -> Any:
        pending = [item for item in read if isinstance(item, ssl.SSLSocket) and item.pending()]
        return (pending, [], []) if pending else select(read, write, *rest)

    return ready


def cut(connection: socket.socket) -> None:
    """End a connection that another thread may be reading.

    `SSLSocket.shutdown` is not used, because it would remove the TLS layer during that read.
    """
    socket.socket.shutdown(connection, socket.SHUT_RDWR)


ANONYMOUS = StoreIdentity()
