"""One POST of JSON whose address, headers and answer appear in no message: addresses of webhooks are secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import httpx

from bundlekeel.core.model.errors import NotificationError

# Answers after which the same request may be taken later.
_LATER: Final = frozenset({401, 403, 408, 425, 429})


async def post(
    http: httpx.AsyncClient, url: str, body: Mapping[str, Any], *, seconds: float, headers: Mapping[str, str]
) -> None:
    """Send it once; the answer's body is not read. NotificationError unless 2xx; redirects are not followed.

    401 and 403 may pass: tokens are renewed, and rights are often granted a moment after a start.
    """
    try:
        async with asyncio.timeout(seconds), http.stream("POST", url, json=dict(body), headers=dict(headers)) as answer:
            status = answer.status_code
    except TimeoutError:
        raise NotificationError(f"no answer within {seconds:g} s", again=True) from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError):
        raise NotificationError("its address is no http(s) address", again=False) from None
    except httpx.HTTPError as error:
        # Without its cause: the error carries the request, and that the address.
        raise NotificationError(type(error).__name__, again=True) from None
    if not 200 <= status < 300:
        raise NotificationError(f"answered {status}", again=status in _LATER or status >= 500)
