"""Throughput of topics at each broker, as columns: 100 brokers with 5,000 topics each are half a million rows.

The leader queries all values itself in each cycle. For a broker that did not respond, it uses the last values
(`latest`) until the broker responds again or its registration ends. A new leader starts without values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeVar

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.snapshot import Bools
from bundlekeel.quotas.rules.columns import runs
from bundlekeel.quotas.rules.groups import KINDS
from bundlekeel.quotas.rules.usage import Key, UsageLine, UsageTable

# A partition counts as limited if its throughput is at least this part of its limit.
AT_LIMIT: Final = 0.95

T = TypeVar("T")
Name = TypeVar("Name", str, Key)


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


def _nothing() -> Floats:
    return np.zeros((0, len(KINDS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """One row per topic and broker (participant) that serves it, sorted by topic and broker.

    `participants`: sorted names of brokers. `keys`: sorted pairs of group and topic. Some names can have no row.
    `participant`, `key`: index of each row's names in these tuples. `usage`, `peak`, `throttled`: shape (rows, 4), see
    `UsageLine`. `partitions`: number of partitions of the row's topic at all brokers.
    """

    participants: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    participant: Ints = field(default_factory=_none)
    key: Ints = field(default_factory=_none)
    usage: Floats = field(default_factory=_nothing)
    peak: Floats = field(default_factory=_nothing)
    throttled: Bools = field(default_factory=lambda: _nothing() > 0)
    partitions: Ints = field(default_factory=_none)

    @staticmethod
    def of(lines_by_participant: Mapping[str, Mapping[Key, UsageLine]]) -> Lines:
        """Build the table from single lines: by broker, then by group and topic."""
        participants = tuple(sorted(lines_by_participant))
        keys = tuple(sorted(set().union(*lines_by_participant.values())))
        place = {key: row for row, key in enumerate(keys)}
        rows = [
            (number, place[key], lines_by_participant[name][key])
            for key in keys
            for number, name in enumerate(participants)
            if key in lines_by_participant[name]
        ]
        return Lines(
            participants=participants,
            keys=keys,
            participant=np.array([row[0] for row in rows], dtype=np.int64),
            key=np.array([row[1] for row in rows], dtype=np.int64),
            usage=_matrix([row[2].usage for row in rows]),
            peak=_matrix([row[2].peak for row in rows]),
            throttled=_matrix([row[2].throttled for row in rows]) > 0,
            partitions=np.array([row[2].partitions for row in rows], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.key)

    def speaking(self) -> set[str]:
        """Return the brokers that have rows."""
        return {self.participants[row] for row in np.unique(self.participant).tolist()}

    def ids(self) -> Ints:
        """Return one number per row, ascending. It depends on topic and broker, and on `participants` and `keys`."""
        return self.key * len(self.participants) + self.participant

    def take(self, rows: Ints | Bools) -> Lines:
        """Return a table of these rows, by a mask or by indexes in any order."""
        if rows.dtype == bool:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        return replace(
            self,
            participant=self.participant.take(rows),
            key=self.key.take(rows),
            usage=self.usage.take(rows, axis=0),
            peak=self.peak.take(rows, axis=0),
            throttled=self.throttled.take(rows, axis=0),
            partitions=self.partitions.take(rows),
        )

    def keep_participants(self, participants: Collection[str]) -> Lines:
        """Return a table of the rows of these brokers only."""
        if all(name in participants for name in self.participants):
            return self
        stays = np.array([name in participants for name in self.participants], dtype=bool)
        number = np.cumsum(stays) - 1
        rows = self.take(stays[self.participant])
        names = tuple(name for name in self.participants if name in participants)
        return replace(rows, participants=names, participant=number[rows.participant])

    def over(self, participants: tuple[str, ...], keys: tuple[Key, ...]) -> Lines:
        """Return this table with longer sorted `participants` and `keys`, which must include the current ones."""
        if participants == self.participants and keys is self.keys:
            return self
        return replace(
            self,
            participants=participants,
            keys=keys,
            participant=renumbered(self.participants, participants)[self.participant],
            key=renumbered(self.keys, keys)[self.key],
        )

    def trimmed(self) -> Lines:
        """Return this table without the `keys` that have no row."""
        used = np.bincount(self.key, minlength=len(self.keys)) > 0
        if used.all():
            return self
        keys = tuple(self.keys[row] for row in np.flatnonzero(used).tolist())
        return replace(self, keys=keys, key=(np.cumsum(used) - 1)[self.key])


def lines_of(table: UsageTable, partitions: Mapping[str, int], passing: Floats, at_limit: float = AT_LIMIT) -> Lines:
    """Sum a usage table by topic and broker. The brokers of the result include those without topics.

    `partitions`: number of partitions by topic. `passing`: shape (keys of the table, 4), current limit of one partition
    of each topic; infinite: no limit. `at_limit`: part of this limit from which a partition counts as limited.
    """
    starts = np.flatnonzero(np.diff(table.key, prepend=-1) | np.diff(table.broker, prepend=-1))
    if len(starts) == 0:
        return Lines(participants=table.brokers)
    parts = np.fromiter((partitions.get(topic, 1) for _, topic in table.keys), dtype=np.int64, count=len(table.keys))
    key = table.key.take(starts)
    usage, peak = runs(table.rates, starts)
    return Lines(
        participants=table.brokers,
        keys=table.keys,
        participant=table.broker.take(starts),
        key=key,
        usage=usage,
        peak=peak,
        throttled=(peak > 0) & (peak >= (at_limit * passing).take(key, axis=0)),
        partitions=parts.take(key),
    )


def latest(last: Lines, now: Lines, alive: Collection[str]) -> Lines:
    """Return the newest rows of each broker in `alive`.

    For brokers in `now.participants` these are only the rows in `now`, even if a broker has no row there. All other
    brokers keep their rows in `last`.
    """
    silent = set(alive).difference(now.participants)
    earlier = last.keep_participants(silent).trimmed()
    if len(earlier) == 0:
        return now
    earlier, now = together(earlier, now)
    return joined(now, earlier)


def renumbered(names: Sequence[T], others: Sequence[T]) -> Ints:
    """Return, for each of `names`, its index in `others`; -1: not there."""
    if not others:
        return np.full(len(names), -1, dtype=np.int64)
    if names is others or names == others:
        return np.arange(len(names), dtype=np.int64)
    place = {name: row for row, name in enumerate(others)}
    return np.fromiter((place.get(name, -1) for name in names), dtype=np.int64, count=len(names))


def together(one: Lines, other: Lines) -> tuple[Lines, Lines]:
    """Return the two tables with common `participants` and `keys`, so that their rows can be compared."""
    participants, keys = _union(one.participants, other.participants), _union(one.keys, other.keys)
    return one.over(participants, keys), other.over(participants, keys)


def joined(one: Lines, other: Lines) -> Lines:
    """Return a table with the rows of two tables, which must have equal `participants` and `keys` but no common row."""
    if len(other) == 0 or len(one) == 0:
        return one if len(other) == 0 else other
    order = np.argsort(np.concatenate([one.ids(), other.ids()]), kind="stable")
    return replace(
        one,
        participant=np.concatenate([one.participant, other.participant]).take(order),
        key=np.concatenate([one.key, other.key]).take(order),
        usage=np.concatenate([one.usage, other.usage]).take(order, axis=0),
        peak=np.concatenate([one.peak, other.peak]).take(order, axis=0),
        throttled=np.concatenate([one.throttled, other.throttled]).take(order, axis=0),
        partitions=np.concatenate([one.partitions, other.partitions]).take(order),
    )


def _union(one: tuple[Name, ...], other: tuple[Name, ...]) -> tuple[Name, ...]:
    if one is other or one == other or not other:
        return one
    return tuple(sorted(set(one) | set(other))) if one else other


def _matrix(rows: Sequence[Sequence[float]]) -> Floats:
    return np.fromiter(chain.from_iterable(rows), dtype=np.float64).reshape(-1, len(KINDS))
