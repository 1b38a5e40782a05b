"""The FastAPI app with its routes and error handlers. A sidecar runs two apps: one for TCP, one for the unix socket."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, get_args

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from bundlekeel import __version__
from bundlekeel.api import page, problems
from bundlekeel.api.admission import ANYBODY, MAX_CONCURRENT, Admission, require_roles
from bundlekeel.api.audit import AuditTrail
from bundlekeel.api.auth import AccessRules
from bundlekeel.api.reply import NEXT_PAGE, TASK_ADDRESS
from bundlekeel.api.routes import channel, events, operations, probes, reads
from bundlekeel.api.routes import mutations as mutating
from bundlekeel.api.schemas import Problem
from bundlekeel.api.service import Service
from bundlekeel.api.shield import Shield

UNITS = """\
Most names end with a unit. `_ratio`: 1 is 100 %. `_seconds`: a duration. `_ms`: milliseconds since 1970, by the clock
of a sidecar; in `deadlines` of the channel, a duration. Other rates are in msg/s. Other throughput is in bytes/s.
`score_...`, `source_...`, `target_...`, `threshold` and gains are ratios. `max_mean` is a multiple of the mean. The
imbalance is a ratio in thresholds, and a multiple of the mean in plans and `/state`. `percent` is percent. All other
descriptions contain the unit."""

# Requests that, like reads, need no credentials without `api.auth`: methods and paths below `/api/v1`.
DRY_RUNS = ", ".join(
    f"`{' '.join(route.methods or ())} {route.path}`" for route in iter_route_contexts(reads.dry_runs.routes)
)

DESCRIPTION = f"""A load balancer sidecar for Apache Pulsar. Every replica serves all requests, and forwards to the
leader what only the leader can do. Loads, reasons, verdicts and records of cycles are those of the replica that
responds: the leader's loads are seconds old if it reads the brokers' counters; other replicas use load reports.

Without `api.auth`, reads and {DRY_RUNS} need no credentials, and routes tagged
`mutations`, with their dry runs, exist only on the unix socket (mode 0600). `/load-signals` lets the leader read the
brokers' counters early. With `api.auth`, every route of `/api/v1` on TCP needs a bearer token: reads need role viewer,
dry runs and mutations operator, changes of the mode admin. Errors are `application/problem+json`.

{UNITS}"""


_BEARER = "bearer"
# Each route of the OpenAPI document lists its roles as scopes of this scheme, which OpenAPI 3.1 allows for any scheme.
SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `api.auth.tokens_file` (`bundlekeel token new`) or a JWT, on TCP if `api.auth` is "
    "configured. Each route names its role: viewer, operator or admin; a higher role includes the lower ones.",
}


# Sentence in the description of an app without mutating routes.
_READS_ONLY = """This address has no routes tagged `mutations`, because `api.auth` is not configured. They are in the
document of the unix socket, which is also `config/openapi.json` of the sources."""
_SERVER = (
    "a sidecar with the default `api.host` and `api.port`; without `api.auth` it answers 404 to all "
    "routes tagged `mutations`: use the unix socket (`api.socket`) for them"
)
_SERVERS = [{"url": "http://127.0.0.1:8090", "description": _SERVER}]
_LICENSE = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}
_TAGS = {
    "cluster": "Brokers, bundles, settings and connections of the sidecar.",
    "reasons": "Why bundles move or stay: explanations, verdicts and the journal.",
    "plans": "Dry runs and stored plans.",
    "operations": "Drains, cordons, warm-ups, pins and other active requests; tasks, reviews and thresholds.",
    "mutations": "Changes of the cluster or of the sidecars; each needs a `reason`. Without `api.auth` only the unix "
    "socket has these routes: TCP answers 404, and nothing is changed.",
}
# Tags that the OpenAPI document lists after the tags of the features.
_LAST_TAGS = {
    "channel": "The ownership channel of the extensible load manager.",
    "probes": "Liveness, readiness and metrics; no credentials.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRoutes:
    """Routes of an optional feature below `/api/v1`, and descriptions of their tags.

    `changes`: mutating routes, which only apps with mutations get.
    """

    reads: APIRouter
    changes: APIRouter
    tags: Mapping[str, str] = field(default_factory=dict)


def create_app(
    service: Service,
    *,
    mutations: bool,
    allowed_hosts: Sequence[str] = (),
    access: AccessRules | None = None,
    trail: AuditTrail | None = None,
    max_concurrent: int = MAX_CONCURRENT,
    streams: events.EventStreams | None = None,
    features: Sequence[FeatureRoutes] = (),
) -> FastAPI:
    """Build one app. Without `mutations` it has no mutating routes, and its OpenAPI document omits them.

    `access`: rules for credentials; None: no credentials are needed. `trail`: writes mutating requests to the
    journal. `streams`: open streams of `/api/v1/events`. `features`: routes of the optional features.
    """
    app = _App(
        title="Bundlekeel",
        version=__version__,
        description=DESCRIPTION,
        # Without FastAPI's own route for the OpenAPI document: Bundlekeel's route needs a role.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # Do not redirect: a path with a missing or additional slash at its end is 404.
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.service = service
    app.state.mutations = mutations
    app.state.tags = _TAGS | {name: text for feature in features for name, text in feature.tags.items()} | _LAST_TAGS
    app.state.streams = streams or events.EventStreams(most=events.most_streams(max_concurrent))
    app.state.role_without_credentials = "admin" if mutations and access is None else "viewer"
    changing = (mutating.router, mutating.admin, operations.changes, *(feature.changes for feature in features))
    changes = APIRouter()
    for router in changing:
        changes.include_router(router, prefix="/api/v1")
    elsewhere = () if mutations else changes.routes
    app.state.admission = admission = Admission(access=access, trail=trail, most=max_concurrent, elsewhere=elsewhere)
    app.router.default = admission.unknown
    reading = (reads.router, reads.dry_runs, events.router, channel.router, operations.reads)
    for router in (*reading, *(feature.reads for feature in features), *(changing if mutations else ())):
        app.include_router(router, prefix="/api/v1")
    for router in (probes.router, probes.metrics, page.router):
        app.include_router(router)
    require_roles(app)
    problems.install(app)
    # Add the shield last: the last middleware is the outermost, so it adds its headers to a 500, too.
    app.add_middleware(problems.Fallback)
    app.add_middleware(Shield, allowed_hosts=allowed_hosts)
    return app


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, with response types and with the schemas of problem responses."""
        if self.openapi_schema is None:
            access: AccessRules | None = self.state.admission.access
            routes = [_documented(context, access) for context in iter_route_contexts(self.routes)]
            text = self.description if self.state.mutations else f"{self.description}\n\n{_READS_ONLY}"
            document = get_openapi(
                title=self.title,
                version=self.version,
                description=text,
                license_info=_LICENSE,
                routes=routes,
                tags=[{"name": name, "description": text} for name, text in self.state.tags.items()],
                servers=_SERVERS,
            )
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            document["components"]["schemas"] |= problem.pop("$defs") | {"Problem": problem}
            document["components"]["examples"] = problems.examples()
            document["components"]["headers"] = {
                "RequestId": problems.REQUEST_ID,
                "RetryAfter": problems.RETRY_AFTER,
                "NextPage": NEXT_PAGE,
                "TaskAddress": TASK_ADDRESS,
            }
            document["components"]["securitySchemes"] = {_BEARER: SECURITY_SCHEME}
            document = json.loads(text := json.dumps(document), object_hook=_of_64_bits)
            schemas = document["components"]["schemas"]
            # Delete unused schemas: pydantic also adds enumerations, which our fields document as strings.
            for name in [name for name in schemas if f'/schemas/{name}"' not in text]:
                del schemas[name]
            _with_request_ids(document)
            _with_examples(document)
            self.openapi_schema = document
        return self.openapi_schema


def _of_64_bits(item: dict[str, Any]) -> dict[str, Any]:
    """Mark the integers of a schema as 64-bit: generated clients use 32 bits by default, too few for times in ms."""
    return item | {"format": "int64"} if item.get("type") == "integer" else item


def _with_request_ids(document: dict[str, Any]) -> None:
    """Add the header X-Request-ID, which `Shield` sends, to all responses in the OpenAPI document."""
    for item in document["paths"].values():
        for operation in item.values():
            for answer in operation["responses"].values():
                answer.setdefault("headers", {})["X-Request-ID"] = {"$ref": "#/components/headers/RequestId"}


def _with_examples(document: dict[str, Any]) -> None:
    """Add the example responses that `dev.docs` recorded to the OpenAPI document."""
    examples = json.loads(files("bundlekeel.api").joinpath("examples.json").read_bytes())
    for path, item in document["paths"].items():
        for method, operation in item.items():
            status = next(status for status in operation["responses"] if status.startswith("2"))
            for content in operation["responses"][status]["content"].values():
                if (example := examples.get(f"{method.upper()} {path}")) is not None:
                    content["example"] = example


def _documented(context: Any, access: AccessRules | None) -> APIRoute:
    """Return a copy of a route for the OpenAPI document, with its response type and the roles that can use it."""
    role = context.original_route.role
    # If no credentials are needed, every client can read, but only the owner of the unix socket can make changes.
    free = not context.original_route.changes if access is None else access.anonymous_reads and role == "viewer"
    security = [] if role == ANYBODY else [{_BEARER: [role]}, *([{}] if free else [])]
    answer = context.original_route.answer
    summary, _, more = " ".join(context.endpoint.__doc__.split()).partition(". ")
    # A list has the description of its items, a text response has the description of its endpoint.
    (described,) = get_args(answer) or (answer or context.endpoint,)
    route = APIRoute(
        context.path_format,
        context.endpoint,
        methods=context.methods - {"HEAD"},
        response_model=answer,
        response_description=" ".join(described.__doc__.split()),
        response_class=context.response_class,
        status_code=context.status_code,
        responses=context.responses,
        tags=context.tags,
        include_in_schema=context.include_in_schema,
        summary=summary.removesuffix("."),
        openapi_extra={**(context.original_route.openapi_extra or {}), "security": security},
        generate_unique_id_function=_operation_id,
    )
    # FastAPI uses the whole docstring as description, but its first line is the summary.
    route.description = more
    return route


def _operation_id(route: APIRoute) -> str:
    return route.name
