"""A small HTTP server of the standard library in a thread, for the servers in front of or behind a proxy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Quiet(ThreadingHTTPServer):
    """Connections that are cut on purpose print nothing."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore."""


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port on 127.0.0.1 at which this handler answers meanwhile."""
    server = _Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
