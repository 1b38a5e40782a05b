"""Changed snapshots for a what-if (a plan that is never executed): brokers removed or added, traffic scaled. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import CPU, THROUGHPUT_IN, THROUGHPUT_OUT, Ints
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Finish, Plan, Refusal, measure_of
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import BrokerTable, Snapshot, grouped
from bundlekeel.planning.costs import CpuCosts
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.filters.allowed import limits_of
from bundlekeel.planning.guard.budgets import CYCLE_BUDGETS, GENTLE
from bundlekeel.planning.guard.state import BegunMove, RecentMove
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.owned import with_owned

# Maximum number of consecutive plans, and of bundles in all of them together.
_MOST_CYCLES: Final = 100
_MOST_BUNDLES: Final = 2_000_000
_LEAST_CYCLES: Final = 5


def finish(inputs: PlanInput, first: PlanResult, *, interval_seconds: float, eta: Callable[[int], float]) -> Finish:
    """Predict the state after this plan and all plans that follow it, until nothing moves any more.

    Each plan counts as executed as predicted, and reported before the next one. Splits are ignored. `first`: result of
    this plan for `inputs`. `interval_seconds`: seconds between two cycles. `eta`: returns the duration of a number of
    moves, in seconds.
    """
    result, moves, cycles, seconds = first, 0, 0, 0.0
    most = max(_LEAST_CYCLES, min(_MOST_CYCLES, _MOST_BUNDLES // max(1, len(inputs.snapshot.bundles))))
    ended = 0.0
    while cycles < most and _goes_on(result.plan):
        cycles, moves = cycles + 1, moves + len(result.plan.moves)
        ended = seconds + eta(len(result.plan.moves)) if result.plan.moves else ended
        step = max(_step(result.plan, interval_seconds), ended - seconds)
        seconds += step
        inputs = _after(inputs, result, int(1000 * step))
        result = plan(inputs)
    max_mean = result.plan.imbalance(f"{measure_of(result.plan.strategy)}_before")
    return Finish(max_mean=max_mean, moves=moves, cycles=cycles, seconds=ended, complete=not _goes_on(result.plan))


def _goes_on(result: Plan) -> bool:
    return bool(result.moves) or result.verdict.code is Code.HIT_COUNT or _hour_ends(result) > 0


def _hour_ends(result: Plan) -> int:
    """Return the time (Unix ms) from which the hourly budget allows the next move; 0: it prevents no move."""
    return max((item.frees_ms for item in result.refusals if item.code is Code.BUDGET_PER_HOUR), default=0)


def _step(result: Plan, interval_seconds: float) -> float:
    """Return the seconds until the next cycle: fewer than usual if only budgets per cycle limited the moves."""
    codes = {item.code for item in result.refusals}
    if not result.moves and (ends := _hour_ends(result)):
        return max(interval_seconds, (ends - result.wall_ms) / 1000)
    return interval_seconds / 5 if codes & CYCLE_BUDGETS and not codes & GENTLE else interval_seconds


def _after(inputs: PlanInput, result: PlanResult, step_ms: int) -> PlanInput:
    """Return the input of the next cycle: the plan is executed, and every broker has reported its result.

    `step_ms`: time between the two cycles.
    """
    snapshot, now_ms = inputs.snapshot, inputs.snapshot.wall_ms
    draft = Draft(snapshot, result.ledger, inputs.params, costs=inputs.memory.costs)
    ids, owner = snapshot.brokers.ids, snapshot.bundles.owner.copy()
    index = snapshot.brokers.rows
    places = {entry.bundle: entry.target for entry in result.ledger.entries if entry.target in index}
    places |= {move.bundle: move.target for move in result.plan.moves}
    rows = {snapshot.bundles.names[row]: row for row in snapshot.bundles.rows_named(places)}
    for move in result.plan.moves:
        if move.bundle in rows and ids[owner[rows[move.bundle]]] == move.source:
            draft.take(rows[move.bundle], index[move.source], index[move.target], rule=move.rule, threshold=0.0)
    for bundle, row in rows.items():
        owner[row] = index[places[bundle]]
    stay = np.arange(len(index))
    then = _regrouped(snapshot, draft, stay, owner, "")
    brokers = replace(then.brokers, last_update=then.brokers.last_update + step_ms)
    started = tuple(
        BegunMove(bundle=move.bundle, source=move.source, target=move.target, at_ms=now_ms)
        for move in result.plan.moves
    )
    recent = {move.bundle: RecentMove(at_ms=now_ms, source=move.source) for move in result.plan.moves}
    guard = replace(
        inputs.guard, recent={**inputs.guard.recent, **recent}, last_hour=(*inputs.guard.last_hour, *started)
    )
    return replace(
        inputs,
        snapshot=replace(then, wall_ms=now_ms + step_ms, brokers=brokers),
        memory=result.memory,
        ledger=Ledger(),
        guard=guard,
    )


def scaled(snapshot: Snapshot, factor: float) -> Snapshot:
    """Return the snapshot with all traffic and usage multiplied by `factor`."""
    brokers, bundles = snapshot.brokers, snapshot.bundles
    return replace(
        snapshot,
        digest=f"{snapshot.digest}*{factor:g}",
        brokers=replace(brokers, usage=brokers.usage * factor, traffic=brokers.traffic * factor),
        bundles=replace(
            bundles, latest=bundles.latest * factor, short=bundles.short * factor, long=bundles.long * factor
        ),
    )


def landed(snapshot: Snapshot, ledger: Ledger, params: Parameters, costs: CpuCosts) -> Snapshot:
    """Return the snapshot as it will be when all moves of the ledger (not shown by reports yet) are reported.

    This is needed before brokers are added or removed. The ledger corrects only the original reports: with other
    brokers, its bundles would count for no broker, or for two. Bundles that move to a broker without a usable report
    stay at the broker that reports them.
    """
    index = {broker: row for row, broker in enumerate(snapshot.brokers.ids)}
    reported = {snapshot.bundles.names[row] for row in snapshot.bundles.rows_named(ledger.bundles())}
    # Skip bundles without traffic that no broker reports: they have been split, or are idle.
    entries = {
        entry.bundle: entry
        for entry in ledger.entries
        if entry.target in index and (entry.bundle in reported or any(entry.traffic))
    }
    if not entries:
        return snapshot
    draft = Draft(snapshot, replace(ledger, entries=tuple(entries.values())), params, costs=costs)
    owned: dict[str, list[str]] = {}
    for entry in entries.values():
        owned.setdefault(entry.target, []).append(entry.bundle)
    bundles = with_owned(snapshot, owned).bundles
    traffic = {name: getattr(bundles, name).copy() for name in ("latest", "short", "long")}
    for row in bundles.rows_named(entries.keys() - reported):
        for table in traffic.values():
            table[row] = entries[bundles.names[row]].traffic
    return replace(
        snapshot,
        brokers=replace(snapshot.brokers, usage=draft.usage, traffic=draft.traffic),
        bundles=replace(bundles, **traffic),
    )


def without_brokers(
    snapshot: Snapshot, names: Collection[str], params: Parameters, policies: Policies
) -> tuple[Snapshot, tuple[Refusal, ...]]:
    """Remove these brokers, and assign their bundles to the others, as lookups would roughly do.

    The largest bundle comes first, and each goes to the least loaded broker that policies allow. Bundles that no broker
    may take are dropped; each has a refusal in the result.
    """
    draft = Draft(snapshot, Ledger(), params)
    ids, bundles, label = snapshot.brokers.ids, snapshot.bundles, ",".join(sorted(names))
    stay = np.array([row for row, broker in enumerate(ids) if broker not in names], dtype=np.int64)
    owner = np.where(np.isin(bundles.owner, stay), bundles.owner, -1)
    limits = limits_of(_regrouped(snapshot, draft, stay, owner, label), policies)
    homeless = np.flatnonzero(owner < 0)
    size = bundles.short[:, THROUGHPUT_IN] + bundles.short[:, THROUGHPUT_OUT]
    refusals = []
    for row in homeless[np.argsort(-size[homeless], kind="stable")].tolist():
        namespace = bundles.namespace[row]
        allowed = stay if limits is None else stay[limits.mask[namespace]]
        if len(allowed):
            owner[row] = target = int(allowed[np.argmin(draft.score[allowed])])
            draft.take(row, int(bundles.owner[row]), target, rule="what-if", threshold=0.0)
        else:
            unread = limits is not None and bool(limits.unknown[namespace])
            code = Code.POLICY_UNREADABLE if unread else Code.POLICY_FORBIDS
            refusals.append(Refusal(code=code, bundle=bundles.names[row], broker=ids[bundles.owner[row]]))
    return _regrouped(snapshot, draft, stay, owner, label), tuple(refusals)


def with_brokers(snapshot: Snapshot, names: Sequence[str], idle_cpu: float = 0.0) -> Snapshot:
    """Add brokers with these ids without bundles, each as large as the median of the others (`middle_broker`).

    `idle_cpu`: their CPU use without traffic, percent of one core. Raises ValueError if the snapshot has no broker.
    """
    table, count = snapshot.brokers, len(snapshot.brokers)
    ids = (*table.ids, *names)
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    rows = np.concatenate([np.arange(count), np.full(len(names), middle_broker(table))])[order]
    added = order >= count
    brokers = _picked(table, rows)
    for matrix in (brokers.usage, brokers.traffic, brokers.topics):
        matrix[added] = 0
    brokers.usage[added, CPU] = idle_cpu
    # Costs are not learned from a broker that has just started, so the assumed usage does not count there.
    brokers.start_timestamp[added] = snapshot.wall_ms
    place = np.argsort(order)
    return replace(
        snapshot,
        digest=f"{snapshot.digest}+{','.join(sorted(names))}",
        registered=snapshot.registered + len(names),
        brokers=replace(brokers, ids=tuple(ids[number] for number in order.tolist())),
        bundles=grouped(snapshot.bundles, place[snapshot.bundles.owner], len(ids)),
        intervals=_intervals(snapshot, rows),
    )


def middle_broker(brokers: BrokerTable) -> int:
    """Return the median broker (row) by capacity (CPU, then direct memory, then bandwidth); of two, the smaller one.

    It is a whole row, not the median of each resource, because the limits of a broker belong together. Raises
    ValueError if there is no broker.
    """
    if not len(brokers):
        raise ValueError("no broker has a usable report")
    by_size = sorted(range(len(brokers)), key=lambda row: (tuple(brokers.limit[row].tolist()), brokers.ids[row]))
    return by_size[(len(by_size) - 1) // 2]


def _regrouped(snapshot: Snapshot, draft: Draft, stay: Ints, owner: Ints, label: str) -> Snapshot:
    """Return the snapshot with other brokers and owners.

    `draft`: the loads of the brokers. `stay`: rows of the brokers that stay. `owner`: row of each bundle's owner, -1:
    none. `label`: marks the change in the digest.
    """
    renumbered = np.full(len(snapshot.brokers) + 1, -1, dtype=np.int64)  # The last value is for bundles without owner.
    renumbered[stay] = np.arange(len(stay))
    then = replace(snapshot.brokers, usage=draft.usage, traffic=draft.traffic, topics=draft.topics)
    return replace(
        snapshot,
        digest=f"{snapshot.digest}-{label}",
        registered=snapshot.registered - (len(snapshot.brokers) - len(stay)),
        brokers=_picked(then, stay),
        bundles=grouped(snapshot.bundles, renumbered[owner], len(stay)),
        intervals=_intervals(snapshot, stay),
    )


def _intervals(snapshot: Snapshot, rows: Ints) -> tuple[int, ...]:
    return tuple(snapshot.intervals[row] for row in rows.tolist() if snapshot.intervals)


def _picked(brokers: BrokerTable, order: Ints) -> BrokerTable:
    """Return a copy of these rows of the table, in this order."""
    rows = order.tolist()
    columns: dict[str, Any] = {}
    for item in (item for item in fields(brokers) if item.init):
        value = getattr(brokers, item.name)
        columns[item.name] = (
            value[order] if isinstance(value, np.ndarray) else tuple(value[row] for row in rows if value)
        )
    return BrokerTable(**columns)
