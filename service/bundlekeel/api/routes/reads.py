"""Routes of `/api/v1` that change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query, Request, Response

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.auth import PRINCIPAL
from bundlekeel.api.problems import documented
from bundlekeel.api.reply import PAGED, Backend, before, computed, page, reply
from bundlekeel.leader.cycle.plan_responses import PlanSummary, PlanView
from bundlekeel.leader.load_signals import SignalView
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.model.check import Check
from bundlekeel.pulsar.channel.responses import UnitView
from bundlekeel.requests.assignments import AssignmentView
from bundlekeel.requests.where import Place
from bundlekeel.settings.credentials import Principal
from bundlekeel.views.journal import JournalKind, JournalRecord
from bundlekeel.views.picture import BrokerView, BundleView, CycleVerdict, OverviewView, Setting, State, WhoAmI, WhyView
from bundlekeel.views.summary_fields import Period, SummaryView

PROBLEMS = documented(
    {
        400: "a control character in the path, a body that is not a JSON object in UTF-8, or malformed HTTP",
        401: "credentials are missing or not valid (only if authentication is configured)",
        403: "the role is too low, or a page of another server sent the request",
        421: "the Host header names another server",
        422: "a value is unknown, of the wrong type or out of range",
        429: "too many wrong credentials from this address; `Retry-After` contains the time to wait",
        500: "unexpected error; the sidecar's log contains the traceback",
        502: "a broker refused the admin request, or did not respond",
        503: "no snapshot of the cluster yet, the metadata store does not respond, or too many concurrent requests",
        504: "no response within the time limit",
    }
)
# Problem responses that requests with a body can have in addition.
BODY_PROBLEMS = PROBLEMS | documented(
    {
        408: "the body did not arrive in time",
        413: "the body is too large",
        415: "the Content-Type is not JSON",
    }
)
NOT_FOUND = documented({404: "unknown"})

# Highest number of rows per page. More would block other threads for too long and need too much memory.
MOST_ROWS = 1000
Limit = Annotated[
    int,
    Query(
        ge=1,
        le=MOST_ROWS,
        description="highest number of rows; the header `Link` contains the address of the next page",
    ),
]
After = Annotated[str, Query(max_length=4096, description="last bundle of the previous page")]

SinceMs = Annotated[
    int,
    Query(ge=0, description="start of the period, Unix ms; 0: from the first record"),
]
# Query parameter of lists of records: only if a period is requested, they read the journal's files.
RecordsSinceMs = Annotated[
    int,
    Query(
        ge=0,
        description="start of the period, Unix ms; 0 without `until_ms`: only records in memory; 1: also the journal's "
        "files",
    ),
]
UntilMs = Annotated[int, Query(ge=0, description="end of the period, Unix ms; 0: now")]

router = router_for("viewer", responses=PROBLEMS)
# Dry runs and signals change nothing, so the journal does not record them. They need the role operator, because they
# use much computing time of the leader.
dry_runs = router_for("operator", responses=BODY_PROBLEMS)


def after_last(rows: Sequence[BundleView] | Sequence[UnitView]) -> Mapping[str, Any]:
    """Return the query parameters of the next page, which starts after the last bundle of `rows`."""
    return {"after": rows[-1].bundle}


def _before(rows: Sequence[CycleVerdict]) -> Mapping[str, Any]:
    return before(rows[0].wall_ms, rows[-1].wall_ms)


@router.get("/state", response_model=State, tags=["cluster"])
async def get_state(service: Backend) -> Response:
    """Return leader, mode, last cycle, and takeover: whether Bundlekeel sheds load instead of the brokers."""
    return reply(service.state())


@router.get("/whoami", response_model=WhoAmI, tags=["cluster"])
async def get_whoami(service: Backend, request: Request) -> Response:
    """Return the responding sidecar, your name and role, and whether this address accepts your mutations."""
    state = service.state()
    you = request.scope.get(PRINCIPAL) or Principal("", request.app.state.role_without_credentials)
    answer = WhoAmI(
        member=state.member,
        role=state.role,
        version=state.version,
        mode=state.mode,
        mutations=request.app.state.mutations and you.may("operator"),
        you=you.name,
        your_role=you.role,
    )
    return reply(answer)


@router.get("/brokers", response_model=list[BrokerView], tags=["cluster"])
async def list_brokers(service: Backend) -> Response:
    """List registered brokers with load, averages, bundles in transit to them and verdict; empty without a snapshot."""
    return await computed(lambda: reply(service.brokers()))


@router.get("/brokers/{broker}/why", response_model=WhyView, responses=NOT_FOUND, tags=["reasons"])
async def explain_broker(service: Backend, broker: schemas.BrokerId) -> Response:
    """Explain why bundles move, or do not move, to or from this broker."""
    answer = await service.why(broker)
    return await computed(lambda: reply(answer))


@router.get("/bundles", response_model=list[BundleView], responses=NOT_FOUND | PAGED, tags=["cluster"])
async def list_bundles(
    service: Backend,
    request: Request,
    broker: schemas.OfBroker = None,
    namespace: schemas.OfNamespace = None,
    after: After = "",
    limit: Limit = MOST_ROWS,
) -> Response:
    """List bundles by short-term throughput, largest first; empty without a snapshot."""

    def answer() -> Response:
        rows = service.bundles(broker=broker, namespace=namespace, after=after, limit=limit)
        return page(request, rows, limit, after_last)

    return await computed(answer)


@router.get("/bundles/{bundle:path}/why", response_model=WhyView, responses=NOT_FOUND, tags=["reasons"])
async def explain_bundle(service: Backend, bundle: schemas.BundleOrTopic) -> Response:
    """Explain why this bundle, or the bundle of this topic, moves or stays."""
    answer = await service.why(bundle)
    return await computed(lambda: reply(answer))


@router.get("/verdicts", response_model=list[CycleVerdict], responses=PAGED, tags=["reasons"])
async def list_verdicts(
    service: Backend, request: Request, limit: Limit = 20, since_ms: RecordsSinceMs = 0, until_ms: UntilMs = 0
) -> Response:
    """List verdicts (results) of the last cycles, or of a period, newest last; empty before the first cycle."""
    rows = await service.verdicts(limit, Period(since_ms=since_ms, until_ms=until_ms))
    return await computed(lambda: page(request, rows, limit, _before))


@router.get("/journal", response_model=list[JournalRecord], responses=PAGED, tags=["reasons"])
async def list_journal(
    service: Backend,
    request: Request,
    limit: Limit = 100,
    kind: Annotated[JournalKind | None, Query(description="only records of this kind")] = None,
    since_ms: RecordsSinceMs = 0,
    until_ms: UntilMs = 0,
) -> Response:
    """List the last records of the journal, or those of a period, newest last."""
    rows = await service.journal(limit, kind, Period(since_ms=since_ms, until_ms=until_ms))
    return await computed(
        lambda: page(request, rows, limit, lambda rows: before(rows[0]["wall_ms"], rows[-1]["wall_ms"]))
    )


@router.get("/summary", response_model=SummaryView, tags=["reasons"])
async def get_summary(service: Backend, since_ms: SinceMs = 0, until_ms: UntilMs = 0) -> Response:
    """Return a summary of a period: moves and effects, refusals, overloads, requests to this sidecar."""
    answer = await service.summary(Period(since_ms=since_ms, until_ms=until_ms))
    return await computed(lambda: reply(answer))


@router.get("/settings", response_model=list[Setting], tags=["cluster"])
async def list_settings(service: Backend) -> Response:
    """List effective settings with their origin; secrets are hidden."""
    return await computed(lambda: reply(service.settings()))


@dry_runs.post("/plans", response_model=PlanView, responses=NOT_FOUND, tags=["plans"])
async def make_plan(service: Backend, body: schemas.PlanBody | None = None) -> Response:
    """Make a plan from the leader's snapshot of the cluster, as a dry run. It changes nothing."""
    answer = await service.make_plan((body or schemas.PlanBody()).request())
    return await computed(lambda: reply(answer))


@dry_runs.post("/load-signals", response_model=SignalView, tags=["cluster"])
async def signal_load(service: Backend) -> Response:
    """Let the leader read the brokers' counters early, because traffic changed. Sidecars in brokers' pods send this."""
    return reply(await service.signal_load())


@router.get("/plans", response_model=list[PlanSummary], tags=["plans"])
async def list_plans(service: Backend) -> Response:
    """List recent plans that this sidecar computed or received, newest last."""
    return reply(await service.plans())


@router.get("/plans/{hash}", response_model=PlanView, responses=NOT_FOUND, tags=["plans"])
async def get_plan(service: Backend, hash: schemas.PlanHash, here: schemas.Here = False) -> Response:
    """Return a recent plan of any sidecar (`here`: only of this sidecar). Plans are stored for 15 minutes."""
    answer = await service.plan(hash, here=here)
    return await computed(lambda: reply(answer))


@router.get("/tasks", response_model=list[TaskView], tags=["operations"])
async def list_tasks(service: Backend) -> Response:
    """List tasks and their progress; tasks that wait for the leader (`waiting`) are last."""
    answer = await service.tasks()
    return await computed(lambda: reply(answer))


@router.get("/where", response_model=list[Place], responses=NOT_FOUND, tags=["cluster"])
async def find_owners(
    service: Backend,
    name: Annotated[
        str,
        Query(min_length=1, max_length=4096, description="a topic, bundle or namespace", examples=[schemas.TOPIC]),
    ],
    listener: Annotated[
        str, Query(max_length=1024, description="advertised listener whose address `service_url` contains")
    ] = "",
) -> Response:
    """Return the owners of a topic, partitioned topic, bundle or namespace. Never assigns a bundle."""
    answer = await service.where(name, listener=listener)
    return await computed(lambda: reply(answer))


@dry_runs.post("/assignments", response_model=list[AssignmentView], responses=NOT_FOUND, tags=["plans"])
async def preview_assignments(service: Backend, body: schemas.AssignmentBody) -> Response:
    """Return where bundles would be placed if no broker owned them, step by step.

    Sends no request to brokers and assigns nothing. At most 200 bundles per request; with more than 100 brokers, at
    most 20,000 divided by the number of brokers.
    """
    answer = await service.assignments(body.names())
    return await computed(lambda: reply(answer))


@router.get("/openapi.json", include_in_schema=False)
async def get_openapi(request: Request) -> Response:
    """Return the OpenAPI document of the API on the port or socket that received this request."""
    return await computed(lambda: reply(request.app.openapi()))


@router.get("/doctor", response_model=list[Check], tags=["cluster"])
async def run_doctor(
    service: Backend,
    for_act: Annotated[bool, Query(description="also check the conditions for mode `act`")] = False,
) -> Response:
    """Check all connections and permissions, with fixes. `for_act` adds the conditions for mode `act`."""
    return reply(await service.doctor(for_act=for_act))


@router.get("/overview", response_model=OverviewView, tags=["cluster"])
async def get_overview(
    service: Backend, largest: Annotated[int, Query(ge=1, le=1000, description="number of bundles per broker")] = 20
) -> Response:
    """Return an overview: the largest bundles of each broker, and the sum of its other bundles."""
    return await computed(lambda: reply(service.overview(largest)))
