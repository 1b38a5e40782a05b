"""Shedding whose destination the placement chooses (`threshold`, `overload`): bundle first, then its place.

The placement is asked for the very bundle that moves and among the brokers that can take it: below the overload
threshold, below where the source was, and not above the shedder's own line, or the target would shed it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.plan import Refusal
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.strategies.common import EPSILON, Candidates, Context, legal_after, refuse_all, refuse_rest
from bundlekeel.core.strategies.placement import least_resource_usage, legal_targets
from bundlekeel.core.strategies.refusals import TriedTarget, refuse_unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What moves are recorded with: the strategy, its threshold, and the score from which on a broker sheds by it."""

    name: str
    threshold: float
    line: float


@dataclass(frozen=True, slots=True)
class _Offer:
    """A bundle (row) of a giver (row): what it would relieve it of, and what the giver needs; the shedder's line."""

    row: int
    source: int
    relief: float
    need: float
    line: float


def shed_broker(context: Context, source: int, given: Candidates, need: float, rule: Rule) -> list[Refusal]:
    """Move bundles off one broker until `need` (a score difference) is met; returns the refusals of the others."""
    draft = context.draft
    while need > EPSILON:
        if context.full():
            return refuse_rest(context, source, given, Code.BUDGET_PER_CYCLE)
        rows = given.left(draft)
        chosen, target, runner_up = _choose(context, source, rows, need, rule.line)
        if chosen < 0:
            kept = Candidates(rows[:0], given.dust)
            return [*refuse_rest(context, source, kept, Code.NO_GAIN), *_unfit(context, source, rows, need)]
        before = float(draft.score[source])
        draft.take(chosen, source, target, rule=rule.name, threshold=rule.threshold, runner_up=runner_up)
        need -= before - float(draft.score[source])
    return refuse_rest(context, source, given, Code.BALANCED)


def _choose(context: Context, source: int, rows: Ints, need: float, line: float) -> tuple[int, int, int]:
    """(bundle row, target row, runner-up row) of the next move, or (-1, -1, -1)."""
    draft = context.draft
    if len(rows) == 0:
        return -1, -1, -1
    relief = float(draft.score[source]) - draft.without(rows, source)
    targets: Ints | None = None
    for index in _in_order(relief, need):
        offer = _Offer(int(rows[index]), source, float(relief[index]), need, line)
        ranked = _two_coldest(context, offer) if context.placement is least_resource_usage else []
        if len(ranked) < 2:
            targets = legal_targets(draft, source, rows) if targets is None else targets
            ranked = _ranked(context, offer, targets)
        if ranked:
            return offer.row, ranked[0], ranked[1] if len(ranked) > 1 else -1
    return -1, -1, -1


def _able(context: Context, offer: _Offer, targets: Ints) -> tuple[Floats, Bools]:
    """What score each of these targets would have with the bundle, and which of them can take it."""
    draft, ceiling = context.draft, context.params.overloaded_threshold_percent / 100
    before, after = float(draft.score[offer.source]), draft.with_bundle(offer.row, offer.source, targets)
    able = legal_after(after, before, ceiling) & (after <= offer.line + EPSILON)
    if offer.relief > offer.need + EPSILON:
        # More than is needed: only if it leaves at least a quarter of the difference on both sides.
        quarter = (before - draft.score[targets]) / 4 - EPSILON
        able &= (after <= before - quarter) & (before - offer.relief >= draft.score[targets] + quarter)
    return after, able


def _ranked(context: Context, offer: _Offer, targets: Ints) -> list[int]:
    """The first two that the placement names of all these targets."""
    able = targets[_able(context, offer, targets)[1]]
    if len(able) == 0:
        return []
    # A third party's placement may answer anything; only candidates count.
    may_take = np.zeros(len(context.draft.score), dtype=bool)
    may_take[able] = True
    asked = context.placement(context.draft, offer.row, offer.source, able)
    return list(islice((int(item) for item in asked if may_take[item]), 2))


def _two_coldest(context: Context, offer: _Offer) -> list[int]:
    """The first two of `least_resource_usage` by a look at the coldest brokers alone; none where that does not settle
    it."""
    draft = context.draft
    targets, others = draft.coldest(offer.row, offer.source)
    after, able = _able(context, offer, targets)
    after[~able] = np.inf
    if len(after) < 2:
        return []
    first = int(after.argmin())
    after[first] = np.inf
    second = int(after.argmin())
    return [int(targets[first]), int(targets[second])] if after[second] < others else []


def _in_order(relief: Floats, need: float) -> Iterator[int]:
    """Which bundles to try: the largest that is not above the need, then smaller ones in growing steps (hundreds of
    bundles that no broker can take are not tried one by one), then the smallest above it and larger ones."""
    fitting = np.where(relief <= need + EPSILON, relief, 0.0)
    first = int(fitting.argmax())
    if fitting[first] > EPSILON:
        yield first  # mostly taken, before anything is sorted
    order = np.argsort(-relief, kind="stable")
    helps = order[relief[order] > EPSILON]
    over = int((relief[helps] > need + EPSILON).sum())
    for part in (helps[over:], helps[:over][::-1]):
        place, step = 0, 1
        while place < len(part):
            if part[place] != first or relief[first] > need + EPSILON:
                yield int(part[place])
            last = place == len(part) - 1
            place = len(part) if last else min(place + step, len(part) - 1)
            step *= 2


def _unfit(context: Context, source: int, rows: Ints, need: float) -> list[Refusal]:
    """Why none of these fits, by the example of the broker with the most room."""
    draft, targets = context.draft, legal_targets(context.draft, source, rows)
    if len(targets) == 0:
        return refuse_all(context, source, rows, Code.NO_LEGAL_TARGET)
    coldest = targets[np.argsort(draft.score[targets], kind="stable")[:4]].tolist()
    attempts = [
        TriedTarget(offer=draft.offer(rows, source, target), other=float(draft.score[target]), want=need)
        for target in coldest
    ]
    return refuse_unfit(context, source, rows, attempts)
