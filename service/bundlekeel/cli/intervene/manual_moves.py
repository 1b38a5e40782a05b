"""`transfer`, `unload`, `split`: a bundle by hand, or with `unload` a whole namespace. A dry run unless `--yes`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from bundlekeel.cli import completion
from bundlekeel.cli.client import path_part
from bundlekeel.cli.exit_codes import BAD_NEWS, REFUSED, USAGE, CliError
from bundlekeel.cli.intervene import operation_tables
from bundlekeel.cli.intervene.changes import finished
from bundlekeel.cli.session import ByOption, ReasonToActOption, Session, asked_by, connected_once
from bundlekeel.core.splitting.algorithms import SplitAlgorithm

NameArgument = Annotated[
    str,
    typer.Argument(
        help="A bundle or a topic; bundles move whole.", show_default=False, autocompletion=completion.bundles
    ),
]
CarryOutOption = Annotated[bool, typer.Option("--yes", "-y", help="Carry it out; without it this is a dry run.")]
OverrideOption = Annotated[
    bool, typer.Option("--override-cool-down", help="Move it although it moved lately, also straight back.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it is over.")]
# The longest move: an unload takes a minute, what waits before it as long.
WAIT_SECONDS = 300.0


@connected_once
def transfer(
    session: Session,
    name: NameArgument,
    to: Annotated[
        str,
        typer.Option("--to", help="The broker it is to go to.", show_default=False, autocompletion=completion.brokers),
    ],
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    override_cool_down: OverrideOption = False,
    wait: WaitOption = False,
    by: ByOption = "",
) -> None:
    """Move a bundle, or the bundle of a topic, to a broker: a dry run unless --yes (exit code 4 when refused)."""
    body = {"to": to, "override_cool_down": override_cool_down, **asked_by(reason, by, yes=yes)}
    _do(session, "transfer", name, body, wait=wait)


@connected_once
def unload(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            help="A bundle, a topic or a namespace (TENANT/NAMESPACE).",
            show_default=False,
            autocompletion=completion.places,
        ),
    ],
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    override_cool_down: OverrideOption = False,
    wait: WaitOption = False,
    by: ByOption = "",
) -> None:
    """Move a bundle, or all bundles of a namespace, off the broker, each to the one with most room: a dry run unless
    --yes (exit code 4 when refused). A namespace leaves cycle by cycle, within the budgets; `stop` ends it."""
    body = {"override_cool_down": override_cool_down, **asked_by(reason, by, yes=yes)}
    # As `where` tells them apart.
    of_namespace = "://" not in name and name.count("/") == 1
    _do(session, "unload", name, body, wait=wait, of_namespace=of_namespace)


@connected_once
def split(  # noqa: PLR0913, PLR0917 - the options of one command
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            help="A bundle, a topic, or TENANT/NAMESPACE/LARGEST: the largest by load.",
            show_default=False,
            autocompletion=completion.bundles,
        ),
    ],
    reason: ReasonToActOption = "",
    algorithm: Annotated[
        SplitAlgorithm | None,
        typer.Option("--algorithm", help="Pulsar's algorithm; else where load divides.", show_default=False),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="HASH", help="Cut here, e.g. 0x40000000; several times in modular clusters."),
    ] = None,
    unload: Annotated[
        bool, typer.Option("--unload", help="Then move the children off the broker, cycle by cycle.")
    ] = False,
    yes: CarryOutOption = False,
    wait: WaitOption = False,
    by: ByOption = "",
) -> None:
    """Divide a bundle at its owner; nothing moves without --unload. A dry run unless --yes (exit code 4: refused)."""
    body: dict[str, Any] = {"unload": unload, **asked_by(reason, by, yes=yes)}
    if algorithm is not None:
        body["algorithm"] = algorithm.value
    try:
        body["at"] = [int(position, 0) for position in at or ()]
    except ValueError:
        raise CliError(f"--at {', '.join(at or ())!r}: expected numbers such as 0x40000000", USAGE) from None
    _do(session, "split", name, body, wait=wait)


def _do(
    session: Session, verb: str, name: str, body: dict[str, Any], *, wait: bool, of_namespace: bool = False
) -> None:
    """Ask, wait for the task when it has one, and print all in one answer."""
    kind = "namespaces" if of_namespace else "bundles"
    answer = session.client.send("POST", f"{kind}/{path_part(name)}/{verb}", body)
    if wait and answer.get("task"):
        moves = len(answer.get("moves") or [0])
        begun = {"task": answer["task"], "state": "waiting", "moves": moves}
        answer["ended"] = finished(session.client, begun, time.monotonic() + WAIT_SECONDS * moves)
    session.tell(answer, operation_tables.unload if of_namespace else operation_tables.manual_move)
    hopeless = answer.get("refusals") and not answer.get("moves") and not answer.get("waiting")
    if answer.get("dry_run") and hopeless:
        raise typer.Exit(REFUSED)
    ended = answer.get("ended", {})
    if ended.get("state", "done") != "done":
        raise typer.Exit(BAD_NEWS if ended.get("moves") else REFUSED)


def register(app: typer.Typer) -> None:
    """Put them into the app."""
    for command in (transfer, unload, split):
        app.command()(command)
