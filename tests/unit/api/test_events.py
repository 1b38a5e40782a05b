"""The stream of events: what changed, bounded in number and time, and over at once when the server stops."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx

from bundlekeel.api.routes.events import MAX_STREAMS, EventStreams, most_streams
from bundlekeel.api.server import ApiServer
from tests.support.apps import create_app
from tests.support.shop import Shop
from tests.unit.api.test_routes import client


def events(text: str) -> list[tuple[str, Any]]:
    """(event, data) of a whole stream."""
    blocks = [block.split("\n") for block in text.split("\n\n") if block.startswith("event: ")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


async def test_only_changes_are_told(shop: Shop) -> None:
    """First how it is, then each difference, at last that it is over."""
    app = create_app(shop.service, mutations=False, streams=EventStreams(seconds=1.8))

    async def change() -> None:
        await asyncio.sleep(0.7)
        await shop.cycle.turn()

    async with client(app) as http, asyncio.TaskGroup() as group:
        group.create_task(change())
        answer = await http.get("/api/v1/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    event_list = events(answer.text)
    assert [name for name, _ in event_list] == ["change", "change", "end"]
    assert [data["cycle"] for _, data in event_list[:2]] == ["2", "3"] and event_list[0][1]["leader"] == "pod-a 1"


async def test_while_nothing_happens_a_heartbeat_comes() -> None:
    """So that both ends notice when the other has gone."""
    service, streams = Shop().service, EventStreams(seconds=1.2, heartbeat=0.0)
    output = [text async for text in streams.follow(service)]
    assert output[0].startswith("event: change") and ": still here\n\n" in output


async def test_no_more_streams_than_allowed() -> None:
    """The next one is told to ask now and then instead; when one has ended there is room again."""
    service, streams = Shop().service, EventStreams(most=1, seconds=5)
    app = create_app(service, mutations=False, streams=streams)
    async with client(app) as http:
        with streams.place() as free:
            assert free
            answer = await http.get("/api/v1/events")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
            assert answer.json()["type"].endswith("too-many-streams")
        streams.close()
        assert (await http.get("/api/v1/events")).status_code == 200


async def test_s09_streams_that_begin_at_once_are_counted() -> None:
    app = create_app(Shop().service, mutations=False, streams=EventStreams(most=4, seconds=0.6))
    async with client(app) as http:
        answers = await asyncio.gather(*(http.get("/api/v1/events") for _ in range(12)))
        assert sorted(answer.status_code for answer in answers) == [200] * 4 + [503] * 8
        assert (await http.get("/api/v1/events")).status_code == 200


def test_streams_leave_room_for_requests() -> None:
    assert [most_streams(limit) for limit in (1, 2, 16, 64, 1000)] == [1, 1, 4, MAX_STREAMS, MAX_STREAMS]


async def test_a_stop_of_the_server_waits_for_no_stream() -> None:
    """Streams end at once and tell so, and whoever left is forgotten."""
    server = ApiServer(Shop().service, "127.0.0.1", 0, None)
    url = await server.start()
    async with httpx.AsyncClient(base_url=url) as http:
        async with http.stream("GET", "/api/v1/events") as stream_context:
            assert stream_context.status_code == 200
        async with http.stream("GET", "/api/v1/events") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "event: change"
            began = time.monotonic()
            stopping = asyncio.create_task(server.stop())
            rest = [line async for line in lines]
            await stopping
    assert "event: end" in rest
    assert time.monotonic() - began < 2.0
