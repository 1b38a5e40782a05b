"""The share engine: how much each topic of a group may pass in the next cycle. Memory in, memory out.

What a topic passes is its demand only while it is not limited. A topic that is limited below its known demand keeps
that demand. A topic that is limited although it got its known demand wants more, by an unknown amount: first it gets
half-way to the fair level (PIP-82's stealing rule; at most twice what it passes, unless it passed nothing before), and
if it uses that too, its demand counts as unlimited. A lower demand counts when it was seen twice, at once if nothing
passes. Then max-min fairness: each topic gets its known demand and some room to show growth, those that want more
share the rest evenly, and what is left is room for bursts. Sums never exceed the limit, except by floors of idle
topics, the least rates that Pulsar can express, and `overcommit`; `Shares.excess` says by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bundlekeel.core.model.load import Floats, Ints
from bundlekeel.core.model.snapshot import Bools
from bundlekeel.core.quotas.groups import KINDS
from bundlekeel.core.quotas.lines import Lines, renumbered
from bundlekeel.core.quotas.topic_shares import TopicBrokers, by_usage
from bundlekeel.core.quotas.usage import Key

# Sums of shares stay below the limit by more than rounding can add to them.
_TIGHT: Final = 1 - 1e-12

EVEN, PROPORTIONAL = "even", "proportional"


def _nothing() -> Floats:
    return np.zeros((0, len(KINDS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTuning:
    """How shares are made.

    room: how far above its demand a topic that is not held back may grow before it is (a part of its demand).
    overcommit: the part of that room which does not count against the limit, since it is not used: sums may exceed the
    limit by this part. Without it (0) the room of small topics is taken from the largest, which then may get less than
    its fair share.
    floor: the part of the limit that topics which pass nothing get together, so that they can start; on top of it.
    least_messages, least_bytes: no share is below this rate a second, even if the sum then exceeds the limit.
    burst: most of the limit that one topic gets beyond its demand while no other topic wants it.
    grace: cycles for which a topic that vanished (its bundle moves) keeps its claim.
    split: `even` or `proportional` (to past usage) among the topics of a broker that are held back.
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
        """The least rate of a kind (column of `KINDS`)."""
        return self.least_messages if KINDS[kind].endswith("messages") else self.least_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicClaims:
    """One row for each topic, sorted by key. Matrices have the shape (topics, 4), columns `KINDS`.

    `group`: number of its group. `usage`: what passes. `need`: the share with which that passes: the busiest partition
    times the number of partitions. `throttled`: held back, its demand is unknown.
    """

    keys: tuple[Key, ...]
    group: Ints
    usage: Floats
    need: Floats
    throttled: Bools
    partitions: Ints
    homes: TopicBrokers


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemory:
    """Of each topic: its claim of the last cycle, what it is known to want, the share it got, for how many cycles that
    was not enough (`streak`; -1: it was cut below what it wants), and for how many it is absent."""

    keys: tuple[Key, ...] = ()
    usage: Floats = field(default_factory=_nothing)
    need: Floats = field(default_factory=_nothing)
    throttled: Bools = field(default_factory=lambda: _nothing() > 0)
    known: Floats = field(default_factory=_nothing)
    share: Floats = field(default_factory=_nothing)
    streak: Floats = field(default_factory=_nothing)
    absent: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    partitions: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What each topic may pass, all its partitions together; infinite where there is no limit. Shape (topics, 4).

    `level` (groups, 4): what a topic that is limited gets; infinite where none is. `excess` (groups, 4): how far
    the sum is above the limit: at most its parts `floor` and `overcommit`, and topics times the least rate. `content`
    (topics, 4): what a topic that is not held back needs to pass what it passes; 0 of one that is.
    """

    keys: tuple[Key, ...]
    group: Ints
    share: Floats
    partitions: Ints
    level: Floats
    excess: Floats
    content: Floats

    def of(self, key: Key) -> Floats | None:
        """The share of one topic, shape (4,)."""
        rows = [row for row, name in enumerate(self.keys) if name == key]
        return self.share[rows[0]] if rows else None


def claims_of(lines: Lines, groups: Sequence[str]) -> TopicClaims:
    """Topics put together over participants. Groups that are not in `groups` are left out."""
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
    """One cycle. `limits`: shape (groups, 4), infinite for none, in the order of `groups`."""
    old = renumbered(claims.keys, memory.keys)
    was_idle = np.ones(claims.usage.shape, dtype=bool)
    was_idle[old >= 0] = memory.usage[old[old >= 0]] <= 0
    claims, now, was_idle = _with_absent(claims, groups, memory, tuning, old, was_idle)
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
            held = limited[claims.group] & claims.throttled[:, kind]
            share[:, kind] = by_usage(share[:, kind], claims.group, held, claims.homes, kind)
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
    """One kind of rate: the limit of each group, and of each topic its group, usage, need and history."""

    limit: Floats
    group: Ints
    usage: Floats
    need: Floats
    known: Floats
    streak: Floats
    was_idle: Bools


def _fill_column(column: _Column, tuning: ShareTuning) -> tuple[Floats, Floats]:
    """Shares of the topics and level of the groups."""
    group, count = column.group, len(column.limit)
    members = np.maximum(np.bincount(group, minlength=count), 1)
    idle = column.usage <= 0
    busy = np.flatnonzero(~idle)
    # What counts against the limit is less than what is given by the overcommitted part of the room.
    known = np.maximum(column.known[busy], column.need[busy])
    counted = known * (1 + max(tuning.room - tuning.overcommit, 0.0))
    grows = column.streak[busy] > 0
    filled, level = water_fill(column.limit, group[busy], np.where(grows, np.inf, counted))
    if grows.any():
        asked = np.maximum(counted, np.where(grows, _probes(column, busy, level[group[busy]]), 0.0))
        filled, level = water_fill(column.limit, group[busy], asked)
    content = filled >= counted
    filled = np.where(content, np.maximum(filled, known * (1 + tuning.room)), filled)
    given = np.zeros_like(column.usage)
    given[busy] = filled
    left = np.maximum(column.limit - _sums(given, group, count), 0.0)
    given = given + np.minimum(left / members, tuning.burst * column.limit)[group]
    # Rounding may not lift a sum above its limit.
    most = column.limit * (1 + min(tuning.overcommit, tuning.room)) * _TIGHT
    total = _sums(given, group, count)
    over = total > most
    given = given * np.where(over, most / np.where(over, total, 1.0), 1.0)[group]
    floor = tuning.floor * column.limit / members
    return np.where(idle, np.maximum(floor[group], given), given), level


def _probes(column: _Column, busy: Ints, fair: Floats) -> Floats:
    """What topics ask that are held back although they got what they were known to want. `fair`: their level."""
    usage, streak = column.usage[busy], column.streak[busy]
    midway = usage + np.maximum(fair - usage, 0.0) / 2
    twice = 2 * np.maximum(column.need[busy], usage)
    first = np.where(column.was_idle[busy], midway, np.minimum(midway, twice))
    found: Floats = np.where(streak <= 1, first, np.inf)
    return found


def water_fill(capacity: Floats, group: Ints, ask: Floats) -> tuple[Floats, Floats]:
    """Max-min shares of each group's capacity: (share of each row, level of each group).

    A row gets what it asks if that is no more than the level, else the level; the level is infinite where all get what
    they ask. The order of rows makes no difference, not even in rounding: sums run over sorted values.
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
        taken = np.bincount(place[content], wish[content], minlength=count)
        left = np.maximum(left - taken, 0.0)
        waiting &= ~content
    share = np.empty_like(wish)
    share[order] = np.where(waiting, level[place], wish)
    return share, level


def _sums(values: Floats, group: Ints, count: int) -> Floats:
    order = np.lexsort((values, group))
    return np.bincount(group[order], values[order], minlength=count).astype(np.float64)


def _with_absent(
    claims: TopicClaims, groups: Sequence[str], memory: ShareMemory, tuning: ShareTuning, old: Ints, was_idle: Bools
) -> tuple[TopicClaims, ShareMemory, Bools]:
    """The claims and those of topics that are absent for a moment, sorted; and what is to be remembered of them."""
    number = {name: row for row, name in enumerate(groups)}
    missing = np.ones(len(memory.keys), dtype=bool)
    missing[old[old >= 0]] = False
    away = [row for row in np.flatnonzero(missing & (memory.absent < tuning.grace)) if memory.keys[row][0] in number]
    known, streak = _learnt(claims, memory, old, tuning.room)
    keys = claims.keys + tuple(memory.keys[row] for row in away)
    # Sorted already unless some are absent.
    order = np.arange(len(keys), dtype=np.int64)
    if away:
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    group = np.concatenate([claims.group, np.array([number[memory.keys[row][0]] for row in away], dtype=np.int64)])
    now = ShareMemory(
        keys=tuple(keys[row] for row in order) if away else keys,
        usage=np.concatenate([claims.usage, memory.usage[away]])[order],
        need=np.concatenate([claims.need, memory.need[away]])[order],
        throttled=np.concatenate([claims.throttled, memory.throttled[away]])[order],
        known=np.concatenate([known, memory.known[away]])[order],
        streak=np.concatenate([streak, memory.streak[away]])[order],
        absent=np.concatenate([np.zeros(len(claims.keys), dtype=np.int64), memory.absent[away] + 1])[order],
        partitions=np.concatenate([claims.partitions, memory.partitions[away]])[order],
    )
    homes = replace(claims.homes, topic=np.argsort(order)[claims.homes.topic])
    merged = TopicClaims(
        keys=now.keys,
        group=group[order],
        usage=now.usage,
        need=now.need,
        throttled=now.throttled,
        partitions=now.partitions,
        homes=homes,
    )
    idle = np.concatenate([was_idle, np.zeros((len(away), len(KINDS)), dtype=bool)])[order]
    return merged, now, idle


def _learnt(claims: TopicClaims, memory: ShareMemory, old: Ints, room: float) -> tuple[Floats, Floats]:
    """What each topic is known to want, and for how many cycles it wanted more than that. Shape (topics, 4) each."""
    seen = old >= 0
    known, share, streak = (np.zeros(claims.usage.shape) for _ in range(3))
    share[:] = np.inf
    known[seen], share[seen] = memory.known[old[seen]], memory.share[old[seen]]
    streak[seen] = memory.streak[old[seen]]
    # Cut below its demand: that explains why it is limited.
    explained = share < known * (1 + room) * (1 - 1e-9)
    # What passes goes up and down, least of all steadily where a limit works: less is believed when seen twice.
    before = np.zeros_like(known)
    before[seen] = np.where(memory.throttled[old[seen]], known[seen], np.minimum(known[seen], memory.need[old[seen]]))
    falls = np.where(claims.usage > 0, np.maximum(claims.need, before), 0.0)
    return (
        np.where(claims.throttled, known, falls),
        # After a cut what has waited comes first: one cycle more before that counts as demand.
        np.where(claims.throttled, np.where(explained, -1.0, streak + 1), 0.0),
    )


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
