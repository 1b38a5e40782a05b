"""Output of the commands for drains, manual moves and reviews, as tables and text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bundlekeel.cli import units
from bundlekeel.cli.client import OVERRIDE_OPTION
from bundlekeel.cli.output import Column, TableLayout, listing, none_of, table
from bundlekeel.cli.tables import coded, name_for
from bundlekeel.leader.cycle.plan_responses import MoveView, RefusalView
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.model.codes import END_OF_REQUEST, LASTING, Code, explain, way_out
from bundlekeel.model.text_format import numbered
from bundlekeel.requests.drain import DrainView
from bundlekeel.requests.exclude import ExclusionView
from bundlekeel.requests.manual_moves import ManualMoveView
from bundlekeel.requests.operator_requests import OperationsView
from bundlekeel.requests.pause import ResumedScopeView
from bundlekeel.requests.pin import PinView
from bundlekeel.requests.relocation import RelocationView
from bundlekeel.requests.restart import RestartPlan, RestartStep
from bundlekeel.requests.review import ReviewView
from bundlekeel.requests.unload import NamespaceUnloadView
from bundlekeel.views.picture import Resumed, State

# Obstacles that follow from the sidecar's state. Ignore them in the last cycle, because the state is newer.
_OF_STATE = {Code.OBSERVE_ONLY, Code.RECOMMEND_ONLY, Code.PAUSED}


def execution_step(command: str, state: State) -> str:
    """Return `command`, or what an operator must do first if nothing is executed in this state."""
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
        blocked = code in LASTING - _OF_STATE
        return f"nothing is executed now: {explain(code or '')} ({code})" if blocked else command
    paused = ", everything is paused" if state.paused else ""
    return f"nothing is executed now: the mode is {state.mode}{paused}; first {', then '.join(first)}"


def _dry_run(state: Callable[[], State]) -> str:
    return f"dry run: nothing was done; {execution_step('--yes executes it', state())}"


def manual_move(
    answer: ManualMoveView, to: str, ended: TaskView | None, state: Callable[[], State], layout: TableLayout
) -> RenderableType:
    """Render a manual move or split: the bundle, its move or the new bundles, each other broker, and the next step.

    `to`: the requested destination; "": any broker. `ended`: the task after its end; None: the command did not wait.
    """
    # Without the refusals in the sentence: each has its own line below, with its code.
    parts: list[RenderableType] = [Text(answer.sentence.partition("; refused: ")[0], style="bold")]
    if answer.move:
        parts.append(Text(answer.move.sentence))
    parts += map(_refusal, answer.refusals)
    if answer.candidates:
        candidates = table("broker", ">score", ">with bundle", "result")
        explained = {item.code for item in answer.refusals}
        for row in answer.candidates:
            says = row.code or "accepts the bundle"
            if row.code and row.code not in explained:
                says += f": {row.explanation}"
                explained.add(row.code)
            candidates.add_row(row.broker, units.share(row.score_before), units.share(row.score_after), says)
        parts.append(candidates)
    if answer.children:
        children = table("child", ">topics", ">msg/s", ">B/s")
        for child in answer.children:
            shares = map(units.share, (child.topics_ratio, child.msg_rate_ratio, child.throughput_ratio))
            children.add_row(name_for(child.bundle, layout), *shares)
        parts.append(children)
    # The response lists the refusal of the requested destination only with the other brokers.
    at_target = {row.code for row in answer.candidates if row.broker == to and row.code}
    codes = {item.code for item in answer.refusals}
    parts.append(_next(answer, ended, state, codes | at_target if codes else codes))
    return Group(*parts)


def unload(
    answer: NamespaceUnloadView, ended: TaskView | None, state: Callable[[], State], layout: TableLayout
) -> RenderableType:
    """Render the moves of a namespace, the bundles that stay, and the next step."""
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
    """Return the line with the next step of the operator. `codes`: codes of the refusals of the whole request."""
    if ended:
        style = "green" if ended.state == "done" else "red"
        return Text(f"task {ended.task}: {ended.state}, {ended.detail}", style=style)
    if answer.review:
        return Text(f"proposed; another operator must approve it: bundlekeel review approve {answer.review}")
    if answer.task:
        step = execution_step("the leader executes it", state())
        return Text(f"task {answer.task}: {step}; see `bundlekeel plan tasks`")
    if not codes:
        return Text(_dry_run(state), style="dim")
    return Text(f"refused{_remedy(answer.kind, codes)}", style="red")


def _remedy(kind: str, codes: set[str]) -> str:
    """Return the remedy for all refusals, or one remedy per code if they differ."""
    common = way_out(kind, codes, OVERRIDE_OPTION)
    if common or len(codes) == 1:
        return common
    remedies = []
    for code in sorted(codes):
        remedy = way_out(kind, {code}, OVERRIDE_OPTION).removeprefix("; ")
        text = END_OF_REQUEST[Code(code)] if code in END_OF_REQUEST else remedy
        remedies.append(f"{code} ({text})" if text else code)
    return f": {', '.join(remedies)}"


def relocation(answer: RelocationView, ended: str, state: Callable[[], State], layout: TableLayout) -> RenderableType:
    """Render the moves of a drain (empty a broker) or warm-up (fill a broker), and the bundles that stay for now.

    `ended`: the result of the drain or warm-up, as text; "": the command did not wait for it.
    """
    parts: list[RenderableType] = [Text(answer.sentence, style="bold")]
    if answer.detail:
        parts.append(Text(answer.detail, style="yellow"))
    parts += _relocated(answer.moves, answer.refusals, layout)
    if answer.eta_seconds and not ended:
        parts.append(_remaining(answer.eta_seconds))
    next_step = (
        _dry_run(state)
        if answer.dry_run
        else ended or f"recorded; {execution_step('the next cycle starts it', state())}"
    )
    return Group(*parts, Text(next_step, style="dim"))


def _relocated(moves: Sequence[MoveView], refusals: Sequence[RefusalView], layout: TableLayout) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if moves:
        below = 0 if layout.stacked else None
        columns: list[Column[MoveView]] = [
            Column("bundle", lambda move: name_for(move.bundle, layout)),
            Column("from", lambda move: move.source, below),
            Column("to", lambda move: move.target, below, " → {}"),
            Column(">from score", lambda move: f"{units.share(move.source_before)} → {units.share(move.source_after)}"),
            Column(">to score", lambda move: f"{units.share(move.target_before)} → {units.share(move.target_after)}"),
        ]
        parts.append(listing(moves, columns))
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
    return Text(f"about {units.age(seconds)} remaining")


def progress(row: DrainView, obstacle: str = "") -> str:
    """Return the progress of a drain as one line. `obstacle`: code of what blocks all moves; "": nothing."""
    state = f"held ({obstacle})" if obstacle and row.left else row.state
    status = "not planned yet" if row.left is None else f"{state}, {row.left} left"
    start = f"started {units.moment(row.since_ms)} by {row.by}: {row.reason}"
    parts = [f"{row.broker}: {status}, {row.moved} moved", start]
    if row.eta_seconds:
        parts.append(f"about {units.age(row.eta_seconds)} to go")
    if row.blocked:
        parts.append("stay: " + ", ".join(f"{count} {code}" for code, count in row.blocked.items()))
    if row.detail:
        parts.append(row.detail)
    return "; ".join(parts)


def nothing_moves(obstacle: str, explanation: str) -> str:
    """Return as text why no drain or warm-up moves bundles now. `obstacle`: code of what blocks all moves."""
    return f"nothing is moved now: {explanation} ({obstacle})"


def operations(answer: OperationsView, _: TableLayout) -> RenderableType:
    """Render one line per active drain, cordon, warm-up, pin, exclusion and pause."""
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
    remedy = "`bundlekeel drain`, `cordon`, `warm`, `pin`, `exclude` and `pause` create them"
    return Group(*lines) if lines else none_of("requests", remedy)


def restart_plan(answer: RestartPlan, _: TableLayout) -> RenderableType:
    """Render one row per broker in the order of the restarts, and the remaining moves and time."""
    columns: list[Column[RestartStep]] = [
        Column("broker", lambda step: step.broker),
        Column("state", lambda step: step.state),
        Column(">bundles", lambda step: units.count(step.bundles)),
        Column(">moves", lambda step: str(step.moves)),
        Column(">others at most", lambda step: units.share(step.highest_ratio)),
        Column(">free", lambda step: units.share(step.free_ratio)),
        Column(">time", lambda step: units.age(step.eta_seconds)),
    ]
    parts: list[RenderableType] = [Text(answer.sentence, style="bold"), listing(answer.brokers, columns)]
    if answer.held:
        parts.append(Text(nothing_moves(answer.held, answer.held_explanation), style="yellow"))
    if answer.moves:
        remaining = f"about {numbered(answer.moves, 'move')} and {units.age(answer.eta_seconds)} remaining"
        parts.append(Text(f"{remaining}, plus the time in which brokers start"))
    return Group(*parts)


def resumed(answer: Resumed | ResumedScopeView, _: TableLayout) -> RenderableType:
    """Render the end of a pause."""
    scope = answer.scope if isinstance(answer, ResumedScopeView) else "everything"
    return Text(f"{scope}: resumed by {answer.by}: {answer.reason}")


def _by(row: PinView | ExclusionView) -> str:
    return f" by {row.by}: {row.reason}"


def _until(until_ms: int, endless: str = "for good") -> str:
    return f"until {units.moment(until_ms)}" if until_ms else endless


def reviews(rows: Sequence[ReviewView], layout: TableLayout) -> RenderableType:
    """Render one line per proposed change; in a narrow table, title and requester are below the id."""
    if not rows:
        return none_of("proposals", "with `review: required` in the settings, changes wait here for another operator")

    def draw(form: TableLayout) -> Table:
        below = 1 if form.stacked else None
        return listing(
            rows,
            [
                Column("proposed", lambda row: units.moment(row.at_ms, short=form.stacked)),
                Column("id", lambda row: row.id),
                Column("what", lambda row: row.title, below),
                Column("by", lambda row: f"{row.by}: {row.reason}", below),
                Column("state", lambda row: row.state),
                Column("reviewer", lambda row: row.reviewer or units.DASH),
                Column("may be", lambda row: ", ".join(row.actions) or units.DASH),
            ],
        )

    return layout.fitting(draw)
