"""The iteration order of Java's hash maps: equal loads have this order, and sums of doubles depend on it.

`LoadData` contains brokers and bundles in a `ConcurrentHashMap`; shedding copies the bundles into a `HashMap`. Both
iterate over their buckets in ascending order. Within a bucket, a `HashMap` has the order of insertion. A growing
`ConcurrentHashMap` reverses part of it, unless the bucket has become a tree. The functions assume a map that is filled
once, in the order of the input, and ignore the trees of a `HashMap` (buckets with nine keys).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bundlekeel.model.load import Ints
from bundlekeel.model.snapshot import Bools

Words = NDArray[np.uint32]
_FIRST_TABLE: Final = 16
# `TREEIFY_THRESHOLD` plus 1, because Java compares it before it counts the new key; `MIN_TREEIFY_CAPACITY`;
# `UNTREEIFY_THRESHOLD`.
_TREE_KEYS: Final = 9
_TREES_FROM: Final = 64
_LIST_KEYS: Final = 6
_INVERSE_OF_31: Final = pow(31, -1, 2**32)
# Number of strings per batch, such that a matrix of their characters fits into a processor's cache.
_AT_ONCE: Final = 2048


def spread_hashes(texts: Sequence[str]) -> Ints:
    """Return `hashCode` of each string with its upper half mixed in, as Java's hash maps do; below 2^31."""
    parts = [_hashes(texts[start : start + _AT_ONCE]) for start in range(0, len(texts), _AT_ONCE)]
    hashes = np.concatenate([np.zeros(0, dtype=np.uint32), *parts])
    mixed: Ints = ((hashes ^ (hashes >> np.uint32(16))) & np.uint32(2**31 - 1)).astype(np.int64)
    return mixed


def _hashes(texts: Sequence[str]) -> Words:
    """Return `String.hashCode`: a polynomial in 31 over the UTF-16 units, modulo 2^32."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    width = max(int(lengths.max()), 1)
    points = np.array(texts, dtype=f"U{width}").view(np.uint32).reshape(len(texts), width)
    hashes: Words = np.zeros(len(texts), dtype=np.uint32)
    for column in range(width):
        hashes = hashes * np.uint32(31) + points[:, column]
    # Shorter strings were multiplied by 31 too often, which the inverse of 31 corrects.
    undo = np.cumprod(np.r_[1, np.full(width, _INVERSE_OF_31)].astype(np.uint32), dtype=np.uint32)
    hashes *= undo[width - lengths]
    for row in np.flatnonzero((points > 0xFFFF).any(axis=1)).tolist():
        hashes[row] = _hash_by_units(texts[row])
    return hashes


def _hash_by_units(text: str) -> int:
    value = 0
    for unit in np.frombuffer(text.encode("utf-16-le", "surrogatepass"), dtype="<u2").tolist():
        value = (31 * value + unit) % 2**32
    return value


def concurrent_order(hashes: Ints) -> Ints:
    """Return the positions of the keys in the order of a `ConcurrentHashMap` that was filled one key at a time."""
    table, tree = _FIRST_TABLE, np.zeros(len(hashes), dtype=bool)
    order: Ints = np.zeros(0, dtype=np.int64)
    while True:
        # The table doubles when three quarters are reached, not when they are exceeded.
        end = min(len(hashes), table * 3 // 4)
        doublings = int(end == table * 3 // 4)
        if table < _TREES_FROM and (crowded := _crowded(hashes[:end] & (table - 1))):
            end, doublings = crowded, 3
        order = _filled(hashes, order, tree, end, table)
        if not doublings:
            return order
        for _ in range(doublings):
            order = _doubled(hashes, order, tree, table)
            table *= 2


def _crowded(buckets: Ints) -> int:
    """Return the number of keys after which a bucket has enough keys for a tree; 0: never.

    At that number, a small table grows to eight times its size instead of creating a tree (`tryPresize`).
    """
    met: Counter[int] = Counter()
    for count, bucket in enumerate(buckets.tolist(), 1):
        met[bucket] += 1
        if met[bucket] == _TREE_KEYS:
            return count
    return 0


def _filled(hashes: Ints, order: Ints, tree: Bools, end: int, table: int) -> Ints:
    """Return the order of the keys in the table after all keys before `end` were added.

    A new key comes last in its bucket, but first in a tree. `tree`: whether each key is in a tree.
    """
    before = len(order)
    order = np.concatenate([order, np.arange(before, end)])
    order = order[np.argsort(hashes[order] & (table - 1), kind="stable")]
    buckets = hashes[order] & (table - 1)
    many = np.bincount(buckets, minlength=1) >= _TREE_KEYS
    for bucket in np.unique(buckets[many[buckets] | tree[order]]).tolist():
        first, last = np.searchsorted(buckets, (bucket, bucket + 1)).tolist()
        keys = order[first:last]
        earlier = int((keys < before).sum())
        size = earlier if tree[keys[0]] else max(_TREE_KEYS, earlier + 1)
        if len(keys) >= size and table >= _TREES_FROM:
            order[first:last] = np.concatenate([keys[size:][::-1], keys[:size]])
            tree[keys] = True
    return order


def _doubled(hashes: Ints, order: Ints, tree: Bools, table: int) -> Ints:
    """Return the order of the keys after the table has doubled, so that each bucket is divided into two.

    Of a bucket, the last keys that go to the same half keep their order. The keys before them are added at the front
    one at a time, which reverses them. Trees keep their order. A tree with few keys becomes a normal bucket.
    """
    keys = hashes[order]
    bucket, upper = keys & (table - 1), (keys & table) != 0
    turns = np.zeros(len(order) + 1, dtype=np.int64)
    turns[: len(order) - 1] = (bucket[1:] == bucket[:-1]) & (upper[1:] != upper[:-1])
    later = np.cumsum(turns[::-1])[::-1]
    turned = (later[:-1] > later[np.searchsorted(bucket, bucket, side="right")]) & ~tree[order]
    place, parted = np.arange(len(order)), keys & (2 * table - 1)
    tree[order] &= np.bincount(parted, minlength=1)[parted] > _LIST_KEYS
    return order[np.lexsort((np.where(turned, -place, place), parted))]


def table_of(count: int) -> int:
    """Return the table size of a `HashMap` with `count` keys."""
    table = _FIRST_TABLE
    while count > table * 3 // 4:
        table *= 2
    return table
