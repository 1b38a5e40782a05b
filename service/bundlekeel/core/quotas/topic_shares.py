"""Distributes a broker's part of a group's limit among its topics, in proportion to their throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.snapshot import Bools

# The part that is divided evenly, whatever was passed before: else a new topic could never grow.
_EVEN_PART: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBrokers:
    """Who serves which topic: one row for each topic at each participant, sorted by both. `topic`, `participant`:
    numbers; `usage`: shape (rows, 4), what passes there."""

    topic: Ints
    participant: Ints
    usage: Floats


def by_usage(share: Floats, group: Ints, held: Bools, homes: TopicBrokers, kind: int) -> Floats:
    """Shares of the topics that are held back (`held`), divided again inside each broker: a tenth evenly, the rest in
    proportion to what they passed. So shares drift to even, a tenth of the way in each cycle.

    Sums of a broker stay what they were; a topic of several brokers adds up what it gets at each; one that passes
    nothing keeps its share.
    """
    here = homes.usage[:, kind]
    total = np.bincount(homes.topic, here, minlength=len(share))
    rows = np.flatnonzero(held[homes.topic] & (here > 0))
    if len(rows) == 0:
        return share
    topic, used = homes.topic[rows], here[rows]
    part = share[topic] * used / total[topic]
    _, pool_of = np.unique(np.stack([group[topic], homes.participant[rows]]), axis=1, return_inverse=True)
    pool_of = pool_of.ravel()
    pool, count, passed = np.bincount(pool_of, part), np.bincount(pool_of), np.bincount(pool_of, used)
    given = _EVEN_PART * pool[pool_of] / count[pool_of] + (1 - _EVEN_PART) * pool[pool_of] * used / passed[pool_of]
    found = share.copy()
    anew = held & (total > 0)
    # Rounding may not lift a group above what it had.
    found[anew] = np.bincount(topic, given, minlength=len(share))[anew] * (1 - 1e-12)
    return found
