"""Commands that change something through a running sidecar: by its unix socket, while no authentication is set."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from bundlekeel.cli import text_views
from bundlekeel.cli.client import Client, path_part
from bundlekeel.cli.exit_codes import BAD_NEWS, REFUSED, UNREACHABLE, USAGE, CliError
from bundlekeel.cli.intervene import operation_tables
from bundlekeel.cli.progress import ProgressLine
from bundlekeel.cli.reads import HashArgument, make_plan, plan_app
from bundlekeel.cli.session import ByOption, ReasonOption, Session, connected_once, login
from bundlekeel.core.model.text_format import numbered
from bundlekeel.daemon.answers.picture import Mode
from bundlekeel.settings.types import parse_duration

# What is proposed waits for another person.
_ENDED = ("done", "failed", "stopped", "proposed")


ScopeOption = Annotated[
    str | None,
    typer.Option("--scope", help="tenant:NAME, namespace:TENANT/NAME or broker:ID.", show_default=False),
]


@connected_once
def execute(
    session: Session,
    plan_hash: HashArgument,
    reason: ReasonOption,
    by: ByOption = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every move has landed or failed.")] = False,
    within: Annotated[str, typer.Option("--within", metavar="DURATION", help="Give up waiting after this.")] = "10m",
) -> None:
    """Carry out exactly that plan, or refuse and say what changed since (exit code 4)."""
    limit = seconds_of("--within", within)
    body = {"reason": reason, "by": by or login()}
    task = session.client.send("POST", f"plans/{path_part(plan_hash)}/execute", body)
    if wait:
        task = finished(session.client, task, time.monotonic() + limit)
    session.tell(task, text_views.pairs)
    if task.get("state") == "failed":
        raise typer.Exit(REFUSED if not task.get("moves") else BAD_NEWS)


def finished(client: Client, task: Any, deadline: float) -> Any:
    """The task once it is over; CliError when it is not by then (monotonic seconds). `task`: as it was submitted, with
    the number of its moves."""
    planned, ended = int(task.get("moves") or 0), 0
    with ProgressLine() as line:
        while task.get("state") not in _ENDED:
            line.tell(f"task {task.get('task')}: {task.get('state')}, {ended} of {numbered(planned, 'move')} ended")
            if time.monotonic() > deadline:
                raise CliError(
                    f"task {task.get('task')} is still {task.get('state')}; see `bundlekeel plan tasks`", UNREACHABLE
                )
            time.sleep(0.5)
            found = next((item for item in client.get("tasks") if item.get("task") == task.get("task")), None)
            if found is not None:
                task, ended = found, len(found.get("moves") or [])
    return task


@connected_once
def pause(
    session: Session,
    reason: ReasonOption,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="DURATION", help="How long, e.g. 2h; without it until resumed.", show_default=False
        ),
    ] = None,
    scope: ScopeOption = None,
    by: ByOption = "",
) -> None:
    """Stop acting, at once, whichever sidecar leads: everywhere, or in one scope."""
    seconds = None if duration is None else seconds_of("--for", duration)
    body = {"reason": reason, "by": by or login(), "seconds": seconds}
    method, path = ("POST", "pause") if scope is None else ("PUT", f"pauses/{path_part(scope)}")
    session.tell(session.client.send(method, path, body), text_views.pairs)


def seconds_of(option: str, text: str) -> float:
    """Seconds above 0 of an option; CliError names what is allowed."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise CliError(f"{option} {text!r}: expected a duration such as 90s, 30m, 2h or 1d", USAGE) from None
    if seconds <= 0:
        raise CliError(f"{option} {text!r}: must be longer than nothing", USAGE)
    return seconds


@connected_once
def resume(session: Session, reason: ReasonOption, scope: ScopeOption = None, by: ByOption = "") -> None:
    """End a pause: the one of everything, or of one scope."""
    method, path = ("POST", "resume") if scope is None else ("DELETE", f"pauses/{path_part(scope)}")
    session.tell(session.client.send(method, path, {"reason": reason, "by": by or login()}), operation_tables.resumed)


@connected_once
def mode(
    session: Session,
    mode: Annotated[Mode, typer.Argument(help="At most the mode of the settings file.", show_default=False)],
    reason: ReasonOption,
    by: ByOption = "",
) -> None:
    """Lower the mode of all sidecars, or restore it within the ceiling of the settings file."""
    body = {"mode": mode, "reason": reason, "by": by or login()}
    session.tell(session.client.send("PUT", "mode", body), text_views.pairs)


plan_app.command("execute")(execute)


def register(app: typer.Typer) -> None:
    """Put them into the app, with the whole of `plan`."""
    for command in (pause, resume, mode):
        app.command()(command)
    app.add_typer(plan_app, name="plan", help=make_plan.__doc__)
