"""`avg`: moves bundles directly from the most loaded broker to the least loaded one (PIP-364, AvgShedder).

Corrected against Pulsar's class (docs/reference/strategies.md lists each difference):
* the decision rule (planning/calm.py) replaces hit counts, high threshold and waiting for several reports;
* the tolerated difference scales with the mean score, so that a half-full cluster is balanced as tightly as a full one;
* a plan continues until the predicted difference is closed; each bundle moves once, directly to its final broker;
* the middle broker is never paired with itself, and idle bundles never move.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Ints
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.model.snapshot import Bools
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.strategies.common import (
    EPSILON,
    Candidates,
    Context,
    Decision,
    best_fit,
    candidates,
    refuse_all,
    refuse_rest,
    traffic_of,
)
from bundlekeel.planning.strategies.refusals import TriedTarget, refuse_unfit, stuck
from bundlekeel.planning.strategies.swap import Swap, make_room, swap
from bundlekeel.planning.strategies.timing import UNSETTLED, Timing, excess_of, settling, timing, tolerance

# If no bundle fits on the least loaded broker, this number of next ones is tried: they may be larger.
TARGETS_TRIED = 4


def shed(context: Context) -> Decision:
    """Move bundles until the cluster is balanced, once the imbalance has cost as much as the moves do."""
    low = tolerance(context.params, context.mean, context.base)
    times = timing(context, excess_of(context))
    active = times.ripe | _unfinished(context, low)
    brokers = _broker_verdicts(context, times, low, active)
    if not active:
        return Decision(verdict=_idle_verdict(context, times, low), memory=times.memory(context), brokers=brokers)
    refusals = _move(context, active, low)
    verdict = _acting_verdict(context, active, low, refusals)
    return Decision(verdict=verdict, memory=times.memory(context, active), brokers=brokers, refusals=refusals)


def _unfinished(context: Context, low: float) -> frozenset[int]:
    """Return the brokers (rows) whose balancing began in an earlier cycle and is not finished."""
    score, rows = context.draft.score, map(context.snapshot.broker_row, context.memory.active)
    distance, concerned = np.abs(score - context.mean), context.concerned()
    return frozenset(
        row for row in rows if row >= 0 and concerned[row] and distance[row] >= low / 4 + context.doubt[row]
    )


def _broker_verdicts(context: Context, times: Timing, low: float, active: frozenset[int]) -> list[Verdict]:
    verdicts, mean = [], context.mean
    against, within = f"against a mean of {mean:.1%}", f"within {low:.1%} of its partner"
    for row in context.rows:
        broker, score = context.snapshot.brokers.ids[row], float(context.draft.score[row])
        verdict = Verdict(Code.BALANCED, f"{score:.1%}, {within}", broker)
        if row in active:
            code = Code.OVERLOADED if score >= mean else Code.UNDERLOADED
            verdict = Verdict(code, f"{score:.1%} {against}", broker)
        elif broker in context.unsettled:
            verdict = Verdict(Code.UNSETTLED, UNSETTLED, broker)
        elif row in times.waiting:
            verdict = times.waiting[row]
        elif abs(score - mean) >= low:
            # This broker cannot be balanced with the others: it accepts no bundle and has no bundle to give.
            code = Code.OVERLOADED if score >= mean else Code.UNDERLOADED
            verdict = Verdict(code, f"{score:.1%} {against}; no partner differs enough", broker)
        verdicts.append(verdict)
    return verdicts


def _spread(context: Context) -> float:
    score = context.draft.score[context.concerned()]
    return float(score.max() - score.min())


def _idle_verdict(context: Context, times: Timing, low: float) -> Verdict:
    spread = _spread(context)
    if times.waiting:
        return times.verdict(context, times.waiting)
    text, noise = f"brokers differ by at most {spread:.1%}", float(context.doubt[context.concerned()].max())
    if spread < low:
        text += f", below {low:.1%}"
    else:
        text += f"; {low:.1%} is tolerated, and up to {noise:.1%} may be noise of their readings"
    return Verdict(code=Code.BALANCED, sentence=text)


def _acting_verdict(context: Context, active: frozenset[int], low: float, refusals: list[Refusal]) -> Verdict:
    moves, spread = context.moves, _spread(context)
    if moves:
        text = f"{numbered(len(moves), 'bundle')} to move; the predicted difference falls to {spread:.1%}"
        return Verdict(code=Code.OVERLOADED, sentence=text)
    if all(context.snapshot.brokers.ids[row] in context.unsettled for row in active):
        return settling(context)
    if spread < low:
        text = f"brokers differ by at most {spread:.1%}, below {low:.1%}"
        return Verdict(code=Code.BELOW_MINIMUM, sentence=text)
    return stuck(context, refusals, numbered(len(active), "broker", "differ") + " from the mean")


def _move(context: Context, active: frozenset[int], low: float) -> list[Refusal]:
    """Plan moves until the predicted differences are small enough or no broker can give more; return the refusals.

    `active`: rows of the brokers to balance. `low`: tolerated difference of two scores.
    """
    draft, mean = context.draft, context.mean
    involved, can_give = np.zeros(len(draft.score), dtype=bool), draft.members.copy()
    involved[list(active)] = True
    donors: dict[int, Candidates] = {}
    looked: set[int] = set()
    stopped: dict[int, list[Refusal]] = {}
    end = Code.BUDGET_PER_CYCLE
    while not context.full():
        pair = _next_pair(draft, involved, can_give)
        if pair is None:
            end = Code.NO_LEGAL_TARGET
            break
        cold, hot = pair
        if float(draft.score[hot] - draft.score[cold]) < _enough(context, cold, hot, low):
            end = Code.BALANCED
            break
        unfit = None
        if hot not in looked:
            looked.add(hot)
            donors.setdefault(hot, candidates(context, hot))
            unfit = _below_minimum(context, cold, hot, donors[hot].rows)
        if unfit is None:
            unfit = _move_one(context, cold, hot, donors[hot].left(draft), mean, low)
            if unfit and _swap(context, cold, hot, donors, low):
                unfit = None
        if unfit is not None:
            stopped[hot] = unfit
            can_give[hot] = False
    refusals: list[Refusal] = []
    for row in sorted({row for row in active if draft.score[row] >= mean} | set(donors)):
        if row in stopped:
            rest = Candidates(donors[row].rows[:0], donors[row].dust)
            refusals += [*refuse_rest(context, row, rest, end), *stopped[row]]
        elif row in donors:
            refusals += refuse_rest(context, row, donors[row], end)
        else:
            refusals.append(Refusal(code=end, broker=context.snapshot.brokers.ids[row]))
    return refusals


def _enough(context: Context, cold: int, hot: int, low: float) -> float:
    """Return the smallest difference of two brokers' scores that is worth a move.

    It is half of the tolerated difference `low`, or all of it for two brokers on the same side of the mean. It is at
    least half of the part of the difference that may be noise.
    """
    score, mean = context.draft.score, context.mean
    apart = low / 2 if score[cold] <= mean <= score[hot] else low
    return max(apart, float(context.doubt[hot] + context.doubt[cold]) / 2)


def _next_pair(draft: Draft, involved: Bools, can_give: Bools) -> tuple[int, int] | None:
    """Return the brokers (cold, hot) that differ most and may exchange bundles; None: there are no such brokers.

    At least one of them is in the mask `involved`, and the hot one is in the mask `can_give`.
    """
    score, legal = draft.score, draft.legal_targets()
    best: tuple[int, int] | None = None
    widest, giving = -np.inf, np.where(can_give, score, -np.inf)
    tries = [(giving, legal)]
    if not involved[giving.argmax()]:
        tries = [(np.where(involved, giving, -np.inf), legal), (giving, legal & involved)]
    for givers, takers in tries:
        hot = int(givers.argmax())
        if givers[hot] == -np.inf:
            continue
        others = np.where(takers, score, np.inf)
        others[hot] = np.inf
        cold = int(others.argmin())
        if score[hot] - others[cold] > widest:
            best, widest = (cold, hot), score[hot] - others[cold]
    return best


def _below_minimum(context: Context, cold: int, hot: int, rows: Ints) -> list[Refusal] | None:
    """Return refusals if too little traffic would move from `hot` to `cold`, else None (AvgShedder).

    It is too little if it is below all minima that an operator set. `rows`: movable bundles of the broker `hot`.
    """
    draft, params = context.draft, context.params
    want = _want(float(draft.score[hot]), float(draft.score[cold]), context.mean, params.max_unload_ratio)
    messages, size = traffic_of(draft, hot, want)
    minima = ((messages, params.min_unload_message_rate), (size, params.min_unload_throughput))
    reached = [value >= minimum for value, minimum in minima if minimum > 0]
    if any(reached) or not reached:
        return None
    return refuse_all(context, hot, rows, Code.BELOW_MINIMUM, f"{messages:.0f} msg/s and {size:.0f} B/s would leave")


def _move_one(context: Context, cold: int, hot: int, rows: Ints, mean: float, low: float) -> list[Refusal] | None:
    """Move the best fitting bundle from `hot` to `cold`, or to the next least loaded broker.

    Returns None if a bundle moves, else refusals of the bundles `rows`. `low`: tolerated difference of two scores.
    """
    draft, params = context.draft, context.params
    if len(rows) == 0:
        return []
    before, attempts = float(draft.score[hot]), []
    ceiling = params.overloaded_threshold_percent / 100
    for target in _targets(draft, cold, hot, rows):
        other = float(draft.score[target])
        if before - other < low / 2:
            break
        want = _want(before, other, mean, params.max_unload_ratio)
        offer = draft.offer(rows, hot, target)
        # A target may end above the mean by the tolerated difference. With less, dozens of small bundles move instead
        # of one (simulator scenario `world`). With more, targets become sources.
        best = best_fit(offer, before, other, want, ceiling=ceiling, slack=low)
        if best >= 0:
            others = _targets(draft, target, hot, rows[best : best + 1])
            runner_up = next((row for row in others if row != target), -1)
            draft.take(int(rows[best]), hot, target, rule="avg", threshold=low, runner_up=runner_up)
            return None
        attempts.append(TriedTarget(offer=offer, other=other, want=want))
    return refuse_unfit(context, hot, rows, attempts)


def _swap(context: Context, cold: int, hot: int, donors: dict[int, Candidates], low: float) -> bool:
    """Swap a bundle of `hot` that is too big to move alone for smaller bundles of another broker.

    Returns whether a swap is planned; then the other broker is added to `donors`.
    """
    draft, rows = context.draft, donors[hot].left(context.draft)
    takers = [row for row in _targets(draft, cold, hot, rows) if draft.score[hot] - draft.score[row] >= low - EPSILON]
    swaps = [Swap(giver=hot, taker=taker, rule="avg swap", threshold=low) for taker in takers]
    tries = [partial(swap, context, item, rows, 0.0) for item in swaps]
    tries += [partial(make_room, context, item, rows) for item in swaps]
    for taker, attempt in zip((*takers, *takers), tries, strict=True):
        exchanged = attempt()
        if exchanged is not None:
            donors.setdefault(taker, exchanged)
            return True
    return False


def _targets(draft: Draft, first: int, hot: int, rows: Ints) -> Iterator[int]:
    """Yield `first`, then the least loaded other brokers that may take at least one of the bundles `rows`."""
    yield first
    legal = draft.legal_targets()
    if draft.allowed is not None:
        legal &= draft.reachable(rows)
    others = np.where(legal, draft.score, np.inf)
    others[[first, hot]] = np.inf
    for _ in range(TARGETS_TRIED):
        coldest = int(others.argmin())
        if others[coldest] == np.inf:
            return
        yield coldest
        others[coldest] = np.inf


def _want(before: float, other: float, mean: float, ratio: float) -> float:
    """Return how much score should move, so that the source stays above the mean and the target below it.

    `before`, `other`: scores of source and target. `ratio`: largest part of their difference that may move.
    """
    want = ratio * (before - other)
    if before > mean:
        want = min(want, before - mean)
    return min(want, mean - other) if other < mean else want
