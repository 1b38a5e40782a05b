"""Usage: what passes, as columns, by group, broker and topic.

Pulsar resolves topic policies by the partitioned topic, so that is the topic here; each row is one partition (or a
topic that is none) at its broker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from bundlekeel.core.load import Floats, Ints
from bundlekeel.core.names import parse_topic
from bundlekeel.core.quotas.groups import KINDS, Membership, Rates

_PARTITION: Final = "-partition-"


class Sample(NamedTuple):
    """Rates of one topic or partition (its full name) at its broker, averaged over the last report cycle."""

    broker: str
    topic: str
    rates: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTable:
    """One row for each topic or partition that belongs to a group, sorted by name and broker.

    `names`: full names; `topic`: number of its (partitioned) topic in `topics`; `broker`: number in `brokers`;
    `group`: number of its group; `rates`: shape (rows, 4), columns `KINDS`.
    """

    names: tuple[str, ...]
    topics: tuple[str, ...]
    brokers: tuple[str, ...]
    topic: Ints
    broker: Ints
    group: Ints
    rates: Floats

    def by_group(self, count: int) -> Floats:
        """Shape (count, 4)."""
        return sums(self.rates, self.group, count)

    def by_broker(self, group: int) -> Floats:
        """Of one group, shape (brokers, 4)."""
        mine = self.group == group
        return sums(self.rates[mine], self.broker[mine], len(self.brokers))

    def by_topic(self) -> Floats:
        """Shape (topics, 4)."""
        return sums(self.rates, self.topic, len(self.topics))


def usage_table(samples: Iterable[Sample], membership: Membership) -> UsageTable:
    """The samples whose namespace belongs to a group. What is no finite positive rate counts as none.

    Raises ValueError for what is no topic name.
    """
    kept: list[tuple[str, str, str, int, Rates]] = []
    for broker, name, rates in samples:
        parsed = parse_topic(name)
        group = membership.group_of.get(parsed.namespace)
        if group is not None:
            kept.append((str(parsed), broker, topic_of(str(parsed)), group, rates))
    kept.sort(key=lambda row: row[:2])
    topics, topic = _numbers([row[2] for row in kept])
    brokers, broker_rows = _numbers([row[1] for row in kept])
    rates_found = np.array([row[4] for row in kept], dtype=np.float64).reshape(-1, len(KINDS))
    return UsageTable(
        names=tuple(row[0] for row in kept),
        topics=topics,
        brokers=brokers,
        topic=topic,
        broker=broker_rows,
        group=np.array([row[3] for row in kept], dtype=np.int64),
        rates=np.where(np.isfinite(rates_found), np.maximum(rates_found, 0.0), 0.0),
    )


def topic_of(name: str) -> str:
    """The partitioned topic of a partition; any other topic is its own."""
    base, mark, number = name.rpartition(_PARTITION)
    return base if mark and number.isdecimal() else name


def sums(rates: Floats, key: Ints, count: int) -> Floats:
    """Rows summed by key, exactly (`math.fsum`): the order of rows makes no difference. Shape (count, columns)."""
    found = np.zeros((count, rates.shape[1]))
    order = np.argsort(key, kind="stable")
    bounds = np.searchsorted(key[order], np.arange(count + 1)).tolist()
    columns = [rates[order, column].tolist() for column in range(rates.shape[1])]
    for row in range(count):
        start, end = bounds[row], bounds[row + 1]
        if end > start:
            found[row] = [math.fsum(column[start:end]) for column in columns]
    return found


def _numbers(names: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    known = tuple(sorted(set(names)))
    place = {name: row for row, name in enumerate(known)}
    return known, np.array([place[name] for name in names], dtype=np.int64)


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


Key = tuple[str, str]  # group, topic


def lines_of(
    table: UsageTable,
    groups: Sequence[str],
    partitions: Mapping[str, int],
    rate_of: Callable[[Key], Rates | None],
    at_limit: float = 0.95,
) -> dict[str, dict[Key, Line]]:
    """What each broker's participant has to tell, by broker and key.

    `rate_of`: what one partition of the topic may pass now (infinite: no limit; None: nothing is set). A partition that
    passes `at_limit` of that counts as held back.
    """
    found: dict[str, dict[Key, Line]] = {}
    # Plain lists: there may be half a million rows, mostly one for each topic.
    rates, topics, brokers = table.rates.tolist(), table.topic.tolist(), table.broker.tolist()
    order = np.lexsort((table.topic, table.broker)).tolist()
    free = (math.inf,) * len(KINDS)
    start = 0
    while start < len(order):
        first = order[start]
        end = start + 1
        while end < len(order) and topics[order[end]] == topics[first] and brokers[order[end]] == brokers[first]:
            end += 1
        columns = list(zip(*(rates[row] for row in order[start:end]), strict=True))
        key = groups[int(table.group[first])], table.topics[topics[first]]
        peak = [max(column) for column in columns]
        held = [0 < rate >= at_limit * limit for rate, limit in zip(peak, rate_of(key) or free, strict=True)]
        pinched = held[0], held[1], held[2], held[3]
        line = Line(_four([math.fsum(column) for column in columns]), _four(peak), pinched, partitions.get(key[1], 1))
        found.setdefault(table.brokers[brokers[first]], {})[key] = line
        start = end
    return found


def _four(values: Sequence[float]) -> Rates:
    return values[0], values[1], values[2], values[3]
