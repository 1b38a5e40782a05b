"""Lists of brokers and bundles for the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.cycle.planner import traffic_view
from bundlekeel.leader.gate.in_force import LeftAlone
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, NotFound
from bundlekeel.model.load import RATE_IN, RATE_OUT, RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.model.names import is_namespace
from bundlekeel.model.plan import Verdict
from bundlekeel.model.snapshot import BundleTable, Snapshot
from bundlekeel.model.text_format import unknown_broker
from bundlekeel.planning.costs import BrokerCosts, broker_costs
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.ledger import preallocated
from bundlekeel.views.picture import (
    BrokerView,
    BundleView,
    ComingView,
    CpuCostsView,
    ImbalanceView,
    ResourceView,
    TotalsView,
)
from bundlekeel.views.published import ClusterState

# An overview lists at most this many bundles of all brokers together.
MOST_DRAWN: Final = 25_000


def imbalances(cycle: Cycle) -> ImbalanceView:
    """Return the imbalance (maximum divided by mean) of the brokers' throughputs and scores in the last plan."""
    plan = cycle.report.plan if cycle.report else None
    return ImbalanceView(
        throughput_max_mean=plan.imbalance("throughput_before") if plan else 0.0,
        score_max_mean=plan.imbalance("score_before") if plan else 0.0,
    )


def brokers(cluster: ClusterState, now_ms: int) -> list[BrokerView]:
    """Return one row per registered broker, in the order of ids.

    A row contains the broker's load, operators' requests about the broker, and why its load report is unusable, if it
    is."""
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
    requests = {"warm": desired.warms, "cordon": desired.cordons, "drain": desired.drains}
    requested = {broker: kind for kind, named in requests.items() for broker in named}
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
    views = []
    for row, broker in enumerate(table.ids):
        rows, traffic = snapshot.bundles.rows_of(row), table.traffic[row]
        views.append(
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
    return views


def _cpu_costs(costs: BrokerCosts, row: int) -> CpuCostsView | None:
    """Return the estimated CPU costs of one broker; None: not known yet, or the broker has no CPU limit."""
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
    """Return the matching bundles, largest short-term throughput first, from the bundle that follows `after`.

    Raises NotFound if the broker or the bundle `after` is unknown, and ConfigError if `namespace` is malformed."""
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
                # Not for a bundle that returned to its source: it has a cool-down, too, but was not moved.
                last_move_ms=moved.at_ms if moved and moved.source != owner else None,
            )
        )
    return rows


def _behind(order: list[int], table: BundleTable, after: str) -> list[int]:
    """Return the part of `order` (rows of `table`) after the bundle `after`. Raises NotFound if it is unknown."""
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
