"""Where to cut a bundle so that its load really divides: positions from topic hashes and rates.

Pulsar's own algorithms halve the range or the number of topics, and a bundle whose load sits in a few topics stays as
hot as it was. These positions go into `specified_positions_divide`. A topic with hash h lies below a boundary p when
h < p, so every p in (h[i], h[i + 1]] parts two neighbours alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bundlekeel.core.model.codes import Code

# With more than this share in one topic a split does not help: that topic's bundle would be as hot afterwards.
DOMINANT_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Boundaries strictly inside the bundle, ascending, and the share of the load in each piece, in range order."""

    positions: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCut:
    """Why no boundary would divide the load, and what would help instead."""

    code: Code
    sentence: str


@dataclass(frozen=True, slots=True)
class _Group:
    """Topics of one hash, which no boundary can part."""

    hash: int
    load: float
    topics: int


def split_bundle(
    topic_hashes: Sequence[int], topic_rates: Sequence[float], lower: int, upper: int, *, pieces: int = 2
) -> Cut | NoCut:
    """Positions that divide a bundle's load as evenly as its topics allow, or why there are none.

    `topic_hashes`: one a topic, in [lower, upper) (the last bundle of a namespace is closed at `upper`).
    `topic_rates`: what each topic carries in any one unit; negative and non-finite values count as 0, and when none
    carries anything all topics count alike. Of equally good cuts the one with the more even number of topics is
    taken, then the lowest. With more than two `pieces` the heaviest piece is cut again; there may be fewer in the end.
    """
    if len(topic_hashes) != len(topic_rates):
        raise ValueError(f"{len(topic_hashes)} hashes, but {len(topic_rates)} rates")
    if pieces < 2:
        raise ValueError(f"{pieces} pieces are no division")
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
    """Topics by hash, ascending."""
    loads = [rate if math.isfinite(rate) and rate > 0 else 0.0 for rate in rates]
    if not any(loads):
        loads = [1.0] * len(loads)
    by_hash: dict[int, list[float]] = {}
    for topic_hash, load in zip(hashes, loads, strict=True):
        by_hash.setdefault(topic_hash, []).append(load)
    # fsum: the same on any CPU and in any order of the topics.
    return [_Group(topic_hash, math.fsum(found), len(found)) for topic_hash, found in sorted(by_hash.items())]


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
    """Whether a boundary strictly below `upper` fits in front of group `place`."""
    return groups[place - 1].hash + 1 < upper and groups[place].hash > groups[place - 1].hash


def _best_place(groups: list[_Group], upper: int) -> int:
    """In front of which group the most even cut is; 0 when these groups cannot be parted."""
    total, topics = _load(groups), sum(group.topics for group in groups)
    best, found = (math.inf, math.inf), 0
    left, count = 0.0, 0
    for place in range(1, len(groups)):
        left += groups[place - 1].load
        count += groups[place - 1].topics
        # Rounded: sums that differ in their last bits only are equal, and the number of topics decides.
        uneven = (round(abs(total - 2 * left) / total, 12) if total > 0 else 0.0, abs(topics - 2 * count))
        if uneven < best and _partable(groups, place, upper):
            best, found = uneven, place
    return found


def _position(groups: list[_Group], place: int) -> int:
    """The middle of the gap in front of a group, so that topics to come fall on either side alike.

    It is below the bundle's end wherever `_partable` holds, also when the group lies at that very end.
    """
    below, above = groups[place - 1].hash, groups[place].hash
    return below + (above - below + 1) // 2
