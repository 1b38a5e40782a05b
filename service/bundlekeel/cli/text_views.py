"""Reasons, history, checks and changes as text and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bundlekeel.cli import units
from bundlekeel.cli.output import TableLayout, table
from bundlekeel.cli.tables import coded, entry_words, explain, split_name
from bundlekeel.core.model.text_format import numbered

Row = Mapping[str, Any]
# Two columns, also where a line is continued.
_INDENT = (0, 0, 0, 2)
# Records that begin this much later than was asked for leave something out.
_LATE_MS = 60_000


def why(answer: Row, layout: TableLayout) -> RenderableType:
    """One sentence, the codes behind it, what happened before, and what would change it."""
    name = Text(f"{answer.get('kind', '')} {answer.get('name', '')}", style="bold")
    if answer.get("broker") and answer.get("kind") != "broker":
        name.append(f" on {answer['broker']}", style="not bold")
    parts: list[RenderableType] = [name, Text(str(answer.get("sentence", "")))]
    if answer.get("kind") == "topic":
        parts.insert(1, Text(f"in bundle {answer.get('bundle')}, which moves as a whole"))
    if answer.get("channel"):
        parts.append(Text(f"  ownership channel: {entry_words(answer['channel'])}", style="dim"))
    for finding in answer.get("findings") or []:
        parts.append(Text(f"  {finding['code']}: {finding['detail']}; {finding['remedy']}", style="red"))
    for code in answer.get("codes") or []:
        meaning = code.get("explanation") or explain(code.get("code"))
        detail = f" ({code['detail']})" if code.get("detail") else ""
        parts.append(Padding(coded(code.get("code")).append(f": {meaning}{detail}", style="default"), _INDENT))
    changes = answer.get("what_would_change_it") or []
    for change in [changes] if isinstance(changes, str) else changes:
        parts.append(Padding(Text(f"→ {change}"), _INDENT))
    if answer.get("history"):
        parts += [Text(), journal(answer["history"], layout)]
    return Group(*parts)


def verdicts(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """A line a cycle."""
    made = table("time", ">cycle", "verdict", ">moves", "refusals", "sentence")
    for row, before in _collapsed(rows, lambda row: ((row.get("verdict") or {}).get("code"), row.get("moves"))):
        verdict = row.get("verdict") or {}
        moves = row.get("moves", 0)
        refusals = ", ".join(f"{count} {code}" for code, count in (row.get("refusals") or {}).items())
        made.add_row(
            units.moment(row.get("wall_ms"), short=layout.stacked),
            f"{row.get('cycle', '')}{_times(before)}",
            coded(verdict.get("code")),
            str(len(moves) if isinstance(moves, list) else moves),
            refusals,
            str(verdict.get("sentence", "")),
        )
    return made


def journal(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """A line a record: what was done, where it landed, and why."""
    apart = layout.wide and not layout.stacked
    last = [] if layout.narrow else ["sentence"]
    made = table("time", "kind", "what", "outcome", ">took", *last, *(["by", "reason"] if apart else []))
    for row, before in _collapsed(rows, _same_cycle):
        what, sentence = f"{_what(row, layout)}{_times(before)}", _sentence(row, below=layout.wide and not apart)
        made.add_row(
            units.moment(row.get("wall_ms"), short=layout.stacked),
            str(row.get("kind", "")),
            f"{what}\n{sentence}".rstrip() if layout.narrow else what,
            _outcome(row.get("outcome")),
            units.age(row.get("seconds")) if row.get("seconds") is not None else "",
            *([] if layout.narrow else [sentence]),
            *([str(row.get("by") or ""), str(row.get("reason") or "")] if apart else []),
        )
    return made


def _collapsed(rows: Sequence[Row], what: Callable[[Row], Any]) -> Iterator[tuple[Row, int]]:
    """The last of those in a row of which `what` is the same and not None, and how many came before it."""
    before = 0
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        mine = what(row)
        if following is not None and mine is not None and what(following) == mine:
            before += 1
            continue
        yield row, before
        before = 0


def _same_cycle(row: Row) -> Any:
    """What makes one cycle like the next; None of any other record."""
    if row.get("kind") != "cycle":
        return None
    return row.get("code"), row.get("planned"), row.get("obstacle")


def _times(before: int) -> str:
    return f" (×{before + 1})" if before else ""


def summary(answer: Row, _: TableLayout) -> RenderableType:
    """The sentence, then figures, the longest overloads, and what people did."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for title, *lines in _summary_rows(answer):
        for number, line in enumerate(lines):
            grid.add_row("" if number else title, line)
    return Group(Text(str(answer.get("sentence")), style="bold"), grid)


def _summary_rows(answer: Row) -> Iterator[list[str]]:
    """A title and its lines."""
    known, since = answer.get("known_since_ms"), answer.get("since_ms") or 0
    yield ["time", f"{units.moment(since or known)} – {units.moment(answer['until_ms'])}"]
    if known is None or known - since > _LATE_MS:
        yield ["known", f"since {units.moment(known)}: nothing is recorded before" if known else "nothing"]
    yield ["cycles", str(answer.get("cycles"))]
    if answer.get("recommended"):
        most = numbered(answer["recommended_moves"], "move")
        yield ["recommended", f"moves in {numbered(answer['recommended'], 'cycle')}, {most} at most in one"]
    yield ["moves", _counts(answer.get("moves") or {}) or "none"]
    if answer.get("effects"):
        gain = answer.get("gain") or 0.0
        peak = f"the peak of the two brokers went {'up' if gain < 0 else 'down'} by {abs(gain):.1%} on average"
        yield ["what they did", f"{_counts(answer['effects'])}; {peak}"]
    yield ["not carried out", *(_met(row) for row in answer.get("obstacles") or [])]
    yield ["not moved", *(_met(row) for row in answer.get("refusals") or [])]
    yield [
        "overloads",
        *(
            f"{units.moment(row['since_ms'])}, {units.age((row['until_ms'] - row['since_ms']) / 1000)}: "
            f"{row['sentence']}"
            for row in answer.get("overloads") or []
        ),
    ]
    people = answer.get("people") or []
    yield [
        "people",
        *(f"{units.moment(row['wall_ms'])}, {row['by']}: {row['what']} ({row['reason']})" for row in people),
    ]
    if answer.get("refused_requests"):
        yield ["refused", f"{numbered(answer['refused_requests'], 'request')}; see `bundlekeel journal --kind audit`"]


def _met(row: Row) -> str:
    most = f", {numbered(row['most'], 'bundle')} at most" if row.get("most") else ""
    return f"{row['code']} in {numbered(row['cycles'], 'cycle')}{most}: {explain(row['code'])}"


def _counts(counts: Row) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())


def _sentence(row: Row, *, below: bool) -> str:
    text = str(row.get("sentence") or "")
    return f"{text}\nby {row['by']}: {row.get('reason') or ''}" if below and row.get("by") else text


def _what(row: Row, layout: TableLayout) -> str:
    """A cycle, a bundle that was split and where, or a bundle and its way."""
    if row.get("kind") == "finding":
        return f"{row.get('code')} {row.get('event')}"
    if row.get("kind") == "foreign":
        return f"{row.get('bundle')}: {row.get('source')} → {row.get('destination')}"
    if row.get("kind") == "quota":
        return f"quotas: {row.get('what')}"
    if row.get("kind") == "adoption":
        return f"thresholds {row.get('version') or ''} {row.get('what')}"
    if row.get("kind") == "effect":
        return f"{row.get('source')} → {row.get('destination')}"
    if row.get("kind") in ("audit", "wish"):
        return str(row.get("what") or "")
    if not row.get("bundle"):
        return f"cycle {row.get('cycle', '')}"
    if row.get("kind") == "split":
        return f"{split_name(row['bundle'])}\n  at {row.get('broker')}" if layout.stacked else str(row["bundle"])
    target = row.get("landed_on") or row.get("destination")
    if layout.stacked:
        return f"{split_name(row['bundle'])}\n  {row.get('source')}\n  → {target}"
    return f"{row['bundle']}: {row.get('source')} → {target}"


def _outcome(outcome: Any) -> Text:
    text = str(outcome or "")
    style = {"done": "green", "": ""}.get(text, "yellow")
    return Text(text, style=style)


def checks(rows: Sequence[Row], _: TableLayout) -> RenderableType:
    """A line a check; below a failing one, the fix."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        detail = Text(str(row.get("detail", "")))
        if not row.get("ok") and row.get("fix"):
            detail.append(f"\n→ {row['fix']}", style="cyan")
        grid.add_row(_mark(row), str(row.get("name")), detail)
    bad = sum(1 for row in rows if is_error(row))
    warnings = sum(1 for row in rows if not row.get("ok")) - bad
    said = f"{numbered(len(rows), 'check')}, {numbered(bad, 'error')}, {numbered(warnings, 'warning')}"
    total = Text(said, style="red" if bad else "green")
    return Group(grid, total)


def go_live(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """The checks, and whether the sidecars may act."""
    errors = [str(row.get("name")) for row in rows if is_error(row)]
    if errors:
        return Group(checks(rows, layout), Text(f"no go: {', '.join(errors)}", style="bold red"))
    left = "; look at the warnings first" if any(not row.get("ok") for row in rows) else ""
    return Group(checks(rows, layout), Text(f"go{left}", style="bold green"))


def is_error(row: Row) -> bool:
    """A failing check that is more than a warning."""
    return not row.get("ok") and row.get("severity", "error") == "error"


def _mark(row: Row) -> Text:
    if row.get("ok"):
        return Text("ok", style="green")
    return Text("ERROR", style="red") if is_error(row) else Text(str(row.get("severity")), style="yellow")


def change(answer: Row, _: TableLayout) -> RenderableType:
    """`takeover` and `handback`: a line a broker, then the warnings and who splits from now on."""
    made = table("broker", "before", "after", "as wanted", "detail")
    for row in answer.get("brokers") or []:
        good = bool(row.get("ok"))
        mark = Text("yes" if good else "NO", style="green" if good else "red")
        made.add_row(
            str(row.get("broker")),
            _value(row.get("before")),
            _value(row.get("after")),
            mark,
            str(row.get("detail") or ""),
        )
    parts: list[RenderableType] = [made]
    parts += [Text(f"warning: {text}", style="yellow") for text in answer.get("warnings") or []]
    if answer.get("split"):
        parts.append(Text(f"splits from now on: {answer['split']}"))
    return Group(*parts)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key}={item}" for key, item in value.items())
    return units.DASH if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def pairs(answer: Row, _: TableLayout) -> RenderableType:
    """A small answer as name and value."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    ever = "resumed" if "since_ms" in answer else "for good"
    for key, value in answer.items():
        shown = ever if key == "until_ms" and not value else _value(value)
        grid.add_row(key.removesuffix("_ms"), units.moment(value) if key.endswith("_ms") and value else shown)
    return grid


def tasks(rows: Sequence[Row], _: TableLayout) -> RenderableType:
    """A line an execution."""
    made = table("task", "plan", "state", "detail")
    for row in rows:
        made.add_row(str(row.get("task")), str(row.get("hash")), str(row.get("state")), str(row.get("detail") or ""))
    return made
