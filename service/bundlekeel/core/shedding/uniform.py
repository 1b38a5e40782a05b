"""`uniform`: evens out message rate or throughput between the extreme brokers (UniformLoadShedder).

Corrected against Pulsar's class (docs/reference/strategies.md): absolute minima become shares of the mean broker
load, idle bundles are never chosen, the destination is the least loaded broker and known before the unload, and
the throughput branch is tried when the rate branch finds nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bundlekeel.core.codes import Code
from bundlekeel.core.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.core.memory import Memory
from bundlekeel.core.placement import legal_targets
from bundlekeel.core.plan import Refusal, Verdict
from bundlekeel.core.shedding.common import EPSILON, Context, Decision, refuse_all


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
    brokers = [
        Verdict(code=Code.BALANCED, sentence=_broker_sentence(context, row), broker=broker)
        for row, broker in enumerate(context.snapshot.brokers.ids)
    ]
    refusals: list[Refusal] = []
    exceeded = [item for item in (RATE, THROUGHPUT) if _exceeded(context, item)]
    for measure in exceeded:
        refusals += _even_out(context, measure)
        if context.draft.moves:
            text = f"{measure.name} differs too much: {len(context.draft.moves)} bundles to move"
            verdict = Verdict(code=Code.OVERLOADED, sentence=text)
            return Decision(verdict=verdict, memory=Memory(), brokers=brokers, refusals=refusals)
    if exceeded:
        text = f"{' and '.join(item.name for item in exceeded)} differ too much, but no bundle fits the difference"
        verdict = Verdict(code=Code.NO_BUNDLES, sentence=text)
    else:
        verdict = Verdict(code=Code.BALANCED, sentence="message rate and throughput are within their limits")
    return Decision(verdict=verdict, memory=Memory(), brokers=brokers, refusals=refusals)


def _broker_sentence(context: Context, row: int) -> str:
    traffic = context.draft.traffic[row : row + 1]
    return f"{RATE.of(traffic)[0]:.0f} msg/s, {THROUGHPUT.of(traffic)[0]:.0f} B/s"


def _exceeded(context: Context, measure: _Measure) -> bool:
    """Pulsar's two conditions; the minimum counts as 1 when it is zero."""
    values = measure.of(context.draft.traffic)
    largest, smallest = float(values.max()), float(values.min())
    smallest = smallest if smallest > EPSILON else 1.0
    if measure is RATE:
        limit = context.params.msg_rate_difference_percent
        return limit > 0 and (largest - smallest) * 100 / smallest > limit
    limit = context.params.throughput_multiple
    return limit > 0 and largest / smallest > limit


def _even_out(context: Context, measure: _Measure) -> list[Refusal]:
    """Move bundles from the largest to the smallest until a share of their difference has moved."""
    draft, ids = context.draft, context.snapshot.brokers.ids
    values = measure.of(draft.traffic)
    source = int(np.argmax(values))
    targets = legal_targets(draft, source)
    if len(targets) == 0:
        return [Refusal(code=Code.NO_LEGAL_TARGET, broker=ids[source])]
    target = int(targets[np.argmin(values[targets])])
    needed = (float(values[source]) - float(values[target])) * context.params.uniform_max_unload_ratio
    minimum = context.params.min_unload_share * math.fsum(values.tolist()) / len(values)
    refusals = context.eligible.refusals(context.snapshot, source)
    rows = draft.movable(source, context.eligible.mask)
    if int(draft.bundle_count[source]) <= 1:
        return refusals + refuse_all(context, source, rows, Code.SOLE_BUNDLE)
    if needed < minimum:
        return refusals + refuse_all(context, source, rows, Code.BELOW_MINIMUM, f"{needed:.0f} {measure.unit} needed")
    return refusals + _select(context, measure, source=source, target=target, needed=needed)


def _select(context: Context, measure: _Measure, *, source: int, target: int, needed: float) -> list[Refusal]:
    draft, refusals = context.draft, []
    rows = draft.movable(source, context.eligible.mask)
    values = measure.of(context.snapshot.bundles.short[rows])
    ceiling = context.params.overloaded_threshold_percent / 100
    most = context.params.max_unload_bundles
    taken = 0
    for index in np.argsort(-values, kind="stable").tolist():
        row, value = int(rows[index]), float(values[index])
        one = rows[index : index + 1]
        offer = draft.offer(one, source, target)
        worse = float(offer.target_after[0]) >= max(float(draft.score[source]), EPSILON)
        if most >= 0 and taken >= most:
            refusals += refuse_all(context, source, one, Code.BUDGET_PER_CYCLE, f"max_unload_bundles {most}")
        elif value > needed:
            refusals += refuse_all(context, source, one, Code.TOO_BIG, f"{value:.0f} > {needed:.0f} {measure.unit}")
        elif worse and float(draft.score.max()) > 0:
            refusals += refuse_all(context, source, one, Code.NO_GAIN)
        elif float(offer.target_after[0]) > ceiling:
            refusals += refuse_all(context, source, one, Code.TARGET_OVERLOADED)
        else:
            draft.take(
                row,
                source,
                target,
                rule="uniform",
                threshold=context.params.msg_rate_difference_percent / 100,
            )
            needed -= value
            taken += 1
    return refusals
