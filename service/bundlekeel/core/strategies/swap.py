"""Swap: one bundle that is too big for the difference leaves, smaller ones come back (PIP-192).

The big one goes first and must fit by itself: not above the overload threshold, and not above where the giver was.
So whatever becomes of the rest, no broker ends worse than the worst one was. Where it fits nowhere, room is made: some
of the taker's bundles go to third brokers first (`make_room`), each where it fits by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bundlekeel.core.guard.budgets import admit
from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.plan import Move, Traffic4
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.planning.draft import four
from bundlekeel.core.strategies.common import EPSILON, Candidates, Context, candidates

# Of the bundles that are too big, the smallest ones; and how many bundles may come back for one.
SWAPS_TRIED = 8
MOST_BACK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """What is recorded of each move of a swap, and which brokers exchange."""

    giver: int
    taker: int
    rule: str
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A giver and a taker, and how far both must end below where the giver is now."""

    giver: int
    taker: int
    before: float
    goal: float


# A bundle (row), where it is and where it goes (rows of brokers).
_Step = tuple[int, int, int]


def swap(context: Context, asked: Swap, rows: Ints, want: float) -> Candidates | None:
    """Try one swap out of these rows of the giver; what the taker had to give before it, or None."""
    draft, given = context.draft, candidates(context, asked.taker)
    back = _ungrouped(context, given.rows)
    if len(rows) == 0 or len(back) == 0 or not draft.legal_targets()[asked.giver]:
        return None
    pair = _pair(context, asked)
    for row in _too_big(context, pair, _ungrouped(context, rows), want):
        returned = _returned(context, pair, row, back)
        steps = [(row, pair.giver, pair.taker), *((item, pair.taker, pair.giver) for item in returned)]
        if returned and _affordable(context, steps):
            _take(context, asked, steps)
            return given
    return None


def make_room(context: Context, asked: Swap, rows: Ints) -> Candidates | None:
    """Move some of the taker's bundles on to third brokers, then one of these rows of the giver to the taker; what the
    taker had to give before it, or None."""
    given, pair = candidates(context, asked.taker), _pair(context, asked)
    away = _ungrouped(context, given.rows)
    ceiling = min(context.params.overloaded_threshold_percent / 100, pair.goal)
    offer = context.draft.offer(rows, pair.giver, pair.taker)
    able = np.isfinite(offer.target_after) & (offer.source_after <= pair.goal + EPSILON)
    smallest = np.argsort(-offer.source_after, kind="stable")
    for row in _ungrouped(context, rows[smallest[able[smallest]]]).tolist()[:SWAPS_TRIED]:
        cleared = _cleared(context, pair, row, away, ceiling)
        steps = [*cleared, (row, pair.giver, pair.taker)]
        if cleared and _affordable(context, steps):
            _take(context, asked, steps)
            return given
    return None


def _pair(context: Context, asked: Swap) -> _Pair:
    before, other = (float(context.draft.score[row]) for row in (asked.giver, asked.taker))
    return _Pair(giver=asked.giver, taker=asked.taker, before=before, goal=before - (before - other) / 4)


def _cleared(context: Context, pair: _Pair, row: int, away: Ints, ceiling: float) -> list[_Step]:
    """The moves that make room for this bundle, the largest first that fits the coldest third broker; none if a few of
    them do not do."""
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
    """Rows whose namespace is in no anti-affinity group: after one move of a group, the others of it stay put."""
    spaces = context.snapshot.bundles.namespace[rows].tolist()
    alone = np.array([context.draft.group_of(space) < 0 for space in spaces], dtype=bool)
    found: Ints = rows[alone]
    return found


def _pressure(context: Context, broker: int, rows: Ints) -> Floats:
    pressure: Floats = context.draft.pressure(broker)[rows - int(context.snapshot.bundles.starts[broker])]
    return pressure


def _too_big(context: Context, pair: _Pair, rows: Ints, want: float) -> list[int]:
    """The bundles worth a try, smallest first: too big to go alone, and yet no harm while they are there."""
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
    """The taker's bundles that should come back for this one, or none if it helps too little.

    One at a time, always the one after which the worse of both brokers is best.
    """
    draft = context.draft
    big = _pressure(context, pair.giver, np.array([row]))[0]
    mine, other = np.maximum(draft.usage[pair.giver] - big, 0.0), draft.usage[pair.taker] + big
    pressure, left = _pressure(context, pair.taker, back), _allowed(context, pair, back)
    worst, chosen = _worse(context, pair, mine[None], other[None])[0], list[int]()
    while len(chosen) < MOST_BACK:
        scores = np.where(left, _worse(context, pair, mine + pressure, np.maximum(other - pressure, 0.0)), np.inf)
        best = int(np.argmin(scores))
        if scores[best] >= worst - EPSILON:
            break
        worst, mine, other = scores[best], mine + pressure[best], np.maximum(other - pressure[best], 0.0)
        left[best] = False
        chosen.append(int(back[best]))
    return chosen if worst <= pair.goal + EPSILON else []


def _worse(context: Context, pair: _Pair, mine: Floats, other: Floats) -> Floats:
    worse: Floats = np.maximum(context.draft.scores(mine, pair.giver), context.draft.scores(other, pair.taker))
    return worse


def _allowed(context: Context, pair: _Pair, rows: Ints) -> Bools:
    """Which of the taker's bundles may come back: policies leave them to the giver, and brokers can tell the two."""
    if pair.giver in context.draft.alike.get(pair.taker, ()):
        return np.zeros(len(rows), dtype=bool)
    allowed = np.ones(len(rows), dtype=bool)
    if context.draft.allowed is not None:
        allowed &= context.draft.allowed[context.snapshot.bundles.namespace[rows], pair.giver]
    if context.draft.bans is not None:
        allowed &= ~context.draft.bans.forbidden(rows, pair.taker, pair.giver)
    return allowed


def _affordable(context: Context, given: list[_Step]) -> bool:
    """Whether this cycle's budgets admit the whole swap: half of one is not what was decided."""
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
            traffic=_traffic(context, source, item),
            pressure=(),
        )
        for item, source, target in given
    )
    draft, now = context.draft, context.snapshot.wall_ms
    admitted, _ = admit((*draft.moves, *steps), context.params, context.guard, now, draft.carried())
    return admitted[len(admitted) - len(steps) :] == steps


def _traffic(context: Context, broker: int, row: int) -> Traffic4:
    return four(context.draft.expected(broker)[row - int(context.snapshot.bundles.starts[broker])])


def _take(context: Context, asked: Swap, steps: list[_Step]) -> None:
    for row, source, target in steps:
        context.draft.take(row, source, target, rule=asked.rule, threshold=asked.threshold)
