"""`bundlekeel thresholds`: show, adopt and revert the proposals of the nightly job."""

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
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import level, numbered, share
from bundlekeel.recalibration.adopting.responses import AdoptedView, AdoptionView, ObjectionView, ThresholdsView
from bundlekeel.recalibration.rules.thresholds import TITLES, WORSE, ThresholdChange

thresholds_app = typer.Typer(
    help="Show, adopt and revert the thresholds that the nightly job proposes.", no_args_is_help=True
)
DigestOption = Annotated[
    str | None, typer.Option("--digest", metavar="DIGEST", help="Adopt only if the newest proposal has this digest.")
]
AdoptedOption = Annotated[
    str | None,
    typer.Option("--digest", metavar="DIGEST", help="Revert only if the adopted thresholds have this digest."),
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Override objections that need judgement, such as TooOld or StepTooLarge. Do not use it if the result was "
        "worse or not better: WorseUnbroken, NotBetter.",
    ),
]
EverywhereOption = Annotated[
    bool,
    typer.Option(
        "--everywhere",
        help="Skip or end the first stage, in calibration.trial_namespaces.",
    ),
]

# Whether an operator can adopt despite an objection (`ObjectionView.person`).
_DESPITE = {
    "": "",
    "no": "; --force does not help",
    "force": "; --force overrides it",
    "yes": "; you can adopt it without --force",
}


@connected
def show(session: Session) -> None:
    """Show the newest proposal, the objections to it, the adopted thresholds and their results."""
    session.show(lambda client: client.get("thresholds"), typed(ThresholdsView, overview))


@connected
def diff(session: Session) -> None:
    """Show the changes of the newest proposal, with their evidence and the objections."""
    session.show(lambda client: client.get("thresholds"), typed(ThresholdsView, changes))


@connected_once
def adopt(
    session: Session,
    reason: ReasonOption,
    digest: DigestOption = None,
    force: ForceOption = False,
    everywhere: EverywhereOption = False,
    by: ByOption = "",
) -> None:
    """Adopt the newest proposal. It is on trial, and reverted if its results are worse than the back-test predicted."""
    body = {"reason": reason, "by": by or login(), "force": force, "everywhere": everywhere}
    body |= {"digest": digest} if digest else {}
    session.tell(session.client.send("POST", "thresholds/adopt", body), typed(AdoptionView, adoption))


@connected_once
def revert(session: Session, reason: ReasonOption, digest: AdoptedOption = None, by: ByOption = "") -> None:
    """Undo the last adoption immediately. For 30 days, or until an operator adopts, nothing is adopted
    automatically."""
    body = {"reason": reason, "by": by or login(), **({"digest": digest} if digest else {})}
    session.tell(session.client.send("POST", "thresholds/revert", body), text_views.pairs)


def overview(answer: ThresholdsView, layout: TableLayout) -> RenderableType:
    """Render the state of the thresholds as one sentence, then the proposal, then the adopted thresholds."""
    parts: list[RenderableType] = [Text(answer.sentence, style="bold")]
    if answer.error:
        parts.append(Text(answer.error, style="red"))
    if document := answer.document:
        data = document["data"]
        days = f"{len(data['days'])} days, {units.share(data['coverage'])} recorded"
        title = (
            f"proposal {document['digest']} ({document.get('path')}), created {units.moment(document['created_ms'])}"
        )
        parts += [Text(f"{title} of {days}"), Text(document["decision"])]
    if answer.objections or answer.changes:
        parts.append(changes(answer, layout))
    if answer.adopted:
        parts += _adopted(answer.adopted)
    for row in answer.reverted:
        line = f"{units.moment(row.since_ms)} {row.digest} reverted by {row.by}: {row.reason}"
        parts.append(Text(line, style="dim"))
    return Group(*parts)


def changes(answer: ThresholdsView, layout: TableLayout) -> RenderableType:
    """Render the objections to the proposal, one line per changed parameter, and the results on held-out days."""
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
    """Render the changes of an adoption."""
    return Group(Text(answer.sentence, style="bold"), _changes(answer.changes))


def _changes(rows: Sequence[ThresholdChange]) -> RenderableType:
    if not rows:
        return Text("nothing would change")
    listing = table("parameter", ">in force", ">proposed", ">steps", "evidence")
    for row in rows:
        steps = "∞" if row.steps is None else f"{row.steps:.1f}"
        listing.add_row(row.parameter, _number(row.current), _number(row.proposed), steps, row.evidence)
    return listing


def _measures(evidence: Json, layout: TableLayout) -> RenderableType:
    held_out = evidence.get("held_out") or []
    days = f": {' to '.join(sorted({held_out[0], held_out[-1]}))}" if held_out else ""
    title = f"on {numbered(len(held_out), 'held-out day')}{days}"
    listing = table("", ">in force", ">proposed", ">difference", title=title)
    separator = "\n" if layout.stacked else " "
    for name in evidence.get("chosen") or {}:
        form = _level if name == "imbalance" else _number
        cells = [_interval((evidence.get(kind) or {}).get(name), separator, form) for kind in ("previous", "chosen")]
        difference, before = ((evidence.get(kind) or {}).get(name) for kind in ("difference", "previous"))
        part = f" ({share(difference['mean'], before['mean'])})" if difference and before else ""
        cells.append(_interval(difference, f"{part}{separator}", "{:+z.3f}".format if name == "imbalance" else _number))
        listing.add_row(TITLES.get(name, name), *cells)
    return listing


def _interval(interval: Json | None, separator: str, form: Callable[[float], str]) -> str:
    return (
        f"{form(interval['mean'])}{separator}[{form(interval['low'])}, {form(interval['high'])}]"
        if interval
        else units.DASH
    )


def _adopted(row: AdoptedView) -> list[RenderableType]:
    digest = row.digest or "of earlier nights"
    values = ", ".join(
        f"{name} {_number(value)} (settings: {_number(row.instead_of.get(name))})" for name, value in row.values.items()
    )
    place = f" in {', '.join(row.namespaces)}" if row.namespaces else ""
    parts: list[RenderableType] = [
        Text(f"in force{place}: {digest}, since {units.moment(row.since_ms)} by {row.by}: {row.reason}"),
        Text(f"  {values or 'no value: the settings changed since'}"),
    ]
    if trial := row.trial:
        measure = "load of their brokers/mean" if row.namespaces else TITLES["imbalance"]
        reference = "other namespaces" if row.namespaces else "before"
        result = (
            f"{measure} {_level(trial.imbalance)} (promised at most {_level(trial.imbalance_promised)}, "
            f"{reference} {_level(trial.imbalance_before)}), moves per hour {_number(trial.moves_per_hour)} "
            f"(promised at most {_number(trial.moves_promised)}, {reference} {_number(trial.moves_before)})"
        )
        result = "no measurement yet" if trial.imbalance is None else result
        obstacle = f"; Bundlekeel does not balance now: {trial.obstacle}" if trial.obstacle else ""
        obstacle += f"; {trial.unjudged}: adopt it --everywhere, or revert it" if trial.unjudged else ""
        time = f"{units.age(trial.seconds)} of {units.age(trial.needed_seconds)}"
        parts.append(Text(f"  on trial {time}: {result}{obstacle}", style="yellow"))
    return parts


def _level(imbalance: float | None) -> str:
    return units.DASH if imbalance is None else level(imbalance)


def _number(value: float | None) -> str:
    return units.DASH if value is None else f"{value:.4g}"


for _command in (show, diff, adopt, revert):
    thresholds_app.command()(_command)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.add_typer(thresholds_app, name="thresholds")
