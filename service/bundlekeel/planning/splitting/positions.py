"""Find hash positions at which a split divides the load of a bundle evenly, from the hashes and rates of its topics.

Pulsar's own algorithms halve the range or the number of topics. If a few topics carry the load, one child stays as hot
as the parent. These positions are for `specified_positions_divide`. A topic with hash h is below a boundary p if h < p,
so every p in (h[i], h[i + 1]] separates the same two neighbors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bundlekeel.model.codes import Code

# If one topic has more than this share of the load, a split does not help: the topic's new bundle would be as hot.
DOMINANT_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Result of `split_bundle`: ascending hash positions strictly inside the bundle.

    `shares`: share of the load in each piece, in range order.
    """

    positions: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCut:
    """Result of `split_bundle` if no position divides the load: the reason and the remedy."""

    code: Code
    sentence: str


@dataclass(frozen=True, slots=True)
class _Group:
    """Topics with the same hash, which no boundary can separate."""

    hash: int
    load: float
    topics: int


def split_bundle(
    topic_hashes: Sequence[int], topic_rates: Sequence[float], lower: int, upper: int, *, pieces: int = 2
) -> Cut | NoCut:
    """Return the hash positions that divide a bundle's load most evenly, or the reason why no position does.

    `topic_hashes`: one hash per topic, in [lower, upper); the last bundle of a namespace includes `upper`.
    `topic_rates`: load of each topic, in any unit. Negative and non-finite values count as 0. If no topic has load, all
    topics have the same weight. Of equally good positions, the one with the more even number of topics wins, then the
    lowest. With more than two `pieces`, the heaviest piece is cut again; the result can have fewer pieces.
    """
    if len(topic_hashes) != len(topic_rates):
        raise ValueError(f"{len(topic_hashes)} hashes, but {len(topic_rates)} rates")
    if pieces < 2:
        raise ValueError(f"{pieces} pieces are too few; expected 2 or more")
    groups = _groups(topic_hashes, topic_rates)
    obstacle = _obstacle(groups, len(topic_hashes), lower, upper)
    if obstacle is not None:
        return obstacle
    parts = [groups]
    positions: list[int] = []
    while len(parts) < pieces:
        heaviest = max(range(len(parts)), key=lambda number: _load(parts[number]))
        place = _best_place(parts[heaviest], upper)
        if place == 0:
            break
        part = parts[heaviest]
        positions.append(_position(part, place))
        parts[heaviest : heaviest + 1] = [part[:place], part[place:]]
    total = _load(groups)
    return Cut(positions=tuple(sorted(positions)), shares=tuple(_load(part) / total for part in parts))


def _groups(hashes: Sequence[int], rates: Sequence[float]) -> list[_Group]:
    """Group the topics by hash, in ascending order of hashes."""
    loads = [rate if math.isfinite(rate) and rate > 0 else 0.0 for rate in rates]
    if not any(loads):
        loads = [1.0] * len(loads)
    by_hash: dict[int, list[float]] = {}
    for topic_hash, load in zip(hashes, loads, strict=True):
        by_hash.setdefault(topic_hash, []).append(load)
    # `fsum` gives the same sum on any CPU and in any order of the topics.
    return [_Group(topic_hash, math.fsum(group), len(group)) for topic_hash, group in sorted(by_hash.items())]


def _obstacle(groups: list[_Group], topics: int, lower: int, upper: int) -> NoCut | None:
    if topics < 2:
        return NoCut(
            code=Code.SINGLE_TOPIC,
            sentence=f"{'1 topic' if topics else 'no topics'}; add partitions",
        )
    if upper - lower < 2 or not any(_partable(groups, place, upper) for place in range(1, len(groups))):
        return NoCut(
            code=Code.SAME_HASH,
            sentence=f"its {topics} topics have the same hash, so no boundary separates them; add partitions",
        )
    share = max(group.load for group in groups) / _load(groups)
    if share > DOMINANT_SHARE:
        return NoCut(
            code=Code.DOMINANT_TOPIC,
            sentence=f"one topic carries {share:.0%} of the load and would do so in a bundle of its own; "
            "add partitions to it",
        )
    return None


def _load(groups: list[_Group]) -> float:
    return math.fsum(group.load for group in groups)


def _partable(groups: list[_Group], place: int, upper: int) -> bool:
    """Return whether a boundary below `upper` can separate the group of topics `place` from the group before it."""
    return groups[place - 1].hash + 1 < upper and groups[place].hash > groups[place - 1].hash


def _best_place(groups: list[_Group], upper: int) -> int:
    """Return the index of the group of topics before which a cut is most even; 0: no boundary is possible."""
    total, topics = _load(groups), sum(group.topics for group in groups)
    best, best_place = (math.inf, math.inf), 0
    left, count = 0.0, 0
    for place in range(1, len(groups)):
        left += groups[place - 1].load
        count += groups[place - 1].topics
        # Rounded, so that sums that differ only in their last bits are equal and the number of topics decides.
        uneven = (round(abs(total - 2 * left) / total, 12) if total > 0 else 0.0, abs(topics - 2 * count))
        if uneven < best and _partable(groups, place, upper):
            best, best_place = uneven, place
    return best_place


def _position(groups: list[_Group], place: int) -> int:
    """Return the middle of the gap before a group of topics, so that new topics land on both sides equally often.

    It is below the end of the bundle if `_partable` is true, even for a group at that end.
    """
    below, above = groups[place - 1].hash, groups[place].hash
    return below + (above - below + 1) // 2
