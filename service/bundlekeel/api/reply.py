"""Helpers of the routes: the backend as a dependency, and JSON straight from plain values.

Response models document the answers in OpenAPI; the values themselves are encoded as they are, because a list of
100,000 bundles must not be validated row by row, and a field more must not become a 500.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from fastapi import Depends, Request, Response

from bundlekeel.daemon.answers.service import Service


async def backend(request: Request) -> Service:
    """The running sidecar behind this app."""
    return cast(Service, request.app.state.service)


Backend = Annotated[Service, Depends(backend)]


def reply(value: Any, *, status: int = 200) -> Response:
    """`value` as JSON. NaN and infinity become null, as JSON has neither."""
    return Response(msgspec.json.encode(value, enc_hook=_plain), status_code=status, media_type="application/json")


def _plain(value: object) -> object:
    """NumPy scalars as Python numbers; anything else is a mistake of ours."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON-able")
