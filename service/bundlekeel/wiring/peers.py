"""Client of the other sidecars' APIs.

A follower sends the leader dry runs, requests about topics of quota groups, and signals of changed traffic. Any
sidecar reads a plan from the sidecar that computed it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import structlog

from bundlekeel.model.errors import AdminUnauthorized, CodecError, StoreError
from bundlekeel.pulsar.formats.external_input import DOCUMENT, load


class HttpPeers:
    """`ports.Peers` over httpx. Only URLs that sidecars advertise in their own nodes are ever called.

    `token`: returns the bearer token. `tls`: certificates; if set, sidecars with an http URL are not called.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float = 10.0,
        tls: ssl.SSLContext | None = None,
        token: Callable[[], str] | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(
            timeout=timeout_seconds, trust_env=False, verify=tls or True, headers={"Accept-Encoding": "identity"}
        )
        self._timeout_seconds = timeout_seconds
        self._https_only = tls is not None
        self._token = token

    async def make_plan(self, url: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Let a sidecar make a plan (POST /api/v1/plans) and return the plan. Raises StoreError if this fails."""
        answer = await self._ask("POST", url, "plans", json=dict(request))
        return _plan(url, answer)

    async def plan(self, url: str, hash_: str) -> dict[str, Any] | None:
        """Return a plan that the sidecar itself stores (GET /api/v1/plans/HASH); None: it has no such plan (404).

        Raises StoreError if the request fails otherwise.
        """
        answer = await self.get(url, f"plans/{quote(hash_, safe='')}")
        return None if answer is None else _plan(url, answer)

    async def get(self, url: str, path: str) -> Any:
        """Return a sidecar's response to a GET request; None: status 404. Raises StoreError if it does not respond."""
        return await self._ask("GET", url, path, params={"here": "true"})

    async def signal_load(self, url: str) -> None:
        """Signal changed traffic to the leader (POST `/api/v1/load-signals`). Raises StoreError if this fails."""
        if await self._ask("POST", url, "load-signals") is None:
            raise StoreError(f"{url} has no /api/v1/load-signals: another release of Bundlekeel runs there")

    async def _ask(self, method: str, url: str, path: str, **more: Any) -> Any:
        """Send a request and return the JSON of the response; None: status 404. Raises StoreError if this fails."""
        try:
            if self._https_only and not url.startswith("https://"):
                raise StoreError(f"the sidecar's address {url} has no https, which `api.tls` of this sidecar requires")
            headers = {"Authorization": f"Bearer {self._token()}"} if self._token is not None else {}
            # Forward the id of the request, so that the logs of both sidecars contain it.
            if request_id := structlog.contextvars.get_contextvars().get("request_id"):
                headers["X-Request-ID"] = str(request_id)
            target = f"{url.rstrip('/')}/api/v1/{path}"
            # The timeout of httpx applies to each piece of a response, this one to the whole response.
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._http.stream(method, target, headers=headers, **more) as answer,
            ):
                if answer.status_code == 404:
                    return None
                answer.raise_for_status()
                content = bytearray()
                async for chunk in answer.aiter_raw():
                    content += chunk
                    if len(content) > DOCUMENT.nbytes:
                        break
            # Do not decompress the body: the request asks for no encoding. A compressed one fails to parse as JSON.
            return await asyncio.to_thread(load, bytes(content), what="its answer")
        except TimeoutError as error:
            raise StoreError(f"the sidecar at {url} did not answer within {self._timeout_seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, AdminUnauthorized, CodecError, ValueError) as error:
            raise StoreError(f"the sidecar at {url} did not answer: {error}") from error

    async def close(self) -> None:
        """Close all open connections."""
        await self._http.aclose()


def _plan(url: str, body: Any) -> dict[str, Any]:
    if not isinstance(body, dict) or not {"hash", "expires_ms", "moves"} <= set(body):
        raise StoreError(f"the response of the sidecar at {url} is not a plan")
    return body
