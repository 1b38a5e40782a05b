"""Divides a broker's part of a group's limit among the group's topics there, in proportion to their throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.snapshot import Bools

# This part is divided evenly, independent of the topics' throughput, because a new topic could never grow otherwise.
_EVEN_PART: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBrokers:
    """The brokers that serve each topic: one row per topic and broker (participant), sorted by both.

    `topic`, `participant`: indexes of the row's topic and broker. `usage`: throughput of the topic there, shape
    (rows, 4).
    """

    topic: Ints
    participant: Ints
    usage: Floats


def by_usage(share: Floats, group: Ints, limited: Bools, homes: TopicBrokers, kind: int) -> Floats:
    """Divide the shares of limited topics (`limited`) again within each broker, and return the shares of all topics.

    A tenth of a broker's sum is divided evenly, the rest in proportion to the throughput. So over many cycles shares
    become equal, by a tenth of the difference per cycle. The sum at each broker stays the same. A topic at several
    brokers gets the sum of its parts. A topic without throughput keeps its share.
    """
    here = homes.usage[:, kind]
    total = np.bincount(homes.topic, here, minlength=len(share))
    rows = np.flatnonzero(limited[homes.topic] & (here > 0))
    if len(rows) == 0:
        return share
    topic, used = homes.topic[rows], here[rows]
    part = share[topic] * used / total[topic]
    _, pool_of = np.unique(np.stack([group[topic], homes.participant[rows]]), axis=1, return_inverse=True)
    pool_of = pool_of.ravel()
    pool, count, passed = np.bincount(pool_of, part), np.bincount(pool_of), np.bincount(pool_of, used)
    parts = _EVEN_PART * pool[pool_of] / count[pool_of] + (1 - _EVEN_PART) * pool[pool_of] * used / passed[pool_of]
    shares = share.copy()
    changed = limited & (total > 0)
    # Reduce shares where rounding has increased a group's sum.
    shares[changed] = np.bincount(topic, parts, minlength=len(share))[changed] * (1 - 1e-12)
    return shares
