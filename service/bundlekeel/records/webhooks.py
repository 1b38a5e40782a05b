"""Webhooks for notifications. Their addresses are secrets: errors and logs contain no address, headers or response."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import httpx

from bundlekeel import __version__
from bundlekeel.model.errors import NotificationError
from bundlekeel.ports.records import Notification
from bundlekeel.pulsar.formats.external_input import clean_lines, cleaned, utc

# Statuses after which the same request may succeed later.
_LATER: Final = frozenset({401, 403, 408, 425, 429})


async def post(
    http: httpx.AsyncClient, url: str, body: Mapping[str, Any], *, seconds: float, headers: Mapping[str, str]
) -> None:
    """Send one POST request. The body of the response is not read, and redirects are not followed.

    Strings of `body` are sent without control characters. Raises NotificationError if the status is not 2xx. The
    error's `again` is True if a later attempt may succeed, also after 401 and 403, because tokens are renewed and
    permissions may come later."""
    content = cleaned(dict(body), text=clean_lines)
    try:
        async with asyncio.timeout(seconds), http.stream("POST", url, json=content, headers=dict(headers)) as answer:
            status = answer.status_code
    except TimeoutError:
        raise NotificationError(f"no answer within {seconds:g} s", again=True) from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError):
        raise NotificationError("its address is not an http(s) URL", again=False) from None
    except httpx.HTTPError as error:
        # Without the original error, which contains the request and so the address.
        raise NotificationError(type(error).__name__, again=True) from None
    if not 200 <= status < 300:
        raise NotificationError(f"answered {status}", again=status in _LATER or status >= 500)


PAYLOAD_VERSION: Final = 1
_MAX_ADDRESS_BYTES: Final = 4096
_COLOURS: Final = {"info": "#2e7d32", "warning": "#ed6c02", "critical": "#c62828"}
# Texts must not notify whole channels: `<!channel>` in Slack is escaped, and `@all` in Mattermost and Rocket.Chat gets
# a zero-width space.
_SLACK_ESCAPES: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b"))
# Slack itself truncates longer texts, in the middle of a word.
_MOST_TEXT: Final = 3000


class WebhookAddress:
    """Address of a webhook: a literal, or a file that is read for each notification. `repr` does not show it."""

    def __init__(self, url: str | None = None, *, file: Path | None = None) -> None:
        """Set either `url` or `file`. The file may be created later."""
        if (url is None) == (file is None):
            raise ValueError("give either an address or a file")
        self._url, self._file = url, file

    def current(self) -> str:
        """Return the current address. Raises NotificationError if the file is unreadable."""
        if self._file is None:
            return self._url or ""
        try:
            with self._file.open("rb") as stream:
                return stream.read(_MAX_ADDRESS_BYTES).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotificationError(f"url_file {self._file}: {type(error).__name__}", again=True) from None

    def __repr__(self) -> str:
        return f"Address({'literal' if self._file is None else self._file})"


class Webhook:
    """`ports.records.Notifier` that sends to a webhook over HTTP."""

    def __init__(
        self,
        address: WebhookAddress,
        *,
        kind: Literal["generic", "slack"] = "generic",
        seconds: float = 5.0,
        tls: ssl.SSLContext | None = None,
        use_proxy: bool = False,
    ) -> None:
        self._address = address
        self._payload = slack if kind == "slack" else generic
        self._seconds = seconds
        self._http = httpx.AsyncClient(
            timeout=seconds,
            trust_env=use_proxy,
            verify=tls or True,
            follow_redirects=False,
            headers={"User-Agent": f"bundlekeel/{__version__}"},
        )

    async def send(self, notice: Notification) -> None:
        """Send one notification. Raises NotificationError if that fails."""
        await post(self._http, self._address.current(), self._payload(notice), seconds=self._seconds, headers={})

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._http.aclose()


def generic(notice: Notification) -> dict[str, Any]:
    """Return a notification as JSON in Bundlekeel's own form."""
    return {
        "version": PAYLOAD_VERSION,
        "source": "bundlekeel",
        "cluster": notice.cluster,
        "member": notice.member,
        "event": notice.event,
        "severity": notice.severity,
        "reason": notice.reason,
        "text": notice.text,
        "wall_ms": notice.wall_ms,
        "time": _time(notice.wall_ms),
        "details": dict(notice.details),
    }


def slack(notice: Notification) -> dict[str, Any]:
    """Return a notification as the body of Slack's incoming webhooks; Mattermost and Rocket.Chat accept it as well."""
    title = _escaped(f"Bundlekeel, {notice.cluster}: {notice.reason}")
    fields = [
        {"title": _escaped(name), "value": _escaped(_as_text(value)), "short": True}
        for name, value in notice.details.items()
    ]
    return {
        "text": title,
        "attachments": [
            {
                "color": _COLOURS[notice.severity],
                "fallback": title,
                "text": _escaped(notice.text),
                "fields": fields,
                "footer": _escaped(f"{notice.severity}, {notice.event}, sent by {notice.member}"),
                "ts": notice.wall_ms // 1000,
            }
        ],
    }


def _as_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _escaped(text: str) -> str:
    for sign, written in _SLACK_ESCAPES:
        text = text[:_MOST_TEXT].replace(sign, written)
    return text


def _time(wall_ms: int) -> str:
    return utc(wall_ms, field="wall_ms").isoformat(timespec="milliseconds").replace("+00:00", "Z")
