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
All fields, of bodies too: `config/openapi.json`. A running sidecar serves it as `/api/v1/openapi.json` (role viewer);
on TCP without `api.auth` it lacks the routes marked *socket*, which that port does not have. The document contains an
example request and response of each route.

**What v1 keeps.** Any release may add routes to `/api/v1`, fields to answers, optional fields to bodies, and words
to every field of text that has no `enum`. Ignore those that you do not know. `x-extensible-enum` lists
the words of this release, of the names of a mapping below `propertyNames`. What is there is not removed and does not
change its meaning within v1, but for the wording of sentences: an incompatible form gets `/api/v2` beside v1. What is
to go is named `deprecated` in the OpenAPI document and in the changelog for at least one minor release before. A field
of a body or a parameter that is not known is refused (422): `version` of `/whoami` says which release answers.

The document is OpenAPI 3.1; `openapi-spec-validator` 0.9.0 has no complaint. The types of these generators compile and
read the examples of `/state` and `/journal`, and a record of a kind that they do not know (`OtherRecord`):

```text
openapi-python-client generate --path config/openapi.json                                        # Python, 0.29.1
datamodel-codegen --input config/openapi.json --input-file-type openapi --enum-field-as-literal all \\
  --output-model-type pydantic_v2.BaseModel --output bundlekeel.py                               # Python, 0.89.0
oapi-codegen -generate types,client -package bundlekeel -o bundlekeel.go config/openapi.json     # Go, v2.8.2
```

`ogen` v1.24.0 and `oapi-codegen` v2.5.0 refuse the document: `exclusiveMinimum` is a number since 3.1. Without
`--enum-field-as-literal` `datamodel-codegen` gives the name `State` to a word list, and not to the answer of `/state`.
A record that lacks fields of its kind becomes `OtherRecord` in `datamodel-codegen` without an error: look at `kind`.
In Go look at the `Kind` of `AsOtherRecord()` first: `AsMoveRecord()` does not.

- **Where**: each sidecar answers, at `http://127.0.0.1:8090` (`api.host`, `api.port`; `https` with `api.tls`, with a
  certificate of the client where `client_ca_file` asks for one) and at its unix socket. What only
  the leader can do is passed on to it; no route of `/api/v1` sends you elsewhere. A follower that is asked for a plan
  asks the leader, and plans by itself when that does not answer (`by_leader` is false then). With `api.auth` asking
  the leader needs `api.auth.peer_token_file`. Loads, reasons, verdicts and records of cycles are those of the sidecar
  that is asked: the leader has the newest, and `leader` of `GET /state` has its address.
- **Who may**: without `api.auth`, reads, `POST /plans` and `POST /assignments` need no credentials, and routes marked
  *socket* exist only on the unix socket (`api.socket`, mode 0600), their dry runs too: TCP has no route that changes
  anything. With `api.auth` TCP has all routes: `GET` needs role viewer (no token with `api.auth.anonymous_reads`),
  everything else operator, the mode admin. A [token](../operations/security.md#who-may-use-the-api) is sent as
  `Authorization: Bearer TOKEN`.
- **Host** must be a loopback name, `api.host`, or listed in `api.allowed_hosts` (`*` for any, `.example.com` for a
  domain); else 421. Probes and metrics also answer to any IP address, because kubelet and Prometheus ask so.
- **Writes** take `application/json` only (415), mutations a JSON object in UTF-8 (400), of this Origin only (403),
  up to {MAX_BODY_BYTES // 1024} KiB (413) that arrive within {BODY_SECONDS:.0f} s (408). A request ends after
  {REQUEST_SECONDS:.0f} s, and a read that waits for a store after {off_loop.READ_SECONDS:.0f} s (504).
  There is no CORS.
- **Names in paths** (bundles, topics, namespaces, patterns) may be written as they are or with `%2F` and `%3A`; `?`,
  `#` and `%` in them only as `%3F`, `%23` and `%25`. A proxy in between must leave both alone, and must not merge `//`.
- **`DELETE`** takes its `reason` as a parameter of the query or, like the others, in a body, which some clients and
  proxies do not pass on. With a body the query's is not read.
- **Paths** with control characters are refused (400).
- **HEAD** answers as GET does, without a body. OPTIONS is not answered (405).
- **Request id**: each answer has one as `X-Request-ID`, a problem as `request_id` in its body too. The log lines of the
  request name it, so a 500 leads to its traceback; where a follower asks the leader, those of both. A request may bring
  its own: 1 to 128 letters, digits and `.` `_` `:` `/` `+` `=` `-`; any other is replaced.
- **Limits**: {MAX_CONCURRENT} requests at once (`api.max_concurrent`), and {MAX_CONCURRENT // 4} more
  that only changes may use; else 503 `too-busy`. {MAX_CONNECTIONS} connections
  (`api.max_connections`), a quarter of them from one address, and {PROBE_CONNECTIONS} more
  for `/livez` and `/readyz` alone. A new connection takes the place of the one that has waited longest for a request;
  idle connections are closed after {KEEP_ALIVE_SECONDS} s. {MAX_OPEN} probes
  at once in addition to the requests, and as many of `/metrics` and the page. {MAX_STREAMS} streams of `/events`, at
  most a quarter of `api.max_concurrent`, each of which counts as a request; else 503 `too-many-streams`.
  Responses that are being sent may have {MAX_SENDING_BYTES // 2**20} MiB together: a read that would exceed that
  gets 503 `too-busy`. A client that does not take {PIECE_BYTES // 1024} KiB within {READ_SECONDS:.0f} s is cut off.
  After {ApiAuthSettings().failures_per_minute} wrong credentials in a minute an address gets 429.
  There is no other limit of rate.
- **Caches** keep nothing (`Cache-Control: no-store`); there is no `ETag`.
- **`by`** in a body says who asks, on the unix socket; with `api.auth` it is the name of the credentials. `DELETE`
  takes it in a body only, not in its query.
- **Events**: `/events` sends the event `change` with marks as JSON, at the beginning and when one of them differs, the
  comment `: still here` after {HEARTBEAT_SECONDS:.0f} s without a change, and the event `end` before the stream ends:
  ask again then.
- **Go**: reach the unix socket by `DialContext` of the transport, and let its `IdleConnTimeout` be below
  {KEEP_ALIVE_SECONDS} s. Write names in paths with `url.PathEscape`; `JoinPath` merges `//`. A client for `/events` has
  no `Timeout`: that would end the stream.
- **Page**: `/ui/` is the web page, with a policy of its own; `/` leads there.
- **Probes**: `?verbose` lists the checks as `[+]name ok` and `[-]name reason`; 503 when one fails.

{UNITS}"""

_PROBLEMS = """\
Errors are `application/problem+json` (RFC 9457) with `type`, `title`, `status`, `detail` and `request_id`. A conflict
(409) adds `code`, the reason, and `difference`, the reasons as text; what is forbidden (403 `forbidden`) adds `code`.
Probes fail as text (503). What is no HTTP gets 400 as text without an id. The document lists the statuses of each
route, with an example of each.

A wrong value (422) adds `errors`: for each fault `field`, `reason`, and, where they are known, `value` (what was given)
and `allowed`. `field`, `value` and `allowed` beside `errors` are those of the first fault. A request is compared with
the OpenAPI document first, and all faults of that are listed. What is refused where it is used (a parameter of a
strategy, a member of a quota group) comes alone."""

_REQUESTS = """\
A dry run says what would be done. Then the same is asked for with a `reason`, and the leader carries it out as a task.
A plan has a `hash`, and exactly that plan is carried out. A move by hand is planned anew with `execute`: the answer
says where to, and its `hash` finds it in `/tasks`. A drain or a warm has no `hash`.

```sh
ask() { curl -sS --unix-socket bundlekeel.sock -H Content-Type:application/json "$@"; }
ask -d '{}' http://localhost/api/v1/plans                                                    # a plan, its hash
ask -d '{"reason": "ticket 4711"}' http://localhost/api/v1/plans/5f0c3a1be2d4977a/execute    # 202: task, state
ask http://localhost/api/v1/tasks/req-0000000012                                             # until it has ended
ask -d '{"reason": "too slow"}' http://localhost/api/v1/tasks/req-0000000012/stop            # no further move
```

- **Moves and splits by hand** (`transfer`, `unload`, `split`) are dry runs until `execute` is true. Then the answer has
  a `task`, too. A dry run answers 200 also when it is refused. `refusals` is what would be a 409 with `execute`.
  `held` is the code of the mode or pause that would be a 403, or of what keeps the leader from moving anything:
  then the task would fail.
- **A task** is `waiting` until the leader takes it, then `running`. Ask every few seconds. After 10 minutes of waiting
  it is not begun any more. While nobody leads it stays `waiting`: end your asking by a time of your own. Once 50
  newer tasks have begun or ended it is forgotten (404). It ends as
    - `done`: carried out. Of a plan, or of the unload of a namespace, at least one bundle moved: each row of `moves`
      says by its `outcome` what became of it. Only `done` and `released` did as asked. Of a plan with splits, one
      split is enough. Splits have no row in `moves`: `detail` counts them, and the journal has each.
    - `failed`: nothing ended as asked, or it ended before all was begun, or its leader is gone. Bundles may have moved
      all the same: see `landed_elsewhere` and `unknown` in `moves`; where the leader is gone the journal has them.
      `detail`, `difference` and the `code` of each of `moves` say why.
    - `stopped`: somebody stopped it. What was not begun is `refused` in `moves`.
- **With `review: required`** the state is `proposed` and there is no task: `GET /reviews` has it (its `id` is the
  answer's `review`), with its `task` once a second person has approved it. `task` is null until then (empty text in
  the answer to `execute` of a plan and in `GET /reviews`). After a day without a task it is `expired`.
- **Drains and warms** have no task: `GET /operations` says how far they are, and what holds all of them (`held`). A
  drained broker is kept empty until `uncordon`.
- **200 and 202**: `execute` of a plan and `stop` answer 202, with the task's path as `Location`. All other changes
  answer 200, with that header where they have a `task`. 200 does not say that a move is done: what has a `task` is
  left for the leader, as with 202.
- **Other sidecars** show a change within about a second; the one that was asked shows it at once.

| status | safe to send again? |
|---|---|
| 429, 503 `too-busy`, 503 `no-picture` | yes, after `Retry-After`: nothing was begun |
| 500, 502, 504, 503 `store-unavailable`, no answer | it may have been carried out: by the rules below |
| 409 | look at `code` first; the same request gets the same answer while things are as they are |
| 400, 401, 403, 404, 405, 408, 413, 415, 421, 422 | no: change the request first (408: send the body faster) |

When an answer is lost (504, 500, a broken connection, and of a change also 502 and 503 `store-unavailable`, because
its write may have arrived), the request may have been carried out, or not. With any other 503 nothing was begun.

- **Changes nothing**: every `GET`, `POST /plans`, `POST /assignments`.
- **May be sent again**: every `PUT`, `drain`, `warm`, `cordon`, `pause`, `resume`. The same holds then, with the newer
  reason; `seconds` begin anew. `resume` also ends a pause that somebody began meanwhile.
- **May be sent again, 404 when it is ended already**: every `DELETE`, `uncordon`.
- **May be sent again, 409 when that is decided, ended or in force already**: `approve`, `discard`, `stop`, and with
  their `digest` `thresholds/adopt` and `thresholds/revert` (404 when nothing is adopted any more). Without it they may
  adopt a proposal that came meanwhile, or take back what earlier nights adopted, too.
- **Look first**: `execute` of a plan, and `transfer`, `unload` and `split` with `execute`. Each that is sent is a task
  of its own. Look for its `hash` in `GET /tasks`, with `review: required` also in `GET /reviews`, whose `id` it is. The
  same move made earlier has the same hash: put something into each `reason` that no other has, and look for that, too.
  Or compare `left_ms`, when it was asked for by the clock of the sidecar that was asked, which may differ from yours.
  What is not there may still come until 120 s after it was sent: look until then before you send again.

The leader looks at each task again right before it begins: a plan, a transfer or the split of a bundle that was carried
out already ends as `failed` (`difference` says why), or is refused at once (409). Two may do more when they are sent
again later: an `unload` moves the bundle on, unless its cool-down refuses that, and a split that names a topic or
`LARGEST` divides again."""

_LISTS = f"""\
Lists with a `limit` (`/bundles`, `/verdicts`, `/journal`, `/channel/bundles`, `/channel/findings`) are cut at it. A
full one has the header `Link: <ADDRESS>; rel="next"`: ask that address (a path and a query, of the same server) for the
page that follows, until an answer has no such header. A page has at most {MOST_ROWS} rows; a higher `limit` is refused.
Other lists are whole, of what is kept: `/tasks` has the newest
50 that began or ended, `/reviews` the newest 50, `/plans` those of the last 15 minutes, at most 100,
that this sidecar made or was asked for: the leader has the most.

**An empty list is no proof.** A sidecar that has no picture yet (it has read nothing, or has no
[seat](../operations/sizing.md#how-many-sidecars)) answers `/brokers`, `/bundles` and `/verdicts` with 200 and `[]`, and
not with 503. Ask first: `/readyz` answers 200, and `seat` of `GET /state` is not null.

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

- Loads change between two pages of `/bundles`, so a bundle may come twice, or not at all. When the bundle `after` is
  gone, the answer is 404: begin again.
- `since_ms` and `until_ms` are inclusive: a record of that very millisecond is in the answer. The next page of
  `/journal` begins at the oldest record of this one, so records of that millisecond come twice. A page of one
  millisecond is followed by what is before it: take a `limit` above the records of a millisecond.
- With `kind=move` the newest 10,000 moves of all sidecars are there, and with `kind=effect` their newest 200 effects,
  whatever time is asked for: an answer without `Link` has all that is kept.
- Of its own records a sidecar has the newest 2,000 of all kinds together in memory. Without `since_ms` and `until_ms`
  (both 0) `/verdicts` and `/journal` look through these alone (and moves of all sidecars), and an answer without `Link`
  has all of these. With a time that they do not reach back to, the newest 32 MiB of the journal's files are read too:
  `since_ms=1` asks for all of them. Next pages ask for a time. What is older is in the files alone (`journal.path` and
  its rotated ones).
- **To follow the journal**: ask each of `members` of `GET /state` every few seconds with `since_ms` = the newest
  `wall_ms` you have of it, less 10 minutes, and follow the pages. Compare a move or split by `intent` (empty when it
  was never begun: then by `bundle`, `cycle` and `wall_ms`), a cycle by `cycle` and `wall_ms`, any other by the whole
  record. Moves are the same on all sidecars; all other records belong to the sidecar that was asked. Replace a move
  that you have: it may have its `effect` by now. Drop any other record that you have. The order in which records appear
  is not that of their times: a cycle is written after its moves. For effects of all sidecars ask with `kind=effect`,
  too.
- Answers are not compressed. 100,000 rows of `/bundles` are about 60 MB.
- A time that is not set (an end that a person sets, something that has not happened yet) is null or 0, as its field
  says; treat both as none.

There are four ways to say "none", and each field says which is its own. **null**: not known, or there is none; most
fields have it. **0**: a time in ms that is not set, and a limit that is not known. **Empty text**: no name, code,
detail or address. **-1**: no number where 0 is one: `seat` and `epoch` of a sidecar in `members` (of
`GET /state` itself they are null), `epoch` in a record of a move or split; no limit in a rate written to a topic."""


_RECORDS = """\
`/journal` and the `history` of a `why` have records: objects with the fields of their `kind`. Each has `kind`,
`wall_ms` (when it happened; of a move and a split: when it ended; of a cycle: the time of its picture) and `sentence`
(the same in words, for people: do not parse it). The other fields are always there, unless the table says "only" or
"not". Later releases may have further kinds and fields: ignore those you do not know. Codes are those of
[Codes](codes.md) where nothing else is said.

Moves are those of all sidecars; so are effects, where `kind=effect` is asked for. All other records, and effects
without that, are those of the sidecar that is asked: ask each of them for the whole (`members` of `GET /state` has
their addresses)."""

_LINES = """\
A line of the journal's file (`journal.path`) ends with these fields, which answers leave out:"""


def api_page() -> str:
    """Return the page."""
    lines = ["# HTTP API", "", f"<!-- {NOTE} -->", "", _INTRO, ""]
    document = openapi_document()
    routes = [(path, *route) for path, item in document["paths"].items() for route in item.items()]
    for tag in _tags(document):
        of_it = [_route(document, *route) for route in routes if _group(*route) == tag["name"]]
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        lines += [*table(["route", "role", "where", "query and body", "answer"], of_it), ""]
    lines += ["## From a dry run to the end", "", _REQUESTS, "", "## Lists", "", _LISTS, ""]
    lines += ["## Records of the journal", "", _RECORDS, ""]
    schemas = document["components"]["schemas"]
    records = [
        (kind, f"`{field}`", item["description"])
        for kind, record in RECORDS.items()
        for field, item in schemas[record.__name__]["properties"].items()
        if field not in schemas[OtherRecord.__name__]["properties"]
    ]
    lines += [*table(["kind", "field", "what it holds"], records), "", _LINES, ""]
    lines += [*table(["field", "what it holds"], ((f"`{field}`", text) for field, text in MEMBERS.items())), ""]
    lines += ["## Problems", "", _PROBLEMS, ""]
    lines += [f"`type` is `{TYPE_PREFIX}` and the word of the second column.", ""]
    problems = ((status, f"`{slug}`", when) for (status, slug), when in KINDS.items())
    lines += table(["status", "type", "when"], problems)
    lines += ["", *_conflict()]
    return "\n".join(lines) + "\n"


def _conflict() -> list[str]:
    """A 409 as an example, and its codes."""
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
            ["status", "code", "what it means"],
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
    where = "socket" if "mutations" in operation.get("tags", ()) else "both"
    parameters = [_query(document, item) for item in operation.get("parameters", ()) if item["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        parameters.append(f"body {_schema_name(body)}")
    description = " ".join([f"{operation['summary']}.", *operation.get("description", "").split()])
    return f"`{method.upper()} {path}`", _role(operation), where, ", ".join(parameters), description


def _role(operation: dict[str, Any]) -> str:
    return next((roles[0] for need in operation.get("security", ()) for roles in need.values()), "anybody")


def _query(document: dict[str, Any], item: dict[str, Any]) -> str:
    """A parameter of the query with what it takes, and its default where that is not "none"."""
    options = [item["schema"], *item["schema"].get("anyOf", ())]
    if name := _schema_name(item["schema"]):
        options.append(document["components"]["schemas"][name])
    schema = {key: value for option in reversed(options) for key, value in option.items()}
    if "enum" in schema:
        kind = f"one of {', '.join(schema['enum'])}"
    elif "minimum" in schema:
        kind = f"{schema['minimum']} to {schema['maximum']}" if "maximum" in schema else f"from {schema['minimum']} on"
    elif "maxLength" in schema:
        kind = f"up to {schema['maxLength']} characters"
    else:
        kind = {"boolean": "true or false"}.get(schema["type"], schema["type"])
    default = item["schema"].get("default")
    if item["required"]:
        kind += ", required"
    elif default not in (None, ""):
        kind += f", default {json.dumps(default)}"
    return f"`{item['name']}` ({kind})"


def _schema_name(schema: dict[str, Any]) -> str:
    options = [schema, *schema.get("anyOf", ())]
    return next((item["$ref"].rpartition("/")[2] for item in options if "$ref" in item), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request of one route, of the examples in the OpenAPI document."""

    operation: dict[str, Any]
    method: str
    route: str
    path: str
    query: dict[str, str]
    body: Any

    @property
    def socket(self) -> bool:
        """Whether it changes something, which only the unix socket takes without credentials."""
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
# Ids in the examples of the document. A response of the sidecar has others, which are replaced.
_HASH, _TASK, _PROPOSED = "5f0c3a1be2d4977a", "req-0000000012", "94fe0fdfef36d278"
_REVIEWED: Final = frozenset(
    ("GET /api/v1/reviews", *(f"POST /api/v1/reviews/{{id}}/{word}" for word in ("approve", "discard")))
)


async def _answers(requests: list[Example]) -> list[Any]:
    """Return the response to each example: a read is sent to the TCP port, a change to the unix socket.

    Each is sent to a new sidecar, which has a plan, a task, and what the example ends or decides.
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
        # A change, a heartbeat and the end, however slow the machine is.
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
    """Ends the streams when it is called a second time."""

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
    """Let operators have made requests. Returns the ids of the sidecar, by those of the document."""
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
    """Let the second broker have little load, also by the averages of its reports."""
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
    """Lists with their first item alone, those of figures and names whole."""
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items()}
    if not isinstance(value, list) or all(isinstance(item, int | float | str) for item in value):
        return value
    return [_cut(item) for item in value[:1]]
