"""Failed admin calls: the readable reason in a broker's response, and the error to raise for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from bundlekeel.model.errors import AdminApiError, AdminFault, AdminRefused, AdminUnauthorized, CodecError
from bundlekeel.pulsar.decoding import decoded
from bundlekeel.pulsar.formats.external_input import clean, load, text_of

T = TypeVar("T")

_MAX_REASON: Final = 300
# Only this much of an error page is searched. JSON may begin with a stack trace, so all that was read is searched.
_PAGE_BYTES: Final = 4096
# Pulsar frames unexpected exceptions as "\n --- An unexpected error occurred in the server ---\n\nMessage: ...".
_FRAME: Final = "---"
# The extensible load manager rejects a transfer to the owner itself with a 500, before it does anything.
_CERTAIN: Final = "cannot be transfer to same broker"
# A proxy may send these after it has passed the request on: a timeout, a limit, a client that closed the connection.
_UNCERTAIN: Final = frozenset({408, 429, 499})


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """One HTTP response with its undecoded body. The body of an error is cut after `ERROR_BYTES`."""

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
    """Return the first informative line of an error response, without the Java stack trace that may follow."""
    for line in _message(answer).replace("  ", "\n").splitlines():
        stripped = clean(line).strip()
        if stripped and not stripped.startswith(_FRAME):
            return stripped.removeprefix("Message: ")[:_MAX_REASON]
    return answer.phrase


def error_of(answer: RawAnswer, what: str) -> AdminApiError:
    """Return the error to raise for a response that is neither a success nor a redirect. `what`: the request."""
    status, reason = answer.status, reason_of(answer)
    kind: type[AdminApiError]
    if status in (401, 403):
        kind = AdminUnauthorized
    elif (400 <= status < 500 and status not in _UNCERTAIN) or _CERTAIN.encode() in answer.content[:_PAGE_BYTES]:
        kind = AdminRefused
    else:
        kind = AdminFault
    return kind(f"{what}: {status} {reason}", status=status, url=answer.url, reason=reason)


def _message(answer: RawAnswer) -> str:
    """Return the reason from a JSON response, the title of an HTML page, or the response as text."""
    with contextlib.suppress(CodecError):
        # Cleaned strings have no line feeds, so replace them before.
        body = load(answer.content.replace(rb"\n", b"  "), what="the refusal")
        return str(body["reason"]) if isinstance(body, dict) and body.get("reason") else ""
    text = text_of(answer.content[:_PAGE_BYTES])
    start, end = text.lower().find("<title>"), text.lower().find("</title>")
    if 0 <= start < end:
        return text[start + len("<title>") : end]
    return "" if "<" in text else text


async def decoded_answer(what: str, decode: Callable[..., T], answer: RawAnswer, **options: Any) -> T:
    """Return the decoded content of a response. Raises AdminFault if that fails; `what` names the content."""
    try:
        return await decoded(decode, answer.content, **options)
    except CodecError as error:
        raise AdminFault(f"{what}: {error}", status=200) from error
