"""docs/reference/api.md, made from the OpenAPI document."""

from __future__ import annotations

from typing import Any

from bundlekeel.api.admission import BODY_SECONDS, MAX_BODY_BYTES
from bundlekeel.api.openapi import openapi_document
from bundlekeel.api.problems import STATUSES, TYPE_PREFIX
from bundlekeel.api.shield import REQUEST_SECONDS
from dev import NOTE

_INTRO = f"""\
All fields: `config/openapi.json`, which a running sidecar serves as `/api/v1/openapi.json`. Answers may get further
fields with later releases; requests with a field that is not known are refused.

- **Who may**: while no authentication is configured, reads and dry runs need no credentials, and routes marked *socket*
  exist only on the unix socket (`api.socket`, mode 0600): TCP has no route that changes anything. With it `GET` needs
  role viewer, everything else operator, the mode admin.
- **Host** must be a loopback name, `api.host`, or listed in `api.allowed_hosts` (`*` for any, `.example.com` for a
  domain); else 421. Probes and metrics also answer to any IP address, because kubelet and Prometheus ask so.
- **Writes** take `application/json` only (415), mutations a JSON object in UTF-8 (400), of this Origin only (403),
  up to {MAX_BODY_BYTES // 1024} KiB (413) that arrive within {BODY_SECONDS:.0f} s (408). A request ends after
  {REQUEST_SECONDS:.0f} s (504). There is no CORS.
- **Paths** with control characters are refused (400).
- **Page**: `/ui/` is the web page, with a policy of its own; `/` leads there.
- **Probes**: `?verbose` lists the checks as `[+]name ok` and `[-]name reason`; 503 when one fails."""


def api_page() -> str:
    """The page."""
    lines = ["# HTTP API", "", f"<!-- {NOTE} -->", "", _INTRO, ""]
    lines += ["| route | where | parameters | answer |", "| --- | --- | --- | --- |"]
    for path, item in openapi_document()["paths"].items():
        for method, operation in item.items():
            lines.append(_route(path, method, operation))
    lines += [
        "",
        "## Problems",
        "",
        "Errors are `application/problem+json` (RFC 9457) with `type`, `title`, `status`, `detail`.",
    ]
    lines += ["A wrong value adds `field`, `value`, `allowed`; a conflict adds `difference`.", ""]
    lines += ["| status | type | raised as |", "| --- | --- | --- |"]
    lines += [f"| {status} | `{TYPE_PREFIX}{slug}` | {kind.__name__} |" for kind, status, slug in STATUSES]
    lines.append(f"| 500 | `{TYPE_PREFIX}internal-error` | anything else; the log has the traceback |")
    return "\n".join(lines) + "\n"


def _route(path: str, method: str, operation: dict[str, Any]) -> str:
    where = "socket" if "mutations" in operation.get("tags", ()) else "both"
    given = [f"`{item['name']}`" for item in operation.get("parameters", ()) if item["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        given.append(f"body {_schema_name(body)}")
    said = " ".join(operation.get("description", "").split())
    return f"| `{method.upper()} {path}` | {where} | {', '.join(given)} | {said} |"


def _schema_name(schema: dict[str, Any]) -> str:
    options = [schema, *schema.get("anyOf", ())]
    return next((item["$ref"].rpartition("/")[2] for item in options if "$ref" in item), "")
