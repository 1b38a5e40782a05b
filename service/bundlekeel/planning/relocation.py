"""Plan the drains and warm-ups that operators requested, before the balancing strategy (shedder) decides. Pure.

Their moves are added to the ledger (moves that reports do not show yet) before the shedder decides. So the shedder uses
the load after these moves, does not move the same bundles and has its own budget. The plan contains all moves.

Drain: Pulsar has no cordon, and its placement prefers an empty broker. So a drain is a loop: every cycle moves the
bundles that are at the broker, idle ones too. Heartbeat, SLA and `pulsar/system` bundles stay. Pins (operators' rules
that a bundle stays), exclusions, policies, and moves in progress or left unfinished by an earlier leader apply as for
every move. Bundles that moved recently are moved, too. A drain has its own budget. In a roll-out, bundles go
first to brokers that have restarted, up to the mean score without the drained broker: the others are drained next.

Warm-up: a new or restarted broker has empty caches and is slow if it gets its whole share immediately. So its bundles
come from the most loaded brokers, at most `warm_max_moves_per_cycle` per cycle, until the broker has `warm_until_share`
of the mean score.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Ints
from bundlekeel.model.plan import BrokerLoad, Move, Plan, Refusal, plan_hash
from bundlekeel.model.snapshot import Bools, Snapshot
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.filters.allowed import AllowedTargets, limits_of
from bundlekeel.planning.guard.eligibility import Eligibility, completeness, eligibility
from bundlekeel.planning.guard.holds import rollout_of
from bundlekeel.planning.guard.scope import closed_brokers
from bundlekeel.planning.ledger import Ledger, open_entries
from bundlekeel.planning.situation import Situation
from bundlekeel.planning.strategies.common import EPSILON, best_fit

DRAIN = "drain"
WARM = "warm"
RULES = (DRAIN, WARM)
REPAIR = "repair"
# Moves by these rules have another purpose than balance, so their effect on balance is not measured.
NOT_FOR_BALANCE = (*RULES, REPAIR)
# Every fourth move takes the largest remaining bundle, so that large bundles come neither first nor last.
LARGEST_EVERY = 4


def drain(
    draft: Draft,
    movable: Bools,
    eligible: Eligibility,
    *,
    sources: Collection[str],
    closed: Collection[str],
    owned: Mapping[str, Collection[str]],
    restarted: Collection[str] = (),
    budget: int,
) -> list[Refusal]:
    """Plan moves away from the brokers `sources`; return a refusal for each bundle that stays for now.

    `movable`: mask of bundles (rows) that an operator may move; `eligible`: reasons for the others. `closed`: brokers
    that receive nothing. `owned`: bundles by broker, as the broker itself lists them; if a broker is missing, its load
    report counts. `restarted`: brokers that are preferred as targets, because the others restart next. `budget`:
    maximum number of moves.
    """
    ids, total = draft.snapshot.brokers.ids, budget
    rows = [row for row, broker in enumerate(ids) if broker in sources]
    open_to = np.array([broker not in closed and broker not in sources for broker in ids], dtype=bool)
    fresh = open_to & np.isin(ids, list(restarted))
    # The mean score of the open brokers after the drain: one broker less carries the same load.
    level = float(draft.score[open_to | np.isin(np.arange(len(ids)), rows)].sum()) / max(int(open_to.sum()), 1)
    refusals: list[Refusal] = []
    queues = []
    for source in rows:
        here = _there(draft, source, owned.get(ids[source]))
        # System bundles never move, so they are not bundles that still have to leave.
        bound = here[~movable[here] & ~draft.snapshot.bundles.system[here]]
        refusals += [eligible.refusal(draft.snapshot, row) for row in bound.tolist()]
        queues.append([(source, row) for row in in_order(draft, here[movable[here]])])
    for source, row in _in_turn(queues):
        name, broker = draft.snapshot.bundles.names[row], ids[source]
        if budget <= 0:
            limit, used = float(total), float(total - budget)
            detail = f"limit {total} a cycle, {total - budget} used, continues in the next cycle"
            refusals.append(Refusal(Code.BUDGET_OF_DRAIN, name, broker, detail, limit=limit, used=used))
            continue
        target, runner_up, code = best_target(draft, row, source, fresh, level)
        if code is not None:
            target, runner_up, code = best_target(draft, row, source, open_to)
        if code is not None:
            refusals.append(Refusal(code, name, broker))
            continue
        draft.take(row, source, target, rule=DRAIN, threshold=0.0, runner_up=runner_up)
        budget -= 1
    return refusals


def _there(draft: Draft, source: int, listed: Collection[str] | None) -> Ints:
    """Return the bundles (rows) that are still at the broker `source`.

    These are the bundles of its own list (`listed`). Without the list (None), they are the reported bundles that are
    not moving.
    """
    span = draft.snapshot.bundles.rows_of(source)
    rows = np.arange(span.start, span.stop)
    if listed is None:
        return rows[~draft.in_books[rows]]
    names = draft.snapshot.bundles.names
    here: Ints = rows[np.array([names[row] in listed for row in rows.tolist()], dtype=bool)]
    return here


def in_order(draft: Draft, rows: Ints) -> list[int]:
    """Sort bundles by disruption: first those with few clients (producers and consumers), then with little traffic.

    Every fourth bundle is the largest of the rest.
    """
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
    """Yield one bundle of each queue in turn, so that several drains share the budget."""
    return (item for item in chain.from_iterable(zip_longest(*queues)) if item is not None)


def best_target(
    draft: Draft, row: int, source: int, open_to: Bools, level: float = math.inf
) -> tuple[int, int, Code | None]:
    """Return the broker (row) with most headroom for this bundle, the next best (-1: none), and the obstacle or None.

    Most headroom: the lowest score with the bundle. For an idle bundle, which changes no score: the fewest bundles.
    `open_to`: mask of the brokers that may receive it. `level`: highest score with the bundle, in addition to the
    overload threshold; idle bundles then have no target.
    """
    start = int(draft.snapshot.bundles.starts[source])
    idle = not draft.pressure(source)[row - start].any()
    targets = np.flatnonzero(open_to & (np.arange(len(open_to)) != source))
    after = draft.with_bundle(row, source, targets)
    allowed = np.isfinite(after)
    if not allowed.any():
        return -1, -1, Code.NO_LEGAL_TARGET
    limit = min(level, draft.params.overloaded_threshold_percent / 100)
    fits = allowed & (level == math.inf if idle else draft.legal_targets()[targets] & (after <= limit))
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
    """Plan moves to the brokers `targets`, which are warmed up; return, by broker, whether its warm-up is complete.

    A warm-up is complete if the broker is warm or no further move helps. While reports do not show all moves
    (`waiting`), only a warm broker is complete. `budget`: maximum number of moves per broker. `closed`: brokers that
    neither give nor count in the mean.
    """
    ids = draft.snapshot.brokers.ids
    open_to = np.array([broker not in closed for broker in ids], dtype=bool)
    mean = float(draft.score[open_to].mean()) if open_to.any() else 0.0
    ready = {}
    for target, broker in enumerate(ids):
        if broker not in targets:
            continue
        count = 0
        while count < budget and not is_warm(draft, target, mean) and _take_one(draft, eligible, target, mean, closed):
            count += 1
        ready[broker] = count == 0 and (not waiting or is_warm(draft, target, mean))
    return ready


def is_warm(draft: Draft, target: int, mean: float) -> bool:
    """Return whether the broker has the share `warm_until_share` of the mean score."""
    return float(draft.score[target]) >= draft.params.warm_until_share * mean - EPSILON


def _take_one(draft: Draft, eligible: Bools, target: int, mean: float, closed: Collection[str]) -> bool:
    """Move one bundle to `target` from the most loaded broker with a suitable bundle; False: no bundle is suitable."""
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
class Relocation:
    """Moves of drains, warm-ups and repairs, refusals of bundles that should also move, and loads before and after.

    `ready`: by broker under warm-up, whether it is warm or no further move helps.
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
        """Return these moves and the moves of `later`, which was planned as if these moves had started."""
        bundles = {move.bundle for move in self.moves} | {item.bundle for item in self.refusals}
        return replace(
            self,
            moves=(*self.moves, *later.moves),
            refusals=(*self.refusals, *(item for item in later.refusals if item.bundle not in bundles)),
            loads=self.loads or later.loads,
        )

    def booked(self, ledger: Ledger, snapshot: Snapshot) -> Ledger:
        """Return the ledger (moves that reports do not show yet) with these moves added."""
        return open_entries(ledger, self.moves, snapshot, snapshot.wall_ms) if self.moves else ledger

    def merged(self, shed: Plan) -> Plan:
        """Return one plan of these moves and the moves of the strategy's plan `shed`; these moves come first."""
        if not self.moves and not self.refusals:
            return shed
        named = {move.bundle for move in self.moves} | {item.bundle for item in self.refusals}
        whole = replace(
            shed,
            moves=(*self.moves, *shed.moves),
            refusals=(*self.refusals, *(item for item in shed.refusals if item.bundle not in named)),
            splits=tuple(item for item in shed.splits if item.bundle not in {move.bundle for move in self.moves}),
            loads=with_loads_before(self.loads, shed.loads),
            verdict=replace(shed.verdict, sentence=self._sentence(shed)) if self.moves else shed.verdict,
        )
        if self.moves and not shed.moves:
            code = Code.REPAIR if len(self.repairs) == len(self.moves) else Code.ADMIN
            whole = replace(whole, verdict=replace(whole.verdict, code=code))
        return replace(whole, hash=plan_hash(whole))

    def _sentence(self, shed: Plan) -> str:
        left = sum(move.rule == DRAIN for move in self.moves)
        back = len(self.repairs)
        came = len(self.moves) - left - back
        parts = [f"{numbered(left, 'bundle', 'leave')} draining brokers"] if left else []
        parts += [f"{numbered(came, 'bundle', 'come')} to brokers that are warmed"] if came else []
        parts += (
            [f"{numbered(back, 'bundle', 'return')} to primary brokers of their isolation policies"] if back else []
        )
        return f"{', '.join(parts)}; {shed.verdict.sentence}"


def with_loads_before(first: Sequence[BrokerLoad], later: Sequence[BrokerLoad]) -> tuple[BrokerLoad, ...]:
    """Return the loads after the moves of `later`, with the loads before the moves of `first`, an earlier plan."""
    before = {row.broker: row for row in first}
    return tuple(_since(before.get(row.broker, row), row) for row in later)


def _since(before: BrokerLoad, after: BrokerLoad) -> BrokerLoad:
    return replace(
        after,
        score_before=before.score_before,
        msg_rate_before=before.msg_rate_before,
        throughput_before=before.throughput_before,
        bundles_before=before.bundles_before,
    )


def relocate(situation: Situation) -> Relocation:
    """Plan the moves of all drains and warm-ups that are possible now; no moves while too few brokers report."""
    snapshot, params, guard = situation.snapshot, situation.params, situation.guard
    if not guard.draining and not guard.warming:
        return Relocation()
    if len(snapshot.brokers) < 2 or completeness(snapshot, params) is not None:
        return Relocation()
    draft = Draft(snapshot, situation.ledger, params, situation.memory.turn, situation.memory.costs)
    limits = limits_of(snapshot, situation.policies, situation.ledger)
    if limits is not None:
        draft.restrict(limits.mask, limits.group)
    shut = closed_brokers(snapshot.brokers.ids, guard, params, snapshot.wall_ms)
    draft.close(shut)
    closed = frozenset(snapshot.brokers.ids[row] for row in shut)
    movable, codes = by_person(situation)
    refusals = drain(
        draft,
        movable,
        codes,
        sources=guard.draining,
        closed=closed,
        owned=situation.owned,
        restarted=guard.changed_brokers if guard.rolling_ms and rollout_of(snapshot, guard, params) else (),
        budget=params.drain_max_moves_per_cycle,
    )
    ready = _warmed(situation, draft, limits, closed) if guard.warming else {}
    return Relocation(moves=tuple(draft.moves), refusals=tuple(refusals), loads=draft.loads(draft.moves), ready=ready)


def _warmed(
    situation: Situation, draft: Draft, limits: AllowedTargets | None, closed: frozenset[str]
) -> dict[str, bool]:
    """Fill the brokers under warm-up, and return by broker whether its warm-up is complete.

    The bundles are those that the strategy may move, and those that left these brokers recently.
    """
    under_way = situation.ledger.under_way()
    warming = situation.guard.warming
    recent = {name: moved for name, moved in situation.guard.recent.items() if moved.source not in warming}
    eligible = eligibility(
        situation.snapshot,
        replace(situation.guard, recent=recent),
        situation.params,
        situation.snapshot.wall_ms,
        under_way,
        unsettled=situation.ledger.bundles() - under_way,
        limits=limits,
    )
    return warm(
        draft,
        eligible.mask,
        targets=warming - closed,
        closed=closed,
        budget=situation.params.warm_max_moves_per_cycle,
        waiting=bool(situation.ledger.entries),
    )


def by_person(situation: Situation) -> tuple[Bools, Eligibility]:
    """Return a mask of the bundles that an operator may move, and the reasons for the others.

    Idle bundles and bundles that moved recently may move, too: the rules against that protect clients, and an operator
    has decided.
    """
    blunt = replace(situation.guard, recent={}, recent_brokers={}, last_hour=(), quarantined={})
    limits = limits_of(situation.snapshot, situation.policies, situation.ledger)
    result = eligibility(
        situation.snapshot,
        blunt,
        situation.params,
        situation.snapshot.wall_ms,
        situation.ledger.under_way(),
        limits=limits,
    )
    movable = result.mask.copy()
    movable[np.array(result.codes.rows_with([Code.IDLE]), dtype=np.int64)] = True
    return movable, result
