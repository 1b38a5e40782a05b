"""Sends one admin request and follows its redirects: checks permits, adds the token, counts metrics, raises errors.

Whether a request was sent is observed at the socket (httpx trace), not estimated from the kind of error. A request that
was never sent may be retried (AdminUnreachable). The outcome of all others without response is unknown (AdminTimeout).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from bundlekeel import __version__
from bundlekeel.model.errors import (
    AdminApiError,
    AdminFault,
    AdminRefused,
    AdminTimeout,
    AdminUnreachable,
    ConnectionRefused,
    RedirectLoop,
    UnknownHostRedirect,
)
from bundlekeel.ports import BrokerEndpoint, Clock, Telemetry
from bundlekeel.ports.commands import LookAgain, Permit, no_look
from bundlekeel.pulsar.admin.failures import RawAnswer, error_of
from bundlekeel.pulsar.admin.hosts import KnownHosts
from bundlekeel.pulsar.admin.routes import AdminRoute, is_harmless
from bundlekeel.pulsar.child_memory import memory_share
from bundlekeel.pulsar.formats.external_input import clean
from bundlekeel.settings.tls import ClientTls as AdminTls
from bundlekeel.settings.token_source import TokenSource

FOLLOWED: Final = (307, 308)
# Codes of requests without a response, for metrics.
_TIMEOUT: Final = "timeout"
_BROKEN: Final = "broken"
ERROR_BYTES: Final = 64 * 1024
# The stored bytes of a response may take one of this many parts of the container's memory. Of a metrics page only the
# needed counters are stored, about a tenth.
_PARTS: Final = 8
# Below the idle limit of a broker's web server (30 s), so that a mutation rarely uses a connection that was just
# closed.
_KEEPALIVE_SECONDS: Final = 5.0
_MAX_CONNECTIONS: Final = 64
_RETRY_PAUSE_SECONDS: Final = 0.1
# Responses are uncompressed unless a call accepts gzip: a broker compresses 100 MB more slowly than it sends them.
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}
_GZIP: Final = {"Accept-Encoding": "gzip"}
# Decompress at most this much at a time: a kilobyte of gzip can contain a megabyte.
_PIECE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOptions:
    """Time limits of the admin client, in seconds. A broker unloads for up to a minute, so `read_timeout` is >= 90.

    `query_timeout` applies to harmless reads and idempotent changes. `use_tls`: use the brokers' https endpoints only.
    Otherwise https is used if there is no http endpoint, or if there are both and a token is sent.
    """

    connect_timeout: float = 5.0
    read_timeout: float = 90.0
    query_timeout: float = 10.0
    max_redirects: int = 5
    use_tls: bool = False
    user_agent: str = f"bundlekeel/{__version__}"


def _harmless() -> None:
    """Permit a read that changes nothing."""


def _forbidden() -> None:
    """Reject a change without a permit: a read may have been redirected to something else."""
    raise AdminRefused("not sent: it may change something, and has no permit", reason="no permit")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCall:
    """One admin call. `target`: the path with its query. Redirects keep method and content.

    `keep`: selects the bytes to store from each piece of a successful response. `permit`: called right before a request
    that changes something is sent; by default it rejects the change. `look_again`: awaited before each broker that
    `anywhere` calls. `gzip`: the response may be compressed.
    """

    route: AdminRoute
    target: str
    content: bytes = b""
    keep: Callable[[bytes], bytes] = bytes
    permit: Permit = _forbidden
    look_again: LookAgain = no_look
    gzip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminReply:
    """The last response of a chain of redirects, the brokers called in order, and the duration in seconds."""

    answer: RawAnswer
    hops: tuple[str, ...]
    seconds: float


class AdminHttp:
    """Sends calls to registered brokers. May be created outside of an event loop, but is used inside one."""

    def __init__(
        self,
        *,
        telemetry: Telemetry,
        clock: Clock,
        token: TokenSource | None = None,
        tls: AdminTls | None = None,
        options: AdminOptions,
    ) -> None:
        self.hosts = KnownHosts({})
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

    def know(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Replace the brokers that may be called. No other host gets the token, not even after a redirect."""
        self.hosts = KnownHosts(endpoints, use_tls=self._options.use_tls, with_token=self._token is not None)

    async def close(self) -> None:
        """Close pooled connections."""
        await self._client.aclose()

    async def follow(self, call: AdminCall, *, at: str) -> AdminReply:
        """Call broker `at` and follow redirects within one time limit. Raises AdminApiError for an error response."""
        started = self._clock.boot()
        url = self.hosts.base_url(at) + call.target
        visited: set[str] = set()
        hops: list[str] = []
        while True:
            if url in visited or len(hops) > self._options.max_redirects:
                raise RedirectLoop(f"{call.route.template}: redirected in circles after {len(hops)} hops", url=url)
            visited.add(url)
            hops.append(self.hosts.broker_at(url) or at)
            answer = await self._send(call, url, since=started)
            if answer.status not in FOLLOWED:
                break
            url = self.hosts.next_hop(url, _location(answer, call))
        return AdminReply(
            answer=_checked(answer, call, hops[-1]), hops=tuple(hops), seconds=self._clock.boot() - started
        )

    async def read(self, call: AdminCall, *, at: str) -> AdminReply:
        """Send a read that changes nothing. Repeat it once if it was certainly not sent."""
        try:
            return await self.follow(call, at=at)
        except AdminUnreachable:
            await self._clock.sleep(_RETRY_PAUSE_SECONDS)
            return await self.follow(call, at=at)

    async def anywhere(self, call: AdminCall) -> AdminReply:
        """Call the brokers one after another until one responds, and return its response.

        A change is sent to the next broker only if it is idempotent, or was certainly not sent to the previous broker.
        """
        failure: AdminApiError = AdminUnreachable("no broker is registered", reason="no brokers")
        for broker_id in self.hosts.brokers():
            await call.look_again()
            try:
                return await self.follow(call, at=broker_id)
            except AdminUnreachable as error:
                failure = error
            except (AdminTimeout, AdminFault) as error:
                if call.route.query is None and not call.route.idempotent:
                    raise
                failure = error
        raise failure

    async def once(self, call: AdminCall, *, at: str) -> RawAnswer:
        """Call broker `at` without following redirects. Raises AdminApiError for other statuses than 2xx and 3xx."""
        answer = await self._send(call, self.hosts.base_url(at) + call.target, since=self._clock.boot())
        return answer if answer.status in FOLLOWED else _checked(answer, call, at)

    async def read_unregistered(self, call: AdminCall, broker: BrokerEndpoint) -> RawAnswer:
        """Send a read to a broker that left the registry, without the token: another process may have its address.

        Raises AdminApiError for other statuses than 2xx.
        """
        hosts = KnownHosts({broker.broker_id: broker}, use_tls=self._options.use_tls)
        url = hosts.base_url(broker.broker_id) + call.target
        return _checked(await self._exchange(call, url, "", self._clock.boot()), call, broker.broker_id)

    async def _send(self, call: AdminCall, url: str, *, since: float) -> RawAnswer:
        """Send one request. After a 401 send it again if the token file has a new token: a 401 changes nothing."""
        token = self._token.current() if self._token is not None else ""
        answer = await self._exchange(call, url, token, since)
        if answer.status == httpx.codes.UNAUTHORIZED and self._token is not None:
            self._token.forget()
            fresh = self._token.current()
            if fresh != token:
                answer = await self._exchange(call, url, fresh, since)
        return answer

    async def _exchange(self, call: AdminCall, url: str, token: str, since: float) -> RawAnswer:
        method = call.route.method
        parsed = _parsed(call, url)
        # Check the URL as it is sent: httpx resolves dot segments, which a redirect may contain.
        harmless = is_harmless(method, str(parsed))
        short = harmless or call.route.idempotent
        limit = self._options.query_timeout if short else self._options.read_timeout
        remaining = max(0.001, limit - (self._clock.boot() - since))
        connect = self._options.connect_timeout
        trace = _Trace(_harmless if harmless else call.permit)
        request = self._client.build_request(
            method,
            parsed,
            content=call.content or None,
            headers=({"Authorization": f"Bearer {token}"} if token else {}) | (_GZIP if call.gzip else {}),
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
                answer = await self._whole(request, call)
            code = str(answer.status)
        except (TimeoutError, httpx.TimeoutException) as error:
            code = _TIMEOUT
            raise _failure(call, url, "no answer in time", trace, error) from error
        except (httpx.RequestError, httpx.StreamError, httpx.InvalidURL, ValueError) as error:
            code = _BROKEN
            raise _failure(call, url, type(error).__name__, trace, error) from error
        finally:
            self._count(call, code, self._clock.boot() - started, left=trace.left)
        return answer

    def _count(self, call: AdminCall, code: str, seconds: float, *, left: bool) -> None:
        """Count a request that was sent or could not connect. Do not count a request that was cancelled before that."""
        route, method = call.route.template, call.route.method
        if left:
            self._telemetry.count("admin_requests_total", route=route, method=method, code=code)
            self._telemetry.time("admin_request_seconds", seconds, route=route, method=method)
        elif code in (_TIMEOUT, _BROKEN):
            self._telemetry.count("admin_requests_total", route=route, method=method, code="unreachable")

    async def _whole(self, request: httpx.Request, call: AdminCall) -> RawAnswer:
        """Return the response with its decompressed body, which is cut off in an error response.

        Raises AdminFault if the body exceeds the limit or has an encoding that was not accepted.
        """
        response = await self._client.send(request, stream=True)
        status, url, what = response.status_code, str(request.url), call.route.template
        try:
            encoding = clean(response.headers.get("Content-Encoding", "identity")).strip().lower()
            if encoding not in ("", "identity", *(["gzip"] if call.gzip else ())):
                raise AdminFault(f"{what}: the answer is encoded as {encoding[:50]}", status=status, url=url)
            limit, keep = (call.route.max_bytes, call.keep) if response.is_success else (ERROR_BYTES, bytes)
            most, parts, received, stored = memory_share(_PARTS), list[bytes](), 0, 0
            async for piece in _pieces(response, packed=encoding == "gzip"):
                parts.append(keep(piece))
                received, stored = received + len(piece), stored + len(parts[-1])
                if received > limit or stored > most:
                    break
                # Let other tasks run: pieces that were unpacked or received together come without a pause.
                await asyncio.sleep(0)
            if response.is_success and (received > limit or stored > most):
                exceeded = limit if received > limit else most
                raise AdminFault(f"{what}: the answer has more than {exceeded} bytes", status=status, url=url)
        finally:
            await response.aclose()
        return RawAnswer(
            status=status,
            url=url,
            phrase=clean(response.reason_phrase),
            location=response.headers.get("Location", ""),
            content=b"".join(parts)[:limit],
        )


def _checked(answer: RawAnswer, call: AdminCall, broker: str) -> RawAnswer:
    if answer.is_success:
        return answer
    raise error_of(answer, f"{call.route.method} {call.route.template} at {broker}")


async def _pieces(response: httpx.Response, *, packed: bool) -> AsyncIterator[bytes]:
    """Yield the body piece by piece. Raises httpx.DecodingError if gzip is invalid or ends early."""
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    async for chunk in response.aiter_raw():
        if not packed:
            yield chunk
            continue
        rest = chunk
        while rest and not unpack.eof:
            try:
                yield unpack.decompress(rest, _PIECE_BYTES)
            except zlib.error as error:
                raise httpx.DecodingError(str(error)) from error
            rest = unpack.unconsumed_tail
    if packed and not unpack.eof:
        raise httpx.DecodingError("the compressed body is incomplete")


class _Trace:
    """Records when the request line is written to the socket, and checks the permit again right before.

    Connecting may have taken seconds, or the process may have been stopped in between. If the permit raises, nothing is
    sent.
    """

    def __init__(self, permit: Permit) -> None:
        self.left = False
        self.permit = permit

    async def __call__(self, event: str, _info: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self.permit()
            self.left = True


def _is_refused(error: BaseException | None) -> bool:
    """Return whether a refused connection caused this error."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__cause__ or error.__context__
    return error is not None


def _failure(call: AdminCall, url: str, why: str, trace: _Trace, error: Exception) -> AdminApiError:
    kind = AdminTimeout if trace.left else ConnectionRefused if _is_refused(error) else AdminUnreachable
    state = "after it left: outcome unknown" if trace.left else "before it left"
    return kind(f"{call.route.method} {call.route.template}: {why} {state}", url=url, reason=why)


def _parsed(call: AdminCall, url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except httpx.InvalidURL as error:
        raise UnknownHostRedirect(f"{call.route.template}: redirected to an invalid URL", url=url) from error


def _location(answer: RawAnswer, call: AdminCall) -> str:
    if not answer.location:
        raise AdminFault(f"{call.route.template}: a redirect without a target", status=answer.status, url=answer.url)
    return answer.location
