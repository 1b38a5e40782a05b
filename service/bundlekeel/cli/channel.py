"""`bundlekeel channel`: the ownership channel of the extensible load manager, what is wrong in it first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import completion, units
from bundlekeel.cli.client import Client
from bundlekeel.cli.exit_codes import BAD_NEWS
from bundlekeel.cli.output import Output, TableLayout, table
from bundlekeel.cli.session import Session, connected
from bundlekeel.cli.tables import split_name

Row = Mapping[str, Any]

_VARIANTS = {"system_topic": "system topic", "metadata_store": "metadata store"}


@connected
def channel(
    session: Session,
    state: Annotated[
        str | None, typer.Option("--state", help="List only bundles in this state, e.g. Releasing.", show_default=False)
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            help="List only bundles to or from this broker.",
            show_default=False,
            autocompletion=completion.brokers,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="List only those of tenant/namespace.",
            show_default=False,
            autocompletion=completion.namespaces,
        ),
    ] = None,
    after: Annotated[str, typer.Option("--after", help="Begin after this bundle: the next page.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many bundles.")] = 50,
) -> None:
    """Ownership channel of the extensible load manager: findings with remedy, states, and (wide, or asked for) bundles.

    Exit code 1 when something is wrong in it, or it is not followed.
    """
    asked = {"state": state, "broker": broker, "namespace": namespace}
    listing = session.output is not Output.TABLE or any(asked.values()) or bool(after)

    def fetch(client: Client) -> Any:
        summary = client.get("channel")
        answer = {"channel": summary, "findings": client.get("channel/findings") if summary["up"] else []}
        if listing and summary["up"]:
            answer["bundles"] = client.get("channel/bundles", limit=limit, after=after or None, **asked)
        return answer

    answer = session.show(fetch, draw)
    if answer is not None and (answer["findings"] or not answer["channel"]["up"]):
        raise typer.Exit(BAD_NEWS)


def draw(answer: Row, layout: TableLayout) -> RenderableType:
    """Findings, then states, then bundles."""
    parts: list[RenderableType] = [_health(answer["channel"])]
    if not answer["channel"].get("up"):
        return parts[0]  # nothing is known to be right, or wrong
    parts += [Text(), findings(answer["findings"], layout), Text(), _states(answer["channel"])]
    if answer.get("bundles") is not None:
        parts += [Text(), bundles(answer["bundles"], layout)]
    return Group(*parts)


def _health(summary: Row) -> Text:
    where = _VARIANTS.get(str(summary.get("variant")), "not known where")
    text = Text(f"ownership channel ({where}): ", style="bold")
    if summary.get("obstacle"):
        text.append(f"{summary['obstacle']}; ", style="yellow")
    if summary.get("up"):
        text.append("followed", style="green")
    else:
        text.append(f"not followed: {summary.get('detail')}", style="red")
    return text


def findings(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """One row a finding: since when, by when brokers should have mended it, and what to do."""
    if not rows:
        return Text("nothing wrong", style="green")
    now = time.time()
    if layout.stacked:
        made = table("finding", ">since", ">deadline", "detail, remedy", lines=True)
        for row in rows:
            name = Text(str(row.get("code")), style="red").append(f"\n{row.get('bundle')}", style="not red")
            made.add_row(name, *_times(row, now), f"{row.get('detail')}\n→ {row.get('remedy')}")
        return made
    made = table("finding", "bundle", ">since", ">deadline", "detail", "remedy")
    for row in rows:
        name = Text(str(row.get("code")), style="red")
        made.add_row(name, str(row.get("bundle")), *_times(row, now), str(row.get("detail")), str(row.get("remedy")))
    return made


def _times(row: Row, now: float) -> tuple[str, str]:
    """Ages: since when, and in how long (or how long ago) brokers should have mended it."""
    since = f"{units.age(max(0.0, now - row['since_ms'] / 1000))} ago"
    if not row.get("deadline_ms"):
        return since, units.DASH
    left = row["deadline_ms"] / 1000 - now
    return since, f"in {units.age(left)}" if left >= 0 else f"{units.age(-left)} ago"


def _states(summary: Row) -> Text:
    states = summary.get("states") or {}
    counts = ", ".join(f"{count} {state}" for state, count in states.items() if count) or "no entries"
    oldest = summary.get("in_flight_oldest_seconds") or 0.0
    return Text(
        f"{summary.get('bundles', 0)} bundles: {counts}" + (f"; oldest in flight {units.age(oldest)}" if oldest else "")
    )


def bundles(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """One row an entry, by bundle."""
    written = [">written"] if layout.wide else []
    if layout.stacked:
        made = table("bundle, who has it", "state", ">version", *written, ">age", lines=True)
    else:
        made = table("bundle", "state", "owner", "on its way", ">version", *written, ">age")
    for row in rows:
        name, owner = str(row.get("bundle")), str(row.get("owner") or units.DASH)
        state = Text(str(row.get("state")), style="" if row.get("state") == "Owned" else "yellow")
        ages = [*([units.moment(row.get("since_ms"))] if layout.wide else []), units.age(row.get("age_seconds"))]
        if layout.stacked:
            made.add_row(f"{split_name(name)}\n  {way(row) or owner}", state, str(row.get("version")), *ages)
        else:
            made.add_row(name, state, owner, way(row), str(row.get("version")), *ages)
    return made


def way(row: Row) -> str:
    """Where a bundle comes from and goes to; nothing for one that simply is owned."""
    if row.get("state") == "Owned":
        return ""
    if row.get("state") == "Splitting":
        return f"into {', '.join(row.get('children') or {})}"
    return f"{row.get('source') or ''} → {row.get('destination') or ''}".strip()


def register(app: typer.Typer) -> None:
    """Put it into the app."""
    app.command()(channel)
