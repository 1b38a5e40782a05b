"""A compat class inside `plan()`: it selects and places as in a broker, on the same snapshot as every strategy.

What the broker's loop (`doLoadShedding`) does around the class is here too: bundles that moved lately or are under way
count as unloaded lately, each bundle is placed on the unchanged picture (no preallocation, so several may pile up on
one broker), and a bundle whose destination is its owner stays. The laws after it (core/planning/invariants.py) are
ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from bundlekeel.core.compat import shed
from bundlekeel.core.compat.picture import BundleColumns, CompatPicture, CompatResult, percent
from bundlekeel.core.compat.placement import Placer
from bundlekeel.core.model.averages import LONG_SAMPLES, SHORT_SAMPLES
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import REPORTED_RESOURCES, Ints
from bundlekeel.core.model.plan import Refusal
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.strategies.common import Context, Decision

# What the broker does not know of, but what its list of recently unloaded bundles stands for here.
_LATELY: Final = frozenset(
    {Code.COOL_DOWN, Code.IN_TRANSIT, Code.UNSETTLED, Code.FROZEN_INTENT, Code.PINNED, Code.SPLITTING}
)

# A bundle that must stay at its broker is refused by that name, also when the class found it no place.
_BOUND: Final = frozenset({Code.POLICY_FORBIDS, Code.POLICY_UNREADABLE, Code.SYSTEM_BUNDLE})


def picture_of(snapshot: Snapshot, recent: Sequence[int] = ()) -> CompatPicture:
    """The snapshot as Pulsar's classes see a cluster; rows stay rows. `recent`: rows of bundles unloaded lately.

    Capacity overrides count as far as they are about resources that Pulsar knows.
    """
    brokers, bundles = snapshot.brokers, snapshot.bundles
    seen = slice(0, REPORTED_RESOURCES)
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
        percent=percent(brokers.usage[:, seen], brokers.limit[:, seen]),
        traffic=brokers.traffic,
        bundle_count=np.diff(bundles.starts),
        starts=bundles.starts,
        held=np.arange(len(bundles.names), dtype=np.int64),
        stats=None,
        bundles=columns,
        recent=tuple(recent),
    )


def shed_in_plan(context: Context) -> Decision:
    """One turn of the class that `params.strategy` and `params.compat` name; moves go to the draft."""
    params = context.params
    picture = picture_of(context.snapshot, context.eligible.codes.rows_with(_LATELY))
    result = shed(picture, params, context.memory.compat, params.strategy, params.compat)
    placer = Placer(picture, params, result.memory, params.placement, context.seed)
    refusals = _move(context, picture, result, placer)
    memory = replace(context.memory, compat=placer.memory())
    return Decision(verdict=result.verdict, memory=memory, brokers=list(result.brokers), refusals=refusals)


def _move(context: Context, picture: CompatPicture, result: CompatResult, placer: Placer) -> list[Refusal]:
    """Draft a move for each bundle that has somewhere to go; a refusal for the others."""
    usage = picture.usage(context.params)
    targets = _Targets(context)
    refusals: list[Refusal] = []
    for row, source in result.unload:
        target = result.to.get(row, -1)
        if target < 0:
            candidates = targets.of(row)
            _, target = placer.select(row, candidates)
            if target >= 0 and usage[target] > context.params.overloaded_threshold_percent / 100:
                # The broker's loop asks once more when the first answer is overloaded.
                _, target = placer.select(row, candidates)
        if target in (-1, source):
            code = context.eligible.codes.get(row)
            if code not in _BOUND:
                code = Code.SAME_BROKER if target == source else Code.NO_LEGAL_TARGET
            refusals.append(Refusal(code=code, bundle=picture.bundles.names[row], broker=picture.brokers[source]))
        else:
            rule = f"{context.params.strategy} {context.params.compat}"
            context.draft.take(row, source, target, rule=rule, threshold=_threshold(context))
    return refusals


class _Targets:
    """The brokers that a placement may choose from: policies, then topics, as long as that leaves anybody."""

    def __init__(self, context: Context) -> None:
        self._permitted = context.draft.permitted
        self._open = ~context.draft.closed
        self._namespace = context.snapshot.bundles.namespace
        topics = context.snapshot.brokers.topics
        self._roomy = topics <= context.params.max_topics_per_broker
        self._known: dict[int, Ints] = {}

    def of(self, row: int) -> Ints:
        """The candidates for a bundle, its owner among them."""
        namespace = int(self._namespace[row])
        found = self._known.get(namespace)
        if found is None:
            allowed = np.ones_like(self._roomy) if self._permitted is None else self._permitted[namespace]
            allowed = allowed & self._open if (allowed & self._open).any() else allowed
            roomy = allowed & self._roomy
            found = self._known[namespace] = np.flatnonzero(roomy if roomy.any() else allowed)
        return found


def _threshold(context: Context) -> float:
    """The threshold that the moves are explained with, as a ratio."""
    params = context.params
    percents = {
        "threshold": params.threshold_percent,
        "overload": params.overloaded_threshold_percent,
        "avg": params.avg_low_threshold_percent,
    }
    return percents.get(params.strategy, params.msg_rate_difference_percent) / 100
