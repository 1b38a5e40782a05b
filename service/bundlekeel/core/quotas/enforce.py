"""From shares to topic policies: which to write, which to leave and why, which to restore. Pure.

Enforcer `policies`. A topic policy beats that of the namespace and of the broker, so what we write is never looser
than the rate that would be in force without us: the stricter wins, in each of messages and bytes. Each partition gets
share / partitions, in whole numbers, at least 1 (Pulsar reads 0 as no limit).

Crash safe: before a policy is written for the first time `OwnedRate.original` keeps what was there, and before each
write `OwnedRate.ours` keeps what will be; who leads next finds the old or the new value there and goes on. Any
other value is somebody else's: it becomes the original, and is never overwritten by something looser nor restored away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.names import parse_topic
from bundlekeel.core.quotas.groups import MOST_BYTES, MOST_MESSAGES, Membership
from bundlekeel.core.quotas.lines import AT_LIMIT
from bundlekeel.core.quotas.shares import Shares

PUBLISH, DISPATCH = "publish", "dispatch"
SIDES: Final = (PUBLISH, DISPATCH)
COLUMNS: Final = {PUBLISH: (0, 1), DISPATCH: (2, 3)}


class Rate(NamedTuple):
    """Messages and bytes in `period` seconds for each partition; -1 is no limit. `relative`: a dispatch rate on top of
    the publish rate (`relativeToPublishRate`), which no fixed rate can be compared with."""

    messages: int = -1
    size: int = -1
    relative: bool = False
    period: int = 1

    @property
    def free(self) -> bool:
        """No limit at all (Pulsar drops such a policy)."""
        return self.messages <= 0 and self.size <= 0

    def per_second(self) -> Rate:
        """The same as a rate of one second; cut, at least 1."""
        scale = max(1, self.period)
        messages, size = ((max(1, value // scale) if value > 0 else -1) for value in (self.messages, self.size))
        return Rate(messages, size, self.relative)


FREE: Final = Rate()
# So many writes without an answer are remembered of a place.
_REMEMBERED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKey:
    """One policy: a topic (the partitioned one) and `publish` or `dispatch`."""

    topic: str
    side: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What was read of a place. `topic`: its policy, None without one; `around`: what namespace and broker settings
    would limit it to; `allowed`: whether its brokers have topic policies on."""

    topic: Rate | None = None
    around: tuple[Rate, ...] = ()
    allowed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRate:
    """A place we write to, for a group. `original`: the policy before us, None without one. `ours`: what we wrote or
    were about to write since one of these was last read there, the newest last: a write whose answer was lost may land
    later."""

    group: str
    original: Rate | None
    ours: tuple[Rate, ...]


class RateChange(NamedTuple):
    """One write. `rate` None: remove the policy. `before`: what is there now. `restores`: gives back the original."""

    place: PolicyKey
    before: Rate | None
    rate: Rate | None
    group: str
    restores: bool = False


class SkippedPolicy(NamedTuple):
    """A place that is left as it is, and why."""

    place: PolicyKey
    why: str


# Why a place is left. Nothing is wrong where its rate is as it should be.
UNCHANGED = ""
STRICTER, POLICIES_OFF, RELATIVE = Code.STRICTER_RATE_IN_FORCE, Code.TOPIC_POLICIES_OFF, Code.RELATIVE_DISPATCH_RATE
BUDGET, NOT_READ, ABSENT = Code.BUDGET_OF_RATES, Code.RATE_NOT_READ, Code.TOPIC_ABSENT
NOT_REACHED = Code.RATE_NOT_REACHED


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBudget:
    """When a write is worth it. `up`, `down`: least change of a rate (its part). `short`: any rise is, while the rates
    of its group add up to so much less than they should (a part of that). `most`: writes now, restores too. `first`:
    places that waited for time in the last cycle."""

    up: float = 0.10
    down: float = 0.05
    short: float = 0.03
    most: int = 60
    first: frozenset[PolicyKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerPlan:
    """`changes`: in their order, those that waited and decreases first. `owned`: to be stored *before* the changes are
    made. `left`: the rest, one reason each. `forget`: places that are done with once their change has been made."""

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
    """What to write so that topics have their shares, and what to give back of topics that are in no group any more.

    A held place whose topic belongs to a group but has no share is left as it is: the topic is on its way to another
    broker, or has no clients now. Places that were not read (not in `in_force`) are neither written nor given back.
    """
    wanted = dict(_wanted(shares))
    short = _short(wanted, in_force, owned, write_budget)
    eager = replace(write_budget, up=0.0)
    decided: list[tuple[RateChange, OwnedRate | None]] = []
    left: list[SkippedPolicy] = []
    for place, (group, rate, _) in wanted.items():
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
    without = [place for place in owned if place not in wanted]
    left += [SkippedPolicy(place, ABSENT) for place in without if _limited(place, membership)]
    gone = [place for place in without if place in in_force and not _limited(place, membership)]
    restored = [_restore(place, owned[place], in_force[place]) for place in sorted(gone, key=_name)]
    return _assemble(decided, [item for item in restored if item is not None], left, owned, gone, write_budget)


def give_back(owned: Mapping[PolicyKey, OwnedRate], in_force: Mapping[PolicyKey, InForce], most: int) -> EnforcerPlan:
    """Everything back as it was (the group is removed, the sidecar hands back)."""
    gone = sorted((place for place in owned if place in in_force), key=_name)
    restored = [_restore(place, owned[place], in_force[place]) for place in gone]
    return _assemble([], [item for item in restored if item], [], owned, gone, WriteBudget(most=most))


def stricter(rates: Iterable[Rate]) -> Rate:
    """The smaller of all limits, in messages and in bytes. Relative rates have no say."""
    known = [rate.per_second() for rate in rates if not rate.relative]
    messages = [rate.messages for rate in known if rate.messages > 0]
    sizes = [rate.size for rate in known if rate.size > 0]
    return Rate(min(messages, default=-1), min(sizes, default=-1))


def _limited(place: PolicyKey, membership: Membership) -> bool:
    """Whether the topic is in a group that limits this side."""
    row = membership.group_of.get(parse_topic(place.topic).namespace)
    if row is None:
        return False
    rates = membership.groups[row].limits.rates()
    return any(np.isfinite(rates[column]) for column in COLUMNS[place.side])


def _short(
    wanted: Mapping[PolicyKey, tuple[str, Rate, int]],
    in_force: Mapping[PolicyKey, InForce],
    owned: Mapping[PolicyKey, OwnedRate],
    write_budget: WriteBudget,
) -> set[tuple[str, str]]:
    """Groups and sides whose rates add up to too little: each of them is nearly as it should be, and all too low."""
    sums: dict[tuple[str, str], list[int]] = {}
    for place, (group, rate, parts) in wanted.items():
        there, before = in_force.get(place), owned.get(place)
        if there is not None and there.topic is not None and _is_ours(there, before):
            total = sums.setdefault((group, place.side), [0, 0, 0, 0])
            for column, (now, target) in enumerate(zip(there.topic[:2], rate[:2], strict=True)):
                if now > 0 and target > 0:
                    total[2 * column] += now * parts
                    total[2 * column + 1] += target * parts
    least = 1 - write_budget.short
    return {key for key, (a, b, c, d) in sums.items() if a < least * b or c < least * d}


def _wanted(shares: Shares) -> Iterable[tuple[PolicyKey, tuple[str, Rate, int]]]:
    most = (MOST_MESSAGES, MOST_BYTES, MOST_MESSAGES, MOST_BYTES)
    columns = [_whole(shares, kind, most[kind]) for kind in range(len(most))]
    for row, (group, topic) in enumerate(shares.keys):
        for side, (messages, size) in COLUMNS.items():
            rate = Rate(columns[messages][row], columns[size][row])
            if not rate.free:
                yield PolicyKey(topic=topic, side=side), (group, rate, int(shares.partitions[row]))


def _whole(shares: Shares, kind: int, most: int) -> list[int]:
    """What each partition of each topic may pass, in whole numbers, -1 for no limit.

    Cut, and what that leaves of a group's sum is given out in ones, first to those that lost most: at a level of 13.9
    messages/s a group would lose 7 % of its limit otherwise. One that is not held back is not cut so far that it would
    be: it would be taken for one that wants more, and back, without end. What it passes does not change by that.
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
    """The write of one place with what to remember, or why not."""
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
    """What may be there from now on: the target, and what was written before unless the newest of that was read."""
    known = () if before is None else before.ours
    if there.topic is not None and known[-1:] == (there.topic,):
        known = known[-1:]
    return (*(rate for rate in known if rate != target), target)[-_REMEMBERED:]


def ours_alone(there: InForce, before: OwnedRate | None) -> tuple[float, float]:
    """Messages and bytes a second that a partition passes at most because of us; infinite where nothing is, or
    another rate limits it as strictly: a topic at such a rate cannot want more."""
    if before is None or there.topic is None or not _is_ours(there, before):
        return math.inf, math.inf
    foreign = stricter(_ruling(there, before.original))[:2]
    pairs = zip(there.topic.per_second()[:2], foreign, strict=True)
    first, second = (math.inf if own <= 0 or 0 < other <= own else float(own) for own, other in pairs)
    return first, second


def _ruling(there: InForce, original: Rate | None) -> tuple[Rate, ...]:
    """What would hold without us. A topic policy hides those around it: ours has to repeat what is stricter there."""
    return there.around if original is None or original.free else (original,)


def _is_ours(there: InForce, before: OwnedRate | None) -> bool:
    return before is not None and there.topic in before.ours


def _original(there: InForce, before: OwnedRate | None) -> Rate | None:
    """What would be there without us: what was, or what somebody put there since."""
    return before.original if before is not None and _is_ours(there, before) else there.topic


def _worth(now: Rate | None, target: Rate, write_budget: WriteBudget) -> bool:
    """Whether any of the two rates changes by enough; a limit that comes or goes always does."""
    for old, new in zip((now or FREE)[:2], target[:2], strict=True):
        if (old > 0) != (new > 0):
            return True
        if old > 0 and (new > old * (1 + write_budget.up) or new < old * (1 - write_budget.down)):
            return True
    return False


def _restore(place: PolicyKey, before: OwnedRate, there: InForce) -> RateChange | None:
    """Back to the original; None where somebody else's value, or the original, is there already."""
    if not _is_ours(there, before) or there.topic == before.original:
        return None
    return RateChange(place, there.topic, before.original, before.group, restores=True)


def _assemble(
    decided: Sequence[tuple[RateChange, OwnedRate | None]],
    restored: Sequence[RateChange],
    left: Sequence[SkippedPolicy],
    owned: Mapping[PolicyKey, OwnedRate],
    gone: Sequence[PolicyKey],
    write_budget: WriteBudget,
) -> EnforcerPlan:
    """What waited first; then decreases (they keep the limit), restores, the largest increases; within the budget."""
    memory = {change.place: keep for change, keep in decided}
    every = [*(change for change, _ in decided), *restored]
    every.sort(key=lambda change: (change.place not in write_budget.first, *_urgency(change)))
    changes, late = every[: write_budget.most], every[write_budget.most :]
    kept = dict(owned)
    for change in changes:
        keep = memory.get(change.place)
        if keep is not None:
            kept[change.place] = keep
    waiting = {change.place for change in late}
    given_back = {change.place for change in changes if change.restores}
    done = [place for place in gone if place not in waiting and place not in given_back]
    for place in done:
        kept.pop(place, None)
    rest = [*left, *(SkippedPolicy(change.place, BUDGET) for change in late)]
    return EnforcerPlan(
        changes=tuple(changes),
        owned=kept,
        left=tuple(sorted(rest, key=lambda item: _name(item.place))),
        forget=tuple(sorted(given_back, key=_name)),
    )


def _urgency(change: RateChange) -> tuple[int, float, tuple[str, str]]:
    if change.restores:
        return 1, 0.0, _name(change.place)
    factor = _factor(change.before or FREE, change.rate or FREE)
    return (0, factor, _name(change.place)) if factor < 1 else (2, -factor, _name(change.place))


def _factor(before: Rate, after: Rate) -> float:
    """By how much the stricter-changed of the two rates changes; no limit counts as a very high one."""
    pairs = zip(before[:2], after[:2], strict=True)
    found = [(new if new > 0 else MOST_BYTES) / (old if old > 0 else MOST_BYTES) for old, new in pairs]
    return min(found) if min(found) < 1 else max(found)


def _name(place: PolicyKey) -> tuple[str, str]:
    return place.topic, place.side
