"""What drains, manual moves and reviews answer, as tables and text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bundlekeel.cli import units
from bundlekeel.cli.client import OVERRIDE_OPTION
from bundlekeel.cli.output import TableLayout, none_of, table
from bundlekeel.cli.tables import coded, split_name
from bundlekeel.core.model.codes import END_OF_REQUEST, LASTING, Code, explain, way_out
from bundlekeel.daemon.answers.operations import (
    DrainView,
    ExclusionView,
    OperationsView,
    PinView,
    ResumedScopeView,
)
from bundlekeel.daemon.answers.picture import Resumed, State
from bundlekeel.daemon.answers.plans import (
    ManualMoveView,
    MoveView,
    NamespaceUnloadView,
    RefusalView,
    RelocationView,
    ReviewView,
    TaskView,
)

# Told by the state itself, which is newer than the last cycle.
_OF_STATE = {Code.OBSERVE_ONLY, Code.RECOMMEND_ONLY, Code.PAUSED}


def carried_out(command: str, state: State) -> str:
    """The command that carries out what was only looked at, or what has to change before it would."""
    first = []
    if state.mode_ceiling != "act":
        first.append(
            "set `mode: act` in the settings file of every sidecar and restart it (`bundlekeel doctor --for act`)"
        )
    if state.mode != state.mode_ceiling:
        first.append("`bundlekeel mode act`")
    if state.paused:
        first.append("`bundlekeel resume`")
    if not first:
        code = state.cycle.obstacle if state.cycle else None
        hindered = code in LASTING - _OF_STATE
        return f"nothing is carried out now: {explain(code or '')} ({code})" if hindered else command
    paused = ", everything is paused" if state.paused else ""
    return f"nothing is carried out now: the mode is {state.mode}{paused}; first {', then '.join(first)}"


def _dry_run(state: Callable[[], State]) -> str:
    return f"dry run: nothing was done; {carried_out('--yes carries it out', state())}"


def manual_move(
    answer: ManualMoveView, to: str, ended: TaskView | None, state: Callable[[], State], layout: TableLayout
) -> RenderableType:
    """The bundle first, then the move or its children, what every other broker says, and what to do next. `to`: the
    broker that was asked for, "" for any."""
    # A refusal has a line of its own, with its code.
    parts: list[RenderableType] = [Text(answer.sentence.partition("; refused: ")[0], style="bold")]
    if answer.move:
        parts.append(Text(answer.move.sentence))
    parts += map(_refusal, answer.refusals)
    if answer.candidates:
        made = table("broker", ">score", ">with it", "says")
        explained = {item.code for item in answer.refusals}
        for row in answer.candidates:
            says = row.code or "takes it"
            if row.code and row.code not in explained:
                says += f": {row.explanation}"
                explained.add(row.code)
            made.add_row(row.broker, units.share(row.score_before), units.share(row.score_after), says)
        parts.append(made)
    if answer.children:
        made = table("child", ">topics", ">msg/s", ">B/s")
        for child in answer.children:
            shares = map(units.share, (child.topics_ratio, child.msg_rate_ratio, child.throughput_ratio))
            made.add_row(split_name(child.bundle) if layout.stacked else child.bundle, *shares)
        parts.append(made)
    # The table alone says what refuses the target.
    at_target = {row.code for row in answer.candidates if row.broker == to and row.code}
    codes = {item.code for item in answer.refusals}
    parts.append(_next(answer, ended, state, codes | at_target if codes else codes))
    return Group(*parts)


def unload(
    answer: NamespaceUnloadView, ended: TaskView | None, state: Callable[[], State], layout: TableLayout
) -> RenderableType:
    """What the unload of a namespace moves, what stays, and what to do next."""
    parts: list[RenderableType] = [Text(answer.sentence, style="bold")]
    parts += _relocated(answer.moves, answer.refusals, layout)
    if answer.eta_seconds:
        parts.append(_remaining(answer.eta_seconds))
    codes = set() if answer.moves or answer.waiting else {item.code for item in answer.refusals}
    return Group(*parts, _next(answer, ended, state, codes))


def _refusal(item: RefusalView) -> Text:
    detail = f" ({item.detail})" if item.detail else ""
    return Text("  ").append(coded(item.code)).append(f": {item.explanation}{detail}", style="yellow")


def _next(
    answer: ManualMoveView | NamespaceUnloadView, ended: TaskView | None, state: Callable[[], State], codes: set[str]
) -> Text:
    """`codes`: of what refuses all of it."""
    if ended:
        style = "green" if ended.state == "done" else "red"
        return Text(f"task {ended.task}: {ended.state}, {ended.detail}", style=style)
    if answer.review:
        return Text(f"proposed; another person approves it: bundlekeel review approve {answer.review}")
    if answer.task:
        done = carried_out("the leader carries it out", state())
        return Text(f"task {answer.task}: {done}; see `bundlekeel plan tasks`")
    if not codes:
        return Text(_dry_run(state), style="dim")
    return Text(f"refused{_way_out(answer.kind, codes)}", style="red")


def _way_out(kind: str, codes: set[str]) -> str:
    """What lifts the refusals; of several kinds each with its own."""
    whole = way_out(kind, codes, OVERRIDE_OPTION)
    if whole or len(codes) == 1:
        return whole
    told = []
    for code in sorted(codes):
        lifted = way_out(kind, {code}, OVERRIDE_OPTION).removeprefix("; ")
        end = END_OF_REQUEST[Code(code)] if code in END_OF_REQUEST else lifted
        told.append(f"{code} ({end})" if end else code)
    return f": {', '.join(told)}"


def relocation(answer: RelocationView, ended: str, state: Callable[[], State], layout: TableLayout) -> RenderableType:
    """What a drain or a warm moves, and what stays for now. `ended`: how it ended, "" where it was not waited for."""
    parts: list[RenderableType] = [Text(answer.sentence, style="bold")]
    if answer.detail:
        parts.append(Text(answer.detail, style="yellow"))
    parts += _relocated(answer.moves, answer.refusals, layout)
    if answer.eta_seconds and not ended:
        parts.append(_remaining(answer.eta_seconds))
    done = _dry_run(state) if answer.dry_run else ended or f"noted; {carried_out('the next cycle begins it', state())}"
    return Group(*parts, Text(done, style="dim"))


def _relocated(moves: Sequence[MoveView], refusals: Sequence[RefusalView], layout: TableLayout) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if moves:
        apart = [] if layout.stacked else ["from", "to"]
        made = table("bundle", *apart, ">from score", ">to score")
        for move in moves:
            way = f"{split_name(move.bundle)}\n  {move.source} → {move.target}"
            made.add_row(
                *([move.bundle, move.source, move.target] if apart else [way]),
                f"{units.share(move.source_before)} → {units.share(move.source_after)}",
                f"{units.share(move.target_before)} → {units.share(move.target_after)}",
            )
        parts.append(made)
    alike: dict[str, list[RefusalView]] = {}
    for item in refusals:
        alike.setdefault(item.code, []).append(item)
    if alike:
        parts.append(Text("stays:" if len(refusals) == 1 else "stay:"))
    for items in alike.values():
        parts.append(_refusal(replace(items[0], detail="")))
        parts += [Text(f"    {item.bundle}{f' ({item.detail})' if item.detail else ''}") for item in items]
    return parts


def _remaining(seconds: float) -> Text:
    return Text(f"about {units.age(seconds)} until that is done")


def progress(row: DrainView, held: str = "") -> str:
    """A drain in a line. `held`: the code of what holds it."""
    state = f"held ({held})" if held and row.left else row.state
    known = "not looked at yet" if row.left is None else f"{state}, {row.left} left"
    begun = f"begun {units.moment(row.since_ms)} by {row.by}: {row.reason}"
    parts = [f"{row.broker}: {known}, {row.moved} moved", begun]
    if row.eta_seconds:
        parts.append(f"about {units.age(row.eta_seconds)} to go")
    if row.blocked:
        parts.append("stay: " + ", ".join(f"{count} {code}" for code, count in row.blocked.items()))
    if row.detail:
        parts.append(row.detail)
    return "; ".join(parts)


def nothing_moves(held: str, explanation: str) -> str:
    """Why nothing that was asked of brokers is carried out. `held`: the code."""
    return f"nothing is moved now: {explanation} ({held})"


def operations(answer: OperationsView, _: TableLayout) -> RenderableType:
    """A line a request, kind by kind."""
    lines = [Text(progress(row, answer.held)) for row in answer.drains]
    if answer.held and (answer.drains or answer.warms):
        lines.insert(0, Text(nothing_moves(answer.held, answer.held_explanation), style="yellow"))
    for word, requests in (("cordoned", answer.cordons), ("warmed", answer.warms)):
        lines += [Text(f"{row.broker}: {word} by {row.by}: {row.reason}") for row in requests]
    lines += [Text(f"{row.bundle}: pinned {_until(row.until_ms)}{_by(row)}") for row in answer.pins]
    lines += [Text(f"{row.pattern}: excluded {_until(row.until_ms)}{_by(row)}") for row in answer.exclusions]
    for row in answer.pauses:
        paused = f"{row.scope or 'everything'}: paused {_until(row.until_ms, 'until resumed')}"
        lines.append(Text(f"{paused} by {row.by}: {row.reason}", style="yellow"))
    made_by = "`bundlekeel drain`, `cordon`, `warm`, `pin`, `exclude` and `pause` make them"
    return Group(*lines) if lines else none_of("requests", made_by)


def resumed(answer: Resumed | ResumedScopeView, _: TableLayout) -> RenderableType:
    """What is no longer paused."""
    scope = answer.scope if isinstance(answer, ResumedScopeView) else "everything"
    return Text(f"{scope}: resumed by {answer.by}: {answer.reason}")


def _by(row: PinView | ExclusionView) -> str:
    return f" by {row.by}: {row.reason}"


def _until(until_ms: int, ever: str = "for good") -> str:
    return f"until {units.moment(until_ms)}" if until_ms else ever


def reviews(rows: Sequence[ReviewView], layout: TableLayout) -> RenderableType:
    """A line a proposal; where that does not fit, what it is and who asks below its id."""
    if not rows:
        return none_of("proposals", "with `review` in the settings, changes wait here for another person")

    def draw(form: TableLayout) -> Table:
        apart = [] if form.stacked else ["what", "by"]
        made = table("proposed", "id", *apart, "state", "reviewer", "may be")
        for row in rows:
            whole = [row.id, row.title, f"{row.by}: {row.reason}"]
            made.add_row(
                units.moment(row.at_ms, short=form.stacked),
                *(whole if apart else ["\n  ".join(whole)]),
                *(row.state, row.reviewer or units.DASH, ", ".join(row.actions) or units.DASH),
            )
        return made

    return layout.fitting(draw)
