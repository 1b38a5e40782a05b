"""Who changed what, in the journal: one record a request that is no read, whatever came of it.

Over TCP the name is the authenticated one: a `by` in the body is replaced by it before any route sees the body. What
cannot be read here is not passed on: the routes' own parser reads more (UTF-16, a byte order mark), and would take a
`by` out of it that nobody signed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bundlekeel.api.auth import PRINCIPAL, changes_something
from bundlekeel.api.problems import problem
from bundlekeel.codec.foreign import clean, load
from bundlekeel.core.errors import CodecError
from bundlekeel.daemon.credentials import Principal

SOCKET_OWNER = Principal("unix socket", "admin")
_LONGEST_REASON = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """Where the records go, and the wall clock (milliseconds since 1970)."""

    record: Callable[[Mapping[str, Any]], None]
    wall_ms: Callable[[], int]


class Audit:
    """ASGI middleware behind the guard; the shield in front has read the body, which comes in one message."""

    def __init__(self, app: ASGIApp, *, trail: Trail | None) -> None:
        self._app = app
        self._trail = trail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with the true name, and write down how it ended."""
        if scope["type"] != "http" or not changes_something(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        principal = scope.get(PRINCIPAL)
        message = await receive()
        given = message.get("body", b"")
        body = _object(given) if given else {}
        app: ASGIApp = self._app
        if body is None:
            app, body = (
                problem(400, "not-an-object", "the body is no JSON object in UTF-8 (without a byte order mark)"),
                {},
            )
        elif principal is not None and given:
            body["by"] = principal.name
            message = {**message, "body": msgspec.json.encode(body)}
        first: list[Message] = [message]
        status = 500

        async def signed() -> Message:
            return first.pop() if first else await receive()

        async def watched(answer: Message) -> None:
            nonlocal status
            if answer["type"] == "http.response.start":
                status = answer["status"]
            await send(answer)

        try:
            await app(scope, signed, watched)
        finally:
            self._write(scope, principal, body, status)

    def _write(self, scope: Scope, principal: Principal | None, body: dict[str, Any], status: int) -> None:
        if self._trail is None:
            return
        client = scope.get("client")
        by = clean(principal.name if principal else str(body.get("by") or SOCKET_OWNER.name))
        reason = clean(str(body.get("reason") or ""))[:_LONGEST_REASON]
        what = clean(f"{scope['method']} {scope['path']}")
        self._trail.record(
            {
                "kind": "audit",
                "wall_ms": self._trail.wall_ms(),
                "by": by[:200],
                "role": (principal or SOCKET_OWNER).role,
                "address": str(client[0]) if client else "unix socket",
                "what": what[:1000],
                "reason": reason,
                "status": status,
                "sentence": f"{by[:200]}: {what[:1000]} answered {status}",
            }
        )


def _object(data: bytes) -> dict[str, Any] | None:
    """A body that is a JSON object in UTF-8; None otherwise."""
    try:
        load(data, what="the body", exact=True)  # within its bounds
        found = msgspec.json.decode(data)
    except (CodecError, ValueError):
        return None
    return found if isinstance(found, dict) else None
