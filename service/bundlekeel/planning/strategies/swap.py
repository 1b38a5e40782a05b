"""Swaps: a bundle that is too big for the difference of two brokers moves, and smaller ones return (PIP-192).

The big bundle moves first, from the giver to the taker. With the bundle, the taker must stay below the overload
threshold and below the giver's present score. So even if the other moves fail, the maximum does not increase. If the
bundle fits nowhere, `make_room` first moves some of the taker's bundles to other brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.plan import Move, Traffic4
from bundlekeel.model.snapshot import Bools
from bundlekeel.planning.draft import four
from bundlekeel.planning.guard.budgets import admit
from bundlekeel.planning.strategies.common import EPSILON, Candidates, Context, candidates

# Number of too big bundles to try, the smallest ones first, and maximum number of bundles that return for one of them.
SWAPS_TRIED = 8
MOST_BACK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Two brokers (rows) that exchange bundles, and the rule and threshold to record with each move."""

    giver: int
    taker: int
    rule: str
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A giver and a taker of bundles (rows).

    `before`: present score of the giver. `goal`: highest score that giver and taker may have after the swap.
    """

    giver: int
    taker: int
    before: float
    goal: float


# Bundle, source and target, as rows.
_Step = tuple[int, int, int]


def swap(context: Context, exchange: Swap, rows: Ints, want: float) -> Candidates | None:
    """Try to swap one of the bundles `rows` of the giver for smaller ones of the taker.

    Returns the taker's movable bundles, as they were before the swap; None if no swap is possible. `want`: only bundles
    that would relieve the giver by more than this score are swapped.
    """
    draft, offers = context.draft, candidates(context, exchange.taker)
    back = _ungrouped(context, offers.rows)
    if len(rows) == 0 or len(back) == 0 or not draft.legal_targets()[exchange.giver]:
        return None
    pair = _pair(context, exchange)
    for row in _too_big(context, pair, _ungrouped(context, rows), want):
        returned = _returned(context, pair, row, back)
        steps = [(row, pair.giver, pair.taker), *((item, pair.taker, pair.giver) for item in returned)]
        if returned and _affordable(context, steps):
            _take(context, exchange, steps)
            return offers
    return None


def make_room(context: Context, exchange: Swap, rows: Ints) -> Candidates | None:
    """Move some of the taker's bundles to brokers other than the giver, then one of the giver's bundles `rows` to the
    taker.

    Returns the taker's movable bundles, as they were before these moves; None if nothing moves.
    """
    offers, pair = candidates(context, exchange.taker), _pair(context, exchange)
    away = _ungrouped(context, offers.rows)
    ceiling = min(context.params.overloaded_threshold_percent / 100, pair.goal)
    offer = context.draft.offer(rows, pair.giver, pair.taker)
    able = np.isfinite(offer.target_after) & (offer.source_after <= pair.goal + EPSILON)
    smallest = np.argsort(-offer.source_after, kind="stable")
    for row in _ungrouped(context, rows[smallest[able[smallest]]]).tolist()[:SWAPS_TRIED]:
        cleared = _cleared(context, pair, row, away, ceiling)
        steps = [*cleared, (row, pair.giver, pair.taker)]
        if cleared and _affordable(context, steps):
            _take(context, exchange, steps)
            return offers
    return None


def _pair(context: Context, exchange: Swap) -> _Pair:
    before, other = (float(context.draft.score[row]) for row in (exchange.giver, exchange.taker))
    return _Pair(giver=exchange.giver, taker=exchange.taker, before=before, goal=before - (before - other) / 4)


def _cleared(context: Context, pair: _Pair, row: int, away: Ints, ceiling: float) -> list[_Step]:
    """Return the moves that make room for the bundle `row` at the taker; [] if `MOST_BACK` moves are not enough.

    Each moves the largest bundle that fits on the least loaded broker other than giver and taker. `away`: rows of the
    taker's bundles that may move. `ceiling`: highest score that a move may lead to.
    """
    draft, usage = context.draft, context.draft.usage.copy()
    big, starts = _pressure(context, pair.giver, np.array([row])), context.snapshot.bundles.starts
    others = draft.legal_targets()
    others[[pair.giver, pair.taker]] = False
    score, steps, left = np.where(others, draft.score, np.inf), list[_Step](), away
    while draft.scores(usage[[pair.taker]] + big, pair.taker)[0] > ceiling:
        third = int(np.argmin(score))
        if len(steps) == MOST_BACK or len(left) == 0 or score[third] == np.inf:
            return []
        pressure = draft.pressure(pair.taker)[left - int(starts[pair.taker])]
        after = draft.scores(usage[third] + pressure, third)
        fits = np.isfinite(draft.offer(left, pair.taker, third).target_after) & (after < ceiling)
        if not fits.any():
            return []
        best = int(np.argmax(np.where(fits, after, -np.inf)))
        steps.append((int(left[best]), pair.taker, third))
        usage[third] += pressure[best]
        usage[pair.taker] = np.maximum(usage[pair.taker] - pressure[best], 0.0)
        score[third] = after[best]
        left = np.delete(left, best)
    return steps


def _ungrouped(context: Context, rows: Ints) -> Ints:
    """Return the bundles (rows) without an anti-affinity group: of a group, only one bundle may move per plan."""
    spaces = context.snapshot.bundles.namespace[rows].tolist()
    alone = np.array([context.draft.group_of(space) < 0 for space in spaces], dtype=bool)
    free: Ints = rows[alone]
    return free


def _pressure(context: Context, broker: int, rows: Ints) -> Floats:
    pressure: Floats = context.draft.pressure(broker)[rows - int(context.snapshot.bundles.starts[broker])]
    return pressure


def _too_big(context: Context, pair: _Pair, rows: Ints, want: float) -> list[int]:
    """Return the bundles (rows) that are too big to move alone but not too big for the taker; smallest first."""
    if len(rows) == 0:
        return []
    offer = context.draft.offer(rows, pair.giver, pair.taker)
    relief = pair.before - offer.source_after
    ceiling = context.params.overloaded_threshold_percent / 100
    able = (relief > want + EPSILON) & (offer.target_after <= min(ceiling, pair.before) + EPSILON)
    places = np.flatnonzero(able)
    smallest: Ints = rows[places[np.argsort(relief[places], kind="stable")[:SWAPS_TRIED]]]
    return list(map(int, smallest))


def _returned(context: Context, pair: _Pair, row: int, back: Ints) -> list[int]:
    """Return the taker's bundles that should move to the giver in return for the bundle `row`.

    They are chosen from `back` (rows) one at a time: each time the bundle that most reduces the higher score of giver
    and taker. Returns [] if the higher score stays above `pair.goal`.
    """
    draft = context.draft
    big = _pressure(context, pair.giver, np.array([row]))[0]
    mine, other = np.maximum(draft.usage[pair.giver] - big, 0.0), draft.usage[pair.taker] + big
    pressure, left = _pressure(context, pair.taker, back), _allowed(context, pair, back)
    worst, selection = _worse(context, pair, mine[None], other[None])[0], list[int]()
    while len(selection) < MOST_BACK:
        scores = np.where(left, _worse(context, pair, mine + pressure, np.maximum(other - pressure, 0.0)), np.inf)
        best = int(np.argmin(scores))
        if scores[best] >= worst - EPSILON:
            break
        worst, mine, other = scores[best], mine + pressure[best], np.maximum(other - pressure[best], 0.0)
        left[best] = False
        selection.append(int(back[best]))
    return selection if worst <= pair.goal + EPSILON else []


def _worse(context: Context, pair: _Pair, mine: Floats, other: Floats) -> Floats:
    worse: Floats = np.maximum(context.draft.scores(mine, pair.giver), context.draft.scores(other, pair.taker))
    return worse


def _allowed(context: Context, pair: _Pair, rows: Ints) -> Bools:
    """Return a mask of the taker's bundles that may move to the giver by policies, bans and broker ids."""
    if pair.giver in context.draft.alike.get(pair.taker, ()):
        return np.zeros(len(rows), dtype=bool)
    allowed = np.ones(len(rows), dtype=bool)
    if context.draft.allowed is not None:
        allowed &= context.draft.allowed[context.snapshot.bundles.namespace[rows], pair.giver]
    if context.draft.bans is not None:
        allowed &= ~context.draft.bans.forbidden(rows, pair.taker, pair.giver)
    return allowed


def _affordable(context: Context, planned: list[_Step]) -> bool:
    """Return whether this cycle's budgets admit all these moves: half a swap does not improve the balance."""
    names, ids = context.snapshot.bundles.names, context.snapshot.brokers.ids
    steps = tuple(
        Move(
            bundle=names[item],
            source=ids[source],
            target=ids[target],
            rule="",
            threshold=0.0,
            source_before=0.0,
            source_after=0.0,
            target_before=0.0,
            target_after=0.0,
            runner_up="",
            traffic=_traffic(context, source, item),
            pressure=(),
        )
        for item, source, target in planned
    )
    draft, now = context.draft, context.snapshot.wall_ms
    admitted, _ = admit((*draft.moves, *steps), context.params, context.guard, now, draft.carried())
    return admitted[len(admitted) - len(steps) :] == steps


def _traffic(context: Context, broker: int, row: int) -> Traffic4:
    return four(context.draft.expected(broker)[row - int(context.snapshot.bundles.starts[broker])])


def _take(context: Context, exchange: Swap, steps: list[_Step]) -> None:
    for row, source, target in steps:
        context.draft.take(row, source, target, rule=exchange.rule, threshold=exchange.threshold)
