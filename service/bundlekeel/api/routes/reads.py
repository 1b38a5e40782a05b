"""`/api/v1`: everything that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query, Request, Response

from bundlekeel.api import schemas
from bundlekeel.api.admission import router_for
from bundlekeel.api.auth import PRINCIPAL
from bundlekeel.api.problems import documented
from bundlekeel.api.reply import PAGED, Backend, before, computed, page, reply
from bundlekeel.daemon.answers.channel import UnitView
from bundlekeel.daemon.answers.journal import JournalKind, JournalRecord
from bundlekeel.daemon.answers.picture import (
    AssignmentView,
    BrokerView,
    BundleView,
    Check,
    CycleVerdict,
    OverviewView,
    Place,
    Setting,
    State,
    WhoAmI,
    WhyView,
)
from bundlekeel.daemon.answers.plans import PlanSummary, PlanView, TaskView
from bundlekeel.daemon.answers.summary import Period, SummaryView
from bundlekeel.settings.credentials import Principal

PROBLEMS = documented(
    {
        400: "a control character in the path, a body that is no JSON object in UTF-8, or no HTTP",
        401: "credentials are missing or not valid (only where authentication is configured)",
        403: "the role is too low, or the Origin is foreign",
        421: "the Host header names another server",
        422: "a value is unknown, of the wrong type or out of range",
        429: "too many wrong credentials from this address; `Retry-After` says when again",
        500: "something failed unexpectedly; the sidecar's log has the traceback",
        502: "a broker refused the admin request, or did not answer it",
        503: "no picture of the cluster yet, the metadata store does not answer, or too many requests at once",
        504: "no answer in time",
    }
)
# Of requests with a body.
BODY_PROBLEMS = PROBLEMS | documented(
    {
        408: "the body did not arrive in time",
        413: "the body is too large",
        415: "the body is no JSON by its Content-Type",
    }
)
NOT_FOUND = documented({404: "not known here"})

# Of one page: more would hold the interpreter, and take too much memory.
MOST_ROWS = 1000
Limit = Annotated[
    int, Query(ge=1, le=MOST_ROWS, description="at most this many; the header `Link` has the address of the next page")
]
After = Annotated[str, Query(max_length=4096, description="the last bundle of the page before")]

SinceMs = Annotated[
    int,
    Query(
        ge=0, description="the first millisecond (wall clock) that is asked for; 0: as far back as there are records"
    ),
]
# Of lists, which look into the journal's files only where a time is asked for.
RecordsSinceMs = Annotated[
    int,
    Query(
        ge=0,
        description="the first millisecond (wall clock) that is asked for; 0 without `until_ms`: of the records in "
        "memory alone; 1: of the journal's files, too",
    ),
]
UntilMs = Annotated[int, Query(ge=0, description="the last millisecond (wall clock) that is asked for; 0: until now")]

router = router_for("viewer", responses=PROBLEMS)
# They compute and change nothing, so the journal does not keep them; asking costs the leader time, so who asks must be
# an operator all the same.
dry_runs = router_for("operator", responses=BODY_PROBLEMS)


def after_last(rows: Sequence[BundleView] | Sequence[UnitView]) -> Mapping[str, Any]:
    """Return the query of the next page: bundles after the last one of this page."""
    return {"after": rows[-1].bundle}


def _before(rows: Sequence[CycleVerdict]) -> Mapping[str, Any]:
    return before(rows[0].wall_ms, rows[-1].wall_ms)


@router.get("/state", response_model=State, tags=["cluster"])
async def get_state(service: Backend) -> Response:
    """Who leads, in which mode, how the last cycle went."""
    return reply(service.state())


@router.get("/whoami", response_model=WhoAmI, tags=["cluster"])
async def get_whoami(service: Backend, request: Request) -> Response:
    """Which sidecar answers, who you are to it, and whether this address takes your mutations."""
    known = service.state()
    you = request.scope.get(PRINCIPAL) or Principal("", request.app.state.role_without_credentials)
    answer = WhoAmI(
        member=known.member,
        role=known.role,
        version=known.version,
        mode=known.mode,
        mutations=request.app.state.mutations and you.may("operator"),
        you=you.name,
        your_role=you.role,
    )
    return reply(answer)


@router.get("/brokers", response_model=list[BrokerView], tags=["cluster"])
async def list_brokers(service: Backend) -> Response:
    """Every registered broker with its load, averages, preallocated bundles and verdict. Empty without a picture."""
    return await computed(lambda: reply(service.brokers()))


@router.get("/brokers/{broker}/why", response_model=WhyView, responses=NOT_FOUND, tags=["reasons"])
async def explain_broker(service: Backend, broker: schemas.BrokerId) -> Response:
    """Why this broker is, or is not, relieved or filled."""
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
    """Bundles by short-term throughput, largest first. Empty without a picture."""

    def answer() -> Response:
        rows = service.bundles(broker=broker, namespace=namespace, after=after, limit=limit)
        return page(request, rows, limit, after_last)

    return await computed(answer)


@router.get("/bundles/{bundle:path}/why", response_model=WhyView, responses=NOT_FOUND, tags=["reasons"])
async def explain_bundle(service: Backend, bundle: schemas.BundleOrTopic) -> Response:
    """Why this bundle (or the bundle of this topic) stays, or moved."""
    answer = await service.why(bundle)
    return await computed(lambda: reply(answer))


@router.get("/verdicts", response_model=list[CycleVerdict], responses=PAGED, tags=["reasons"])
async def list_verdicts(
    service: Backend, request: Request, limit: Limit = 20, since_ms: RecordsSinceMs = 0, until_ms: UntilMs = 0
) -> Response:
    """Verdicts of the last cycles, of that time if one is given, newest last. Empty before the first cycle."""
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
    """What was done, in that time if one is given, newest last."""
    rows = await service.journal(limit, kind, Period(since_ms=since_ms, until_ms=until_ms))
    return await computed(
        lambda: page(request, rows, limit, lambda rows: before(rows[0]["wall_ms"], rows[-1]["wall_ms"]))
    )


@router.get("/summary", response_model=SummaryView, tags=["reasons"])
async def get_summary(service: Backend, since_ms: SinceMs = 0, until_ms: UntilMs = 0) -> Response:
    """What happened in that time, in figures: moves and what they did, refusals, overloads, what people asked of this
    sidecar."""
    answer = await service.summary(Period(since_ms=since_ms, until_ms=until_ms))
    return await computed(lambda: reply(answer))


@router.get("/settings", response_model=list[Setting], tags=["cluster"])
async def list_settings(service: Backend) -> Response:
    """Effective settings with their origin; secrets hidden."""
    return await computed(lambda: reply(service.settings()))


@dry_runs.post("/plans", response_model=PlanView, responses=NOT_FOUND, tags=["plans"])
async def make_plan(service: Backend, body: schemas.PlanBody | None = None) -> Response:
    """A dry run on the leader's picture; nothing is touched."""
    answer = await service.make_plan((body or schemas.PlanBody()).request())
    return await computed(lambda: reply(answer))


@router.get("/plans", response_model=list[PlanSummary], tags=["plans"])
async def list_plans(service: Backend) -> Response:
    """Plans that this sidecar made or was asked for lately, newest last."""
    return reply(await service.plans())


@router.get("/plans/{hash}", response_model=PlanView, responses=NOT_FOUND, tags=["plans"])
async def get_plan(service: Backend, hash: schemas.PlanHash, here: schemas.Here = False) -> Response:
    """A plan made earlier by any sidecar (`here`: by this one alone); it is kept for 15 minutes."""
    answer = await service.plan(hash, here=here)
    return await computed(lambda: reply(answer))


@router.get("/tasks", response_model=list[TaskView], tags=["operations"])
async def list_tasks(service: Backend) -> Response:
    """Executions asked for, and how far they are; last those that wait for the leader (`waiting`)."""
    answer = await service.tasks()
    return await computed(lambda: reply(answer))


@router.get("/where", response_model=list[Place], responses=NOT_FOUND, tags=["cluster"])
async def find_owners(
    service: Backend,
    name: Annotated[
        str,
        Query(min_length=1, max_length=4096, description="a topic, bundle or namespace", examples=[schemas.TOPIC]),
    ],
    listener: Annotated[str, Query(max_length=1024, description="whose address `service_url` is to be")] = "",
) -> Response:
    """Where a topic, partitioned topic, bundle or namespace is. Never assigns anything."""
    answer = await service.where(name, listener=listener)
    return await computed(lambda: reply(answer))


@dry_runs.post("/assignments", response_model=list[AssignmentView], responses=NOT_FOUND, tags=["plans"])
async def preview_assignments(service: Backend, body: schemas.AssignmentBody) -> Response:
    """Where bundles would be placed if no broker owned them, step by step. Dry: no broker is asked, nothing
    assigned. At most 200 bundles at once, with more than 100 brokers at most 20,000 divided by their number.
    """
    answer = await service.assignments(body.names())
    return await computed(lambda: reply(answer))


@router.get("/openapi.json", include_in_schema=False)
async def get_openapi(request: Request) -> Response:
    """The OpenAPI document of this address."""
    return await computed(lambda: reply(request.app.openapi()))


@router.get("/doctor", response_model=list[Check], tags=["cluster"])
async def run_doctor(
    service: Backend,
    for_act: Annotated[bool, Query(description="also what must hold before the sidecars act")] = False,
) -> Response:
    """Every connection and permission, what is wrong and how to fix it; with `for_act` a go / no-go list."""
    return reply(await service.doctor(for_act=for_act))


@router.get("/overview", response_model=OverviewView, tags=["cluster"])
async def get_overview(
    service: Backend, largest: Annotated[int, Query(ge=1, le=1000, description="bundles of each broker")] = 20
) -> Response:
    """The cluster in few rows: of each broker its largest bundles, and what all others of it add up to."""
    return await computed(lambda: reply(service.overview(largest)))
