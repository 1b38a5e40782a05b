"""What a request must pass before any route sees it: Host, Origin, content type, size, time, and how many there are.

Every answer leaves with the security headers.

The API has no cookies and no CORS. A page of another site could still reach a loopback port through DNS rebinding
(wrong Host) or a plain form post (foreign Origin, no JSON): both are refused here.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from fastapi import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bundlekeel.api.problems import problem

MAX_BODY_BYTES = 256 * 1024
BODY_SECONDS = 10.0
REQUEST_SECONDS = 120.0
MAX_CONCURRENT = 64

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# kubelet and Prometheus ask pods by their address; these paths take any address as Host, but no foreign name.
BY_ADDRESS = ("/livez", "/readyz", "/metrics")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_name(host: str) -> str:
    """The name of a Host header: lower case, without port and brackets; "" when it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Shield:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: Iterable[str], max_concurrent: int = MAX_CONCURRENT) -> None:
        self._app = app
        self._max_concurrent = max_concurrent
        self._working = 0
        self._allowed = frozenset(LOOPBACK) | {
            host.lower() if host.startswith(".") else host_name(host) or host for host in allowed_hosts
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with the body read within size and time."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        # Probes and metrics are cheap, and needed most when there is too much of the rest.
        counted = 0 if scope["path"] in BY_ADDRESS else 1
        if self._working + counted > self._max_concurrent:
            detail = f"{self._max_concurrent} requests are being worked on; try again"
            await problem(503, "too-busy", detail, headers={"Retry-After": "1"})(scope, receive, with_headers)
            return
        self._working += counted
        try:
            headers = Headers(scope=scope)
            refusal = self._refuse(scope, headers)
            if refusal is None and scope["method"] not in SAFE_METHODS:
                refusal, receive = await _read_body(headers, receive)
            await (refusal or self._timed)(scope, receive, with_headers)
        finally:
            self._working -= counted

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._host_allowed(host, scope["path"]):
            detail = f"Host {host!r} is not served here; add it to `api.allowed_hosts`"
            return problem(421, "wrong-host", detail)
        if scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
        if foreign or headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return problem(403, "wrong-origin", f"Origin {origin!r} is not this server")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and kind != "application/json":
            return problem(415, "not-json", f"Content-Type {kind!r} is not accepted; send application/json")
        return None

    def _host_allowed(self, host: str, path: str) -> bool:
        name = host_name(host)
        if "*" in self._allowed or name in self._allowed:
            return True
        if any(item.startswith(".") and name.endswith(item) for item in self._allowed):
            return True
        return path in BY_ADDRESS and _is_address(name)

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            async with asyncio.timeout(REQUEST_SECONDS) as limit:
                await self._app(scope, receive, watch)
        except TimeoutError:
            if started or not limit.expired():
                raise
            await problem(504, "timeout", f"no answer within {REQUEST_SECONDS:.0f} s")(scope, receive, send)


async def _read_body(headers: Headers, receive: Receive) -> tuple[Response | None, Receive]:
    """The whole body within size and time, replayed for the app; or why not."""
    too_large = problem(413, "too-large", f"the body is larger than {MAX_BODY_BYTES} bytes")
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MAX_BODY_BYTES:
        return too_large, receive
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MAX_BODY_BYTES:
                    return too_large, receive
    except TimeoutError:
        return problem(408, "slow-body", f"the body did not arrive within {BODY_SECONDS:.0f} s"), receive
    pending: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return None, replay
