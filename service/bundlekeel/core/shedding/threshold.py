"""`threshold`: a broker whose smoothed score is well above the average sheds (ThresholdShedder).

Corrected against Pulsar's class (docs/reference/strategies.md):
* the history advances once per fresh report, not once a call, and never a second time in one cycle;
* a broker sheds by the smaller of its smoothed and its present score, so that a step that is over already is not
  shed again (PIP-364's 90/10 case);
* the amount is a difference of scores applied to the score a bundle accounts for, not to the broker's throughput;
* the absolute 10 MB/s minimum is a share of the mean load; a bundle that would only swap two brokers' roles stays.
"""

from __future__ import annotations

import math

import numpy as np

from bundlekeel.core.codes import Code
from bundlekeel.core.load import Ints
from bundlekeel.core.memory import History, Memory
from bundlekeel.core.placement import legal_targets
from bundlekeel.core.plan import Refusal, Verdict
from bundlekeel.core.shedding.common import EPSILON, Context, Decision, best_fit, candidates, refuse_rest

# Pulsar aims this far below the threshold, so that the next small rise does not start it again.
MARGIN = 0.05
# The placement's first choice may be too small for any bundle; how many of its next ones are tried.
TARGETS_TRIED = 8


def shed(context: Context) -> Decision:
    """Advance the histories, then let every broker above average + threshold shed."""
    history = _advance(context)
    ids = context.snapshot.brokers.ids
    smooth = np.array([history[broker].score for broker in ids])
    average = math.fsum(smooth.tolist()) / len(smooth)
    limit = context.params.threshold_percent / 100
    donors = [row for row in np.argsort(-smooth, kind="stable").tolist() if smooth[row] >= average + limit - EPSILON]
    refusals: list[Refusal] = []
    for row in donors:
        need = min(float(smooth[row]), float(context.draft.score[row])) - average - limit + MARGIN
        refusals += _shed_broker(context, row, need)
    if not context.draft.moves and context.params.lower_boundary_shedding and (smooth < average - limit).any():
        top = int(np.argmax(smooth))
        refusals = [item for item in refusals if item.broker != ids[top]] + _shed_broker(context, top, limit / 2)
    brokers = [_verdict(context, row, float(smooth[row]), average, limit) for row in range(len(ids))]
    verdict = _cycle_verdict(context, donors, average, limit)
    return Decision(verdict=verdict, memory=Memory(history=history), brokers=brokers, refusals=refusals)


def _advance(context: Context) -> dict[str, History]:
    """history = h * history + (1 - h) * score, once for each fresh report of the broker."""
    brokers, weight = context.snapshot.brokers, context.params.history_weight
    advanced: dict[str, History] = {}
    for row, broker in enumerate(brokers.ids):
        reported, score = int(brokers.last_update[row]), float(context.draft.score[row])
        known = context.memory.history.get(broker)
        if known is None:
            advanced[broker] = History(score=score, reported=reported)
        elif reported > known.reported and broker not in context.unsettled:
            advanced[broker] = History(score=known.score * weight + (1 - weight) * score, reported=reported)
        else:
            advanced[broker] = known
    return advanced


def _shed_broker(context: Context, source: int, need: float) -> list[Refusal]:
    """Move bundles off one broker until `need` (a score difference) is met; returns refusals."""
    draft, ids = context.draft, context.snapshot.brokers.ids
    if context.full():
        return [Refusal(code=Code.BUDGET_PER_CYCLE, broker=ids[source])]
    given = candidates(context, source)
    if int(draft.bundle_count[source]) <= 1:
        return refuse_rest(context, source, given, Code.SOLE_BUNDLE)
    if need < context.params.min_unload_share * context.mean:
        return refuse_rest(context, source, given, Code.BELOW_MINIMUM, f"needs {max(need, 0.0):.1%}")
    while need > EPSILON:
        if context.full():
            return refuse_rest(context, source, given, Code.BUDGET_PER_CYCLE)
        rows = given.left(draft)
        chosen, target, runner_up = _choose(context, source, rows, need) if len(rows) else (-1, -1, -1)
        if chosen < 0:
            return refuse_rest(context, source, given, Code.NO_GAIN)
        before = float(draft.score[source])
        limit = context.params.threshold_percent / 100
        draft.take(chosen, source, target, rule="threshold", threshold=limit, runner_up=runner_up)
        need -= before - float(draft.score[source])
    return refuse_rest(context, source, given, Code.BALANCED)


def _choose(context: Context, source: int, rows: Ints, need: float) -> tuple[int, int, int]:
    """(bundle row, target row, runner-up row) of the next move, or (-1, -1, -1)."""
    draft = context.draft
    targets = legal_targets(draft, source)
    if len(targets) == 0:
        return -1, -1, -1
    ceiling = context.params.overloaded_threshold_percent / 100
    pressure = draft.pressure(source)[rows - int(context.snapshot.bundles.starts[source])]
    heaviest = int(rows[np.argmax(draft.scores(pressure, source))])
    ranked = context.placement(draft, heaviest, source, targets).tolist()
    before = float(draft.score[source])
    for place, target in enumerate(ranked[:TARGETS_TRIED]):
        offer = draft.offer(rows, source, target)
        index = best_fit(offer, before, float(draft.score[target]), need, ceiling=ceiling)
        if index >= 0:
            return int(rows[index]), target, next(iter(ranked[place + 1 : place + 2]), -1)
    return -1, -1, -1


def _verdict(context: Context, row: int, smooth: float, average: float, limit: float) -> Verdict:
    broker = context.snapshot.brokers.ids[row]
    over = smooth >= average + limit - EPSILON
    text = f"history {smooth:.1%}, now {float(context.draft.score[row]):.1%}, average {average:.1%}"
    return Verdict(code=Code.OVERLOADED if over else Code.BALANCED, sentence=text, broker=broker)


def _cycle_verdict(context: Context, donors: list[int], average: float, limit: float) -> Verdict:
    moves = len(context.draft.moves)
    if moves:
        text = f"{moves} bundles leave {len(donors)} brokers above {average + limit:.1%}"
        return Verdict(code=Code.OVERLOADED, sentence=text)
    if donors:
        text = f"{len(donors)} brokers are above {average + limit:.1%}, but no bundle would make it better"
        return Verdict(code=Code.NO_BUNDLES, sentence=text)
    return Verdict(code=Code.BALANCED, sentence=f"no broker is above {average:.1%} + {limit:.1%}")
