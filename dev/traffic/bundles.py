"""Positions of topics in a namespace's hash space, computed as Pulsar does."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence

HASH_END = 0xFFFFFFFF


def topic_hash(topic: str) -> int:
    """Return the position of a full topic name ("persistent://t/ns/name") in the hash space."""
    return zlib.crc32(topic.encode())


def equal_boundaries(bundles: int) -> list[int]:
    """Return the ``bundles + 1`` boundaries of a fresh namespace with that many bundles."""
    size = (1 << 32) // bundles
    return [index * size for index in range(bundles)] + [HASH_END]


def bundle_index(boundaries: Sequence[int], position: int) -> int:
    """Return the index of the bundle that contains a hash position; the last bundle includes its upper boundary."""
    return min(bisect_right(boundaries, position) - 1, len(boundaries) - 2)


def range_text(boundaries: Sequence[int], index: int) -> str:
    """Return a bundle's range as Pulsar writes it, for example "0x00000000_0x08000000"."""
    return f"0x{boundaries[index]:08x}_0x{boundaries[index + 1]:08x}"


def bundle_of(topic: str, boundaries: Sequence[int]) -> str:
    """Return the bundle of a full topic name as "tenant/namespace/0x…_0x…"."""
    namespace = topic.partition("://")[2].rpartition("/")[0]
    return f"{namespace}/{range_text(boundaries, bundle_index(boundaries, topic_hash(topic)))}"


def covers(bundle: str, topic: str) -> bool:
    """Return whether a bundle ("tenant/namespace/range", or only the range) contains a topic.

    The bundle can also be the result of a later split. Raises ValueError if ``bundle`` does not end in a range.
    """
    namespace, _, hash_range = bundle.rpartition("/")
    low, _, high = hash_range.partition("_")
    start, end = int(low, 16), int(high, 16)
    if namespace and topic.partition("://")[2].rpartition("/")[0] != namespace:
        return False
    position = topic_hash(topic)
    return start <= position < end or position == end == HASH_END
