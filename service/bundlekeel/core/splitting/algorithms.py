"""Pulsar's split algorithms on plain numbers: where a broker would cut a bundle.

Each returns the boundaries, or an empty tuple where Pulsar finds none (REST answers 204 nevertheless). They are kept
as they are, whole numbers and all: `RangeEquallyDivideBundleSplitAlgorithm`, `TopicCountEquallyDivide...`,
`FlowOrQpsEquallyDivide...`; `SpecifiedPositions...` cuts where it is told. A broker then refuses boundaries that do not
lie strictly inside the bundle, which `topic_count_equally_divide` may name when topics hash next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

_MIB = 1024 * 1024


class SplitAlgorithm(StrEnum):
    """Names as `NamespaceBundleSplitAlgorithm` has them, and the admin API takes them (`splitAlgorithmName`)."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    POSITIONS = "specified_positions_divide"
    FLOW = "flow_or_qps_equally_divide"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """How a person wants a bundle divided. `algorithm` None: `at` these positions, or where its load divides. `unload`:
    its children leave their broker in the cycles after it."""

    algorithm: SplitAlgorithm | None = None
    at: tuple[int, ...] = ()
    unload: bool = False


BY_LOAD: Final = SplitOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFlow:
    """One topic: its hash, and msg/s and bytes/s, in and out together."""

    hash: int
    msg_rate: float
    throughput: float


def range_equally_divide(lower: int, upper: int) -> tuple[int, ...]:
    """The middle of the hash range, whatever it holds."""
    return (lower + (upper - lower) // 2,)


def topic_count_equally_divide(topic_hashes: Sequence[int]) -> tuple[int, ...]:
    """The middle between the two topics in the middle; nothing with fewer than two topics."""
    if len(topic_hashes) < 2:
        return ()
    ordered = sorted(topic_hashes)
    below, above = ordered[len(ordered) // 2 - 1], ordered[len(ordered) // 2]
    return (below + (above - below) // 2,)


def flow_or_qps_equally_divide(
    topics: Sequence[TopicFlow], *, max_msg_rate: float, max_bandwidth_mb: float, difference_percent: float = 10.0
) -> tuple[int, ...]:
    """Cuts in hash order, wherever the next topic would carry a piece over either maximum (Pulsar 3.0).

    Nothing unless two topics have traffic and the bundle reaches a maximum plus `difference_percent`. Topics of one
    hash count once, with the figures of the last of them, but are walked over as often as they are: so does Pulsar.
    `max_bandwidth_mb` in MiB/s.
    """
    moving = [topic for topic in topics if topic.msg_rate > 0 or topic.throughput > 0]
    by_hash = {topic.hash: topic for topic in moving}
    max_throughput = max_bandwidth_mb * _MIB
    over = 1 + difference_percent / 100.0
    # Running sums in the order given, as Java adds them.
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
