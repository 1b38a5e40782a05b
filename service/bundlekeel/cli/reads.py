"""Commands that ask a running sidecar and change nothing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bundlekeel.cli import completion, tables, text_views
from bundlekeel.cli.client import Client, path_part
from bundlekeel.cli.exit_codes import BAD_NEWS, USAGE, CliError
from bundlekeel.cli.intervene import plans
from bundlekeel.cli.output import Output
from bundlekeel.cli.period import SinceOption, UntilOption, period, records_of
from bundlekeel.cli.session import Session, connected

_STATUS_BUNDLES = 20


LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        max=10_000,
        help="How many, the newest; 20, or all of a time that is given.",
        show_default=False,
    ),
]
HashArgument = Annotated[str, typer.Argument(help="The plan's hash.", show_default=False)]


@connected
def status(session: Session) -> None:
    """Who leads, what mode, how the last cycle went, how even the load is. Exit code 1 when not ready."""

    def fetch(client: Client) -> Any:
        ready, lines = client.probe("readyz")
        answer = {"state": client.get("state"), "ready": ready, "checks": lines, "brokers": client.get("brokers")}
        answer["operations"] = client.get("operations")
        if session.output is not Output.TABLE:
            answer["bundles"] = client.get("bundles", limit=_STATUS_BUNDLES)
        return answer

    answer = session.show(fetch, tables.status)
    if answer is not None and not answer["ready"]:
        raise typer.Exit(BAD_NEWS)


@connected
def brokers(session: Session) -> None:
    """Load per broker: latest report, short and long term, preallocated bundles with their age, verdict."""
    session.show(lambda client: client.get("brokers"), tables.brokers)


@connected
def bundles(
    session: Session,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", help="Only those of this broker.", show_default=False, autocompletion=completion.brokers
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Only those of tenant/namespace.",
            show_default=False,
            autocompletion=completion.namespaces,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="How many, the largest.")] = 50,
) -> None:
    """Load per bundle: latest, short and long term with sample counts; may it move, where is it going."""
    session.show(lambda client: client.get("bundles", broker=broker, namespace=namespace, limit=limit), tables.bundles)


@connected
def why(
    session: Session,
    name: Annotated[
        str, typer.Argument(help="A bundle, topic or broker.", show_default=False, autocompletion=completion.anything)
    ],
) -> None:
    """Why a bundle, topic or broker is where it is, what happened to it, and what would change that."""
    path = f"bundles/{path_part(name)}/why"
    session.show(lambda client: client.get(path), text_views.why)


@connected
def verdicts(session: Session, limit: LimitOption = None, since: SinceOption = None, until: UntilOption = None) -> None:
    """What the last cycles decided, newest last; as a table, cycles in a row that decided the same are one line."""
    span = period(since, until)
    count = limit or records_of(span)
    session.show(lambda client: client.get("verdicts", limit=count, **span), text_views.verdicts)


@connected
def summary(session: Session, since: SinceOption = "24h", until: UntilOption = None) -> None:
    """What happened: moves and what they did, refusals by code, overloads, what people did."""
    span = period(since, until)
    session.show(lambda client: client.get("summary", **span), text_views.summary)


plan_app = typer.Typer(invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")


@connected
def make_plan(
    session: Session,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help="Another strategy.", show_default=False, autocompletion=completion.strategies),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            "--placement", help="Another placement.", show_default=False, autocompletion=completion.placements
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter, by our or Pulsar's name.",
            autocompletion=completion.parameters,
        ),
    ] = None,
    remove_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--remove-broker", metavar="BROKER", help="As if this broker were gone.", autocompletion=completion.brokers
        ),
    ] = None,
    add_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--add-broker", metavar="NAME", help="As if this broker were there too: empty, as large as the middle one."
        ),
    ] = None,
    scale: Annotated[float, typer.Option("--scale", help="As if all traffic were this many times.")] = 1.0,
    ignore_hit_counts: Annotated[
        bool | None,
        typer.Option(
            "--ignore-hit-counts/--keep-hit-counts",
            help="Skip the waiting period; without either, only with brokers or traffic that are not there.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """What would you do, and why? A dry run: nothing is touched. Moves, load before and after, every refusal."""
    body = {
        "strategy": strategy,
        "placement": placement,
        "parameters": dict(_pair(text) for text in sets or []),
        "remove_brokers": remove_broker or [],
        "add_brokers": add_broker or [],
        "traffic_scale": scale,
        "ignore_hit_counts": ignore_hit_counts,
    }
    session.show(lambda client: client.send("POST", "plans", body), plans.plan)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise CliError(f"--set {text!r}: expected key=value, e.g. --set threshold_percent=5", USAGE)
    return key.strip(), value.strip()


@connected
def show_plan(session: Session, plan_hash: HashArgument) -> None:
    """Show a plan made earlier; plans are kept for 15 minutes."""
    session.show(lambda client: client.get(f"plans/{path_part(plan_hash)}"), plans.plan)


@connected
def list_plans(session: Session) -> None:
    """Plans made lately, newest last."""
    session.show(lambda client: client.get("plans"), plans.summaries)


@connected
def list_tasks(session: Session) -> None:
    """Executions asked for, and how far they are; last those that wait for the leader (`waiting`)."""
    session.show(lambda client: client.get("tasks"), text_views.tasks)


plan_app.callback()(make_plan)
plan_app.command("show")(show_plan)
plan_app.command("list")(list_plans)
plan_app.command("tasks")(list_tasks)


def register(app: typer.Typer) -> None:
    """Put them into the app, but `plan`, of which `execute` is in another module."""
    for command in (status, brokers, bundles, why, verdicts, summary):
        app.command()(command)
