"""Drain: which bundles of a broker that is to be empty go where now. Pure; runs before the shedder.

Pulsar has no cordon, and its placement prefers an empty broker, so a drain is no plan but a loop: every cycle what is
there leaves, idle bundles too. What binds a bundle whatever a person says binds it here as well: heartbeat, SLA and
`pulsar/system` bundles, pins, exclusions, policies, moves under way and frozen intents. Idle, cool-down and what the
reports do not show yet do not; a drain has a budget of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, zip_longest

import numpy as np

from bundlekeel.core.guard.eligibility import Eligibility
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Ints
from bundlekeel.core.model.plan import Refusal
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.planning.draft import Draft

RULE = "drain"
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

    `movable` marks bundles (rows) a person may move, `eligible` tells why the others may not. `closed`: brokers that
    take nothing. `owned`: what a source owns by its own list; without it, what it reports counts. `budget`: moves.
    """
    ids, given = draft.snapshot.brokers.ids, budget
    rows = [row for row, broker in enumerate(ids) if broker in sources]
    open_to = np.array([broker not in closed and broker not in sources for broker in ids], dtype=bool)
    refusals: list[Refusal] = []
    queues = []
    for source in rows:
        here = _there(draft, source, owned.get(ids[source]))
        refusals += _bound(draft, here[~movable[here]], eligible, ids[source])
        queues.append([(source, row) for row in _in_order(draft, here[movable[here]])])
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
        draft.take(row, source, target, rule=RULE, threshold=0.0, runner_up=runner_up)
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


def _bound(draft: Draft, rows: Ints, eligible: Eligibility, broker: str) -> list[Refusal]:
    """Why these stay. System bundles belong to the broker: they are not counted as left behind."""
    bundles = draft.snapshot.bundles
    return [
        Refusal(eligible.codes[row], bundles.names[row], broker) for row in rows.tolist() if not bundles.system[row]
    ]


def _in_order(draft: Draft, rows: Ints) -> list[int]:
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
