"""Ask the sidecar's unix socket whether it lives: exit code 0 when it says so, 1 with its answer when not.

The socket serves probes whatever port, TLS and credentials the TCP side has. `healthcheck.py /readyz` asks another
probe; BUNDLEKEEL_SOCKET names another socket. Standard library only: it runs every few seconds.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys

SOCKET = "/run/bundlekeel/bundlekeel.sock"
SECONDS = 4.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


def main() -> int:
    """Ask once."""
    connection = UnixConnection(os.environ.get("BUNDLEKEEL_SOCKET", SOCKET))
    try:
        connection.request("GET", sys.argv[1] if len(sys.argv) > 1 else "/livez")
        answer = connection.getresponse()
        text = answer.read(4096).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"no answer: {error}\n")
        return 1
    finally:
        connection.close()
    if answer.status != http.client.OK:
        sys.stderr.write(text)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
