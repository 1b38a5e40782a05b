"""Move bundles for `threshold` and `overload`: first choose the bundle, then let the placement choose its target.

The placement chooses among the brokers that can take the bundle. With the bundle, such a broker must stay below the
overload threshold, below the source's present score, and at or below the score from which the shedder acts. Otherwise
the target would shed the bundle again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.plan import Refusal
from bundlekeel.model.snapshot import Bools
from bundlekeel.planning.strategies.common import EPSILON, Candidates, Context, legal_after, refuse_all, refuse_rest
from bundlekeel.planning.strategies.placement import least_resource_usage, legal_targets
from bundlekeel.planning.strategies.refusals import TriedTarget, refuse_unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Name and threshold of a strategy, recorded with each move. `line`: score from which a broker sheds."""

    name: str
    threshold: float
    line: float


@dataclass(frozen=True, slots=True)
class _Offer:
    """A bundle (row) that could leave a source broker (row).

    `relief`: decrease of the source's score by its move. `need`: needed decrease. `line`: score from which a broker
    sheds.
    """

    row: int
    source: int
    relief: float
    need: float
    line: float


def shed_broker(context: Context, source: int, donor: Candidates, need: float, rule: Rule) -> list[Refusal]:
    """Move bundles off one broker until `need` (a score difference) is met; return refusals of the other bundles."""
    draft = context.draft
    while need > EPSILON:
        if context.full():
            return refuse_rest(context, source, donor, Code.BUDGET_PER_CYCLE)
        rows = donor.left(draft)
        row, target, runner_up = _choose(context, source, rows, need, rule.line)
        if row < 0:
            dust = Candidates(rows[:0], donor.dust)
            return [*refuse_rest(context, source, dust, Code.NO_GAIN), *_unfit(context, source, rows, need)]
        before = float(draft.score[source])
        draft.take(row, source, target, rule=rule.name, threshold=rule.threshold, runner_up=runner_up)
        need -= before - float(draft.score[source])
    return refuse_rest(context, source, donor, Code.BALANCED)


def _choose(context: Context, source: int, rows: Ints, need: float, line: float) -> tuple[int, int, int]:
    """Return (bundle row, target row, row of the second-best target) of the next move, or (-1, -1, -1).

    If only the last row is -1, there is no second-best target. `need`: score that must leave `source`. `line`: score
    from which a broker sheds.
    """
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
    """Return each target's score with the bundle, and a mask of the targets that can take the bundle."""
    draft, ceiling = context.draft, context.params.overloaded_threshold_percent / 100
    before, after = float(draft.score[offer.source]), draft.with_bundle(offer.row, offer.source, targets)
    able = legal_after(after, before, ceiling) & (after <= offer.line + EPSILON)
    if offer.relief > offer.need + EPSILON:
        # A bundle larger than needed must leave the target a quarter of the difference below the source's present
        # score, and the source a quarter above the target's present score.
        quarter = (before - draft.score[targets]) / 4 - EPSILON
        able &= (after <= before - quarter) & (before - offer.relief >= draft.score[targets] + quarter)
    return after, able


def _ranked(context: Context, offer: _Offer, targets: Ints) -> list[int]:
    """Return the placement's first two choices among these targets."""
    able = targets[_able(context, offer, targets)[1]]
    if len(able) == 0:
        return []
    # A third party's placement may return any value; only candidates count.
    may_take = np.zeros(len(context.draft.score), dtype=bool)
    may_take[able] = True
    ranking = context.placement(context.draft, offer.row, offer.source, able)
    return list(islice((int(item) for item in ranking if may_take[item]), 2))


def _two_coldest(context: Context, offer: _Offer) -> list[int]:
    """Return the first two choices of the placement `least_resource_usage` without a check of all brokers.

    Returns [] if the least loaded brokers alone do not determine them.
    """
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
    """Yield the indices of the bundles in the order in which they are tried.

    `relief`: decrease of the source's score by each bundle. The largest bundle up to `need` comes first, then smaller
    ones, then the smallest bundle above `need` and larger ones. Steps grow, because there may be hundreds of bundles
    that no broker can take.
    """
    fitting = np.where(relief <= need + EPSILON, relief, 0.0)
    first = int(fitting.argmax())
    if fitting[first] > EPSILON:
        yield first  # It usually moves, which saves the sorting below.
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
    """Return refusals of the bundles `rows`, which fit on none of the four least loaded targets."""
    draft, targets = context.draft, legal_targets(context.draft, source, rows)
    if len(targets) == 0:
        return refuse_all(context, source, rows, Code.NO_LEGAL_TARGET)
    coldest = targets[np.argsort(draft.score[targets], kind="stable")[:4]].tolist()
    attempts = [
        TriedTarget(offer=draft.offer(rows, source, target), other=float(draft.score[target]), want=need)
        for target in coldest
    ]
    return refuse_unfit(context, source, rows, attempts)
