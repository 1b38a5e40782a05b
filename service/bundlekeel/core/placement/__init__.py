"""Placements: which broker takes a bundle that a shedder chose, when the shedder does not couple it itself.

The destination is always chosen before the unload. Policies, max topics and the rest of the assignment pipeline
(issue B) narrow `candidates` before a placement sees them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bundlekeel.core.draft import Draft
from bundlekeel.core.load import Ints

# (draft, bundle row, source row, candidate rows) -> candidates, best first
Placement = Callable[[Draft, int, int, Ints], Ints]


def least_resource_usage(draft: Draft, row: int, source: int, candidates: Ints) -> Ints:
    """Lowest predicted score with the bundle on it; equal ones in broker order (`LeastResourceUsageWithWeight`,
    but without its randomness and without a history that every selection wears off)."""
    scores = draft.with_bundle(row, source, candidates)
    ordered: Ints = candidates[np.argsort(scores, kind="stable")]
    return ordered


def least_long_term_message_rate(draft: Draft, row: int, source: int, candidates: Ints) -> Ints:
    """Lowest long-term message rate, what this plan placed included; equal ones in broker order
    (`LeastLongTermMessageRate`, but counting its own placements)."""
    ordered: Ints = candidates[np.argsort(draft.long_rate()[candidates], kind="stable")]
    return ordered


PLACEMENTS: dict[str, Placement] = {
    "least_resource_usage": least_resource_usage,
    "least_long_term_message_rate": least_long_term_message_rate,
}


def legal_targets(draft: Draft, source: int) -> Ints:
    """Rows of the brokers that may take a bundle of `source`, which is not among them."""
    legal = draft.legal_targets()
    legal[source] = False
    found: Ints = np.flatnonzero(legal)
    return found
