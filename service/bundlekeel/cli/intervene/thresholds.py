"""`bundlekeel thresholds`: what the nightly job proposes, what is in force of it, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import text_views, units
from bundlekeel.cli.output import TableLayout, table, typed
from bundlekeel.cli.session import ByOption, ReasonOption, Session, connected, connected_once, login
from bundlekeel.cli.tables import coded
from bundlekeel.core.calibration.thresholds import TITLES, WORSE, ThresholdChange
from bundlekeel.core.model.text_format import level, numbered, share
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.operations import AdoptedView, AdoptionView, ObjectionView, ThresholdsView

thresholds_app = typer.Typer(
    help="Thresholds that the nightly job proposes: look at them, adopt them, revert them.", no_args_is_help=True
)
DigestOption = Annotated[
    str | None, typer.Option("--digest", metavar="DIGEST", help="Only if the newest proposal has this digest.")
]
AdoptedOption = Annotated[
    str | None, typer.Option("--digest", metavar="DIGEST", help="Only if the adopted thresholds have this digest.")
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Override objections that are a matter of judgement, such as TooOld or StepTooLarge. Do not where it was "
        "worse, or not better: WorseUnbroken, NotBetter.",
    ),
]

# Whether a person can adopt in spite of an objection (`ObjectionView.person`).
_DESPITE = {
    "": "",
    "no": "; --force does not help",
    "force": "; --force overrides it",
    "yes": "; you can adopt it without --force",
}


@connected
def show(session: Session) -> None:
    """Show the newest proposal, the objections to it, what is in force and how it does."""
    session.show(lambda client: client.get("thresholds"), typed(ThresholdsView, standing))


@connected
def diff(session: Session) -> None:
    """Show what the newest proposal would change, with its evidence and the objections to it."""
    session.show(lambda client: client.get("thresholds"), typed(ThresholdsView, changes))


@connected_once
def adopt(
    session: Session, reason: ReasonOption, digest: DigestOption = None, force: ForceOption = False, by: ByOption = ""
) -> None:
    """Put the newest proposal into force. It is watched, and reverted when it does worse than it promises."""
    body = {"reason": reason, "by": by or login(), "force": force, **({"digest": digest} if digest else {})}
    session.tell(session.client.send("POST", "thresholds/adopt", body), typed(AdoptionView, adoption))


@connected_once
def revert(session: Session, reason: ReasonOption, digest: AdoptedOption = None, by: ByOption = "") -> None:
    """Undo the last adoption at once. For 30 days, or until a person adopts, nothing is adopted automatically."""
    body = {"reason": reason, "by": by or login(), **({"digest": digest} if digest else {})}
    session.tell(session.client.send("POST", "thresholds/revert", body), text_views.pairs)


def standing(answer: ThresholdsView, layout: TableLayout) -> RenderableType:
    """The sentence first, then the proposal, then what is adopted."""
    parts: list[RenderableType] = [Text(answer.sentence, style="bold")]
    if answer.error:
        parts.append(Text(answer.error, style="red"))
    if document := answer.document:
        data = document["data"]
        days = f"{len(data['days'])} days, {units.share(data['coverage'])} recorded"
        made = f"proposal {document['digest']} ({document.get('path')}), made {units.moment(document['created_ms'])}"
        parts.append(Text(f"{made} of {days}"))
    if answer.objections or answer.changes:
        parts.append(changes(answer, layout))
    if answer.adopted:
        parts += _adopted(answer.adopted)
    for row in answer.reverted:
        said = f"{units.moment(row.since_ms)} {row.digest} reverted by {row.by}: {row.reason}"
        parts.append(Text(said, style="dim"))
    return Group(*parts)


def changes(answer: ThresholdsView, layout: TableLayout) -> RenderableType:
    """The objections; a line a parameter; below, what held-out days say."""
    parts: list[RenderableType] = [
        Text("  ").append(coded(item.code)).append(f": {item.explanation} ({item.detail}){_despite(item)}")
        for item in answer.objections
    ]
    parts.append(_changes(answer.changes))
    evidence = (answer.document or {}).get("evidence")
    if evidence and answer.changes:
        parts += [Text(), _measures(evidence, layout)]
    return Group(*parts)


def _despite(item: ObjectionView) -> str:
    dissuaded = item.person == "force" and item.code in WORSE
    return f"{_DESPITE[item.person]}{', but do not: it was worse, or not better' if dissuaded else ''}"


def adoption(answer: AdoptionView, _: TableLayout) -> RenderableType:
    """What came into force."""
    return Group(Text(answer.sentence, style="bold"), _changes(answer.changes))


def _changes(rows: Sequence[ThresholdChange]) -> RenderableType:
    if not rows:
        return Text("nothing would change")
    made = table("parameter", ">in force", ">proposed", ">steps", "evidence")
    for row in rows:
        steps = "∞" if row.steps is None else f"{row.steps:.1f}"
        made.add_row(row.parameter, _number(row.current), _number(row.proposed), steps, row.evidence)
    return made


def _measures(evidence: Json, layout: TableLayout) -> RenderableType:
    held = evidence.get("held_out") or []
    days = f": {' to '.join(sorted({held[0], held[-1]}))}" if held else ""
    seconds = evidence.get("period_seconds") or 0
    period = f", planned again each {seconds:g} s" if seconds else ""
    title = f"on {numbered(len(held), 'held-out day')}{days}{period}"
    made = table("", ">in force", ">proposed", ">difference", ">unbroken", title=title)
    gap = "\n" if layout.stacked else " "
    unbroken = evidence.get("unbroken") or {}
    for name in evidence.get("chosen") or {}:
        shown = _level if name == "imbalance" else _number
        cells = [_interval((evidence.get(kind) or {}).get(name), gap, shown) for kind in ("previous", "chosen")]
        found, before = ((evidence.get(kind) or {}).get(name) for kind in ("difference", "previous"))
        part = f" ({share(found['mean'], before['mean'])})" if found and before else ""
        cells.append(_interval(found, f"{part}{gap}", "{:+z.3f}".format if name == "imbalance" else _number))
        ends = [((unbroken.get(kind) or {}).get(name) or {}).get("mean") for kind in ("previous", "chosen")]
        cells.append(" → ".join(shown(end) for end in ends if end is not None) or units.DASH)
        made.add_row(TITLES.get(name, name), *cells)
    return made


def _interval(found: Json | None, gap: str, shown: Callable[[float], str]) -> str:
    return f"{shown(found['mean'])}{gap}[{shown(found['low'])}, {shown(found['high'])}]" if found else units.DASH


def _adopted(row: AdoptedView) -> list[RenderableType]:
    digest = row.digest or "of earlier nights"
    values = ", ".join(
        f"{name} {_number(value)} (settings: {_number(row.instead_of.get(name))})" for name, value in row.values.items()
    )
    parts: list[RenderableType] = [
        Text(f"in force: {digest}, since {units.moment(row.since_ms)} by {row.by}: {row.reason}"),
        Text(f"  {values or 'none of it: the settings changed since'}"),
    ]
    if trial := row.trial:
        said = (
            f"{TITLES['imbalance']} "
            f"{_level(trial.imbalance)} (promised at most {_level(trial.imbalance_promised)}, "
            f"before {_level(trial.imbalance_before)}), moves an hour {_number(trial.moves_per_hour)} "
            f"(promised at most {_number(trial.moves_promised)}, before {_number(trial.moves_before)})"
        )
        said = "nothing measured yet" if trial.imbalance is None else said
        stands = f"; it does not balance now: {trial.obstacle}" if trial.obstacle else ""
        time = f"{units.age(trial.seconds)} of {units.age(trial.needed_seconds)}"
        parts.append(Text(f"  on trial {time}: {said}{stands}", style="yellow"))
    return parts


def _level(imbalance: float | None) -> str:
    return units.DASH if imbalance is None else level(imbalance)


def _number(value: float | None) -> str:
    return units.DASH if value is None else f"{value:.4g}"


for _command in (show, diff, adopt, revert):
    thresholds_app.command()(_command)


def register(app: typer.Typer) -> None:
    """Put them into the app."""
    app.add_typer(thresholds_app, name="thresholds")
