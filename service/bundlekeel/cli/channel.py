"""`bundlekeel channel`: the ownership channel of the extensible load manager; what is wrong in it comes first."""

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
from bundlekeel.cli.output import Output, TableLayout, table, typed
from bundlekeel.cli.session import NamespaceOption, Session, broker_id, connected
from bundlekeel.cli.tables import split_name
from bundlekeel.core.channel.findings import ChannelFinding
from bundlekeel.core.channel.states import UnitState
from bundlekeel.daemon.answers.channel import ChannelSummary, UnitView


@connected
def channel(
    session: Session,
    state: Annotated[
        UnitState | None,
        typer.Option("--state", metavar="STATE", help="List only bundles in this state, e.g. Releasing."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            help="List only bundles to or from this broker.",
            autocompletion=completion.brokers,
            callback=broker_id,
        ),
    ] = None,
    namespace: NamespaceOption = None,
    after: Annotated[
        str, typer.Option("--after", metavar="BUNDLE", help="Begin after this bundle: the next page.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="COUNT", min=1, max=10_000, help="How many bundles.")] = 50,
) -> None:
    """Show the ownership channel of the extensible load manager: findings with remedy, and states.

    Bundles are listed with -o wide, or when an option selects them. Exit code 1 when something is wrong in the channel,
    or it cannot be followed; 4 where the brokers have none: their load manager is modular.
    """
    asked = {"state": state, "broker": broker, "namespace": namespace}
    listing = session.output is not Output.TABLE or any(asked.values()) or bool(after)

    def fetch(client: Client) -> Any:
        summary = client.get("channel")
        answer = {"channel": summary, "findings": client.get("channel/findings") if summary["up"] else []}
        if listing and summary["up"]:
            answer["bundles"] = client.rows("channel/bundles", limit=limit, after=after or None, **asked)
            # Errors when there is no such namespace or broker.
            if not answer["bundles"] and namespace is not None:
                client.get("where", name=namespace)
            if not answer["bundles"] and broker is not None:
                client.get("bundles", broker=broker, limit=1)
        return answer

    answer = session.show(fetch, typed(ChannelListing, draw))
    if answer is not None and (answer["findings"] or not answer["channel"]["up"]):
        raise typer.Exit(BAD_NEWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelListing:
    """What `channel` asks for. `bundles`: None where they are not listed."""

    channel: ChannelSummary
    findings: list[ChannelFinding]
    bundles: list[UnitView] | None = None


def draw(answer: ChannelListing, layout: TableLayout) -> RenderableType:
    """Findings, then states, then bundles."""
    parts: list[RenderableType] = [_health(answer.channel)]
    if not answer.channel.up:
        return parts[0]  # nothing is known to be right, or wrong
    parts += [Text(), findings(answer.findings, layout), Text(), _states(answer.channel)]
    if answer.bundles is not None:
        parts += [Text(), bundles(answer.bundles, layout)]
    return Group(*parts)


def _health(summary: ChannelSummary) -> Text:
    where = summary.variant.replace("_", " ") if summary.variant else "not known where"
    text = Text(f"ownership channel ({where}): ", style="bold")
    if summary.obstacle:
        text.append(f"{summary.obstacle}; ", style="yellow")
    if summary.up:
        return text.append("followed", style="green")
    return text.append(f"not followed: {summary.detail}", style="red")


def findings(rows: Sequence[ChannelFinding], layout: TableLayout) -> RenderableType:
    """One row a finding: since when, by when brokers should have repaired it, and what to do."""
    if not rows:
        return Text("nothing wrong", style="green")
    now = time.time()
    if layout.stacked:
        made = table("finding", "detail, remedy", lines=True)
        for row in rows:
            since, deadline = _times(row, now)
            below = f"\n{row.bundle}\nsince {since}\ndeadline {deadline}"
            made.add_row(Text(row.code, style="red").append(below, style="not red"), f"{row.detail}\n→ {row.remedy}")
        return made
    made = table("finding", "bundle", ">since", ">deadline", "detail", "remedy")
    for row in rows:
        made.add_row(Text(row.code, style="red"), row.bundle, *_times(row, now), row.detail, row.remedy)
    return made


def _times(row: ChannelFinding, now: float) -> tuple[str, str]:
    """Ages: since when, and in how long (or how long ago) brokers should have repaired it."""
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
    """One row an entry, by bundle."""
    written = [">written"] if layout.wide else []
    if layout.stacked:
        made = table("bundle, who has it", "state", ">version", *written, ">age", lines=True)
    else:
        made = table("bundle", "state", "owner", "on its way", ">version", *written, ">age")
    for row in rows:
        owner, state = row.owner or units.DASH, Text(row.state, style="" if row.state == "Owned" else "yellow")
        ages = [*([units.moment(row.since_ms)] if layout.wide else []), units.age(row.age_seconds)]
        if layout.stacked:
            made.add_row(f"{split_name(row.bundle)}\n  {way(row) or owner}", state, str(row.version), *ages)
        else:
            made.add_row(row.bundle, state, owner, way(row), str(row.version), *ages)
    return made


def way(row: UnitView) -> str:
    """Where a bundle comes from and goes to; empty for one that is simply owned."""
    if row.state == "Owned":
        return ""
    return (
        f"into {', '.join(row.children)}" if row.state == "Splitting" else f"{row.source} → {row.destination}".strip()
    )


def register(app: typer.Typer) -> None:
    """Put it into the app."""
    app.command()(channel)
