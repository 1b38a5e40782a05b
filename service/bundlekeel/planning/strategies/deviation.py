"""`deviation`: the most loaded broker gives bundles while it is above the mean by several standard deviations.

The least loaded brokers take them. Pulsar has only the abstract class DeviationShedder (2.9 to 3.0, removed in 4.x). It
defines neither a broker's value nor a threshold. By an error of sign, it subtracts a moved bundle's value from the
target too, so its sums drift and it stops at the wrong time. This strategy uses these definitions:
* a broker's value is its score; a bundle's value is the part of the score that it causes;
* bundles move while `(max - mean) / std > deviation_threshold`, with the population's standard deviation of all scores;
  a cluster with equal scores is balanced (Pulsar divides by zero);
* each move goes from the most loaded broker to the least loaded one that can take the bundle. It brings both nearer to
  the mean and never swaps their roles. A donor without a suitable bundle is skipped (Pulsar's loop can run out of
  brokers and fail);
* a difference below `min_unload_share` of the mean is noise: of nearly equal scores, one is always far from the mean in
  deviations.

Two brokers are always one deviation from their mean, and one idle broker among many loaded brokers gives no broker a
large deviation. A threshold of 1.0 never acts on either cluster, but `avg` does.
"""

from __future__ import annotations

import math

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Ints
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.model.snapshot import Bools
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.strategies.common import (
    EPSILON,
    Candidates,
    Context,
    Decision,
    best_fit,
    candidates,
    counting,
    refuse_rest,
)
from bundlekeel.planning.strategies.placement import legal_targets
from bundlekeel.planning.strategies.refusals import TriedTarget, refuse_unfit, stuck
from bundlekeel.planning.strategies.timing import excess_where, timing

# If no bundle fits on the least loaded broker, this number of next ones is tried: they may be larger, or allowed.
TARGETS_TRIED = 4


def shed(context: Context) -> Decision:
    """Move bundles from the most to the least loaded broker until no broker exceeds the threshold."""
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
    """Mean and population standard deviation of the predicted scores, updated by each move.

    Brokers that `counting` excludes do not count.
    """

    def __init__(self, context: Context) -> None:
        self._counting = counting(context)
        scores = context.draft.score[self._counting].tolist()
        self._count, self._sum = len(scores), math.fsum(scores)
        # Squares are relative to the first mean, because the difference of two large sums would lose precision.
        self._middle = self._sum / self._count
        self._squares = math.fsum((value - self._middle) ** 2 for value in scores)

    def change(self, row: int, old: float, new: float) -> None:
        """Update mean and deviation after the score of a broker has changed."""
        if not self._counting[row]:
            return
        self._sum += new - old
        self._squares += (new - self._middle) ** 2 - (old - self._middle) ** 2

    @property
    def mean(self) -> float:
        return self._sum / self._count

    @property
    def std(self) -> float:
        """The population standard deviation of the scores."""
        return math.sqrt(max(self._squares / self._count - (self.mean - self._middle) ** 2, 0.0))


def _stand_out(context: Context, spread: _Spread) -> Bools:
    """Return a mask of the brokers that exceed the mean by more than the threshold and by more than noise."""
    above = context.draft.score - spread.mean
    out: Bools = above > context.params.deviation_threshold * spread.std + EPSILON
    return out & (above >= context.params.min_unload_share * spread.mean) & (spread.std > EPSILON)


def _standing_out(context: Context, can_give: Bools, spread: _Spread) -> int:
    """Return the most loaded broker (row) that can give and exceeds the threshold; -1 if there is none."""
    able = can_give & _stand_out(context, spread)
    return int(np.argmax(np.where(able, context.draft.score, -np.inf))) if able.any() else -1


def _move_one(context: Context, source: int, donor: Candidates, spread: _Spread) -> list[Refusal] | None:
    """Move the best fitting bundle to the least loaded broker that can take it; return refusals if no bundle fits."""
    draft, rows = context.draft, donor.left(context.draft)
    targets: Ints = legal_targets(draft, source, rows)
    if len(rows) == 0 or len(targets) == 0:
        return refuse_rest(context, source, donor, Code.NO_LEGAL_TARGET)
    before, mean = float(draft.score[source]), spread.mean
    ceiling = context.params.overloaded_threshold_percent / 100
    coldest = targets[np.argsort(draft.score[targets], kind="stable")[: TARGETS_TRIED + 2]].tolist()
    attempts = []
    for place, target in enumerate(coldest[: TARGETS_TRIED + 1]):
        other = float(draft.score[target])
        want = max(min(before - mean, mean - other), 0.0)
        offer = draft.offer(rows, source, target)
        best = best_fit(offer, before, other, want, ceiling=ceiling, slack=0.0)
        if best >= 0:
            runner_up = next(iter(coldest[place + 1 : place + 2]), -1)
            threshold = context.params.deviation_threshold
            draft.take(int(rows[best]), source, target, rule="deviation", threshold=threshold, runner_up=runner_up)
            spread.change(source, before, float(draft.score[source]))
            spread.change(target, other, float(draft.score[target]))
            return None
        attempts.append(TriedTarget(offer=offer, other=other, want=want))
    rest = Candidates(rows[:0], donor.dust)
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
