"""Checks of every request before its route: path, Host, Origin, content type and time.

Every response gets security headers and the id of its request.

The API has no cookies and no CORS. Nevertheless a page of another site could reach a loopback port by DNS rebinding
(then the Host header is wrong) or by a plain form post (then the Origin is foreign, and the content is not JSON). Such
requests are refused here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import structlog
from fastapi import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bundlekeel.api.admission import SAFE_METHODS
from bundlekeel.api.problems import KINDS, problem
from bundlekeel.model.uris import LOOPBACK
from bundlekeel.pulsar.formats.external_input import clean

REQUEST_SECONDS = 120.0

# These paths accept any IP address as Host, because kubelet and Prometheus use the address of a pod.
BY_ADDRESS = ("/livez", "/readyz", "/metrics")

# Format of a valid request id from a client. The id is copied to the log and the response.
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_name(host: str) -> str:
    """Return the name in a Host header in lower case, without port and brackets; "": malformed."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _net_location(origin: str) -> str | None:
    """Return host and port of an Origin header in lower case; None: the header does not contain a host."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Shield:
    """ASGI middleware around the whole app: checks path, Host, Origin, content type and time of each request."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: Iterable[str]) -> None:
        self._app = app
        self._allowed = frozenset(LOOPBACK) | {
            host.lower() if host.startswith(".") else host_name(host) or host for host in allowed_hosts
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or run it until it ends or its time-out is over."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        request_headers = Headers(scope=scope)
        client_id = request_headers.get("x-request-id", "")
        request_id = client_id if REQUEST_ID.fullmatch(client_id) else uuid4().hex

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await (self._refuse(scope, request_headers) or self._timed)(scope, receive, with_headers)

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        # Refuse a path with a line feed at its end: a route's pattern that ends with `$` would match it.
        if clean(scope["path"]) != scope["path"]:
            return problem(400, "wrong-path", KINDS[400, "wrong-path"])
        host = headers.get("host", "")
        if not self._host_allowed(host, scope["path"]):
            detail = f"Host {host!r} is not served here; add it to `api.allowed_hosts`"
            return problem(421, "wrong-host", detail)
        if scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        foreign = origin is not None and _net_location(origin) != host.lower()
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
