"""A local HTTP server that stores the bodies posted to it and responds as configured."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.http_server import serving


@dataclass(frozen=True)
class Posted:
    """One request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Inbox:
    """The requests received. `answers` are used in turn: 200 after the last one; 0 closes without a response."""

    port: int = 0
    posted: list[Posted] = field(default_factory=list)
    answers: deque[int] = field(default_factory=deque)
    release: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/") -> str:
        """The address of this path."""
        return f"http://127.0.0.1:{self.port}{path}"


@contextlib.contextmanager
def inbox(tls: ssl.SSLContext | None = None) -> Iterator[Inbox]:
    """Listening on 127.0.0.1 meanwhile. An answer of -1 waits until `release` is set."""
    box = Inbox()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            if tls is not None:
                self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            if tls is not None:
                self.request.close()  # the server closes the socket below, which is empty by now

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
            box.posted.append(Posted(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status = box.answers.popleft() if box.answers else 200
            if status == -1:
                status = 200 if box.release.wait(20) else 504
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            if status in (301, 307):
                self.send_header("Location", box.url("/elsewhere"))
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with serving(Handler) as port:
        box.port = port
        try:
            yield box
        finally:
            box.release.set()
