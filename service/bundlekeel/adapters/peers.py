"""The other sidecars' APIs: a follower passes a dry run on to the leader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from bundlekeel.core.errors import StoreError


class HttpPeers:
    """`ports.Peers` over httpx. Only the leader's advertised URL, learned from its own node, is ever called."""

    def __init__(self, *, timeout_seconds: float = 10.0) -> None:
        self._http = httpx.AsyncClient(timeout=timeout_seconds, trust_env=False)

    async def make_plan(self, url: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """POST /api/v1/plans at a sidecar. StoreError when it does not answer as one."""
        try:
            answer = await self._http.post(f"{url.rstrip('/')}/api/v1/plans", json=dict(request))
            answer.raise_for_status()
            body = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise StoreError(f"the leader at {url} did not answer: {error}") from error
        if not isinstance(body, dict) or not {"hash", "expires_ms", "moves"} <= set(body):
            raise StoreError(f"the leader at {url} answered something else than a plan")
        return body

    async def close(self) -> None:
        """Close pooled connections."""
        await self._http.aclose()
