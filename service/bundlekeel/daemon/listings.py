"""Brokers, bundles and entries of the ownership channel as rows for people, and the cluster as it is drawn."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from bundlekeel.core.channel.states import ServiceUnit, UnitState
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import ConfigError, NotFound
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.core.model.names import is_namespace, namespace_of
from bundlekeel.core.model.plan import Verdict
from bundlekeel.core.model.snapshot import BundleTable, Snapshot
from bundlekeel.core.model.text_format import unknown_broker
from bundlekeel.core.planning.costs import BrokerCosts, broker_costs
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.ledger import preallocated
from bundlekeel.daemon.answers.channel import UnitView
from bundlekeel.daemon.answers.picture import (
    BrokerView,
    BundleView,
    ComingView,
    CpuCostsView,
    CycleView,
    ImbalanceView,
    Marks,
    OverviewBroker,
    OverviewBundle,
    OverviewNamespace,
    OverviewView,
    ResourceView,
    TotalsView,
)
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.cycle.planner import traffic_view
from bundlekeel.daemon.gate.in_force import LeftAlone
from bundlekeel.daemon.published import ClusterState
from bundlekeel.daemon.sources.ownership import serving
from bundlekeel.daemon.state.leadership import Leadership
from bundlekeel.daemon.state.shared_state import SharedState
from bundlekeel.ports import ChannelView

# Bundles of one overview.
MOST_DRAWN: Final = 25_000


def imbalances(cycle: Cycle) -> ImbalanceView:
    """max/mean of throughput and score, as the last plan saw it."""
    plan = cycle.report.plan if cycle.report else None
    return ImbalanceView(
        throughput_max_mean=plan.imbalance("throughput_before") if plan else 0.0,
        score_max_mean=plan.imbalance("score_before") if plan else 0.0,
    )


def brokers(cluster: ClusterState, now_ms: int) -> list[BrokerView]:
    """One row a registered broker, by id, with what people asked of it; those without a usable report say why."""
    snapshot, picture, desired = cluster.snapshot, cluster.picture, cluster.desired
    if snapshot is None or picture is None:
        return []
    plan = cluster.report.plan if cluster.report else None
    verdicts = {item.broker: item for item in plan.brokers} if plan else {}
    rows = _brokers(cluster, snapshot, verdicts, now_ms)
    for item in snapshot.excluded:
        endpoint = picture.endpoints.get(item.broker_id)
        rows.append(
            BrokerView(
                broker=item.broker_id,
                state=item.code,
                detail=item.detail,
                version=endpoint.version if endpoint else "",
                load_manager=endpoint.load_manager if endpoint else "",
            )
        )
    asked = {"warm": desired.warms, "cordon": desired.cordons, "drain": desired.drains}
    requested = {broker: kind for kind, named in asked.items() for broker in named}
    closed = plan.closed if plan else ()
    rows = [
        replace(
            row,
            requested=requested.get(row.broker, ""),
            shares_load=row.state == "ok" and row.broker not in closed,
        )
        for row in rows
    ]
    return sorted(rows, key=lambda row: row.broker)


def _brokers(
    cluster: ClusterState, snapshot: Snapshot, verdicts: Mapping[str, Verdict], now_ms: int
) -> list[BrokerView]:
    ledger, table, draft = cluster.cycle_state.ledger, snapshot.brokers, cluster.draft
    on_the_way, unsettled = preallocated(ledger, table.ids, now_ms), ledger.unsettled()
    percent, costs = table.percent(), broker_costs(draft.costs, table)
    found = []
    for row, broker in enumerate(table.ids):
        rows, traffic = snapshot.bundles.rows_of(row), table.traffic[row]
        found.append(
            BrokerView(
                broker=broker,
                score_ratio=float(draft.score[row]),
                reported_score_ratio=float(draft.reported[row]),
                resources=_resources(snapshot, percent, row),
                cpu_costs=_cpu_costs(costs, row),
                msg_rate_in=float(traffic[RATE_IN]),
                msg_rate_out=float(traffic[RATE_OUT]),
                throughput_in=float(traffic[THROUGHPUT_IN]),
                throughput_out=float(traffic[THROUGHPUT_OUT]),
                predicted_throughput=float(draft.traffic[row, THROUGHPUT_IN] + draft.traffic[row, THROUGHPUT_OUT]),
                bundles=int(draft.bundle_count[row]),
                topics=int(table.topics[row]),
                report_age_seconds=max(0.0, (now_ms - int(table.last_update[row])) / 1000),
                measured_seconds=snapshot.interval_ms(row) / 1000 or None,
                version=table.versions[row],
                load_manager=table.load_managers[row].rpartition(".")[2],
                sheds_itself=cluster.sheds[broker],
                splits_itself=cluster.splits[broker],
                unsettled=broker in unsettled,
                preallocated=[ComingView(bundle=name, age_seconds=age) for name, age in on_the_way[broker]],
                short=_sums(snapshot.bundles.short[rows]),
                long=_sums(snapshot.bundles.long[rows]),
                verdict=verdicts.get(broker),
            )
        )
    return found


def _cpu_costs(costs: BrokerCosts, row: int) -> CpuCostsView | None:
    """Return the costs of one broker, None while nothing is learned or it has no CPU limit."""
    if not costs.seconds[row].any() or np.isnan(costs.base[row]):
        return None
    ends = [side[row].tolist() for side in (costs.seconds, costs.low, costs.high)]
    (message, size), (message_low, size_low), (message_high, size_high) = ends
    capacity = float(costs.capacity[row])
    return CpuCostsView(
        base_ratio=float(costs.base[row]),
        message_seconds=message,
        message_seconds_low=message_low,
        message_seconds_high=message_high,
        byte_seconds=size,
        byte_seconds_low=size_low,
        byte_seconds_high=size_high,
        capacity_msg_rate=None if np.isnan(capacity) else capacity,
    )


def _resources(snapshot: Snapshot, percent: Floats, row: int) -> dict[str, ResourceView]:
    table = snapshot.brokers
    return {
        name: ResourceView(
            percent=float(percent[row, column]),
            usage=float(table.usage[row, column]),
            limit=float(table.limit[row, column]),
            overridden=name in table.overridden[row],
        )
        for column, name in enumerate(RESOURCES)
    }


def _sums(traffic: Floats) -> TotalsView:
    total = traffic.sum(axis=0) if len(traffic) else np.zeros(4)
    return TotalsView(
        msg_rate=float(total[RATE_IN] + total[RATE_OUT]),
        throughput=float(total[THROUGHPUT_IN] + total[THROUGHPUT_OUT]),
    )


def bundles(
    cluster: ClusterState,
    now_ms: int,
    *,
    broker: str | None = None,
    namespace: str | None = None,
    after: str = "",
    limit: int | None = None,
) -> list[BundleView]:
    """Rows of the bundles asked for, largest short-term throughput first, beginning after the bundle `after`. NotFound
    for an unknown broker or bundle; ConfigError for what is no namespace."""
    snapshot = cluster.snapshot
    if snapshot is None:
        return []
    if namespace is not None and not is_namespace(namespace):
        allowed = "tenant/namespace"
        raise ConfigError(f"{namespace!r} is no namespace", field="namespace", value=namespace, allowed=allowed)
    if broker is not None and broker not in (*snapshot.brokers.ids, *(item.broker_id for item in snapshot.excluded)):
        raise NotFound(unknown_broker(broker, snapshot.brokers.ids))
    table, draft, codes = snapshot.bundles, cluster.draft, cluster.obstacles.codes
    left_alone = LeftAlone(cluster.desired, now_ms)
    going = {entry.bundle: entry for entry in cluster.cycle_state.ledger.entries if not entry.target_settled}
    rows: list[BundleView] = []
    for row in _behind(cluster.largest_first, table, after):
        owner = snapshot.brokers.ids[int(table.owner[row])]
        space = table.namespaces[int(table.namespace[row])]
        if (broker is not None and owner != broker) or (namespace is not None and space != namespace):
            continue
        if len(rows) == limit:
            break
        code = codes.get(row)
        if code is Code.EXCLUDED:
            code, _ = left_alone.why(table.names[row], owner)
        entry, moved = going.get(table.names[row]), cluster.cycle_state.recent.get(table.names[row])
        rows.append(
            _bundle(
                snapshot,
                draft,
                row,
                code,
                preallocated_to=entry.target if entry else None,
                preallocated_age_seconds=(now_ms - entry.opened_ms) / 1000 if entry else None,
                # A bundle that came back to where it was has a cool-down too, but has not moved.
                last_move_ms=moved.at_ms if moved and moved.source != owner else None,
            )
        )
    return rows


def _behind(order: list[int], table: BundleTable, after: str) -> list[int]:
    """Return the rows of `order` behind the bundle `after`. Raises NotFound if it is not there any more."""
    if not after:
        return order
    if after not in table.names:
        raise NotFound(f"no bundle {after!r} now: begin again without `after`")
    return order[order.index(table.names.index(after)) + 1 :]


def _bundle(snapshot: Snapshot, draft: Draft, row: int, code: Code | None, **going: Any) -> BundleView:
    table = snapshot.bundles
    owner = int(table.owner[row])
    pressure = draft.pressure(owner)[row - int(table.starts[owner])]
    limit = draft.limit[owner]
    usable = limit > 0
    weighted = pressure[usable] / limit[usable] * draft.weights[usable]
    counts = table.counts[row]
    return BundleView(
        bundle=table.names[row],
        broker=snapshot.brokers.ids[owner],
        topics=int(counts[0]),
        consumers=int(counts[1]),
        producers=int(counts[2]),
        latest=traffic_view(table.latest[row]),
        short=traffic_view(table.short[row]),
        long=traffic_view(table.long[row]),
        short_samples=int(table.samples[row, 0]),
        long_samples=int(table.samples[row, 1]),
        score_ratio=float(weighted.max(initial=0.0)),
        may_move=code is None,
        code=code.value if code else None,
        **going,
    )


# The cluster as it is drawn: each broker's largest bundles and what the rest adds up to; and what changed since.


def overview(snapshot: Snapshot | None, largest: int) -> OverviewView:
    """Return the cluster as it is drawn, with at most `MOST_DRAWN` bundles however large it is."""
    if snapshot is None:
        return OverviewView(wall_ms=None, namespaces=[], brokers=[])
    table = snapshot.bundles
    size = table.short[:, THROUGHPUT_IN] + table.short[:, THROUGHPUT_OUT]
    by_namespace = np.bincount(table.namespace, weights=size, minlength=len(table.namespaces))
    order = np.argsort(-by_namespace, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    rows = []
    largest = min(largest, max(1, MOST_DRAWN // max(1, len(snapshot.brokers))))
    for number, broker in enumerate(snapshot.brokers.ids):
        first = int(table.starts[number])
        mine = size[table.rows_of(number)]
        chosen = np.argsort(-mine, kind="stable")[:largest]
        rows.append(
            OverviewBroker(
                broker=broker,
                bundles=[
                    OverviewBundle(
                        bundle=table.names[first + row],
                        namespace=int(place[table.namespace[first + row]]),
                        throughput=float(mine[row]),
                    )
                    for row in chosen.tolist()
                ],
                other_bundles=len(mine) - len(chosen),
                other_throughput=max(0.0, float(mine.sum() - mine[chosen].sum())),
            )
        )
    names = [
        OverviewNamespace(namespace=table.namespaces[row], throughput=float(by_namespace[row]))
        for row in order.tolist()
    ]
    return OverviewView(wall_ms=snapshot.wall_ms, namespaces=names, brokers=rows)


def changes(
    cycle: Cycle, shared_state: SharedState, leadership: Leadership, *, connected: bool, last: CycleView | None
) -> Marks:
    """Marks to compare, each cheap to make. `last`: the last cycle as `state` shows it."""
    leader = leadership.leader
    return Marks(
        picture=cycle.snapshot.wall_ms if cycle.snapshot is not None else 0,
        cycle=str(last.id) if last else "",
        leader=f"{leader.id} {leader.epoch}" if leader else "",
        store=connected,
        moves=shared_state.moves[-1]["wall_ms"] if shared_state.moves else 0,
        tasks=_mark(shared_state.tasks),
        requests=_mark(shared_state.desired),
    )


def _mark(value: Any) -> str:
    return f"{zlib.crc32(msgspec.json.encode(value, enc_hook=repr)):08x}"


# The ownership channel: one row a bundle, filtered and paged.


def unit_row(bundle: str, unit: ServiceUnit, *, seen_ms: int, now_ms: int) -> UnitView:
    """One entry."""
    owner = serving(unit)
    return UnitView(
        bundle=bundle,
        state=unit.state,
        owner=owner.broker_id if owner is not None and owner.broker_id else None,
        destination=unit.destination,
        source=unit.source,
        children=dict(unit.children),
        force=unit.force,
        version=unit.version,
        since_ms=unit.timestamp_ms or seen_ms,
        age_seconds=max(0.0, (now_ms - seen_ms) / 1000),
    )


def row_of(view: ChannelView, bundle: str, now_ms: int) -> UnitView | None:
    """The row of one bundle; None when the channel has no entry of it (state Init)."""
    unit = view.units.get(bundle)
    if unit is None:
        return None
    return unit_row(bundle, unit, seen_ms=view.seen_ms.get(bundle, now_ms), now_ms=now_ms)


def unit_rows(
    view: ChannelView,
    now_ms: int,
    *,
    state: UnitState | None = None,
    broker: str | None = None,
    namespace: str | None = None,
    after: str = "",
    limit: int = 1000,
) -> list[UnitView]:
    """Rows by bundle name; `broker`: destination or source. The next page begins `after` the last bundle of this."""
    chosen = sorted(
        bundle
        for bundle, unit in view.units.items()
        if bundle > after
        and state in (None, unit.state)
        and (broker is None or broker in (unit.destination, unit.source))
        and (namespace is None or namespace_of(bundle) == namespace)
    )
    rows = (row_of(view, bundle, now_ms) for bundle in chosen[:limit])
    return [row for row in rows if row is not None]
