"""Repairs: bundles move back to the primary brokers of their isolation policy. Pure.

Pulsar uses a policy only when it places a bundle. So bundles stay on other brokers if the policy is created later than
they were placed, and on secondaries if the primaries return after a failover. A bundle is repaired if the policy does
not allow its broker by Pulsar's failover rule (`LoadManagerShared.applyNamespacePolicies`). Strategies choose their
targets by the same rule, so they and repairs do not undo each other's moves.

Repairs obey the guard's rules as the moves of a strategy do, and have a budget of their own in addition. Idle bundles
are repaired, too: they will carry traffic where they are. The balance does not matter, only the overload threshold.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Ints
from bundlekeel.model.plan import Refusal
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.filters.allowed import isolation_of, limits_of
from bundlekeel.planning.filters.isolation import AppliedIsolation
from bundlekeel.planning.guard.budgets import admit
from bundlekeel.planning.guard.eligibility import Eligibility, completeness, eligibility
from bundlekeel.planning.guard.holds import Hold
from bundlekeel.planning.guard.stops import bans_of
from bundlekeel.planning.relocation import REPAIR, Relocation, best_target, in_order
from bundlekeel.planning.situation import Situation


def repair(situation: Situation, hold: Hold | None) -> Relocation:
    """Plan moves of misplaced bundles to brokers that their isolation policies allow, primary brokers first.

    The result also contains a refusal for each misplaced bundle that stays. `hold`: a reason to move nothing, or only
    off overloaded brokers; then no bundle is repaired.
    """
    snapshot, params, guard = situation.snapshot, situation.params, situation.guard
    if situation.policies.unknown or completeness(snapshot, params) is not None:
        return Relocation()
    isolation = isolation_of(snapshot, situation.policies)
    rows = find_misplaced(snapshot, isolation)
    limits = limits_of(snapshot, situation.policies, situation.ledger)
    if not len(rows) or limits is None:
        return Relocation()
    under_way = situation.ledger.under_way()
    unsettled = situation.ledger.bundles() - under_way
    eligible = eligibility(snapshot, guard, params, snapshot.wall_ms, under_way, unsettled=unsettled, limits=limits)
    draft = Draft(snapshot, situation.ledger, params, situation.memory.turn, situation.memory.costs)
    draft.restrict(limits.mask, limits.group)
    bans = bans_of(snapshot, guard, params)
    if bans is not None:
        draft.ban(bans)
    refusals = _take(draft, isolation, eligible, rows, hold)
    budget = replace(params, max_moves_per_cycle=params.repair_max_moves_per_cycle)
    moves, over = admit(draft.moves, budget, guard, snapshot.wall_ms, draft.carried(), swaps=False)
    return Relocation(moves=moves, refusals=(*refusals, *over), loads=draft.loads(()))


def find_misplaced(snapshot: Snapshot, isolation: AppliedIsolation) -> Ints:
    """Return the bundles (rows) on brokers that their isolation policy does not allow now.

    System bundles, and bundles whose policy cannot be parsed or matches no broker, are ignored.
    """
    bundles = snapshot.bundles
    readable = isolation.readable & ~isolation.unmatched
    governed = (isolation.policy >= 0) & np.append(readable, [False, False])[isolation.policy]
    allowed = isolation.matrix()[bundles.namespace, bundles.owner]
    rows: Ints = np.flatnonzero(governed[bundles.namespace] & ~allowed & ~bundles.system)
    return rows


def _take(
    draft: Draft, isolation: AppliedIsolation, eligible: Eligibility, rows: Ints, hold: Hold | None
) -> list[Refusal]:
    """Plan moves of the misplaced bundles `rows`; return a refusal for each of them that stays."""
    snapshot, limit = draft.snapshot, draft.params.repair_max_moves_per_cycle
    movable = eligible.mask.copy()
    movable[np.array(eligible.codes.rows_with([Code.IDLE]), dtype=np.int64)] = True
    refusals = [eligible.refusal(snapshot, row) for row in rows[~movable[rows]].tolist()]
    for row in in_order(draft, rows[movable[rows]]):
        name, source = snapshot.bundles.names[row], int(snapshot.bundles.owner[row])
        refusal = Refusal(Code.NO_LEGAL_TARGET, name, snapshot.brokers.ids[source])
        number = int(isolation.policy[snapshot.bundles.namespace[row]])
        if hold is not None:
            refusals.append(refusal._replace(code=hold.code, detail=hold.sentence, frees_ms=hold.until_ms))
        elif len(draft.moves) >= limit:
            detail = f"limit {limit} a cycle, continues in the next cycle"
            used = float(len(draft.moves))
            refusals.append(refusal._replace(code=Code.BUDGET_OF_REPAIR, detail=detail, limit=float(limit), used=used))
        elif draft.held[snapshot.bundles.namespace[row]]:
            refusals.append(refusal._replace(code=Code.ANTI_AFFINITY))
        else:
            target, runner_up, code = best_target(draft, row, source, isolation.primary[number] & ~draft.closed)
            if code is not None:
                # Secondaries are allowed while too few primaries are live: better than a broker outside of the policy.
                target, runner_up, code = best_target(draft, row, source, isolation.masks[number] & ~draft.closed)
            if code is None:
                draft.take(row, source, target, rule=REPAIR, threshold=0.0, runner_up=runner_up)
            else:
                refusals.append(refusal._replace(code=code))
    return refusals
