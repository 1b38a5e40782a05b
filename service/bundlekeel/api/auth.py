"""Who asks over TCP: credentials in the `Authorization` header, and how many wrong ones an address may send."""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fastapi import Response
from starlette.datastructures import Headers
from starlette.types import Scope

from bundlekeel.api.problems import problem
from bundlekeel.ports import Telemetry
from bundlekeel.settings.credentials import Credentials, Principal

# Where a request's principal is found in the ASGI scope.
PRINCIPAL = "bundlekeel.principal"

# Not the thread of responses, which may take seconds.
_CHECKING = ThreadPoolExecutor(1, "api-credentials")
_MINUTE = 60.0
_MOST_ADDRESSES = 10_000
_LONGEST_TOKEN = 16_384
_CHALLENGE = 'Bearer realm="bundlekeel"'
_WHENCE = "; ask who runs the sidecar for a token (`bundlekeel token new` makes one)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """What the check of credentials on the TCP port goes by. `boot` is the boot clock in seconds."""

    credentials: Credentials
    telemetry: Telemetry
    boot: Callable[[], float]
    anonymous_reads: bool = False
    failures_per_minute: int = 10


@dataclass(slots=True)
class FailedLogins:
    """Wrong credentials by address, of the last minute. IPv6 counts by /64, which one host has to itself."""

    limit: int
    _by_address: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def wait(self, address: str, now: float) -> float:
        """Seconds until this address may try again; 0 when it may now."""
        times = self._by_address.get(network_of(address))
        if times is None:
            return 0.0
        while times and now - times[0] >= _MINUTE:
            times.popleft()
        return times[0] + _MINUTE - now if len(times) >= self.limit else 0.0

    def add(self, address: str, now: float) -> None:
        """One more."""
        network = network_of(address)
        self._by_address.setdefault(network, deque(maxlen=self.limit)).append(now)
        self._by_address.move_to_end(network)
        if len(self._by_address) > _MOST_ADDRESSES:
            self._by_address.popitem(last=False)


class Authentication:
    """The check of credentials and of the role a route needs, where credentials are configured."""

    def __init__(self, access: AccessRules) -> None:
        self._access = access
        self._failures = FailedLogins(access.failures_per_minute)
        # A hash takes a core for a while: one at a time leaves the rest to the balancer.
        self._checking = asyncio.Lock()

    async def refusal(self, scope: Scope, role: str) -> Response | None:
        """401, 403 or 429; None when the request may pass. Sets the principal in the scope as soon as it is known."""
        given = Headers(scope=scope).get("authorization")
        if given is None:
            if self._access.anonymous_reads and role == "viewer":
                return None
            return self._unauthorized(f"credentials are needed: Authorization: Bearer TOKEN{_WHENCE}")
        found = await self._principal(given, address_of(scope))
        if isinstance(found, float):
            self._count(429)
            headers = {"Retry-After": str(math.ceil(found))}
            return problem(429, "too-many-failures", "too many wrong credentials from this address", headers=headers)
        if found is None:
            detail = f"these credentials are not valid, or not any more{_WHENCE}"
            return self._unauthorized(detail, error="invalid_token")
        scope[PRINCIPAL] = found
        if not found.may(role):
            self._count(403)
            detail = f"{found.name} has role {found.role or 'none'}; this needs {role}{_WHENCE}"
            return problem(403, "role", detail)
        return None

    async def _principal(self, header: str, address: str) -> Principal | float | None:
        """Who asks; None when that is unknown; seconds to wait when this address failed too often."""
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
                check = self._access.credentials.check
                known = await asyncio.get_running_loop().run_in_executor(_CHECKING, check, token)
        if known is None:
            self._failures.add(address, self._access.boot())
        return known

    def _unauthorized(self, detail: str, *, error: str = "") -> Response:
        self._count(401)
        challenge = f'{_CHALLENGE}, error="{error}"' if error else _CHALLENGE
        return problem(401, "unauthenticated", detail, headers={"WWW-Authenticate": challenge})

    def _count(self, status: int) -> None:
        self._access.telemetry.count("api_refusals_total", code=str(status))


def address_of(scope: Scope) -> str:
    """The address of the client; "" on the unix socket."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def network_of(address: str) -> str:
    """What counts as one address: an IPv4 address, or an IPv6 network of 64 bits, which one host has to itself."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(parsed), 64), strict=False))
    return str(parsed)
