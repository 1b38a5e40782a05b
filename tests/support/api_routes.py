"""List the routes of an app with their roles, and send requests without a client that changes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts


@dataclass(frozen=True, slots=True)
class Entry:
    """A method and a route's path, and the class of the route."""

    method: str
    path: str
    route: Any = field(compare=False)

    def filled(self, value: str) -> str:
        """Return the path with `value` for each parameter."""
        return re.sub(r"\{[a-z]+(:path)?\}", value, self.path)


def table(app: FastAPI) -> list[Entry]:
    """Return every route of the app, also those that the OpenAPI document does not contain."""
    return [
        Entry(method, context.path or "", context.original_route)
        for context in iter_route_contexts(app.routes)
        for method in sorted(context.methods or ())
    ]


def roles(app: FastAPI) -> dict[tuple[str, str], str]:
    """Return the required role by method and path."""
    return {(entry.method, entry.path): entry.route.role for entry in table(app)}


async def ask(
    app: FastAPI, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> int:
    """Send one request with exactly this target and return the status. HTTP clients would resolve dots in the target
    and refuse control characters.
    """
    header_values = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body or b""))}
    header_values |= {name.lower(): value for name, value in (headers or {}).items()}
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        # As uvicorn makes it.
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in header_values.items()],
        "client": ("127.0.0.1", 40_000),
        "server": ("127.0.0.1", 8090),
    }
    answers: list[int] = []

    async def receive() -> dict[str, Any]:
        if body is None:
            raise AssertionError("the body was read")
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answers.append(message["status"])

    await app(scope, receive, send)
    return answers[0]
