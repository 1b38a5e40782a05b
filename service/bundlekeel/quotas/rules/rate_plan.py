"""Computes the writes of topic policies from the topics' shares: which to write, skip and restore. Pure.

This is for the enforcer `policies`. A topic policy overrides the policies of the namespace and the broker. So
Bundlekeel never writes a higher rate than the one that would apply without it: the lower one is used, separately for
messages and bytes. Each partition gets share / partitions, as an integer of at least 1 (Pulsar reads 0 as no limit).

A leader can stop at any time. Before the first write of a policy, `OwnedRate.original` stores the value that it had.
Before each write, `OwnedRate.ours` stores the new value. The next leader reads the old or the new value from the
broker and continues. Any other value was written by another client and becomes the original: Bundlekeel never sets a
higher rate, and never overwrites it with an earlier value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.names import parse_topic
from bundlekeel.quotas.rules.groups import MOST_BYTES, MOST_MESSAGES, Membership
from bundlekeel.quotas.rules.lines import AT_LIMIT
from bundlekeel.quotas.rules.shares import Shares

PUBLISH, DISPATCH = "publish", "dispatch"
SIDES: Final = (PUBLISH, DISPATCH)
COLUMNS: Final = {PUBLISH: (0, 1), DISPATCH: (2, 3)}


class Rate(NamedTuple):
    """Messages and bytes per `period` seconds for each partition; -1: no limit.

    `relative`: whether the limit is added to the publish rate (`relativeToPublishRate`), so that it cannot be compared
    with fixed rates.
    """

    messages: int = -1
    size: int = -1
    relative: bool = False
    period: int = 1

    @property
    def free(self) -> bool:
        """Whether there is neither a limit of messages nor of bytes (Pulsar drops such a policy)."""
        return self.messages <= 0 and self.size <= 0

    def per_second(self) -> Rate:
        """Return the same limits as a rate per second, rounded down to integers of at least 1."""
        scale = max(1, self.period)
        messages, size = ((max(1, value // scale) if value > 0 else -1) for value in (self.messages, self.size))
        return Rate(messages, size, self.relative)


FREE: Final = Rate()
# At most this many unconfirmed writes of a policy are stored.
_REMEMBERED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKey:
    """Names one policy: the topic (without a partition number), and the side `publish` or `dispatch`."""

    topic: str
    side: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Rates that were read for one topic and side (publish or dispatch).

    `topic`: the topic's own policy; None: it has no policy. `around`: the limits from namespace policies and broker
    settings. `allowed`: whether topic policies are enabled on the brokers.
    """

    topic: Rate | None = None
    around: tuple[Rate, ...] = ()
    allowed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRate:
    """A topic policy that Bundlekeel sets for a quota group.

    `original`: the policy before Bundlekeel; None: there was no policy. `ours`: the rates that Bundlekeel has written,
    or is about to write, since it last read one of them from the broker, oldest first. Several are possible, because a
    write whose response was lost can take effect later.
    """

    group: str
    original: Rate | None
    ours: tuple[Rate, ...]


class RateChange(NamedTuple):
    """One write of a topic policy: from `before` to `rate`; None: no policy. `restores`: `rate` is the original."""

    place: PolicyKey
    before: Rate | None
    rate: Rate | None
    group: str
    restores: bool = False


class SkippedPolicy(NamedTuple):
    """A policy that is not written, and the reason."""

    place: PolicyKey
    why: str


# Reasons for not writing a policy. UNCHANGED: its rate is already right.
UNCHANGED = ""
STRICTER, POLICIES_OFF, RELATIVE = Code.STRICTER_RATE_IN_FORCE, Code.TOPIC_POLICIES_OFF, Code.RELATIVE_DISPATCH_RATE
BUDGET, NOT_READ, ABSENT = Code.BUDGET_OF_RATES, Code.RATE_NOT_READ, Code.TOPIC_ABSENT
NOT_REACHED = Code.RATE_NOT_REACHED


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBudget:
    """Limits for the writes of one cycle.

    `up`, `down`: smallest relative increase and decrease of a rate that is written. `short`: if the sum of a group's
    rates is below its target by this part, increases of any size are written. `most`: maximum number of writes,
    including restores. `first`: policies whose write had to wait in the last cycle.
    """

    up: float = 0.10
    down: float = 0.05
    short: float = 0.03
    most: int = 60
    first: frozenset[PolicyKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerPlan:
    """Writes of topic policies in one cycle.

    `changes`: in the order of execution. `owned`: all policies that Bundlekeel sets; store them *before* writing the
    changes. `left`: policies that are not written, with reasons. `forget`: policies to drop from `owned` after their
    change was written.
    """

    changes: tuple[RateChange, ...] = ()
    owned: Mapping[PolicyKey, OwnedRate] = field(default_factory=dict)
    left: tuple[SkippedPolicy, ...] = ()
    forget: tuple[PolicyKey, ...] = ()


def plan_writes(
    shares: Shares,
    membership: Membership,
    in_force: Mapping[PolicyKey, InForce],
    owned: Mapping[PolicyKey, OwnedRate],
    write_budget: WriteBudget,
) -> EnforcerPlan:
    """Plan which topic policies to write, so that each topic gets its share of its quota group's limit.

    Policies of topics that left their group are restored. A policy that Bundlekeel wrote (`owned`) stays if its topic
    is in a group but has no share: the topic is moving to another broker, or has no clients now. Policies that were
    not read (not in `in_force`) are neither written nor restored.
    """
    targets = dict(_target_rates(shares))
    short = _short(targets, in_force, owned, write_budget)
    eager = replace(write_budget, up=0.0)
    decided: list[tuple[RateChange, OwnedRate | None]] = []
    left: list[SkippedPolicy] = []
    for place, (group, rate, _) in targets.items():
        there = in_force.get(place)
        least = eager if (group, place.side) in short else write_budget
        outcome = (
            SkippedPolicy(place, NOT_READ)
            if there is None
            else _decide(place, group, rate, there, owned.get(place), least)
        )
        if isinstance(outcome, SkippedPolicy):
            left.append(outcome)
        else:
            decided.append(outcome)
    without = [place for place in owned if place not in targets]
    left += [SkippedPolicy(place, ABSENT) for place in without if _limited(place, membership)]
    leaving = [place for place in without if place in in_force and not _limited(place, membership)]
    restored = [_restore(place, owned[place], in_force[place]) for place in sorted(leaving, key=_name)]
    return _assemble(decided, [item for item in restored if item is not None], left, owned, leaving, write_budget)


def give_back(owned: Mapping[PolicyKey, OwnedRate], in_force: Mapping[PolicyKey, InForce], most: int) -> EnforcerPlan:
    """Plan to restore the topic policies that Bundlekeel set (`owned`), at most `most` of them."""
    owned_places = sorted((place for place in owned if place in in_force), key=_name)
    restored = [_restore(place, owned[place], in_force[place]) for place in owned_places]
    return _assemble([], [item for item in restored if item], [], owned, owned_places, WriteBudget(most=most))


def stricter(rates: Iterable[Rate]) -> Rate:
    """Return the lowest limit of messages and the lowest limit of bytes. Relative rates are ignored."""
    absolute = [rate.per_second() for rate in rates if not rate.relative]
    messages = [rate.messages for rate in absolute if rate.messages > 0]
    sizes = [rate.size for rate in absolute if rate.size > 0]
    return Rate(min(messages, default=-1), min(sizes, default=-1))


def _limited(place: PolicyKey, membership: Membership) -> bool:
    """Return whether the topic of a policy is in a group that limits the policy's side."""
    row = membership.group_of.get(parse_topic(place.topic).namespace)
    if row is None:
        return False
    rates = membership.groups[row].limits.rates()
    return any(np.isfinite(rates[column]) for column in COLUMNS[place.side])


def _short(
    targets: Mapping[PolicyKey, tuple[str, Rate, int]],
    in_force: Mapping[PolicyKey, InForce],
    owned: Mapping[PolicyKey, OwnedRate],
    write_budget: WriteBudget,
) -> set[tuple[str, str]]:
    """Return the groups and sides (publish, dispatch) whose sum of rates is below its target by `WriteBudget.short`."""
    sums: dict[tuple[str, str], list[int]] = {}
    for place, (group, rate, parts) in targets.items():
        there, before = in_force.get(place), owned.get(place)
        if there is not None and there.topic is not None and _is_ours(there, before):
            total = sums.setdefault((group, place.side), [0, 0, 0, 0])
            for column, (now, target) in enumerate(zip(there.topic[:2], rate[:2], strict=True)):
                if now > 0 and target > 0:
                    total[2 * column] += now * parts
                    total[2 * column + 1] += target * parts
    least = 1 - write_budget.short
    return {key for key, (a, b, c, d) in sums.items() if a < least * b or c < least * d}


def _target_rates(shares: Shares) -> Iterable[tuple[PolicyKey, tuple[str, Rate, int]]]:
    most = (MOST_MESSAGES, MOST_BYTES, MOST_MESSAGES, MOST_BYTES)
    columns = [_whole(shares, kind, most[kind]) for kind in range(len(most))]
    for row, (group, topic) in enumerate(shares.keys):
        for side, (messages, size) in COLUMNS.items():
            rate = Rate(columns[messages][row], columns[size][row])
            if not rate.free:
                yield PolicyKey(topic=topic, side=side), (group, rate, int(shares.partitions[row]))


def _whole(shares: Shares, kind: int, most: int) -> list[int]:
    """Return, for each topic, the rate of one of its partitions as an integer; -1: no limit.

    `kind`: column of `KINDS`. `most`: highest rate. Rates are rounded down. The remainder of a group's sum is then
    added in steps of 1, first to the topics that lost most: at rates of 13.9 messages/s a group would otherwise lose
    7 % of its limit. The rate of a topic that needs no more than its share stays above its throughput: otherwise the
    topic would count as limited in every second cycle.
    """
    share, parts = shares.share[:, kind], shares.partitions
    limited = np.isfinite(share)
    exact = np.where(limited, share, 0.0) / parts
    whole = np.where(limited, np.maximum(np.floor(exact), 1.0), 0.0)
    spare = np.bincount(shares.group, np.where(limited, share, 0.0) - whole * parts)
    order = np.lexsort((-(exact - whole), shares.group))
    order = order[(limited & (exact > whole))[order]]
    group, count = shares.group[order], parts[order].astype(np.float64)
    run = np.cumsum(count)
    first = np.searchsorted(group, group)
    before = run[first] - count[first]
    whole[order] += run - before <= spare[group]
    content = shares.content[:, kind]
    free = np.floor(content / parts / AT_LIMIT) + 1
    whole = np.where(limited & (content > 0) & (share >= content), np.maximum(whole, free), whole)
    return [min(most, int(rate)) if rate else -1 for rate in whole.tolist()]


def _decide(
    place: PolicyKey, group: str, rate: Rate, there: InForce, before: OwnedRate | None, write_budget: WriteBudget
) -> tuple[RateChange, OwnedRate | None] | SkippedPolicy:
    """Return the write of one policy and the record to store for it (None: drop it), or the reason to skip it."""
    if not there.allowed:
        return SkippedPolicy(place, POLICIES_OFF)
    original = _original(there, before)
    ruling = _ruling(there, original)
    if any(item.relative for item in ruling):
        return SkippedPolicy(place, RELATIVE)
    without_us = stricter(ruling)
    target = stricter((rate, without_us))
    if target == without_us:
        if before is None or there.topic == original:
            return SkippedPolicy(place, STRICTER)
        return RateChange(place, there.topic, original, group, restores=True), None
    if there.topic == target or (_is_ours(there, before) and not _worth(there.topic, target, write_budget)):
        return SkippedPolicy(place, UNCHANGED)
    return RateChange(place, there.topic, target, group), OwnedRate(
        group=group, original=original, ours=_ours(there, before, target)
    )


def _ours(there: InForce, before: OwnedRate | None, target: Rate) -> tuple[Rate, ...]:
    """Return the rates that the broker can have from now on: the target, and all earlier unconfirmed writes."""
    earlier = () if before is None else before.ours
    if there.topic is not None and earlier[-1:] == (there.topic,):
        earlier = earlier[-1:]
    return (*(rate for rate in earlier if rate != target), target)[-_REMEMBERED:]


def ours_alone(there: InForce, before: OwnedRate | None) -> tuple[float, float]:
    """Return the messages and bytes per second to which only Bundlekeel's policy limits a partition.

    Infinite if there is no such limit, or if another limit is as low: then the topic would get no more without
    Bundlekeel, so it does not count as limited.
    """
    if before is None or there.topic is None or not _is_ours(there, before):
        return math.inf, math.inf
    foreign = stricter(_ruling(there, before.original))[:2]
    pairs = zip(there.topic.per_second()[:2], foreign, strict=True)
    first, second = (math.inf if own <= 0 or 0 < other <= own else float(own) for own, other in pairs)
    return first, second


def _ruling(there: InForce, original: Rate | None) -> tuple[Rate, ...]:
    """Return the rates that would apply without Bundlekeel: the original topic policy, else the limits of namespace and
    broker (`around`)."""
    return there.around if original is None or original.free else (original,)


def _is_ours(there: InForce, before: OwnedRate | None) -> bool:
    return before is not None and there.topic in before.ours


def _original(there: InForce, before: OwnedRate | None) -> Rate | None:
    """Return the topic policy without Bundlekeel: the original, or what another client has written since."""
    return before.original if before is not None and _is_ours(there, before) else there.topic


def _worth(now: Rate | None, target: Rate, write_budget: WriteBudget) -> bool:
    """Return whether a rate changes by enough to be written. A new or removed limit is always written."""
    for old, new in zip((now or FREE)[:2], target[:2], strict=True):
        if (old > 0) != (new > 0):
            return True
        if old > 0 and (new > old * (1 + write_budget.up) or new < old * (1 - write_budget.down)):
            return True
    return False


def _restore(place: PolicyKey, before: OwnedRate, there: InForce) -> RateChange | None:
    """Return the write of the original policy; None: it is set already, or another client changed the policy."""
    if not _is_ours(there, before) or there.topic == before.original:
        return None
    return RateChange(place, there.topic, before.original, before.group, restores=True)


def _assemble(
    decided: Sequence[tuple[RateChange, OwnedRate | None]],
    restored: Sequence[RateChange],
    left: Sequence[SkippedPolicy],
    owned: Mapping[PolicyKey, OwnedRate],
    leaving: Sequence[PolicyKey],
    write_budget: WriteBudget,
) -> EnforcerPlan:
    """Return the plan with at most the budget's number of writes.

    Their order is: writes that waited in the last cycle, decreases, restores, the largest increases.
    """
    memory = {change.place: record for change, record in decided}
    every = [*(change for change, _ in decided), *restored]
    every.sort(key=lambda change: (change.place not in write_budget.first, *_urgency(change)))
    changes, late = every[: write_budget.most], every[write_budget.most :]
    records = dict(owned)
    for change in changes:
        record = memory.get(change.place)
        if record is not None:
            records[change.place] = record
    waiting = {change.place for change in late}
    restoring = {change.place for change in changes if change.restores}
    done = [place for place in leaving if place not in waiting and place not in restoring]
    for place in done:
        records.pop(place, None)
    rest = [*left, *(SkippedPolicy(change.place, BUDGET) for change in late)]
    return EnforcerPlan(
        changes=tuple(changes),
        owned=records,
        left=tuple(sorted(rest, key=lambda item: _name(item.place))),
        forget=tuple(sorted(restoring, key=_name)),
    )


def _urgency(change: RateChange) -> tuple[int, float, tuple[str, str]]:
    if change.restores:
        return 1, 0.0, _name(change.place)
    factor = _factor(change.before or FREE, change.rate or FREE)
    return (0, factor, _name(change.place)) if factor < 1 else (2, -factor, _name(change.place))


def _factor(before: Rate, after: Rate) -> float:
    """Return the factor by which a rate changes: the largest decrease of messages or bytes, else the largest increase.

    No limit counts as a very high rate.
    """
    pairs = zip(before[:2], after[:2], strict=True)
    factors = [(new if new > 0 else MOST_BYTES) / (old if old > 0 else MOST_BYTES) for old, new in pairs]
    return min(factors) if min(factors) < 1 else max(factors)


def _name(place: PolicyKey) -> tuple[str, str]:
    return place.topic, place.side
