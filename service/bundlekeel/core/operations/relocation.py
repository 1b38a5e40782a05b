"""Drains and warm-ups, which people ask for: planned before the shedder decides. Pure.

Their moves are in the ledger when the shedder decides, so it sees the cluster as it will be, does not move those
bundles and has its own budget; the plan holds the moves of both.

Drain: Pulsar has no cordon, and its placement prefers an empty broker, so a drain is no plan but a loop: every cycle
moves what is there, idle bundles too. Heartbeat, SLA and `pulsar/system` bundles, pins, exclusions, policies, moves
under way and frozen intents bind a bundle here as in every move. Idle, cool-down and what the reports do not show yet
do not; a drain has a budget of its own.

Warm-up: a broker that is new or restarted has empty caches and is slow when it gets its whole share at once. So its
bundles come from the most loaded brokers, at most `warm_max_moves_per_cycle` a cycle, until the broker carries
`warm_until_share` of the mean score.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

import numpy as np

from bundlekeel.core.filters.allowed import AllowedTargets, limits_of
from bundlekeel.core.guard.eligibility import Eligibility, completeness, eligibility
from bundlekeel.core.guard.scope import closed_brokers
from bundlekeel.core.guard.state import GuardState
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Ints
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import BrokerLoad, Move, Plan, Refusal, plan_hash
from bundlekeel.core.model.policies import Policies
from bundlekeel.core.model.snapshot import Bools, Snapshot
from bundlekeel.core.model.text_format import numbered
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.ledger import Ledger, open_entries
from bundlekeel.core.planning.memory import StrategyMemory
from bundlekeel.core.strategies.common import EPSILON, best_fit

DRAIN = "drain"
WARM = "warm"
RULES = (DRAIN, WARM)
REPAIR = "repair"
# The moves of these rules are not made for the balance, so it is not judged by them.
NOT_FOR_BALANCE = (*RULES, REPAIR)
# Of so many moves one is the largest that is left: a giant must not wait until the very end, and not come first.
LARGEST_EVERY = 4


def drain(
    draft: Draft,
    movable: Bools,
    eligible: Eligibility,
    *,
    sources: Collection[str],
    closed: Collection[str],
    owned: Mapping[str, Collection[str]],
    budget: int,
) -> list[Refusal]:
    """Take moves off `sources` into the draft; the refusals say why each other bundle of theirs stays for now.

    `movable` marks bundles (rows) a person may move, `eligible` says why the others may not. `closed`: brokers that
    take nothing. `owned`: what a source owns by its own list; without it, what it reports counts. `budget`: moves.
    """
    ids, given = draft.snapshot.brokers.ids, budget
    rows = [row for row, broker in enumerate(ids) if broker in sources]
    open_to = np.array([broker not in closed and broker not in sources for broker in ids], dtype=bool)
    refusals: list[Refusal] = []
    queues = []
    for source in rows:
        here = _there(draft, source, owned.get(ids[source]))
        # System bundles belong to the broker: they are not counted as left behind.
        bound = here[~movable[here] & ~draft.snapshot.bundles.system[here]]
        refusals += [eligible.refusal(draft.snapshot, row) for row in bound.tolist()]
        queues.append([(source, row) for row in in_order(draft, here[movable[here]])])
    for source, row in _in_turn(queues):
        name, broker = draft.snapshot.bundles.names[row], ids[source]
        if budget <= 0:
            limit, used = float(given), float(given - budget)
            detail = f"limit {given} a cycle, {given - budget} used, continues in the next cycle"
            refusals.append(Refusal(Code.BUDGET_OF_DRAIN, name, broker, detail, limit=limit, used=used))
            continue
        target, runner_up, code = best_target(draft, row, source, open_to)
        if code is not None:
            refusals.append(Refusal(code, name, broker))
            continue
        draft.take(row, source, target, rule=DRAIN, threshold=0.0, runner_up=runner_up)
        budget -= 1
    return refusals


def _there(draft: Draft, source: int, listed: Collection[str] | None) -> Ints:
    """Rows of what is still at the broker: by its own list, else by its report less what is known to have left."""
    span = draft.snapshot.bundles.rows_of(source)
    rows = np.arange(span.start, span.stop)
    if listed is None:
        return rows[~draft.in_books[rows]]
    names = draft.snapshot.bundles.names
    here: Ints = rows[np.array([names[row] in listed for row in rows.tolist()], dtype=bool)]
    return here


def in_order(draft: Draft, rows: Ints) -> list[int]:
    """Least disruption first, by clients (producers and consumers), then traffic; every fourth the largest left."""
    bundles = draft.snapshot.bundles
    clients, traffic = bundles.counts[rows, 1:].sum(axis=1), bundles.short[rows].sum(axis=1)
    traffic = np.where(bundles.latest[rows].any(axis=1), traffic, 0.0)
    waiting = rows[np.lexsort((rows, traffic, clients))].tolist()
    ordered: list[int] = []
    while waiting:
        largest = (len(ordered) + 1) % LARGEST_EVERY == 0
        ordered.append(waiting.pop(-1 if largest else 0))
    return ordered


def _in_turn(queues: Iterable[list[tuple[int, int]]]) -> Iterable[tuple[int, int]]:
    """One of each queue after the other, so that several drains share the budget."""
    return (item for item in chain.from_iterable(zip_longest(*queues)) if item is not None)


def best_target(draft: Draft, row: int, source: int, open_to: Bools) -> tuple[int, int, Code | None]:
    """The broker (row) with most room for this bundle, the next best one (-1: none), and why there is none, or None.

    Most room: the lowest score with the bundle on it; for an idle bundle, which changes no score, the fewest bundles.
    """
    start = int(draft.snapshot.bundles.starts[source])
    idle = not draft.pressure(source)[row - start].any()
    targets = np.flatnonzero(open_to & (np.arange(len(open_to)) != source))
    after = draft.with_bundle(row, source, targets)
    allowed = np.isfinite(after)
    if not allowed.any():
        return -1, -1, Code.NO_LEGAL_TARGET
    limit = draft.params.overloaded_threshold_percent / 100
    fits = allowed & (idle | (draft.legal_targets()[targets] & (after <= limit)))
    if not fits.any():
        return -1, -1, Code.TARGET_OVERLOADED
    targets, after = targets[fits], after[fits]
    counts = draft.bundle_count[targets]
    order = targets[np.lexsort((targets, after, counts) if idle else (targets, counts, after))]
    return int(order[0]), int(order[1]) if len(order) > 1 else -1, None


# --- warm-up ---


def warm(
    draft: Draft, eligible: Bools, *, targets: Collection[str], closed: Collection[str], budget: int, waiting: bool
) -> dict[str, bool]:
    """Add moves to these brokers to the draft. By broker: whether it is warm, or no further move helps, which is not
    known while bundles wait until their moves are seen (`waiting`)."""
    ids = draft.snapshot.brokers.ids
    open_to = np.array([broker not in closed for broker in ids], dtype=bool)
    mean = float(draft.score[open_to].mean()) if open_to.any() else 0.0
    ready = {}
    for target, broker in enumerate(ids):
        if broker not in targets:
            continue
        taken = 0
        while taken < budget and not is_warm(draft, target, mean) and _take_one(draft, eligible, target, mean, closed):
            taken += 1
        ready[broker] = taken == 0 and (not waiting or is_warm(draft, target, mean))
    return ready


def is_warm(draft: Draft, target: int, mean: float) -> bool:
    """Whether the broker carries `warm_until_share` of the mean score."""
    return float(draft.score[target]) >= draft.params.warm_until_share * mean - EPSILON


def _take_one(draft: Draft, eligible: Bools, target: int, mean: float, closed: Collection[str]) -> bool:
    """Move one bundle from the most loaded broker that has a suitable one; False when there is none."""
    if not draft.legal_targets()[target]:
        return False
    limit = draft.params.overloaded_threshold_percent / 100
    ids = draft.snapshot.brokers.ids
    for source in np.argsort(-draft.score, kind="stable").tolist():
        score, other = float(draft.score[source]), float(draft.score[target])
        if source == target or ids[source] in closed or score <= mean:
            continue
        rows = draft.movable(source, eligible)
        if len(rows) == 0:
            continue
        offer = draft.offer(rows, source, target)
        want = min(score - mean, mean - other)
        index = best_fit(offer, score, other, want, ceiling=limit, slack=0.0)
        if index >= 0 and score - float(offer.source_after[index]) >= draft.params.min_unload_share * mean:
            draft.take(int(rows[index]), source, target, rule=WARM, threshold=draft.params.warm_until_share)
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything these moves depend on. `owned`: what draining brokers own by their own list (broker -> bundles)."""

    snapshot: Snapshot
    ledger: Ledger
    guard: GuardState
    params: Parameters
    memory: StrategyMemory
    policies: Policies
    owned: Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """Moves of drains, warms and repairs, why other bundles stay that should move, loads before all of them.

    `ready`: by warming broker, whether it is warm, or nothing more helps.
    """

    moves: tuple[Move, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    loads: tuple[BrokerLoad, ...] = ()
    ready: Mapping[str, bool] = field(default_factory=dict)

    @property
    def repairs(self) -> tuple[Move, ...]:
        """Return the moves back to primary brokers, which count against the common budgets."""
        return tuple(move for move in self.moves if move.rule == REPAIR)

    def followed_by(self, later: Relocation) -> Relocation:
        """Return both together; `later` was planned with these moves in the ledger."""
        bundles = {move.bundle for move in self.moves} | {item.bundle for item in self.refusals}
        return replace(
            self,
            moves=(*self.moves, *later.moves),
            refusals=(*self.refusals, *(item for item in later.refusals if item.bundle not in bundles)),
            loads=self.loads or later.loads,
        )

    def booked(self, ledger: Ledger, snapshot: Snapshot) -> Ledger:
        """The ledger with these moves under way."""
        return open_entries(ledger, self.moves, snapshot, snapshot.wall_ms) if self.moves else ledger

    def merged(self, made: Plan) -> Plan:
        """The shedder's plan together with these moves, which come first."""
        if not self.moves and not self.refusals:
            return made
        named = {move.bundle for move in self.moves} | {item.bundle for item in self.refusals}
        before = {row.broker: row for row in self.loads}
        whole = replace(
            made,
            moves=(*self.moves, *made.moves),
            refusals=(*self.refusals, *(item for item in made.refusals if item.bundle not in named)),
            splits=tuple(item for item in made.splits if item.bundle not in {move.bundle for move in self.moves}),
            loads=tuple(_since(before.get(row.broker, row), row) for row in made.loads),
            verdict=replace(made.verdict, sentence=self._sentence(made)) if self.moves else made.verdict,
        )
        if self.moves and not made.moves:
            code = Code.REPAIR if len(self.repairs) == len(self.moves) else Code.ADMIN
            whole = replace(whole, verdict=replace(whole.verdict, code=code))
        return replace(whole, hash=plan_hash(whole))

    def _sentence(self, made: Plan) -> str:
        left = sum(move.rule == DRAIN for move in self.moves)
        back = len(self.repairs)
        came = len(self.moves) - left - back
        parts = [f"{numbered(left, 'bundle', 'leave')} draining brokers"] if left else []
        parts += [f"{numbered(came, 'bundle', 'come')} to brokers that are warmed"] if came else []
        parts += (
            [f"{numbered(back, 'bundle', 'return')} to primary brokers of their isolation policies"] if back else []
        )
        return f"{', '.join(parts)}; {made.verdict.sentence}"


def _since(before: BrokerLoad, after: BrokerLoad) -> BrokerLoad:
    return replace(
        after,
        score_before=before.score_before,
        msg_rate_before=before.msg_rate_before,
        throughput_before=before.throughput_before,
        bundles_before=before.bundles_before,
    )


def relocate(given: Request) -> Relocation:
    """The moves of every drain and warm that fit now. None while too few brokers are seen."""
    snapshot, params, guard = given.snapshot, given.params, given.guard
    if not guard.draining and not guard.warming:
        return Relocation()
    if len(snapshot.brokers) < 2 or completeness(snapshot, params) is not None:
        return Relocation()
    draft = Draft(snapshot, given.ledger, params, given.memory.turn, given.memory.costs)
    limits = limits_of(snapshot, given.policies, given.ledger)
    if limits is not None:
        draft.restrict(limits.mask, limits.group)
    shut = closed_brokers(snapshot.brokers.ids, guard, params, snapshot.wall_ms)
    draft.close(shut)
    closed = frozenset(snapshot.brokers.ids[row] for row in shut)
    movable, codes = by_person(given)
    refusals = drain(
        draft,
        movable,
        codes,
        sources=guard.draining,
        closed=closed,
        owned=given.owned,
        budget=params.drain_max_moves_per_cycle,
    )
    ready = _warmed(given, draft, limits, closed) if guard.warming else {}
    return Relocation(moves=tuple(draft.moves), refusals=tuple(refusals), loads=draft.loads(draft.moves), ready=ready)


def _warmed(given: Request, draft: Draft, limits: AllowedTargets | None, closed: frozenset[str]) -> dict[str, bool]:
    """Fill the warming brokers, with bundles that the shedder may move too, and with those that left them recently."""
    under_way = given.ledger.under_way()
    warming = given.guard.warming
    recent = {name: moved for name, moved in given.guard.recent.items() if moved.source not in warming}
    eligible = eligibility(
        given.snapshot,
        replace(given.guard, recent=recent),
        given.params,
        given.snapshot.wall_ms,
        under_way,
        unsettled=given.ledger.bundles() - under_way,
        limits=limits,
    )
    return warm(
        draft,
        eligible.mask,
        targets=warming - closed,
        closed=closed,
        budget=given.params.warm_max_moves_per_cycle,
        waiting=bool(given.ledger.entries),
    )


def by_person(given: Request) -> tuple[Bools, Eligibility]:
    """Bundles (rows) a person may move, and why each other one may not.

    Idle, cool-down and unsettled bundles may be: those rules are there to spare clients, and a person has decided.
    """
    blunt = replace(given.guard, recent={}, recent_brokers={}, last_hour=(), quarantined={})
    limits = limits_of(given.snapshot, given.policies, given.ledger)
    found = eligibility(
        given.snapshot, blunt, given.params, given.snapshot.wall_ms, given.ledger.under_way(), limits=limits
    )
    movable = found.mask.copy()
    movable[np.array(found.codes.rows_with([Code.IDLE]), dtype=np.int64)] = True
    return movable, found
