"""Credentials for a secured cluster. Clients of brokers in dev/ get an `Identity`, or None without authentication."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Identity:
    """The paths of credentials. It contains no secrets, so it can be printed and passed to other processes.

    token_file: file with the JWT of a role. ca_file: file with the CA of the servers' certificates.
    """

    token_file: str
    ca_file: str

    @property
    def token(self) -> str:
        """Return the token, read from the file each time because it can be rotated."""
        return Path(self.token_file).read_text(encoding="utf-8").strip()

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of each request to the admin API."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def tls(self) -> ssl.SSLContext:
        """Return the TLS context that verifies servers."""
        return _context(self.ca_file)


@cache
def _context(ca_file: str) -> ssl.SSLContext:
    # Cached, because reading the CA file takes longer than a request on loopback.
    return ssl.create_default_context(cafile=ca_file)
