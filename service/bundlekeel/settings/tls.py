"""TLS contexts from PEM files that are read again when they change: certificates are renewed at run time.

Each handshake uses the current files. Existing connections are not affected. If new files are unusable (half
written, key of another certificate), the last usable ones stay in effect, and that is logged once.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from bundlekeel.model.errors import ConfigError

_log = structlog.get_logger(__name__)

Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """Trusted certificates and own certificate of a client. `trust_certs` None: trust the system's, else only these.

    `verify=False` is for laboratories only; the settings warn about it.
    """

    trust_certs: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True

    def context(self, *, field: str) -> ssl.SSLContext:
        """Return a context with TLS 1.2 or later. Raises ConfigError, naming `field`, if a file is unusable."""
        files = [path for path in (self.trust_certs, self.cert, self.key) if path is not None]
        if not files:
            return self._fresh()
        return ReloadingContext(ssl.PROTOCOL_TLS_CLIENT, self._fresh, files, field)

    def _fresh(self) -> ssl.SSLContext:
        # If a file is configured, the system's certificates are not trusted.
        context = ssl.create_default_context(cafile=self.trust_certs)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Certificate of a server. With `client_ca` only clients with a certificate of this authority are accepted."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def context(self, *, field: str) -> ssl.SSLContext:
        """Return a context with TLS 1.2 or later. Raises ConfigError, naming `field`, if a file is unusable."""
        files = [path for path in (self.cert, self.key, self.client_ca) if path is not None]
        return ReloadingContext(ssl.PROTOCOL_TLS_SERVER, self._fresh, files, field)

    def _fresh(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.cert, self.key)
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cafile=self.client_ca)
        return context


class ReloadingContext(ssl.SSLContext):
    """A context that uses the current files for each new connection. Use it from one thread at a time."""

    def __new__(cls, protocol: int, _make: Callable[[], ssl.SSLContext], _files: list[Path], _field: str) -> Any:
        """Create an `ssl.SSLContext`, as asyncio, uvicorn and httpx require one."""
        return super().__new__(cls, protocol)

    def __init__(self, _protocol: int, make: Callable[[], ssl.SSLContext], files: list[Path], field: str) -> None:
        self._make = make
        self._files = files
        self._stamps = self._look()
        try:
            self._current = make()
        except OSError as error:
            # Remove OpenSSL's error code, and the line number in Python's source.
            why = re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", error.strerror or str(error))
            raise ConfigError(f"{field}: TLS files {self._names()} cannot be used: {why}", field=field) from error

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Start TLS with the current files on a connection of asyncio; see `ssl.SSLContext.wrap_bio`."""
        return self._renewed().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Start TLS with the current files on a socket of a library without asyncio (kazoo); see `ssl.SSLContext`."""
        return self._renewed().wrap_socket(*args, **options)

    def _renewed(self) -> ssl.SSLContext:
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._current = self._make()
                _log.info("changed TLS files were loaded", files=self._names())
            except (OSError, ssl.SSLError) as error:
                _log.warning(
                    "changed TLS files cannot be used; those loaded before stay in use",
                    files=self._names(),
                    error=str(error),
                )
        return self._current

    def _look(self) -> list[Stamp]:
        return [stamp_of(path) for path in self._files]

    def _names(self) -> str:
        return ", ".join(map(str, self._files))


def stamp_of(path: Path) -> Stamp:
    """Return a value that changes with the file, also if kubelet replaces its symlink; None: there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
