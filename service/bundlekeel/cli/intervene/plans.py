"""A plan as a diff: load per broker before and after, moves with their reason, refusals by code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import units
from bundlekeel.cli.output import TableLayout, table
from bundlekeel.cli.tables import coded, explain, split_name
from bundlekeel.core.model.text_format import numbered

Row = Mapping[str, Any]

_BAR = 20
_EXAMPLES = 3


def plan(answer: Row, layout: TableLayout) -> RenderableType:
    """All of one plan. Nothing was touched by making it."""
    verdict = answer.get("verdict") or {}
    head = Text(f"plan {answer.get('hash')}", style="bold")
    head.append(f"  {answer.get('strategy')}, placement {answer.get('placement')}, ", style="not bold")
    head.append(f"made {units.moment(answer.get('wall_ms'))}; nothing was touched", style="not bold")
    said = coded(verdict.get("code")).append(f": {verdict.get('sentence', '')}", style="default")
    parts: list[RenderableType] = [head, said, Text(), _loads(answer, layout), Text(), _moves(answer, layout)]
    if answer.get("splits") or answer.get("split_refusals"):
        parts += [Text(), _splits(answer, layout)]
    refusals = answer.get("refusals") or []
    if refusals:
        parts += [Text(), _refusals(refusals, layout)]
    if (answer.get("moves") or answer.get("splits")) and not answer.get("what_if"):
        parts += [
            Text(),
            Text(f'to carry it out: bundlekeel plan execute {answer.get("hash")} --reason "…"', style="dim"),
        ]
    if answer.get("finished"):
        parts += [Text(), Text(_finished(answer["finished"]), style="bold")]
    return Group(*parts)


def _finished(row: Row) -> str:
    seconds = row["seconds"]
    time = f"{max(1, round(seconds / 60))} min" if seconds < 7200 else units.age(seconds)
    counts = f"{numbered(row['moves'], 'move')}, {numbered(row['cycles'], 'cycle')}"
    end = f"max/mean {units.multiple(row['max_mean'])}, {counts}, about {time}"
    return f"when finished: {end}" if row["complete"] else f"not finished by then: {end}"


def _loads(answer: Row, layout: TableLayout) -> RenderableType:
    imbalance, bars = answer.get("imbalance") or {}, not (layout.wide and layout.stacked)
    made = table(
        *(
            "broker",
            ">before",
            ">after",
            ">change",
            *(["load after"] if bars else []),
            ">bundles",
            ">B/s before",
            ">after",
        ),
        *([">msg/s before", ">after"] if layout.wide else []),
        title=f"load (max/mean {units.multiple(imbalance.get('before'))} → {units.multiple(imbalance.get('after'))})",
    )
    for row in answer.get("loads") or []:
        before, after = row.get("score_before") or 0.0, row.get("score_after") or 0.0
        changed = abs(after - before) >= 0.0005
        made.add_row(
            str(row.get("broker")),
            units.share(before),
            Text(units.share(after), style="bold" if changed else ""),
            _change(after - before) if changed else "",
            *([_bar(before, after)] if bars else []),
            _bundle_count(row),
            units.amount(row.get("throughput_before")),
            units.amount(row.get("throughput_after")),
            *(
                [units.amount(row.get("msg_rate_before")), units.amount(row.get("msg_rate_after"))]
                if layout.wide
                else []
            ),
        )
    return made


def _bundle_count(row: Row) -> str:
    before, after = row.get("bundles_before"), row.get("bundles_after")
    return str(before) if before == after else f"{before} → {after}"


def _change(difference: float) -> Text:
    return Text(f"{difference * 100:+.1f}", style="green" if difference < 0 else "yellow")


def _bar(before: float, after: float) -> Text:
    """The load after; what left is dotted, what came is hatched."""
    old, new = (round(min(1.0, max(0.0, value)) * _BAR) for value in (before, after))
    text = Text("█" * min(old, new))
    if new > old:
        return text.append("▒" * (new - old), style="yellow")
    return text.append("·" * (old - new), style="green")


def _moves(answer: Row, layout: TableLayout) -> RenderableType:
    moves = answer.get("moves") or []
    if not moves:
        return Text("no moves", style="bold")
    stacked = layout.stacked
    ways = ["from, to"] if stacked else ["from", "to", *(["runner-up"] if layout.wide else [])]
    made = table(*("bundle", *ways, "why", ">B/s", *([">msg/s"] if layout.wide else [])), title=f"moves ({len(moves)})")
    for move in moves:
        traffic = move.get("traffic") or [0.0] * 4
        way = [str(move.get("source")), str(move.get("target")), *([str(move.get("runner_up"))] if layout.wide else [])]
        made.add_row(
            split_name(str(move.get("bundle"))) if stacked else str(move.get("bundle")),
            *(["\n".join(map("{}{}".format, ("", "→ ", "else "), way))] if stacked else way),
            _reason(move, layout),
            units.amount(traffic[2] + traffic[3]),
            *([units.amount(traffic[0] + traffic[1])] if layout.wide else []),
        )
    return made


def _splits(answer: Row, layout: TableLayout) -> RenderableType:
    """Bundles to split, then those above a split limit that stay whole, each with its reason."""
    splits, refused = answer.get("splits") or [], answer.get("split_refusals") or []
    made = table("bundle", "broker", "split by", "why", title=f"splits ({len(splits)}, {len(refused)} refused)")
    for split in splits:
        name, why = str(split.get("bundle")), str(split.get("sentence")).partition(": ")[2]
        made.add_row(
            split_name(name) if layout.stacked else name, str(split.get("broker")), str(split.get("rule")), why
        )
    for item in refused:
        name, detail = str(item.get("bundle")), item.get("detail")
        why = f"{item.get('explanation')}{f' ({detail})' if detail else ''}"
        made.add_row(split_name(name) if layout.stacked else name, str(item.get("broker")), "", why)
    return made


def _reason(move: Row, layout: TableLayout) -> str:
    source = f"{units.share(move.get('source_before'))} → {units.share(move.get('source_after'))}"
    target = f"{units.share(move.get('target_before'))} → {units.share(move.get('target_after'))}"
    return f"{source} ({move.get('rule')})\n{target}" if layout.stacked else f"{source}, {target} ({move.get('rule')})"


def _refusals(refusals: Sequence[Row], layout: TableLayout) -> RenderableType:
    groups: dict[str, list[Row]] = defaultdict(list)
    for refusal in refusals:
        groups[str(refusal.get("code"))].append(refusal)
    made = table(">count", "code", "which means", "for example", title=f"not moved ({len(refusals)})")
    for code, items in sorted(groups.items(), key=lambda item: -len(item[1])):
        names = [_refused(item, layout) for item in (items if layout.wide else items[:_EXAMPLES])]
        rest = len(items) - len(names)
        shown = "\n".join([*names, *([f"… and {rest} more (-o wide)"] if rest else [])])
        made.add_row(str(len(items)), coded(code), str(items[0].get("explanation") or explain(code)), shown)
    return made


def _refused(item: Row, layout: TableLayout) -> str:
    name = str(item.get("bundle") or item.get("broker") or "")
    name = split_name(name) if layout.stacked else name
    return f"{name} ({item['detail']})" if item.get("detail") else name


def summaries(rows: Sequence[Row], _: TableLayout) -> RenderableType:
    """A line a plan."""
    made = table("made", "hash", "strategy", ">moves", "verdict")
    for row in rows:
        verdict = row.get("verdict") or {}
        said = f"{verdict.get('code')}: {verdict.get('sentence')}" if isinstance(verdict, Mapping) else str(verdict)
        moves = row.get("moves", 0)
        count = len(moves) if isinstance(moves, list) else moves
        made.add_row(units.moment(row.get("wall_ms")), str(row.get("hash")), str(row.get("strategy")), str(count), said)
    return made
