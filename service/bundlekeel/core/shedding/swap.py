"""Swap: one bundle that is too big for the difference leaves, smaller ones come back (PIP-192).

The big one goes first and must fit by itself: not above the overload threshold, and not above where the giver was.
So whatever becomes of the rest, no broker ends worse than the worst one was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bundlekeel.core.budgets import admit
from bundlekeel.core.codes import Code
from bundlekeel.core.draft import four
from bundlekeel.core.load import Floats, Ints
from bundlekeel.core.plan import Move, Refusal, Traffic4
from bundlekeel.core.shedding.common import EPSILON, Context, candidates, refuse_rest
from bundlekeel.core.snapshot import Bools

# Of the bundles that are too big, the smallest ones; and how many bundles may come back for one.
SWAPS_TRIED = 8
MOST_BACK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A giver and a taker, and how far both must end below where the giver is now."""

    giver: int
    taker: int
    before: float
    goal: float


def swap(context: Context, giver: int, taker: int, rows: Ints, want: float) -> list[Refusal]:
    """Try one swap out of these rows of the giver; the refusals of the taker's other bundles, or nothing."""
    draft = context.draft
    given = candidates(context, taker)
    back = _ungrouped(context, given.rows)
    if len(rows) == 0 or len(back) == 0 or not draft.legal_targets()[giver]:
        return []
    before, other = float(draft.score[giver]), float(draft.score[taker])
    pair = _Pair(giver=giver, taker=taker, before=before, goal=before - (before - other) / 4)
    for row in _too_big(context, pair, _ungrouped(context, rows), want):
        returned = _returned(context, pair, row, back)
        if returned and _affordable(context, pair, row, returned):
            _take(context, row, giver, taker)
            for item in returned:
                _take(context, item, taker, giver)
            return refuse_rest(context, taker, given, Code.BALANCED)
    return []


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
    while len(chosen) < MOST_BACK and left.any():
        scores = _worse(context, pair, mine + pressure, np.maximum(other - pressure, 0.0))
        best = int(np.argmin(np.where(left, scores, np.inf)))
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
    if context.draft.bars is not None:
        allowed &= ~context.draft.bars.forbidden(rows, pair.taker, pair.giver)
    return allowed


def _affordable(context: Context, pair: _Pair, row: int, returned: list[int]) -> bool:
    """Whether this cycle's budgets admit the whole swap: half of one is not what was decided."""
    names, ids = context.snapshot.bundles.names, context.snapshot.brokers.ids
    there, here = (pair.giver, pair.taker), (pair.taker, pair.giver)
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
        for item, (source, target) in [(row, there), *((item, here) for item in returned)]
    )
    draft, now = context.draft, context.snapshot.wall_ms
    admitted, _ = admit((*draft.moves, *steps), context.params, context.guard, now, draft.carried())
    return admitted[len(admitted) - len(steps) :] == steps


def _traffic(context: Context, broker: int, row: int) -> Traffic4:
    return four(context.draft.expected(broker)[row - int(context.snapshot.bundles.starts[broker])])


def _take(context: Context, row: int, source: int, target: int) -> None:
    threshold = context.params.transfer_target_std
    context.draft.take(row, source, target, rule="transfer", threshold=threshold)
