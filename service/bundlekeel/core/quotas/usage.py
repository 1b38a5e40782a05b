"""Usage: what passes, as columns, by group, broker and topic.

Pulsar resolves topic policies by the partitioned topic, so that is the topic here; each row is one partition (or a
topic that is none) at its broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_not
from typing import Final, NamedTuple

import numpy as np

from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.names import topic_parts
from bundlekeel.core.quotas.columns import in_order
from bundlekeel.core.quotas.groups import KINDS, Membership, Rates

_PARTITION: Final = "-partition-"
Key = tuple[str, str]  # group, topic
# Names that are told again are compared so many at once.
_STRIDE: Final = 64
# So many names that are told no more are kept in any case.
_SPARE_NAMES: Final = 10_000


class TopicRates(NamedTuple):
    """What one broker reports: of each topic or partition it serves, by full name and sorted, its rates averaged over
    the last report cycle; shape (names, 4), columns `KINDS`."""

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


class _Names(dict[str, int]):
    """Numbers of topics that were told: of each its key, -1 for what belongs to no group; and of each key its topic and
    group. By partitioned topic as it is told: a dictionary of all partitions would be larger than everything else."""

    def __init__(self, membership: Membership) -> None:
        super().__init__()
        self.membership = membership
        self.topics: list[str] = []
        self.groups: list[int] = []

    def of(self, names: Sequence[str]) -> Ints:
        """Of each name twice its key, one more where it is a partition; below 0 for what belongs to no group. Raises
        ValueError for what is not a topic name."""
        topics = topics_of(names)
        key = np.fromiter(map(self.__getitem__, topics), dtype=np.int64, count=len(names))
        parted = np.fromiter(map(is_not, topics, names), dtype=bool, count=len(names))
        return np.where(key < 0, -1, 2 * key + parted)

    def again(self, names: Sequence[str], before: Sequence[str], ids: Ints) -> Ints:
        """The same where most were told before, with these numbers, and few came or went in between: names that stand
        next to each other again need not be looked up. Raises ValueError for what is not a topic name."""
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

    def __missing__(self, topic: str) -> int:
        """Number a topic told for the first time; however it is written, it has one key."""
        domain, namespace, local = topic_parts(topic)
        group = self.membership.group_of.get(namespace)
        if group is None:
            key = -1
        elif "://" not in topic:
            key = self[f"{domain}://{namespace}/{local}"]
        else:
            key = len(self.topics)
            self.topics.append(topic)
            self.groups.append(group)
        self[topic] = key
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
        as none. Raises ValueError for what is not a topic name."""
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
        """Forget everything when groups have changed, and unreported names when they are too many."""
        old = self._names.membership
        same = membership.groups == old.groups and membership.group_of == old.group_of
        if not same or len(self._names) > 2 * rows + _SPARE_NAMES:
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
            found = {self._keys[row][1]: number for row, number in enumerate(count.tolist()) if number}
            self._counted = self._keys, count, found
        return found

    def _sort(self, key: Ints) -> None:
        """The keys in use, sorted; the same tuple as before unless some came or went."""
        topics, groups = self._names.topics, self._names.groups
        used = np.bincount(key, minlength=len(topics)) > 0
        if np.array_equal(used, self._used):
            return
        names = [group.name for group in self._names.membership.groups]
        order = np.zeros(len(names), dtype=np.int64)
        order[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        # First by topic, then by group: sorting strings takes half as long as sorting pairs of them.
        numbers = np.array(sorted(np.flatnonzero(used).tolist(), key=topics.__getitem__), dtype=np.int64)
        numbers = numbers[in_order(order[np.array(groups, dtype=np.int64)[numbers]])]
        self._used = used
        self._keys = tuple((names[groups[number]], topics[number]) for number in numbers.tolist())
        self._rank = np.zeros(len(used), dtype=np.int64)
        self._rank[numbers] = np.arange(len(numbers))


def _after(names: Sequence[str], name: str, since: int) -> int:
    """Where a name that is not far from there is followed; what it would be without a change if it is not there."""
    try:
        return names.index(name, max(0, since - _STRIDE), since + 2 * _STRIDE) + 1
    except ValueError:
        return since + _STRIDE


def topic_of(name: str) -> str:
    """The partitioned topic of a partition; any other topic is its own."""
    return topics_of((name,))[0]


def topics_of(names: Iterable[str]) -> list[str]:
    """The same of many; the very string where it is its own."""
    return [
        base if mark and number.isdecimal() else name
        for name in names
        for base, mark, number in (name.rpartition(_PARTITION),)
    ]


def sums(rates: Floats, key: Ints, count: int) -> Floats:
    """Rows summed by key, in their order. Shape (count, columns)."""
    columns = [np.bincount(key, rates[:, column], minlength=count) for column in range(rates.shape[1])]
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0))


class UsageLine(NamedTuple):
    """What one participant says of one topic of a group: the sum of its partitions there.

    `peak`: its busiest partition there. `throttled`: by kind, whether a partition there is at its limit, so that its
    demand is unknown. `partitions`: of the whole topic, wherever they are.
    """

    usage: Rates
    peak: Rates
    throttled: tuple[bool, bool, bool, bool] = (False, False, False, False)
    partitions: int = 1

    @property
    def idle(self) -> bool:
        """Nothing passes."""
        return not any(self.usage)
