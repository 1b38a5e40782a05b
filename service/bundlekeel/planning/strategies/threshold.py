"""`threshold`: a broker whose score is well above the average sheds (ThresholdShedder).

Corrected against Pulsar's class (docs/reference/strategies.md):
* the decision rule (planning/calm.py) replaces the smoothed score: a high load that has ended causes no moves
  (PIP-364's 90/10 case);
* the amount to move is a difference of scores, compared with the score that a bundle causes, not with the broker's
  throughput;
* the minimum is a share of the mean load, or absolute if an operator sets it;
* a bundle that would only swap two brokers' roles does not move.
"""

from __future__ import annotations

import math

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.strategies.common import (
    EPSILON,
    Context,
    Decision,
    candidates,
    counting,
    refuse_rest,
    traffic_of,
)
from bundlekeel.planning.strategies.refusals import stuck
from bundlekeel.planning.strategies.shed_then_place import Rule, shed_broker
from bundlekeel.planning.strategies.timing import excess_where, timing

# A broker sheds until it is this far below the threshold, as in Pulsar, so that it does not soon start again.
MARGIN = 0.05
_MIB = 1024 * 1024


def shed(context: Context) -> Decision:
    """Move bundles off every broker above average + threshold, if the imbalance has cost as much as the moves do."""
    ids, score = context.snapshot.brokers.ids, context.draft.score.copy()
    counted = counting(context)
    average = math.fsum(score[counted].tolist()) / int(counted.sum())
    limit = context.params.threshold_percent / 100
    above = (score >= average + limit - EPSILON) & context.draft.members
    below = (score < average - limit) & counted
    several = counted & (context.draft.bundle_count > 1)
    top = int(np.where(several if several.any() else counted, score, -np.inf).argmax())
    lower = not (above & counted).any() and context.params.lower_boundary_shedding and bool(below.any())
    times = timing(context, excess_where(context, above | (lower & (np.arange(len(score)) == top))))
    refusals: list[Refusal] = []
    for row in [row for row in np.argsort(-score, kind="stable").tolist() if row in times.ripe]:
        need = float(score[row]) - average - limit + MARGIN if above[row] else limit / 2
        refusals += _shed_broker(context, row, need, average + limit)
    brokers = [
        times.waiting.get(row) or _verdict(context, row, float(score[row]), average, limit) for row in context.rows
    ]
    low = [ids[row] for row in np.flatnonzero(below).tolist()]
    if times.waiting and not times.ripe:
        verdict = times.verdict(context, times.waiting)
    else:
        donors = [] if lower else np.flatnonzero(above).tolist()
        verdict = _cycle_verdict(context, donors, refusals, low, average + limit)
    return Decision(verdict=verdict, memory=times.memory(context, times.ripe), brokers=brokers, refusals=refusals)


def _shed_broker(context: Context, source: int, need: float, line: float) -> list[Refusal]:
    """Move bundles off one broker until `need` (a score difference) is met; return refusals of the other bundles.

    `line`: score from which a broker sheds.
    """
    if context.full():
        return [Refusal(code=Code.BUDGET_PER_CYCLE, broker=context.snapshot.brokers.ids[source])]
    donor = candidates(context, source)
    if int(context.draft.bundle_count[source]) <= 1:
        return refuse_rest(context, source, donor, Code.SOLE_BUNDLE)
    if need < context.params.min_unload_share * context.mean:
        return refuse_rest(context, source, donor, Code.BELOW_MINIMUM, f"needs {max(need, 0.0):.1%}")
    size = traffic_of(context.draft, source, need)[1]
    if size < context.params.min_unload_throughput_mb * _MIB:
        return refuse_rest(context, source, donor, Code.BELOW_MINIMUM, f"{size:.0f} B/s would leave")
    limit = context.params.threshold_percent / 100
    return shed_broker(context, source, donor, need, Rule(name="threshold", threshold=limit, line=line))


def _verdict(context: Context, row: int, score: float, average: float, limit: float) -> Verdict:
    broker = context.snapshot.brokers.ids[row]
    code = Code.OVERLOADED if score >= average + limit - EPSILON else Code.BALANCED
    if score < average - limit:
        code = Code.UNDERLOADED
    text = f"{score:.1%}, average {average:.1%}"
    return Verdict(code=code, sentence=text, broker=broker)


def _cycle_verdict(
    context: Context, donors: list[int], refusals: list[Refusal], low: list[str], line: float
) -> Verdict:
    """Return the verdict of the cycle.

    `low`: brokers so far below the average that they justify lower-boundary shedding. `line`: score from which a broker
    sheds.
    """
    moves, limit = len(context.moves), context.params.threshold_percent / 100
    if moves:
        who = (
            f"{numbered(len(donors), 'broker')} above {line:.1%}"
            if donors
            else "the most loaded broker for brokers far below the average"
        )
        return Verdict(code=Code.OVERLOADED, sentence=f"{numbered(moves, 'bundle', 'leave')} {who}")
    if donors:
        return stuck(context, refusals, f"{numbered(len(donors), 'broker')} above {line:.1%}")
    if low and context.params.lower_boundary_shedding:
        return stuck(context, refusals, f"{low[0]} is more than {limit:.1%} below the average")
    if low:
        text = (
            f"no broker is above {line:.1%}, and {low[0]} stays far below the average: only a broker above it sheds; "
            "set lower_boundary_shedding (lowerBoundarySheddingEnabled), or use avg"
        )
        return Verdict(code=Code.UNDERLOADED, sentence=text)
    return Verdict(code=Code.BALANCED, sentence=f"no broker is above {line:.1%}")
