"""Helpers of the routes: the service as a FastAPI dependency, and JSON responses from plain values.

Response models only document the responses in OpenAPI. Values are encoded without validation: validating 100,000
bundles would take too long, and an additional field must not cause a 500.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Final, cast
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Depends, Request, Response

from bundlekeel.api.service import Service
from bundlekeel.model.doc import Answer


async def backend(request: Request) -> Service:
    """Return the service of this app."""
    return cast(Service, request.app.state.service)


Backend = Annotated[Service, Depends(backend)]

# OpenAPI description of lists with a limit.
NEXT_PAGE: Final = {
    "description": '`<ADDRESS>; rel="next"`, the next page; a list without it is complete',
    "schema": {"type": "string"},
}
PAGED: Final[dict[int | str, dict[str, Any]]] = {200: {"headers": {"Link": {"$ref": "#/components/headers/NextPage"}}}}


# Rows per encoding step. During a step no other thread runs, not even the event loop that renews the leader's lease.
ROWS_A_STEP: Final = 1000


def reply(value: Any) -> Response:
    """Return `value` as a JSON response. NaN and infinity become null, because JSON has neither."""
    return Response(b"".join(_pieces(value)), media_type="application/json")


async def computed(make: Callable[[], Response]) -> Response:
    """Return the response that `make` computes in a worker thread, so that the API's loop can serve probes."""
    return await asyncio.to_thread(make)


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield the JSON of `value` in parts; a long list is encoded in steps of `ROWS_A_STEP` rows."""
    if isinstance(value, list | tuple) and len(value) > ROWS_A_STEP:
        for start in range(0, len(value), ROWS_A_STEP):
            yield b"," if start else b"["
            yield msgspec.json.encode(value[start : start + ROWS_A_STEP], enc_hook=_plain)[1:-1]
        yield b"]"
    elif isinstance(value, Answer):
        for number, item in enumerate(fields(cast(Any, value))):
            yield b"," if number else b"{"
            yield msgspec.json.encode(item.name) + b":"
            yield from _pieces(getattr(value, item.name))
        yield b"}"
    else:
        yield msgspec.json.encode(value, enc_hook=_plain)


# OpenAPI description of requests that wait for the leader.
TASK_ADDRESS: Final = {
    "description": "address of the task, if the request created a task",
    "schema": {"type": "string"},
}
_LOCATED: Final = {"headers": {"Location": {"$ref": "#/components/headers/TaskAddress"}}}
ACCEPTED: Final[dict[int | str, dict[str, Any]]] = {202: _LOCATED}
TASKED: Final[dict[int | str, dict[str, Any]]] = {200: _LOCATED}


def tasked(value: Any, task: str | None, *, status: int = 200) -> Response:
    """Return `value` as a JSON response, with the address of its task in the header `Location`.

    `task`: id of the task; None, for dry runs and proposals: the response has no such header.
    """
    answer = reply(value)
    answer.status_code = status
    if task:
        answer.headers["Location"] = f"/api/v1/tasks/{quote(task, safe='')}"
    return answer


def page(
    request: Request, rows: Sequence[Any], limit: int, following: Callable[[Sequence[Any]], Mapping[str, Any]]
) -> Response:
    """Return a page of a list. If it is full, a header contains the address of the next page.

    The next page has the address of this request, with the query parameters that `following` returns for `rows`."""
    answer = reply(rows)
    if len(rows) == limit:
        query = urlencode({**request.query_params, **following(rows)})
        answer.headers["Link"] = f'<{request.scope["path"]}?{query}>; rel="next"'
    return answer


def before(first_ms: int, last_ms: int) -> Mapping[str, Any]:
    """Return the query parameters of the next page of records, which ends at the oldest record of this page.

    `first_ms`, `last_ms`: Unix times of this page's oldest and newest record. The next page repeats the oldest record's
    millisecond, because other records can have the same time. If this page covers only one millisecond, the next page
    starts before it."""
    return {"until_ms": first_ms if first_ms < last_ms else first_ms - 1}


def _plain(value: object) -> object:
    """Return a NumPy scalar as a Python number. Raises TypeError for other values, which are a defect."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON-able")
