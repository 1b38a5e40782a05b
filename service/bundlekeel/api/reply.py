"""Helpers of the routes: the backend as a dependency, and JSON straight from plain values.

Response models document the answers in OpenAPI; the values themselves are encoded as they are, because a list of
100,000 bundles must not be validated row by row, and a field more must not become a 500.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Final, cast
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Depends, Request, Response

from bundlekeel.core.model.doc import Answer
from bundlekeel.daemon.service import Service


async def backend(request: Request) -> Service:
    """The running sidecar behind this app."""
    return cast(Service, request.app.state.service)


Backend = Annotated[Service, Depends(backend)]

# Of the lists that have a limit, in the OpenAPI document.
NEXT_PAGE: Final = {
    "description": '`<ADDRESS>; rel="next"`, the page that follows; a list without it has all that was looked through',
    "schema": {"type": "string"},
}
PAGED: Final[dict[int | str, dict[str, Any]]] = {200: {"headers": {"Link": {"$ref": "#/components/headers/NextPage"}}}}


# Rows that are encoded in one step: a step holds the interpreter, and with it the loop that renews the lease.
ROWS_A_STEP: Final = 1000


def reply(value: Any) -> Response:
    """`value` as JSON. NaN and infinity become null, as JSON has neither."""
    return Response(b"".join(_pieces(value)), media_type="application/json")


async def computed(make: Callable[[], Response]) -> Response:
    """Return the response that `make` computes in a worker thread: the loop of the API answers probes meanwhile."""
    return await asyncio.to_thread(make)


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield the JSON of `value`, long lists in steps of `ROWS_A_STEP`."""
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


# Of what is left for the leader, in the OpenAPI document.
TASK_ADDRESS: Final = {"description": "the address of the task, where there is one", "schema": {"type": "string"}}
_LOCATED: Final = {"headers": {"Location": {"$ref": "#/components/headers/TaskAddress"}}}
ACCEPTED: Final[dict[int | str, dict[str, Any]]] = {202: _LOCATED}
TASKED: Final[dict[int | str, dict[str, Any]]] = {200: _LOCATED}


def tasked(value: Any, task: str | None, *, status: int = 200) -> Response:
    """What is left for the leader; `task` says how far it is. A dry run, and what waits for a second person, have
    none."""
    answer = reply(value)
    answer.status_code = status
    if task:
        answer.headers["Location"] = f"/api/v1/tasks/{quote(task, safe='')}"
    return answer


def page(
    request: Request, rows: Sequence[Any], limit: int, following: Callable[[Sequence[Any]], Mapping[str, Any]]
) -> Response:
    """A list that has a limit. A full one may go on: then its header names the address of the page that follows, which
    is this one's with the parameters that `following` gives for these rows."""
    answer = reply(rows)
    if len(rows) == limit:
        query = urlencode({**request.query_params, **following(rows)})
        answer.headers["Link"] = f'<{request.scope["path"]}?{query}>; rel="next"'
    return answer


def before(first_ms: int, last_ms: int) -> Mapping[str, Any]:
    """What follows a page of records from the newest back: those up to its oldest one, which may share its millisecond
    with others. A page of one millisecond would follow itself."""
    return {"until_ms": first_ms if first_ms < last_ms else first_ms - 1}


def _plain(value: object) -> object:
    """NumPy scalars as Python numbers; anything else is a mistake of ours."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON-able")
