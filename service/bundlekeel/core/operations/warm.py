"""Warm: fill a new or restarted broker soon, but gently: few moves a cycle, none for a few messages. Pure.

A broker without caches that gets its whole share at once is slow for all of it. So bundles come from the most loaded
brokers, at most `warm_max_moves_per_cycle` a cycle, until the broker carries `warm_until_share` of the mean score.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.strategies.common import EPSILON, best_fit

RULE = "warm"


def warm(
    draft: Draft, eligible: Bools, *, targets: Collection[str], closed: Collection[str], budget: int
) -> dict[str, bool]:
    """Take moves to these brokers into the draft. By broker: whether it is warm, or nothing is left that helps."""
    ids = draft.snapshot.brokers.ids
    open_to = np.array([broker not in closed for broker in ids], dtype=bool)
    mean = float(draft.score[open_to].mean()) if open_to.any() else 0.0
    ready = {}
    for target, broker in enumerate(ids):
        if broker not in targets:
            continue
        taken = 0
        while taken < budget and not is_warm(draft, target, mean) and _take_one(draft, eligible, target, mean, closed):
            taken += 1
        ready[broker] = taken == 0
    return ready


def is_warm(draft: Draft, target: int, mean: float) -> bool:
    """Whether the broker carries as much of the mean as it is filled to."""
    return float(draft.score[target]) >= draft.params.warm_until_share * mean - EPSILON


def _take_one(draft: Draft, eligible: Bools, target: int, mean: float, closed: Collection[str]) -> bool:
    """One bundle from the most loaded broker that has one which helps; False when there is none."""
    if not draft.legal_targets()[target]:
        return False
    limit = draft.params.overloaded_threshold_percent / 100
    ids = draft.snapshot.brokers.ids
    for source in np.argsort(-draft.score, kind="stable").tolist():
        score, other = float(draft.score[source]), float(draft.score[target])
        if source == target or ids[source] in closed or score <= mean:
            continue
        rows = draft.movable(source, eligible)
        if len(rows) == 0:
            continue
        offer = draft.offer(rows, source, target)
        want = min(score - mean, mean - other)
        index = best_fit(offer, score, other, want, ceiling=limit, slack=0.0)
        if index >= 0 and score - float(offer.source_after[index]) >= draft.params.min_unload_share * mean:
            draft.take(int(rows[index]), source, target, rule=RULE, threshold=draft.params.warm_until_share)
            return True
    return False
