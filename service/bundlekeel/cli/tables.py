"""Tables of status, brokers, bundles and bundle locations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bundlekeel.cli import output, units
from bundlekeel.cli.output import Column, TableLayout, listing, none_of, table
from bundlekeel.leader.gate.responses import PauseView
from bundlekeel.model.codes import Code, explain
from bundlekeel.model.names import is_system_bundle
from bundlekeel.model.response_fields import Json, TrafficView
from bundlekeel.model.text_format import numbered
from bundlekeel.pulsar.channel.responses import UnitView
from bundlekeel.views.picture import (
    BrokerView,
    BundleView,
    CpuCostsView,
    CycleView,
    ImbalanceView,
    ResourceView,
    State,
    TotalsView,
)

if TYPE_CHECKING:
    from bundlekeel.requests.where import Place

# If the most loaded broker has a lower score than this, a ratio of loads has no meaning.
_IDLE = 0.01
_NAME_WIDTH = 38
_ABOVE = (
    "latest, short and long term: msg/s above B/s, in and out together; +: bundle in transit, with age; "
    "*: limit from the settings"
)

_BROKERS_LEGEND = (
    "latest, short (10 samples) and long term (1,000): B/s, in and out; coming: bundles in transit; "
    "seen: age of the report; live: age of the counters, which only the leader reads (of extensible brokers only "
    "in mode act while their own shedding is off, or from Prometheus)"
)
_BUNDLES_LEGEND = "latest, short and long term (-o wide): B/s, in and out together; n: samples"

_GOOD, _WARN, _BAD, _DIM = "green", "yellow", "red", "dim"
_REQUESTED = {"drain": "drained", "cordon": "cordoned", "warm": "warmed"}
_CODE_STYLES: dict[str, str] = {
    Code.OVERLOADED: _BAD,
    Code.UNDERLOADED: _WARN,
    Code.HIT_COUNT: _WARN,
    Code.BALANCED: _GOOD,
}


def coded(code: str | None) -> Text:
    """Return a reason code, such as `Overloaded`, in its color."""
    return Text(code or "", style=_CODE_STYLES.get(code or "", ""))


def _rate_and_throughput(row: BrokerView | TotalsView | TrafficView | None) -> str:
    return f"{_rate(row)}\n{_throughput(row)}"


def _rate(row: BrokerView | TotalsView | TrafficView | None) -> str:
    if row is None or isinstance(row, TotalsView):
        return units.amount(row.msg_rate if row else None)
    return units.amount(_sum(row.msg_rate_in, row.msg_rate_out))


def _throughput(row: BrokerView | TotalsView | TrafficView | None) -> str:
    if row is None or isinstance(row, TotalsView):
        return units.amount(row.throughput if row else None)
    return units.amount(_sum(row.throughput_in, row.throughput_out))


def _sum(*values: float | None) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


# --- status ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Responses that the command `status` shows. `checks`: lines of the health probe `readyz`.

    `operations` is not decoded, because the import of its class takes longer than the command.
    """

    state: State
    ready: bool
    checks: list[str]
    brokers: list[BrokerView]
    operations: Json
    bundles: list[BundleView] = field(default_factory=list)


def status(answer: Status, layout: TableLayout) -> RenderableType:
    """Render leader, mode, last cycle and imbalance, then the brokers."""
    parts: list[RenderableType] = [_summary(answer.state, answer), Text(), brokers(answer.brokers, layout)]
    if layout.wide:
        parts += [Text(), bundles(answer.bundles, layout)]
    return Group(*parts)


def _summary(state: State, answer: Status) -> Table:
    grid = output.grid("bold")
    leader = state.leader
    identity = f"{state.member} ({state.role}), version {state.version}, up {units.age(state.uptime_seconds)}"
    grid.add_row("sidecar", identity)
    other_sidecars = [f"{item.id} ({item.version})" for item in state.members if item.id != state.member]
    grid.add_row("others", ", ".join(other_sidecars) or "none")
    grid.add_row("leader", f"{leader.id}, epoch {leader.epoch}" if leader else Text("none", style=_BAD))
    manager = "not known yet" if state.cluster_mode == "unknown" else state.cluster_mode
    grid.add_row("cluster", f"{state.cluster}, load manager {manager}")
    grid.add_row("mode", mode(state))
    grid.add_row("strategy", f"{state.strategy}, placement {state.placement}")
    if state.paused:
        grid.add_row("paused", Text(_paused(state.paused), style=_WARN))
    if requests := _requests(answer.operations):
        grid.add_row("requests", Text(f"{requests}; see `bundlekeel operations`", style=_WARN))
    grid.add_row("takeover", _takeover(state))
    if state.settling:
        grid.add_row("settling", Text(state.settling.sentence, style=_WARN))
    grid.add_row("last cycle", _cycle(state.cycle))
    grid.add_row("imbalance", _imbalance(state.imbalance, answer.brokers))
    grid.add_row("ledger", _ledger(state))
    if state.intents:
        grid.add_row("intents", Text(f"unfinished, of an earlier leader: {', '.join(state.intents)}", style=_WARN))
    grid.add_row("ready", _ready(answer))
    return grid


def _requests(operations: Json) -> str:
    """Return the number of active operators' requests by kind, without a pause of everything: it has its own line."""
    counts = {kind: len(operations.get(f"{kind}s", ())) for kind in ("drain", "cordon", "warm", "pin", "exclusion")}
    counts["paused scope"] = sum(1 for row in operations.get("pauses", ()) if row["scope"])
    return ", ".join(numbered(count, kind) for kind, count in counts.items() if count)


def mode(state: State) -> Text:
    """Return the mode, its ceiling (the mode of the settings file), and whether plans are executed."""
    text = Text(f"{state.mode} (ceiling {state.mode_ceiling})")
    if state.acting:
        return text.append(", acting", style=_GOOD)
    code, detail = state.acting_obstacle, state.acting_detail
    if state.role != "leader" and state.leader and state.cycle:
        # A follower never acts, so show whether the leader acts.
        code, detail = state.cycle.obstacle, ""
        if not code and state.mode == "act":
            return text.append(f", acting: yes, by {state.leader.id}", style=_GOOD)
    if code and _is_over(code, state):
        return text.append(f", acting is decided again in the next cycle (the last cycle had {code})", style=_DIM)
    meaning, separator, remedy = explain(code or "").partition("; ")
    reason = f" ({code}: {meaning}{f': {detail}' if detail else ''}{separator}{remedy})" if code else ""
    return text.append(f", not acting{reason}", style=_DIM)


def _is_over(code: str, state: State) -> bool:
    """Return whether an operator has removed the last cycle's obstacle since that cycle."""
    last = state.takeover
    start_ms = last.wall_ms if last is not None and last.active else 0
    return (
        (code == Code.PAUSED and state.paused is None)
        # Only the leader's mode counts: a follower can have another one.
        or (code in (Code.OBSERVE_ONLY, Code.RECOMMEND_ONLY) and state.mode == "act" and state.role == "leader")
        or (
            code in (Code.BROKERS_SHED_THEMSELVES, Code.PUT_ASIDE)
            and state.cycle is not None
            and start_ms > state.cycle.wall_ms
        )
    )


def _paused(pause: PauseView) -> str:
    until = "until resumed" if pause.until_ms is None else f"until {units.moment(pause.until_ms)}"
    return f"{until}, by {pause.by}: {pause.reason}"


def _takeover(state: State) -> str | Text:
    """Return whether the brokers' own shedding is off, and who turned it off."""
    last = state.takeover
    if last is None:
        return "none: the brokers shed load themselves" if state.takeover_known else "not known yet"
    only = f"only {', '.join(last.namespaces)}, " if last.namespaces else ""
    if last.ended:
        ended = f"{only}ended {units.moment(last.ended.wall_ms)} by {last.ended.by}: {last.ended.reason}"
        return Text(ended, style=_BAD if last.ended.deadman else "")
    return f"{only}active since {units.moment(last.wall_ms)}, by {last.by}: {last.reason}"


def _cycle(cycle: CycleView | None) -> str:
    if not cycle:
        return "none yet"
    ago = units.age(max(0.0, time.time() - cycle.wall_ms / 1000)) if cycle.wall_ms else units.DASH
    return f"{cycle.id}, {ago} ago: {cycle.sentence}"


def _imbalance(values: ImbalanceView, brokers: Sequence[BrokerView]) -> str:
    score, size = units.multiple(values.score_max_mean), units.multiple(values.throughput_max_mean)
    scores = [row.score_ratio for row in brokers if row.score_ratio is not None]
    if not scores:
        return "not known yet"
    if max(scores) < _IDLE:
        return f"none: no broker has load, the most loaded is at {units.share(max(scores))}"
    return f"max/mean {score} by score, {size} by throughput (1.00 is even)"


def _ledger(state: State) -> str:
    if state.cycle is None:
        return "not known yet"
    ledger, unsettled = state.ledger, ", ".join(state.ledger.unsettled)
    moves = f"{numbered(ledger.entries, 'move')} not in the brokers' loads yet"
    return f"{moves}{f', unsettled: {unsettled}' if unsettled else ''}"


def _ready(answer: Status) -> Text:
    if answer.ready:
        return Text("yes", style=_GOOD)
    lines = [line.removeprefix("[-]") for line in answer.checks if line.startswith("[-]")]
    return Text("no: " + "; ".join(lines), style=_BAD)


# --- brokers and bundles -------------------------------------------------------------------------------------


def brokers(rows: Sequence[BrokerView], layout: TableLayout) -> RenderableType:
    """Render one row per broker. Traffic is the sum of in and out: latest report, short-term and long-term average."""
    if not rows:
        return none_of("brokers", "no broker has reported yet; `bundlekeel doctor` tests each connection")
    if layout.wide:
        return _brokers_stacked(rows) if layout.stacked else _brokers(rows, layout)
    return layout.fitting(lambda form: _brokers(rows, form))


def _brokers(rows: Sequence[BrokerView], layout: TableLayout) -> Table:
    wide, below = layout.wide, 0 if layout.stacked else None

    def state(row: BrokerView) -> Text:
        text = _broker_state(row)
        return Text() if layout.stacked and text.plain == "ok" else text

    def verdict(row: BrokerView) -> Text:
        if row.verdict is None:
            return Text()
        text = coded(row.verdict.code)
        return text.append(f" {row.verdict.sentence}", style=_DIM) if wide else text

    return listing(
        rows,
        [
            Column("broker", lambda row: row.broker),
            Column("state", state, below),
            Column(">score", lambda row: units.share(row.score_ratio)),
            Column(">reported", lambda row: units.share(row.reported_score_ratio), shown=wide),
            Column("resources", lambda row: _resources(row.resources).replace("\n", ", "), shown=wide),
            Column("CPU costs", lambda row: ", ".join(_cpu_costs(row.cpu_costs)), shown=wide),
            Column(">latest msg/s", _rate, shown=wide),
            Column(">B/s" if wide else ">latest", _throughput),
            Column(">short msg/s", lambda row: _rate(row.short), shown=wide),
            Column(">B/s" if wide else ">short", lambda row: _throughput(row.short)),
            Column(">long msg/s", lambda row: _rate(row.long), shown=wide),
            Column(">B/s" if wide else ">long", lambda row: _throughput(row.long)),
            Column(">bundles", lambda row: units.count(row.bundles)),
            Column(">topics", lambda row: units.count(row.topics), shown=wide),
            Column("coming", lambda row: _preallocated(row, wide=False), shown=not wide),
            Column(">seen", _report_age),
            Column("preallocated", lambda row: _preallocated(row, wide=True), shown=wide),
            Column("verdict", verdict, below),
            Column("version", lambda row: row.version, shown=wide),
        ],
        caption="" if wide else _BROKERS_LEGEND,
    )


def _report_age(row: BrokerView) -> str:
    """Return the age of a broker's load values, and `live` if they come from its Prometheus counters."""
    return units.age(row.report_age_seconds) + (" live" if row.measured_seconds else "")


def _brokers_stacked(rows: Sequence[BrokerView]) -> Table:
    drawn = table("broker", ">score", ">latest", ">short", ">long", lines=True, caption=_ABOVE)
    drawn.columns[0].min_width = _NAME_WIDTH
    for row in rows:
        name, state = Text(row.broker), _broker_state(row)
        if state.plain != "ok":
            name.append("\n  ").append_text(state)
        counts = f"{units.count(row.bundles)} bundles, {units.count(row.topics)} topics, {row.version}"
        for line in (
            counts.rstrip(", "),
            f"seen: {_report_age(row)}",
            *_resources(row.resources).splitlines(),
            *_cpu_costs(row.cpu_costs),
        ):
            name.append(f"\n  {line}", style=_DIM)
        if row.verdict:
            name.append("\n  ").append_text(coded(row.verdict.code)).append(f": {row.verdict.sentence}", style=_DIM)
        for item in row.preallocated or []:
            bundle = split_name(item.bundle, longest=_NAME_WIDTH - 4).replace("\n", "\n    ")
            name.append(f"\n  + {bundle} {units.age(item.age_seconds)}", style=_WARN)
        drawn.add_row(
            name,
            f"{units.share(row.score_ratio)}\nreported\n{units.share(row.reported_score_ratio)}",
            *(_rate_and_throughput(row), _rate_and_throughput(row.short), _rate_and_throughput(row.long)),
        )
    return drawn


def _broker_state(row: BrokerView) -> Text:
    if not row.alive:
        return Text("gone", style=_BAD)
    text = Text(row.state, style=_GOOD if row.state == "ok" else _BAD)
    if row.requested:
        text.append(f" {_REQUESTED.get(row.requested, row.requested)}", style=_WARN)
    if row.sheds_itself:
        text.append(" sheds by itself", style=_WARN)
    return text.append(" unsettled", style=_DIM) if row.unsettled else text


def _resources(resources: Mapping[str, ResourceView] | None) -> str:
    """Return a broker's usage of each resource with a limit, in percent; `*` marks a limit from the settings."""
    return "\n".join(
        f"{name} {item.percent:.0f} %{'*' if item.overridden else ''}"
        for name, item in (resources or {}).items()
        if item.limit > 0
    )


def _cpu_costs(costs: CpuCostsView | None) -> list[str]:
    """Return lines with the estimated CPU costs of a broker.

    These are its base load, the costs of a message and of a megabyte with 95 % intervals, and the rate of messages
    that would use the whole CPU.
    """
    if costs is None:
        return []
    message, size = (
        [1e6 * value * unit for value in (middle, low, high)]
        for unit, middle, low, high in (
            (1.0, costs.message_seconds, costs.message_seconds_low, costs.message_seconds_high),
            (1e6, costs.byte_seconds, costs.byte_seconds_low, costs.byte_seconds_high),
        )
    )
    lines = [
        f"base {units.share(costs.base_ratio)}",
        *(f"{v[0]:.3g} us/{name} ({v[1]:.3g} to {v[2]:.3g})" for name, v in (("message", message), ("MB", size))),
    ]
    return lines if costs.capacity_msg_rate is None else [*lines, f"CPU full at {costs.capacity_msg_rate:.3g} msg/s"]


def _preallocated(row: BrokerView, *, wide: bool) -> str:
    items = row.preallocated or []
    if not items:
        return ""
    if wide:
        return "\n".join(f"{item.bundle} {units.age(item.age_seconds)}" for item in items)
    return f"{len(items)}, {units.age(max(item.age_seconds for item in items))}"


def split_name(bundle: str, *, longest: int = 40) -> str:
    """Return a long bundle name in two lines, broken before its hash range."""
    namespace, _, span = bundle.rpartition("/")
    return bundle if len(bundle) <= longest else f"{namespace}/\n{span}"


def name_for(bundle: str, layout: TableLayout) -> str:
    """Return the name of a bundle, in two lines if cells are stacked and it is long."""
    return split_name(bundle) if layout.stacked else bundle


def bundles(rows: Sequence[BundleView], layout: TableLayout) -> RenderableType:
    """Render one row per bundle. Traffic is the sum of in and out, with the number of samples per average."""
    if not rows:
        return none_of("bundles", "no load report contains a matching bundle; `bundlekeel where` finds idle bundles")
    return _bundles(rows, layout) if layout.wide else layout.fitting(lambda form: _bundles(rows, form))


def _bundles(rows: Sequence[BundleView], layout: TableLayout) -> Table:
    sheet = layout.wide and layout.stacked
    caption = _ABOVE if sheet else "" if layout.wide else _BUNDLES_LEGEND
    drawn = listing(rows, _bundle_columns(layout), caption=caption, lines=sheet)
    if sheet:
        drawn.columns[0].min_width = _NAME_WIDTH
    return drawn


def _bundle_columns(layout: TableLayout) -> list[Column[BundleView]]:
    wide, stacked = layout.wide, layout.stacked
    sheet = wide and stacked
    below, above = 0 if stacked else None, -1 if sheet else None
    apart = wide and not stacked
    longest = _NAME_WIDTH if wide else 34 if layout.narrow else 40

    def broker(row: BundleView) -> Text:
        text = Text(row.broker or "unowned", style=_DIM if stacked else "")
        if row.preallocated_to:
            gap, age = "\n  " if stacked else " ", units.age(row.preallocated_age_seconds)
            text.append(f"{gap}→ {row.preallocated_to} {age}", style=_WARN)
        return text

    def dim(pattern: str, value: object) -> str | Text:
        return Text(pattern.format(value), style=_DIM) if sheet else str(value)

    def last_move(row: BundleView) -> str | Text:
        return dim(", last {}", units.moment(row.last_move_ms, short=stacked)) if row.last_move_ms else ""

    with_long = wide or not layout.narrow
    beside, samples = None if apart else -1, "\nn={}" if wide else " ({})"
    return [
        Column("bundle", lambda row: split_name(row.bundle, longest=longest) if stacked else row.bundle),
        Column("broker", broker, below),
        Column(">topics", lambda row: dim("{} topics", row.topics), 0 if sheet else None),
        Column(">prod.", lambda row: dim(", {} prod.", row.producers), below, "{}", shown=wide),
        Column(">cons.", lambda row: dim(", {} cons.", row.consumers), below, "{}", shown=wide),
        Column(">latest msg/s" if apart else ">latest", lambda row: _rate(row.latest), shown=wide),
        Column(">B/s" if wide else ">latest", lambda row: _throughput(row.latest), above, "\n{}"),
        Column(">short msg/s" if apart else ">short", lambda row: _rate(row.short), shown=wide),
        Column(">B/s" if wide else ">short (n)", lambda row: _throughput(row.short), above, "\n{}"),
        Column(">n", lambda row: str(row.short_samples), beside, samples),
        Column(">long msg/s" if apart else ">long", lambda row: _rate(row.long), shown=wide),
        Column(">B/s" if wide else ">long (n)", lambda row: _throughput(row.long), above, "\n{}", shown=with_long),
        Column(">n", lambda row: str(row.long_samples), beside, samples, with_long),
        Column(">score", lambda row: units.share(row.score_ratio)),
        Column("may move", _may_move, 0 if sheet else None, "\n  may move: {}"),
        Column("last move", last_move, below, "{}", shown=wide),
    ]


def _may_move(row: BundleView) -> Text:
    return Text("yes", style=_GOOD) if row.may_move else Text(row.code or "no", style=_DIM)


# --- places --------------------------------------------------------------------------------------------------


def where(rows: Sequence[Place], layout: TableLayout) -> RenderableType:
    """Render one row per topic, partition or bundle, with its owner. `unowned` is a valid state, not an error."""
    topics = any(row.topic for row in rows)
    if layout.stacked:
        # Do not break names, so that they can be copied: print the other columns below them.
        blocks = []
        for row in rows:
            name = f"{row.topic}\n  {row.bundle}, hash {row.hash}" if row.topic else row.bundle
            lines = [name, row.broker, row.service_url, row.web_url if layout.wide else ""]
            blocks.append(Text("\n  ").join([*map(Text, filter(None, lines)), _place(row, "\n  ")]))
        return Group(*blocks)
    listener = next((f" ({row.listener})" for row in rows if row.listener), "")
    return listing(
        rows,
        [
            Column("topic", lambda row: row.topic or "", shown=topics),
            Column("hash", lambda row: row.hash or "", shown=topics),
            Column("bundle", lambda row: row.bundle),
            Column("state", _place),
            Column("broker", lambda row: row.broker or units.DASH),
            Column(f"service URL{listener}", lambda row: row.service_url or units.DASH),
            Column("web URL", lambda row: row.web_url or units.DASH, shown=layout.wide),
        ],
    )


def _place(row: Place, gap: str = ", ") -> Text:
    going = f" (going to {row.preallocated_to})" if row.preallocated_to else ""
    text = Text(row.state, style=_GOOD if row.state == "owned" else _WARN).append(going, style=_DIM)
    if row.state == "unowned" and is_system_bundle(row.bundle):
        text.append(" (a system bundle: Pulsar does not always record its owner, see `bundlekeel why`)", style=_DIM)
    if row.topic_exists is False:
        text.append(f"{gap}the topic does not exist yet", style=_WARN)
    return text.append(f"{gap}{entry_words(row.channel)}", style=_DIM) if row.channel else text


def entry_words(entry: UnitView) -> str:
    """Return a bundle's entry in the ownership channel as one line."""
    way = "" if entry.state == "Owned" else f" {entry.source} → {entry.destination}"
    return f"{entry.state}{way}, version {entry.version}, {units.moment(entry.since_ms, short=True)}"
