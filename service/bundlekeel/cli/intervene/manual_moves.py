"""`transfer`, `unload`, `split`: a bundle by hand, or with `unload` a whole namespace. A dry run unless `--yes`."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

import typer

from bundlekeel.cli import completion
from bundlekeel.cli.client import OVERRIDE_OPTION, path_part
from bundlekeel.cli.exit_codes import REFUSED, USAGE, CliError
from bundlekeel.cli.intervene import operation_tables
from bundlekeel.cli.output import decoded
from bundlekeel.cli.plan import WithinOption, exit_unless_done, finished, longest_wait
from bundlekeel.cli.session import ByOption, ReasonToActOption, Session, asked_by, broker_id, connected_once
from bundlekeel.core.model.names import check_name, names_namespace, refuse_namespace
from bundlekeel.core.splitting.algorithms import SplitAlgorithm
from bundlekeel.daemon.answers.plans import ManualMoveView, NamespaceUnloadView, TaskView

NameArgument = Annotated[
    str, typer.Argument(help="A bundle or a topic; bundles move whole.", autocompletion=completion.bundles)
]
CarryOutOption = Annotated[bool, typer.Option("--yes", "-y", help="Carry it out; without it this is a dry run.")]
OverrideOption = Annotated[
    bool, typer.Option(OVERRIDE_OPTION, help="Move it although it moved lately, also straight back.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="With --yes: wait until it is over.")]


@connected_once
def transfer(  # noqa: PLR0913, PLR0917 - the options of one command
    session: Session,
    name: NameArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="BROKER",
            help="The broker it is to go to.",
            autocompletion=completion.brokers,
            callback=broker_id,
        ),
    ],
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    override_cool_down: OverrideOption = False,
    wait: WaitOption = False,
    within: WithinOption = None,
    by: ByOption = "",
) -> None:
    """Move a bundle, or the bundle of a topic, to a broker. A dry run unless --yes (exit code 4 when refused)."""
    body = {"to": to, "override_cool_down": override_cool_down, **asked_by(reason, by, yes=yes)}
    _do(session, "transfer", name, body, wait=wait, within=within)


@connected_once
def unload(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(help="A bundle, a topic or a namespace (TENANT/NAMESPACE).", autocompletion=completion.places),
    ],
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    override_cool_down: OverrideOption = False,
    wait: WaitOption = False,
    within: WithinOption = None,
    by: ByOption = "",
) -> None:
    """Move a bundle, or all of a namespace, off its broker. A dry run unless --yes (exit code 4 when refused).

    Each bundle goes to the broker with the most room. A namespace is moved cycle by cycle, within the budgets; `stop`
    ends it.
    """
    body = {"override_cool_down": override_cool_down, **asked_by(reason, by, yes=yes)}
    _do(session, "unload", name, body, wait=wait, within=within, of_namespace=names_namespace(name))


@connected_once
def split(  # noqa: PLR0913, PLR0917 - the options of one command
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            help="A bundle, a topic, or TENANT/NAMESPACE/LARGEST: the largest by load.",
            autocompletion=completion.bundles,
        ),
    ],
    reason: ReasonToActOption = "",
    algorithm: Annotated[
        SplitAlgorithm | None,
        typer.Option("--algorithm", metavar="NAME", help="One of Pulsar's; without it: where the load divides."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="HASH", help="Split here, e.g. 0x40000000; repeatable in modular clusters."),
    ] = None,
    unload: Annotated[
        bool, typer.Option("--unload", help="Then move the children to other brokers, cycle by cycle.")
    ] = False,
    yes: CarryOutOption = False,
    wait: WaitOption = False,
    within: WithinOption = None,
    by: ByOption = "",
) -> None:
    """Split a bundle; nothing moves without --unload. A dry run unless --yes (exit code 4 when refused)."""
    body: dict[str, Any] = {"unload": unload, **asked_by(reason, by, yes=yes)}
    if algorithm is not None:
        body["algorithm"] = algorithm.value
    try:
        body["at"] = [int(position, 0) for position in at or ()]
    except ValueError:
        raise CliError(f"--at {', '.join(at or ())!r}: expected numbers such as 0x40000000", USAGE) from None
    _do(session, "split", name, body, wait=wait, within=within)


def _do(
    session: Session,
    verb: str,
    name: str,
    body: dict[str, Any],
    *,
    wait: bool,
    within: str | None,
    of_namespace: bool = False,
) -> None:
    """Ask, wait for the task when it has one, and print all in one answer."""
    limit = longest_wait(within, wait=wait, yes=body["execute"])
    check_name(name)
    if not of_namespace:
        refuse_namespace(name)
    path = f"{'namespaces' if of_namespace else 'bundles'}/{path_part(name)}/{verb}"
    answer = session.client.send("POST", path, body)
    found: ManualMoveView | NamespaceUnloadView
    if of_namespace:
        found = decoded(NamespaceUnloadView, answer)
        moves, hopeless = max(1, len(found.moves)), bool(found.refusals) and not found.moves and not found.waiting
        draw = partial(operation_tables.unload, found)
    else:
        found = decoded(ManualMoveView, answer)
        moves, hopeless = 1, bool(found.refusals)
        draw = partial(operation_tables.manual_move, found, body.get("to", ""))
    ended: TaskView | None = None
    if wait and found.task:
        answer["ended"] = finished(session.client, found.task, moves, time.monotonic() + limit)
        ended = decoded(TaskView, answer["ended"])
    session.tell(answer, lambda _, layout: draw(ended, session.state, layout))
    if found.dry_run and hopeless:
        raise typer.Exit(REFUSED)
    if ended:
        exit_unless_done(ended)


def register(app: typer.Typer) -> None:
    """Put them into the app."""
    for command in (transfer, unload, split):
        app.command()(command)
