"""Commands `transfer`, `unload` and `split`: manual changes of a bundle, and with `unload` of a whole namespace.

They are dry runs unless `--yes`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

import typer

from bundlekeel.cli import completion, operation_tables
from bundlekeel.cli.client import OVERRIDE_OPTION, path_part
from bundlekeel.cli.exit_codes import REFUSED, USAGE, CliError
from bundlekeel.cli.output import decoded
from bundlekeel.cli.plan import WithinOption, exit_unless_done, finished, longest_wait
from bundlekeel.cli.session import ByOption, ReasonToActOption, Session, broker_id, connected_once, request_body
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.model.names import check_name, names_namespace, refuse_namespace
from bundlekeel.planning.splitting.algorithms import SplitAlgorithm
from bundlekeel.requests.manual_moves import ManualMoveView
from bundlekeel.requests.unload import NamespaceUnloadView

NameArgument = Annotated[
    str, typer.Argument(help="Bundle or topic; a bundle moves as a whole.", autocompletion=completion.bundles)
]
CarryOutOption = Annotated[bool, typer.Option("--yes", "-y", help="Execute the change. Default: a dry run.")]
OverrideOption = Annotated[
    bool,
    typer.Option(OVERRIDE_OPTION, help="Move the bundle even if it moved recently, also back to its previous broker."),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="With --yes: wait until the moves or splits have ended.")]


@connected_once
def transfer(  # noqa: PLR0913, PLR0917 - the options of one command
    session: Session,
    name: NameArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="BROKER",
            help="Destination broker.",
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
    """Move a bundle, or the bundle of a topic, to a broker. A dry run unless --yes (exit code 4 if refused)."""
    body = {"to": to, "override_cool_down": override_cool_down, **request_body(reason, by, yes=yes)}
    _do(session, "transfer", name, body, wait=wait, within=within)


@connected_once
def unload(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(help="Bundle, topic or namespace (TENANT/NAMESPACE).", autocompletion=completion.places),
    ],
    reason: ReasonToActOption = "",
    yes: CarryOutOption = False,
    override_cool_down: OverrideOption = False,
    wait: WaitOption = False,
    within: WithinOption = None,
    by: ByOption = "",
) -> None:
    """Move a bundle, or all bundles of a namespace, off their brokers. A dry run unless --yes (exit code 4 if refused).

    Each bundle goes to the broker with the most free capacity. A namespace is moved cycle by cycle, within the budgets;
    `stop` ends it.
    """
    body = {"override_cool_down": override_cool_down, **request_body(reason, by, yes=yes)}
    _do(session, "unload", name, body, wait=wait, within=within, is_namespace=names_namespace(name))


@connected_once
def split(  # noqa: PLR0913, PLR0917 - the options of one command
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            help="Bundle, topic, or TENANT/NAMESPACE/LARGEST: the bundle with the most load.",
            autocompletion=completion.bundles,
        ),
    ],
    reason: ReasonToActOption = "",
    algorithm: Annotated[
        SplitAlgorithm | None,
        typer.Option("--algorithm", metavar="NAME", help="Split algorithm of Pulsar. Default: divide the load evenly."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="HASH", help="Hash to split at, e.g. 0x40000000; repeatable in modular clusters."),
    ] = None,
    unload: Annotated[
        bool,
        typer.Option("--unload", help="After the split, move the new bundles to other brokers in the next cycles."),
    ] = False,
    yes: CarryOutOption = False,
    wait: WaitOption = False,
    within: WithinOption = None,
    by: ByOption = "",
) -> None:
    """Split a bundle; without --unload nothing moves. A dry run unless --yes (exit code 4 if refused)."""
    body: dict[str, Any] = {"unload": unload, **request_body(reason, by, yes=yes)}
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
    is_namespace: bool = False,
) -> None:
    """Send the request, if `wait` is true wait until its task has ended, and print response and task together."""
    limit = longest_wait(within, wait=wait, yes=body["execute"])
    check_name(name)
    if not is_namespace:
        refuse_namespace(name)
    path = f"{'namespaces' if is_namespace else 'bundles'}/{path_part(name)}/{verb}"
    response = session.client.send("POST", path, body)
    result: ManualMoveView | NamespaceUnloadView
    if is_namespace:
        result = decoded(NamespaceUnloadView, response)
        moves, refused = max(1, len(result.moves)), bool(result.refusals) and not result.moves and not result.waiting
        draw = partial(operation_tables.unload, result)
    else:
        result = decoded(ManualMoveView, response)
        moves, refused = 1, bool(result.refusals)
        draw = partial(operation_tables.manual_move, result, body.get("to", ""))
    ended: TaskView | None = None
    if wait and result.task:
        response["ended"] = finished(session.client, result.task, moves, time.monotonic() + limit)
        ended = decoded(TaskView, response["ended"])
    session.tell(response, lambda _, layout: draw(ended, session.state, layout))
    if result.dry_run and refused:
        raise typer.Exit(REFUSED)
    if ended:
        exit_unless_done(ended)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in (transfer, unload, split):
        app.command()(command)
