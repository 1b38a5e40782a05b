"""Error responses as problem+json (RFC 9457), with one table that maps error classes to status codes.

Unexpected errors become a 500: `Fallback` logs the traceback and does not send it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import (
    AdminApiError,
    BundlekeelError,
    ConfigError,
    Conflict,
    Forbidden,
    NotFound,
    SnapshotError,
    StoreError,
    StoreMigrated,
    TooSlow,
)
from bundlekeel.model.text_format import limits_text
from bundlekeel.pulsar.formats.external_input import clean_lines, cleaned

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:bundlekeel:problem:"

REQUEST_ID = {
    "description": "id of the request, from the request's own header or new; log lines of the request contain it",
    "schema": {"type": "string"},
}
# Request id in the examples of the OpenAPI document.
EXAMPLE_ID: Final = "3f0e8a52c1d94b7796d1f0a2b4c6e8d0"
RETRY_AFTER = {"description": "seconds to wait before the next attempt", "schema": {"type": "integer", "minimum": 0}}

# The first matching class applies, so a subclass comes before its parent.
STATUSES: tuple[tuple[type[BundlekeelError], int, str], ...] = (
    (NotFound, 404, "not-found"),
    (Conflict, 409, "conflict"),
    (Forbidden, 403, "forbidden"),
    (ConfigError, 422, "invalid-value"),
    (SnapshotError, 503, "no-picture"),
    (StoreError, 503, "store-unavailable"),
    (AdminApiError, 502, "broker-refused"),
    (TooSlow, 504, "timeout"),
)

# All problems of the API by status and last part of the type. A test compares them with the sources.
KINDS: Final[Mapping[tuple[int, str], str]] = {
    (400, "not-an-object"): "the body is not a JSON object in UTF-8",
    (400, "wrong-path"): "the path has a control character, a line separator, or a character that changes the "
    "text direction",
    (401, "unauthenticated"): "no valid credentials (only with authentication configured)",
    (403, "forbidden"): "forbidden by the mode, a pause or the settings file, or because the plan is a what-if, the "
    "proposal is your own, or calibration is off; `code` is the reason",
    (403, "role"): "the role is too low",
    (403, "wrong-origin"): "the request comes from a page of another server",
    (404, "no-route"): "the route does not exist, or not at this address: `detail` names the path",
    (404, "not-found"): "no such broker, bundle, plan, task or group",
    (405, "method-not-allowed"): "the route does not support this method",
    (408, "slow-body"): "the body did not arrive in time",
    (
        409,
        "conflict",
    ): "not possible now: the inputs of a plan changed, a safety rule refuses a move, or all other "
    "brokers are drained or cordoned; `code` is the reason, `difference` contains all reasons as text",
    (413, "too-large"): "the body is too large",
    (415, "not-json"): "the Content-Type is not `application/json`",
    (421, "wrong-host"): "the Host header names another server",
    (422, "invalid-value"): "a value is unknown, of the wrong type or out of range",
    (429, "too-many-failures"): "too many wrong credentials from this address; `Retry-After`: seconds to wait",
    (500, "internal-error"): "a defect; the log has the traceback, in the line `api_unexpected_error` with this "
    "`request_id`",
    (502, "broker-refused"): "a broker refused a request or did not answer",
    (
        503,
        "no-picture",
    ): "the cluster is not known yet, or this sidecar only waits for a free seat; `Retry-After`: seconds to wait",
    (503, "store-unavailable"): "the metadata store does not respond; `Retry-After`: seconds to wait; "
    "repeat a change by the rules of [lost answers](#from-a-dry-run-to-the-end)",
    (503, "too-busy"): "too many requests at once; `Retry-After`: seconds to wait",
    (503, "too-many-streams"): "too many streams of events are open; `Retry-After`: seconds to wait",
    (504, "timeout"): "no response within the time limit",
}

# Texts for those error types of pydantic that are not about a value.
_REASONS = {
    "missing": "it is missing",
    "missing_to_execute": "it is missing: a change that is executed (`execute: true`) needs a reason",
    "string_too_short": "it is empty",
    "model_attributes_type": "must be a JSON object",
    "extra_forbidden": "not a field of this request; /api/v1/openapi.json lists its fields",
}

# Replaces the words "Input should be" at the start of pydantic's messages.
_MUST_BE = "must be"

_log = structlog.get_logger(__name__)


def request_id() -> str:
    """Return the id of the current request, which `Shield` added to the log's context; "" outside of a request."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def problem(status: int, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """Return a problem+json response. `more`: extension members; empty ones are omitted."""
    more["request_id"] = request_id()
    body = {"type": TYPE_PREFIX + kind, "title": _title(status), "status": status, "detail": detail}
    body |= {key: value for key, value in more.items() if value not in (None, "", [])}
    # Remove control characters from the texts, because they can contain parts of the request.
    content = msgspec.json.encode(cleaned(msgspec.to_builtins(body, str_keys=True, enc_hook=repr), text=clean_lines))
    return Response(content, status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def fault(field: str, reason: str, value: object = None, allowed: str = "") -> dict[str, Any]:
    """Return a fault of a request's field as JSON, with the value and the allowed values if known."""
    members = {"value": value, "allowed": allowed}
    return {"field": field, "reason": reason} | {name: item for name, item in members.items() if item not in (None, "")}


def of_faults(faults: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the extension members of a problem: all faults, and field, value and allowed values of the first one."""
    return {name: faults[0].get(name) for name in ("field", "value", "allowed")} | {"errors": faults}


def documented(texts: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses for these statuses. `texts`: description by status.

    The responses refer to the schema `Problem` and the header `RETRY_AFTER` by name, because with a "model" FastAPI
    would build a pydantic field for each status of each route.
    """
    schema = {"$ref": "#/components/schemas/Problem"}
    again = {"headers": {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}}
    return {
        status: {
            "description": text,
            "content": {
                MEDIA_TYPE: {
                    "schema": schema,
                    "examples": {kind: {"$ref": f"#/components/examples/{kind}"} for of, kind in KINDS if of == status},
                }
            },
        }
        | (again if status in (429, 503) else {})
        for status, text in texts.items()
    }


def examples() -> dict[str, dict[str, Any]]:
    """Return an example of each kind of problem for the OpenAPI document, by kind. `documented` refers to them."""
    more: dict[str, dict[str, Any]] = {
        "conflict": {"code": "changed", "difference": ["shop/orders/0x00000000_0x80000000 would no longer move"]},
        "forbidden": {"code": Code.PAUSED},
        "invalid-value": of_faults([fault("limit", "must be at least 1", 0, "at least 1")]),
    }
    with structlog.contextvars.bound_contextvars(request_id=EXAMPLE_ID):
        bodies = {
            kind: bytes(problem(status, kind, text.partition(";")[0], **more.get(kind, {})).body)
            for (status, kind), text in KINDS.items()
        }
    return {kind: {"value": msgspec.json.decode(body)} for kind, body in bodies.items()}


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def install(app: FastAPI) -> None:
    """Register the handlers for all expected errors."""
    app.add_exception_handler(BundlekeelError, _on_known)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)


async def _on_known(_: Request, error: Exception) -> Response:
    for kind, status, slug in STATUSES:
        if isinstance(error, kind):
            retry = {"Retry-After": "5"} if status == 503 else None
            return problem(status, slug, _detail(error), headers=retry, **_members(error))
    raise error


def _detail(error: Exception) -> str:
    """Return the error's message; add the refused field and value unless the message contains them."""
    text = str(error)
    if not isinstance(error, ConfigError) or not error.field or error.field.rpartition(".")[2] in text:
        return text
    value = "" if error.value is None or str(error.value) in text else f" = {reprlib.repr(error.value)}"
    return f"{error.field}{value}: {text}"


def _members(error: Exception) -> dict[str, Any]:
    """Return the extension members of the problem response for an error."""
    if isinstance(error, ConfigError):
        return of_faults([fault(error.field, str(error), error.value, error.allowed)])
    if isinstance(error, Conflict):
        return {"code": error.code, "difference": error.difference}
    if isinstance(error, Forbidden | StoreMigrated):
        return {"code": error.code}
    return {}


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    slug = _title(error.status_code).lower().replace(" ", "-")
    detail, headers = str(error.detail), error.headers
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # List the methods of all routes of the path: Starlette lists only those of the first route.
        routes, path = iter_route_contexts(request.app.routes), request.scope["path"]
        methods = {
            name for route in routes if compile_path(route.path or "")[0].match(path) for name in route.methods or ()
        }
        headers = {"Allow": ", ".join(sorted(methods))}
        detail = f"{request.method} is not a method of {path} (allowed: {headers['Allow']})"
    return problem(error.status_code, slug, detail, headers=headers)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults, details = list[dict[str, Any]](), list[str]()
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"][1:]) or str(item["loc"][0])
        limits = limits_text(item.get("ctx", {}))
        text = f"{_MUST_BE} {limits}" if limits else str(item["msg"]).removeprefix("Value error, ")
        text = text.replace("Input should be", _MUST_BE, 1)
        reason = _REASONS.get(item["type"], text)
        allowed = reason.removeprefix(_MUST_BE).strip() if reason.startswith(_MUST_BE) else ""
        # Bundlekeel's own validators raise errors that contain the allowed values.
        allowed = getattr(item.get("ctx", {}).get("error"), "allowed", None) or allowed
        if item["type"] == "json_invalid":
            # For invalid JSON the location is an offset in characters, and not a field.
            field, reason = "body", f"not JSON: {item['ctx']['error']} at {item['loc'][1]}"
        shows_value = item["type"] not in (*_REASONS, "json_invalid")
        # Omit lists and objects: they can be as large as the request, and each fault would repeat them.
        value = item["input"] if shows_value and not isinstance(item["input"], list | dict) else None
        faults.append(fault(field, reason, value, allowed))
        value_text = f" = {reprlib.repr(item['input'])}" if shows_value else ""
        details.append(f"{field}{value_text}: {reason}")
    return problem(422, "invalid-value", "; ".join(details), **of_faults(faults))


class Fallback:
    """Converts unexpected errors to a 500 without traceback, and logs the traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request, and respond with 500 if it fails before its response started."""
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception:
            _log.exception("api_unexpected_error", method=scope.get("method"), path=scope.get("path"))
            if started:
                raise
            detail = f"unexpected error; the log has the traceback, with request_id {request_id()}"
            answer = problem(500, "internal-error", detail)
            await answer(scope, receive, send)
