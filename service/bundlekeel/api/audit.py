"""Audit records in the journal: one record per mutating request, including refused ones.

Over TCP, the field `by` in the body is replaced by the authenticated name before a route reads the body. A body that
cannot be parsed here is refused: the parser of the routes accepts more (UTF-16, a byte order mark), so it could read
another `by`.
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
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.external_input import clean, load
from bundlekeel.settings.credentials import Principal

SOCKET_OWNER = Principal("unix socket", "admin")
REFUSALS_EVERY_SECONDS = 60.0
_LONGEST_REASON = 1000
# At most this many callers have their own count of refusals; all further callers share one count.
_MOST_KEPT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTrail:
    """Writes audit records with `record`. `wall_ms`: returns Unix time in ms; `boot`: returns boot time in seconds."""

    record: Callable[[Mapping[str, Any]], None]
    wall_ms: Callable[[], int]
    boot: Callable[[], float]


@dataclass(slots=True)
class _Refusals:
    """Refusals of one caller at one route: boot time of the last written record, and number of refusals since then."""

    written: float
    last: dict[str, Any]
    attempts: int = 0


class Audit:
    """Audit records of one listener (TCP port or unix socket).

    `trail`: writes the records; None: no records are written, but `by` is replaced in bodies. `unnamed`: the recorded
    caller if no credentials were checked or they are invalid.
    """

    def __init__(self, trail: AuditTrail | None, *, unnamed: Principal) -> None:
        self._trail = trail
        self._unnamed = unnamed
        self._refusals: dict[tuple[str, ...], _Refusals] = {}

    async def signed(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request with the authenticated name as `by` in its body, and record its response status.

        `receive` must return the whole body in one message.
        """
        principal = scope.get(PRINCIPAL)
        message = await receive()
        data = message.get("body", b"")
        body = _object(data) if data else {}
        if isinstance(body, str):
            detail = f"the body is not a JSON object in UTF-8 (without a byte order mark): {body}"
            app, body = problem(400, "not-an-object", detail), {}
        elif principal is not None and data:
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
            text = body.get("reason") or QueryParams(scope["query_string"]).get("reason")
            reason = str(text or "")[:_LONGEST_REASON]
            self._write(self._record(scope, who, status, by=by[:200], reason=reason))

    def refused(self, scope: Scope, route: str, status: int) -> None:
        """Record a request that was refused before its body was read.

        For each caller and route, one record per minute is written. Its `attempts` is the count since the previous
        record."""
        if self._trail is None:
            return
        now = self._trail.boot()
        self.write_late(now - REFUSALS_EVERY_SECONDS)
        who = scope.get(PRINCIPAL) or self._unnamed
        key = (who.name or network_of(address_of(scope)), route, str(status))
        if key not in self._refusals and len(self._refusals) >= _MOST_KEPT:
            key = ("", "", "")
        record = self._record(scope, who, status, by=who.name)
        refusals = self._refusals.get(key)
        if refusals is None:
            self._refusals[key] = _Refusals(now, record)
            self._write(record | {"attempts": 1})
        else:
            refusals.attempts += 1
            refusals.last = record

    def write_late(self, before: float = float("inf")) -> None:
        """Write the counted refusals whose last record is older than `before` (boot time), and delete their counts."""
        for key, refusals in list(self._refusals.items()):
            if refusals.written <= before:
                del self._refusals[key]
                if refusals.attempts:
                    self._write(refusals.last | {"attempts": refusals.attempts})

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
            "sentence": f"{clean(by) or 'a client without valid credentials'}: {what} answered {status}",
        }

    def _write(self, record: dict[str, Any]) -> None:
        if self._trail is not None:
            self._trail.record({"wall_ms": self._trail.wall_ms(), **record})


def _object(data: bytes) -> dict[str, Any] | str:
    """Return the body if it is a JSON object in UTF-8, else the reason as a string."""
    try:
        load(data, what="the body", exact=True)  # raises if it exceeds a limit, for example of nesting
        value = msgspec.json.decode(data)
    except (CodecError, ValueError) as error:
        return str(error).removeprefix("the body cannot be read: ")
    return value if isinstance(value, dict) else "it is another JSON value"
