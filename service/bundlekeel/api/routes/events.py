"""`/api/v1/events`: a stream of change events, so that a page does not have to poll.

Twice per second each open stream compares the sidecar's change marks: short values, one of which differs after each
change. The number of streams is limited. A stream ends before the time-out of requests (`api.shield`), and within half
a second when the server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import msgspec
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from bundlekeel.api.admission import router_for
from bundlekeel.api.problems import problem
from bundlekeel.api.reply import Backend
from bundlekeel.api.routes.reads import PROBLEMS
from bundlekeel.api.service import Service
from bundlekeel.views.picture import Marks

MAX_STREAMS = 16
# Seconds until a stream ends, less than the time-out of requests. The client then connects again with its credentials.
STREAM_SECONDS = 100.0
LOOK_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0

_STREAM = f"""Server-sent events: `change` with marks as JSON at the beginning and whenever one of them differs, the
comment `: still here` after {HEARTBEAT_SECONDS:.0f} s without a change, `end` with `{{}}` before the stream ends"""
# OpenAPI description of a stream in FastAPI's form, because OpenAPI has `itemSchema` only since 3.2.
_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string", "enum": ["change", "end"]},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"anyOf": [{"$ref": "#/components/schemas/Marks"}, {"const": {}}]},
        },
    },
}

# With a `schema` of the whole stream, because client generators need one.
_CONTENT = {"schema": {}, "x-itemSchema": _EVENT}

router = router_for("viewer", responses=PROBLEMS)


def most_streams(max_concurrent: int) -> int:
    """Return the highest number of streams: a quarter of all concurrent requests, so that other requests are served."""
    return max(1, min(MAX_STREAMS, max_concurrent // 4))


class EventStreams:
    """The open streams of one app."""

    def __init__(
        self, *, most: int = MAX_STREAMS, seconds: float = STREAM_SECONDS, heartbeat: float = HEARTBEAT_SECONDS
    ) -> None:
        self.most = most
        self._seconds = seconds
        self._heartbeat = heartbeat
        self._open = 0
        self._closed = False

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Yield whether a stream can start within the limit; if so, count the stream until the block ends."""
        free = self._open < self.most
        self._open += free
        try:
            yield free
        finally:
            self._open -= free

    def close(self) -> None:
        """End all streams at their next check, and refuse new ones."""
        self._closed = True

    async def follow(self, service: Service) -> AsyncIterator[str]:
        """Yield server-sent events: `change` with change marks as JSON, a comment as heartbeat, and finally `end`."""
        loop = asyncio.get_running_loop()
        until, sent_at = loop.time() + self._seconds, 0.0
        last_marks: Marks | None = None
        while not self._closed and loop.time() < until:
            marks = service.changes()
            if marks != last_marks:
                last_marks, sent_at = marks, loop.time()
                yield f"event: change\ndata: {msgspec.json.encode(marks).decode()}\n\n"
            elif loop.time() - sent_at >= self._heartbeat:
                sent_at = loop.time()
                yield ": still here\n\n"
            await asyncio.sleep(min(LOOK_SECONDS, max(0.0, until - loop.time())))
        yield "event: end\ndata: {}\n\n"


class _Stream(StreamingResponse):
    """A streaming response that counts towards the limit of streams from its first byte to its last."""

    def __init__(self, streams: EventStreams, service: Service) -> None:
        super().__init__(streams.follow(service), media_type="text/event-stream")
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.place() as free:
            if free:
                await super().__call__(scope, receive, send)
                return
        detail = f"{self._streams.most} streams are open; request /api/v1/state every few seconds instead"
        await problem(503, "too-many-streams", detail, headers={"Retry-After": "30"})(scope, receive, send)


@router.get(
    "/events",
    tags=["cluster"],
    response_class=StreamingResponse,
    response_model=Marks,
    responses={200: {"description": _STREAM, "content": {"text/event-stream": _CONTENT}}},
)
async def follow_events(service: Backend, request: Request) -> Response:
    """Stream server-sent events for at most 100 s.

    Each event `change` contains marks: short values. After each change of the data, at least one mark is different."""
    # A response to HEAD has no body, so it must not count as a stream.
    if request.method == "HEAD":
        return StreamingResponse(iter(()), media_type="text/event-stream")
    return _Stream(request.app.state.streams, service)
