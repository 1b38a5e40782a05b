"""Usage tables: throughput by group, broker and topic, as columns.

`topic` always is the partitioned topic, because Pulsar's topic policies apply to it. Each row of a table is one
partition, or one topic without partitions, at the broker that serves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_not
from typing import Final, NamedTuple

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.names import SCALABLE_DOMAINS, topic_parts
from bundlekeel.quotas.rules.columns import in_order
from bundlekeel.quotas.rules.groups import KINDS, Membership, Rates

_PARTITION: Final = "-partition-"
Key = tuple[str, str]  # group, topic
# Names are compared with those of the last report in steps of this number.
_STRIDE: Final = 64
# The cache keeps up to this many names of topics that no broker reports any more.
_SPARE_NAMES: Final = 10_000


class TopicRates(NamedTuple):
    """Response of one broker: rates of each topic or partition that it serves, averaged over its statistics interval.

    `names`: full names, sorted. `rates`: shape (names, 4), columns `KINDS`.
    """

    broker: str
    names: tuple[str, ...]
    rates: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTable:
    """One row per topic or partition that belongs to a group, sorted by topic and broker.

    `keys`: sorted pairs of group and partitioned topic. `key`, `broker`, `group`: each row's index in `keys`, in
    `brokers`, and among the groups. `rates`: shape (rows, 4), columns `KINDS`. `seen`: number of reported partitions,
    by partitioned topic.
    """

    keys: tuple[Key, ...]
    brokers: tuple[str, ...]
    key: Ints
    broker: Ints
    group: Ints
    rates: Floats
    seen: Mapping[str, int]

    def by_group(self, count: int) -> Floats:
        """Return the rates summed by group, shape (count, 4)."""
        return sums(self.rates, self.group, count)

    def by_broker(self, group: int) -> Floats:
        """Return the rates of one group summed by broker, shape (brokers, 4)."""
        mine = self.group == group
        return sums(self.rates[mine], self.broker[mine], len(self.brokers))


class _Names(dict[str, int]):
    """Cache with a number (key) for each topic name; -1: the topic is in no group.

    `topics`, `groups`: topic and group of each key. It contains no names of partitions, which would need too much
    memory.
    """

    def __init__(self, membership: Membership) -> None:
        super().__init__()
        self.membership = membership
        self.topics: list[str] = []
        self.groups: list[int] = []

    def numbers_of(self, names: Sequence[str]) -> Ints:
        """Return, for each name, twice the key of its topic, plus 1 if the name is a partition; -1: it has no group.

        Raises ValueError if a name is not a topic name.
        """
        topics = topics_of(names)
        key = np.fromiter(map(self.__getitem__, topics), dtype=np.int64, count=len(names))
        parted = np.fromiter(map(is_not, topics, names), dtype=bool, count=len(names))
        return np.where(key < 0, -1, 2 * key + parted)

    def numbers_again(self, names: Sequence[str], before: Sequence[str], ids: Ints) -> Ints:
        """Return `numbers_of(names)`, computed faster if `names` are nearly equal to earlier names (`before`).

        `ids`: the numbers of `before`, copied where names have not changed. Raises ValueError if a name is not a topic
        name.
        """
        if not before:
            return self.numbers_of(names)
        numbers = np.empty(len(names), dtype=np.int64)
        old = 0
        for new in range(0, len(names), _STRIDE):
            part = names[new : new + _STRIDE]
            if part == before[old : old + _STRIDE]:
                numbers[new : new + len(part)] = ids[old : old + len(part)]
                old += len(part)
                continue
            numbers[new : new + len(part)] = self.numbers_of(part)
            old = _after(before, part[-1], old)
        return numbers

    def __missing__(self, topic: str) -> int:
        """Add a new topic name and return its key. Short and full names of a topic get the same key."""
        domain, namespace, local = topic_parts(topic)
        # Pulsar's rate policies are not known to exist for scalable topics, so these are in no group.
        group = None if domain in SCALABLE_DOMAINS else self.membership.group_of.get(namespace)
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
    """Builds usage tables. Caches all values that depend only on names, as parsing half a million names takes
    seconds."""

    def __init__(self) -> None:
        self._names = _Names(Membership())
        self._reports: dict[str, tuple[tuple[str, ...], Ints]] = {}
        self._used = np.zeros(0, dtype=bool)
        self._keys: tuple[Key, ...] = ()
        self._rank = np.zeros(0, dtype=np.int64)
        self._frame: tuple[UsageTable, Ints] | None = None
        self._counted: tuple[tuple[Key, ...], Ints, Mapping[str, int]] = ((), self._rank, {})

    def table(self, reports: Sequence[TopicRates], membership: Membership) -> UsageTable:
        """Return the usage table of all topics whose namespace belongs to a group. `reports`: one per broker.

        Rates that are not finite and positive count as 0. Raises ValueError if a name is not a topic name.
        """
        reports = sorted(reports, key=lambda item: item.broker)
        self._renew(membership, sum(len(item.names) for item in reports))
        for item in reports:
            cached = self._reports.get(item.broker)
            if cached is None or cached[0] != item.names:
                before, ids = cached if cached is not None else ((), self._rank[:0])
                self._reports[item.broker] = item.names, self._names.numbers_again(item.names, before, ids)
                self._frame = None
        brokers = tuple(item.broker for item in reports)
        if self._frame is None or self._frame[0].brokers != brokers:
            self._reports = {name: self._reports[name] for name in brokers}
            self._frame = self._framed(brokers)
        frame, rows = self._frame
        rates = np.concatenate([item.rates for item in reports]) if reports else np.zeros((0, len(KINDS)))
        rates = rates.take(rows, axis=0)
        rates[~(np.isfinite(rates) & (rates > 0))] = 0.0
        return replace(frame, rates=rates)

    def _renew(self, membership: Membership, rows: int) -> None:
        """Clear the cache if the groups have changed or too many of its names are no longer reported."""
        old = self._names.membership
        same = membership.groups == old.groups and membership.group_of == old.group_of
        if not same or len(self._names) > 2 * rows + _SPARE_NAMES:
            self._names, self._reports, self._frame = _Names(membership), {}, None
            self._used = np.zeros(0, dtype=bool)
            self._keys = ()

    def _framed(self, brokers: tuple[str, ...]) -> tuple[UsageTable, Ints]:
        """Return a table without rates, and for each row its index in the reports of all brokers, joined together."""
        numbers = [ids for _, ids in self._reports.values()]
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *numbers])
        broker = np.repeat(np.arange(len(brokers)), [len(item) for item in numbers])
        key, parted = ids >> 1, (ids & 1) == 1
        rows_in_groups = np.flatnonzero(key >= 0)
        self._sort(key[rows_in_groups])
        ranked = self._rank[key[rows_in_groups]]
        # Sort only by key, because the rows are in the order of brokers already.
        order = in_order(ranked)
        rows = rows_in_groups[order]
        count = np.bincount(ranked[parted[rows_in_groups]], minlength=len(self._keys))
        table = UsageTable(
            keys=self._keys,
            brokers=brokers,
            key=ranked[order],
            broker=broker[rows],
            group=np.array(self._names.groups, dtype=np.int64)[key[rows]],
            rates=np.zeros((0, len(KINDS))),
            seen=self._partition_counts(count),
        )
        return table, rows

    def _partition_counts(self, count: Ints) -> Mapping[str, int]:
        keys, old, counts = self._counted
        if keys is not self._keys or not np.array_equal(count, old):
            counts = {self._keys[row][1]: number for row, number in enumerate(count.tolist()) if number}
            self._counted = self._keys, count, counts
        return counts

    def _sort(self, key: Ints) -> None:
        """Sort the keys that occur in `key`. If they have not changed, their tuple stays the same object."""
        topics, groups = self._names.topics, self._names.groups
        used = np.bincount(key, minlength=len(topics)) > 0
        if np.array_equal(used, self._used):
            return
        names = [group.name for group in self._names.membership.groups]
        order = np.zeros(len(names), dtype=np.int64)
        order[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        # Sort by topic, then by group in a second step, because sorting pairs of strings takes twice as long.
        numbers = np.array(sorted(np.flatnonzero(used).tolist(), key=topics.__getitem__), dtype=np.int64)
        numbers = numbers[in_order(order[np.array(groups, dtype=np.int64)[numbers]])]
        self._used = used
        self._keys = tuple((names[groups[number]], topics[number]) for number in numbers.tolist())
        self._rank = np.zeros(len(used), dtype=np.int64)
        self._rank[numbers] = np.arange(len(numbers))


def _after(names: Sequence[str], name: str, since: int) -> int:
    """Return the index after `name` in `names`, searched near `since`; `since` + `_STRIDE` if it is not found."""
    try:
        return names.index(name, max(0, since - _STRIDE), since + 2 * _STRIDE) + 1
    except ValueError:
        return since + _STRIDE


def topic_of(name: str) -> str:
    """Return the partitioned topic of a partition; any other topic name is returned unchanged."""
    return topics_of((name,))[0]


def topics_of(names: Iterable[str]) -> list[str]:
    """Return the partitioned topic of each name. A name that is not a partition is returned as the same object."""
    return [
        base if mark and number.isdecimal() else name
        for name in names
        for base, mark, number in (name.rpartition(_PARTITION),)
    ]


def sums(rates: Floats, key: Ints, count: int) -> Floats:
    """Return one row per key with the sum of its rows. `key`: the key of each row of `rates`, 0 to `count` - 1."""
    columns = [np.bincount(key, rates[:, column], minlength=count) for column in range(rates.shape[1])]
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0))


class UsageLine(NamedTuple):
    """Usage of one topic of a group at one broker (participant): the sum of the topic's partitions there.

    `peak`: rates of the busiest partition there. `throttled`: by kind, whether a partition there is at its limit, so
    that its demand is unknown. `partitions`: number of partitions of the whole topic, at all brokers.
    """

    usage: Rates
    peak: Rates
    throttled: tuple[bool, bool, bool, bool] = (False, False, False, False)
    partitions: int = 1

    @property
    def idle(self) -> bool:
        """Whether the topic has no throughput."""
        return not any(self.usage)
