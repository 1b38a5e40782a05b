"""`bundlekeel channel`: show the ownership channel of the extensible load manager, problems (findings) first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import completion, units
from bundlekeel.cli.client import Client
from bundlekeel.cli.exit_codes import BAD_NEWS
from bundlekeel.cli.output import Column, Output, TableLayout, listing, typed
from bundlekeel.cli.session import NamespaceOption, Session, broker_id, connected
from bundlekeel.cli.tables import name_for
from bundlekeel.model.channel_states import UnitState
from bundlekeel.pulsar.channel.findings import ChannelFinding
from bundlekeel.pulsar.channel.responses import ChannelSummary, UnitView


@connected
def channel(
    session: Session,
    state: Annotated[
        UnitState | None,
        typer.Option("--state", metavar="STATE", help="State of the bundles to list, e.g. Releasing."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            help="Source or destination of the bundles to list.",
            autocompletion=completion.brokers,
            callback=broker_id,
        ),
    ] = None,
    namespace: NamespaceOption = None,
    after: Annotated[
        str,
        typer.Option(
            "--after", metavar="BUNDLE", help="List the bundles after this one: the last bundle of the previous page."
        ),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="COUNT", min=1, max=10_000, help="Number of bundles to list.")
    ] = 50,
) -> None:
    """Show the ownership channel of the extensible load manager: findings (problems), remedies, and bundle states.

    Bundles are listed with -o wide, or if an option selects them. Exit code 1 if there are findings, or the sidecar
    cannot read the channel; 4 if the brokers have no channel, because their load manager is modular.
    """
    filters = {"state": state, "broker": broker, "namespace": namespace}
    listing = session.output is not Output.TABLE or any(filters.values()) or bool(after)

    def fetch(client: Client) -> Any:
        summary = client.get("channel")
        response = {"channel": summary, "findings": client.get("channel/findings") if summary["up"] else []}
        if listing and summary["up"]:
            response["bundles"] = client.rows("channel/bundles", limit=limit, after=after or None, **filters)
            # Only to report a namespace or broker that does not exist: these requests fail in that case.
            if not response["bundles"] and namespace is not None:
                client.get("where", name=namespace)
            if not response["bundles"] and broker is not None:
                client.get("bundles", broker=broker, limit=1)
        return response

    response = session.show(fetch, typed(ChannelListing, draw))
    if response is not None and (response["findings"] or not response["channel"]["up"]):
        raise typer.Exit(BAD_NEWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelListing:
    """Responses that the command `channel` shows. `bundles`: None if the command does not list bundles."""

    channel: ChannelSummary
    findings: list[ChannelFinding]
    bundles: list[UnitView] | None = None


def draw(answer: ChannelListing, layout: TableLayout) -> RenderableType:
    """Render the findings (problems of the ownership channel), the number of bundles per state, and the bundles."""
    parts: list[RenderableType] = [_health(answer.channel)]
    if not answer.channel.up:
        return parts[0]  # the channel could not be read, so there are no findings to show
    parts += [Text(), findings(answer.findings, layout), Text(), _states(answer.channel)]
    if answer.bundles is not None:
        parts += [Text(), bundles(answer.bundles, layout)]
    return Group(*parts)


def _health(summary: ChannelSummary) -> Text:
    where = summary.variant.replace("_", " ") if summary.variant else "unknown variant"
    text = Text(f"ownership channel ({where}): ", style="bold")
    if summary.obstacle:
        text.append(f"{summary.obstacle}; ", style="yellow")
    if summary.up:
        return text.append("followed", style="green")
    return text.append(f"not followed: {summary.detail}", style="red")


def findings(rows: Sequence[ChannelFinding], layout: TableLayout) -> RenderableType:
    """Render one row per problem: its start, the time until which the brokers repair it themselves, and the remedy."""
    if not rows:
        return Text("no problems found", style="green")
    now, under = time.time(), 0 if layout.stacked else None
    return listing(
        rows,
        [
            Column("finding", lambda row: Text(row.code, style="red")),
            Column("bundle", lambda row: row.bundle, under, "\n{}"),
            Column(">since", lambda row: _times(row, now)[0], under, "\nsince {}"),
            Column(">deadline", lambda row: _times(row, now)[1], under, "\ndeadline {}"),
            Column("detail, remedy" if layout.stacked else "detail", lambda row: row.detail),
            Column("remedy", lambda row: row.remedy, 1 if layout.stacked else None, "\n→ {}"),
        ],
        lines=layout.stacked,
    )


def _times(row: ChannelFinding, now: float) -> tuple[str, str]:
    """Return the age of a problem, and the time until (or since) the deadline for the brokers to repair it."""
    since = f"{units.age(max(0.0, now - row.since_ms / 1000))} ago"
    if not row.deadline_ms:
        return since, units.DASH
    left = row.deadline_ms / 1000 - now
    return since, f"in {units.age(left)}" if left >= 0 else f"{units.age(-left)} ago"


def _states(summary: ChannelSummary) -> Text:
    counts = ", ".join(f"{count} {state}" for state, count in summary.states.items() if count) or "no entries"
    oldest = summary.in_flight_oldest_seconds
    return Text(f"{summary.bundles} bundles: {counts}" + (f"; oldest in flight {units.age(oldest)}" if oldest else ""))


def bundles(rows: Sequence[UnitView], layout: TableLayout) -> RenderableType:
    """Render one row per bundle of the ownership channel."""
    stacked = layout.stacked

    def owner(row: UnitView) -> str:
        return (stacked and way(row)) or row.owner or units.DASH

    return listing(
        rows,
        [
            Column("bundle, owner" if stacked else "bundle", lambda row: name_for(row.bundle, layout)),
            Column("state", lambda row: Text(row.state, style="" if row.state == "Owned" else "yellow")),
            Column("owner", owner, 0 if stacked else None),
            Column("in transit", way, shown=not stacked),
            Column(">version", lambda row: str(row.version)),
            Column(">written", lambda row: units.moment(row.since_ms), shown=layout.wide),
            Column(">age", lambda row: units.age(row.age_seconds)),
        ],
        lines=stacked,
    )


def way(row: UnitView) -> str:
    """Return source and destination of a bundle in transit, or the bundles after its split; "": not in transit."""
    if row.state == "Owned":
        return ""
    return (
        f"into {', '.join(row.children)}" if row.state == "Splitting" else f"{row.source} → {row.destination}".strip()
    )


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(channel)
