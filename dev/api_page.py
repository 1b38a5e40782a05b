"""Generate docs/reference/api.md, and the examples in the OpenAPI document, from the routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from textwrap import wrap
from typing import Any, Final, cast
from urllib.parse import quote

import httpx
import structlog

from bundlekeel.api import off_loop
from bundlekeel.api.admission import (
    BODY_SECONDS,
    MAX_BODY_BYTES,
    MAX_CONCURRENT,
    MAX_OPEN,
    MAX_SENDING_BYTES,
    PIECE_BYTES,
)
from bundlekeel.api.app import UNITS, create_app
from bundlekeel.api.problems import EXAMPLE_ID, KINDS, TYPE_PREFIX, problem
from bundlekeel.api.routes.events import HEARTBEAT_SECONDS, MAX_STREAMS, EventStreams
from bundlekeel.api.routes.reads import MOST_ROWS
from bundlekeel.api.server import KEEP_ALIVE_SECONDS, MAX_CONNECTIONS, PROBE_CONNECTIONS, READ_SECONDS
from bundlekeel.api.shield import REQUEST_SECONDS
from bundlekeel.model.errors import CONFLICTS, FORBIDDEN
from bundlekeel.model.parameters import Parameters
from bundlekeel.records.chain import MEMBERS
from bundlekeel.settings.security import ApiAuthSettings
from bundlekeel.views.journal import RECORDS, OtherRecord
from bundlekeel.views.picture import Marks
from bundlekeel.wiring.features import routes
from bundlekeel.wiring.openapi import openapi_document
from dev import NOTE
from dev.markdown import table
from tests.support.shop import BROKERS, BUNDLE, BUNDLES, GROUP, Shop
from tests.support.spied import Spied
from tests.support.world import PATIENT

_INTRO = f"""\
`config/openapi.json` describes each route: role, parameters, fields, statuses, and an example request and response. A
running sidecar serves it as `/api/v1/openapi.json` (role viewer). On TCP without `api.auth` it lacks the routes that
change something, as that port does. This page contains the rest.

**What v1 keeps.** Each release may add routes, fields of responses, optional fields of bodies, and values of text
fields without `enum`. Ignore those that you do not know. `x-extensible-enum` lists the values of this release (below
`propertyNames`: the names of a mapping). Nothing is removed and no meaning changes within v1, except the wording of
sentences. An incompatible form gets `/api/v2` next to v1. What will be removed is `deprecated` in the document and in
the changelog for at least one minor release before. Unknown parameters and fields of a body are refused (422);
`version` of `/whoami` is the release that responds.

The document is OpenAPI 3.1. The types of these generators compile and read the examples:

```text
openapi-python-client generate --path config/openapi.json                                        # Python, 0.29.1
datamodel-codegen --input config/openapi.json --input-file-type openapi --enum-field-as-literal all \\
  --output-model-type pydantic_v2.BaseModel --output bundlekeel.py                               # Python, 0.89.0
oapi-codegen -generate types,client -package bundlekeel -o bundlekeel.go config/openapi.json     # Go, v2.8.2
```

`ogen` v1.24.0 and `oapi-codegen` v2.5.0 refuse the document, because `exclusiveMinimum` is a number since 3.1. Without
`--enum-field-as-literal`, `datamodel-codegen` names a list of words `State`, and not the response of `/state`. Read the
`kind` of a record first: `datamodel-codegen` turns a record that lacks fields into `OtherRecord` without an error. In
Go, use the `Kind` of `AsOtherRecord()`, because `AsMoveRecord()` does not check it.

- **Addresses**: each sidecar responds at `http://127.0.0.1:8090` (`api.host`, `api.port`; `https` with `api.tls`) and
  at its unix socket. It forwards requests that only the leader can fulfil; no route of `/api/v1` redirects. A follower
  requests a plan from the leader, and plans itself if the leader does not respond (`by_leader` is then false). With
  `api.auth` this needs `api.auth.peer_token_file`. Loads, reasons, verdicts and records of cycles are those of the
  requested sidecar. The leader has the newest; `leader` of `GET /state` contains its address.
- **Roles**: without `api.auth`, reads, `POST /plans` and `POST /assignments` need no credentials. All other routes
  exist only on the unix socket (`api.socket`, mode 0600), so TCP cannot change anything. With `api.auth`, TCP has all
  routes. `GET` needs the role viewer (no token with `api.auth.anonymous_reads`), `PUT /mode` admin, everything else
  operator. Send a [token](../operations/security.md#who-may-use-the-api) as `Authorization: Bearer TOKEN`.
- **Host** must be a loopback name, `api.host`, or listed in `api.allowed_hosts` (`*` for any, `.example.com` for a
  domain); else 421. Probes and metrics also accept any IP address, because kubelet and Prometheus use one.
- **Writes** take only `application/json` (415), as a JSON object in UTF-8 (400), from this Origin (403), up to
  {MAX_BODY_BYTES // 1024} KiB (413) within {BODY_SECONDS:.0f} s (408). A request ends after {REQUEST_SECONDS:.0f} s,
  and a read of a store after {off_loop.READ_SECONDS:.0f} s (504). There is no CORS.
- **Names in paths** may contain `/` and `:` or `%2F` and `%3A`, but `?`, `#` and `%` only as `%3F`, `%23` and `%25`. A
  proxy must not change these or merge `//`. Control characters are refused (400).
- **`DELETE`** takes `reason` as a query parameter, or in a body, which some clients and proxies drop. With a body the
  parameter is ignored.
- **HEAD** responds as GET without a body. OPTIONS is refused (405).
- **Request id**: each response contains one as `X-Request-ID`, a problem also as `request_id`. The log lines of the
  request contain it, also the leader's. A request may bring its own: 1 to 128 letters, digits and
  `.` `_` `:` `/` `+` `=` `-`; any other is replaced.
- **Limits**: {MAX_CONCURRENT} concurrent requests (`api.max_concurrent`) and {MAX_CONCURRENT // 4} more for changes;
  else 503 `too-busy`. {MAX_CONNECTIONS} connections (`api.max_connections`), at most a quarter of them from one
  address, and {PROBE_CONNECTIONS} more for `/livez` and `/readyz`. A new connection replaces the one that has been idle
  longest; idle connections are closed after {KEEP_ALIVE_SECONDS} s. {MAX_OPEN} probes in addition to the requests, and
  as many requests of `/metrics` and the page. {MAX_STREAMS} streams of `/events`, at most a quarter of
  `api.max_concurrent`, each of which counts as a request; else 503 `too-many-streams`. Responses in transit:
  {MAX_SENDING_BYTES // 2**20} MiB together; a read above that gets 503 `too-busy`. A client that does not take
  {PIECE_BYTES // 1024} KiB within {READ_SECONDS:.0f} s is disconnected. After
  {ApiAuthSettings().failures_per_minute} wrong credentials per minute an address gets 429.
- **Caches** store nothing (`Cache-Control: no-store`). There is no `ETag`.
- **`by`** in a body names the requester on the unix socket. With `api.auth` it is the name of the credentials.
  `DELETE` takes it only in a body.
- **Events**: `/events` sends the event `change` with marks as JSON, at the start and when one of them differs, the
  comment `: still here` after {HEARTBEAT_SECONDS:.0f} s without a change, and the event `end`. Connect again then.
- **Go**: reach the unix socket by `DialContext` of the transport, with an `IdleConnTimeout` below
  {KEEP_ALIVE_SECONDS} s. Write names in paths with `url.PathEscape`; `JoinPath` merges `//`. A client for `/events`
  must not have a `Timeout`.
- **Page**: `/ui/` is the web page; `/` redirects to it.
- **Probes**: `?verbose` lists the checks as `[+]name ok` and `[-]name reason`; 503 if one fails.

{UNITS}"""

_PROBLEMS = """\
Errors are `application/problem+json` (RFC 9457) with `type`, `title`, `status`, `detail` and `request_id`. A conflict
(409) adds `code` and `difference`, the reasons as text; 403 `forbidden` adds `code`. Probes fail with text (503). A
request that is not HTTP gets 400 with text.

A wrong value (422) adds `errors`, one per fault: `field`, `reason`, and, if known, `value` and `allowed`. The fields of
the first fault are also next to `errors`. A request is compared with the OpenAPI document first, and all its faults are
listed. A value that is refused later (a parameter of a strategy, a member of a quota group) is reported alone."""

_REQUESTS = """\
A dry run shows the change. The same request with a `reason` makes it: the leader executes it as a task. A plan has a
`hash`, and exactly that plan is executed. A manual move is planned again with `execute`; its response contains the
destination, and its `hash` is in `/tasks`. A drain or warm has no `hash`.

```sh
ask() { curl -sS --unix-socket bundlekeel.sock -H Content-Type:application/json "$@"; }
ask -d '{}' http://localhost/api/v1/plans                                                    # a plan, its hash
ask -d '{"reason": "ticket 4711"}' http://localhost/api/v1/plans/5f0c3a1be2d4977a/execute    # 202: task, state
ask http://localhost/api/v1/tasks/req-0000000012                                             # until it has ended
ask -d '{"reason": "too slow"}' http://localhost/api/v1/tasks/req-0000000012/stop            # no further move
```

- **Manual moves and splits** (`transfer`, `unload`, `split`) are dry runs unless `execute` is true; then the response
  contains a `task`. A dry run gets 200 also if it is refused: `refusals` contains what would be a 409, `held` the code
  of a 403 (mode, pause) or of the obstacle that would let the task fail.
- **A task** is `waiting` until the leader takes it, then `running`. Poll it every few seconds. It is not started after
  10 minutes of waiting; without a leader it stays `waiting`, so set your own limit. It is deleted (404) after 50 newer
  tasks. Its end is
    - `done`: at least one bundle moved, or one split was made. `outcome` in each row of `moves` is the result of that
      move; only `done` and `released` are as requested. Splits have no rows: `detail` counts them, and the journal
      lists them.
    - `failed`: no move ended as requested, the task ended early, or its leader is gone. Bundles may have moved: see
      `landed_elsewhere` and `unknown` in `moves`, or the journal if the leader is gone. `detail`, `difference` and the
      `code` of each move contain the reasons.
    - `stopped`: an operator stopped it. Moves that had not started are `refused`.
- **With `review: required`** the state is `proposed`, and `task` is null (an empty string in the response to `execute`
  of a plan and in `GET /reviews`). The `review` of the response is an `id` in `GET /reviews`, which contains the task
  once a second operator has approved it. A proposal is `expired` after a day.
- **Drains and warms** have no task. `GET /operations` shows their progress and the obstacle of all of them (`held`). A
  drained broker stays empty until `uncordon`.
- **200 and 202**: `execute` of a plan and `stop` respond 202, with the task's path as `Location`. All other changes
  respond 200, with that header if they have a `task`. A change with a `task` is not complete yet, also with 200.
- **Other sidecars** show a change within about a second, the requested one immediately.

| status | safe to repeat? |
|---|---|
| 429, 503 `too-busy`, 503 `no-picture` | yes, after `Retry-After`: nothing was started |
| 500, 502, 504, 503 `store-unavailable`, no response | it may have been executed: see below |
| 409 | read `code` first; the result stays the same until the cluster changes |
| 400, 401, 403, 404, 405, 408, 413, 415, 421, 422 | no: change the request first (408: send the body faster) |

After a lost response (504, 500, a broken connection; for changes also 502 and 503 `store-unavailable`, because the
write may have arrived), the request may have been executed:

- **No change at all**: every `GET`, `POST /plans`, `POST /assignments`.
- **Repeat it**: every `PUT`, `drain`, `warm`, `cordon`, `pause`, `resume`. The newer reason counts, and `seconds` start
  again. `resume` also ends a pause that another operator started in between.
- **Repeat it; 404 means it has ended already**: every `DELETE`, `uncordon`.
- **Repeat it; 409 means it was done already**: `approve`, `discard`, `stop`; with `digest` also `thresholds/adopt` and
  `thresholds/revert` (404: nothing is adopted any more). Without `digest` they may adopt a newer proposal, or revert
  an earlier adoption, too.
- **Check first**: `execute` of a plan; `transfer`, `unload` and `split` with `execute`. Each request is another task.
  Search its `hash` in `GET /tasks`, and with `review: required` its `id` in `GET /reviews`. An earlier, equal move has
  the same hash: send a unique `reason`, or compare `left_ms`, the time of the request by the clock of that sidecar. A
  request can appear up to 120 s after it was sent, so wait that long before you repeat it.

The leader checks each task again before it starts. A plan, a transfer or the split of a bundle that was executed before
ends as `failed`, or is refused with 409. Two others can do more when repeated: `unload` moves the bundle again, unless
its cool-down refuses that, and a split of a topic or of `LARGEST` divides again."""

_LISTS = f"""\
Lists with a `limit` (`/bundles`, `/verdicts`, `/journal`, `/channel/bundles`, `/channel/findings`) have pages of at
most {MOST_ROWS} rows. A full page has the header `Link: <ADDRESS>; rel="next"`, with the path and query of the next
page. Other lists are complete: `/tasks` contains the newest 50 that were started or have ended, `/reviews` the newest
50, `/plans` at most 100 of the last 15 minutes that this sidecar made or received. The leader has the most.

**An empty list can mean "not known".** A sidecar without a snapshot or a
[seat](../operations/sizing.md#how-many-sidecars) responds to `/brokers`, `/bundles` and `/verdicts` with 200 and `[]`.
Check first that `/readyz` responds 200 and `seat` of `GET /state` is not null.

```python
import httpx

# Without `timeout` httpx gives up after 5 s, before the sidecar does: then the outcome of a change is unknown.
tcp = httpx.Client(base_url="http://127.0.0.1:8090", timeout={REQUEST_SECONDS + 5:.0f})
address = "/api/v1/bundles?limit=1000"
while address:
    answer = tcp.get(address)
    answer.raise_for_status()  # an error has no Link either
    print(len(answer.json()))
    address = answer.links.get("next", {{}}).get("url")
```

- Loads change between two pages of `/bundles`, so a bundle can appear twice or not at all. If the bundle `after` is
  gone, the response is 404: start again.
- `since_ms` and `until_ms` are inclusive. The next page of `/journal` starts at the oldest record of this one, so
  records of that millisecond appear twice. Use a `limit` above the number of records in a millisecond.
- `kind=move` returns the newest 10,000 moves of all sidecars, `kind=effect` their newest 200 effects, whatever the
  period.
- A sidecar has its newest 2,000 records of all kinds in memory. Without `since_ms` and `until_ms`, `/verdicts` and
  `/journal` return only these, and the moves of all sidecars. For an earlier time they also read the newest 32 MiB of
  the journal's files; `since_ms=1` requests all of them. Older records are only in the files (`journal.path` and
  rotated ones).
- **To follow the journal**: request it from each of `members` of `GET /state` every few seconds, with `since_ms` = the
  newest `wall_ms` that you have, minus 10 minutes, and follow the pages. Identify a move or split by `intent` (if
  empty: by `bundle`, `cycle` and `wall_ms`), a cycle by `cycle` and `wall_ms`, any other by the whole record. Replace
  a move that you have, because it may have its `effect` now. Drop any other record that you have. Records are not in
  the order of their times: a cycle is written after its moves. For effects of all sidecars, add a request with
  `kind=effect`.
- Responses are not compressed. 100,000 rows of `/bundles` are about 60 MB.

There are four ways to say "none", and each field says which is its own. **null**: unknown or none; most fields. **0**:
a time in ms that is not set, a limit that is not known. **Empty string**: no name, code, detail or address. **-1**: no
number where 0 is one: `seat` and `epoch` in `members` (null in `GET /state` itself), `epoch` in a record of a move or
split; no limit in a rate of a topic."""


_RECORDS = """\
`/journal` and the `history` of a `why` contain records. Each has `kind`, `wall_ms` (its time; of a move and a split the
end, of a cycle the time of its snapshot) and `sentence` (for people: do not parse it), and the fields of its kind. They
are always present, unless a line below says "only" or "not". Later releases may add kinds and fields: ignore those that
you do not know. `code` is one of the [codes](codes.md), unless the line says otherwise.

Moves are those of all sidecars, and so are effects with `kind=effect`. All other records are those of the requested
sidecar."""

_LINES = """\
A line of the journal's file (`journal.path`) ends with these fields, which responses omit:"""


def api_page() -> str:
    """Return the page."""
    lines = ["# HTTP API", "", f"<!-- {NOTE} -->", "", _INTRO, ""]
    document = openapi_document()
    routes = [(path, *route) for path, item in document["paths"].items() for route in item.items()]
    for tag in _tags(document):
        of_it = [_route(document, *route) for route in routes if _group(*route) == tag["name"]]
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        lines += [*table(["route", "query and body", "response"], of_it), ""]
    lines += ["## From a dry run to the end", "", _REQUESTS, "", "## Lists", "", _LISTS, ""]
    lines += ["## Records of the journal", "", _RECORDS, ""]
    schemas = document["components"]["schemas"]
    common = schemas[OtherRecord.__name__]["properties"]
    for kind, record in RECORDS.items():
        fields = schemas[record.__name__]["properties"].items()
        lines += [
            f"### `{kind}`",
            "",
            *(_field(name, item["description"]) for name, item in fields if name not in common),
        ]
        lines.append("")
    lines += ["### In the file", "", _LINES, "", *(_field(name, text) for name, text in MEMBERS.items()), ""]
    lines += ["## Problems", "", _PROBLEMS, ""]
    lines += [f"`type` is `{TYPE_PREFIX}` and the word of the second column.", ""]
    problems = ((status, f"`{slug}`", when) for (status, slug), when in KINDS.items())
    lines += table(["status", "type", "when"], problems)
    lines += ["", *_conflict()]
    return "\n".join(lines) + "\n"


def _conflict() -> list[str]:
    """Return the section about conflicts (409): an example, and the codes that a conflict can have."""
    bundle = "shop/orders/0x00000000_0x80000000"
    what = f"{bundle} would no longer move"
    text = f"the inputs changed since the plan was made: {what}"
    with structlog.contextvars.bound_contextvars(request_id=EXAMPLE_ID):
        body = bytes(problem(409, "conflict", text, code="changed", difference=[what]).body)
    return [
        *("A conflict:", "", "```json", json.dumps(json.loads(body), indent=1), "```", ""),
        *wrap(
            "`code` is a [code](codes.md) or one of the words below. Of the codes, those of the mode and of a pause of "
            "everything (`ObserveOnly`, `RecommendOnly`, `Paused`) come with 403; all others, such as "
            "`Paused` of a scope, `CoolDown` and "
            "`StepTooLarge`, with 409.",
            120,
        ),
        "",
        *table(
            ["status", "code", "meaning"],
            (
                (status, f"`{code}`", text)
                for status, words in ((409, CONFLICTS), (403, FORBIDDEN))
                for code, text in words.items()
            ),
        ),
    ]


def _tags(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tags under which routes are listed, in their order."""
    return [tag for tag in document["tags"] if tag["name"] != "mutations"]


def _group(path: str, _: str, operation: dict[str, Any]) -> str:
    """Return the tag under which a route is listed. A route that changes something is next to the reads of the same
    data.
    """
    (tag,) = operation["tags"]
    first = path.removeprefix("/api/v1/").partition("/")[0]
    return tag if tag != "mutations" else first if first in {"plans", "quotas"} else "operations"


def _route(document: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> tuple[str, ...]:
    parameters = [_query(document, item) for item in operation.get("parameters", ()) if item["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        parameters.append(f"body {_schema_name(body)}")
    description = " ".join([f"{operation['summary']}.", *operation.get("description", "").split()])
    return f"`{method.upper()} {path}`", ", ".join(parameters), description


def _field(name: str, text: str) -> str:
    return f"- `{name}`: {text}"


def _query(document: dict[str, Any], item: dict[str, Any]) -> str:
    """Return a query parameter with its allowed values, and with its default if it has one."""
    options = [item["schema"], *item["schema"].get("anyOf", ())]
    if name := _schema_name(item["schema"]):
        options.append(document["components"]["schemas"][name])
    schema = {key: value for option in reversed(options) for key, value in option.items()}
    if "enum" in schema:
        kind = f"one of {', '.join(schema['enum'])}"
    elif "maximum" in schema:
        kind = f"{schema['minimum']} to {schema['maximum']}"
    else:
        kind = ""
    default = item["schema"].get("default")
    if item["required"]:
        kind = kind or "required"
    elif kind and default is not None:
        kind += f", default {json.dumps(default)}"
    return f"`{item['name']}`{f' ({kind})' if kind else ''}"


def _schema_name(schema: dict[str, Any]) -> str:
    options = [schema, *schema.get("anyOf", ())]
    return next((item["$ref"].rpartition("/")[2] for item in options if "$ref" in item), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example request of one route, from the OpenAPI document."""

    operation: dict[str, Any]
    method: str
    route: str
    path: str
    query: dict[str, str]
    body: Any

    @property
    def socket(self) -> bool:
        """Whether the request changes something. Without credentials, only the unix socket accepts such requests."""
        return "mutations" in self.operation["tags"]


def examples(document: dict[str, Any]) -> Iterator[Example]:
    """Yield the examples of each route. Raises KeyError if the document has none for a route."""
    schemas = document["components"]["schemas"]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            filled, query, body = path, {}, None
            for parameter in operation.get("parameters", ()):
                schema = parameter["schema"]
                if parameter["in"] == "path":
                    filled = filled.replace(f"{{{parameter['name']}}}", quote(schema["examples"][0], safe="/:"))
                elif "examples" in schema:
                    query[parameter["name"]] = schema["examples"][0]
            # The reason of a `DELETE` may be in its query, which every client can send.
            if method == "delete":
                query["reason"] = schemas["ReasonBody"]["properties"]["reason"]["examples"][0]
            elif "requestBody" in operation:
                name = _schema_name(operation["requestBody"]["content"]["application/json"]["schema"])
                body = schemas[name]["examples"][0]
            yield Example(operation=operation, method=method, route=path, path=filled, query=query, body=body)


def answers_text() -> str:
    """Return service/bundlekeel/api/examples.json: the answer to each example, for the OpenAPI document."""
    requests = list(examples(openapi_document()))
    answers = zip(requests, asyncio.run(_answers(requests)), strict=True)
    by_route = {f"{request.method.upper()} {request.route}": answer for request, answer in answers}
    return json.dumps(by_route, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


_WHO: Final = {"reason": "ticket 4711", "by": "ann"}
# Ids in the examples of the document. They replace the ids in the sidecar's responses, which differ in each run.
_HASH, _TASK, _PROPOSED = "5f0c3a1be2d4977a", "req-0000000012", "94fe0fdfef36d278"
_REVIEWED: Final = frozenset(
    ("GET /api/v1/reviews", *(f"POST /api/v1/reviews/{{id}}/{word}" for word in ("approve", "discard")))
)


async def _answers(requests: list[Example]) -> list[Any]:
    """Return the response to each example: a read is sent to the TCP port, a change to the unix socket.

    Each request is sent to a new sidecar that already has a plan, a task, and the object that the request ends or
    decides on, such as a drain or a review.
    """
    service = Spied(Shop().service)
    streams = EventStreams(heartbeat=0.0)
    apps = [
        create_app(cast(Any, service), mutations=mutations, streams=streams, features=routes())
        for mutations in (False, True)
    ]
    answers = []
    for example in requests:
        route = f"{example.method.upper()} {example.route}"
        params = PATIENT if route.endswith("/warm") else Parameters()
        shop = await Shop(params=params, review=route in _REVIEWED).open()
        ids = await _prepare(shop, route)
        # A stream contains a change, a heartbeat and the end, however slow the machine is.
        service.results["changes"] = _Ends(streams)
        service.target = shop.service
        transport = httpx.ASGITransport(apps[example.socket])
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = json.dumps(await _answer(client, _with_ids(example, ids)))
        for placeholder, real in ids.items():
            answer = answer.replace(real, placeholder)
        answers.append(json.loads(answer))
    return answers


class _Ends:
    """A function that ends event streams when it is called for the second time."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams, self._looks = streams, count(1)

    def __call__(self, marks: Marks) -> Marks:
        if next(self._looks) == 2:
            self._streams.close()
        return marks


def _with_ids(example: Example, ids: Mapping[str, str]) -> Example:
    path, body = example.path, json.dumps(example.body)
    for placeholder, real in ids.items():
        path, body = path.replace(placeholder, real), body.replace(placeholder, real)
    return replace(example, path=path, body=json.loads(body))


async def _prepare(shop: Shop, route: str) -> dict[str, str]:
    """Make the operators' requests that the example of a route needs. Return the sidecar's ids by those of the
    document.
    """
    service, requests = shop.service, shop.service.requests
    if "/channel" in route:
        shop.follow_channel()
    if "/thresholds" in route:
        return await _prepare_thresholds(shop, route)

    async def pin(bundle: str) -> None:
        await requests.pin(bundle, seconds=None, **_WHO)

    before: dict[str, Callable[[], Awaitable[Any]]] = {
        "POST /api/v1/brokers/{broker}/uncordon": lambda: requests.cordon(BROKERS[1], **_WHO),
        "GET /api/v1/state": lambda: _recommend(shop),
        "GET /api/v1/plans/{hash}": lambda: pin(BUNDLES[6]),
        "POST /api/v1/bundles/{bundle}/unload": lambda: requests.cordon(BROKERS[1], **_WHO),
        "GET /api/v1/bundles": lambda: pin(BUNDLES[3]),
        "GET /api/v1/bundles/{bundle}/why": lambda: pin(BUNDLE),
        "POST /api/v1/plans": lambda: pin(BUNDLES[6]),
        "POST /api/v1/brokers/{broker}/drain": lambda: pin(BUNDLES[2]),
        "POST /api/v1/namespaces/{namespace}/unload": lambda: pin(BUNDLES[3]),
        "POST /api/v1/bundles/{bundle}/transfer": lambda: requests.cordon(BROKERS[1], **_WHO),
        "POST /api/v1/brokers/{broker}/warm": lambda: _relieve(shop),
        "DELETE /api/v1/pins/{bundle}": lambda: pin(BUNDLE),
        "DELETE /api/v1/exclusions/{pattern}": lambda: requests.exclude("n:shop/orders", seconds=None, **_WHO),
        "DELETE /api/v1/pauses/{scope}": lambda: requests.pause_scope("tenant:shop", seconds=None, **_WHO),
        "DELETE /api/v1/quotas/{name}/override": lambda: service.features["quotas"].remove(GROUP, **_WHO),
        "GET /api/v1/operations": lambda: _ask_for_everything(shop),
    }
    if route in before:
        await before[route]()
    plan = await shop.plan(ignore_hit_counts=True)
    ids = {_HASH: plan.hash}
    if route in _REVIEWED:
        await service.execute(plan.hash, **_WHO)
    elif "/execute" not in route and "/tasks" in route:
        ids[_TASK] = (await service.execute(plan.hash, **_WHO)).task
    elif route in ("GET /api/v1/journal", "GET /api/v1/summary"):
        await service.execute(plan.hash, **_WHO)
        await shop.turns(2)
    return ids


async def _prepare_thresholds(shop: Shop, route: str) -> dict[str, str]:
    thresholds = shop.calibration
    if route.endswith("/thresholds/revert") or route == "GET /api/v1/thresholds":
        digest = (await thresholds.adopt(digest=None, force=False, **_WHO)).digest
        return {_HASH: digest} if route.endswith("revert") else {_PROPOSED: digest}
    document = (await thresholds.view()).document
    return {_PROPOSED: str(document["digest"])} if document is not None else {}


async def _recommend(shop: Shop) -> None:
    await shop.service.set_mode("recommend", **_WHO)
    await shop.turns()


async def _relieve(shop: Shop) -> None:
    """Give the second broker little load, until the averages of its reports also show little load."""
    shop.page_cluster.shares |= dict.fromkeys(BUNDLES[2:4], 0.0)
    await shop.turns(12)


async def _ask_for_everything(shop: Shop) -> None:
    requests = shop.service.requests
    await requests.drain(BROKERS[1], dry_run=False, **_WHO)
    await requests.warm(BROKERS[2], dry_run=False, **_WHO)
    await requests.pin(BUNDLES[2], seconds=None, **_WHO)
    await requests.exclude("t:acme", seconds=None, **_WHO)
    await requests.pause_scope("tenant:acme", seconds=3600.0, **_WHO)
    await shop.turns(2)
    await requests.cordon(BROKERS[0], **_WHO)


async def _answer(client: httpx.AsyncClient, example: Example) -> Any:
    """Return the JSON or text of a response. Raises HTTPStatusError if the request is refused."""
    answer = await client.request(example.method, example.path, params=example.query, json=example.body)
    answer.raise_for_status()
    if example.route == "/metrics":
        return "\n".join(line for line in answer.text.splitlines() if "bundlekeel_leader " in line)
    return _cut(answer.json()) if answer.headers["content-type"] == "application/json" else answer.text.strip()


def _cut(value: Any) -> Any:
    """Shorten the lists in a response to their first item. Lists of numbers or names stay complete."""
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items()}
    if not isinstance(value, list) or all(isinstance(item, int | float | str) for item in value):
        return value
    return [_cut(item) for item in value[:1]]
