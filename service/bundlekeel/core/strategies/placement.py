"""Placements: which broker takes a bundle that a shedder chose, when the shedder does not couple it itself.

The destination is always chosen before the unload. Policies, max topics and the overload threshold narrow the
candidates before a placement sees them. `threshold` and `overload` ask the placement; `avg`, `uniform`, `deviation`
and `transfer` couple their destinations, whatever the placement is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from bundlekeel.core.model.load import Ints
from bundlekeel.core.model.parameters import add_choice
from bundlekeel.core.planning.draft import Draft

# (draft, bundle row, source row, candidate rows in broker order) -> candidates, best first
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


def round_robin(draft: Draft, row: int, source: int, candidates: Ints) -> Ints:
    """The next broker in id order after the one that took the last bundle (`RoundRobinBrokerSelector`, but by
    position among all brokers: a counter modulo the candidates skips brokers whenever their number changes).
    `Memory.turn` carries the position to the next cycle."""
    return _from(candidates, int(np.searchsorted(candidates, draft.turn)))


def by_hash(draft: Draft, row: int, source: int, candidates: Ints) -> Ints:
    """`avg`, where the shedder gave no destination: CRC-32 of the bundle's name, modulo the candidates in id order
    (PIP-364's hash allocation; AvgShedder hashes a random number, so that two leaders would disagree)."""
    return _from(candidates, zlib.crc32(draft.snapshot.bundles.names[row].encode()))


def _from(candidates: Ints, start: int) -> Ints:
    """The candidates in a circle, beginning at an index (modulo their number)."""
    if len(candidates) == 0:
        return candidates
    return np.roll(candidates, -(start % len(candidates)))


PLACEMENTS: dict[str, Placement] = {
    "least_resource_usage": least_resource_usage,
    "least_long_term_message_rate": least_long_term_message_rate,
    "round_robin": round_robin,
    "avg": by_hash,
}


def register(name: str, placement: Placement) -> None:
    """Add a third party's placement (entry point group `bundlekeel.placements`). ConfigError when the name is bad
    or taken."""
    add_choice("placement", name)
    PLACEMENTS[name] = placement


def legal_targets(draft: Draft, source: int, rows: Ints | None = None) -> Ints:
    """Rows of the brokers that may take a bundle of `source`, which is not among them; with `rows` one of these."""
    legal = draft.legal_targets()
    if rows is not None:
        legal &= draft.reachable(rows)
    legal[source] = False
    found: Ints = np.flatnonzero(legal)
    return found
