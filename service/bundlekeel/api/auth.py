"""Who may ask what over TCP: credentials in the `Authorization` header, a role for each kind of route.

Reads need `viewer`, every other method `operator`, dry runs by POST too; the mode needs `admin`. Probes and metrics
are open, and so are the files of the web page, which asks with its reader's token.
A route that is not known here needs `operator` as soon as it is no read: nobody can forget one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from bundlekeel.api.page import belongs_to_page
from bundlekeel.api.problems import problem
from bundlekeel.daemon.credentials import Credentials, Principal
from bundlekeel.ports import Telemetry

OPEN = ("/livez", "/readyz", "/metrics")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# They compute and change nothing, so the journal does not keep them; asking costs the leader time, so who asks must be
# an operator all the same.
DRY_RUNS = ("/api/v1/plans", "/api/v1/assignments")
FOR_ADMINS = (("PUT", "/api/v1/mode"),)
# Where a request's principal is found in the ASGI scope.
PRINCIPAL = "bundlekeel.principal"

_MINUTE = 60.0
_MOST_ADDRESSES = 10_000
_LONGEST_TOKEN = 16_384
_CHALLENGE = 'Bearer realm="bundlekeel"'


def role_needed(method: str, path: str) -> str:
    """The least role for a request."""
    if method in SAFE_METHODS:
        return "viewer"
    return "admin" if (method, path) in FOR_ADMINS else "operator"


def changes_something(method: str, path: str) -> bool:
    """Whether a request may change something: no read, and no dry run."""
    return method not in SAFE_METHODS and not (method == "POST" and path in DRY_RUNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the guard of the TCP port goes by. `boot` is the boot clock in seconds."""

    credentials: Credentials
    telemetry: Telemetry
    boot: Callable[[], float]
    anonymous_reads: bool = False
    failures_per_minute: int = 10


@dataclass(slots=True)
class Failures:
    """Wrong credentials by address, of the last minute. IPv6 counts by /64, which one host has to itself."""

    limit: int
    _by_address: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def wait(self, address: str, now: float) -> float:
        """Seconds until this address may try again; 0 when it may now."""
        times = self._by_address.get(_network(address))
        if times is None:
            return 0.0
        while times and now - times[0] >= _MINUTE:
            times.popleft()
        return times[0] + _MINUTE - now if len(times) >= self.limit else 0.0

    def add(self, address: str, now: float) -> None:
        """One more."""
        network = _network(address)
        self._by_address.setdefault(network, deque(maxlen=self.limit)).append(now)
        self._by_address.move_to_end(network)
        if len(self._by_address) > _MOST_ADDRESSES:
            self._by_address.popitem(last=False)


class Guard:
    """ASGI middleware of the TCP app when credentials are configured."""

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self._app = app
        self._access = access
        self._failures = Failures(access.failures_per_minute)
        # A hash takes a core for a while: one at a time leaves the rest to the balancer.
        self._checking = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403 or 429, or pass on with the principal in the scope."""
        if scope["type"] != "http" or _open(scope):
            await self._app(scope, receive, send)
            return
        method, needed = scope["method"], role_needed(scope["method"], scope["path"])
        given = Headers(scope=scope).get("authorization")
        if given is None:
            if self._access.anonymous_reads and method in SAFE_METHODS:
                await self._app(scope, receive, send)
            else:
                await self._unauthorized("credentials are needed: Authorization: Bearer TOKEN")(scope, receive, send)
            return
        found = await self._principal(given, _address(scope))
        if isinstance(found, float):
            self._count(429)
            headers = {"Retry-After": str(math.ceil(found))}
            detail = "too many wrong credentials from this address"
            await problem(429, "too-many-failures", detail, headers=headers)(scope, receive, send)
        elif found is None:
            detail = "these credentials are not valid, or not any more"
            await self._unauthorized(detail, error="invalid_token")(scope, receive, send)
        elif not found.may(needed):
            self._count(403)
            detail = f"{found.name} has role {found.role or 'none'}; this needs {needed}"
            await problem(403, "role", detail)(scope, receive, send)
        else:
            scope[PRINCIPAL] = found
            await self._app(scope, receive, send)

    async def _principal(self, header: str, address: str) -> Principal | float | None:
        """Who asks; None when that cannot be told; seconds to wait when this address failed too often."""
        scheme, _, token = header.partition(" ")
        token = token.strip()
        plausible = scheme.lower() == "bearer" and 0 < len(token) <= _LONGEST_TOKEN and token.isascii()
        known = self._access.credentials.recall(token) if plausible else None
        if known is not None:
            return known
        wait = self._failures.wait(address, self._access.boot())
        if wait > 0:
            return wait
        if plausible:
            async with self._checking:
                # Those that waited here meanwhile may be one too many by now.
                wait = self._failures.wait(address, self._access.boot())
                if wait > 0:
                    return wait
                known = await asyncio.to_thread(self._access.credentials.check, token)
        if known is None:
            self._failures.add(address, self._access.boot())
        return known

    def _unauthorized(self, detail: str, *, error: str = "") -> ASGIApp:
        self._count(401)
        challenge = f'{_CHALLENGE}, error="{error}"' if error else _CHALLENGE
        return problem(401, "unauthenticated", detail, headers={"WWW-Authenticate": challenge})

    def _count(self, status: int) -> None:
        self._access.telemetry.count("api_refusals_total", code=str(status))


def _open(scope: Scope) -> bool:
    return scope["path"] in OPEN or belongs_to_page(scope["method"], scope["path"])


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(parsed), 64), strict=False))
    return str(parsed)
