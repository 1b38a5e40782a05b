"""Commands that read from a running sidecar and change nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

import typer

from bundlekeel.cli import completion, tables, text_views
from bundlekeel.cli.client import Client, path_part
from bundlekeel.cli.exit_codes import BAD_NEWS, CliError
from bundlekeel.cli.output import Output, typed
from bundlekeel.cli.session import (
    LimitOption,
    NamespaceOption,
    Session,
    SinceOption,
    UntilOption,
    broker_id,
    connected,
    lines_and_records,
    period,
)
from bundlekeel.model.names import check_name
from bundlekeel.views.picture import BrokerView, BundleView, CycleVerdict, WhyView
from bundlekeel.views.summary_fields import SummaryView

_STATUS_BUNDLES = 20
_SORTED_BY = {"score": "score_ratio", "traffic": "predicted_throughput", "bundles": "bundles"}


@connected
def status(session: Session) -> None:
    """Show the leader, the mode, the last cycle and the imbalance of the load. Exit code 1 if not ready."""

    def fetch(client: Client) -> Any:
        ready, lines = client.probe("readyz")
        answer = {"state": client.get("state"), "ready": ready, "checks": lines, "brokers": client.get("brokers")}
        answer["operations"] = {}
        # Right after its start the sidecar has not read the requests yet, but its state is worth showing.
        with suppress(CliError):
            answer["operations"] = client.get("operations")
        if session.output is not Output.TABLE:
            answer["bundles"] = client.get("bundles", limit=_STATUS_BUNDLES)
        return answer

    answer = session.show(fetch, typed(tables.Status, tables.status))
    if answer is not None and not answer["ready"]:
        raise typer.Exit(BAD_NEWS)


@connected
def brokers(
    session: Session,
    sort: Annotated[
        Literal["name", "score", "traffic", "bundles"],
        typer.Option(
            "--sort", metavar="BY", help="Sort key: name, score, traffic or bundles; the highest value first."
        ),
    ] = "name",
) -> None:
    """Show the load of each broker: latest report, short- and long-term averages, bundles in transit to it, verdict."""

    def fetch(client: Client) -> Any:
        rows, field = client.get("brokers"), _SORTED_BY.get(sort)
        return rows if field is None else sorted(rows, key=lambda row: row[field] or 0, reverse=True)

    session.show(fetch, typed(list[BrokerView], tables.brokers))


@connected
def bundles(
    session: Session,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", help="List only bundles of this broker.", autocompletion=completion.brokers, callback=broker_id
        ),
    ] = None,
    namespace: NamespaceOption = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="COUNT",
            min=1,
            max=1_000_000,
            help="Number of bundles to list, those with the most load first.",
        ),
    ] = 50,
) -> None:
    """Show the load of each bundle: latest, short- and long-term averages; whether it may move, and its destination."""

    def fetch(client: Client) -> Any:
        rows = client.rows("bundles", broker=broker, namespace=namespace, limit=limit)
        if not rows and namespace is not None:
            client.get("where", name=namespace)  # only to report a namespace that does not exist
        return rows

    rows = session.show(fetch, typed(list[BundleView], tables.bundles))
    if rows is not None and len(rows) == limit:
        typer.echo(f"the {limit} bundles with the most load; for more, pass --limit", err=True)


@connected
def why(
    session: Session,
    name: Annotated[str, typer.Argument(help="Bundle, topic or broker.", autocompletion=completion.anything)],
) -> None:
    """Explain the state of a bundle, topic or broker: its reasons, its history, and what would change it."""
    check_name(name)
    session.show(lambda client: client.get(f"bundles/{path_part(name)}/why"), typed(WhyView, text_views.why))


@connected
def verdicts(session: Session, limit: LimitOption = None, since: SinceOption = None, until: UntilOption = None) -> None:
    """Show the decisions of the last cycles, newest last. A table merges consecutive cycles with the same result into
    one line."""
    span = period(since, until)
    lines, count = lines_and_records(limit, span, session.output)
    session.show(
        lambda client: client.rows("verdicts", limit=count, **span),
        typed(list[CycleVerdict], lambda rows, layout: text_views.verdicts(rows, layout, lines)),
    )


@connected
def summary(session: Session, since: SinceOption = "24h", until: UntilOption = None) -> None:
    """Summarize a period: moves and their effect, refusals by code, overloads, requests to this sidecar."""
    span = period(since, until)
    session.show(lambda client: client.get("summary", **span), typed(SummaryView, text_views.summary))


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in (status, brokers, bundles, why, verdicts, summary):
        app.command()(command)
