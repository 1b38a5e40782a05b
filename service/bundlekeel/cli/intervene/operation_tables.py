"""What drains, moves by hand and reviews answer, as tables and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import units
from bundlekeel.cli.output import TableLayout, table
from bundlekeel.cli.tables import coded, split_name

Row = Mapping[str, Any]


def manual_move(answer: Row, layout: TableLayout) -> RenderableType:
    """The bundle first, then the move or its children, what every other broker says, and what to do next."""
    parts: list[RenderableType] = [Text(str(answer.get("sentence")), style="bold")]
    if answer.get("move"):
        parts.append(Text(str(answer["move"].get("sentence"))))
    parts += [_refusal(item) for item in answer.get("refusals") or []]
    if answer.get("candidates"):
        made = table("broker", ">score", ">with it", "says")
        for row in answer["candidates"]:
            said = Text(f"{row.get('code')}: {row.get('explanation')}") if row.get("code") else Text("takes it")
            scores = units.share(row.get("score_before")), units.share(row.get("score_after"))
            made.add_row(str(row.get("broker")), *scores, said)
        parts.append(made)
    if answer.get("children"):
        made = table("child", ">topics", ">msg/s", ">B/s")
        for row in answer["children"]:
            shares = (units.share(row.get(key)) for key in ("topics_ratio", "msg_rate_ratio", "throughput_ratio"))
            name = str(row.get("bundle"))
            made.add_row(split_name(name) if layout.stacked else name, *shares)
        parts.append(made)
    parts.append(_next(answer))
    return Group(*parts)


def _refusal(item: Row) -> Text:
    detail = f" ({item['detail']})" if item.get("detail") else ""
    return Text("  ").append(coded(item.get("code"))).append(f": {item.get('explanation')}{detail}", style="yellow")


def _next(answer: Row) -> Text:
    if answer.get("ended"):
        return _ended(answer["ended"])
    if answer.get("review"):
        return Text(f"proposed; another person approves it: bundlekeel review approve {answer['review']}")
    if answer.get("task"):
        return Text(f"left for the leader as task {answer['task']}; see `bundlekeel plan tasks`")
    if answer.get("refusals") and not answer.get("moves") and not answer.get("waiting"):
        return Text("nothing can be done", style="red")
    return Text("dry run: nothing was done; --yes carries it out", style="dim")


def _ended(task: Row) -> Text:
    good = task.get("state") == "done"
    said = f"task {task.get('task')}: {task.get('state')}, {task.get('detail')}"
    return Text(said, style="green" if good else "red")


def relocation(answer: Row, layout: TableLayout) -> RenderableType:
    """What a drain or a warm moves, and what stays for now."""
    done = "dry run: nothing was done; --yes carries it out" if answer.get("dry_run") else "asked for; it begins now"
    done = progress(answer["progress"]) if answer.get("progress") else done
    return Group(*_moves(answer, layout), Text(done, style="dim"))


def unload(answer: Row, layout: TableLayout) -> RenderableType:
    """What the unload of a namespace moves, what stays, and what to do next."""
    return Group(*_moves(answer, layout), _next(answer))


def _moves(answer: Row, layout: TableLayout) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(str(answer.get("sentence")), style="bold")]
    if answer.get("detail"):
        parts.append(Text(str(answer["detail"]), style="yellow"))
    made = table("bundle", "from", "to", ">from score", ">to score")
    for move in answer.get("moves") or []:
        name = str(move.get("bundle"))
        made.add_row(
            split_name(name) if layout.stacked else name,
            str(move.get("source")),
            str(move.get("target")),
            f"{units.share(move.get('source_before'))} → {units.share(move.get('source_after'))}",
            f"{units.share(move.get('target_before'))} → {units.share(move.get('target_after'))}",
        )
    if answer.get("moves"):
        parts.append(made)
    for item in answer.get("refusals") or []:
        parts.append(Text(f"{item.get('bundle')}").append(_refusal(item)))
    if answer.get("eta_seconds") and not answer.get("progress"):
        parts.append(Text(f"about {units.age(answer['eta_seconds'])} until that is done"))
    return parts


def progress(row: Row) -> str:
    """A drain in a line."""
    left = "unknown" if row.get("left") is None else row["left"]
    parts = [f"{row.get('broker')}: {row.get('state')}, {left} left, {row.get('moved')} moved"]
    if row.get("eta_seconds"):
        parts.append(f"about {units.age(row['eta_seconds'])} to go")
    if row.get("blocked"):
        parts.append("stay: " + ", ".join(f"{count} {code}" for code, count in row["blocked"].items()))
    if row.get("detail"):
        parts.append(str(row["detail"]))
    return "; ".join(parts)


def operations(answer: Row, layout: TableLayout) -> RenderableType:
    """One block a kind; kinds nobody asked for are left out."""
    parts: list[RenderableType] = [Text(progress(row)) for row in answer.get("drains") or []]
    for kind in ("cordons", "warms"):
        for row in answer.get(kind) or []:
            parts.append(Text(f"{row.get('broker')}: {kind[:-1]}ed by {row.get('by')}: {row.get('reason')}"))
    for row in answer.get("pins") or []:
        parts.append(Text(f"{row.get('bundle')}: pinned {_until(row)}"))
    for row in answer.get("exclusions") or []:
        parts.append(Text(f"{row.get('pattern')}: excluded {_until(row)}"))
    for row in answer.get("pauses") or []:
        scope = row.get("scope") or "everything"
        parts.append(
            Text(
                f"{scope}: paused {_until(row, 'until resumed')} by {row.get('by')}: {row.get('reason')}",
                style="yellow",
            )
        )
    return Group(*parts) if parts else Text("there are no requests")


def resumed(answer: Row, _: TableLayout) -> RenderableType:
    """What is no longer paused."""
    return Text(f"{answer.get('scope') or 'everything'}: resumed by {answer.get('by')}: {answer.get('reason')}")


def _until(row: Row, ever: str = "for good") -> str:
    return f"until {units.moment(row['until_ms'])}" if row.get("until_ms") else ever


def reviews(rows: Sequence[Row], _: TableLayout) -> RenderableType:
    """A line a proposal."""
    made = table("proposed", "id", "state", "what", "by", "reviewer", "may be")
    for row in rows:
        made.add_row(
            units.moment(row.get("at_ms")),
            str(row.get("id")),
            str(row.get("state")),
            str(row.get("title")),
            f"{row.get('by')}: {row.get('reason')}",
            str(row.get("reviewer") or units.DASH),
            ", ".join(row.get("actions") or []) or units.DASH,
        )
    return made
