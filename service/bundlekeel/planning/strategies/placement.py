"""Placements: the choice of the target broker for a bundle, if the shedder does not choose it.

The target is always chosen before the unload. Policies, the topic limit and the overload threshold narrow the
candidates first. `threshold` and `overload` use the placement. `avg`, `uniform`, `deviation` and `transfer` choose
their targets themselves and ignore it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from bundlekeel.model.load import Ints
from bundlekeel.model.parameters import add_choice
from bundlekeel.planning.draft import Draft

# (draft, bundle row, source row, candidate rows in broker order) -> candidates, best first
Placement = Callable[[Draft, int, int, Ints], Ints]


def least_resource_usage(draft: Draft, row: int, source: int, candidates: Ints) -> Ints:
    """Sort the candidates by predicted score with the bundle, then in broker order (`LeastResourceUsageWithWeight`).

    Unlike Pulsar's class it is not random, and it has no history that each selection changes.
    """
    scores = draft.with_bundle(row, source, candidates)
    ordered: Ints = candidates[np.argsort(scores, kind="stable")]
    return ordered


def least_long_term_message_rate(draft: Draft, row: int, source: int, candidates: Ints) -> Ints:
    """Sort the candidates by long-term message rate, then in broker order (`LeastLongTermMessageRate`).

    Unlike Pulsar's class it includes the bundles that this plan has placed.
    """
    ordered: Ints = candidates[np.argsort(draft.long_rate()[candidates], kind="stable")]
    return ordered


def round_robin(draft: Draft, row: int, source: int, candidates: Ints) -> Ints:
    """Sort the candidates in id order, beginning after the last target (`RoundRobinBrokerSelector`).

    The position is among all brokers: Pulsar's counter modulo the candidates skips brokers when their number changes.
    `StrategyMemory.turn` stores the position for the next cycle.
    """
    return _from(candidates, int(np.searchsorted(candidates, draft.turn)))


def by_hash(draft: Draft, row: int, source: int, candidates: Ints) -> Ints:
    """Sort the candidates in id order, beginning at a hash of the bundle's name (placement `avg`).

    This is the hash allocation of PIP-364: CRC-32 modulo the number of candidates. AvgShedder hashes a random number,
    so two leaders would disagree.
    """
    return _from(candidates, zlib.crc32(draft.snapshot.bundles.names[row].encode()))


def _from(candidates: Ints, start: int) -> Ints:
    """Rotate the candidates such that index `start` (modulo their number) is first."""
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
    """Add the placement of a plugin (entry point group `bundlekeel.placements`).

    Raises ConfigError if the name is invalid or in use.
    """
    add_choice("placement", name)
    PLACEMENTS[name] = placement


def legal_targets(draft: Draft, source: int, rows: Ints | None = None) -> Ints:
    """Return the brokers (rows) other than `source` that may take one of the bundles `rows`; None: any bundle."""
    legal = draft.legal_targets()
    if rows is not None:
        legal &= draft.reachable(rows)
    legal[source] = False
    rows_open: Ints = np.flatnonzero(legal)
    return rows_open
