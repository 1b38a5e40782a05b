"""`bundlekeel plan`: make a plan, show it (load before and after, moves, refusals by code), and execute it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bundlekeel.cli import completion, text_views, units
from bundlekeel.cli.client import Client, path_part
from bundlekeel.cli.exit_codes import BAD_NEWS, REFUSED, UNREACHABLE, USAGE, CliError, left_running
from bundlekeel.cli.operation_tables import execution_step
from bundlekeel.cli.output import Column, ProgressLine, Render, TableLayout, decoded, listing, none_of, table, typed
from bundlekeel.cli.session import (
    ByOption,
    ReasonOption,
    Session,
    broker_id,
    connected,
    connected_once,
    login,
    pairs_of,
    seconds_of,
    set_option,
)
from bundlekeel.cli.tables import coded, name_for, split_name
from bundlekeel.leader.cycle.plan_responses import MOST_SCALE, MoveView, PlanSummary, PlanView, RefusalView
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES
from bundlekeel.model.plan import BrokerLoad, Finish
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import how_far, limits_text, numbered
from bundlekeel.requests.plans import Submitted
from bundlekeel.settings.parameters import TOP_LEVEL
from bundlekeel.views.picture import State

# States in which `--wait` stops. `proposed`: the task waits for the approval of another operator.
_ENDED = ("done", "failed", "stopped", "proposed")
_BAR = 20
_EXAMPLES = 3

plan_app = typer.Typer(invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")
HashArgument = Annotated[str, typer.Argument(help="Hash of the plan.")]
WithinOption = Annotated[
    str | None,
    typer.Option("--within", metavar="DURATION", help="With --wait: time limit of the wait. Default: 10m."),
]


@connected
def make_plan(  # noqa: PLR0913, PLR0917 - the options of one command
    session: Session,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            help=f"Strategy to use: {', '.join(STRATEGIES)}, or one of a plugin.",
            autocompletion=completion.strategies,
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            "--placement",
            help=f"Placement to use: {', '.join(PLACEMENTS)}, or one of a plugin.",
            autocompletion=completion.placements,
        ),
    ] = None,
    sets: Annotated[list[str] | None, set_option("Value of a parameter")] = None,
    remove_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--remove-broker",
            metavar="BROKER",
            help="Plan without this broker; repeatable.",
            autocompletion=completion.brokers,
            callback=broker_id,
        ),
    ] = None,
    add_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--add-broker",
            metavar="NAME",
            help="Plan with one more broker: empty, with the median capacity; repeatable.",
            callback=broker_id,
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option("--scale", metavar="FACTOR", help="Factor by which the traffic of all bundles is multiplied."),
    ] = 1.0,
    ignore_hit_counts: Annotated[
        bool,
        typer.Option(
            "--ignore-hit-counts", help="Plan moves immediately. Default with --remove-broker, --add-broker or --scale."
        ),
    ] = False,
    keep_hit_counts: Annotated[
        bool,
        typer.Option(
            "--keep-hit-counts",
            help="Plan moves only if the imbalance has lasted, as the leader does. Default without "
            "--remove-broker, --add-broker and --scale.",
        ),
    ] = False,
) -> None:
    """Show what would move now, and why: moves, load before and after, refusals. A dry run that changes nothing."""
    if ignore_hit_counts and keep_hit_counts:
        raise CliError("--ignore-hit-counts and --keep-hit-counts: pass only one of them", USAGE)
    if not 0 < scale <= MOST_SCALE:
        raise CliError(f"--scale {scale:g}: not allowed (allowed: {limits_text({'gt': 0, 'le': MOST_SCALE})})", USAGE)
    body = {
        "strategy": strategy,
        "placement": placement,
        "parameters": pairs_of(sets or [], unchecked=TOP_LEVEL),
        "remove_brokers": remove_broker or [],
        "add_brokers": add_broker or [],
        "traffic_scale": scale,
        "ignore_hit_counts": ignore_hit_counts if ignore_hit_counts or keep_hit_counts else None,
    }
    session.show(lambda client: client.send("POST", "plans", body), _render(session))


@connected
def show_plan(session: Session, plan_hash: HashArgument) -> None:
    """Show an earlier plan; plans are stored for 15 minutes."""
    session.show(lambda client: client.get(f"plans/{path_part(plan_hash)}"), _render(session))


@connected
def list_plans(session: Session) -> None:
    """List the plans of the last 15 minutes, newest last."""
    session.show(lambda client: client.get("plans"), typed(list[PlanSummary], summaries))


@connected
def list_tasks(session: Session) -> None:
    """List tasks (requested moves and splits) and their progress; tasks that wait for the leader are last."""
    session.show(lambda client: client.get("tasks"), typed(list[TaskView], tasks))


@connected_once
def execute(
    session: Session,
    plan_hash: HashArgument,
    reason: ReasonOption,
    by: ByOption = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every move has ended or failed.")] = False,
    within: WithinOption = None,
) -> None:
    """Execute exactly this plan. If the cluster has changed, refuse and show the difference (exit code 4)."""
    limit = longest_wait(within, wait=wait)
    body = {"reason": reason, "by": by or login()}
    answer = session.client.send("POST", f"plans/{path_part(plan_hash)}/execute", body)
    submitted = decoded(Submitted, answer)
    if not wait or submitted.state in _ENDED:
        session.tell(answer, text_views.pairs)
        return
    ended = finished(session.client, submitted.task, submitted.moves, time.monotonic() + limit)
    session.tell(ended, text_views.pairs)
    exit_unless_done(decoded(TaskView, ended))


def longest_wait(within: str | None, *, wait: bool, yes: bool = True) -> float:
    """Return the value of --within in seconds; by default ten minutes.

    Raises CliError for --within without --wait, and for --wait in a dry run (no `yes`): a script would interpret exit
    code 0 as the end of the work.
    """
    if within is not None and not wait:
        raise CliError(f"--within {within!r} has no effect without --wait: add --wait, or omit --within", USAGE)
    if wait and not yes:
        raise CliError("--wait has no effect without --yes: add --yes, or omit --wait", USAGE)
    return seconds_of("--within", within or "10m")


def finished(client: Client, name: str, moves: int, deadline: float) -> Json:
    """Wait until a task has ended and return it. Raises CliError if it still runs at `deadline` (monotonic seconds).

    `name`: id of the task. `moves`: number of its moves, for the progress.
    """
    task, start = TaskView(task=name, state="waiting"), time.monotonic()
    with ProgressLine() as line, left_running(lambda: _describe_running(task)):
        while True:
            for answer in client.get("tasks"):
                if (view := decoded(TaskView, answer)).task == name:
                    if view.state in _ENDED:
                        return dict(answer)
                    task = view
            far = how_far(len(task.moves), moves, "move", time.monotonic() - start)
            line.tell(f"task {name}: {task.state}, {far}")
            if time.monotonic() > deadline:
                raise CliError(_describe_running(task), UNREACHABLE)
            time.sleep(0.5)


def _describe_running(task: TaskView) -> str:
    hint = f'`bundlekeel stop {task.task} --reason "…"` ends it'
    return f"task {task.task} is still {task.state}; it continues, see `bundlekeel plan tasks`; {hint}"


def exit_unless_done(task: TaskView) -> None:
    """Raise CliError with the bundles that did not move as requested; exit with code 4 if nothing was started."""
    if rows := [row for row in task.moves if row.outcome not in ("done", "released")]:
        lines = "".join(f"\n  - {row.bundle}: {row.outcome} ({row.code})" for row in rows)
        raise CliError(
            f"{len(rows)} of {numbered(len(task.moves), 'bundle')} did not move as requested:{lines}", BAD_NEWS
        )
    if task.state != "done":
        raise typer.Exit(BAD_NEWS if task.moves else REFUSED)


def _render(session: Session) -> Render:
    return typed(PlanView, lambda answer, layout: plan(answer, layout, session.state()))


def plan(answer: PlanView, layout: TableLayout, state: State) -> RenderableType:
    """Render a plan, and the command that executes it."""
    head = Text(f"plan {answer.hash}", style="bold")
    head.append(f"  {answer.strategy}, placement {answer.placement}, ", style="not bold")
    head.append(f"made {units.moment(answer.wall_ms)}; nothing was changed", style="not bold")
    verdict = coded(answer.verdict.code).append(f": {answer.verdict.sentence}", style="default")
    parts: list[RenderableType] = [head, *([Text(answer.assumption, style="yellow")] if answer.assumption else [])]
    parts += [verdict, Text(), layout.fitting(lambda form: _loads(answer, form)), Text()]
    moves = layout.fitting(lambda form: _moves(answer.moves, form)) if answer.moves else Text("no moves", style="bold")
    parts.append(moves)
    if answer.splits or answer.split_refusals:
        parts += [Text(), _splits(answer, layout)]
    if answer.refusals:
        parts += [Text(), _refusals(answer.refusals, layout)]
    if (answer.moves or answer.splits) and not answer.what_if:
        command = f'to execute it: bundlekeel plan execute {answer.hash} --reason "…"'
        parts += [Text(), Text(execution_step(command, state), style="dim")]
    if answer.finished:
        parts += [Text(), Text(_finished(answer.finished, answer.imbalance.measure), style="bold")]
    return Group(*parts)


def _finished(row: Finish, measure: str) -> str:
    if row.complete and not row.moves:
        return "when finished: unchanged, nothing moves"
    about = f"{max(1, round(row.seconds / 60))} min" if row.seconds < 7200 else units.age(row.seconds)
    counts = f"{numbered(row.moves, 'move')}, {numbered(row.cycles, 'cycle')}"
    end = f"max/mean of {measure} {units.multiple(row.max_mean)}, {counts}, about {about}"
    return f"when finished: {end}" if row.complete else f"not finished after the simulated cycles: {end}"


def _loads(answer: PlanView, layout: TableLayout) -> Table:
    imbalance = answer.imbalance
    ratio = f"max/mean of {imbalance.measure}"
    title = f"load ({ratio} {units.multiple(imbalance.before)} → {units.multiple(imbalance.after)})"
    wide = layout.wide
    paired = layout.narrow or (wide and layout.stacked)
    # In a narrow table the values before and after the plan share a cell; else each has its own column.
    below, pattern = -1 if paired else None, "\n→ {}"

    def bundles_after(row: BrokerLoad) -> str:
        return str(row.bundles_after) if paired or row.bundles_after != row.bundles_before else ""

    def score_after(row: BrokerLoad) -> Text:
        return Text(units.share(row.score_after), style="bold" if not paired and _change(row) else "")

    return listing(
        answer.loads,
        [
            Column("broker", lambda row: row.broker),
            Column(">score" if paired else ">before", lambda row: units.share(row.score_before)),
            Column(">after", score_after, below, pattern),
            Column(">change", _change),
            Column("load after", _bar, shown=not paired),
            Column(">bundles", lambda row: str(row.bundles_before)),
            Column("", bundles_after, -1, pattern if paired else " → {}"),
            Column(">B/s" if paired else ">B/s before", lambda row: units.amount(row.throughput_before)),
            Column(">after", lambda row: units.amount(row.throughput_after), below, pattern),
            Column("load after", _bar, shown=paired and not wide),
            Column(">msg/s" if paired else ">msg/s before", lambda row: units.amount(row.msg_rate_before), shown=wide),
            Column(">after", lambda row: units.amount(row.msg_rate_after), below, pattern, shown=wide),
        ],
        title=title,
        lines=paired,
    )


def _change(row: BrokerLoad) -> Text:
    """Return the change of the score in percentage points; empty if it is negligible."""
    difference = row.score_after - row.score_before
    if abs(difference) < 0.0005:
        return Text()
    return Text(f"{difference * 100:+.1f}", style="green" if difference < 0 else "yellow")


def _bar(row: BrokerLoad) -> Text:
    """Return the load after the plan as a bar: dots for load that leaves, hatching for load that arrives."""
    old, new = (round(min(1.0, max(0.0, value)) * _BAR) for value in (row.score_before, row.score_after))
    text = Text("█" * min(old, new))
    if new > old:
        return text.append("▒" * (new - old), style="yellow")
    return text.append("·" * (old - new), style="green")


def _moves(moves: Sequence[MoveView], layout: TableLayout) -> Table:
    below, wide = 0 if layout.stacked else None, layout.wide
    return listing(
        moves,
        [
            Column("bundle", lambda move: name_for(move.bundle, layout)),
            Column("from", lambda move: move.source, below),
            Column("to", lambda move: move.target, below, "\n  → {}"),
            Column("runner-up", lambda move: move.runner_up, below, "\n  else {}", shown=wide),
            Column("why", lambda move: _reason(move, layout)),
            Column(">B/s", lambda move: units.amount(sum(move.traffic[2:]))),
            Column(">msg/s", lambda move: units.amount(sum(move.traffic[:2])), shown=wide),
        ],
        title=f"moves ({len(moves)})",
    )


def _reason(move: MoveView, layout: TableLayout) -> str:
    source = f"{units.share(move.source_before)} → {units.share(move.source_after)}"
    target = f"{units.share(move.target_before)} → {units.share(move.target_after)}"
    return f"{source} ({move.rule})\n{target}" if layout.stacked else f"{source}, {target} ({move.rule})"


def _splits(answer: PlanView, layout: TableLayout) -> RenderableType:
    """Render the bundles to split, then the bundles above a split limit that stay whole, each with its reason."""
    title = f"splits ({len(answer.splits)}, {len(answer.split_refusals)} refused)"
    rows = [(row.bundle, row.broker, row.rule, row.sentence.partition(": ")[2]) for row in answer.splits]
    rows += [
        (row.bundle, row.broker, "", f"{row.explanation}{f' ({row.detail})' if row.detail else ''}")
        for row in answer.split_refusals
    ]
    return listing(
        rows,
        [
            Column("bundle", lambda row: name_for(row[0], layout)),
            Column("broker", lambda row: row[1], 0 if layout.stacked else None),
            Column("split by", lambda row: row[2]),
            Column("why", lambda row: row[3]),
        ],
        title=title,
    )


def _refusals(refusals: Sequence[RefusalView], layout: TableLayout) -> RenderableType:
    groups: dict[str, list[RefusalView]] = defaultdict(list)
    for refusal in refusals:
        groups[refusal.code].append(refusal)
    drawn = table(">count", "code", "which means", "for example", title=f"not moved ({len(refusals)})")
    for code, items in sorted(groups.items(), key=lambda item: -len(item[1])):
        names = [_refused(item, layout) for item in (items if layout.wide else items[:_EXAMPLES])]
        rest = len(items) - len(names)
        examples = "\n".join([*names, *([f"… and {rest} more (-o wide)"] if rest else [])])
        drawn.add_row(str(len(items)), coded(code), items[0].explanation, examples)
    return drawn


def _refused(item: RefusalView, layout: TableLayout) -> str:
    name = item.bundle or item.broker
    name = split_name(name, longest=21 if layout.narrow else 40) if layout.stacked else name
    return f"{name} ({item.detail})" if item.detail else name


def summaries(rows: Sequence[PlanSummary], _: TableLayout) -> RenderableType:
    """Render one line per plan."""
    if not rows:
        return none_of("plans", "`bundlekeel plan` makes one and stores it for 15 minutes")
    drawn = table("made", "hash", "strategy", ">moves", "verdict")
    for row in rows:
        verdict = f"{row.verdict.code}: {row.verdict.sentence}"
        strategy = f"{row.strategy}, what-if" if row.what_if else row.strategy
        drawn.add_row(units.moment(row.wall_ms), row.hash, strategy, str(row.moves), verdict)
    return drawn


def tasks(rows: Sequence[TaskView], _: TableLayout) -> RenderableType:
    """Render one line per task."""
    if not rows:
        return none_of(
            "tasks", "`bundlekeel plan execute` starts one, as do `transfer`, `unload` and `split` with --yes"
        )
    drawn = table("task", "plan", "state", "detail")
    for row in rows:
        drawn.add_row(row.task, row.hash, row.state, row.detail)
    return drawn


plan_app.callback()(make_plan)
for _name, _command in (("show", show_plan), ("list", list_plans), ("tasks", list_tasks), ("execute", execute)):
    plan_app.command(_name)(_command)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.add_typer(plan_app, name="plan", help=make_plan.__doc__)
