"""Helpers of the routes: the backend as a dependency, and JSON straight from plain values.

Response models document the answers in OpenAPI; the values themselves are encoded as they are, because a list of
100,000 bundles must not be validated row by row, and a field more must not become a 500.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, cast
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Depends, Request, Response

from bundlekeel.daemon.answers.service import Service


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


def reply(value: Any) -> Response:
    """`value` as JSON. NaN and infinity become null, as JSON has neither."""
    return Response(msgspec.json.encode(value, enc_hook=_plain), media_type="application/json")


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


def page(request: Request, rows: Sequence[Any], limit: int, following: Callable[[], Mapping[str, Any]]) -> Response:
    """A list that has a limit. A full one may go on: then its header names the address of the page that follows, which
    is this one's with the parameters of `following`."""
    answer = reply(rows)
    if len(rows) == limit:
        query = urlencode({**request.query_params, **following()})
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
