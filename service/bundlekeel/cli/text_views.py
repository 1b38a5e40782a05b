"""Output as text and tables: reasons, history, checks, takeovers, and assignments of unowned bundles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from bundlekeel.cli import output, units
from bundlekeel.cli.output import Column, TableLayout, listing, table
from bundlekeel.cli.tables import coded, entry_words, split_name
from bundlekeel.model.check import Check
from bundlekeel.model.codes import explain
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered
from bundlekeel.views.picture import CycleVerdict, WhyView
from bundlekeel.views.summary_fields import RefusalSummary, SummaryView

if TYPE_CHECKING:
    from bundlekeel.planning.filters.assign import DroppedBroker
    from bundlekeel.requests.assignments import AssignmentView

# Indent by two columns, also where a line is wrapped.
_INDENT = (0, 0, 0, 2)
# If the records begin more than this later than requested, the summary contains a hint.
_LATE_MS = 60_000
_ONLY_THIS_SIDECAR = (
    "requests to this sidecar, and takeovers; run this on the other sidecars, too: "
    "`bundlekeel operations` lists the active requests of all"
)
# At most this many brokers are named; the others are counted.
_NAMED = 4
_NOTHING = Text("no records: nothing of this kind was recorded at that time")
R = TypeVar("R")


def why(answer: WhyView, layout: TableLayout) -> RenderableType:
    """Render the explanation of a bundle's or broker's state: a sentence, codes, history, and what would change it."""
    name = Text(f"{answer.kind} {answer.name}", style="bold")
    if answer.broker and answer.kind != "broker":
        name.append(f" on {answer.broker}", style="not bold")
    parts: list[RenderableType] = [name]
    if answer.kind == "topic":
        parts.append(Text(f"in bundle {answer.bundle}, which moves as a whole"))
    parts.append(Text(answer.sentence))
    if answer.channel:
        parts.append(Text(f"  ownership channel: {entry_words(answer.channel)}", style="dim"))
    parts += [Text(f"  {item.code}: {item.detail}; {item.remedy}", style="red") for item in answer.findings]
    for code in answer.codes:
        # The sentence contains the explanation of a bundle's code, or the detail of a broker's code.
        new = [text for text in (code.explanation, code.detail) if text and text not in answer.sentence]
        texts = f": {new[0]}{''.join(f' ({text})' for text in new[1:])}" if new else ""
        parts.append(Padding(coded(code.code).append(texts, style="default"), _INDENT))
    parts.append(Padding(Text(f"→ {answer.what_would_change_it}"), _INDENT))
    if answer.history:
        parts += [Text(), journal(answer.history, layout)]
    return Group(*parts)


def verdicts(rows: Sequence[CycleVerdict], layout: TableLayout, lines: int) -> RenderableType:
    """Render one line per series of cycles with the same result, at most `lines`."""
    if not rows:
        return _NOTHING
    drawn = table("time", ">cycle", "verdict", ">moves", "refusals", "sentence")
    for row, before in _collapsed(rows, lambda row: (row.verdict.code, row.moves))[-lines:]:
        drawn.add_row(
            units.moment(row.wall_ms, short=layout.stacked),
            f"{row.cycle}{_times(before)}",
            coded(row.verdict.code),
            str(row.moves),
            ", ".join(f"{count} {code}" for code, count in row.refusals.items()),
            row.verdict.sentence,
        )
    return drawn


def journal(rows: Sequence[Json], layout: TableLayout, lines: int = 0) -> RenderableType:
    """Render one line per journal record: action, place and reason. `lines`: number of newest lines to show; 0: all."""
    if not rows:
        return _NOTHING
    apart = layout.wide and not layout.stacked

    def outcome(item: tuple[Json, int]) -> Text:
        word = str(item[0].get("outcome") or "")
        return Text(word, style={"done": "green", "": ""}.get(word, "yellow"))

    def sentence(item: tuple[Json, int]) -> str:
        return _sentence(item[0], below=layout.wide and not apart)

    return listing(
        _collapsed(rows, _same_cycle)[-lines:],
        [
            Column("time", lambda item: units.moment(item[0].get("wall_ms"), short=layout.stacked)),
            Column("kind", lambda item: str(item[0].get("kind", ""))),
            Column("what", lambda item: f"{_what(item[0], layout)}{_times(item[1])}"),
            Column("outcome", outcome),
            Column(">took", lambda item: _duration(item[0].get("seconds"))),
            Column("sentence", sentence, 2 if layout.narrow else None, "\n{}"),
            Column("by", lambda item: str(item[0].get("by") or ""), shown=apart),
            Column("reason", lambda item: str(item[0].get("reason") or ""), shown=apart),
        ],
    )


def _duration(seconds: float | Mapping[str, float] | None) -> str:
    """Return a duration as text. `seconds`: a number, or for a cycle the seconds of each step and `total`."""
    total = seconds.get("total") if isinstance(seconds, Mapping) else seconds
    return "" if total is None else units.age(total)


def _collapsed(rows: Sequence[R], key_of: Callable[[R], Any]) -> list[tuple[R, int]]:
    """Merge consecutive rows with the same key; rows with the key None are never merged.

    Returns the last row of each series, with the number of merged rows before it.
    """
    merged, before = list[tuple[R, int]](), 0
    for row, following in zip_longest(rows, rows[1:]):
        key = key_of(row)
        if following is not None and key is not None and key_of(following) == key:
            before += 1
            continue
        merged.append((row, before))
        before = 0
    return merged


def _same_cycle(row: Json) -> Any:
    """Return the key of a journal record: consecutive cycles with equal keys are merged. None: not a cycle."""
    return (row.get("code"), row.get("planned"), row.get("obstacle")) if row.get("kind") == "cycle" else None


def _times(before: int) -> str:
    return f" (×{before + 1})" if before else ""


def _sentence(row: Json, *, below: bool) -> str:
    # Omit the sentence of a move that reached its destination: the other columns contain the same.
    text = "" if (row.get("kind"), row.get("outcome")) == ("move", "done") else str(row.get("sentence") or "")
    if row.get("kind") == "audit":
        text = text.replace(f" {row.get('what')} answered ", " answered ")
    return f"{text}\nby {row['by']}: {row.get('reason') or ''}".strip() if below and row.get("by") else text


def _what(row: Json, layout: TableLayout) -> str:
    """Return the subject of a record: a cycle, a bundle with its brokers, or another name."""
    match row.get("kind"):
        case "finding":
            return f"{row.get('code')} {row.get('event')}"
        case "external_move":
            return f"{row.get('bundle')}: {row.get('source')} → {row.get('destination')}"
        case "quota":
            return f"quotas: {row.get('what')}"
        case "adoption":
            return f"thresholds {row.get('version') or ''} {row.get('what')}"
        case "effect":
            return f"{row.get('source')} → {row.get('destination')}"
        case "audit" | "request":
            return str(row.get("what") or "")
        case "settings":
            return "settings file"
    if not row.get("bundle"):
        return f"cycle {row.get('cycle', '')}"
    if row.get("kind") == "split":
        return f"{split_name(row['bundle'])}\n  at {row.get('broker')}" if layout.stacked else str(row["bundle"])
    target = row.get("landed_on") or row.get("destination")
    if layout.stacked:
        return f"{split_name(row['bundle'])}\n  {row.get('source')}\n  → {target}"
    return f"{row['bundle']}: {row.get('source')} → {target}"


def summary(answer: SummaryView, _: TableLayout) -> RenderableType:
    """Render the summary of a period: one sentence, counts, the longest overloads, and requests to this sidecar."""
    grid = output.grid("bold")
    for title, *lines in _summary_rows(answer):
        for number, line in enumerate(lines):
            grid.add_row("" if number else title, line)
    return Group(Text(answer.sentence, style="bold"), grid)


def _summary_rows(answer: SummaryView) -> Iterator[list[str]]:
    """Yield each part of the summary as a list: its title, then its lines."""
    first, since = answer.known_since_ms, answer.since_ms
    yield ["time", f"{units.moment(since or first)} – {units.moment(answer.until_ms)}"]
    if first is None or first - since > _LATE_MS:
        yield ["known", f"since {units.moment(first)}: nothing is recorded before" if first else "nothing"]
    yield ["cycles", str(answer.cycles)]
    if answer.followed:
        hint = (
            "the summary of the sidecar that led at that time contains the reasons "
            "(`bundlekeel status` shows the present leader)"
        )
        counts = f"{answer.followed} of {numbered(answer.cycles, 'cycle')}: `moves` shows the moves of that leader"
        yield ["as a follower", f"{counts}; {hint}"]
    if answer.recommended:
        most = numbered(answer.recommended_moves, "move")
        yield ["recommended", f"moves in {numbered(answer.recommended, 'cycle')}, {most} at most in one"]
    yield ["moves", _counts(answer.moves) or "none"]
    if answer.effects:
        gain = answer.gain or 0.0
        peak = f"the higher load of the two brokers {'rose' if gain < 0 else 'fell'} by {abs(gain):.1%} on average"
        yield ["effects", f"{_counts(answer.effects)}; {peak}"]
    yield ["not executed", *map(_reason_line, answer.obstacles)]
    yield ["not moved", *map(_reason_line, answer.refusals)]
    overloads = [(row, units.age((row.until_ms - row.since_ms) / 1000)) for row in answer.overloads]
    yield ["overloads", *(f"{units.moment(row.since_ms)}, {time}: {row.sentence}" for row, time in overloads)]
    requests = [f"{units.moment(row.wall_ms)}, {row.by}: {row.what} ({row.reason})" for row in answer.people]
    yield ["operators", *requests, _ONLY_THIS_SIDECAR]
    if answer.refused_requests:
        yield ["refused", f"{numbered(answer.refused_requests, 'request')}; see `bundlekeel journal --kind audit`"]


def _reason_line(row: RefusalSummary) -> str:
    most = f", {numbered(row.most, 'bundle')} at most" if row.most else ""
    return f"{row.code} in {numbered(row.cycles, 'cycle')}{most}: {explain(row.code)}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())


def checks(rows: Sequence[Check], _: TableLayout) -> RenderableType:
    """Render one line per check; a failing check has its fix below."""
    grid = output.grid("", "bold")
    for row in rows:
        detail = Text(row.detail)
        if not row.ok and row.fix:
            detail.append(f"\n→ {row.fix}", style="cyan")
        grid.add_row(_mark(row), row.name, detail)
    bad = sum(map(is_error, rows))
    warnings = sum(not row.ok for row in rows) - bad
    totals = f"{numbered(len(rows), 'check')}, {numbered(bad, 'error')}, {numbered(warnings, 'warning')}"
    return Group(grid, Text(totals, style="red" if bad else "green"))


def go_live(rows: Sequence[Check], layout: TableLayout) -> RenderableType:
    """Render the checks, and whether mode `act` is safe now: `go` or `no go`."""
    errors = [row.name for row in rows if is_error(row)]
    if errors:
        return Group(checks(rows, layout), Text(f"no go: {', '.join(errors)}", style="bold red"))
    hint = "; check the warnings first" if any(not row.ok for row in rows) else ""
    return Group(checks(rows, layout), Text(f"go{hint}", style="bold green"))


def is_error(row: Check) -> bool:
    """Return whether a check fails with more than a warning."""
    return not row.ok and row.severity == "error"


def _mark(row: Check) -> Text:
    if row.ok:
        return Text("ok", style="green")
    return Text("ERROR", style="red") if is_error(row) else Text(row.severity, style="yellow")


def change(answer: Json, _: TableLayout) -> RenderableType:
    """Render the result of `takeover` or `handback`: one line per broker, the warnings, and who splits bundles."""
    drawn = table("broker", "sheds before", "sheds after", "as expected", "detail")
    for row in answer["brokers"]:
        mark = Text("yes", style="green") if row["ok"] else Text("NO", style="red")
        drawn.add_row(row["broker"], _value(row["before"]), _value(row["after"]), mark, row["detail"])
    parts: list[RenderableType] = [drawn]
    parts += [Text(f"warning: {text}", style="yellow") for text in answer.get("warnings") or []]
    if answer.get("split"):
        parts.append(Text(f"who splits bundles automatically: {answer['split']}"))
    return Group(*parts)


def uninstalled(answer: Json, layout: TableLayout) -> RenderableType:
    """Render the deleted nodes, grouped by the first part of their names; each node with `-o wide`."""
    if not answer["nodes"]:
        return Text(f"nothing to delete: {answer['root']} does not exist")
    names = answer["nodes"] if layout.wide else Counter(name.partition("/")[0] for name in answer["nodes"])
    verb = "deleted" if answer["done"] else "would be deleted"
    after = "; files and settings of hosts stay" if answer["done"] else ""
    total = f"{verb}: {numbered(len(answer['nodes']), 'node')} of {answer['root']}{after}"
    return Text("\n".join([*sorted(names), total]))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or units.DASH
    return units.DASH if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def pairs(answer: Json, _: TableLayout) -> RenderableType:
    """Render a small response as names and values."""
    grid = output.grid("bold")
    endless = "for good" if answer.keys() & {"bundle", "pattern"} else "resumed"
    for key, value in answer.items():
        text = endless if key == "until_ms" and not value else _value(value)
        grid.add_row(key.removesuffix("_ms"), units.moment(value) if key.endswith("_ms") and value else text)
    return grid


# --- where a bundle would be placed --------------------------------------------------------------------------


def assignments(rows: Sequence[AssignmentView], layout: TableLayout) -> RenderableType:
    """Render one table per bundle: brokers that remain or are dropped after each step, and the choice."""
    parts: list[RenderableType] = []
    for row in rows:
        parts += [*([Text()] if parts else []), _head(row), _steps(row, layout)]
        style = "red" if row.code else "green"
        end = Text(f"preallocated: {row.preallocated or 'no'}").append("   chosen: ")
        parts.append(end.append(row.sentence, style=style))
    codes = sorted({item.code for row in rows for step in row.steps for item in step.dropped})
    legend = [Text(f"{code}: {explain(code)}", style="dim") for code in codes]
    return Group(*parts, *([Text(), *legend] if legend else []))


def _head(row: AssignmentView) -> Text:
    head = Text(row.topic or row.bundle, style="bold")
    if row.topic:
        head.append(f"  {row.bundle}", style="not bold")
    return head.append(f"  owned by {row.owner}; if it were unowned" if row.owner else "  unowned", style="not bold")


def _steps(row: AssignmentView, layout: TableLayout) -> RenderableType:
    drawn = table("step", ">left", "candidates", "dropped", "note")
    before: tuple[str, ...] = ()
    for step in row.steps:
        names = "same" if before and step.candidates == before else _names(step.candidates, layout)
        drawn.add_row(step.name, str(len(step.candidates)), names, _dropped(step.dropped, layout), step.note)
        before = step.candidates
    return drawn


def _names(names: Sequence[str], layout: TableLayout) -> str:
    if layout.wide or len(names) <= _NAMED:
        return "\n".join(names) or units.DASH
    return "\n".join([*names[: _NAMED - 1], f"and {len(names) - _NAMED + 1} more"])


def _dropped(dropped: Sequence[DroppedBroker], layout: TableLayout) -> str:
    if not layout.wide:
        return "\n".join(f"{amount} {code}" for code, amount in Counter(item.code for item in dropped).items())
    by_code: dict[str, list[str]] = defaultdict(list)
    for item in dropped:
        by_code[item.code].append(item.broker)
    return "\n".join(f"{code}: {', '.join(brokers)}" for code, brokers in by_code.items())
