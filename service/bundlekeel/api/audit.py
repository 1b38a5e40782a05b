"""Who changed what, or was refused it, in the journal: one record a request that would change something.

Over TCP the name is the authenticated one: a `by` in the body is replaced by it before any route sees the body. What
cannot be read here is not passed on: the routes' own parser reads more (UTF-16, a byte order mark), and would take a
`by` out of it that no credentials prove.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bundlekeel.api.auth import PRINCIPAL, address_of, network_of
from bundlekeel.api.problems import problem
from bundlekeel.codec.external_input import clean, load
from bundlekeel.core.model.errors import CodecError
from bundlekeel.settings.credentials import Principal

SOCKET_OWNER = Principal("unix socket", "admin")
REFUSALS_EVERY_SECONDS = 60.0
_LONGEST_REASON = 1000
# Of refusals counted apart; a caller beyond them shares one count with all others.
_MOST_KEPT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTrail:
    """Where the records go, the wall clock (milliseconds since 1970) and the boot clock (seconds)."""

    record: Callable[[Mapping[str, Any]], None]
    wall_ms: Callable[[], int]
    boot: Callable[[], float]


@dataclass(slots=True)
class _Refusals:
    """Of one caller at one route: when the last record was written, and what came since."""

    written: float
    last: dict[str, Any]
    attempts: int = 0


class Audit:
    """The records of one listener. Without a trail bodies are signed all the same. `unnamed`: who asks when no
    credentials were checked, or none held."""

    def __init__(self, trail: AuditTrail | None, *, unnamed: Principal) -> None:
        self._trail = trail
        self._unnamed = unnamed
        self._refusals: dict[tuple[str, ...], _Refusals] = {}

    async def signed(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with the true name in its body, which comes in one message, and record how it ended."""
        principal = scope.get(PRINCIPAL)
        message = await receive()
        given = message.get("body", b"")
        body = _object(given) if given else {}
        if isinstance(body, str):
            detail = f"the body is no JSON object in UTF-8 (without a byte order mark): {body}"
            app, body = problem(400, "not-an-object", detail), {}
        elif principal is not None and given:
            body["by"] = principal.name
            message = {**message, "body": msgspec.json.encode(body)}
        first: list[Message] = [message]
        status = 500

        async def replay() -> Message:
            return first.pop() if first else await receive()

        async def watched(answer: Message) -> None:
            nonlocal status
            if answer["type"] == "http.response.start":
                status = answer["status"]
            await send(answer)

        try:
            await app(scope, replay, watched)
        finally:
            who = principal or self._unnamed
            by = who.name if principal else str(body.get("by") or who.name)
            said = body.get("reason") or QueryParams(scope["query_string"]).get("reason")
            reason = str(said or "")[:_LONGEST_REASON]
            self._write(self._record(scope, who, status, by=by[:200], reason=reason))

    def refused(self, scope: Scope, route: str, status: int) -> None:
        """Record a request that was refused before its body was read. Of one caller at one route there is a record a
        minute, whose `attempts` counts those since the record before."""
        if self._trail is None:
            return
        now = self._trail.boot()
        self.write_late(now - REFUSALS_EVERY_SECONDS)
        who = scope.get(PRINCIPAL) or self._unnamed
        key = (who.name or network_of(address_of(scope)), route, str(status))
        if key not in self._refusals and len(self._refusals) >= _MOST_KEPT:
            key = ("", "", "")
        record = self._record(scope, who, status, by=who.name)
        known = self._refusals.get(key)
        if known is None:
            self._refusals[key] = _Refusals(now, record)
            self._write(record | {"attempts": 1})
        else:
            known.attempts += 1
            known.last = record

    def write_late(self, before: float = float("inf")) -> None:
        """Write the counts of refusals that have waited since `before` (boot clock), and forget them."""
        for key, known in list(self._refusals.items()):
            if known.written <= before:
                del self._refusals[key]
                if known.attempts:
                    self._write(known.last | {"attempts": known.attempts})

    def _record(self, scope: Scope, who: Principal, status: int, *, by: str, reason: str = "") -> dict[str, Any]:
        what = clean(f"{scope['method']} {scope['path']}")[:1000]
        return {
            "kind": "audit",
            "by": clean(by),
            "role": who.role,
            "address": address_of(scope) or "unix socket",
            "what": what,
            "reason": clean(reason),
            "status": status,
            "sentence": f"{clean(by) or 'somebody without valid credentials'}: {what} answered {status}",
        }

    def _write(self, record: dict[str, Any]) -> None:
        if self._trail is not None:
            self._trail.record({"wall_ms": self._trail.wall_ms(), **record})


def _object(data: bytes) -> dict[str, Any] | str:
    """A body that is a JSON object in UTF-8; otherwise what it is, or where it is not JSON."""
    try:
        load(data, what="the body", exact=True)  # within its bounds
        found = msgspec.json.decode(data)
    except (CodecError, ValueError) as error:
        return str(error).removeprefix("the body cannot be read: ")
    return found if isinstance(found, dict) else "it is another value"
