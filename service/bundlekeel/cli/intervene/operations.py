"""Brokers drained, cordoned and warmed; pins, exclusions; tasks stopped; reviews. What moves is a dry run first."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from bundlekeel.cli import completion, text_views
from bundlekeel.cli.client import Client, path_part
from bundlekeel.cli.exit_codes import BAD_NEWS, UNREACHABLE, CliError
from bundlekeel.cli.intervene import operation_tables
from bundlekeel.cli.intervene.changes import seconds_of
from bundlekeel.cli.intervene.manual_moves import CarryOutOption, WaitOption
from bundlekeel.cli.progress import ProgressLine
from bundlekeel.cli.session import (
    ByOption,
    ReasonOption,
    ReasonToActOption,
    Session,
    asked_by,
    connected,
    connected_once,
    login,
)

BrokerArgument = Annotated[
    str, typer.Argument(help="A broker's id, host:port.", show_default=False, autocompletion=completion.brokers)
]
ForOption = Annotated[
    str | None,
    typer.Option("--for", metavar="DURATION", help="How long, e.g. 2h; without it for good.", show_default=False),
]
WithinOption = Annotated[str, typer.Option("--within", metavar="DURATION", help="Give up waiting after this.")]
_POLL_SECONDS = 1.0
# A read of the shared state that began before the drain was written hides it until the next one.
_UNSEEN_SECONDS = 15.0


@connected
def operations(session: Session) -> None:
    """What people have asked for: drains with their progress, cordons, warms, pins, exclusions, pauses."""
    session.show(lambda client: client.get("operations"), operation_tables.operations)


@connected_once
def drain(
    session: Session,
    broker: BrokerArgument,
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    wait: WaitOption = False,
    within: WithinOption = "10m",
    by: ByOption = "",
) -> None:
    """Empty a broker and keep it empty until `uncordon`: a dry run unless --yes. --wait: until it is empty."""
    limit = seconds_of("--within", within)
    answer = _ask(session, "drain", broker, reason, by, yes)
    if yes and wait:
        answer["progress"] = _emptied(session, broker, limit)
    session.tell(answer, operation_tables.relocation)
    if answer.get("progress", {}).get("state", "empty") != "empty":
        raise typer.Exit(BAD_NEWS)


def _emptied(session: Session, broker: str, limit: float) -> Any:
    """The drain's row once the broker is empty, or nothing but what is bound to it is left."""
    begun = seen = time.monotonic()
    with ProgressLine() as line:
        while True:
            row = _drain_row(session.client, broker)
            if row is not None:
                seen = time.monotonic()
                line.tell(operation_tables.progress(row))
                if row.get("state") in ("empty", "blocked"):
                    return row
                if seen > begun + limit:
                    now = operation_tables.progress(row)
                    raise CliError(f"not empty yet: {now}; it goes on, see `bundlekeel operations`", UNREACHABLE)
            elif time.monotonic() > seen + min(_UNSEEN_SECONDS, limit):
                raise CliError(f"{broker} is not drained any more: somebody ended it", BAD_NEWS)
            time.sleep(_POLL_SECONDS)


def _drain_row(client: Client, broker: str) -> Any:
    """The drain of a broker; None when this sidecar knows of none."""
    drains = client.get("operations").get("drains") or []
    return next((row for row in drains if row.get("broker") == broker), None)


@connected_once
def warm(
    session: Session,
    broker: BrokerArgument,
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    by: ByOption = "",
) -> None:
    """Fill a new or restarted broker, gently, until it carries its share: a dry run unless --yes."""
    session.tell(_ask(session, "warm", broker, reason, by, yes), operation_tables.relocation)


@connected_once
def cordon(session: Session, broker: BrokerArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Stop moving bundles to a broker. Brokers still place on it what no broker owns; `drain` keeps it empty."""
    _tell(session, "POST", f"brokers/{path_part(broker)}/cordon", reason, by)


@connected_once
def uncordon(session: Session, broker: BrokerArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """End cordon, drain and warm of a broker."""
    _tell(session, "POST", f"brokers/{path_part(broker)}/uncordon", reason, by)


BundleArgument = Annotated[str, typer.Argument(help="A bundle.", show_default=False, autocompletion=completion.bundles)]
PatternArgument = Annotated[
    str,
    typer.Argument(
        help="t:TENANT, n:TENANT/NAMESPACE, b:BUNDLE or r:BROKER, with * and ? where wanted.", show_default=False
    ),
]


@connected_once
def pin(
    session: Session, bundle: BundleArgument, reason: ReasonOption, lasting: ForOption = None, by: ByOption = ""
) -> None:
    """Keep a bundle, or the bundle of a topic, where it is."""
    _tell(session, "PUT", f"pins/{path_part(bundle)}", reason, by, seconds=_seconds(lasting))


@connected_once
def unpin(session: Session, bundle: BundleArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """End a pin."""
    _tell(session, "DELETE", f"pins/{path_part(bundle)}", reason, by)


@connected_once
def exclude(
    session: Session, pattern: PatternArgument, reason: ReasonOption, lasting: ForOption = None, by: ByOption = ""
) -> None:
    """Leave tenants, namespaces, bundles or brokers alone."""
    _tell(session, "PUT", f"exclusions/{path_part(pattern)}", reason, by, seconds=_seconds(lasting))


@connected_once
def include(session: Session, pattern: PatternArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """End an exclusion."""
    _tell(session, "DELETE", f"exclusions/{path_part(pattern)}", reason, by)


@connected_once
def stop(
    session: Session,
    task: Annotated[str, typer.Argument(help="A task's id, see `bundlekeel plan tasks`.", show_default=False)],
    reason: ReasonOption,
    by: ByOption = "",
) -> None:
    """Begin no further move of a task; those under way end."""
    _tell(session, "POST", f"tasks/{path_part(task)}/stop", reason, by)


review_app = typer.Typer(help="What one person proposes, and another one approves.", no_args_is_help=True)
IdArgument = Annotated[str, typer.Argument(help="The id, see `bundlekeel review list`.", show_default=False)]


@connected
def review_list(session: Session) -> None:
    """What is, or was, to be approved."""
    session.show(lambda client: client.get("reviews"), operation_tables.reviews)


@connected_once
def approve(session: Session, id: IdArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Let what another person proposed be carried out."""
    _tell(session, "POST", f"reviews/{path_part(id)}/approve", reason, by)


@connected_once
def discard(session: Session, id: IdArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Say no to what somebody proposed."""
    _tell(session, "POST", f"reviews/{path_part(id)}/discard", reason, by)


def _ask(session: Session, verb: str, broker: str, reason: str, by: str, yes: bool) -> Any:
    body = asked_by(reason, by, yes=yes)
    return session.client.send("POST", f"brokers/{path_part(broker)}/{verb}", body)


def _tell(session: Session, method: str, path: str, reason: str, by: str, **more: Any) -> None:
    body = {"reason": reason, "by": by or login()}
    given = {name: value for name, value in more.items() if value is not None}
    session.tell(session.client.send(method, path, body | given), text_views.pairs)


def _seconds(lasting: str | None) -> float | None:
    return None if lasting is None else seconds_of("--for", lasting)


review_app.command("list")(review_list)
review_app.command("approve")(approve)
review_app.command("discard")(discard)


def register(app: typer.Typer) -> None:
    """Put them into the app."""
    for command in (operations, drain, warm, cordon, uncordon, pin, unpin, exclude, include, stop):
        app.command()(command)
    app.add_typer(review_app, name="review")
