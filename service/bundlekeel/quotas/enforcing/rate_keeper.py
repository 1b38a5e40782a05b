"""Enforcer `policies`: the leader reads the rates of topic policies, plans new rates and writes them.

Reads and writes each get a part of a cycle's time (`BoundedCalls`). Calls that did not start within this time come
first in the next cycle. A rate with a read or write in progress is skipped until the call has ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
import structlog

from bundlekeel.model.errors import AdminApiError, AdminRefused, CodecError, Forbidden, LeadershipLost
from bundlekeel.model.load import Floats
from bundlekeel.model.numbers import integer
from bundlekeel.ports.commands import Permit, before_any_term
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.quotas.enforcing.bounded_calls import BoundedCalls
from bundlekeel.quotas.enforcing.namespaces import NamespaceReader
from bundlekeel.quotas.enforcing.owned_limits import OwnedLimits
from bundlekeel.quotas.ports import NamespaceRates
from bundlekeel.quotas.rate_commands import QuotaCommands
from bundlekeel.quotas.rules.groups import KINDS, Membership, Rates
from bundlekeel.quotas.rules.rate_plan import (
    COLUMNS,
    DISPATCH,
    NOT_REACHED,
    NOT_READ,
    PUBLISH,
    SIDES,
    EnforcerPlan,
    InForce,
    OwnedRate,
    PolicyKey,
    Rate,
    RateChange,
    SkippedPolicy,
    WriteBudget,
    give_back,
    ours_alone,
    plan_writes,
    stricter,
)
from bundlekeel.quotas.rules.shares import Shares
from bundlekeel.quotas.rules.usage import Key

_log = structlog.get_logger(__name__)

# The rate of a topic is read before each write, and in addition at least once in this many cycles.
_ROUNDS: Final = 30
# One cycle reads at most this many rates, or twice the number of writes in the budget if that is more.
_READS: Final = 1000
# Parts of a cycle's time (0 to 1): reading namespaces, reading topics that are due, reading topics again right before
# their write, and writes.
_NAMESPACES_PART, _DUE_PART, _AGAIN_PART, _WRITES_PART = 0.15, 0.25, 0.2, 0.3
_NOT_FOUND, _NOT_ALLOWED = 404, 405
_NO_LIMIT: Final = (math.inf, math.inf)
_BROKER_KEYS: Final = {
    PUBLISH: ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes"),
    DISPATCH: ("dispatchThrottlingRatePerTopicInMsg", "dispatchThrottlingRatePerTopicInByte"),
}
_RELATIVE_KEY: Final = "dispatchThrottlingRateRelativeToPublishRate"


@dataclass(slots=True)
class RateWriteResult:
    """Results of the writes that have ended since the last cycle, including late writes of earlier plans.

    `started`: number of writes of the current plan that were started. `late`: writes of the current plan that have not
    ended yet.
    """

    done: list[RateChange] = field(default_factory=list)
    failed: list[tuple[RateChange, str]] = field(default_factory=list)
    started: int = 0
    late: tuple[RateChange, ...] = ()


class RateKeeper:
    """Reads and writes the rates of topics. `owned`: rates that Bundlekeel has set, by topic and side (`PolicyKey`)."""

    def __init__(
        self, commands: QuotaCommands, config: BrokerConfig, book: OwnedLimits, reader: NamespaceReader
    ) -> None:
        self._commands = commands
        self._permit: Permit = before_any_term
        self._config = config
        self._book = book
        self._reader = reader
        self.owned: dict[PolicyKey, OwnedRate] = {}
        # One read error of the last cycle; "": none.
        self.unread = ""
        self._topics: dict[PolicyKey, InForce] = {}
        self._round: list[PolicyKey] = []
        # Number of the plan in which each rate was last read, and the rates whose last read failed.
        self._read_turns: dict[PolicyKey, int] = {}
        self._turn = 0
        self._refused: set[PolicyKey] = set()
        # Rates read since the last plan, results of writes since the last cycle, and rates whose write had to wait.
        self._fresh: set[PolicyKey] = set()
        self._written = RateWriteResult()
        self._waited: frozenset[PolicyKey] = frozenset()
        self._reads: BoundedCalls[PolicyKey] = BoundedCalls()
        self._writes: BoundedCalls[PolicyKey] = BoundedCalls()
        self._namespaces: dict[str, NamespaceRates] = {}
        # Rates that follow from namespaces and brokers' settings, by namespace and side; rebuilt in each cycle.
        self._defaults: dict[tuple[str, str], InForce] = {}

    def begin(self, owned: Mapping[PolicyKey, OwnedRate], permit: Permit) -> None:
        """Reset the state, because this sidecar became the leader. `owned`: the rates that earlier leaders have set.

        `permit`: checks before each request that this sidecar still leads and can write.
        """
        self.owned = dict(owned)
        self._permit = permit
        self._topics.clear()
        self._defaults.clear()
        self._read_turns.clear()
        self._refused.clear()
        self._fresh.clear()
        self._waited = frozenset()

    async def stop(self) -> None:
        """Cancel the reads and writes in progress."""
        await asyncio.gather(self._reads.stop(), self._writes.stop(), self._reader.stop())

    def rate_of(self, key: Key) -> Rates:
        """Return the current limits of each partition of a topic, per second; infinite: no limit, or not known."""
        publish, dispatch = (self._in_force(PolicyKey(topic=key[1], side=side)) for side in SIDES)
        return (*_passes(publish), *_passes(dispatch))

    def passing(self, keys: Sequence[Key]) -> Floats:
        """Return the limits that Bundlekeel sets for each partition of these topics, shape (keys, 4).

        Infinite where Bundlekeel sets no limit, or where the partition has another limit that is as low or lower.
        """
        rates = chain.from_iterable(self._passing(key[1]) for key in keys)
        return np.fromiter(rates, dtype=np.float64, count=len(keys) * len(KINDS)).reshape(-1, len(KINDS))

    def _passing(self, topic: str) -> Iterable[float]:
        for side in SIDES:
            place = PolicyKey(topic=topic, side=side)
            yield from ours_alone(self._in_force(place), self.owned[place]) if place in self.owned else _NO_LIMIT

    def left_of(
        self, limits: Floats, groups: Sequence[str], reported: Collection[str], partitions: Mapping[str, int]
    ) -> Floats:
        """Return the groups' limits, shape (groups, 4), minus rates that Bundlekeel set for unreported topics.

        Brokers that have not responded to this leader can serve these topics. `reported`: topics that brokers reported
        to this leader. `partitions`: number of partitions by topic.
        """
        result, row = limits.copy(), {name: number for number, name in enumerate(groups)}
        for place, owned in self.owned.items():
            if place.topic not in reported and owned.group in row:
                rate = owned.ours[-1].per_second()
                for column, value in zip(COLUMNS[place.side], rate[:2], strict=True):
                    result[row[owned.group], column] -= max(0, value) * partitions.get(place.topic, 1)
        return np.maximum(result, 0.0)

    # --- planning ---

    async def plan(
        self, shares: Shares, membership: Membership, write_budget: WriteBudget, *, ask: bool, seconds: float
    ) -> EnforcerPlan:
        """Read the current rates of topics, and return the writes that are due.

        `ask`: whether writes are allowed now. If not, no topic policy is read, because a read can make a broker load a
        bundle, and the plan is for display only. `seconds`: length of a cycle, of which reads get a part.
        """
        self.unread = ""
        self._turn += 1
        write_budget = replace(write_budget, first=self._waited)
        limited = {topic for _, topic in shares.keys}
        places = [PolicyKey(topic=topic, side=side) for topic in sorted(limited) for side in SIDES]
        places += [place for place in self.owned if place.topic not in limited]
        await self._read_namespaces({_namespace(place.topic) for place in places}, _NAMESPACES_PART * seconds)
        if not ask:
            in_force = {place: self._in_force(place) for place in places if _namespace(place.topic) in self._namespaces}
            self._fresh |= set(in_force)
            return self._only_fresh(
                await asyncio.to_thread(plan_writes, shares, membership, in_force, self.owned, write_budget)
            )
        concerned = set(_concerned(shares))
        relevant = concerned | set(self.owned)
        await self._read(self._due(relevant, max(_READS, 2 * write_budget.most)), _DUE_PART * seconds)
        rates = self._read_rates(relevant, concerned)
        plan = await asyncio.to_thread(plan_writes, shares, membership, rates, self.owned, write_budget)
        stale = {change.place for change in plan.changes} - self._fresh
        if stale:
            # Read again, because an operator or another tool can have changed the rate after the last read.
            await self._read([place for place in self._order(stale) if self._idle(place)], _AGAIN_PART * seconds)
            rates = self._read_rates(relevant - (stale - self._fresh), concerned)
            plan = await asyncio.to_thread(plan_writes, shares, membership, rates, self.owned, write_budget)
        return self._only_fresh(plan)

    async def plan_back(self, most: int, seconds: float | None = None) -> EnforcerPlan:
        """Return at most `most` writes that restore the rates from before Bundlekeel.

        `seconds`: length of a cycle, of which reads get a part; None: read all rates, without a time limit.
        """
        self._turn += 1
        due = [place for place in self._order(self.owned) if self._idle(place)][: 2 * most]
        await self._read(due, None if seconds is None else (_DUE_PART + _AGAIN_PART) * seconds)
        return self._only_fresh(give_back(self.owned, self._read_rates(self._fresh & set(self.owned), ()), most))

    def _only_fresh(self, plan: EnforcerPlan) -> EnforcerPlan:
        """Return the plan without writes of rates that were not read since the last plan.

        Such a rate is skipped with the reason NOT_REACHED if there was no time to read it, NOT_READ if the read failed.
        """
        fresh, self._fresh = self._fresh, set()
        changes = tuple(change for change in plan.changes if change.place in fresh)
        left = [
            SkippedPolicy(item.place, NOT_REACHED) if item.why == NOT_READ and not self._failed(item.place) else item
            for item in plan.left
        ]
        left += [SkippedPolicy(change.place, NOT_REACHED) for change in plan.changes if change.place not in fresh]
        return replace(plan, changes=changes, left=tuple(left))

    def _failed(self, place: PolicyKey) -> bool:
        return place in self._refused or _namespace(place.topic) in self._reader.errors

    def _read_rates(self, places: Iterable[PolicyKey], concerned: Collection[PolicyKey]) -> dict[PolicyKey, InForce]:
        """Return the rates in effect for `places`, as far as they were read.

        `concerned`: rates to be set, for which the namespace's rate must be known, too. Restores do not
        depend on the namespace's rate.
        """
        return {
            place: self._in_force(place)
            for place in places
            if place in self._topics
            and place not in self._writes.under_way
            and (place not in concerned or _namespace(place.topic) in self._namespaces)
        }

    def _due(self, relevant: Collection[PolicyKey], most: int) -> list[PolicyKey]:
        """Return at most `most` rates to read now: first all never read, then 1 / `_ROUNDS` of the others, in turn."""
        self._read_turns = {place: turn for place, turn in self._read_turns.items() if place in relevant}
        self._refused &= set(relevant)
        missing = self._order(place for place in relevant if place not in self._topics and self._idle(place))
        read = {place for place in relevant if place in self._topics and self._idle(place)} - self._fresh
        self._round = [place for place in self._round if place in read] or sorted(read, key=_name)
        return [*missing, *self._round[: -(-len(relevant) // _ROUNDS)]][:most]

    def _order(self, places: Iterable[PolicyKey]) -> list[PolicyKey]:
        """Sort rates: those whose write had to wait come first, then those read the longest ago.

        So a broker that hangs does not block the reads from other brokers.
        """
        return sorted(places, key=lambda item: (item not in self._waited, self._read_turns.get(item, -1), _name(item)))

    def _idle(self, place: PolicyKey) -> bool:
        return place not in self._reads.under_way and place not in self._writes.under_way

    # --- reading ---

    async def _read(self, due: Sequence[PolicyKey], seconds: float | None) -> None:
        """Read topic policies in the order of `due`; start no read after `seconds` (None: no limit)."""
        count = await self._reads.run({place: partial(self._ask, place, self._permit) for place in due}, seconds)
        started = set(due[:count])
        self._read_turns |= dict.fromkeys(started, self._turn)
        self._round = [place for place in self._round if place not in started]

    async def _ask(self, place: PolicyKey, permit: Permit) -> None:
        """Read one rate and cache it. If the read fails, drop the cached rate."""
        rate = await self._own(place, permit)
        if rate is None:
            self._topics.pop(place, None)
            self._refused.add(place)
        else:
            self._topics[place] = rate
            self._refused.discard(place)
            self._fresh.add(place)

    async def _own(self, place: PolicyKey, permit: Permit) -> InForce | None:
        if not self._allowed():
            return InForce(allowed=False)
        try:
            return InForce(topic=await self._commands.topic_rate(place, permit=permit))
        except AdminRefused as error:
            if error.status == _NOT_ALLOWED:
                return InForce(allowed=False)
            # 404: the topic was deleted with its policy, so there is nothing to restore.
            if error.status == _NOT_FOUND:
                return InForce() if place in self.owned else None
            self.unread = str(error)
            return None
        except (AdminApiError, Forbidden) as error:
            self.unread = str(error)
            _log.info(
                "topic rate could not be read, a later cycle tries again",
                topic=place.topic,
                side=place.side,
                error=str(error),
            )
            return None

    async def _read_namespaces(self, names: Collection[str], seconds: float) -> None:
        self._namespaces = await self._reader.read(names, seconds)
        self._defaults.clear()
        unread = [f"{name}: {why}" for name, why in self._reader.errors.items() if name not in self._namespaces]
        self.unread = min(unread, default="")

    def _allowed(self) -> bool:
        values = self._config.adoptable()
        keys = ("topicLevelPoliciesEnabled", "systemTopicEnabled")
        return all(values.get(key, "true").strip().lower() == "true" for key in keys)

    def _in_force(self, place: PolicyKey) -> InForce:
        key = _namespace(place.topic), place.side
        bare = self._defaults.get(key)
        if bare is None:
            bare = self._defaults[key] = InForce(around=(self._default_rate(*key),), allowed=self._allowed())
        own = self._topics.get(place)
        return bare if own is None else InForce(topic=own.topic, around=bare.around, allowed=own.allowed)

    def _default_rate(self, namespace: str, side: str) -> Rate:
        """Return the rate that applies without a topic policy: the namespace's rate, else the brokers' setting."""
        rates = self._namespaces.get(namespace, NamespaceRates())
        of_namespace = rates.publish if side == PUBLISH else rates.dispatch
        if of_namespace is not None and not of_namespace.free:
            return of_namespace
        values = self._config.adoptable()
        messages, size = (_whole(values.get(key, "")) for key in _BROKER_KEYS[side])
        relative = side == DISPATCH and values.get(_RELATIVE_KEY, "").strip().lower() == "true"
        return Rate(messages, size, relative and max(messages, size) > 0)

    # --- writing ---

    async def carry_out(self, plan: EnforcerPlan, epoch: int, seconds: float) -> RateWriteResult:
        """Store the record of all rates to set, write the rates to brokers, then drop restored rates from the record.

        `seconds`: length of a cycle, of which writes get a part. Raises StoreError or LeadershipLost if the record
        cannot be stored; the next leader then continues from the stored state.
        """
        if plan.changes or plan.owned != self.owned:
            await self._book.store(epoch, plan.owned)
        self.owned = dict(plan.owned)
        most = _WRITES_PART * seconds
        jobs = {item.place: partial(self._write, item, self._permit) for item in plan.changes}
        count = await self._writes.run(jobs, most)
        written, self._written = self._written, RateWriteResult()
        hanging = tuple(change for change in plan.changes[:count] if change.place in self._writes.under_way)
        waiting = plan.changes[count:]
        self._waited = frozenset(change.place for change in waiting)
        written.started, written.late = count, (*hanging, *waiting)
        ours = set(plan.changes[:count])
        restored = {change.place for change in written.done if change in ours} & set(plan.forget)
        if restored:
            self.owned = {place: owned for place, owned in self.owned.items() if place not in restored}
            await self._book.store(epoch, self.owned)
        return written

    async def _write(self, change: RateChange, permit: Permit) -> None:
        try:
            await self._commands.set_topic_rate(change.place, change.rate, permit=permit)
        except (AdminApiError, LeadershipLost, Forbidden) as error:
            # Forget the rate, so that it is read again: the failed write can have taken effect.
            self._topics.pop(change.place, None)
            self._written.failed.append((change, str(error)))
            _log.warning(
                "topic rate could not be written, a later cycle tries again",
                topic=change.place.topic,
                side=change.place.side,
                error=str(error),
            )
            return
        self._topics[change.place] = InForce(topic=change.rate)
        self._written.done.append(change)


def _concerned(shares: Shares) -> Iterable[PolicyKey]:
    """Yield each topic and side (publish, dispatch) with a limit."""
    for row, (_, topic) in enumerate(shares.keys):
        finite = [value < float("inf") for value in shares.share[row].tolist()]
        for side, columns in ((PUBLISH, finite[:2]), (DISPATCH, finite[2:])):
            if any(columns):
                yield PolicyKey(topic=topic, side=side)


def _whole(text: str) -> int:
    """Return the rate in a broker's setting; -1: no limit, or not a number."""
    try:
        return integer(text, field="rate", lowest=1)
    except CodecError:
        return -1


def _passes(there: InForce) -> tuple[float, float]:
    rate = there.topic
    if rate is None or rate.free:
        rate = stricter(there.around)
    elif rate.period > 1:
        rate = rate.per_second()
    return float(rate[0]) if rate[0] > 0 else math.inf, float(rate[1]) if rate[1] > 0 else math.inf


def _namespace(topic: str) -> str:
    """Return the namespace of a full topic name. Does not check the name, because it is called very often."""
    return "/".join(topic.partition("://")[2].split("/", 2)[:2])


def _name(place: PolicyKey) -> tuple[str, str]:
    return place.topic, place.side
