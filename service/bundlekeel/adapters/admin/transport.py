"""One request, and a chain of them: permit, token, counting, 307s by hand, and which failures mean what.

Whether a request left is observed at the socket (httpx trace), not guessed from the kind of error: what never left
may be retried (AdminUnreachable), everything else has an unknown outcome (AdminTimeout).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import httpx

from bundlekeel import __version__
from bundlekeel.adapters.admin.answers import error_of
from bundlekeel.adapters.admin.hosts import KnownHosts
from bundlekeel.adapters.admin.routes import Route, is_harmless
from bundlekeel.adapters.admin.token import TokenSource
from bundlekeel.core.errors import (
    AdminApiError,
    AdminFault,
    AdminRefused,
    AdminTimeout,
    AdminUnreachable,
    ForeignRedirect,
    RedirectLoop,
)
from bundlekeel.ports import Clock, Telemetry
from bundlekeel.ports.commands import Permit
from bundlekeel.tls import ClientTls as AdminTls

FOLLOWED: Final = (307, 308)
# Below the idle limit of a broker's web server (30 s), so that a mutation rarely meets a connection just closed.
_KEEPALIVE_SECONDS: Final = 5.0
_MAX_CONNECTIONS: Final = 64
_RETRY_PAUSE_SECONDS: Final = 0.1
# Uncompressed: packing 100 MB of statistics would cost a broker more than sending them.
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOptions:
    """Limits of the client. Seconds; an unload lasts up to a minute at the broker, so `read_timeout` is >= 90.

    `query_timeout` is that of harmless reads. An answer above `max_answer_bytes` is given up while it is read: the
    statistics of 100,000 topics have about 100 MB. `use_tls` uses the brokers' https endpoints only; without it https
    is used where there is no http.
    """

    connect_timeout: float = 5.0
    read_timeout: float = 90.0
    query_timeout: float = 10.0
    max_redirects: int = 5
    max_answer_bytes: int = 256 * 1024 * 1024
    use_tls: bool = False
    user_agent: str = f"bundlekeel/{__version__}"


def _harmless() -> None:
    """What only reads needs no permit."""


def _forbidden() -> None:
    """What was sent to read may have been redirected to something else."""
    raise AdminRefused("not sent: it may change something, and has no permit", reason="no permit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is asked: `target` is the path with its query. Method and content are kept over redirects. `max_bytes`: of
    the answer, where less than `AdminOptions.max_answer_bytes` is to be read. `permit`: asked right before a request
    that changes something leaves; without one nothing is changed."""

    route: Route
    target: str
    content: bytes = b""
    max_bytes: int | None = None
    permit: Permit = _forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The last answer of a chain, the brokers asked in order, and the seconds it took."""

    response: httpx.Response
    hops: tuple[str, ...]
    seconds: float


class AdminHttp:
    """Sends calls to known brokers. Constructed inside or outside an event loop, used inside one."""

    def __init__(
        self,
        *,
        telemetry: Telemetry,
        clock: Clock,
        token: TokenSource | None = None,
        tls: AdminTls | None = None,
        options: AdminOptions,
    ) -> None:
        self.hosts = KnownHosts({}, use_tls=options.use_tls)
        self._telemetry = telemetry
        self._clock = clock
        self._token = token
        self._options = options
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            verify=(tls or AdminTls()).context(field="admin.tls_trust_certs_file"),
            headers=_HEADERS | {"User-Agent": options.user_agent},
            limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=_KEEPALIVE_SECONDS),
        )

    async def close(self) -> None:
        """Close pooled connections."""
        await self._client.aclose()

    async def follow(self, call: Call, *, at: str) -> Reply:
        """Ask broker `at` and follow its redirects; the whole chain shares one time limit. Raises unless 2xx."""
        started = self._clock.boot()
        url = self.hosts.base_url(at) + call.target
        seen: set[str] = set()
        hops: list[str] = []
        while True:
            if url in seen or len(hops) > self._options.max_redirects:
                raise RedirectLoop(f"{call.route.template}: redirected in circles after {len(hops)} hops", url=url)
            seen.add(url)
            hops.append(self.hosts.broker_at(url) or at)
            response = await self._send(call, url, since=started)
            if response.status_code not in FOLLOWED:
                break
            url = self.hosts.next_hop(url, _location(response, call))
        if not response.is_success:
            raise error_of(response, f"{call.route.method} {call.route.template} at {hops[-1]}")
        return Reply(response=response, hops=tuple(hops), seconds=self._clock.boot() - started)

    async def read(self, call: Call, *, at: str) -> Reply:
        """A harmless read: repeated once when it provably never left."""
        try:
            return await self.follow(call, at=at)
        except AdminUnreachable:
            await self._clock.sleep(_RETRY_PAUSE_SECONDS)
            return await self.follow(call, at=at)

    async def anywhere(self, call: Call) -> Reply:
        """Any broker will do. A mutation goes on to the next one only when it provably never left."""
        failure: AdminApiError = AdminUnreachable("no broker is registered", reason="no brokers")
        for broker_id in self.hosts.brokers():
            try:
                return await self.follow(call, at=broker_id)
            except AdminUnreachable as error:
                failure = error
            except (AdminTimeout, AdminFault) as error:
                if call.route.query is None:
                    raise
                failure = error
        raise failure

    async def once(self, call: Call, *, at: str) -> httpx.Response:
        """Ask broker `at` and do not follow: the answer is 2xx or a redirect. Raises otherwise."""
        response = await self._send(call, self.hosts.base_url(at) + call.target, since=self._clock.boot())
        if response.is_success or response.status_code in FOLLOWED:
            return response
        raise error_of(response, f"{call.route.method} {call.route.template} at {at}")

    async def _send(self, call: Call, url: str, *, since: float) -> httpx.Response:
        """One hop; after a 401 once more if the token file holds another token by now (a 401 did nothing)."""
        token = self._token.current() if self._token is not None else ""
        response = await self._exchange(call, url, token, since)
        if response.status_code == httpx.codes.UNAUTHORIZED and self._token is not None:
            self._token.forget()
            fresh = self._token.current()
            if fresh != token:
                response = await self._exchange(call, url, fresh, since)
        return response

    async def _exchange(self, call: Call, url: str, token: str, since: float) -> httpx.Response:
        method = call.route.method
        parsed = _parsed(call, url)
        # Judged as it leaves: httpx resolves dot segments, which a redirect may hold.
        harmless = is_harmless(method, str(parsed))
        limit = self._options.query_timeout if harmless else self._options.read_timeout
        remaining = max(0.001, limit - (self._clock.boot() - since))
        connect = self._options.connect_timeout
        trace = _Trace(_harmless if harmless else call.permit)
        request = self._client.build_request(
            method,
            parsed,
            content=call.content or None,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(remaining, connect=connect, pool=connect),
            extensions={"trace": trace},
        )
        if call.content:
            request.headers["Content-Type"] = "application/json"
        trace.permit()
        started = self._clock.boot()
        code = "aborted"
        try:
            async with asyncio.timeout(connect + remaining):
                response = await self._whole(request, call)
            code = str(response.status_code)
        except (TimeoutError, httpx.TimeoutException) as error:
            code = "timeout"
            raise _failure(call, url, "no answer in time", trace) from error
        except httpx.RequestError as error:
            code = "broken"
            raise _failure(call, url, type(error).__name__, trace) from error
        finally:
            if trace.left:
                route = call.route.template
                self._telemetry.count("admin_requests_total", route=route, method=method, code=code)
                self._telemetry.time("admin_request_seconds", self._clock.boot() - started, route=route, method=method)
        return response

    async def _whole(self, request: httpx.Request, call: Call) -> httpx.Response:
        """The answer with its body, as long as that stays below the limit. AdminFault beyond it."""
        response = await self._client.send(request, stream=True)
        try:
            limit = call.max_bytes or self._options.max_answer_bytes
            if isinstance(response.stream, httpx.AsyncByteStream):
                response.stream = _Limited(response.stream, limit)
            await response.aread()
        except _TooLarge as error:
            raise AdminFault(
                f"{call.route.template}: the answer has more than {limit} bytes",
                status=response.status_code,
                url=str(request.url),
            ) from error
        finally:
            await response.aclose()
        return response


class _TooLarge(Exception):
    """More came over the wire than is read."""


class _Limited(httpx.AsyncByteStream):
    """A body that ends in `_TooLarge` as soon as more than `limit` bytes of it have come."""

    def __init__(self, body: httpx.AsyncByteStream, limit: int) -> None:
        self._body = body
        self._left = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            self._left -= len(chunk)
            if self._left < 0:
                raise _TooLarge
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class _Trace:
    """Notes the moment the request line is written to the socket, and asks for the permit once more right before:
    connecting may have taken seconds, or the process may have been stopped in between. What it raises, sends nothing.
    """

    def __init__(self, permit: Permit) -> None:
        self.left = False
        self.permit = permit

    async def __call__(self, event: str, _info: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self.permit()
            self.left = True


def _failure(call: Call, url: str, why: str, trace: _Trace) -> AdminApiError:
    kind = AdminTimeout if trace.left else AdminUnreachable
    state = "after it left: outcome unknown" if trace.left else "before it left"
    return kind(f"{call.route.method} {call.route.template}: {why} {state}", url=url, reason=why)


def _parsed(call: Call, url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ForeignRedirect(f"{call.route.template}: redirected to what is no URL", url=url) from error


def _location(response: httpx.Response, call: Call) -> str:
    location = response.headers.get("Location", "")
    if not location:
        raise AdminFault(
            f"{call.route.template}: a redirect without a target", status=response.status_code, url=str(response.url)
        )
    return str(location)
