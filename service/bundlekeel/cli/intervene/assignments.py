"""Assignments as tables: who is left after each step of the pipeline, who was dropped and why, who is chosen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import units
from bundlekeel.cli.output import TableLayout, table
from bundlekeel.cli.tables import explain

Row = Mapping[str, Any]

# As many candidates are named; more are counted.
_NAMED = 4


def assignments(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """One table a bundle. Nothing was assigned by asking."""
    parts: list[RenderableType] = []
    for row in rows:
        parts += [*([Text()] if parts else []), _head(row), _steps(row, layout), _end(row)]
    codes = sorted({item["code"] for row in rows for step in row["steps"] for item in step["dropped"]})
    legend = [Text(f"{code}: {explain(code)}", style="dim") for code in codes]
    return Group(*parts, *([Text(), *legend] if legend else []))


def _head(row: Row) -> Text:
    head = Text(str(row.get("topic") or row["bundle"]), style="bold")
    if row.get("topic"):
        head.append(f"  {row['bundle']}", style="not bold")
    owner = f"owned by {row['owner']}; if it were unowned" if row.get("owner") else "unowned"
    return head.append(f"  {owner}", style="not bold")


def _steps(row: Row, layout: TableLayout) -> RenderableType:
    made = table("step", ">left", "candidates", "dropped", "note")
    before: Any = None
    for step in row["steps"]:
        same, before = step["candidates"] == before, step["candidates"]
        made.add_row(
            str(step["name"]),
            str(len(step["candidates"])),
            "same" if same and before else _names(step["candidates"], layout),
            _dropped(step["dropped"], layout),
            str(step.get("note") or ""),
        )
    return made


def _names(names: Sequence[str], layout: TableLayout) -> str:
    if layout.wide or len(names) <= _NAMED:
        return "\n".join(names) or units.DASH
    return "\n".join([*names[: _NAMED - 1], f"and {len(names) - _NAMED + 1} more"])


def _dropped(dropped: Sequence[Row], layout: TableLayout) -> str:
    if not layout.wide:
        return "\n".join(f"{amount} {code}" for code, amount in Counter(item["code"] for item in dropped).items())
    by_code: dict[str, list[str]] = defaultdict(list)
    for item in dropped:
        by_code[item["code"]].append(item["broker"])
    return "\n".join(f"{code}: {', '.join(brokers)}" for code, brokers in by_code.items())


def _end(row: Row) -> Text:
    going = Text(f"preallocated: {row.get('preallocated') or 'no'}")
    style = "green" if row.get("chosen") else "red"
    return going.append("   chosen: ").append(str(row.get("sentence", "")), style=style)
