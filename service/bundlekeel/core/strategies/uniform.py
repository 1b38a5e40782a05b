"""`uniform`: evens out message rate or throughput between the extreme brokers (UniformLoadShedder).

Corrected against Pulsar's class (docs/reference/strategies.md): absolute minima are shares of the mean broker load
unless an operator sets them, idle bundles are never chosen, the destination is the least loaded broker and known
before the unload, and the throughput branch is tried when the rate branch finds nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.core.model.plan import Refusal, Verdict
from bundlekeel.core.model.text_format import numbered
from bundlekeel.core.planning.memory import StrategyMemory
from bundlekeel.core.strategies.common import (
    EPSILON,
    Candidates,
    Context,
    Decision,
    candidates,
    refuse_all,
    refuse_rest,
)
from bundlekeel.core.strategies.placement import legal_targets


@dataclass(frozen=True, slots=True)
class _Measure:
    """One of the two quantities: what it is called, its traffic columns, and whether the difference is too large."""

    name: str
    columns: tuple[int, int]
    unit: str

    def of(self, traffic: Floats) -> Floats:
        total: Floats = traffic[:, self.columns[0]] + traffic[:, self.columns[1]]
        return total


RATE = _Measure("message rate", (RATE_IN, RATE_OUT), "msg/s")
THROUGHPUT = _Measure("throughput", (THROUGHPUT_IN, THROUGHPUT_OUT), "B/s")


def shed(context: Context) -> Decision:
    """Compare the extremes of both quantities; shed by rate if its difference is too large, else by throughput."""
    rate, size = (item.of(context.draft.traffic).tolist() for item in (RATE, THROUGHPUT))
    brokers = [
        Verdict(code=Code.BALANCED, sentence=f"{messages:.0f} msg/s, {data:.0f} B/s", broker=broker)
        for broker, messages, data in zip(context.snapshot.brokers.ids, rate, size, strict=True)
    ]
    moves = context.draft.moves
    # By bundle (or broker): what the second measure says of a bundle replaces what the first one said.
    refusals: dict[tuple[str, str], Refusal] = {}
    exceeded = [item for item in (RATE, THROUGHPUT) if _exceeded(context, item)]
    for measure in exceeded:
        refusals.update({(item.bundle, item.broker): item for item in _even_out(context, measure)})
        if moves:
            break
    moved = {move.bundle for move in moves}
    kept = [item for item in refusals.values() if item.bundle not in moved]
    return Decision(verdict=_cycle_verdict(context, exceeded), memory=StrategyMemory(), brokers=brokers, refusals=kept)


def _cycle_verdict(context: Context, exceeded: list[_Measure]) -> Verdict:
    differ = f"{' and '.join(item.name for item in exceeded)} differ{'s' if len(exceeded) == 1 else ''} too much"
    if context.draft.moves:
        text = f"{differ}: {numbered(len(context.draft.moves), 'bundle')} to move"
        return Verdict(code=Code.OVERLOADED, sentence=text)
    if exceeded:
        text = f"{differ}, but no bundle fits the difference"
        return Verdict(code=Code.NO_BUNDLES, sentence=text)
    return Verdict(code=Code.BALANCED, sentence="message rate and throughput are within their limits")


def _exceeded(context: Context, measure: _Measure) -> bool:
    """Pulsar's two conditions; the minimum counts as 1 when it is zero."""
    values = measure.of(context.draft.traffic)
    return _differ(context, measure, float(values[context.concerned()].max()), values)


def _differ(context: Context, measure: _Measure, largest: float, values: Floats) -> bool:
    """Return whether `largest` is too far above the least of all brokers' `values`."""
    smallest = float(values[context.concerned()].min())
    smallest = smallest if smallest > EPSILON else 1.0
    if measure is RATE:
        limit = context.params.msg_rate_difference_percent
        return limit > 0 and (largest - smallest) * 100 / smallest > limit
    limit = context.params.throughput_multiple
    return limit > 0 and largest / smallest > limit


def _even_out(context: Context, measure: _Measure) -> list[Refusal]:
    """Let the largest broker that can give move bundles to the smallest one."""
    values = measure.of(context.draft.traffic)
    refusals: list[Refusal] = []
    for source in np.argsort(-values, kind="stable").tolist():
        if not _differ(context, measure, float(values[source]), values):
            break
        movable = candidates(context, source)
        sole = int(context.draft.bundle_count[source]) <= 1
        refusals += _give(context, measure, values, source, movable)
        if len(movable.rows) and not sole:
            break
    return refusals


def _give(context: Context, measure: _Measure, values: Floats, source: int, given: Candidates) -> list[Refusal]:
    """Move bundles from `source` to the smallest broker until a share of their difference has moved."""
    draft, params = context.draft, context.params
    targets = legal_targets(draft, source, given.rows)
    if len(targets) == 0:
        return refuse_rest(context, source, given, Code.NO_LEGAL_TARGET)
    target = int(targets[np.argmin(values[targets])])
    needed = (float(values[source]) - float(values[target])) * params.uniform_max_unload_ratio
    absolute = params.min_unload_message_rate if measure is RATE else params.min_unload_throughput
    minimum = max(absolute, params.min_unload_share * math.fsum(values.tolist()) / len(values))
    if int(draft.bundle_count[source]) <= 1:
        return refuse_rest(context, source, given, Code.SOLE_BUNDLE)
    if needed < minimum:
        return refuse_rest(context, source, given, Code.BELOW_MINIMUM, f"{needed:.0f} {measure.unit} needed")
    return _select(context, measure, given, source=source, target=target, needed=needed)


def _select(
    context: Context, measure: _Measure, given: Candidates, *, source: int, target: int, needed: float
) -> list[Refusal]:
    """Take bundles, largest first, as long as each fits into what is still needed."""
    draft, params, rows = context.draft, context.params, given.rows
    refusals = refuse_rest(context, source, Candidates(rows[:0], given.dust), Code.BELOW_MINIMUM)
    values = measure.of(draft.expected(source)[rows - int(context.snapshot.bundles.starts[source])])
    taken, offer = 0, draft.offer(rows, source, target)
    for index in np.argsort(-values, kind="stable").tolist():
        row, value, after = int(rows[index]), float(values[index]), float(offer.target_after[index])
        refused: tuple[Code, str] | None = None
        if context.full():
            refused = Code.BUDGET_PER_CYCLE, ""
        elif 0 <= params.max_unload_bundles <= taken:
            refused = Code.BUDGET_PER_CYCLE, f"max_unload_bundles {params.max_unload_bundles}"
        elif value > needed * (1 + EPSILON):
            refused = Code.TOO_BIG, f"{value:.0f} > {needed:.0f} {measure.unit}"
        elif math.isinf(after):
            refused = Code.POLICY_FORBIDS, f"not to {context.snapshot.brokers.ids[target]}"
        elif after > params.overloaded_threshold_percent / 100:
            refused = Code.TARGET_OVERLOADED, ""
        elif after > 0 and after >= (float(draft.score[source]) or float(draft.score.max())):
            # A blind source (score 0) may give as long as the most loaded broker stays the most loaded one.
            refused = Code.NO_GAIN, ""
        if refused is not None:
            refusals += refuse_all(context, source, rows[index : index + 1], *refused)
            continue
        limit = params.msg_rate_difference_percent / 100 if measure is RATE else params.throughput_multiple
        draft.take(row, source, target, rule="uniform", threshold=limit)
        offer = draft.offer(rows, source, target)
        needed -= value
        taken += 1
    return refusals
