"""Output of the demo: a live table, and then tables of loads before and after, moves, costs and conditions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dev.demo.measure import Cost, Load, max_over_mean

_BAR = 30


def bar(value: float, largest: float) -> str:
    """Return a text bar of up to thirty characters; `largest` is the value of a full bar."""
    return "█" * round(_BAR * value / largest) if largest > 0 else ""


def live(
    rows: Sequence[Load], largest: float, *, phase: str, elapsed: float, leader: str, moves: int, caption: str
) -> RenderableType:
    """Return the table that is shown while the demo runs."""
    table = Table(title=f"{phase}   {elapsed:.0f} s", title_justify="left", expand=False)
    table.add_column("broker")
    table.add_column("MB/s", justify="right")
    table.add_column("busy bundles", justify="right")
    table.add_column("load", min_width=_BAR)
    for row in rows:
        table.add_row(row.broker, f"{row.throughput / 1e6:.2f}", str(row.busy_bundles), bar(row.throughput, largest))
    line = Text(f"max/mean {max_over_mean(list(rows)):.2f}   leader {leader or 'none'}   moves {moves}")
    return Group(table, line, Text(caption, style="dim"))


def gaps(cut_off: Sequence[float]) -> Text:
    """Return how long clients could not publish during moves: median and worst of all moves."""
    if not cut_off:
        return Text("no move was made", style="dim")
    return Text(f"clients cut off per move: median {statistics.median(cut_off):.2f} s, worst {max(cut_off):.2f} s")


def before_after(before: Sequence[Load], after: Sequence[Load]) -> Table:
    """Return a table with one row per broker and its load before and after, and max/mean in the last row."""
    table = Table(title="load by the brokers' own reports", title_justify="left")
    for name in ("broker", "before MB/s", "bundles", "after MB/s", "bundles"):
        table.add_column(name, justify="left" if name == "broker" else "right")
    for old, new in zip(before, after, strict=True):
        table.add_row(
            old.broker,
            f"{old.throughput / 1e6:.2f}",
            str(old.busy_bundles),
            f"{new.throughput / 1e6:.2f}",
            str(new.busy_bundles),
        )
    table.add_section()
    table.add_row("max/mean", f"{max_over_mean(list(before)):.2f}", "", f"{max_over_mean(list(after)):.2f}", "")
    return table


def moves_table(moves: Sequence[dict[str, Any]], cut_off: Sequence[float]) -> Table:
    """Return a table of the moves: target, result, duration, and how long its clients were cut off."""
    table = Table(title=f"moves ({len(moves)})", title_justify="left")
    for name in ("bundle", "from", "asked", "landed", "outcome", "move s", "clients cut off s", "by epoch"):
        table.add_column(name, justify="right" if name in ("move s", "clients cut off s", "by epoch") else "left")
    for move, gap in zip(moves, cut_off, strict=True):
        style = "" if move["outcome"] == "done" else "red"
        table.add_row(
            move["bundle"],
            move["source"],
            move["destination"],
            move["landed_on"] or "-",
            move["outcome"],
            f"{move['seconds']:.2f}",
            f"{gap:.2f}" if gap else "< 0.2",
            str(move["epoch"]),
            style=style,
        )
    return table


def costs_table(costs: Sequence[Cost]) -> Table:
    """Return a table with memory and CPU of the sidecars while no bundle had to move."""
    table = Table(title="what the sidecars cost when idle", title_justify="left")
    for name in ("sidecar", "role", "resident MB", "CPU % of a core"):
        table.add_column(name, justify="left" if name in ("sidecar", "role") else "right")
    for cost in costs:
        table.add_row(cost.name, cost.role, f"{cost.resident_mib:.0f}", f"{cost.cpu_percent:.1f}")
    return table


def verdicts(console: Console, checks: Sequence[tuple[str, bool, str]]) -> None:
    """Print one line per condition: its name, whether it was met, and details."""
    for name, passed, detail in checks:
        mark = "[green]✓[/green]" if passed else "[red]✗[/red]"
        console.print(f"{mark} {name}: {detail}")
