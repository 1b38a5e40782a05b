"""`bundlekeel thresholds`: what the nightly job proposes, what is in force of it, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import text_views, units
from bundlekeel.cli.output import TableLayout, table
from bundlekeel.cli.session import ByOption, ReasonOption, Session, connected, connected_once, login
from bundlekeel.cli.tables import coded
from bundlekeel.core.model.text_format import numbered

Row = Mapping[str, Any]

thresholds_app = typer.Typer(
    help="Thresholds that the nightly job proposes: look at them, adopt them, revert them.", no_args_is_help=True
)
DigestOption = Annotated[
    str | None,
    typer.Option("--digest", help="Only if the newest proposal is still this one.", show_default=False),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Override objections that are a matter of judgement, such as NotBetter.")
]


@connected
def show(session: Session) -> None:
    """How things stand: the newest proposal, what speaks against it, what is in force and how it does."""
    session.show(lambda client: client.get("thresholds"), standing)


@connected
def diff(session: Session) -> None:
    """The parameters that the newest proposal would change, each with its evidence."""
    session.show(lambda client: client.get("thresholds"), changes)


@connected_once
def adopt(
    session: Session, reason: ReasonOption, digest: DigestOption = None, force: ForceOption = False, by: ByOption = ""
) -> None:
    """Let the newest proposal come into force. It is watched, and reverted when it does worse than promised."""
    body: dict[str, Any] = {"reason": reason, "by": by or login(), "force": force}
    named = {"digest": digest} if digest else {}
    session.tell(session.client.send("POST", "thresholds/adopt", body | named), adoption)


@connected_once
def revert(session: Session, reason: ReasonOption, by: ByOption = "") -> None:
    """Take the last adoption back, at once; the same values are not adopted again by themselves."""
    body = {"reason": reason, "by": by or login()}
    session.tell(session.client.send("POST", "thresholds/revert", body), text_views.pairs)


def standing(answer: Row, layout: TableLayout) -> RenderableType:
    """The sentence first, then the proposal, then what is adopted."""
    parts: list[RenderableType] = [Text(str(answer.get("sentence")), style="bold")]
    if answer.get("error"):
        parts.append(Text(str(answer["error"]), style="red"))
    document = answer.get("document")
    if document:
        data = document.get("data") or {}
        made = (
            f"proposal {document.get('digest')} ({document.get('path')}), made {units.moment(document['created_ms'])}"
        )
        days = f"{len(data.get('days') or [])} days, {units.share(data.get('coverage'))} recorded"
        parts.append(Text(f"{made} of {days}"))
    parts += _objections(answer)
    if answer.get("changes"):
        parts.append(changes(answer, layout))
    if answer.get("adopted"):
        parts += _adopted(answer["adopted"])
    for row in answer.get("reverted") or []:
        said = f"{units.moment(row.get('since_ms'))} {row.get('digest')} reverted by {row.get('by')}"
        parts.append(Text(f"{said}: {row.get('reason')}", style="dim"))
    return Group(*parts)


def changes(answer: Row, layout: TableLayout) -> RenderableType:
    """A line a parameter; below, what held-out days say."""
    rows = answer.get("changes") or []
    if not rows:
        return Text("nothing would change")
    made = table("parameter", ">in force", ">proposed", ">steps", "evidence")
    for row in rows:
        steps = row.get("steps")
        made.add_row(
            str(row.get("parameter")),
            _number(row.get("current")),
            _number(row.get("proposed")),
            f"{steps:.1f}" if steps is not None else "∞",
            str(row.get("evidence") or ""),
        )
    evidence = (answer.get("document") or {}).get("evidence")
    return Group(made, Text(), _measures(evidence, layout)) if evidence else made


def adoption(answer: Row, layout: TableLayout) -> RenderableType:
    """What came into force."""
    return Group(Text(str(answer.get("sentence")), style="bold"), changes(answer, layout))


def _measures(evidence: Row, layout: TableLayout) -> RenderableType:
    days = evidence.get("held_out") or []
    title = f"on {numbered(len(days), 'held-out day')}"
    made = table("", ">in force", ">proposed", ">difference", ">unbroken", title=title)
    gap = "\n" if layout.stacked else " "
    course = evidence.get("unbroken") or {}
    for name in evidence.get("chosen") or {}:
        cells = [_interval((evidence.get(kind) or {}).get(name), gap) for kind in ("previous", "chosen", "difference")]
        ends = [((course.get(kind) or {}).get(name) or {}).get("mean") for kind in ("previous", "chosen")]
        cells.append(" -> ".join(f"{end:.4g}" for end in ends if end is not None) or units.DASH)
        made.add_row(name.replace("_", " "), *cells)
    return made


def _interval(found: Any, gap: str) -> str:
    return f"{found['mean']:.4g}{gap}[{found['low']:.4g}, {found['high']:.4g}]" if found else units.DASH


def _objections(answer: Row) -> list[RenderableType]:
    return [
        Text("  ").append(coded(item.get("code"))).append(f": {item.get('explanation')} ({item.get('detail')})")
        for item in answer.get("objections") or []
    ]


def _adopted(row: Row) -> list[RenderableType]:
    digest = row.get("digest") or "of earlier nights"
    said = f"in force: {digest}, since {units.moment(row.get('since_ms'))} by {row.get('by')}: {row.get('reason')}"
    values = ", ".join(
        f"{name} {_number(value)} (settings: {_number((row.get('instead_of') or {}).get(name))})"
        for name, value in (row.get("values") or {}).items()
    )
    parts: list[RenderableType] = [Text(said), Text(f"  {values or 'none of it: the settings changed since'}")]
    trial = row.get("trial")
    if trial:
        parts.append(
            Text(
                f"  on trial {units.age(trial.get('seconds'))} of {units.age(trial.get('needed_seconds'))}: imbalance "
                f"{units.share(trial.get('imbalance'))} (promised {units.share(trial.get('imbalance_promised'))}, "
                f"before {units.share(trial.get('imbalance_before'))}), moves an hour "
                f"{_number(trial.get('moves_per_hour'))} (promised {_number(trial.get('moves_promised'))}, "
                f"before {_number(trial.get('moves_before'))})",
                style="yellow",
            )
        )
    return parts


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else units.DASH


for _command in (show, diff, adopt, revert):
    thresholds_app.command()(_command)


def register(app: typer.Typer) -> None:
    """Put them into the app."""
    app.add_typer(thresholds_app, name="thresholds")
