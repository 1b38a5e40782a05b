"""`overload`: a broker at or above the overload threshold sheds until it is below it (OverloadShedder).

Corrected against Pulsar's class (docs/reference/strategies.md):
* bundles move only to brokers that stay below the threshold; if all brokers are overloaded, bundles do not circulate
  (PIP-364), and the verdict contains the reason;
* the amount to move is a difference of scores, compared with the score that a bundle causes, not with the broker's
  throughput;
* Pulsar takes the largest bundle of any size; here a bundle must fit.

As in Pulsar, only the present score counts: there is no history, and no balancing below the threshold.
"""

from __future__ import annotations

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.strategies.common import EPSILON, Context, Decision, candidates, refuse_rest
from bundlekeel.planning.strategies.refusals import stuck
from bundlekeel.planning.strategies.shed_then_place import Rule, shed_broker

# A broker sheds until it is this far below the threshold, as in Pulsar, so that it does not soon start again.
MARGIN = 0.05


def shed(context: Context) -> Decision:
    """Move bundles off every overloaded broker, the most loaded one first."""
    score, ids = context.draft.score.copy(), context.snapshot.brokers.ids
    limit = context.params.overloaded_threshold_percent / 100
    over = (score >= limit - EPSILON) & context.draft.members
    donors = [row for row in np.argsort(-score, kind="stable").tolist() if over[row]]
    refusals: list[Refusal] = []
    for row in donors:
        refusals += _shed_broker(context, row, float(score[row]) - limit + MARGIN)
    brokers = [_verdict(ids[row], float(score[row]), limit) for row in context.rows]
    verdict = _cycle_verdict(context, donors, refusals)
    return Decision(verdict=verdict, memory=context.memory, brokers=brokers, refusals=refusals)


def _shed_broker(context: Context, source: int, need: float) -> list[Refusal]:
    if context.full():
        return [Refusal(code=Code.BUDGET_PER_CYCLE, broker=context.snapshot.brokers.ids[source])]
    donor = candidates(context, source)
    if int(context.draft.bundle_count[source]) <= 1:
        return refuse_rest(context, source, donor, Code.SOLE_BUNDLE)
    limit = context.params.overloaded_threshold_percent / 100
    return shed_broker(context, source, donor, need, Rule(name="overload", threshold=limit, line=limit))


def _verdict(broker: str, score: float, limit: float) -> Verdict:
    over = score >= limit - EPSILON
    return Verdict(
        code=Code.OVERLOADED if over else Code.BALANCED, sentence=f"{score:.1%}, limit {limit:.1%}", broker=broker
    )


def _cycle_verdict(context: Context, donors: list[int], refusals: list[Refusal]) -> Verdict:
    moves, limit = len(context.moves), context.params.overloaded_threshold_percent
    if moves:
        text = f"{numbered(moves, 'bundle', 'leave')} {numbered(len(donors), 'broker')} at or above {limit:.0f}%"
        return Verdict(code=Code.OVERLOADED, sentence=text)
    if donors:
        return stuck(context, refusals, f"overloaded: {len(donors)} of {numbered(len(context.rows), 'broker')}")
    return Verdict(code=Code.BALANCED, sentence=f"no broker is at or above {limit:.0f}%")
