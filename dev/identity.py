"""Credentials for a secured cluster: each client of brokers in dev/ takes one of these, or None without
authentication.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Identity:
    """Files, not contents, so that it may be handed to other processes and be printed.

    token_file: a JWT of a role. ca_file: what the servers' certificates are checked with.
    """

    token_file: str
    ca_file: str

    @property
    def token(self) -> str:
        """The token as it is now; it may be rotated."""
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
    # Reading the file takes longer than a request on loopback.
    return ssl.create_default_context(cafile=ca_file)
