"""docs/reference/api.md and api-examples.md, made from the OpenAPI document."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import quote

from bundlekeel.api.admission import BODY_SECONDS, MAX_BODY_BYTES
from bundlekeel.api.app import openapi_document
from bundlekeel.api.problems import STATUSES, TYPE_PREFIX
from bundlekeel.api.shield import REQUEST_SECONDS
from dev import NOTE
from dev.markdown import table

_INTRO = f"""\
All fields: `config/openapi.json`, which a running sidecar serves as `/api/v1/openapi.json`. Answers may get further
fields with later releases; requests with a field that is not known are refused. A request of each route with curl and
httpx: [examples](api-examples.md).

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
    routes = ((path, *route) for path, item in openapi_document()["paths"].items() for route in item.items())
    lines += table(["route", "where", "parameters", "answer"], (_route(*route) for route in routes))
    lines += [
        "",
        "## Problems",
        "",
        "Errors are `application/problem+json` (RFC 9457) with `type`, `title`, `status`, `detail`.",
    ]
    lines += ["A wrong value adds `field`, `value`, `allowed`; a conflict adds `difference`.", ""]
    problems = [(status, f"`{TYPE_PREFIX}{slug}`", kind.__name__) for kind, status, slug in STATUSES]
    problems.append((500, f"`{TYPE_PREFIX}internal-error`", "anything else; the log has the traceback"))
    lines += table(["status", "type", "raised as"], problems)
    return "\n".join(lines) + "\n"


def _route(path: str, method: str, operation: dict[str, Any]) -> tuple[str, ...]:
    where = "socket" if "mutations" in operation.get("tags", ()) else "both"
    given = [f"`{item['name']}`" for item in operation.get("parameters", ()) if item["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        given.append(f"body {_schema_name(body)}")
    said = " ".join(operation.get("description", "").split())
    return f"`{method.upper()} {path}`", where, ", ".join(given), said


def _schema_name(schema: dict[str, Any]) -> str:
    options = [schema, *schema.get("anyOf", ())]
    return next((item["$ref"].rpartition("/")[2] for item in options if "$ref" in item), "")


_EXAMPLES = """\
One request a route, once with curl and once with [httpx](https://www.python-httpx.org/); where answers and fields are
described: [HTTP API](api.md). Reads go to the TCP port (`api.port`), changes to the unix socket (`api.socket`), which
needs no credentials. Where `api.auth` is configured both go to the TCP port with a token of the role that is named:
`curl -H "Authorization: Bearer $TOKEN"`, and `headers` as below. What moves bundles is a dry run until `execute` is
true.

```python
import httpx

headers = {}  # {"Authorization": f"Bearer {token}"}
tcp = httpx.Client(base_url="http://127.0.0.1:8090", headers=headers)
socket = httpx.Client(transport=httpx.HTTPTransport(uds="bundlekeel.sock"), base_url="http://localhost")
```"""


def examples_page() -> str:
    """docs/reference/api-examples.md: a request of each route, of the examples in the OpenAPI document."""
    lines = ["# HTTP API: examples", "", f"<!-- {NOTE} -->", "", _EXAMPLES, ""]
    document = openapi_document()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            lines += _example(path, method, operation, document["components"]["schemas"])
    return "\n".join(lines)


def _example(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """A section: what the route does, who may, and the two requests. KeyError where the document has no example."""
    query = {}
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(schema["examples"][0], safe="/:"))
        elif "examples" in schema:
            query[parameter["name"]] = schema["examples"][0]
    body = None
    if "requestBody" in operation:
        name = _schema_name(operation["requestBody"]["content"]["application/json"]["schema"])
        body = schemas[name]["examples"][0]
    socket = "mutations" in operation["tags"]
    stream = "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
    role = next((roles[0] for need in operation.get("security", ()) for roles in need.values()), "anybody")
    return [
        f"## {operation['summary']}",
        "",
        f"`{method.upper()} {path}`, role {role}",
        "",
        "```sh",
        _curl(path, method, query, body, socket=socket, stream=stream),
        "```",
        "",
        "```python",
        _httpx(path, method, query, body, client="socket" if socket else "tcp", stream=stream),
        "```",
        "",
    ]


def _curl(path: str, method: str, query: dict[str, str], body: Any, *, socket: bool, stream: bool) -> str:
    words = ["curl", "-sN" if stream else "-s"]
    words += ["--unix-socket", "bundlekeel.sock"] if socket else []
    words += [] if method == ("get" if body is None else "post") else ["-X", method.upper()]
    words += ["--json", json.dumps(body)] if body is not None else []
    words += ["--get", *(f"--data-urlencode={name}={value}" for name, value in query.items())] if query else []
    words.append(("http://localhost" if socket else "http://127.0.0.1:8090") + path)
    return shlex.join(words)


def _httpx(path: str, method: str, query: dict[str, str], body: Any, *, client: str, stream: bool) -> str:
    if stream:
        return (
            f'with {client}.stream("GET", "{path}", timeout=30) as answer:\n'
            "    for line in answer.iter_lines():\n        print(line)"
        )
    more = (f", params={query!r}" if query else "") + (f", json={body!r}" if body is not None else "")
    # httpx has no body for `delete`.
    call = f'request("DELETE", "{path}"' if method == "delete" else f'{method}("{path}"'
    return f"{client}.{call}{more})"
