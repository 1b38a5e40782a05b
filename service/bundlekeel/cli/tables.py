"""Answers of the sidecar as tables. Every function takes the JSON of one route and `wide`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bundlekeel.cli import units
from bundlekeel.cli.output import TableLayout, table
from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.text_format import numbered

Row = Mapping[str, Any]

# Below this score of the busiest broker a ratio of loads says nothing.
_IDLE = 0.01
_NAME_WIDTH = 38
_ABOVE = "latest, short and long term: msg/s above B/s, in and out together; + preallocated, with its age; * overridden"

_GOOD, _WARN, _BAD, _DIM = "green", "yellow", "red", "dim"
_REQUESTED = {"drain": "drained", "cordon": "cordoned", "warm": "warmed"}
_CODE_STYLES = {
    Code.OVERLOADED: _BAD,
    Code.UNDERLOADED: _WARN,
    Code.HIT_COUNT: _WARN,
    Code.BALANCED: _GOOD,
}


def explain(code: Any) -> str:
    """What a code means, or nothing for one that a newer sidecar sent."""
    try:
        return EXPLANATIONS[Code(code)]
    except ValueError:
        return ""


def coded(code: Any) -> Text:
    """A code in its colour."""
    text = str(code or "")
    return Text(text, style=_CODE_STYLES.get(text, ""))  # type: ignore[call-overload]


def _sum(row: Row, *names: str) -> float | None:
    values = [row.get(name) for name in names]
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) if numbers else None


def _both(row: Row) -> str:
    """Rate above throughput."""
    return f"{_rate(row)}\n{_throughput(row)}"


def _rate(row: Row) -> str:
    return units.amount(_sum(row, "msg_rate_in", "msg_rate_out", "msg_rate"))


def _throughput(row: Row) -> str:
    return units.amount(_sum(row, "throughput_in", "throughput_out", "throughput"))


# --- status ------------------------------------------------------------------------------------------------


def status(answer: Row, layout: TableLayout) -> RenderableType:
    """The first look: who leads, what it may do, what the last cycle said, how even the load is."""
    parts: list[RenderableType] = [_summary(answer["state"], answer), Text(), brokers(answer["brokers"], layout)]
    if layout.wide:
        parts += [Text(), bundles(answer["bundles"], layout)]
    return Group(*parts)


def _summary(state: Row, answer: Row) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    leader = state.get("leader") or {}
    member = state.get("member")
    own = member.get("id") if isinstance(member, Mapping) else member
    others = [str(item.get("id")) for item in state.get("members") or [] if item.get("id") != own]
    grid.add_row(
        "sidecar",
        f"{own} ({state.get('role')}), version {state.get('version')}, up {units.age(state.get('uptime_seconds'))}",
    )
    grid.add_row("others", ", ".join(others) or "none")
    grid.add_row("leader", f"{leader['id']}, epoch {leader.get('epoch')}" if leader else Text("none", style=_BAD))
    grid.add_row("cluster", f"{state.get('cluster')}, {state.get('cluster_mode')} load manager")
    grid.add_row("mode", _mode(state))
    grid.add_row("strategy", f"{state.get('strategy')}, placement {state.get('placement')}")
    if state.get("paused"):
        grid.add_row("paused", Text(_paused(state["paused"]), style=_WARN))
    if requests := _requests(answer.get("operations") or {}):
        grid.add_row("requests", Text(f"{requests}; see `bundlekeel operations`", style=_WARN))
    ended = (state.get("takeover") or {}).get("ended") or {}
    if ended.get("deadman"):
        grid.add_row("put aside", Text(f"by {ended.get('by')}: {ended.get('reason')}", style=_BAD))
    if state.get("settling"):
        grid.add_row("settling", Text(str(state["settling"].get("sentence")), style=_WARN))
    grid.add_row("last cycle", _cycle(state.get("cycle")))
    grid.add_row("imbalance", _imbalance(state.get("imbalance") or {}, answer["brokers"]))
    grid.add_row("moves open", _open_moves(state))
    grid.add_row("ready", _ready(answer))
    return grid


def _requests(operations: Row) -> str:
    """How many of each kind people have asked for, a pause of everything left out: it has a line of its own."""
    kinds = ("drain", "cordon", "warm", "pin", "exclusion")
    counts = {kind: len(operations.get(f"{kind}s") or []) for kind in kinds}
    counts["paused scope"] = sum(1 for row in operations.get("pauses") or [] if row.get("scope"))
    return ", ".join(numbered(count, kind) for kind, count in counts.items() if count)


def _mode(state: Row) -> Text:
    text = Text(f"{state.get('mode')} (ceiling {state.get('mode_ceiling')})")
    if state.get("acting"):
        return text.append(", acting", style=_GOOD)
    code, leader, cycle = state.get("acting_obstacle"), state.get("leader"), state.get("cycle")
    if state.get("role") != "leader" and leader and cycle:
        # A follower never acts; what counts is what the leader does.
        code = cycle.get("obstacle")
        if not code and state.get("mode") == "act":
            return text.append(f", acting: yes, by {leader['id']}", style=_GOOD)
    why = f" ({code}: {explain(code)})" if code else ""
    return text.append(f", not acting{why}", style=_DIM)


def _paused(pause: Row) -> str:
    until = "until resumed" if pause.get("until_ms") is None else f"until {units.moment(pause['until_ms'])}"
    return f"{until}, by {pause.get('by')}: {pause.get('reason')}"


def _cycle(cycle: Row | None) -> str:
    if not cycle:
        return "none yet"
    ago = units.age(max(0.0, time.time() - cycle["wall_ms"] / 1000)) if cycle.get("wall_ms") else units.DASH
    return f"{cycle.get('id')}, {ago} ago: {cycle.get('sentence')}"


def _imbalance(values: Row, brokers: Sequence[Row]) -> str:
    score, size = values.get("score_max_mean"), values.get("throughput_max_mean")
    busiest = max((row.get("score_ratio") or 0.0 for row in brokers), default=0.0)
    if busiest < _IDLE:
        return f"none to speak of: the cluster is idle, its busiest broker at {units.share(busiest)}"
    return f"max/mean {units.multiple(score)} by score, {units.multiple(size)} by throughput (1.00 is even)"


def _open_moves(state: Row) -> str:
    ledger = state.get("ledger") or {}
    unsettled = ", ".join(ledger.get("unsettled") or [])
    return f"{ledger.get('entries', 0)} in the ledger{f', unsettled: {unsettled}' if unsettled else ''}"


def _ready(answer: Row) -> Text:
    if answer.get("ready"):
        return Text("yes", style=_GOOD)
    lines = [line.removeprefix("[-]") for line in answer.get("checks", []) if line.startswith("[-]")]
    return Text("no: " + "; ".join(lines), style=_BAD)


# --- the picture ---------------------------------------------------------------------------------------------


def brokers(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """One row a broker. Traffic in and out together: latest report, short term, long term."""
    if layout.wide:
        return _brokers_stacked(rows) if layout.stacked else _brokers_wide(rows)
    made = table(
        *("broker", *([] if layout.stacked else ["state"]), ">score", ">latest", ">short", ">long", ">bundles"),
        *("coming", ">seen", *([] if layout.stacked else ["verdict"])),
        caption="latest, short (10 samples) and long term (1,000): B/s, in and out; coming: bundles on their way",
    )
    for row in rows:
        cells, verdict = _broker_cells(row, stacked=layout.stacked), coded((row.get("verdict") or {}).get("code"))
        if layout.stacked and verdict.plain:
            cells[0].append("\n  ").append_text(verdict)
        made.add_row(
            *cells,
            units.share(row.get("score_ratio")),
            _throughput(row),
            _throughput(row.get("short") or {}),
            _throughput(row.get("long") or {}),
            _count(row.get("bundles")),
            _preallocated(row, wide=False),
            _seen(row),
            *([] if layout.stacked else [verdict]),
        )
    return made


def _seen(row: Row) -> str:
    """How old a broker's figures are, and `live` where they are by its counters."""
    return units.age(row.get("report_age_seconds")) + (" live" if row.get("measured_seconds") else "")


def _broker_cells(row: Row, *, stacked: bool) -> list[Text]:
    """Name and state, in two cells or below each other (a plain `ok` is left out there)."""
    name, state = Text(str(row.get("broker"))), _broker_state(row)
    if not stacked:
        return [name, state]
    return [name] if state.plain == "ok" else [name.append("\n  ").append_text(state)]


def _brokers_stacked(rows: Sequence[Row]) -> Table:
    made = table("broker", ">score", "resources", ">latest", ">short", ">long", ">seen", lines=True, caption=_ABOVE)
    made.columns[0].min_width = _NAME_WIDTH
    for row in rows:
        verdict = row.get("verdict") or {}
        (name,) = _broker_cells(row, stacked=True)
        counts = f"{_count(row.get('bundles'))} bundles, {_count(row.get('topics'))} topics, {row.get('version') or ''}"
        name.append(f"\n  {counts.rstrip(', ')}", style=_DIM)
        if verdict:
            name.append("\n  ").append_text(coded(verdict.get("code"))).append(
                f": {verdict.get('sentence')}", style=_DIM
            )
        for item in row.get("preallocated") or []:
            bundle = split_name(str(item["bundle"]), longest=_NAME_WIDTH - 4).replace("\n", "\n    ")
            name.append(f"\n  + {bundle} {units.age(item['age_seconds'])}", style=_WARN)
        made.add_row(
            name,
            f"{units.share(row.get('score_ratio'))}\nreported\n{units.share(row.get('reported_score_ratio'))}",
            _resources(row.get("resources") or {}).replace("bandwidth_", "bw ").replace("direct_memory", "direct"),
            *(_both(row), _both(row.get("short") or {}), _both(row.get("long") or {})),
            _seen(row),
        )
    return made


def _brokers_wide(rows: Sequence[Row]) -> Table:
    made = table(
        *("broker", "state", ">score", ">reported", "resources", ">latest msg/s", ">B/s", ">short msg/s", ">B/s"),
        *(">long msg/s", ">B/s", ">bundles", ">topics", ">seen", "preallocated", "verdict", "version"),
    )
    for row in rows:
        short, long, verdict = row.get("short") or {}, row.get("long") or {}, row.get("verdict") or {}
        made.add_row(
            *_broker_cells(row, stacked=False),
            units.share(row.get("score_ratio")),
            units.share(row.get("reported_score_ratio")),
            _resources(row.get("resources") or {}).replace("\n", ", "),
            *(_rate(row), _throughput(row), _rate(short), _throughput(short), _rate(long), _throughput(long)),
            _count(row.get("bundles")),
            _count(row.get("topics")),
            _seen(row),
            _preallocated(row, wide=True),
            coded(verdict.get("code")).append(f" {verdict.get('sentence', '')}", style=_DIM),
            str(row.get("version") or ""),
        )
    return made


def _broker_state(row: Row) -> Text:
    state = str(row.get("state"))
    if not row.get("alive", True):
        return Text("gone", style=_BAD)
    text = Text(state, style=_GOOD if state == "ok" else _BAD)
    if row.get("requested"):
        text.append(f" {_REQUESTED.get(row['requested'], row['requested'])}", style=_WARN)
    if row.get("sheds_itself"):
        text.append(" sheds itself", style=_WARN)
    return text.append(" unsettled", style=_DIM) if row.get("unsettled") else text


def _resources(resources: Row) -> str:
    """What counts, in percent; `*` marks an override of the capacity."""
    known = [(name, item) for name, item in resources.items() if (item.get("limit") or 0) > 0]
    return "\n".join(
        f"{name} {item.get('percent') or 0:.0f} %{'*' if item.get('overridden') else ''}" for name, item in known
    )


def _preallocated(row: Row, *, wide: bool) -> str:
    items = row.get("preallocated") or []
    if not items:
        return ""
    if wide:
        return "\n".join(f"{item['bundle']} {units.age(item['age_seconds'])}" for item in items)
    oldest = max(item["age_seconds"] for item in items)
    return f"{len(items)}, {units.age(oldest)}"


def _count(value: Any) -> str:
    return units.DASH if value is None else str(value)


def split_name(bundle: str, *, longest: int = 40) -> str:
    """A long bundle name in two lines, broken before its range."""
    namespace, _, span = bundle.rpartition("/")
    return bundle if len(bundle) <= longest else f"{namespace}/\n{span}"


def bundles(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """One row a bundle. Traffic in and out together, with the number of samples behind each average."""
    if layout.wide:
        return _bundles_stacked(rows) if layout.stacked else _bundles_wide(rows)
    made = table(
        *("bundle", *([] if layout.stacked else ["broker"]), ">topics", ">latest", ">short (n)"),
        *(*([] if layout.narrow else [">long (n)"]), ">score", "may move"),
        caption="latest, short and long term (-o wide): B/s, in and out together; n: samples",
    )
    for row in rows:
        made.add_row(
            *_bundle_cells(row, stacked=layout.stacked, longest=34 if layout.narrow else 40),
            _count(row.get("topics")),
            _throughput(row.get("latest") or {}),
            f"{_throughput(row.get('short') or {})} ({row.get('short_samples', 0)})",
            *([] if layout.narrow else [f"{_throughput(row.get('long') or {})} ({row.get('long_samples', 0)})"]),
            units.share(row.get("score_ratio")),
            _may_move(row),
        )
    return made


def _bundle_cells(row: Row, *, stacked: bool, longest: int = 40) -> list[Text]:
    """Bundle and broker, in two cells or below each other; where it is going follows its broker."""
    broker = Text(str(row.get("broker") or "unowned"), style=_DIM if stacked else "")
    if row.get("preallocated_to"):
        gap = "\n  " if stacked else " "
        age = units.age(row.get("preallocated_age_seconds"))
        broker.append(f"{gap}→ {row['preallocated_to']} {age}", style=_WARN)
    if not stacked:
        return [Text(str(row["bundle"])), broker]
    return [Text(split_name(str(row["bundle"]), longest=longest)).append("\n  ").append_text(broker)]


def _bundles_stacked(rows: Sequence[Row]) -> Table:
    made = table("bundle", "has", ">latest", ">short", ">long", ">score", "may move", lines=True, caption=_ABOVE)
    made.columns[0].min_width = _NAME_WIDTH
    for row in rows:
        latest, short, long = (row.get(name) or {} for name in ("latest", "short", "long"))
        moved = (
            f"\nlast {units.moment(row['last_move_ms'], short=True).replace(' ', chr(10))}"
            if row.get("last_move_ms")
            else ""
        )
        made.add_row(
            *_bundle_cells(row, stacked=True),
            f"{row.get('topics')} topics\n{row.get('producers')} prod.\n{row.get('consumers')} cons.",
            _both(latest),
            f"{_both(short)}\nn={row.get('short_samples')}",
            f"{_both(long)}\nn={row.get('long_samples')}",
            units.share(row.get("score_ratio")),
            _may_move(row).append(moved, style=_DIM),
        )
    return made


def _bundles_wide(rows: Sequence[Row]) -> Table:
    made = table(
        *("bundle", "broker", ">topics", ">prod.", ">cons.", ">latest msg/s", ">B/s", ">short msg/s", ">B/s", ">n"),
        *(">long msg/s", ">B/s", ">n", ">score", "may move", "last move"),
    )
    for row in rows:
        latest, short, long = (row.get(name) or {} for name in ("latest", "short", "long"))
        made.add_row(
            *_bundle_cells(row, stacked=False),
            *(_count(row.get(name)) for name in ("topics", "producers", "consumers")),
            *(_rate(latest), _throughput(latest)),
            *(_rate(short), _throughput(short), _count(row.get("short_samples"))),
            *(_rate(long), _throughput(long), _count(row.get("long_samples"))),
            units.share(row.get("score_ratio")),
            _may_move(row),
            units.moment(row["last_move_ms"]) if row.get("last_move_ms") else "",
        )
    return made


def _may_move(row: Row) -> Text:
    return Text("yes", style=_GOOD) if row.get("may_move") else Text(str(row.get("code") or "no"), style=_DIM)


def where(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """A row a topic, partition or bundle; `unowned` is an answer, not a reason to assign it."""
    if layout.stacked:
        made = table("topic, bundle" if _topics(rows) else "bundle", "hash", "state", "broker", lines=layout.wide)
        for row in rows:
            name = f"{row['topic']}\n  {row.get('bundle')}" if row.get("topic") else str(row.get("bundle"))
            urls = [row.get("service_url"), row.get("web_url") if layout.wide else ""]
            place = "\n  ".join([str(row.get("broker") or units.DASH), *(str(url) for url in urls if url)])
            made.add_row(name, _hash(row.get("hash")), _place(row, "\n"), place)
        return made
    first = ["topic", "hash"] if _topics(rows) else []
    listener = next((f" ({row['listener']})" for row in rows if row.get("listener")), "")
    service = f"service URL{listener}"
    made = table(*first, "bundle", "state", "broker", service, *(["web URL"] if layout.wide else []))
    for row in rows:
        made.add_row(
            *([str(row.get("topic") or ""), _hash(row.get("hash"))] if first else []),
            str(row.get("bundle")),
            _place(row),
            *(str(row.get(key) or units.DASH) for key in ("broker", "service_url")),
            *([str(row.get("web_url") or units.DASH)] if layout.wide else []),
        )
    return made


def _topics(rows: Sequence[Row]) -> bool:
    return any(row.get("topic") for row in rows)


def _place(row: Row, gap: str = ", ") -> Text:
    state = str(row.get("state"))
    going = f" (going to {row['preallocated_to']})" if row.get("preallocated_to") else ""
    text = Text(state, style=_GOOD if state == "owned" else _WARN).append(going, style=_DIM)
    return text.append(f"{gap}{entry_words(row['channel'])}", style=_DIM) if row.get("channel") else text


def entry_words(entry: Row) -> str:
    """A bundle's entry in the ownership channel, in one line."""
    way = "" if entry.get("state") == "Owned" else f" {entry.get('source')} → {entry.get('destination')}"
    return (
        f"{entry.get('state')}{way}, version {entry.get('version')}, {units.moment(entry.get('since_ms'), short=True)}"
    )


def _hash(value: Any) -> str:
    return f"0x{value:08x}" if isinstance(value, int) else str(value or "")
