"""The other sidecars' APIs: a follower passes a dry run on to the leader."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from bundlekeel.core.errors import AdminUnauthorized, StoreError


class HttpPeers:
    """`ports.Peers` over httpx. Only the leader's advertised URL, learned from its own node, is ever called.

    `token` gives what is shown to it, over https only when `tls` is given: then a leader that says http is not called.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float = 10.0,
        tls: ssl.SSLContext | None = None,
        token: Callable[[], str] | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(timeout=timeout_seconds, trust_env=False, verify=tls or True)
        self._https_only = tls is not None
        self._token = token

    async def make_plan(self, url: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """POST /api/v1/plans at a sidecar. StoreError when it does not answer as one."""
        try:
            if self._https_only and not url.startswith("https://"):
                raise StoreError(f"the leader says {url}, and api.tls is on here: not called without https")
            headers = {"Authorization": f"Bearer {self._token()}"} if self._token is not None else {}
            answer = await self._http.post(f"{url.rstrip('/')}/api/v1/plans", json=dict(request), headers=headers)
            answer.raise_for_status()
            body = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, AdminUnauthorized, ValueError) as error:
            raise StoreError(f"the leader at {url} did not answer: {error}") from error
        if not isinstance(body, dict) or not {"hash", "expires_ms", "moves"} <= set(body):
            raise StoreError(f"the leader at {url} answered something else than a plan")
        return body

    async def close(self) -> None:
        """Close pooled connections."""
        await self._http.aclose()
