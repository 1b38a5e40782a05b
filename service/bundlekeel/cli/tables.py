"""Tables of status, brokers, bundles and bundle locations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bundlekeel.cli import output, units
from bundlekeel.cli.output import TableLayout, none_of, table
from bundlekeel.leader.gate.responses import PauseView
from bundlekeel.model.codes import Code, explain
from bundlekeel.model.names import is_system_bundle
from bundlekeel.model.response_fields import TrafficView
from bundlekeel.model.text_format import numbered
from bundlekeel.pulsar.channel.responses import UnitView
from bundlekeel.requests.operator_responses import OperationsView
from bundlekeel.requests.where_responses import Place
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

# Below this score of the busiest broker, a ratio of loads has no meaning.
_IDLE = 0.01
_NAME_WIDTH = 38
_ABOVE = "latest, short and long term: msg/s above B/s, in and out together; + preallocated, with its age; * overridden"

_GOOD, _WARN, _BAD, _DIM = "green", "yellow", "red", "dim"
_REQUESTED = {"drain": "drained", "cordon": "cordoned", "warm": "warmed"}
_CODE_STYLES: dict[str, str] = {
    Code.OVERLOADED: _BAD,
    Code.UNDERLOADED: _WARN,
    Code.HIT_COUNT: _WARN,
    Code.BALANCED: _GOOD,
}


def coded(code: str | None) -> Text:
    """Return a code in its color."""
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
    """Responses that `status` shows. `checks`: lines of the probe `readyz`."""

    state: State
    ready: bool
    checks: list[str]
    brokers: list[BrokerView]
    operations: OperationsView
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
        grid.add_row("intents", Text(f"of an earlier leader, open: {', '.join(state.intents)}", style=_WARN))
    grid.add_row("ready", _ready(answer))
    return grid


def _requests(operations: OperationsView) -> str:
    """Return the number of requests by kind, without a pause of everything, which has its own line."""
    counts = {
        "drain": len(operations.drains),
        "cordon": len(operations.cordons),
        "warm": len(operations.warms),
        "pin": len(operations.pins),
        "exclusion": len(operations.exclusions),
        "paused scope": sum(1 for row in operations.pauses if row.scope),
    }
    return ", ".join(numbered(count, kind) for kind, count in counts.items() if count)


def mode(state: State) -> Text:
    """Return the mode, its ceiling, and whether plans are executed."""
    text = Text(f"{state.mode} (ceiling {state.mode_ceiling})")
    if state.acting:
        return text.append(", acting", style=_GOOD)
    code, detail = state.acting_obstacle, state.acting_detail
    if state.role != "leader" and state.leader and state.cycle:
        # A follower never acts, so show whether the leader does.
        code, detail = state.cycle.obstacle, ""
        if not code and state.mode == "act":
            return text.append(f", acting: yes, by {state.leader.id}", style=_GOOD)
    if code and _is_over(code, state):
        return text.append(f", decided again in the next cycle (the last one had {code})", style=_DIM)
    meaning, separator, remedy = explain(code or "").partition("; ")
    reason = f" ({code}: {meaning}{f': {detail}' if detail else ''}{separator}{remedy})" if code else ""
    return text.append(f", not acting{reason}", style=_DIM)


def _is_over(code: str, state: State) -> bool:
    """Return whether an operator has removed the obstacle of the last cycle since then."""
    last = state.takeover
    start_ms = last.wall_ms if last is not None and last.active else 0
    return (
        (code == Code.PAUSED and state.paused is None)
        # A follower's own mode is not the leader's.
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
        return "none: the brokers shed by their own settings" if state.takeover_known else "not known yet"
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
        return _brokers_stacked(rows) if layout.stacked else _brokers_wide(rows)
    return layout.fitting(lambda form: _brokers(rows, form))


def _brokers(rows: Sequence[BrokerView], layout: TableLayout) -> Table:
    listing = table(
        *("broker", *([] if layout.stacked else ["state"]), ">score", ">latest", ">short", ">long", ">bundles"),
        *("coming", ">seen", *([] if layout.stacked else ["verdict"])),
        caption="latest, short (10 samples) and long term (1,000): B/s, in and out; coming: bundles in transit; "
        "seen: age of the report; live: age of the counters, which only the leader reads (of extensible brokers only "
        "in mode act while their own shedding is off, or from Prometheus)",
    )
    for row in rows:
        cells, verdict = _broker_cells(row, stacked=layout.stacked), coded(row.verdict.code if row.verdict else None)
        if layout.stacked and verdict.plain:
            cells[0].append("\n  ").append_text(verdict)
        listing.add_row(
            *cells,
            units.share(row.score_ratio),
            *(_throughput(row), _throughput(row.short), _throughput(row.long)),
            units.count(row.bundles),
            _preallocated(row, wide=False),
            _report_age(row),
            *([] if layout.stacked else [verdict]),
        )
    return listing


def _report_age(row: BrokerView) -> str:
    """Return the age of a broker's values, and `live` if they come from its counters."""
    return units.age(row.report_age_seconds) + (" live" if row.measured_seconds else "")


def _broker_cells(row: BrokerView, *, stacked: bool) -> list[Text]:
    """Return name and state, in two cells or stacked; the stacked form omits the state `ok`."""
    name, state = Text(row.broker), _broker_state(row)
    if not stacked:
        return [name, state]
    return [name] if state.plain == "ok" else [name.append("\n  ").append_text(state)]


def _brokers_stacked(rows: Sequence[BrokerView]) -> Table:
    listing = table("broker", ">score", ">latest", ">short", ">long", lines=True, caption=_ABOVE)
    listing.columns[0].min_width = _NAME_WIDTH
    for row in rows:
        (name,) = _broker_cells(row, stacked=True)
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
        listing.add_row(
            name,
            f"{units.share(row.score_ratio)}\nreported\n{units.share(row.reported_score_ratio)}",
            *(_rate_and_throughput(row), _rate_and_throughput(row.short), _rate_and_throughput(row.long)),
        )
    return listing


def _brokers_wide(rows: Sequence[BrokerView]) -> Table:
    listing = table(
        *("broker", "state", ">score", ">reported", "resources", "CPU costs", ">latest msg/s", ">B/s"),
        *(">short msg/s", ">B/s", ">long msg/s", ">B/s", ">bundles", ">topics", ">seen"),
        *("preallocated", "verdict", "version"),
    )
    for row in rows:
        verdict = row.verdict
        listing.add_row(
            *_broker_cells(row, stacked=False),
            *(units.share(row.score_ratio), units.share(row.reported_score_ratio)),
            _resources(row.resources).replace("\n", ", "),
            ", ".join(_cpu_costs(row.cpu_costs)),
            *(_rate(row), _throughput(row), _rate(row.short), _throughput(row.short)),
            *(_rate(row.long), _throughput(row.long)),
            *(units.count(row.bundles), units.count(row.topics)),
            _report_age(row),
            _preallocated(row, wide=True),
            coded(verdict.code).append(f" {verdict.sentence}", style=_DIM) if verdict else "",
            row.version,
        )
    return listing


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
    """Return the usage of each limited resource in percent; `*` marks an overridden capacity."""
    return "\n".join(
        f"{name} {item.percent:.0f} %{'*' if item.overridden else ''}"
        for name, item in (resources or {}).items()
        if item.limit > 0
    )


def _cpu_costs(costs: CpuCostsView | None) -> list[str]:
    """Return the base, the cost of a message and of a megabyte (95 % intervals), and the capacity."""
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
    """Return a long bundle name in two lines, broken before its range."""
    namespace, _, span = bundle.rpartition("/")
    return bundle if len(bundle) <= longest else f"{namespace}/\n{span}"


def bundles(rows: Sequence[BundleView], layout: TableLayout) -> RenderableType:
    """Render one row per bundle. Traffic is the sum of in and out, with the number of samples per average."""
    if not rows:
        return none_of("bundles", "no load report contains a matching one; `bundlekeel where` finds idle ones")
    if layout.wide:
        return _bundles_stacked(rows) if layout.stacked else _bundles_wide(rows)
    return layout.fitting(lambda form: _bundles(rows, form))


def _bundles(rows: Sequence[BundleView], layout: TableLayout) -> Table:
    listing = table(
        *("bundle", *([] if layout.stacked else ["broker"]), ">topics", ">latest", ">short (n)"),
        *(*([] if layout.narrow else [">long (n)"]), ">score", "may move"),
        caption="latest, short and long term (-o wide): B/s, in and out together; n: samples",
    )
    for row in rows:
        listing.add_row(
            *_bundle_cells(row, stacked=layout.stacked, longest=34 if layout.narrow else 40),
            str(row.topics),
            _throughput(row.latest),
            f"{_throughput(row.short)} ({row.short_samples})",
            *([] if layout.narrow else [f"{_throughput(row.long)} ({row.long_samples})"]),
            units.share(row.score_ratio),
            _may_move(row),
        )
    return listing


def _bundle_cells(row: BundleView, *, stacked: bool, longest: int = 40) -> list[Text]:
    """Return bundle and broker, in two cells or stacked; the destination of a move follows the broker."""
    broker = Text(row.broker or "unowned", style=_DIM if stacked else "")
    if row.preallocated_to:
        gap, age = "\n  " if stacked else " ", units.age(row.preallocated_age_seconds)
        broker.append(f"{gap}→ {row.preallocated_to} {age}", style=_WARN)
    if not stacked:
        return [Text(row.bundle), broker]
    return [Text(split_name(row.bundle, longest=longest)).append("\n  ").append_text(broker)]


def _bundles_stacked(rows: Sequence[BundleView]) -> Table:
    listing = table("bundle", ">latest", ">short", ">long", ">score", lines=True, caption=_ABOVE)
    listing.columns[0].min_width = _NAME_WIDTH
    for row in rows:
        (name,) = _bundle_cells(row, stacked=True, longest=_NAME_WIDTH)
        name.append(f"\n  {row.topics} topics, {row.producers} prod., {row.consumers} cons.", style=_DIM)
        name.append("\n  may move: ").append_text(_may_move(row))
        if row.last_move_ms:
            name.append(f", last {units.moment(row.last_move_ms, short=True)}", style=_DIM)
        listing.add_row(
            name,
            _rate_and_throughput(row.latest),
            f"{_rate_and_throughput(row.short)}\nn={row.short_samples}",
            f"{_rate_and_throughput(row.long)}\nn={row.long_samples}",
            units.share(row.score_ratio),
        )
    return listing


def _bundles_wide(rows: Sequence[BundleView]) -> Table:
    listing = table(
        *("bundle", "broker", ">topics", ">prod.", ">cons.", ">latest msg/s", ">B/s", ">short msg/s", ">B/s", ">n"),
        *(">long msg/s", ">B/s", ">n", ">score", "may move", "last move"),
    )
    for row in rows:
        listing.add_row(
            *_bundle_cells(row, stacked=False),
            *(str(row.topics), str(row.producers), str(row.consumers)),
            *(_rate(row.latest), _throughput(row.latest)),
            *(_rate(row.short), _throughput(row.short), str(row.short_samples)),
            *(_rate(row.long), _throughput(row.long), str(row.long_samples)),
            units.share(row.score_ratio),
            _may_move(row),
            units.moment(row.last_move_ms) if row.last_move_ms else "",
        )
    return listing


def _may_move(row: BundleView) -> Text:
    return Text("yes", style=_GOOD) if row.may_move else Text(row.code or "no", style=_DIM)


# --- places --------------------------------------------------------------------------------------------------


def where(rows: Sequence[Place], layout: TableLayout) -> RenderableType:
    """Render one row per topic, partition or bundle. `unowned` is a valid state: do not assign the bundle because of
    it."""
    topics = any(row.topic for row in rows)
    if layout.stacked:
        # Names must not be broken, so that they can be copied: the other columns are below them.
        blocks = []
        for row in rows:
            name = f"{row.topic}\n  {row.bundle}, hash {row.hash}" if row.topic else row.bundle
            lines = [name, row.broker, row.service_url, row.web_url if layout.wide else ""]
            blocks.append(Text("\n  ").join([*map(Text, filter(None, lines)), _place(row, "\n  ")]))
        return Group(*blocks)
    first = ["topic", "hash"] if topics else []
    listener = next((f" ({row.listener})" for row in rows if row.listener), "")
    listing = table(
        *first, "bundle", "state", "broker", f"service URL{listener}", *(["web URL"] if layout.wide else [])
    )
    for row in rows:
        listing.add_row(
            *([row.topic or "", row.hash or ""] if first else []),
            row.bundle,
            _place(row),
            *(row.broker or units.DASH, row.service_url or units.DASH),
            *([row.web_url or units.DASH] if layout.wide else []),
        )
    return listing


def _place(row: Place, gap: str = ", ") -> Text:
    going = f" (going to {row.preallocated_to})" if row.preallocated_to else ""
    text = Text(row.state, style=_GOOD if row.state == "owned" else _WARN).append(going, style=_DIM)
    if row.state == "unowned" and is_system_bundle(row.bundle):
        text.append(" (a system bundle: its owner may not be recorded, see `bundlekeel why`)", style=_DIM)
    if row.topic_exists is False:
        text.append(f"{gap}the topic does not exist yet", style=_WARN)
    return text.append(f"{gap}{entry_words(row.channel)}", style=_DIM) if row.channel else text


def entry_words(entry: UnitView) -> str:
    """Return a bundle's entry in the ownership channel as one line."""
    way = "" if entry.state == "Owned" else f" {entry.source} → {entry.destination}"
    return f"{entry.state}{way}, version {entry.version}, {units.moment(entry.since_ms, short=True)}"
