"""TransferShedder inside `plan()`: what it decides on a snapshot, for simulations and comparisons.

On an extensible picture it reads the brokers' own scores and top bundles. On a modular one it reads what these brokers
would publish if they ran the extensible load manager: a score smoothed once a call, and their largest bundles
(`report_max_bundles`), lowest first, in the resolution of Pulsar's order (`TopKBundles`). The broker's loop around it
is here too: bundles that moved lately count as unloaded lately, and a bundle that is unloaded without a destination
goes where the extensible `LeastResourceUsageWithWeight` puts it. The laws after it (core/planning/invariants.py) are
ours.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from bundlekeel.core.compat.transfer import Load, TopBundle, TransferOutcome, TransferPicture, find_bundles
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, Floats, Ints
from bundlekeel.core.model.plan import Refusal, Verdict
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.strategies.common import Context, Decision

_BYTES, _MESSAGES = 1e5, 100.0
# What the broker's list of recently unloaded bundles stands for here.
_LATELY: Final = frozenset(
    {Code.COOL_DOWN, Code.IN_TRANSIT, Code.UNSETTLED, Code.FROZEN_INTENT, Code.PINNED, Code.SPLITTING}
)


def transfer_in_plan(context: Context) -> Decision:
    """One call of the class on the context's snapshot; moves go to the draft."""
    ids, memory = context.snapshot.brokers.ids, context.memory
    scores = _scores(context)
    outcome = find_bundles(_picture(context, scores), context.params, memory.condition_hits)
    refusals = _move(context, outcome, scores)
    usage = dict(zip(ids, scores.tolist(), strict=True))
    text = f"{outcome.label}: {len(outcome.unloads)} bundles; condition met {outcome.hits} times"
    return Decision(
        verdict=Verdict(code=outcome.reason, sentence=text, hits_low=outcome.hits),
        memory=replace(memory, condition_hits=outcome.hits, compat=replace(memory.compat, usage=usage)),
        refusals=refusals,
    )


def _scores(context: Context) -> Floats:
    """`weightedMaxEMA` of every broker: its own, or smoothed here by one step a call."""
    reported, before = context.draft.reported, context.memory.compat.usage
    if context.snapshot.mode == "extensible":
        return reported.copy()
    weight, ids = context.params.history_weight, context.snapshot.brokers.ids
    known = np.array([before.get(broker, np.nan) for broker in ids])
    smoothed: Floats = np.where(np.isnan(known), reported, known * weight + (1 - weight) * reported)
    return smoothed


def _picture(context: Context, scores: Floats) -> TransferPicture:
    snapshot, guard = context.snapshot, context.guard
    brokers, names = snapshot.brokers, snapshot.bundles.names
    sizes = brokers.traffic[:, [THROUGHPUT_IN, THROUGHPUT_OUT]].tolist()
    loads = {
        broker: Load(
            ema=score,
            throughput_ema=bytes_in + bytes_out,
            throughput_in=bytes_in,
            throughput_out=bytes_out,
            updated_at=at,
        )
        for broker, score, (bytes_in, bytes_out), at in zip(
            brokers.ids, scores.tolist(), sizes, brokers.last_update.tolist(), strict=True
        )
    }
    hidden = snapshot.bundles.system.copy()
    hidden[context.eligible.codes.rows_with({Code.HAS_POLICY})] = True
    gave = dict(guard.recent_brokers)
    for moved in guard.recent.values():
        gave[moved.source] = max(gave.get(moved.source, 0), moved.at_ms)
    return TransferPicture(
        now_ms=snapshot.wall_ms,
        brokers=loads,
        top={broker: _top(context, row, hidden) for row, broker in enumerate(brokers.ids)},
        missing=[item.broker_id for item in snapshot.excluded],
        recent=frozenset(names[row] for row in context.eligible.codes.rows_with(_LATELY)),
        recent_brokers=gave,
    )


def _top(context: Context, broker: int, hidden: Bools) -> list[TopBundle]:
    """What the broker publishes of its bundles: lowest of the largest first. `hidden`: bundles it never names."""
    bundles = context.snapshot.bundles
    span = bundles.rows_of(broker)
    traffic = bundles.latest[span]
    shown = (traffic[:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1) > 0) & ~hidden[span]
    places: Ints = np.flatnonzero(shown)
    if context.snapshot.mode != "extensible":
        places = places[largest(traffic[places], context.params.report_max_bundles)]
    return [
        TopBundle(bundles.names[span.start + place], *traffic[place, [THROUGHPUT_IN, THROUGHPUT_OUT]].tolist())
        for place in places.tolist()
    ]


def largest(traffic: Floats, most: int) -> Ints:
    """The bundles that a broker names as its largest, lowest first: places in `traffic` (columns of `TRAFFIC`). All of
    them for `most` of 0 or less."""
    bytes_in, bytes_out, rate = (
        np.floor(figure + 0.5)
        for figure in (
            traffic[:, THROUGHPUT_IN] / _BYTES,
            traffic[:, THROUGHPUT_OUT] / _BYTES,
            (traffic[:, RATE_IN] + traffic[:, RATE_OUT]) / _MESSAGES,
        )
    )
    places: Ints = np.lexsort((rate, bytes_out, bytes_in))
    return places[-most:] if most > 0 else places


def _move(context: Context, outcome: TransferOutcome, scores: Floats) -> list[Refusal]:
    """Draft the moves. Of a swap the giver's bundle goes first: the class asks for all at once, the laws look at one
    after the other."""
    index = {broker: row for row, broker in enumerate(context.snapshot.brokers.ids)}
    rows = {context.snapshot.bundles.names[row]: row for row in context.snapshot.bundles.rows_named(_named(outcome))}
    placed, refusals = np.random.default_rng(context.seed), list[Refusal]()
    upward = [
        item for item in outcome.unloads if item.target and scores[index[item.target]] > scores[index[item.source]]
    ]
    for item in [*(item for item in outcome.unloads if item not in upward), *upward]:
        row, source = rows[item.bundle], index[item.source]
        target = index[item.target] if item.target else _placed(context, row, scores, placed)
        if target in (-1, source) or context.draft.moved[row]:
            code = Code.SAME_BROKER if target == source else Code.NO_LEGAL_TARGET
            if not context.draft.moved[row]:
                refusals.append(Refusal(code=code, bundle=item.bundle, broker=item.source))
            continue
        rule, threshold = f"transfer {context.params.compat}", context.params.transfer_target_std
        context.draft.take(row, source, target, rule=rule, threshold=threshold)
    return refusals


def _named(outcome: TransferOutcome) -> frozenset[str]:
    return frozenset(item.bundle for item in outcome.unloads)


def _placed(context: Context, row: int, scores: Floats, random: np.random.Generator) -> int:
    """The extensible placement: any broker that is well below the mean, else any broker at all; -1 for none."""
    permitted = context.draft.permitted
    allowed = np.ones(len(scores), dtype=bool)
    if permitted is not None:
        allowed = permitted[context.snapshot.bundles.namespace[row]]
    allowed = allowed & ~context.draft.closed
    candidates = np.flatnonzero(allowed & (context.snapshot.brokers.topics < context.params.max_topics_per_broker))
    if len(candidates) == 0:
        return -1
    margin = context.params.average_usage_difference_percent / 100
    mean = math.fsum(scores[candidates].tolist()) / len(candidates)
    best = candidates[scores[candidates] + margin <= mean]
    return int(random.choice(best if len(best) else candidates))
