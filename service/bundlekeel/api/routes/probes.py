"""`/livez`, `/readyz` and `/metrics`: cheap, without credentials, and outside of `/api/v1`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

from bundlekeel.api.admission import ANYBODY, router_for
from bundlekeel.api.reply import Backend
from bundlekeel.model.check import Check

router = router_for(
    ANYBODY,
    probe=True,
    tags=["probes"],
    responses={503: {"description": "a check fails", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
metrics = router_for(ANYBODY, tags=["probes"])
# Metrics are rendered in their own thread, so that they do not wait for other responses.
_RENDERING = ThreadPoolExecutor(max_workers=1, thread_name_prefix="api-metrics")
# Query parameters in the OpenAPI document. A probe itself accepts any query.
_VERBOSE = {
    "name": "verbose",
    "in": "query",
    "required": False,
    "description": "also list passed checks; needs no value; `false` and `0` disable it",
    "schema": {"type": "string"},
}


@router.get("/livez", response_class=PlainTextResponse, openapi_extra={"parameters": [_VERBOSE]})
async def get_livez(service: Backend, request: Request) -> Response:
    """Check whether this process runs its cycles; `?verbose` lists all checks."""
    return _probe(service.live(), request)


@router.get("/readyz", response_class=PlainTextResponse, openapi_extra={"parameters": [_VERBOSE]})
async def get_readyz(service: Backend, request: Request) -> Response:
    """Check whether this sidecar can work now; `?verbose` lists all checks."""
    return _probe(service.ready(), request)


def _probe(checks: Sequence[Check], request: Request) -> Response:
    """Return 200 `ok` or 503. Failed checks are always listed, passed ones only with `?verbose`."""
    good = all(check.ok for check in checks)
    verbose = request.query_params.get("verbose", "false").lower() not in ("false", "0")
    lines = [_line(check) for check in checks if verbose or not check.ok]
    lines.append("ok" if good else "failed")
    return PlainTextResponse("\n".join(lines) + "\n", status_code=200 if good else 503)


def _line(check: Check) -> str:
    return f"[+]{check.name} ok" if check.ok else f"[-]{check.name} {' '.join(check.detail.split()) or 'failed'}"


@metrics.get("/metrics", response_class=PlainTextResponse, responses={503: {"description": "too busy"}})
async def get_metrics(service: Backend, request: Request) -> Response:
    """Return metrics as Prometheus or OpenMetrics text, as requested by `Accept`."""
    accept, loop = request.headers.get("accept", ""), asyncio.get_running_loop()
    body, content_type = await loop.run_in_executor(_RENDERING, service.render_metrics, accept)
    return Response(body, headers={"Content-Type": content_type})
