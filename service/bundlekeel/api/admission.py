"""Roles of routes, and the checks of a request before its endpoint runs: credentials, role, free slot, body, journal.

Each route declares the role that callers need. The role is checked before the body is read. A route without a role
cannot be registered.
"""

from __future__ import annotations

import asyncio
import reprlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from fastapi import APIRouter, FastAPI, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.datastructures import Headers, QueryParams
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bundlekeel.api.audit import SOCKET_OWNER, Audit, AuditTrail
from bundlekeel.api.auth import AccessRules, Authentication
from bundlekeel.api.problems import fault, of_faults, problem
from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import integer
from bundlekeel.pulsar.formats.external_input import clean
from bundlekeel.settings.credentials import ROLES, Principal

MAX_BODY_BYTES = 256 * 1024
BODY_SECONDS = 10.0
MAX_CONCURRENT = 64
# Highest number of concurrent probes, and of concurrent requests for metrics and the page.
MAX_OPEN = 16
# Highest number of bytes in all responses that are being sent. A page of 1,000 bundles has 0.5 MB.
MAX_SENDING_BYTES = 32 * 1024 * 1024
# Responses are sent in pieces of this size, so that a slow client needs memory for only one more piece.
PIECE_BYTES = 64 * 1024
# Key in the ASGI state of a connection beyond the limit of connections. Such a connection serves only probes.
CROWDED = "crowded"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# The role of routes that need no credentials: probes, metrics, the files of the page.
ANYBODY: Final = "anybody"


class Route(APIRoute):
    """A route of the API with the role that its callers need.

    `changes`: requests can change something, so the journal records them. `probe`: a health probe, which computes
    nothing and responds even if all other requests are refused.
    """

    role: ClassVar[str] = ""
    changes: ClassVar[bool] = False
    probe: ClassVar[bool] = False

    def __init__(self, path: str, *args: Any, response_model: Any, **options: Any) -> None:
        """Create the route. Raises TypeError if it has no role.

        `response_model`: type of the response, only for the OpenAPI document. FastAPI does not receive it, because it
        would build a validator for each route of each app, and endpoints return finished responses.
        """
        if self.role not in (ANYBODY, *ROLES):
            raise TypeError(f"the route {path} has no role: make its router with router_for")
        super().__init__(path, *args, response_model=None, **options)
        # Accept HEAD, as Starlette's own routes do; the server omits the body.
        if self.methods and "GET" in self.methods:
            self.methods.add("HEAD")
        self.answer = response_model
        self._parameters = [
            field.alias for field in get_flat_params(self.dependant) if isinstance(field.field_info, Query)
        ]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the endpoint if the app's `Admission` allows the request."""
        admission: Admission = scope["app"].state.admission
        await admission.admit(self, self._run, scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the endpoint. Refuse unknown and repeated query parameters, because ignoring them misleads callers."""
        parameters = QueryParams(scope["query_string"]).multi_items() if self.role != ANYBODY else []
        names = Counter(name for name, _ in parameters)
        for name, value in parameters if scope["method"] in (self.methods or ()) else ():
            allowed = ", ".join(self._parameters) or "none"
            if name not in self._parameters:
                reason = f"not a query parameter of {scope['path']} (allowed: {allowed})"
            elif names[name] > 1:
                reason, allowed = "set more than once", "once"
            else:
                continue
            detail = f"{reprlib.repr(name)[1:-1]} = {reprlib.repr(value)}: {reason}"
            faults = of_faults([fault(name, reason, value, allowed)])
            await problem(422, "invalid-value", detail, **faults)(scope, receive, send)
            return
        await super().handle(scope, receive, send)


def router_for(role: str, *, changes: bool = False, probe: bool = False, **options: Any) -> APIRouter:
    """Return a router whose routes all need this role or a higher one."""
    own = {"role": role, "changes": changes, "probe": probe}
    return APIRouter(route_class=type("RoleRoute", (Route,), own), **options)


def require_roles(app: FastAPI) -> None:
    """Raise TypeError if a route of the app has no role, also for routes that are added later."""
    app.router.route_class = Route
    for context in iter_route_contexts(app.routes):
        if not isinstance(context.original_route, Route):
            raise TypeError(f"the route {context.path} has no role: make its router with router_for")


class Admission:
    """Checks of requests to one listener (TCP port or unix socket) before their endpoints run.

    `access`: rules for credentials; None: no credentials are needed. `trail`: writes audit records. `elsewhere`: routes
    that only the unix socket has. `most`: highest number of concurrent requests; requests that change something can use
    a quarter of this number in addition. Probes, metrics and the page have their own limits.
    """

    def __init__(
        self, *, access: AccessRules | None, trail: AuditTrail | None, most: int, elsewhere: Sequence[BaseRoute] = ()
    ) -> None:
        self.audit = Audit(trail, unnamed=SOCKET_OWNER if access is None else Principal("", ""))
        self.access = access
        self._authentication = None if access is None else Authentication(access)
        self._elsewhere = elsewhere
        self._most = most
        self._reserved = max(1, most // 4)
        self._working = self._sending = 0
        self._open = Counter[bool]()

    async def admit(self, route: Route, endpoint: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the endpoint, or refuse the request with status 401, 403, 408, 413, 429 or 503."""
        if route.role == ANYBODY:
            await self._admit_anybody(route, endpoint, scope, receive, send)
            return
        refusal = self._crowded(scope) or await self._refusal(scope, route.role)
        known_method = scope["method"] in (route.methods or ())
        if refusal is None and not known_method:
            # The path has no such method: respond with 405, unless the unix socket has a route for both.
            await (self._not_here(scope) if self._on_the_socket(scope) else endpoint)(scope, receive, send)
            return
        changes = route.changes and known_method
        if refusal is None:
            refusal = await self._work(endpoint, scope, receive, send, changes=changes)
        if refusal is not None:
            if changes:
                self.audit.refused(scope, route.path, refusal.status_code)
            await refusal(scope, receive, send)

    async def _admit_anybody(self, route: Route, endpoint: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an endpoint that needs no credentials; refuse it while too many requests of its kind run.

        The kinds are probes, and requests for metrics or the web page.

        The bytes of these responses are not counted, because all clients share the text of the metrics."""
        refusal = None if route.probe else self._crowded(scope)
        if refusal is None and self._open[route.probe] >= MAX_OPEN:
            refusal = _too_busy(f"{MAX_OPEN} requests of this kind are in progress")
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        async def send_pieces(message: Message) -> None:
            for piece in _pieces(message):
                await send(piece)

        self._open[route.probe] += 1
        try:
            await endpoint(scope, receive, send_pieces)
        finally:
            self._open[route.probe] -= 1

    def _crowded(self, scope: Scope) -> Response | None:
        """Return a refusal if the connection is beyond the limit of connections and the request is not a probe."""
        if not scope.get("state", {}).get(CROWDED, False):
            return None
        refusal = _too_busy("too many connections are open")
        refusal.headers["Connection"] = "close"
        return refusal

    def _counted(self, scope: Scope, receive: Receive, send: Send, *, changes: bool) -> Send:
        """Return a `send` that splits the response into pieces and counts their bytes until they are sent.

        It sends 503 instead if all responses together have too many bytes. Requests that may have changed something
        always get their response."""
        start_message = list[Message]()
        refused = False

        async def send_counted(message: Message) -> None:
            nonlocal refused
            if refused:
                return
            if message["type"] == "http.response.start":
                # Hold the status back until the body comes, because its size decides whether to send 503 instead.
                start_message.append(message)
                return
            size = len(message.get("body", b""))
            if start_message and self._sending and self._sending + size > MAX_SENDING_BYTES and not changes:
                refused = True
                await _too_slow()(scope, receive, send)
                return
            self._sending += size
            try:
                while start_message:
                    await send(start_message.pop())
                for piece in _pieces(message):
                    await send(piece)
            finally:
                self._sending -= size

        return send_counted

    async def _work(
        self, endpoint: ASGIApp, scope: Scope, receive: Receive, send: Send, *, changes: bool
    ) -> Response | None:
        """Read the body and run the endpoint; return a refusal if too many requests run or the body is invalid."""
        if self._working >= (self._most + self._reserved if changes else self._most):
            return _too_busy(f"{self._working} requests are in progress")
        self._working += 1
        try:
            if scope["method"] not in SAFE_METHODS:
                refusal, receive = await _read_body(Headers(scope=scope), receive)
                if refusal is not None:
                    return refusal
            if not changes and self._sending >= MAX_SENDING_BYTES:
                return _too_slow()
            send = self._counted(scope, receive, send, changes=changes)
            await (self.audit.signed(endpoint, scope, receive, send) if changes else endpoint(scope, receive, send))
        finally:
            self._working -= 1
        return None

    async def unknown(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a path without a route.

        Callers without the right to read get the same refusal for all paths, so they cannot detect which routes exist.
        """
        refusal = await self._refusal(scope, "viewer")
        await (refusal or self._not_here(scope))(scope, receive, send)

    def _not_here(self, scope: Scope) -> Response:
        path = clean(scope["path"])[:200]
        if self._on_the_socket(scope):
            detail = f"{scope['method']} {path} exists only on the unix socket while `api.auth` is not configured"
            detail += ": use the socket, or set `api.auth`"
        else:
            detail = f"there is no {path}; /api/v1/openapi.json lists all routes"
        return problem(404, "no-route", detail)

    def _on_the_socket(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self._elsewhere)

    async def _refusal(self, scope: Scope, role: str) -> Response | None:
        return None if self._authentication is None else await self._authentication.refusal(scope, role)


def _pieces(message: Message) -> Iterator[Message]:
    """Yield a message in parts with at most `PIECE_BYTES` of its body each, without a copy of the whole body."""
    body = message.get("body", b"")
    if len(body) <= PIECE_BYTES:
        yield message
        return
    for start in range(0, len(body), PIECE_BYTES):
        more = start + PIECE_BYTES < len(body) or message.get("more_body", False)
        yield {"type": message["type"], "body": body[start : start + PIECE_BYTES], "more_body": more}


def _too_busy(why: str) -> Response:
    return problem(503, "too-busy", f"{why}; try again", headers={"Retry-After": "1"})


def _too_slow() -> Response:
    return _too_busy("too many responses wait for clients that read slowly")


async def _read_body(headers: Headers, receive: Receive) -> tuple[Response | None, Receive]:
    """Read the body within the limits of size and time.

    Returns a refusal if a limit is exceeded, else None; and a `receive` that returns the body again.
    """
    too_large = problem(413, "too-large", f"the body is larger than {MAX_BODY_BYTES} bytes")
    try:
        integer(headers.get("content-length", "0"), field="content-length", highest=MAX_BODY_BYTES)
    except CodecError:
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
