"""`/livez`, `/readyz` and `/metrics`: cheap, without credentials, apart from `/api/v1`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

from bundlekeel.api.admission import ANYBODY, router_for
from bundlekeel.api.reply import Backend
from bundlekeel.daemon.answers.picture import Check

router = router_for(
    ANYBODY,
    probe=True,
    tags=["probes"],
    responses={503: {"description": "a check fails", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
metrics = router_for(ANYBODY, tags=["probes"])
# Its own: metrics must not wait for the responses that are to be computed.
_RENDERING = ThreadPoolExecutor(max_workers=1, thread_name_prefix="api-metrics")
# In the document alone: a probe takes whatever is in its query, and is never refused for it.
_VERBOSE = {
    "name": "verbose",
    "in": "query",
    "required": False,
    "description": "also list the checks that pass; it needs no value, `false` and `0` mean no",
    "schema": {"type": "string"},
}


@router.get("/livez", response_class=PlainTextResponse, openapi_extra={"parameters": [_VERBOSE]})
async def get_livez(service: Backend, request: Request) -> Response:
    """Whether this process runs its cycles; `?verbose` lists the checks."""
    return _probe(service.live(), request)


@router.get("/readyz", response_class=PlainTextResponse, openapi_extra={"parameters": [_VERBOSE]})
async def get_readyz(service: Backend, request: Request) -> Response:
    """Whether it can do its work now; `?verbose` lists the checks."""
    return _probe(service.ready(), request)


def _probe(checks: Sequence[Check], request: Request) -> Response:
    """200 `ok` or 503; failing checks are always listed, passing ones with `?verbose` only."""
    good = all(check.ok for check in checks)
    verbose = request.query_params.get("verbose", "false").lower() not in ("false", "0")
    lines = [_line(check) for check in checks if verbose or not check.ok]
    lines.append("ok" if good else "failed")
    return PlainTextResponse("\n".join(lines) + "\n", status_code=200 if good else 503)


def _line(check: Check) -> str:
    return f"[+]{check.name} ok" if check.ok else f"[-]{check.name} {' '.join(check.detail.split()) or 'failed'}"


@metrics.get("/metrics", response_class=PlainTextResponse, responses={503: {"description": "too busy"}})
async def get_metrics(service: Backend, request: Request) -> Response:
    """Prometheus or OpenMetrics text, as `Accept` asks."""
    accept, loop = request.headers.get("accept", ""), asyncio.get_running_loop()
    body, content_type = await loop.run_in_executor(_RENDERING, service.render_metrics, accept)
    return Response(body, headers={"Content-Type": content_type})
