"""Commands for operators' requests: pauses, mode, drains, cordons, warm-ups, pins, exclusions, reviews, stopped tasks.

Commands that move bundles are dry runs unless `--yes`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from bundlekeel.cli import completion, operation_tables, tables, text_views, units
from bundlekeel.cli.client import Client, path_part
from bundlekeel.cli.exit_codes import BAD_NEWS, REFUSED, UNREACHABLE, USAGE, CliError, left_running
from bundlekeel.cli.manual_moves import CarryOutOption, WaitOption
from bundlekeel.cli.output import ProgressLine, decoded, typed
from bundlekeel.cli.plan import WithinOption, longest_wait
from bundlekeel.cli.session import (
    ByOption,
    ReasonOption,
    ReasonToActOption,
    Session,
    broker_id,
    check_reason,
    connected,
    connected_once,
    login,
    request_body,
    seconds_of,
)
from bundlekeel.leader.gate.responses import Mode
from bundlekeel.model.names import check_name, refuse_namespace
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.guard.scope import check_pattern, check_scope
from bundlekeel.requests.drain import DrainView
from bundlekeel.requests.operator_requests import OperationsView
from bundlekeel.requests.pause import ResumedScopeView
from bundlekeel.requests.relocation import RelocationView
from bundlekeel.requests.restart import RestartPlan
from bundlekeel.requests.review import ReviewView
from bundlekeel.views.picture import BrokerView, Resumed

BrokerArgument = Annotated[
    str, typer.Argument(help="Broker id, host:port.", autocompletion=completion.brokers, callback=broker_id)
]
ForOption = Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Duration, e.g. 2h. Default: no end.")]
ScopeOption = Annotated[
    str | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="Scope of the pause: tenant:NAME, namespace:TENANT/NAME or broker:ID. Default: everything.",
    ),
]
_POLL_SECONDS = 1.0
# With `--wait`, give up after this many seconds with an obstacle. These are two cycles, because the obstacle of the
# last cycle can have ended since.
_HELD_SECONDS = 20.0
# With `--wait`, a request can be missing for this many seconds: a sidecar shows it after its next read of the store.
_UNSEEN_SECONDS = 15.0


@connected_once
def pause(
    session: Session,
    reason: ReasonOption,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Duration, e.g. 2h. Default: until `resume`.")
    ] = None,
    scope: ScopeOption = None,
    by: ByOption = "",
) -> None:
    """Stop all changes to the cluster immediately, whichever sidecar leads; with --scope: only in that scope."""
    if scope is not None:
        check_scope(scope)
    method, path = ("POST", "pause") if scope is None else ("PUT", f"pauses/{path_part(scope)}")
    _tell(session, method, path, reason, by, seconds=_seconds(duration))
    if scope is None:
        _warn_of_takeover(session)


@connected_once
def resume(session: Session, reason: ReasonOption, scope: ScopeOption = None, by: ByOption = "") -> None:
    """End the pause of everything, or with --scope the pause of that scope. Exit code 1 if there is none."""
    body = {"reason": reason, "by": by or login()}
    if scope is not None:
        check_scope(scope)
        answer = session.client.send("DELETE", f"pauses/{path_part(scope)}", body)
        session.tell(answer, typed(ResumedScopeView, operation_tables.resumed))
        return
    paused = session.state().paused
    # Send the request even if this sidecar shows no pause: it can have been set by another one and not be read yet.
    answer = session.client.send("POST", "resume", body)
    if paused is not None:
        session.tell(answer, typed(Resumed, operation_tables.resumed))
    scopes = [row.scope for row in decoded(OperationsView, session.client.get("operations")).pauses if row.scope]
    if scopes:
        typer.echo(
            f"warning: these scopes are still paused: {', '.join(scopes)}; `bundlekeel resume --scope SCOPE` "
            "ends a pause",
            err=True,
        )
    if paused is None:
        raise CliError("no pause of all moves was active; `bundlekeel status` shows what else stops moves", BAD_NEWS)


def _with_reason(context: typer.Context, mode: str | None) -> str | None:
    """Return the mode; raise an error if MODE has no --reason, or --reason has no MODE.

    Checked at the argument, because options are read before arguments.
    """
    if mode is None and context.params.get("reason") is not None:
        context.fail("Missing argument 'MODE'.")
    if mode is not None and context.params.get("reason") is None:
        context.fail("Missing option '--reason'.")
    return mode


@connected_once
def mode(
    session: Session,
    mode: Annotated[
        Mode | None, typer.Argument(help="New mode, at most the mode of the settings file.", callback=_with_reason)
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Reason, for the journal; required with MODE.", callback=check_reason)
    ] = None,
    by: ByOption = "",
) -> None:
    """Show the current mode and its ceiling, the mode of the settings file. With MODE, set the mode of all sidecars.

    After `takeover`, nothing balances the cluster in modes below `act`; use `handback` if that lasts for hours. After
    `handback`, `act` allows quota groups to set limits again.
    """
    if mode is None or reason is None:
        state = session.state()
        answer = {"mode": state.mode, "mode_ceiling": state.mode_ceiling}
        session.tell(answer, lambda *_: tables.mode(state))
        return
    _tell(session, "PUT", "mode", reason, by, extra={"before": session.state().mode}, mode=mode)
    if mode != "act":
        _warn_of_takeover(session)


def _warn_of_takeover(session: Session) -> None:
    """Print a warning if neither the brokers nor Bundlekeel shed load now, because a takeover is active."""
    takeover = session.state().takeover
    if takeover is not None and takeover.active:
        fix = "`bundlekeel handback` returns the shedding to the brokers"
        typer.echo(f"warning: a takeover is active, so nothing sheds load until Bundlekeel acts again; {fix}", err=True)


@connected
def operations(session: Session) -> None:
    """List the requests of operators: drains with their progress, cordons, warm-ups, pins, exclusions, pauses."""
    session.show(lambda client: client.get("operations"), typed(OperationsView, operation_tables.operations))


@connected_once
def drain(
    session: Session,
    broker: BrokerArgument,
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    wait: WaitOption = False,
    within: WithinOption = None,
    by: ByOption = "",
) -> None:
    """Move all bundles off a broker and keep it empty until `uncordon`. A dry run unless --yes."""
    limit = longest_wait(within, wait=wait, yes=yes)
    response, plan = _relocate(session, "drain", broker, reason, by, yes)
    drained: DrainView | None = None
    if wait:
        response["progress"] = _wait_for(session, "drains", broker, limit, _drained)
        if response["progress"] is None:
            raise CliError(f"{broker} is no longer drained: another operator ended it", BAD_NEWS)
        drained = decoded(DrainView, response["progress"])
    ended = operation_tables.progress(drained) if drained else ""
    session.tell(response, lambda _, layout: operation_tables.relocation(plan, ended, session.state, layout))
    if drained and drained.state != "empty":
        raise typer.Exit(BAD_NEWS)


def _drained(row: Json, obstacle: str) -> tuple[str, bool]:
    """Return the progress of a drain, and whether the broker is empty or has only bundles that cannot leave it."""
    drained = decoded(DrainView, row)
    return operation_tables.progress(drained, obstacle), drained.state in ("empty", "blocked")


def _wait_for(
    session: Session, kind: str, broker: str, limit: float, describe: Callable[[Json, str], tuple[str, bool]]
) -> Json | None:
    """Wait for the end of a drain or warm-up and return its row; None if the list of requests does not contain it.

    `kind`: list in the response that contains the row: drains or warms. `limit`: seconds to wait. `describe`: returns
    the progress as text and whether the work has ended, from the row and the code of the obstacle to all moves.
    Raises CliError if the time is over, or if an obstacle blocks all moves.
    """
    start = last_row = last_unblocked = time.monotonic()
    now = f"{broker}: not planned yet"
    hint = f'see `bundlekeel operations`; `bundlekeel uncordon {broker} --reason "…"` ends it'
    with ProgressLine() as line, left_running(lambda: f"not done yet: {now}; it continues, {hint}"):
        while True:
            response = session.client.get("operations")
            rows: list[Json] = response[kind]
            row = next((row for row in rows if row["broker"] == broker), None)
            obstacle = response.get("held", "")
            if row is not None:
                last_row = time.monotonic()
                now, over = describe(row, obstacle)
                line.tell(now)
                if over:
                    return row
                last_unblocked = last_unblocked if obstacle else last_row
                if last_row > last_unblocked + min(_HELD_SECONDS, limit):
                    reason = operation_tables.nothing_moves(obstacle, response["held_explanation"])
                    raise CliError(
                        f"{now}; {reason}. The request is stored; it starts when this obstacle is gone", REFUSED
                    )
                if last_row > start + limit:
                    raise CliError(f"not done yet: {now}; it continues, {hint}", UNREACHABLE)
            elif time.monotonic() > last_row + min(_UNSEEN_SECONDS, limit):
                return None
            time.sleep(_POLL_SECONDS)


@connected_once
def warm(
    session: Session,
    broker: BrokerArgument,
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    wait: WaitOption = False,
    within: WithinOption = None,
    by: ByOption = "",
) -> None:
    """Move bundles gradually to a new or restarted broker until it has its share. A dry run unless --yes."""
    limit = longest_wait(within, wait=wait, yes=yes)
    response, plan = _relocate(session, "warm", broker, reason, by, yes)
    ended = ""
    if wait:
        _wait_for(session, "warms", broker, limit, lambda *_: (_broker_load(session.client, broker), False))
        # A warm-up ends automatically if a plan would move nothing more. If it would, an operator has ended it.
        response["progress"], remaining = _relocate(session, "warm", broker, reason, by, False)
        ended = f"{_broker_load(session.client, broker)}; {remaining.sentence}"
        if remaining.moves:
            raise CliError(f"{broker} is no longer warmed, another operator ended it: {ended}", BAD_NEWS)
    session.tell(response, lambda _, layout: operation_tables.relocation(plan, ended, session.state, layout))


def _broker_load(client: Client, broker: str) -> str:
    """Return the number of bundles and the load score of a broker as one line."""
    rows = decoded(list[BrokerView], client.get("brokers"))
    row = next((row for row in rows if row.broker == broker), None)
    if row is None or row.bundles is None:
        return f"{broker}: {row.state if row else 'not registered'}"
    return f"{broker}: {numbered(row.bundles, 'bundle')}, score {units.share(row.score_ratio)}"


@connected_once
def cordon(session: Session, broker: BrokerArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Move no bundles to a broker. Brokers may still assign unowned bundles to it; `drain` keeps it empty."""
    _tell(session, "POST", f"brokers/{path_part(broker)}/cordon", reason, by)


@connected_once
def uncordon(session: Session, broker: BrokerArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """End the cordon, drain and warm-up of a broker."""
    _tell(session, "POST", f"brokers/{path_part(broker)}/uncordon", reason, by)


restart_app = typer.Typer(help="Plan a restart of all brokers, one at a time.", no_args_is_help=True)


@connected
def restart_plan(session: Session) -> None:
    """Show order, free capacity and progress of a rolling restart. Exit code 4 if no broker may be next now."""
    render = typed(RestartPlan, operation_tables.restart_plan)
    plan = decoded(RestartPlan, session.show(lambda client: client.get("restart-plan"), render))
    if plan.refused:
        raise CliError(f"{plan.refused}; {plan.fix}", REFUSED)


BundleArgument = Annotated[
    str, typer.Argument(help="Bundle, or a topic for its bundle.", autocompletion=completion.bundles)
]
PatternArgument = Annotated[
    str, typer.Argument(help="Pattern: t:TENANT, n:TENANT/NAMESPACE, b:BUNDLE or r:BROKER; * and ? are wildcards.")
]


@connected_once
def pin(
    session: Session, bundle: BundleArgument, reason: ReasonOption, lasting: ForOption = None, by: ByOption = ""
) -> None:
    """Keep a bundle, or the bundle of a topic, on its broker."""
    check_name(bundle)
    refuse_namespace(bundle)
    _tell(session, "PUT", f"pins/{path_part(bundle)}", reason, by, seconds=_seconds(lasting))


@connected_once
def unpin(session: Session, bundle: BundleArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """End the pin of a bundle, or of the bundle of a topic."""
    check_name(bundle)
    refuse_namespace(bundle)
    response = session.client.send("DELETE", f"pins/{path_part(bundle)}", {"reason": reason, "by": by or login()})
    session.tell(response, lambda fields, layout: text_views.pairs({**fields, "ended": "pin"}, layout))


@connected_once
def exclude(
    session: Session, pattern: PatternArgument, reason: ReasonOption, lasting: ForOption = None, by: ByOption = ""
) -> None:
    """Exclude tenants, namespaces, bundles or brokers: none of their bundles is moved or split."""
    check_pattern(pattern)
    _tell(session, "PUT", f"exclusions/{path_part(pattern)}", reason, by, seconds=_seconds(lasting))


@connected_once
def include(session: Session, pattern: PatternArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """End an exclusion: the bundles may be moved and split again."""
    check_pattern(pattern)
    _tell(session, "DELETE", f"exclusions/{path_part(pattern)}", reason, by, extra={"ended": "exclusion"})


@connected_once
def stop(
    session: Session,
    task: Annotated[str, typer.Argument(help="Task id, see `bundlekeel plan tasks`.")],
    reason: ReasonOption,
    by: ByOption = "",
) -> None:
    """Stop a task: it starts no further move; moves in progress are completed."""
    _tell(session, "POST", f"tasks/{path_part(task)}/stop", reason, by)


review_app = typer.Typer(help="Approve or discard changes that another operator proposed.", no_args_is_help=True)
IdArgument = Annotated[str, typer.Argument(help="Proposal id, see `bundlekeel review list`.")]


@connected
def review_list(session: Session) -> None:
    """List the changes that operators proposed, also those approved or discarded."""
    session.show(lambda client: client.get("reviews"), typed(list[ReviewView], operation_tables.reviews))


@connected_once
def approve(session: Session, id: IdArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Approve and execute a change that another operator proposed."""
    _tell(session, "POST", f"reviews/{path_part(id)}/approve", reason, by)


@connected_once
def discard(session: Session, id: IdArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Reject a change that another operator proposed."""
    _tell(session, "POST", f"reviews/{path_part(id)}/discard", reason, by)


def _relocate(session: Session, verb: str, broker: str, reason: str, by: str, yes: bool) -> tuple[Json, RelocationView]:
    answer = session.client.send("POST", f"brokers/{path_part(broker)}/{verb}", request_body(reason, by, yes=yes))
    return answer, decoded(RelocationView, answer)


def _tell(
    session: Session,
    method: str,
    path: str,
    reason: str,
    by: str,
    *,
    extra: Mapping[str, str] | None = None,
    **more: Any,
) -> None:
    """Send a request and print the response. `more`: fields of the request. `extra`: fields to add to the table."""
    body = {"reason": reason, "by": by or login()}
    fields = {name: value for name, value in more.items() if value is not None}
    result = session.client.send(method, path, body | fields)
    session.tell(result, lambda response, layout: text_views.pairs({**response, **(extra or {})}, layout))
    if result.get("bundles") == 0:
        typer.echo("warning: the pattern matches no bundle of the present load reports", err=True)


def _seconds(lasting: str | None) -> float | None:
    """Return the duration of --for in seconds. It needs a unit, because `5` rarely means five seconds."""
    if lasting is None:
        return None
    if not lasting.strip()[-1:].isalpha():
        raise CliError(f"--for {lasting!r}: expected a unit, such as 90s, 30m, 2h or 1d", USAGE)
    return seconds_of("--for", lasting)


restart_app.command("plan")(restart_plan)
review_app.command("list")(review_list)
review_app.command("approve")(approve)
review_app.command("discard")(discard)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    requests = (drain, warm, cordon, uncordon, pin, unpin, exclude, include, stop)
    for command in (pause, resume, mode, operations, *requests):
        app.command()(command)
    app.add_typer(restart_app, name="restart")
    app.add_typer(review_app, name="review")
