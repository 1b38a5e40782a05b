"""`deviation`: while the most loaded broker stands out by standard deviations, it gives to the least loaded one.

Pulsar ships only the abstract DeviationShedder (2.9 to 3.0, gone in 4.x): no value of a broker, no threshold, and an
error of sign that takes a moved bundle's value off the target as well, so that its sums drift and it stops at the
wrong time. The meaning given here:
* a broker's value is its score, a bundle's value the share of it that the bundle accounts for;
* with the mean and the population's standard deviation of all scores, moves are made while
  `(max - mean) / std > deviation_threshold`; a cluster whose scores are all equal is balanced (Pulsar divides by zero);
* each move goes from the most to the least loaded broker that can take it, brings both nearer to the mean and never
  swaps their roles; a donor with nothing suitable is left out (where Pulsar's loop may run out of brokers and fail);
* a difference below `min_unload_share` of the mean is noise: with nearly equal scores somebody always stands out.

Two brokers are always one deviation from their mean, and one idle broker among many full ones makes none of these
stand out: a threshold of 1.0 never acts on either. `avg` does.
"""

from __future__ import annotations

import math

import numpy as np

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Ints
from bundlekeel.core.model.plan import Refusal, Verdict
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.model.text_format import numbered
from bundlekeel.core.strategies.common import (
    EPSILON,
    Candidates,
    Context,
    Decision,
    best_fit,
    candidates,
    counting,
    refuse_rest,
)
from bundlekeel.core.strategies.placement import legal_targets
from bundlekeel.core.strategies.refusals import TriedTarget, refuse_unfit, stuck
from bundlekeel.core.strategies.timing import excess_where, timing

# When no bundle fits on the least loaded broker, these many next ones are tried: they may be larger, or allowed.
TARGETS_TRIED = 4


def shed(context: Context) -> Decision:
    """Move from the most to the least loaded broker until none stands out."""
    ids = context.snapshot.brokers.ids
    spread = _Spread(context)
    mean, std = spread.mean, spread.std
    before = [_verdict(context, row, mean, std) for row in context.rows]
    donors: dict[int, Candidates] = {}
    refusals: list[Refusal] = []
    finished: set[int] = set()
    times = timing(context, excess_where(context, _stand_out(context, spread)))
    can_give: Bools = np.isin(np.arange(len(ids)), list(times.ripe))
    end = Code.BALANCED
    while (source := _standing_out(context, can_give, spread)) >= 0:
        if context.full():
            end = Code.BUDGET_PER_CYCLE
            break
        if source not in donors:
            donors[source] = candidates(context, source)
        failed = _move_one(context, source, donors[source], spread)
        if failed is not None:
            refusals += failed
            finished.add(source)
            can_give[source] = False
    for row in donors.keys() - finished:
        refusals += refuse_rest(context, row, donors[row], end)
    if end is Code.BUDGET_PER_CYCLE and source not in donors:
        refusals.append(Refusal(code=end, broker=ids[source]))
    brokers = [times.waiting.get(row) or verdict for row, verdict in zip(context.rows, before, strict=True)]
    refusals.sort(key=lambda item: (item.broker, item.bundle))
    if times.waiting and not times.ripe:
        verdict = times.verdict(context, times.waiting)
    else:
        verdict = _cycle_verdict(context, donors, refusals, mean, std)
    memory = times.memory(context, times.ripe)
    return Decision(verdict=verdict, memory=memory, brokers=brokers, refusals=refusals)


class _Spread:
    """Mean and population standard deviation of the predicted scores of the brokers that can be balanced, updated with
    each move."""

    def __init__(self, context: Context) -> None:
        self._counting = counting(context)
        scores = context.draft.score[self._counting].tolist()
        self._count, self._sum = len(scores), math.fsum(scores)
        # Squares around the first mean: those around zero would lose what matters in the difference of two large sums.
        self._middle = self._sum / self._count
        self._squares = math.fsum((value - self._middle) ** 2 for value in scores)

    def change(self, row: int, old: float, new: float) -> None:
        """The score of a broker became another one."""
        if not self._counting[row]:
            return
        self._sum += new - old
        self._squares += (new - self._middle) ** 2 - (old - self._middle) ** 2

    @property
    def mean(self) -> float:
        """The mean score."""
        return self._sum / self._count

    @property
    def std(self) -> float:
        """The population's standard deviation."""
        return math.sqrt(max(self._squares / self._count - (self.mean - self._middle) ** 2, 0.0))


def _stand_out(context: Context, spread: _Spread) -> Bools:
    """Return which brokers exceed the mean by the threshold, and by more than noise."""
    above = context.draft.score - spread.mean
    out: Bools = above > context.params.deviation_threshold * spread.std + EPSILON
    return out & (above >= context.params.min_unload_share * spread.mean) & (spread.std > EPSILON)


def _standing_out(context: Context, can_give: Bools, spread: _Spread) -> int:
    """The most loaded broker that can still give and stands out, or -1."""
    able = can_give & _stand_out(context, spread)
    return int(np.argmax(np.where(able, context.draft.score, -np.inf))) if able.any() else -1


def _move_one(context: Context, source: int, given: Candidates, spread: _Spread) -> list[Refusal] | None:
    """Move the best fitting bundle to the least loaded broker that can take it; None, or why each stays."""
    draft, rows = context.draft, given.left(context.draft)
    targets: Ints = legal_targets(draft, source, rows)
    if len(rows) == 0 or len(targets) == 0:
        return refuse_rest(context, source, given, Code.NO_LEGAL_TARGET)
    before, mean = float(draft.score[source]), spread.mean
    ceiling = context.params.overloaded_threshold_percent / 100
    coldest = targets[np.argsort(draft.score[targets], kind="stable")[: TARGETS_TRIED + 2]].tolist()
    attempts = []
    for place, target in enumerate(coldest[: TARGETS_TRIED + 1]):
        other = float(draft.score[target])
        want = max(min(before - mean, mean - other), 0.0)
        offer = draft.offer(rows, source, target)
        chosen = best_fit(offer, before, other, want, ceiling=ceiling, slack=0.0)
        if chosen >= 0:
            runner_up = next(iter(coldest[place + 1 : place + 2]), -1)
            threshold = context.params.deviation_threshold
            draft.take(int(rows[chosen]), source, target, rule="deviation", threshold=threshold, runner_up=runner_up)
            spread.change(source, before, float(draft.score[source]))
            spread.change(target, other, float(draft.score[target]))
            return None
        attempts.append(TriedTarget(offer=offer, other=other, want=want))
    rest = Candidates(rows[:0], given.dust)
    return [*refuse_rest(context, source, rest, Code.NO_GAIN), *refuse_unfit(context, source, rows, attempts)]


def _verdict(context: Context, row: int, mean: float, std: float) -> Verdict:
    broker, score = context.snapshot.brokers.ids[row], float(context.draft.score[row])
    deviations = (score - mean) / std if std > EPSILON else 0.0
    over = deviations > context.params.deviation_threshold + EPSILON
    text = f"{score:.1%}, {deviations:+.2f} standard deviations from the mean of {mean:.1%}"
    return Verdict(code=Code.OVERLOADED if over else Code.BALANCED, sentence=text, broker=broker)


def _cycle_verdict(
    context: Context, donors: dict[int, Candidates], refusals: list[Refusal], mean: float, std: float
) -> Verdict:
    threshold = context.params.deviation_threshold
    if context.moves:
        who = numbered(len(context.moves), "bundle", "leave")
        return Verdict(code=Code.OVERLOADED, sentence=f"{who} brokers above {mean:.1%} + {threshold:g} x {std:.1%}")
    if donors:
        return stuck(
            context,
            refusals,
            f"{numbered(len(donors), 'broker', 'exceed')} the mean by {threshold:g} standard deviations",
        )
    text = f"no broker is above {mean:.1%} + {threshold:g} x {std:.1%} by enough to move anything"
    return Verdict(code=Code.BALANCED, sentence=text)
