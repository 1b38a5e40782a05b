"""Generate docs/reference/api.md, and the examples in the OpenAPI document, from the routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, cast
from urllib.parse import quote

import httpx
import structlog

from bundlekeel.api import admission, app, off_loop, problems, server, shield
from bundlekeel.api.problems import problem
from bundlekeel.api.routes import events, reads
from bundlekeel.api.routes.events import EventStreams
from bundlekeel.model.errors import CONFLICTS, FORBIDDEN
from bundlekeel.model.parameters import Parameters
from bundlekeel.records.chain import MEMBERS
from bundlekeel.settings.security import ApiAuthSettings
from bundlekeel.views.journal import RECORDS, OtherRecord
from bundlekeel.views.picture import Marks
from bundlekeel.wiring.features import routes
from bundlekeel.wiring.openapi import openapi_document
from dev import NOTE
from dev.markdown import fill, table
from tests.support.shop import BROKERS, BUNDLE, BUNDLES, GROUP, Shop
from tests.support.spied import Spied
from tests.support.world import PATIENT


def api_page() -> str:
    """Return the text of docs/reference/api.md."""
    document = openapi_document()
    schemas = document["components"]["schemas"]
    common = schemas[OtherRecord.__name__]["properties"]
    records = {kind: schemas[record.__name__]["properties"] for kind, record in RECORDS.items()}
    words = {409: CONFLICTS, 403: FORBIDDEN}
    codes = ((status, f"`{code}`", text) for status, texts in words.items() for code, text in texts.items())
    kinds = ((status, f"`{slug}`", when) for (status, slug), when in problems.KINDS.items())
    parts = (admission, app, events, off_loop, problems, reads, server, shield)
    # The template reads limits from their modules. Tables are passed as text.
    return fill(
        "api.md",
        **{part.__name__.rpartition(".")[2]: part for part in parts},
        note=NOTE,
        failures_per_minute=ApiAuthSettings().failures_per_minute,
        routes=[(tag, _routes(document, tag["name"])) for tag in document["tags"] if tag["name"] != "mutations"],
        records={
            kind: {name: item["description"] for name, item in fields.items() if name not in common}
            for kind, fields in records.items()
        },
        members=MEMBERS,
        kinds="\n".join(table(["status", "type", "when"], kinds)),
        conflict=_conflict(),
        codes="\n".join(table(["status", "code", "meaning"], codes)),
    )


def _conflict() -> str:
    bundle = "shop/orders/0x00000000_0x80000000"
    what = f"{bundle} would no longer move"
    text = f"the inputs changed since the plan was made: {what}"
    with structlog.contextvars.bound_contextvars(request_id=problems.EXAMPLE_ID):
        body = bytes(problem(409, "conflict", text, code="changed", difference=[what]).body)
    return json.dumps(json.loads(body), indent=1)


def _routes(document: dict[str, Any], tag: str) -> str:
    routes = [(path, *route) for path, item in document["paths"].items() for route in item.items()]
    rows = [_route(document, *route) for route in routes if _group(*route) == tag]
    return "\n".join(table(["route", "query and body", "response"], rows))


def _group(path: str, _: str, operation: dict[str, Any]) -> str:
    """Return the tag under which the page lists a route. A route that changes data is listed with those that read the
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


def _query(document: dict[str, Any], item: dict[str, Any]) -> str:
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
        """Whether the request changes something. Such requests need credentials, except on the unix socket."""
        return "mutations" in self.operation["tags"]


def examples(document: dict[str, Any]) -> Iterator[Example]:
    """Yield the example requests of each route. Raises KeyError if the document lacks the example of a route."""
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
    """Return service/bundlekeel/api/examples.json: the response to each example request, for the OpenAPI document."""
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

    Each request is sent to a new in-memory sidecar, which has the objects that the request needs, such as a plan or a
    drain.
    """
    service = Spied(Shop().service)
    streams = EventStreams(heartbeat=0.0)
    apps = [
        app.create_app(cast(Any, service), mutations=mutations, streams=streams, features=routes())
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
    """Ends all event streams when it is called for the second time, because they would never end otherwise."""

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
    """Make the operators' requests, such as a drain, that the example of a route needs. Return the sidecar's ids by the
    ids in the OpenAPI document.
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
        digest = (await thresholds.adopt(digest=None, force=False, everywhere=False, **_WHO)).digest
        return {_HASH: digest} if route.endswith("revert") else {_PROPOSED: digest}
    document = (await thresholds.view()).document
    return {_PROPOSED: str(document["digest"])} if document is not None else {}


async def _recommend(shop: Shop) -> None:
    await shop.service.set_mode("recommend", **_WHO)
    await shop.turns()


async def _relieve(shop: Shop) -> None:
    """Reduce the load of the second broker, and wait until its average load is low, too."""
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
