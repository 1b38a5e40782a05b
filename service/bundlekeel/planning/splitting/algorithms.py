"""Copies of Pulsar's split algorithms: the hash positions at which a broker would cut a bundle.

Each function returns the new boundaries, or an empty tuple if Pulsar finds no boundaries. (Pulsar's REST API does not
show the difference: it returns 204 with and without a split.) They copy Pulsar's integer arithmetic exactly:
`RangeEquallyDivideBundleSplitAlgorithm`, `TopicCountEquallyDivide...`, `FlowOrQpsEquallyDivide...`.
`SpecifiedPositions...` needs no function, because the caller chooses the positions. A broker rejects boundaries that
are not strictly inside the bundle. `topic_count_equally_divide` can return such a boundary if the hashes of two topics
are next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

_MIB = 1024 * 1024


class SplitAlgorithm(StrEnum):
    """Names of Pulsar's split algorithms, for the parameter `splitAlgorithmName` of the admin API."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    POSITIONS = "specified_positions_divide"
    FLOW = "flow_or_qps_equally_divide"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """An operator's choices for a split.

    `algorithm`: Pulsar's algorithm; None: split at the hash positions `at`, or if `at` is empty, where the load divides
    evenly. `unload`: whether the next cycles move the children (the new, smaller bundles) to other brokers.
    """

    algorithm: SplitAlgorithm | None = None
    at: tuple[int, ...] = ()
    unload: bool = False


BY_LOAD: Final = SplitOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFlow:
    """Hash of a topic and its traffic, the sum of in and out: msg/s and bytes/s."""

    hash: int
    msg_rate: float
    throughput: float


def range_equally_divide(lower: int, upper: int) -> tuple[int, ...]:
    """Return the middle of the bundle's hash range, without regard to topics."""
    return (lower + (upper - lower) // 2,)


def topic_count_equally_divide(topic_hashes: Sequence[int]) -> tuple[int, ...]:
    """Return the hash in the middle between the two median topics; () for fewer than two topics."""
    if len(topic_hashes) < 2:
        return ()
    ordered = sorted(topic_hashes)
    below, above = ordered[len(ordered) // 2 - 1], ordered[len(ordered) // 2]
    return (below + (above - below) // 2,)


def flow_or_qps_equally_divide(
    topics: Sequence[TopicFlow], *, max_msg_rate: float, max_bandwidth_mb: float, difference_percent: float = 10.0
) -> tuple[int, ...]:
    """Return ascending boundaries: one before each topic that would raise its piece above a maximum (Pulsar 3.0).

    Returns () if fewer than two topics have traffic, or if the bundle exceeds no maximum by `difference_percent`. If
    several topics have the same hash, each of them counts with the traffic of the last one, as in Pulsar.
    `max_bandwidth_mb` is in MiB/s.
    """
    moving = [topic for topic in topics if topic.msg_rate > 0 or topic.throughput > 0]
    by_hash = {topic.hash: topic for topic in moving}
    max_throughput = max_bandwidth_mb * _MIB
    over = 1 + difference_percent / 100.0
    # Add the rates in the order of `topics`, as Java does: another order can change the last bits.
    rate, throughput = 0.0, 0.0
    for topic in moving:
        rate += topic.msg_rate
        throughput += topic.throughput
    if len(by_hash) < 2 or (rate < max_msg_rate * over and throughput < max_throughput * over):
        return ()
    hashes = sorted(topic.hash for topic in moving)
    cuts: list[int] = []
    rate, throughput = by_hash[hashes[0]].msg_rate, by_hash[hashes[0]].throughput
    for below, above in pairwise(hashes):
        topic = by_hash[above]
        if rate + topic.msg_rate > max_msg_rate or throughput + topic.throughput > max_throughput:
            cuts.append(below + (above - below) // 2 + 1)
            rate, throughput = topic.msg_rate, topic.throughput
        else:
            rate += topic.msg_rate
            throughput += topic.throughput
    return tuple(cuts)
