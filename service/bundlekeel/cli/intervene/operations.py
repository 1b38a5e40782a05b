"""What people ask for: pauses, the mode, drains, cordons, warms, pins, exclusions, reviews, stopped tasks.
What moves bundles is a dry run first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from bundlekeel.cli import completion, tables, text_views, units
from bundlekeel.cli.client import Client, path_part
from bundlekeel.cli.exit_codes import BAD_NEWS, REFUSED, UNREACHABLE, USAGE, CliError, left_running
from bundlekeel.cli.intervene import operation_tables
from bundlekeel.cli.intervene.manual_moves import CarryOutOption, WaitOption
from bundlekeel.cli.output import ProgressLine, decoded, typed
from bundlekeel.cli.plan import WithinOption, longest_wait
from bundlekeel.cli.session import (
    ByOption,
    ReasonOption,
    ReasonToActOption,
    Session,
    asked_by,
    broker_id,
    connected,
    connected_once,
    login,
    seconds_of,
    told,
)
from bundlekeel.core.guard.scope import check_pattern, check_scope
from bundlekeel.core.model.names import check_name, refuse_namespace
from bundlekeel.core.model.text_format import numbered
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.operations import DrainView, OperationsView, ResumedScopeView
from bundlekeel.daemon.answers.picture import BrokerView, Mode, Resumed
from bundlekeel.daemon.answers.plans import RelocationView, ReviewView

BrokerArgument = Annotated[
    str, typer.Argument(help="A broker's id, host:port.", autocompletion=completion.brokers, callback=broker_id)
]
ForOption = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="How long, e.g. 2h; without it: for good.")
]
ScopeOption = Annotated[
    str | None, typer.Option("--scope", metavar="SCOPE", help="tenant:NAME, namespace:TENANT/NAME or broker:ID.")
]
_POLL_SECONDS = 1.0
# What held the last cycle may have ended since; two of them tell.
_HELD_SECONDS = 20.0
# A read of the shared state that began before a request was written hides it until the next one.
_UNSEEN_SECONDS = 15.0


@connected_once
def pause(
    session: Session,
    reason: ReasonOption,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long, e.g. 2h; without it: until resumed.")
    ] = None,
    scope: ScopeOption = None,
    by: ByOption = "",
) -> None:
    """Stop all changes to the cluster at once, whichever sidecar leads; with --scope: only in that scope."""
    if scope is not None:
        check_scope(scope)
    method, path = ("POST", "pause") if scope is None else ("PUT", f"pauses/{path_part(scope)}")
    _tell(session, method, path, reason, by, seconds=_seconds(duration))
    if scope is None:
        _warn_of_takeover(session)


@connected_once
def resume(session: Session, reason: ReasonOption, scope: ScopeOption = None, by: ByOption = "") -> None:
    """End a pause: the one of everything, or with --scope the one of that scope. Exit code 1 when there is none."""
    body = {"reason": reason, "by": by or login()}
    if scope is not None:
        check_scope(scope)
        answer = session.client.send("DELETE", f"pauses/{path_part(scope)}", body)
        session.tell(answer, typed(ResumedScopeView, operation_tables.resumed))
        return
    paused = session.state().paused
    # Sent all the same: another sidecar may have set a pause that this one has not read yet.
    answer = session.client.send("POST", "resume", body)
    if paused is not None:
        session.tell(answer, typed(Resumed, operation_tables.resumed))
    scopes = [row.scope for row in decoded(OperationsView, session.client.get("operations")).pauses if row.scope]
    if scopes:
        typer.echo(f"warning: still paused, until `resume --scope`: {', '.join(scopes)}", err=True)
    if paused is None:
        raise CliError("there was no pause of everything; `bundlekeel status` says what else stops moves", BAD_NEWS)


def _with_reason(context: typer.Context, mode: str | None) -> str | None:
    """A change needs a reason, and only a change has one. Options are read before arguments."""
    if mode is None and context.params.get("reason") is not None:
        context.fail("Missing argument 'MODE'.")
    if mode is not None and context.params.get("reason") is None:
        context.fail("Missing option '--reason'.")
    return mode


@connected_once
def mode(
    session: Session,
    mode: Annotated[
        Mode | None, typer.Argument(help="At most the mode of the settings file.", callback=_with_reason)
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why; needed with MODE, and kept in the journal.", callback=told)
    ] = None,
    by: ByOption = "",
) -> None:
    """Show the mode in force and its ceiling, the mode of the settings file; with MODE, set it for all sidecars.

    After a takeover nothing balances in a lower mode than `act`; for a night `handback` is better.
    After a handback, `act` lets limits of quota groups be set again.
    """
    if mode is None or reason is None:
        state = session.state()
        answer = {"mode": state.mode, "mode_ceiling": state.mode_ceiling}
        session.tell(answer, lambda *_: tables.mode(state))
        return
    _tell(session, "PUT", "mode", reason, by, shown={"before": session.state().mode}, mode=mode)
    if mode != "act":
        _warn_of_takeover(session)


def _warn_of_takeover(session: Session) -> None:
    """With the balancer stopped, nothing sheds what the brokers leave to it."""
    takeover = session.state().takeover
    if takeover is not None and takeover.active:
        back = "`bundlekeel handback` returns the shedding to the brokers"
        typer.echo(f"warning: nobody sheds what is taken over, as long as this lasts; {back}", err=True)


@connected
def operations(session: Session) -> None:
    """List what people have asked for: drains with their progress, cordons, warms, pins, exclusions, pauses."""
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
    answer, found = _relocate(session, "drain", broker, reason, by, yes)
    drained: DrainView | None = None
    if wait:
        answer["progress"] = _watched(session, "drains", broker, limit, _drained)
        if answer["progress"] is None:
            raise CliError(f"{broker} is not drained any more: somebody ended it", BAD_NEWS)
        drained = decoded(DrainView, answer["progress"])
    ended = operation_tables.progress(drained) if drained else ""
    session.tell(answer, lambda _, layout: operation_tables.relocation(found, ended, session.state, layout))
    if drained and drained.state != "empty":
        raise typer.Exit(BAD_NEWS)


def _drained(row: Json, held: str) -> tuple[str, bool]:
    """How far a drain is, and whether the broker is empty, or only bundles are left that cannot leave it."""
    drained = decoded(DrainView, row)
    return operation_tables.progress(drained, held), drained.state in ("empty", "blocked")


def _watched(
    session: Session, kind: str, broker: str, limit: float, look: Callable[[Json, str], tuple[str, bool]]
) -> Json | None:
    """The row of a drain or warm (`kind`: its table in the operations) once it is over, None once it is gone. `look`:
    how far it is, and whether it is over; it is given the code of what holds all moves, too."""
    begun = seen = free = time.monotonic()
    now = f"{broker}: not looked at yet"
    end = f'see `bundlekeel operations`; `bundlekeel uncordon {broker} --reason "…"` ends it'
    with ProgressLine() as line, left_running(lambda: f"not done yet: {now}; it goes on, {end}"):
        while True:
            answer = session.client.get("operations")
            rows: list[Json] = answer[kind]
            row = next((row for row in rows if row["broker"] == broker), None)
            held = answer.get("held", "")
            if row is not None:
                seen = time.monotonic()
                now, over = look(row, held)
                line.tell(now)
                if over:
                    return row
                free = free if held else seen
                if seen > free + min(_HELD_SECONDS, limit):
                    why = operation_tables.nothing_moves(held, answer["held_explanation"])
                    raise CliError(f"{now}; {why}. It is noted, and begins when that ends", REFUSED)
                if seen > begun + limit:
                    raise CliError(f"not done yet: {now}; it goes on, {end}", UNREACHABLE)
            elif time.monotonic() > seen + min(_UNSEEN_SECONDS, limit):
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
    """Move bundles gently to a new or restarted broker until it carries its share. A dry run unless --yes."""
    limit = longest_wait(within, wait=wait, yes=yes)
    answer, found = _relocate(session, "warm", broker, reason, by, yes)
    ended = ""
    if wait:
        _watched(session, "warms", broker, limit, lambda *_: (_filling(session.client, broker), False))
        # It ends by itself where a plan would move nothing more there; a person may end it before.
        answer["progress"], left = _relocate(session, "warm", broker, reason, by, False)
        ended = f"{_filling(session.client, broker)}; {left.sentence}"
        if left.moves:
            raise CliError(f"{broker} is not warmed any more, somebody ended it: {ended}", BAD_NEWS)
    session.tell(answer, lambda _, layout: operation_tables.relocation(found, ended, session.state, layout))


def _filling(client: Client, broker: str) -> str:
    """What a broker carries, in a line."""
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
    """End the cordon, drain and warm of a broker."""
    _tell(session, "POST", f"brokers/{path_part(broker)}/uncordon", reason, by)


BundleArgument = Annotated[
    str, typer.Argument(help="A bundle, or a topic for its bundle.", autocompletion=completion.bundles)
]
PatternArgument = Annotated[
    str, typer.Argument(help="t:TENANT, n:TENANT/NAMESPACE, b:BUNDLE or r:BROKER; * and ? are wildcards.")
]


@connected_once
def pin(
    session: Session, bundle: BundleArgument, reason: ReasonOption, lasting: ForOption = None, by: ByOption = ""
) -> None:
    """Keep a bundle, or the bundle of a topic, where it is."""
    check_name(bundle)
    refuse_namespace(bundle)
    _tell(session, "PUT", f"pins/{path_part(bundle)}", reason, by, seconds=_seconds(lasting))


@connected_once
def unpin(session: Session, bundle: BundleArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """End the pin of a bundle, or of the bundle of a topic."""
    check_name(bundle)
    refuse_namespace(bundle)
    answer = session.client.send("DELETE", f"pins/{path_part(bundle)}", {"reason": reason, "by": by or login()})
    session.tell(answer, lambda told, layout: text_views.pairs({**told, "ended": "pin"}, layout))


@connected_once
def exclude(
    session: Session, pattern: PatternArgument, reason: ReasonOption, lasting: ForOption = None, by: ByOption = ""
) -> None:
    """Move and split nothing of certain tenants, namespaces, bundles or brokers."""
    check_pattern(pattern)
    _tell(session, "PUT", f"exclusions/{path_part(pattern)}", reason, by, seconds=_seconds(lasting))


@connected_once
def include(session: Session, pattern: PatternArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """End an exclusion."""
    check_pattern(pattern)
    _tell(session, "DELETE", f"exclusions/{path_part(pattern)}", reason, by, shown={"ended": "exclusion"})


@connected_once
def stop(
    session: Session,
    task: Annotated[str, typer.Argument(help="A task's id, see `bundlekeel plan tasks`.")],
    reason: ReasonOption,
    by: ByOption = "",
) -> None:
    """Begin no further move of a task; moves under way are completed."""
    _tell(session, "POST", f"tasks/{path_part(task)}/stop", reason, by)


review_app = typer.Typer(help="Changes that one person proposes and another person approves.", no_args_is_help=True)
IdArgument = Annotated[str, typer.Argument(help="The id, see `bundlekeel review list`.")]


@connected
def review_list(session: Session) -> None:
    """List proposals, decided ones included."""
    session.show(lambda client: client.get("reviews"), typed(list[ReviewView], operation_tables.reviews))


@connected_once
def approve(session: Session, id: IdArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Approve what another person proposed: it is carried out."""
    _tell(session, "POST", f"reviews/{path_part(id)}/approve", reason, by)


@connected_once
def discard(session: Session, id: IdArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Reject a proposal of another person."""
    _tell(session, "POST", f"reviews/{path_part(id)}/discard", reason, by)


def _relocate(session: Session, verb: str, broker: str, reason: str, by: str, yes: bool) -> tuple[Json, RelocationView]:
    answer = session.client.send("POST", f"brokers/{path_part(broker)}/{verb}", asked_by(reason, by, yes=yes))
    return answer, decoded(RelocationView, answer)


def _tell(
    session: Session,
    method: str,
    path: str,
    reason: str,
    by: str,
    *,
    shown: Mapping[str, str] | None = None,
    **more: Any,
) -> None:
    """Send and show the answer; `shown`: what only the table has besides."""
    body = {"reason": reason, "by": by or login()}
    given = {name: value for name, value in more.items() if value is not None}
    answer = session.client.send(method, path, body | given)
    session.tell(answer, lambda told, layout: text_views.pairs({**told, **(shown or {})}, layout))
    if answer.get("bundles") == 0:
        typer.echo("warning: it matches no bundle that is reported now", err=True)


def _seconds(lasting: str | None) -> float | None:
    """Of --for, with its unit: five seconds are rarely meant by `5`."""
    if lasting is None:
        return None
    if not lasting.strip()[-1:].isalpha():
        raise CliError(f"--for {lasting!r}: expected a unit, such as 90s, 30m, 2h or 1d", USAGE)
    return seconds_of("--for", lasting)


review_app.command("list")(review_list)
review_app.command("approve")(approve)
review_app.command("discard")(discard)


def register(app: typer.Typer) -> None:
    """Put them into the app."""
    requests = (drain, warm, cordon, uncordon, pin, unpin, exclude, include, stop)
    for command in (pause, resume, mode, operations, *requests):
        app.command()(command)
    app.add_typer(review_app, name="review")
