"""What if? Snapshots altered for a dry run: brokers taken away or added, traffic scaled. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final

import numpy as np

from bundlekeel.core.filters.allowed import limits_of
from bundlekeel.core.guard.budgets import CYCLE_BUDGETS, GENTLE
from bundlekeel.core.guard.state import BegunMove, RecentMove
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.doc import Answer, Doc
from bundlekeel.core.model.load import CPU, THROUGHPUT_IN, THROUGHPUT_OUT, Ints
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Plan, Refusal, measure_of
from bundlekeel.core.model.policies import Policies
from bundlekeel.core.model.snapshot import BrokerTable, Snapshot, grouped
from bundlekeel.core.operations.owned import with_owned
from bundlekeel.core.planning.costs import CpuCosts
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.core.planning.ledger import Ledger

# Plans that are made one after the other, and bundles that are looked at in all of them.
_MOST_CYCLES: Final = 100
_MOST_BUNDLES: Final = 2_000_000
_LEAST_CYCLES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Answer):
    """Result of a what-if after the last of its plans, each executed as predicted. Splits are not counted."""

    max_mean: Annotated[float, Doc("max/mean then, of the `measure` of the plan's `imbalance`; 1: even, 0: no load")]
    moves: Annotated[int, Doc("how many, those of this plan included")]
    cycles: Annotated[int, Doc("how many cycles they take")]
    seconds: Annotated[float, Doc("until the last of them has landed")]
    complete: Annotated[bool, Doc("false: more cycles would be needed than were looked at")]


def finish(given: PlanInput, first: PlanResult, *, interval_seconds: float, eta: Callable[[int], float]) -> Finish:
    """What comes of this plan and those after it, each carried out as predicted and reported before the next one.

    `interval_seconds`: between two cycles; `eta`: how long so many moves take, in seconds. Splits are not counted.
    """
    result, moves, cycles, seconds = first, 0, 0, 0.0
    most = max(_LEAST_CYCLES, min(_MOST_CYCLES, _MOST_BUNDLES // max(1, len(given.snapshot.bundles))))
    ended = 0.0
    while cycles < most and _goes_on(result.plan):
        cycles, moves = cycles + 1, moves + len(result.plan.moves)
        ended = seconds + eta(len(result.plan.moves)) if result.plan.moves else ended
        step = max(_step(result.plan, interval_seconds), ended - seconds)
        seconds += step
        given = _after(given, result, int(1000 * step))
        result = plan(given)
    max_mean = result.plan.imbalance(f"{measure_of(result.plan.strategy)}_before")
    return Finish(max_mean=max_mean, moves=moves, cycles=cycles, seconds=ended, complete=not _goes_on(result.plan))


def _goes_on(made: Plan) -> bool:
    return bool(made.moves) or made.verdict.code is Code.HIT_COUNT or _hour_ends(made) > 0


def _hour_ends(made: Plan) -> int:
    """When the hour's budget lets the next move begin (ms); 0: it holds nothing back."""
    return max((item.frees_ms for item in made.refusals if item.code is Code.BUDGET_PER_HOUR), default=0)


def _step(made: Plan, interval_seconds: float) -> float:
    """How long after a cycle the next one begins: at once where the budgets of a cycle alone cut it off."""
    codes = {item.code for item in made.refusals}
    if not made.moves and (ends := _hour_ends(made)):
        return max(interval_seconds, (ends - made.wall_ms) / 1000)
    return interval_seconds / 5 if codes & CYCLE_BUDGETS and not codes & GENTLE else interval_seconds


def _after(given: PlanInput, result: PlanResult, step_ms: int) -> PlanInput:
    """The input of the next cycle: the plan is carried out, and every broker has reported it."""
    snapshot, now_ms = given.snapshot, given.snapshot.wall_ms
    draft = Draft(snapshot, result.ledger, given.params, costs=given.memory.costs)
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
    begun = tuple(
        BegunMove(bundle=move.bundle, source=move.source, target=move.target, at_ms=now_ms)
        for move in result.plan.moves
    )
    recent = {move.bundle: RecentMove(at_ms=now_ms, source=move.source) for move in result.plan.moves}
    guard = replace(given.guard, recent={**given.guard.recent, **recent}, last_hour=(*given.guard.last_hour, *begun))
    return replace(
        given,
        snapshot=replace(then, wall_ms=now_ms + step_ms, brokers=brokers),
        memory=result.memory,
        ledger=Ledger(),
        guard=guard,
    )


def scaled(snapshot: Snapshot, factor: float) -> Snapshot:
    """All traffic and all usage times `factor`: load is taken to follow traffic."""
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
    """The snapshot once every move of the ledger has landed and is reported: each bundle at one broker, and nothing is
    left to be corrected. What goes to a broker without a usable report stays where it is reported.

    A ledger corrects the reports as they are: on other brokers than those its bundles would be at none, or at two.
    """
    index = {broker: row for row, broker in enumerate(snapshot.brokers.ids)}
    known = {snapshot.bundles.names[row] for row in snapshot.bundles.rows_named(ledger.bundles())}
    # Without traffic and in no report: split since, or idle.
    entries = {
        entry.bundle: entry
        for entry in ledger.entries
        if entry.target in index and (entry.bundle in known or any(entry.traffic))
    }
    if not entries:
        return snapshot
    draft = Draft(snapshot, replace(ledger, entries=tuple(entries.values())), params, costs=costs)
    owned: dict[str, list[str]] = {}
    for entry in entries.values():
        owned.setdefault(entry.target, []).append(entry.bundle)
    bundles = with_owned(snapshot, owned).bundles
    traffic = {name: getattr(bundles, name).copy() for name in ("latest", "short", "long")}
    for row in bundles.rows_named(entries.keys() - known):
        for table in traffic.values():
            table[row] = entries[bundles.names[row]].traffic
    return replace(
        snapshot,
        brokers=replace(snapshot.brokers, usage=draft.usage, traffic=draft.traffic),
        bundles=replace(bundles, **traffic),
    )


def without_brokers(
    snapshot: Snapshot, gone: Collection[str], params: Parameters, policies: Policies
) -> tuple[Snapshot, tuple[Refusal, ...]]:
    """These brokers are away and their bundles were taken by the others, largest first to the least loaded that
    policies allow. Refusals name the bundles that no broker may take, which are left out.

    That is where lookups would roughly put them; the plan on the result says what remains to be evened out.
    """
    draft = Draft(snapshot, Ledger(), params)
    ids, bundles, label = snapshot.brokers.ids, snapshot.bundles, ",".join(sorted(gone))
    stay = np.array([row for row, broker in enumerate(ids) if broker not in gone], dtype=np.int64)
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
    """These brokers are there too, empty, each as large as the middle one of the others (`middle_broker`).

    `idle_cpu`: what a broker uses without traffic, percent of one core. ValueError without a broker to take after.
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
    # As if started just now: what it uses was not seen, so nothing is to be learnt from it.
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
    """The row in the middle by capacity (CPU, then direct memory, then bandwidth); of two the smaller. A whole row, not
    the median of each resource: which limits count depends on the others of the same broker. ValueError without any."""
    if not len(brokers):
        raise ValueError("no broker has a usable report")
    by_size = sorted(range(len(brokers)), key=lambda row: (tuple(brokers.limit[row].tolist()), brokers.ids[row]))
    return by_size[(len(by_size) - 1) // 2]


def _regrouped(snapshot: Snapshot, draft: Draft, stay: Ints, owner: Ints, label: str) -> Snapshot:
    """The snapshot with only the brokers that stay, with the load they have then, and bundles by their new owners."""
    renumbered = np.full(len(snapshot.brokers) + 1, -1, dtype=np.int64)  # the last one: of no broker
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


def _intervals(snapshot: Snapshot, chosen: Ints) -> tuple[int, ...]:
    return tuple(snapshot.intervals[row] for row in chosen.tolist() if snapshot.intervals)


def _picked(brokers: BrokerTable, chosen: Ints) -> BrokerTable:
    """These rows, in this order; a copy."""
    rows = chosen.tolist()
    columns: dict[str, Any] = {}
    for item in (item for item in fields(brokers) if item.init):
        value = getattr(brokers, item.name)
        columns[item.name] = (
            value[chosen] if isinstance(value, np.ndarray) else tuple(value[row] for row in rows if value)
        )
    return BrokerTable(**columns)
