"""Pulsar's shedders inside `plan()`: they select and place as in a broker, on the same snapshot as every strategy.

The code that a broker runs around its shedder (`doLoadShedding`, `UnloadScheduler`) is here too. Bundles that moved
recently or are in transit count as recently unloaded. A bundle without a target is placed on the unchanged snapshot,
without preallocation, so several can go to one broker. A bundle whose target is its owner stays. Afterwards,
Bundlekeel's own invariants are checked (planning/invariants.py).

TransferShedder reads the scores and top bundles that the brokers of an extensible cluster publish. On a modular
snapshot it reads the values that these brokers would publish with the extensible load manager. These are a score, which
each call smooths once, and their largest bundles (`report_max_bundles`), lowest first, sorted by rounded values as in
Pulsar's `TopKBundles`. If it returns no target, the extensible `LeastResourceUsageWithWeight` chooses one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from bundlekeel.compat.picture import BundleColumns, CompatPicture, percent
from bundlekeel.compat.placement import Placer
from bundlekeel.compat.result import CompatResult
from bundlekeel.compat.shedders import COMPAT_SHEDDERS, shed
from bundlekeel.compat.transfer import Load, TopBundle, TransferOutcome, TransferPicture, find_bundles
from bundlekeel.model.averages import LONG_SAMPLES, SHORT_SAMPLES
from bundlekeel.model.codes import Code
from bundlekeel.model.load import RATE_IN, RATE_OUT, REPORTED_RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, Floats, Ints
from bundlekeel.model.plan import Refusal, Verdict
from bundlekeel.model.snapshot import Bools, Snapshot
from bundlekeel.planning.strategies import PULSAR_SHEDDERS
from bundlekeel.planning.strategies.common import Context, Decision

# Bundles with these codes count as recently unloaded; brokers keep a list of such bundles.
_LATELY: Final = frozenset(
    {Code.COOL_DOWN, Code.IN_TRANSIT, Code.UNSETTLED, Code.FROZEN_INTENT, Code.PINNED, Code.SPLITTING}
)

# A bundle that must stay at its broker is refused with its own code, even if the class returned no target.
_BOUND: Final = frozenset(
    {
        Code.POLICY_FORBIDS,
        Code.POLICY_WITHOUT_BROKERS,
        Code.POLICY_UNREADABLE,
        Code.V1_NAMESPACE,
        Code.SYSTEM_BUNDLE,
    }
)


def picture_of(snapshot: Snapshot, recent: Sequence[int] = ()) -> CompatPicture:
    """Convert a snapshot into the input of Pulsar's shedders, with the same rows.

    Capacity overrides count for the resources that Pulsar reports. `recent`: rows of recently unloaded bundles.
    """
    brokers, bundles = snapshot.brokers, snapshot.bundles
    pulsar_columns = slice(0, REPORTED_RESOURCES)
    most = np.broadcast_to(np.array([SHORT_SAMPLES, LONG_SAMPLES]), bundles.samples.shape)
    columns = BundleColumns(
        names=bundles.names,
        index={},
        short=bundles.short,
        long=bundles.long,
        samples=np.stack([most, bundles.samples], axis=2).reshape(-1, 4),
        topics=bundles.counts[:, 0],
        suspects=tuple(np.flatnonzero(bundles.system).tolist()),
    )
    return CompatPicture(
        brokers=brokers.ids,
        percent=percent(brokers.usage[:, pulsar_columns], brokers.limit[:, pulsar_columns]),
        traffic=brokers.traffic,
        bundle_count=np.diff(bundles.starts),
        starts=bundles.starts,
        held=np.arange(len(bundles.names), dtype=np.int64),
        stats=None,
        bundles=columns,
        recent=tuple(recent),
    )


def shed_in_plan(context: Context) -> Decision:
    """Run the copy of Pulsar's shedder for `params.strategy` in release `params.compat` once, and plan its moves."""
    params = context.params
    picture = picture_of(context.snapshot, context.eligible.codes.rows_with(_LATELY))
    result = shed(picture, params, context.memory.compat, params.strategy, params.compat)
    placer = Placer(picture, params, result.memory, params.placement, context.seed)
    refusals = _move(context, picture, result, placer)
    memory = replace(context.memory, compat=placer.memory())
    return Decision(verdict=result.verdict, memory=memory, brokers=list(result.brokers), refusals=refusals)


def _move(context: Context, picture: CompatPicture, result: CompatResult, placer: Placer) -> list[Refusal]:
    """Plan the move of each unloaded bundle for which there is a target; return refusals of the other bundles."""
    usage = picture.usage(context.params)
    targets = _Targets(context)
    refusals: list[Refusal] = []
    for row, source in result.unload:
        target = result.to.get(row, -1)
        if target < 0:
            candidates = targets.candidates_of(row)
            _, target = placer.select(row, candidates)
            if target >= 0 and usage[target] > context.params.overloaded_threshold_percent / 100:
                # The broker selects a second time if the first target is overloaded.
                _, target = placer.select(row, candidates)
        if target in (-1, source):
            code = Code.SAME_BROKER if target == source else Code.NO_LEGAL_TARGET
            refusal = Refusal(code=code, bundle=picture.bundles.names[row], broker=picture.brokers[source])
            bound = context.eligible.codes.get(row) in _BOUND
            refusals.append(context.eligible.refusal(context.snapshot, row) if bound else refusal)
        else:
            rule = f"{context.params.strategy} {context.params.compat}"
            context.draft.take(row, source, target, rule=rule, threshold=_threshold(context))
    return refusals


class _Targets:
    """Finds the brokers for a bundle's placement. A rule (closed brokers, topic limit) that excludes all is ignored."""

    def __init__(self, context: Context) -> None:
        self._permitted = context.draft.permitted
        self._open = ~context.draft.closed
        self._namespace = context.snapshot.bundles.namespace
        topics = context.snapshot.brokers.topics
        self._roomy = topics <= context.params.max_topics_per_broker
        self._known: dict[int, Ints] = {}

    def candidates_of(self, row: int) -> Ints:
        """Return the brokers (rows) for a bundle, including its owner."""
        namespace = int(self._namespace[row])
        candidates = self._known.get(namespace)
        if candidates is None:
            allowed = np.ones_like(self._roomy) if self._permitted is None else self._permitted[namespace]
            allowed = allowed & self._open if (allowed & self._open).any() else allowed
            roomy = allowed & self._roomy
            candidates = self._known[namespace] = np.flatnonzero(roomy if roomy.any() else allowed)
        return candidates


def _threshold(context: Context) -> float:
    params = context.params
    percents = {
        "threshold": params.threshold_percent,
        "overload": params.overloaded_threshold_percent,
        "avg": params.avg_low_threshold_percent,
    }
    return percents.get(params.strategy, params.msg_rate_difference_percent) / 100


_BYTES, _MESSAGES = 1e5, 100.0


def transfer_in_plan(context: Context) -> Decision:
    """Run the copy of TransferShedder once on the snapshot, and plan its moves."""
    ids, memory = context.snapshot.brokers.ids, context.memory
    scores = _scores(context)
    outcome = find_bundles(_picture(context, scores), context.params, memory.compat.condition_hits)
    refusals = _transfer(context, outcome, scores)
    usage = dict(zip(ids, scores.tolist(), strict=True))
    text = f"{outcome.label}: {len(outcome.unloads)} bundles; condition met {outcome.hits} times"
    return Decision(
        verdict=Verdict(code=outcome.reason, sentence=text, hits_low=outcome.hits),
        memory=replace(memory, compat=replace(memory.compat, usage=usage, condition_hits=outcome.hits)),
        refusals=refusals,
    )


def _scores(context: Context) -> Floats:
    """Return `weightedMaxEMA` of every broker: as extensible brokers report it, else smoothed here once per call."""
    reported, before = context.draft.reported, context.memory.compat.usage
    if context.snapshot.mode == "extensible":
        return reported.copy()
    weight, ids = context.params.history_weight, context.snapshot.brokers.ids
    history = np.array([before.get(broker, np.nan) for broker in ids])
    smoothed: Floats = np.where(np.isnan(history), reported, history * weight + (1 - weight) * reported)
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
    """Return a broker's published largest bundles, smallest first. `hidden`: bundles that brokers never publish."""
    bundles = context.snapshot.bundles
    span = bundles.rows_of(broker)
    traffic = bundles.latest[span]
    named = (traffic[:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1) > 0) & ~hidden[span]
    places: Ints = np.flatnonzero(named)
    if context.snapshot.mode != "extensible":
        places = places[largest(traffic[places], context.params.report_max_bundles)]
    return [
        TopBundle(bundles.names[span.start + place], *traffic[place, [THROUGHPUT_IN, THROUGHPUT_OUT]].tolist())
        for place in places.tolist()
    ]


def largest(traffic: Floats, most: int) -> Ints:
    """Return the rows of the largest bundles in `traffic` (columns of `TRAFFIC`), in Pulsar's order, lowest first.

    `most`: number of bundles; 0 or less: all.
    """
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


def _transfer(context: Context, outcome: TransferOutcome, scores: Floats) -> list[Refusal]:
    """Plan the moves that TransferShedder chose; return refusals of bundles that cannot move.

    TransferShedder requests all moves of a swap together, but the invariants check one move at a time. So moves to a
    less loaded broker come first.
    """
    index = context.snapshot.brokers.rows
    bundles = context.snapshot.bundles
    rows = {bundles.names[row]: row for row in bundles.rows_named({item.bundle for item in outcome.unloads})}
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


def _placed(context: Context, row: int, scores: Floats, random: np.random.Generator) -> int:
    """Draw a broker with a score well below the mean, else any candidate, as Pulsar does; -1: no candidates."""
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


PULSAR_SHEDDERS.update(dict.fromkeys(COMPAT_SHEDDERS, shed_in_plan), transfer=transfer_in_plan)
