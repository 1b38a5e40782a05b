"""What a broker's answer means: the readable reason in it, and the error of ours it stands for."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any, Final

from bundlekeel.codec.external_input import clean, load, text_of
from bundlekeel.core.model.errors import AdminApiError, AdminFault, AdminRefused, AdminUnauthorized, CodecError

_MAX_REASON: Final = 300
# Of an error page this much is looked at, of a refusal in JSON (it may hold a stack trace) as much as is read of it.
_PAGE_BYTES: Final = 4096
ERROR_BYTES: Final = 64 * 1024
# Pulsar frames unexpected exceptions as "\n --- An unexpected error occurred in the server ---\n\nMessage: ...".
_FRAME: Final = "---"
# The extensible load manager refuses a transfer to the owner itself with a 500, before it does anything.
_CERTAIN: Final = "cannot be transfer to same broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """One answer as it came over the wire: bytes that nobody has decoded. Of an error its first `ERROR_BYTES`."""

    status: int
    url: str
    phrase: str = ""
    location: str = ""
    content: bytes = b""

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


def reason_of(answer: RawAnswer) -> str:
    """The first telling line of a refusal; never the Java stack trace that may follow it."""
    for line in _message(answer).replace("  ", "\n").splitlines():
        stripped = clean(line).strip()
        if stripped and not stripped.startswith(_FRAME):
            return stripped.removeprefix("Message: ")[:_MAX_REASON]
    return answer.phrase


def error_of(answer: RawAnswer, what: str) -> AdminApiError:
    """The typed error of an answer that is no success; redirects are handled before."""
    status, reason = answer.status, reason_of(answer)
    kind: type[AdminApiError]
    if status in (401, 403):
        kind = AdminUnauthorized
    elif 400 <= status < 500 or _CERTAIN.encode() in answer.content[:_PAGE_BYTES]:
        kind = AdminRefused
    else:
        kind = AdminFault
    return kind(f"{what}: {status} {reason}", status=status, url=answer.url, reason=reason)


def json_object(answer: RawAnswer, what: str) -> dict[str, Any]:
    """The JSON object of a 200. AdminFault when the answer is something else (a proxy's page, for example)."""
    try:
        body = load(answer.content, what=what)
    except CodecError as error:
        raise AdminFault(str(error), status=answer.status, url=answer.url) from error
    if not isinstance(body, dict):
        raise AdminFault(f"{what}: the answer is no JSON object", status=answer.status, url=answer.url)
    return body


def text_map(body: dict[str, Any]) -> dict[str, str]:
    """A map of strings; Pulsar writes all settings as strings, anything else is rendered as JSON would."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in body.items()}


def _message(answer: RawAnswer) -> str:
    """The reason in JSON, a page's title, or the text."""
    with contextlib.suppress(CodecError):
        # Its line feeds are to be seen: texts have none once they are cleaned.
        body = load(answer.content.replace(rb"\n", b"  "), what="the refusal")
        return str(body["reason"]) if isinstance(body, dict) and body.get("reason") else ""
    text = text_of(answer.content[:_PAGE_BYTES])
    start, end = text.lower().find("<title>"), text.lower().find("</title>")
    if 0 <= start < end:
        return text[start + len("<title>") : end]
    return "" if "<" in text else text
