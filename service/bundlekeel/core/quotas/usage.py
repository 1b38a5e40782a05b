"""Usage: what passes, as columns, by group, broker and topic.

Pulsar resolves topic policies by the partitioned topic, so that is the topic here; each row is one partition (or a
topic that is none) at its broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from bundlekeel.core.load import Floats, Ints
from bundlekeel.core.names import parse_topic
from bundlekeel.core.quotas.columns import in_order
from bundlekeel.core.quotas.groups import KINDS, Membership, Rates

_PARTITION: Final = "-partition-"
Key = tuple[str, str]  # group, topic
# Names that are told again are compared so many at once.
_STRIDE: Final = 64
# So many names that are told no more are kept in any case.
_SPARE_NAMES: Final = 10_000


class TopicRates(NamedTuple):
    """What one broker tells: of each topic or partition it serves, by full name and sorted, its rates averaged over the
    last report cycle; shape (names, 4), columns `KINDS`."""

    broker: str
    names: tuple[str, ...]
    rates: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTable:
    """One row for each topic or partition that belongs to a group, sorted by topic and broker.

    `keys`: group and (partitioned) topic, sorted; `key`: number in them; `broker`: number in `brokers`; `group`: number
    of its group; `rates`: shape (rows, 4), columns `KINDS`. `seen`: of topics that have partitions, how many are seen.
    """

    keys: tuple[Key, ...]
    brokers: tuple[str, ...]
    key: Ints
    broker: Ints
    group: Ints
    rates: Floats
    seen: Mapping[str, int]

    def by_group(self, count: int) -> Floats:
        """Shape (count, 4)."""
        return sums(self.rates, self.group, count)

    def by_broker(self, group: int) -> Floats:
        """Of one group, shape (brokers, 4)."""
        mine = self.group == group
        return sums(self.rates[mine], self.broker[mine], len(self.brokers))


@dataclass(slots=True)
class _Names:
    """Numbers of topics that were told: of each its key, -1 for what belongs to no group; and of each key its group."""

    membership: Membership
    # By partitioned topic as it is told: a dictionary of all partitions would be larger than everything else.
    number: dict[str, int] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    key_number: dict[Key, int] = field(default_factory=dict)

    def of(self, names: Sequence[str]) -> Ints:
        """Of each name twice its key, one more where it is a partition; below 0 for what belongs to no group. Raises
        ValueError for what is no topic name."""
        found, number = [], self.number
        for name in names:
            topic = topic_of(name)
            key = number.get(topic)
            if key is None:
                key = number[topic] = self._key(topic)
            found.append(2 * key + (topic != name) if key >= 0 else -1)
        return np.array(found, dtype=np.int64)

    def again(self, names: Sequence[str], before: Sequence[str], ids: Ints) -> Ints:
        """The same where most were told before, with these numbers, and few came or went in between: names that stand
        next to each other again need not be looked up. Raises ValueError for what is no topic name."""
        if not before:
            return self.of(names)
        found = np.empty(len(names), dtype=np.int64)
        old = 0
        for new in range(0, len(names), _STRIDE):
            part = names[new : new + _STRIDE]
            if part == before[old : old + _STRIDE]:
                found[new : new + len(part)] = ids[old : old + len(part)]
                old += len(part)
                continue
            found[new : new + len(part)] = self.of(part)
            old = _after(before, part[-1], old)
        return found

    def _key(self, topic: str) -> int:
        parsed = parse_topic(topic)
        group = self.membership.group_of.get(parsed.namespace)
        if group is None:
            return -1
        found = self.membership.groups[group].name, str(parsed)
        key = self.key_number.setdefault(found, len(self.keys))
        if key == len(self.keys):
            self.keys.append(found)
            self.groups.append(group)
        return key


class Catalogue:
    """Makes usage tables. What follows from names alone is kept from one to the next: parsing half a million names
    takes seconds."""

    def __init__(self) -> None:
        self._names = _Names(Membership())
        self._told: dict[str, tuple[tuple[str, ...], Ints]] = {}
        self._used = np.zeros(0, dtype=bool)
        self._keys: tuple[Key, ...] = ()
        self._rank = np.zeros(0, dtype=np.int64)
        self._frame: tuple[UsageTable, Ints] | None = None
        self._counted: tuple[tuple[Key, ...], Ints, Mapping[str, int]] = ((), self._rank, {})

    def table(self, told: Sequence[TopicRates], membership: Membership) -> UsageTable:
        """The topics whose namespace belongs to a group, each broker told once. What is no finite positive rate counts
        as none. Raises ValueError for what is no topic name."""
        told = sorted(told, key=lambda item: item.broker)
        self._renew(membership, sum(len(item.names) for item in told))
        for item in told:
            known = self._told.get(item.broker)
            if known is None or known[0] != item.names:
                before, ids = known if known is not None else ((), self._rank[:0])
                self._told[item.broker] = item.names, self._names.again(item.names, before, ids)
                self._frame = None
        brokers = tuple(item.broker for item in told)
        if self._frame is None or self._frame[0].brokers != brokers:
            self._told = {name: self._told[name] for name in brokers}
            self._frame = self._framed(brokers)
        made, rows = self._frame
        rates = np.concatenate([item.rates for item in told]) if told else np.zeros((0, len(KINDS)))
        rates = rates.take(rows, axis=0)
        rates[~(np.isfinite(rates) & (rates > 0))] = 0.0
        return replace(made, rates=rates)

    def _renew(self, membership: Membership, rows: int) -> None:
        """Forget everything when groups have changed, and names nobody tells any more when they are too many."""
        old = self._names.membership
        same = membership.groups == old.groups and membership.group_of == old.group_of
        if not same or len(self._names.number) > 2 * rows + _SPARE_NAMES:
            self._names, self._told, self._frame = _Names(membership), {}, None
            self._used = np.zeros(0, dtype=bool)
            self._keys = ()

    def _framed(self, brokers: tuple[str, ...]) -> tuple[UsageTable, Ints]:
        """A table without rates, and which of the told rows, one broker after the other, stand in it in which order."""
        numbers = [ids for _, ids in self._told.values()]
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *numbers])
        broker = np.repeat(np.arange(len(brokers)), [len(item) for item in numbers])
        key, parted = ids >> 1, (ids & 1) == 1
        kept = np.flatnonzero(key >= 0)
        self._sort(key[kept])
        ranked = self._rank[key[kept]]
        # Brokers come in their order already.
        order = in_order(ranked)
        rows = kept[order]
        count = np.bincount(ranked[parted[kept]], minlength=len(self._keys))
        table = UsageTable(
            keys=self._keys,
            brokers=brokers,
            key=ranked[order],
            broker=broker[rows],
            group=np.array(self._names.groups, dtype=np.int64)[key[rows]],
            rates=np.zeros((0, len(KINDS))),
            seen=self._seen(count),
        )
        return table, rows

    def _seen(self, count: Ints) -> Mapping[str, int]:
        keys, old, found = self._counted
        if keys is not self._keys or not np.array_equal(count, old):
            found = {self._keys[row][1]: int(count[row]) for row in np.flatnonzero(count).tolist()}
            self._counted = self._keys, count, found
        return found

    def _sort(self, key: Ints) -> None:
        """The keys in use, sorted; the same tuple as before unless some came or went."""
        used = np.bincount(key, minlength=len(self._names.keys)) > 0
        if np.array_equal(used, self._used):
            return
        numbers = sorted(np.flatnonzero(used).tolist(), key=self._names.keys.__getitem__)
        self._used, self._keys = used, tuple(self._names.keys[number] for number in numbers)
        self._rank = np.zeros(len(used), dtype=np.int64)
        self._rank[numbers] = np.arange(len(numbers))


def _after(names: Sequence[str], name: str, since: int) -> int:
    """Where a name that is not far from there is followed; what it would be without a change if it is not there."""
    try:
        return names.index(name, max(0, since - _STRIDE), since + 2 * _STRIDE) + 1
    except ValueError:
        return since + _STRIDE


def usage_table(told: Sequence[TopicRates], membership: Membership) -> UsageTable:
    """One table, nothing kept. Raises as `Catalogue.table`."""
    return Catalogue().table(told, membership)


def topic_of(name: str) -> str:
    """The partitioned topic of a partition; any other topic is its own."""
    base, mark, number = name.rpartition(_PARTITION)
    return base if mark and number.isdecimal() else name


def sums(rates: Floats, key: Ints, count: int) -> Floats:
    """Rows summed by key, in their order. Shape (count, columns)."""
    columns = [np.bincount(key, rates[:, column], minlength=count) for column in range(rates.shape[1])]
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0))


class Line(NamedTuple):
    """What one participant says of one topic of a group: the sum of its partitions there.

    `peak`: its busiest partition there. `pinched`: by kind, whether a partition there is at its limit, so that its
    demand is unknown. `partitions`: of the whole topic, wherever they are.
    """

    usage: Rates
    peak: Rates
    pinched: tuple[bool, bool, bool, bool] = (False, False, False, False)
    partitions: int = 1

    @property
    def idle(self) -> bool:
        """Nothing passes."""
        return not any(self.usage)
