"""Computes the shares of a group's topics for the next cycle. The share of a topic is its part of the group's limit.

First the demand of each topic is estimated. While a topic is not limited, its demand is its throughput. While a topic
is limited below its known demand, that demand stays. If a topic is limited although it got its known demand, the real
demand is higher. In the next cycle the topic then gets a share halfway between its throughput and an even share
(PIP-82's stealing rule), but at most twice its throughput, unless that was 0 before. If the topic is limited by this
share, too, its demand counts as unlimited. A lower demand is used after two cycles, or immediately if the throughput
is 0.

Then the limit is divided (max-min fairness). Each topic gets its demand and some headroom, so that growth is visible.
Topics with unlimited demand get equal shares. The remainder is headroom for bursts. The sum of shares exceeds the limit
only by the minimum shares of idle topics, by the smallest rates that Pulsar can express, and by `overcommit`.
`Shares.excess` contains this difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.snapshot import Bools
from bundlekeel.quotas.rules.groups import KINDS
from bundlekeel.quotas.rules.lines import Lines, renumbered
from bundlekeel.quotas.rules.topic_shares import TopicBrokers, by_usage
from bundlekeel.quotas.rules.usage import Key

# Sums of shares stay below the limit by this factor, because rounding can increase them.
_TIGHT: Final = 1 - 1e-12

EVEN, PROPORTIONAL = "even", "proportional"


def _nothing() -> Floats:
    return np.zeros((0, len(KINDS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTuning:
    """Parameters for computing the shares of topics.

    room: headroom of a topic that is not limited, as a part of its demand.
    overcommit: headroom up to this part of the demand does not count towards the limit, because most headroom stays
    unused. So the sum of shares can exceed the limit by this part. With 0, the headroom of small topics reduces the
    shares of the largest topics.
    floor: part of the limit that all idle topics together get in addition to the limit, so that they can start.
    least_messages, least_bytes: lowest share per second of any topic, even if the sum then exceeds the limit.
    burst: largest part of the limit that one topic gets beyond its demand while no other topic needs it.
    grace: number of cycles for which a topic without a report keeps its share, because its bundle can be moving.
    split: division among the limited topics of a broker: `even`, or `proportional` to their throughput.
    """

    room: float = 0.10
    overcommit: float = 0.0
    floor: float = 0.05
    least_messages: float = 1.0
    least_bytes: float = 1024.0
    burst: float = 0.25
    grace: int = 1
    split: str = EVEN

    def least(self, kind: int) -> float:
        """Return the lowest share of any topic per second. `kind`: column of `KINDS`."""
        return self.least_messages if KINDS[kind].endswith("messages") else self.least_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicClaims:
    """Measured values of topics: one row per topic, sorted by key. Matrices have the shape (topics, 4), see `KINDS`.

    `group`: index of the topic's group. `usage`: throughput. `need`: the share that allows this throughput, which is
    the throughput of the busiest partition times the number of partitions. `throttled`: whether the topic is limited,
    so that its demand is unknown.
    """

    keys: tuple[Key, ...]
    group: Ints
    usage: Floats
    need: Floats
    throttled: Bools
    partitions: Ints
    homes: TopicBrokers


def _no_claims() -> TopicClaims:
    none = np.zeros(0, dtype=np.int64)
    return TopicClaims(
        keys=(),
        group=none,
        usage=_nothing(),
        need=_nothing(),
        throttled=_nothing() > 0,
        partitions=none,
        homes=TopicBrokers(topic=none, participant=none, usage=_nothing()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemory:
    """State of each topic between two cycles.

    `claims`: last measured values. `known`: known demand. `share`: last share. `streak`: number of successive cycles in
    which the topic was limited although its share was its known demand; -1: its share was below the known demand.
    `absent`: number of cycles without a report.
    """

    claims: TopicClaims = field(default_factory=_no_claims)
    known: Floats = field(default_factory=_nothing)
    share: Floats = field(default_factory=_nothing)
    streak: Floats = field(default_factory=_nothing)
    absent: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Share of each topic for all of its partitions together, shape (topics, 4); infinite: no limit.

    `level` (groups, 4): the share of topics that get less than their demand; infinite if all get their demand. `excess`
    (groups, 4): the sum of shares minus the limit, which comes from `floor`, `overcommit` and lowest shares
    (`ShareTuning`). `content` (topics, 4): the share that allows the current throughput; 0 for a limited topic.
    """

    keys: tuple[Key, ...]
    group: Ints
    share: Floats
    partitions: Ints
    level: Floats
    excess: Floats
    content: Floats

    def of(self, key: Key) -> Floats | None:
        """Return the share of one topic, shape (4,); None: the topic is unknown."""
        rows = [row for row, name in enumerate(self.keys) if name == key]
        return self.share[rows[0]] if rows else None


def claims_of(lines: Lines, groups: Sequence[str]) -> TopicClaims:
    """Return the measured values of each topic, summed over its brokers. Skips topics of groups not in `groups`."""
    number = {name: row for row, name in enumerate(groups)}
    group_of = np.fromiter((number.get(key[0], -1) for key in lines.keys), dtype=np.int64, count=len(lines.keys))
    if group_of.min(initial=0) < 0:
        lines = lines.take(group_of.take(lines.key) >= 0)
    used = np.bincount(lines.key, minlength=len(lines.keys)) > 0
    lines = lines.trimmed()
    if len(lines) == 0:
        return _no_claims()
    count = np.bincount(lines.key, minlength=len(lines.keys))
    starts = np.cumsum(count) - count
    parts = np.maximum(np.maximum.reduceat(lines.partitions, starts), 1)
    total = np.add.reduceat(lines.usage, starts)
    return TopicClaims(
        keys=lines.keys,
        group=group_of[used],
        usage=total,
        need=np.maximum(np.maximum.reduceat(lines.peak, starts) * parts[:, None], total),
        throttled=np.maximum.reduceat(lines.throttled, starts) > 0,
        partitions=parts,
        homes=TopicBrokers(topic=lines.key, participant=lines.participant, usage=lines.usage),
    )


def share_out(
    limits: Floats, groups: Sequence[str], claims: TopicClaims, memory: ShareMemory, tuning: ShareTuning
) -> tuple[Shares, ShareMemory]:
    """Compute the shares of one cycle, and the state for the next cycle.

    `limits`: shape (groups, 4), in the order of `groups`; infinite: no limit.
    """
    last = memory.claims
    old = renumbered(claims.keys, last.keys)
    was_idle = np.ones(claims.usage.shape, dtype=bool)
    was_idle[old >= 0] = last.usage[old[old >= 0]] <= 0
    now, was_idle = _with_absent(claims, groups, memory, tuning, old, was_idle)
    claims = now.claims
    share = np.full_like(claims.usage, np.inf)
    level, excess = np.full_like(limits, np.inf), np.zeros_like(limits)
    for kind in range(len(KINDS)):
        limited = np.isfinite(limits[:, kind])
        rows = np.flatnonzero(limited[claims.group])
        if len(rows) == 0:
            continue
        column = _Column(
            limit=np.where(limited, limits[:, kind], 0.0),
            group=claims.group[rows],
            usage=claims.usage[rows, kind],
            need=claims.need[rows, kind],
            known=now.known[rows, kind],
            streak=now.streak[rows, kind],
            was_idle=was_idle[rows, kind],
        )
        share[rows, kind], level[:, kind] = _fill_column(column, tuning)
        if tuning.split == PROPORTIONAL:
            limited_topics = limited[claims.group] & claims.throttled[:, kind]
            share[:, kind] = by_usage(share[:, kind], claims.group, limited_topics, claims.homes, kind)
        share[rows, kind] = np.maximum(share[rows, kind], tuning.least(kind))
        total = _sums(share[rows, kind], column.group, len(limits))
        excess[:, kind] = np.where(limited, np.maximum(total - limits[:, kind], 0.0), 0.0)
    result = Shares(
        keys=claims.keys,
        group=claims.group,
        share=share,
        partitions=claims.partitions,
        level=level,
        excess=excess,
        content=np.where(claims.throttled, 0.0, claims.need),
    )
    return result, replace(now, share=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """The input for one kind of rate: the limit of each group, and the measured values and state of each topic."""

    limit: Floats
    group: Ints
    usage: Floats
    need: Floats
    known: Floats
    streak: Floats
    was_idle: Bools


def _fill_column(column: _Column, tuning: ShareTuning) -> tuple[Floats, Floats]:
    """Return shares of topics, and each group's level (share of topics that want more), for one kind of rate."""
    group, count = column.group, len(column.limit)
    members = np.maximum(np.bincount(group, minlength=count), 1)
    idle = column.usage <= 0
    busy = np.flatnonzero(~idle)
    # `counted` is the demand that counts towards the limit: headroom up to `overcommit` does not.
    demand = np.maximum(column.known[busy], column.need[busy])
    counted = demand * (1 + max(tuning.room - tuning.overcommit, 0.0))
    grows = column.streak[busy] > 0
    filled, level = water_fill(column.limit, group[busy], np.where(grows, np.inf, counted))
    if grows.any():
        demands = np.maximum(counted, np.where(grows, _probes(column, busy, level[group[busy]]), 0.0))
        filled, level = water_fill(column.limit, group[busy], demands)
    content = filled >= counted
    filled = np.where(content, np.maximum(filled, demand * (1 + tuning.room)), filled)
    shares = np.zeros_like(column.usage)
    shares[busy] = filled
    left = np.maximum(column.limit - _sums(shares, group, count), 0.0)
    shares = shares + np.minimum(left / members, tuning.burst * column.limit)[group]
    # Reduce shares whose sum exceeds the limit because of rounding.
    most = column.limit * (1 + min(tuning.overcommit, tuning.room)) * _TIGHT
    total = _sums(shares, group, count)
    over = total > most
    shares = shares * np.where(over, most / np.where(over, total, 1.0), 1.0)[group]
    floor = tuning.floor * column.limit / members
    return np.where(idle, np.maximum(floor[group], shares), shares), level


def _probes(column: _Column, busy: Ints, fair: Floats) -> Floats:
    """Return the demand to assume for topics that are limited although they got their known demand.

    `busy`: indexes of the topics with throughput. `fair`: the share of topics of their group that get less than their
    demand.
    """
    usage, streak = column.usage[busy], column.streak[busy]
    midway = usage + np.maximum(fair - usage, 0.0) / 2
    twice = 2 * np.maximum(column.need[busy], usage)
    first = np.where(column.was_idle[busy], midway, np.minimum(midway, twice))
    probes: Floats = np.where(streak <= 1, first, np.inf)
    return probes


def water_fill(capacity: Floats, group: Ints, ask: Floats) -> tuple[Floats, Floats]:
    """Divide each group's capacity by max-min fairness; return the share of each row, and the level of each group.

    A row gets its demand (`ask`) if that is at most the level of its group, otherwise the level. The level is infinite
    if all rows get their demand. The order of rows does not matter, not even for rounding, because sums are computed
    over sorted values.
    """
    count = len(capacity)
    order = np.lexsort((ask, group))
    place, wish = group[order], ask[order]
    waiting = np.ones(len(wish), dtype=bool)
    left = np.maximum(capacity, 0.0)
    while True:
        number = np.bincount(place[waiting], minlength=count)
        level: Floats = np.where(number > 0, left / np.maximum(number, 1), np.inf)
        content = waiting & (wish <= level[place])
        if not content.any():
            break
        used = np.bincount(place[content], wish[content], minlength=count)
        left = np.maximum(left - used, 0.0)
        waiting &= ~content
    share = np.empty_like(wish)
    share[order] = np.where(waiting, level[place], wish)
    return share, level


def _sums(values: Floats, group: Ints, count: int) -> Floats:
    order = np.lexsort((values, group))
    return np.bincount(group[order], values[order], minlength=count).astype(np.float64)


def _with_absent(
    claims: TopicClaims, groups: Sequence[str], memory: ShareMemory, tuning: ShareTuning, old: Ints, was_idle: Bools
) -> tuple[ShareMemory, Bools]:
    """Add the last values of topics that have been without a report for at most `ShareTuning.grace` cycles.

    `old`: index in `memory` of each topic in `claims`; -1: new. `was_idle`: whether the topic had no throughput before.
    Returns the state to store, with the sorted claims, and `was_idle` of the sorted claims.
    """
    last = memory.claims
    number = {name: row for row, name in enumerate(groups)}
    missing = np.ones(len(last.keys), dtype=bool)
    missing[old[old >= 0]] = False
    away = [row for row in np.flatnonzero(missing & (memory.absent < tuning.grace)) if last.keys[row][0] in number]
    demand, streak = _learnt(claims, memory, old, tuning.room)
    keys = claims.keys + tuple(last.keys[row] for row in away)
    # The keys are sorted already if no topic is absent.
    order = np.arange(len(keys), dtype=np.int64)
    if away:
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    group = np.concatenate([claims.group, np.array([number[last.keys[row][0]] for row in away], dtype=np.int64)])
    merged = TopicClaims(
        keys=tuple(keys[row] for row in order) if away else keys,
        group=group[order],
        usage=np.concatenate([claims.usage, last.usage[away]])[order],
        need=np.concatenate([claims.need, last.need[away]])[order],
        throttled=np.concatenate([claims.throttled, last.throttled[away]])[order],
        partitions=np.concatenate([claims.partitions, last.partitions[away]])[order],
        homes=replace(claims.homes, topic=np.argsort(order)[claims.homes.topic]),
    )
    now = ShareMemory(
        claims=merged,
        known=np.concatenate([demand, memory.known[away]])[order],
        streak=np.concatenate([streak, memory.streak[away]])[order],
        absent=np.concatenate([np.zeros(len(claims.keys), dtype=np.int64), memory.absent[away] + 1])[order],
    )
    idle = np.concatenate([was_idle, np.zeros((len(away), len(KINDS)), dtype=bool)])[order]
    return now, idle


def _learnt(claims: TopicClaims, memory: ShareMemory, old: Ints, room: float) -> tuple[Floats, Floats]:
    """Return the known demand of each topic and its streak (see `ShareMemory`). Shape (topics, 4) each."""
    last, reported = memory.claims, old >= 0
    demand, share, streak = (np.zeros(claims.usage.shape) for _ in range(3))
    share[:] = np.inf
    demand[reported], share[reported] = memory.known[old[reported]], memory.share[old[reported]]
    streak[reported] = memory.streak[old[reported]]
    # True where the share was below the known demand, which explains why the topic is limited.
    explained = share < demand * (1 + room) * (1 - 1e-9)
    # Throughput varies, most of all under a limit. So a lower demand is used only after two cycles.
    before = np.zeros_like(demand)
    before[reported] = np.where(
        last.throttled[old[reported]], demand[reported], np.minimum(demand[reported], last.need[old[reported]])
    )
    falls = np.where(claims.usage > 0, np.maximum(claims.need, before), 0.0)
    return (
        np.where(claims.throttled, demand, falls),
        # After a share below the demand start at -1: a backlog is sent first, so throughput shows the demand one cycle
        # later.
        np.where(claims.throttled, np.where(explained, -1.0, streak + 1), 0.0),
    )
