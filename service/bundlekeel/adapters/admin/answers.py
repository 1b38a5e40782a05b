"""What a broker's answer means: the readable reason in it, and the error of ours it stands for."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx

from bundlekeel.core.errors import AdminApiError, AdminFault, AdminRefused, AdminUnauthorized

_MAX_REASON = 300
_TITLE = re.compile(r"<title>\s*(.*?)\s*</title>", re.IGNORECASE | re.DOTALL)
# Pulsar frames unexpected exceptions as "\n --- An unexpected error occurred in the server ---\n\nMessage: ...".
_FRAME = "---"
# The extensible load manager refuses a transfer to the owner itself with a 500, before it does anything.
_CERTAIN = "cannot be transfer to same broker"


def reason_of(response: httpx.Response) -> str:
    """The first telling line of a refusal; never the Java stack trace that may follow it."""
    text = response.text
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        title = _TITLE.search(text)
        text = title[1] if title else ("" if "<" in text else text)
    else:
        text = str(body["reason"]) if isinstance(body, dict) and body.get("reason") else ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(_FRAME):
            return stripped.removeprefix("Message: ")[:_MAX_REASON]
    return response.reason_phrase


def error_of(response: httpx.Response, what: str) -> AdminApiError:
    """The typed error of an answer that is no success; redirects are handled before."""
    status, reason, url = response.status_code, reason_of(response), str(response.url)
    kind: type[AdminApiError]
    if status in (401, 403):
        kind = AdminUnauthorized
    elif 400 <= status < 500 or _CERTAIN in response.text:
        kind = AdminRefused
    else:
        kind = AdminFault
    return kind(f"{what}: {status} {reason}", status=status, url=url, reason=reason)


def json_object(response: httpx.Response, what: str) -> dict[str, Any]:
    """The JSON object of a 200. AdminFault when the answer is something else (a proxy's page, for example)."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise AdminFault(f"{what}: the answer is no JSON object", status=response.status_code, url=str(response.url))
    return body


def text_map(body: dict[str, Any]) -> dict[str, str]:
    """A map of strings; Pulsar writes all settings as strings, anything else is rendered as JSON would."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in body.items()}
