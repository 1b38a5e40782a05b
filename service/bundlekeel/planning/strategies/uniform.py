"""`uniform`: balances message rate or throughput between the extreme brokers (UniformLoadShedder).

Corrected against Pulsar's class (docs/reference/strategies.md):
* the smallest difference worth a move is a share of the mean broker load, unless an operator sets an absolute value;
* idle bundles never move;
* the target is the least loaded broker, chosen before the unload;
* throughput is compared too if the message rates lead to no move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.strategies.common import (
    EPSILON,
    Candidates,
    Context,
    Decision,
    candidates,
    refuse_all,
    refuse_rest,
)
from bundlekeel.planning.strategies.placement import legal_targets
from bundlekeel.planning.strategies.timing import excess_where, timing


@dataclass(frozen=True, slots=True)
class _Measure:
    """One of the two quantities that `uniform` compares: its name in messages, traffic columns and unit."""

    name: str
    columns: tuple[int, int]
    unit: str

    def values(self, traffic: Floats) -> Floats:
        total: Floats = traffic[:, self.columns[0]] + traffic[:, self.columns[1]]
        return total


RATE = _Measure("message rate", (RATE_IN, RATE_OUT), "msg/s")
THROUGHPUT = _Measure("throughput", (THROUGHPUT_IN, THROUGHPUT_OUT), "B/s")


def shed(context: Context) -> Decision:
    """Move bundles if the brokers' message rates differ too much; if that moves nothing, compare their throughput."""
    ids, rate, size = context.snapshot.brokers.ids, *(item.values(context.draft.traffic) for item in (RATE, THROUGHPUT))
    brokers = [
        Verdict(code=Code.BALANCED, sentence=f"{rate[row]:.0f} msg/s, {size[row]:.0f} B/s", broker=ids[row])
        for row in context.rows
    ]
    exceeded = [item for item in (RATE, THROUGHPUT) if _exceeded(context, item)]
    excess = np.full(len(rate), -1.0)
    for measure in exceeded:
        values = measure.values(context.draft.traffic)
        condition = np.array([_differ(context, measure, value, values) for value in values.tolist()])
        excess = np.maximum(excess, excess_where(context, condition, values))
    times = timing(context, excess, excess >= 0)
    if times.waiting and not times.ripe:
        brokers = [times.waiting.get(row) or item for row, item in zip(context.rows, brokers, strict=True)]
        return Decision(verdict=times.verdict(context, times.waiting), memory=times.memory(context), brokers=brokers)
    # By bundle and broker: a refusal by the second measure replaces the refusal by the first one.
    refusals: dict[tuple[str, str], Refusal] = {}
    for measure in exceeded:
        refusals.update({(item.bundle, item.broker): item for item in _even_out(context, measure, times.ripe)})
        if context.moves:
            break
    moved = {move.bundle for move in context.moves}
    refused = [item for item in refusals.values() if item.bundle not in moved]
    memory = times.memory(context, times.ripe)
    return Decision(verdict=_cycle_verdict(context, exceeded), memory=memory, brokers=brokers, refusals=refused)


def _cycle_verdict(context: Context, exceeded: list[_Measure]) -> Verdict:
    differ = f"{' and '.join(item.name for item in exceeded)} differ{'s' if len(exceeded) == 1 else ''} too much"
    if context.moves:
        text = f"{differ}: {numbered(len(context.moves), 'bundle')} to move"
        return Verdict(code=Code.OVERLOADED, sentence=text)
    if exceeded:
        text = f"{differ}, but no bundle fits the difference"
        return Verdict(code=Code.NO_BUNDLES, sentence=text)
    return Verdict(code=Code.BALANCED, sentence="message rate and throughput are within their limits")


def _exceeded(context: Context, measure: _Measure) -> bool:
    """Return whether the brokers differ too much in this measure, by Pulsar's condition; a minimum of 0 counts as 1."""
    values = measure.values(context.draft.traffic)
    return _differ(context, measure, float(values[context.concerned()].max()), values)


def _differ(context: Context, measure: _Measure, largest: float, values: Floats) -> bool:
    """Return whether the value `largest` is too far above the lowest value of all brokers."""
    smallest = float(values[context.concerned()].min())
    smallest = smallest if smallest > EPSILON else 1.0
    if measure is RATE:
        limit = context.params.msg_rate_difference_percent
        return limit > 0 and (largest - smallest) * 100 / smallest > limit
    limit = context.params.throughput_multiple
    return limit > 0 and largest / smallest > limit


def _even_out(context: Context, measure: _Measure, ripe: frozenset[int]) -> list[Refusal]:
    """Move bundles to the least loaded broker, by this measure, from the most loaded broker in `ripe` that can give.

    `ripe`: rows of the brokers that may act now. Returns the refusals.
    """
    values = measure.values(context.draft.traffic)
    refusals: list[Refusal] = []
    for source in [row for row in np.argsort(-values, kind="stable").tolist() if row in ripe]:
        if not _differ(context, measure, float(values[source]), values):
            break
        movable = candidates(context, source)
        sole = int(context.draft.bundle_count[source]) <= 1
        refusals += _give(context, measure, values, source, movable)
        if len(movable.rows) and not sole:
            break
    return refusals


def _give(context: Context, measure: _Measure, values: Floats, source: int, donor: Candidates) -> list[Refusal]:
    """Move bundles from `source` to the broker with the lowest value until a share of their difference has moved.

    `values`: value of each broker in this measure.
    """
    draft, params = context.draft, context.params
    targets = legal_targets(draft, source, donor.rows)
    if len(targets) == 0:
        return refuse_rest(context, source, donor, Code.NO_LEGAL_TARGET)
    target = int(targets[np.argmin(values[targets])])
    needed = (float(values[source]) - float(values[target])) * params.uniform_max_unload_ratio
    absolute = params.min_unload_message_rate if measure is RATE else params.min_unload_throughput
    minimum = max(absolute, params.min_unload_share * math.fsum(values[context.rows].tolist()) / len(context.rows))
    if int(draft.bundle_count[source]) <= 1:
        return refuse_rest(context, source, donor, Code.SOLE_BUNDLE)
    if needed < minimum:
        return refuse_rest(context, source, donor, Code.BELOW_MINIMUM, f"{needed:.0f} {measure.unit} needed")
    return _select(context, measure, donor, source=source, target=target, needed=needed)


def _select(
    context: Context, measure: _Measure, donor: Candidates, *, source: int, target: int, needed: float
) -> list[Refusal]:
    """Move bundles, largest first, while each fits into the rest of `needed` (in the unit of the measure)."""
    draft, params, rows = context.draft, context.params, donor.rows
    refusals = refuse_rest(context, source, Candidates(rows[:0], donor.dust), Code.BELOW_MINIMUM)
    values = measure.values(draft.expected(source)[rows - int(context.snapshot.bundles.starts[source])])
    count, offer = 0, draft.offer(rows, source, target)
    for index in np.argsort(-values, kind="stable").tolist():
        row, value, after = int(rows[index]), float(values[index]), float(offer.target_after[index])
        refused: tuple[Code, str] | None = None
        if context.full():
            refused = Code.BUDGET_PER_CYCLE, ""
        elif 0 <= params.max_unload_bundles <= count:
            refused = Code.BUDGET_PER_CYCLE, f"max_unload_bundles {params.max_unload_bundles}"
        elif value > needed * (1 + EPSILON):
            refused = Code.TOO_BIG, f"{value:.0f} > {needed:.0f} {measure.unit}"
        elif math.isinf(after):
            refused = Code.POLICY_FORBIDS, f"not to {context.snapshot.brokers.ids[target]}"
        elif after > params.overloaded_threshold_percent / 100:
            refused = Code.TARGET_OVERLOADED, ""
        elif after > 0 and after >= (float(draft.score[source]) or float(draft.score[draft.members].max())):
            # A source without usable limits (score 0) may give as long as the target stays below the most loaded
            # broker.
            refused = Code.NO_GAIN, ""
        if refused is not None:
            refusals += refuse_all(context, source, rows[index : index + 1], *refused)
            continue
        limit = params.msg_rate_difference_percent / 100 if measure is RATE else params.throughput_multiple
        draft.take(row, source, target, rule="uniform", threshold=limit)
        offer = draft.offer(rows, source, target)
        needed -= value
        count += 1
    return refusals
