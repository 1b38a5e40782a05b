"""Authentication over TCP: checks the `Authorization` header, and limits the failed attempts of each address."""

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

# Key of the authenticated caller (principal) in the ASGI scope of a request.
PRINCIPAL = "bundlekeel.principal"

# Credentials are checked in their own thread, because the thread for responses can be busy for seconds.
_CHECKING = ThreadPoolExecutor(1, "api-credentials")
_MINUTE = 60.0
_MOST_ADDRESSES = 10_000
_LONGEST_TOKEN = 16_384
_CHALLENGE = 'Bearer realm="bundlekeel"'
_WHENCE = "; ask the operator of the sidecar for a token (`bundlekeel token new` creates one)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """Rules for credentials on the TCP port. `boot`: returns the boot clock in seconds."""

    credentials: Credentials
    telemetry: Telemetry
    boot: Callable[[], float]
    anonymous_reads: bool = False
    failures_per_minute: int = 10


@dataclass(slots=True)
class FailedLogins:
    """Failed attempts of the last minute by client address.

    All addresses of an IPv6 /64 network are counted together, because one host can use all of them.
    """

    limit: int
    _by_address: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def wait(self, address: str, now: float) -> float:
        """Return the seconds until this address may log in again; 0: now."""
        times = self._by_address.get(network_of(address))
        if times is None:
            return 0.0
        while times and now - times[0] >= _MINUTE:
            times.popleft()
        return times[0] + _MINUTE - now if len(times) >= self.limit else 0.0

    def add(self, address: str, now: float) -> None:
        """Count a failed login from an address at the boot time `now`, in seconds."""
        network = network_of(address)
        self._by_address.setdefault(network, deque(maxlen=self.limit)).append(now)
        self._by_address.move_to_end(network)
        if len(self._by_address) > _MOST_ADDRESSES:
            self._by_address.popitem(last=False)


class Authentication:
    """Checks credentials and the role that a route needs."""

    def __init__(self, access: AccessRules) -> None:
        self._access = access
        self._failures = FailedLogins(access.failures_per_minute)
        # Hashing a token uses a whole core. Check one token at a time, so that the other cores stay free.
        self._checking = asyncio.Lock()

    async def refusal(self, scope: Scope, role: str) -> Response | None:
        """Return a response with 401, 403 or 429, or None if the request is allowed.

        Stores the authenticated caller in the scope if the credentials are valid.
        """
        header = Headers(scope=scope).get("authorization")
        if header is None:
            if self._access.anonymous_reads and role == "viewer":
                return None
            return self._unauthorized(f"credentials are needed: Authorization: Bearer TOKEN{_WHENCE}")
        principal = await self._principal(header, address_of(scope))
        if isinstance(principal, float):
            self._count(429)
            headers = {"Retry-After": str(math.ceil(principal))}
            return problem(429, "too-many-failures", "too many wrong credentials from this address", headers=headers)
        if principal is None:
            detail = f"the credentials are not valid, or no longer valid{_WHENCE}"
            return self._unauthorized(detail, error="invalid_token")
        scope[PRINCIPAL] = principal
        if not principal.may(role):
            self._count(403)
            detail = f"{principal.name} has role {principal.role or 'none'}; this request needs role {role}{_WHENCE}"
            return problem(403, "role", detail)
        return None

    async def _principal(self, header: str, address: str) -> Principal | float | None:
        """Return the authenticated caller; None: invalid credentials; a number: seconds to wait after many failures."""
        scheme, _, token = header.partition(" ")
        token = token.strip()
        plausible = scheme.lower() == "bearer" and 0 < len(token) <= _LONGEST_TOKEN and token.isascii()
        principal = self._access.credentials.recall(token) if plausible else None
        if principal is not None:
            return principal
        wait = self._failures.wait(address, self._access.boot())
        if wait > 0:
            return wait
        if plausible:
            async with self._checking:
                # Check again, because other requests can have failed while this one waited for the lock.
                wait = self._failures.wait(address, self._access.boot())
                if wait > 0:
                    return wait
                check = self._access.credentials.check
                principal = await asyncio.get_running_loop().run_in_executor(_CHECKING, check, token)
        if principal is None:
            self._failures.add(address, self._access.boot())
        return principal

    def _unauthorized(self, detail: str, *, error: str = "") -> Response:
        self._count(401)
        challenge = f'{_CHALLENGE}, error="{error}"' if error else _CHALLENGE
        return problem(401, "unauthenticated", detail, headers={"WWW-Authenticate": challenge})

    def _count(self, status: int) -> None:
        self._access.telemetry.count("api_refusals_total", code=str(status))


def address_of(scope: Scope) -> str:
    """Return the IP address of the client; "" on the unix socket."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def network_of(address: str) -> str:
    """Return the key under which an address is counted: the IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(parsed), 64), strict=False))
    return str(parsed)
