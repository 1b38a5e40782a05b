"""Decide when a strategy may act: apply the decision rule (planning/calm.py) to the brokers of one plan.

Every strategy decides by its own condition which brokers should give or take bundles. The rule decides when: once the
imbalance has cost the price of the moves. The unit of cost and price is the same for all strategies: one second in
which two brokers differ by twice the tolerated difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Verdict
from bundlekeel.model.snapshot import Bools, Snapshot
from bundlekeel.model.text_format import numbered
from bundlekeel.planning import calm
from bundlekeel.planning.memory import BrokerCourse, Excess, StrategyMemory
from bundlekeel.planning.strategies.common import EPSILON, Context

# A broker whose excess has cost this share of its price joins a plan that another broker starts.
JOIN_SHARE = 0.5
# A broker that meets the strategy's condition costs at least as much as one at twice the tolerance.
LEAST_EXCESS = 1.0
UNSETTLED = "its reports do not show its load yet, because bundles moved or its CPU use is not known"
# Counters of a broker whose load is steady are read this often, in seconds.
USUAL_SECONDS = 15.0
# Even with a threshold of 0, differences that 32-bit percentages cannot show are tolerated.
LEAST_TOLERANCE = 100 * EPSILON
# A broker checks this often, in seconds, whether to report, so a report can be late by this much.
REPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Result of the decision rule: the brokers that may give or take bundles now, and those that must wait.

    `courses`: load history by broker. `ripe`: brokers (rows) that may give or take now. `waiting`: verdict of each
    other broker (row) whose load differs too much from the others. `urgent`: a waiting broker may act before the next
    usual reading.
    """

    courses: dict[str, BrokerCourse]
    ripe: frozenset[int]
    urgent: bool = False
    waiting: dict[int, Verdict] = field(default_factory=dict)

    def verdict(self, context: Context, rows: Iterable[int]) -> Verdict:
        """Return the verdict of a cycle in which the brokers `rows` wait.

        It is the verdict of the broker whose cost is nearest to the price of its moves.
        """
        items = [self.waiting[row] for row in rows if row in self.waiting]
        most = max(items, key=lambda item: item.cost / item.price if item.price > 0 else -1.0)
        return settling(context) if most.code is Code.UNSETTLED else replace(most, broker="")

    def memory(self, context: Context, active: Iterable[int] = ()) -> StrategyMemory:
        """Return the memory of the strategies for the next cycle. `active`: rows of the brokers that may act now."""
        if not context.moves:
            return StrategyMemory(courses=self.courses, urgent=self.urgent)
        names = tuple(context.snapshot.brokers.ids[row] for row in sorted(active))
        return StrategyMemory(courses=self.courses, active=names, urgent=True)


def settling(context: Context) -> Verdict:
    """Return the verdict of a cycle that waits for reports, because the load of some brokers is not known yet."""
    text = f"waiting until the reports of {numbered(len(context.unsettled), 'broker')} show their load"
    return Verdict(code=Code.UNSETTLED, sentence=text)


def measured(snapshot: Snapshot, params: Parameters, scores: Floats, caused: Floats) -> calm.Measured:
    """Return the measurements of all brokers, with the time until which they are valid.

    Counters measure their own interval. A load report is valid until the next report is due. A broker that does not
    report for longer has an unchanged load. `caused`: part of each score that traffic causes, shape (n,).
    """
    brokers = snapshot.brokers
    interval, counted = np.array(snapshot.intervals or [0] * len(brokers)), snapshot.counted
    shortest = min(params.statistics_interval_seconds, params.host_usage_interval_seconds)
    silence = 1000 * max(shortest, params.report_min_interval_seconds + REPORT_SECONDS)
    traffic = brokers.traffic[:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1)
    typical = float(caused.sum() / traffic.sum()) if traffic.any() else 0.0
    until = np.where(counted, brokers.last_update, np.maximum(brokers.last_update, snapshot.wall_ms - int(silence)))
    return calm.Measured(
        ids=brokers.ids,
        scores=scores,
        traffic=np.where(counted, traffic, -1.0),
        cost=np.divide(caused, traffic, out=np.full(len(brokers), typical), where=traffic > 0),
        updated_ms=brokers.last_update,
        until_ms=until.astype(np.int64),
        seconds=np.where(counted, interval / 1000, np.inf),
    )


def tolerance(params: Parameters, mean: float, base: float = 0.0) -> float:
    """Return the difference of two scores that is tolerated; it grows with the mean score, from a minimum.

    `base`: the part of the scores that no move changes. It is an estimate, so at most half of the mean is subtracted.
    """
    scaled = params.avg_low_threshold_percent / 100 * min(1.0, mean - min(base, mean / 2))
    return max(scaled, params.avg_low_floor_percent / 100, LEAST_TOLERANCE)


def excess_of(context: Context, values: Floats | None = None) -> Floats:
    """Return how far each broker's difference from the others exceeds the tolerated one, shape (n,).

    The unit is the tolerated difference; below 0: tolerated. `values`: values that the strategy compares instead of
    scores; their mean counts as a score of 1.
    """
    concerned = context.concerned()
    if values is None:
        scores, mean, doubt = context.draft.score, context.mean, context.doubt
        tolerated = tolerance(context.params, context.mean, context.base)
    else:
        mean, doubt, tolerated = float(values[concerned].mean()), np.zeros(len(values)), tolerance(context.params, 1.0)
        scores, mean = (values / mean, 1.0) if mean > 0 else (np.zeros(len(values)), 1.0)
    differ = calm.differences(np.where(concerned, scores, mean), mean)
    return np.where(concerned, (differ - doubt + EPSILON) / tolerated - 1, -1.0)


def excess_where(context: Context, condition: Bools, values: Floats | None = None) -> Floats:
    """Return `excess_of` for the brokers that meet the strategy's `condition`; -1 (tolerated) for all others."""
    return np.where(condition & context.draft.members, np.maximum(excess_of(context, values), LEAST_EXCESS), -1.0)


def timing(context: Context, excess: Floats, hot: Bools | None = None) -> Timing:
    """Add the newly measured time to the cost of each broker's imbalance, and return which brokers may act now.

    `excess`: result of `excess_of`. `hot`: whether the broker is on the loaded side; None: by its score.
    """
    ids, params = context.snapshot.brokers.ids, context.params
    above = context.draft.score >= context.mean if hot is None else hot
    rows = context.rows
    members = [ids[row] for row in rows]
    courses = calm.follow_excesses(
        context.courses, members, above[rows], excess[rows], context.seconds[rows], context.unsettled
    )
    swinging = _swinging(context, courses, above)
    ripe, join, urgent = set[int](), set[int](), False
    exceeding: list[int] = np.flatnonzero(excess >= 0).tolist()
    waiting = {row: Verdict(Code.UNSETTLED, UNSETTLED, ids[row]) for row in exceeding if ids[row] in context.unsettled}
    for row in [row for row in exceeding if row not in waiting]:
        course = courses[ids[row]]
        overloaded = bool(above[row]) and float(context.draft.score[row]) >= params.overloaded_threshold_percent / 100
        if params.move_price == 0 or (overloaded and _is_certain(context, row)):
            ripe.add(row)
            continue
        # If moves have brought the broker to the other side of the mean, the cost of the old side does not count.
        if course.excess is not None and course.excess.side != ("hot" if above[row] else "cold"):
            course = replace(course, excess=None)
        excess_so_far = course.excess or Excess(side="", since_ms=course.until_ms)
        moves = _moves_needed(context, row, hot=bool(above[row]))
        price = calm.price_of(moves, params.move_price)
        hold = calm.held_seconds(course, params.swing_worth)
        rate, seconds = swinging[not above[row]]
        if not hold and rate > excess_so_far.mean_rate:
            # This broker differs because another one swings, so this time does not add to its cost.
            hold = seconds
            courses[ids[row]] = replace(course, excess=context.courses[ids[row]].excess)
        if not hold:
            if calm.is_confirmed(course) and excess_so_far.owed >= price:
                ripe.add(row)
                continue
            # A broker that joins the plan of another one needs no second reading.
            if excess_so_far.owed >= JOIN_SHARE * price:
                join.add(row)
        # Without `course.excess`, another broker's reading changed the mean; this broker's next reading can act on it.
        urgent |= overloaded or course.excess is None or calm.is_due_soon(course, price, USUAL_SECONDS)
        waiting[row] = _waiting(context, row, course, price=price, moves=moves, hold=hold)
    return Timing(courses=courses, ripe=frozenset(ripe | join) if ripe else frozenset(), urgent=urgent, waiting=waiting)


def _swinging(context: Context, courses: dict[str, BrokerCourse], above: Bools) -> dict[bool, tuple[float, float]]:
    """Return the broker that swings most on each side of the mean (True: above), as two numbers.

    A swing is a difference from the others that may end without moves, as an earlier one did. The numbers are its cost
    per second, and the seconds that it must last before bundles move; (0, 0): no broker swings on this side.
    """
    swings = {True: (0.0, 0.0), False: (0.0, 0.0)}
    for row in context.rows:
        course = courses[context.snapshot.brokers.ids[row]]
        hold = calm.held_seconds(course, context.params.swing_worth)
        if course.excess is not None and hold:
            side = bool(above[row])
            swings[side] = max(swings[side], (course.excess.mean_rate, hold))
    return swings


def _is_certain(context: Context, row: int) -> bool:
    """Return whether a reading of this cycle shows this broker overloaded, even without the part that may be noise."""
    course = context.courses[context.snapshot.brokers.ids[row]]
    if not calm.is_confirmed(course) or not course.seconds > float(context.seconds[row]) > 0:
        return False
    least = float(context.draft.score[row]) - calm.DOUBT_DEVIATIONS * math.sqrt(calm.noise_of(course) / course.seconds)
    return least >= context.params.overloaded_threshold_percent / 100


def _moves_needed(context: Context, row: int, *, hot: bool) -> int:
    """Return how many moves bring this broker to the mean, if the largest bundles move first.

    The bundles are its own or, if it is below the mean, those of the most loaded broker.
    """
    draft = context.draft
    source = row if hot else int(np.where(draft.members, draft.score, -np.inf).argmax())
    return calm.fewest_moves(draft.scores(draft.pressure(source), source), abs(float(draft.score[row]) - context.mean))


def _waiting(context: Context, row: int, course: BrokerCourse, *, price: float, moves: int, hold: float) -> Verdict:
    ids, score = context.snapshot.brokers.ids, context.draft.score
    excess = course.excess or Excess(side="", since_ms=course.until_ms)
    rows, hot = np.flatnonzero(context.draft.members), score[row] >= context.mean
    other = int(rows[score[rows].argmin() if hot else score[rows].argmax()])
    differ, low = abs(float(score[row] - score[other])), tolerance(context.params, context.mean, context.base)
    text = f"{ids[row]} and {ids[other]} differ by {differ:.1%} (tolerated: {low:.1%})"
    if differ < low or context.params.strategy == "uniform":
        text = f"{ids[row]} meets the condition of {context.params.strategy}"
    text += f"; this has cost {excess.owed:.0f} of the {price:.0f} that moving {numbered(moves, 'bundle')} costs"
    if hold:
        text += (
            f", but swings here last {hold / calm.SWING_PATIENCE:.0f} s: moves if it lasts {hold:.0f} s "
            f"(now {excess.seconds:.0f} s)"
        )
    elif not calm.is_confirmed(course):
        text += "; the next reading must confirm it"
    return Verdict(code=Code.HIT_COUNT, sentence=text, broker=ids[row], cost=excess.owed, price=price)
