"""Enforcer `policies`: reads what is in force for topics, plans their rates, writes them. Called by the leader.

Reads and writes each have a part of a cycle's time (`BoundedCalls`); what was not begun comes first in the next one. A
place that is being read or written beside the cycles is left alone until that has ended.
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

from bundlekeel.bounded_calls import BoundedCalls
from bundlekeel.core.model.errors import AdminApiError, AdminRefused, CodecError, Forbidden, LeadershipLost
from bundlekeel.core.model.load import Floats
from bundlekeel.core.model.numbers import integer
from bundlekeel.core.quotas.enforce import (
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
from bundlekeel.core.quotas.groups import KINDS, Membership, Rates
from bundlekeel.core.quotas.shares import Shares
from bundlekeel.core.quotas.usage import Key
from bundlekeel.daemon.quotas.namespaces import NamespaceReader
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.daemon.state.owned_limits import OwnedLimits
from bundlekeel.ports.commands import Permit, QuotaCommands, before_any_term
from bundlekeel.ports.quotas import NamespaceRates

_log = structlog.get_logger(__name__)

# Topics' own rates are read whenever they are written, and a part of them each cycle.
_ROUNDS: Final = 30
# So many of them a cycle at least.
_READS: Final = 1000
# Parts of a cycle: for namespaces, for topics that are due, once more for those that are to be written, for writes.
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
    """What became of a plan's changes, and of those that the last cycle did not wait for. `begun`: how many of this
    plan's were; `late`: those that were not, or are still under way."""

    done: list[RateChange] = field(default_factory=list)
    failed: list[tuple[RateChange, str]] = field(default_factory=list)
    begun: int = 0
    late: tuple[RateChange, ...] = ()


class RateKeeper:
    """What is in force for topics, as read and written here. `owned`: by place, what we hold."""

    def __init__(
        self, commands: QuotaCommands, config: BrokerConfig, book: OwnedLimits, reader: NamespaceReader
    ) -> None:
        self._commands = commands
        self._permit: Permit = before_any_term
        self._config = config
        self._book = book
        self._reader = reader
        self.owned: dict[PolicyKey, OwnedRate] = {}
        # The last reason why some rate could not be read in the last cycle, "" when all could.
        self.unread = ""
        self._topics: dict[PolicyKey, InForce] = {}
        self._round: list[PolicyKey] = []
        # When each place was last tried to be read, by the number of the plan, and whose last reading failed.
        self._tried: dict[PolicyKey, int] = {}
        self._turn = 0
        self._refused: set[PolicyKey] = set()
        # Read since the last plan; what became of writes since the last cycle; whose writes had to wait.
        self._fresh: set[PolicyKey] = set()
        self._written = RateWriteResult()
        self._waited: frozenset[PolicyKey] = frozenset()
        self._reads: BoundedCalls[PolicyKey] = BoundedCalls()
        self._writes: BoundedCalls[PolicyKey] = BoundedCalls()
        self._namespaces: dict[str, NamespaceRates] = {}
        # What follows from namespaces and brokers' settings, by namespace and side; made anew in each cycle.
        self._arounds: dict[tuple[str, str], InForce] = {}

    def begin(self, owned: Mapping[PolicyKey, OwnedRate], permit: Permit) -> None:
        """A term begins, with its permit: what the last leader held, and nothing read yet."""
        self.owned = dict(owned)
        self._permit = permit
        self._topics.clear()
        self._arounds.clear()
        self._tried.clear()
        self._refused.clear()
        self._fresh.clear()
        self._waited = frozenset()

    async def stop(self) -> None:
        """End what is under way."""
        await asyncio.gather(self._reads.stop(), self._writes.stop(), self._reader.stop())

    def rate_of(self, key: Key) -> Rates:
        """What each partition of a topic may pass now, as far as it is known; infinite: no limit."""
        publish, dispatch = (self._in_force(PolicyKey(topic=key[1], side=side)) for side in SIDES)
        return (*_passes(publish), *_passes(dispatch))

    def passing(self, keys: Sequence[Key]) -> Floats:
        """What each partition of many topics may pass because of us, shape (keys, 4); infinite where nothing or
        somebody else limits it."""
        rates = chain.from_iterable(self._passing(key[1]) for key in keys)
        return np.fromiter(rates, dtype=np.float64, count=len(keys) * len(KINDS)).reshape(-1, len(KINDS))

    def _passing(self, topic: str) -> Iterable[float]:
        for side in SIDES:
            place = PolicyKey(topic=topic, side=side)
            yield from ours_alone(self._in_force(place), self.owned[place]) if place in self.owned else _NO_LIMIT

    def left_of(
        self, limits: Floats, groups: Sequence[str], seen: Collection[str], partitions: Mapping[str, int]
    ) -> Floats:
        """Limits (groups, 4) without what topics may pass that we hold and no broker has reported in this term: they
        may be served by a broker that does not answer."""
        found, row = limits.copy(), {name: number for number, name in enumerate(groups)}
        for place, owned in self.owned.items():
            if place.topic not in seen and owned.group in row:
                rate = owned.ours[-1].per_second()
                for column, value in zip(COLUMNS[place.side], rate[:2], strict=True):
                    found[row[owned.group], column] -= max(0, value) * partitions.get(place.topic, 1)
        return np.maximum(found, 0.0)

    # --- planning ---

    async def plan(
        self, shares: Shares, membership: Membership, write_budget: WriteBudget, *, ask: bool, seconds: float
    ) -> EnforcerPlan:
        """What to write, or what would be. Without `ask` topics' own policies are not read (that is no harmless read):
        then they count as absent, apart from what we set ourselves. `seconds`: how long a cycle lasts."""
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
        wanted = concerned | set(self.owned)
        await self._read(self._due(wanted, max(_READS, 2 * write_budget.most)), _DUE_PART * seconds)
        known = self._known(wanted, concerned)
        made = await asyncio.to_thread(plan_writes, shares, membership, known, self.owned, write_budget)
        again = {change.place for change in made.changes} - self._fresh
        if again:
            # Somebody may have set another one since it was read last.
            await self._read([place for place in self._order(again) if self._idle(place)], _AGAIN_PART * seconds)
            known = self._known(wanted - (again - self._fresh), concerned)
            made = await asyncio.to_thread(plan_writes, shares, membership, known, self.owned, write_budget)
        return self._only_fresh(made)

    async def plan_back(self, most: int, seconds: float | None = None) -> EnforcerPlan:
        """How to give everything back. `seconds`: how long a cycle lasts (None: all of it is read, however long)."""
        self._turn += 1
        due = [place for place in self._order(self.owned) if self._idle(place)][: 2 * most]
        await self._read(due, None if seconds is None else (_DUE_PART + _AGAIN_PART) * seconds)
        return self._only_fresh(give_back(self.owned, self._known(self._fresh & set(self.owned), ()), most))

    def _only_fresh(self, plan: EnforcerPlan) -> EnforcerPlan:
        """The plan without what was not read recently; what there was no time for is kept apart from what failed."""
        fresh, self._fresh = self._fresh, set()
        changes = tuple(change for change in plan.changes if change.place in fresh)
        left = [
            SkippedPolicy(item.place, NOT_REACHED) if item.why == NOT_READ and not self._failed(item.place) else item
            for item in plan.left
        ]
        left += [SkippedPolicy(change.place, NOT_REACHED) for change in plan.changes if change.place not in fresh]
        return replace(plan, changes=changes, left=tuple(left))

    def _failed(self, place: PolicyKey) -> bool:
        """Whether what is in force there was asked for in vain."""
        return place in self._refused or _namespace(place.topic) in self._reader.errors

    def _known(self, places: Iterable[PolicyKey], concerned: Collection[PolicyKey]) -> dict[PolicyKey, InForce]:
        """What is in force where that is known. `concerned`: places that may get a rate, which needs to know that of
        the namespace; what is only given back does not."""
        return {
            place: self._in_force(place)
            for place in places
            if place in self._topics
            and place not in self._writes.under_way
            and (place not in concerned or _namespace(place.topic) in self._namespaces)
        }

    def _due(self, wanted: Collection[PolicyKey], most: int) -> list[PolicyKey]:
        """What has not been read, and a part of the rest, in turn."""
        self._tried = {place: turn for place, turn in self._tried.items() if place in wanted}
        self._refused &= set(wanted)
        missing = self._order(place for place in wanted if place not in self._topics and self._idle(place))
        known = {place for place in wanted if place in self._topics and self._idle(place)} - self._fresh
        self._round = [place for place in self._round if place in known] or sorted(known, key=_name)
        return [*missing, *self._round[: -(-len(wanted) // _ROUNDS)]][:most]

    def _order(self, places: Iterable[PolicyKey]) -> list[PolicyKey]:
        """Those first whose write had to wait, then those tried the longest ago: an unresponsive broker cannot
        starve the others."""
        return sorted(places, key=lambda item: (item not in self._waited, self._tried.get(item, -1), _name(item)))

    def _idle(self, place: PolicyKey) -> bool:
        return place not in self._reads.under_way and place not in self._writes.under_way

    # --- reading ---

    async def _read(self, due: Sequence[PolicyKey], seconds: float | None) -> None:
        """Read topics' own policies anew, in this order, as far as the time goes."""
        count = await self._reads.run({place: partial(self._ask, place, self._permit) for place in due}, seconds)
        begun = set(due[:count])
        self._tried |= dict.fromkeys(begun, self._turn)
        self._round = [place for place in self._round if place not in begun]

    async def _ask(self, place: PolicyKey, permit: Permit) -> None:
        """Read one. What cannot be read is not known any more."""
        found = await self._own(place, permit)
        if found is None:
            self._topics.pop(place, None)
            self._refused.add(place)
        else:
            self._topics[place] = found
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
            # Its policy is gone with the topic: there is nothing to give back.
            if error.status == _NOT_FOUND:
                return InForce() if place in self.owned else None
            self.unread = str(error)
            return None
        except (AdminApiError, Forbidden) as error:
            self.unread = str(error)
            _log.info("rate not read", topic=place.topic, side=place.side, error=str(error))
            return None

    async def _read_namespaces(self, names: Collection[str], seconds: float) -> None:
        self._namespaces = await self._reader.read(names, seconds)
        self._arounds.clear()
        unread = [f"{name}: {why}" for name, why in self._reader.errors.items() if name not in self._namespaces]
        self.unread = min(unread, default="")

    def _allowed(self) -> bool:
        values = self._config.adoptable()
        keys = ("topicLevelPoliciesEnabled", "systemTopicEnabled")
        return all(values.get(key, "true").strip().lower() == "true" for key in keys)

    def _in_force(self, place: PolicyKey) -> InForce:
        key = _namespace(place.topic), place.side
        bare = self._arounds.get(key)
        if bare is None:
            bare = self._arounds[key] = InForce(around=(self._around(*key),), allowed=self._allowed())
        own = self._topics.get(place)
        return bare if own is None else InForce(topic=own.topic, around=bare.around, allowed=own.allowed)

    def _around(self, namespace: str, side: str) -> Rate:
        """What would be in force without a topic policy: the namespace's rate, else the brokers'."""
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
        """Store what will be held, write, then forget what was given back. `seconds`: how long a cycle lasts.
        StoreError, LeadershipLost: the next leader goes on from what is stored."""
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
        written.begun, written.late = count, (*hanging, *waiting)
        ours = set(plan.changes[:count])
        given = {change.place for change in written.done if change in ours} & set(plan.forget)
        if given:
            self.owned = {place: owned for place, owned in self.owned.items() if place not in given}
            await self._book.store(epoch, self.owned)
        return written

    async def _write(self, change: RateChange, permit: Permit) -> None:
        try:
            await self._commands.set_topic_rate(change.place, change.rate, permit=permit)
        except (AdminApiError, LeadershipLost, Forbidden) as error:
            # Perhaps it took effect: read again before anything else is made of it.
            self._topics.pop(change.place, None)
            self._written.failed.append((change, str(error)))
            _log.warning("rate not written", topic=change.place.topic, side=change.place.side, error=str(error))
            return
        self._topics[change.place] = InForce(topic=change.rate)
        self._written.done.append(change)


def _concerned(shares: Shares) -> Iterable[PolicyKey]:
    """The places whose side is limited."""
    for row, (_, topic) in enumerate(shares.keys):
        finite = [value < float("inf") for value in shares.share[row].tolist()]
        for side, columns in ((PUBLISH, finite[:2]), (DISPATCH, finite[2:])):
            if any(columns):
                yield PolicyKey(topic=topic, side=side)


def _whole(text: str) -> int:
    """Return the rate in a broker's setting; -1: none, or unusable."""
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
    """Of a full topic name, without checking it (hot path)."""
    return "/".join(topic.partition("://")[2].split("/", 2)[:2])


def _name(place: PolicyKey) -> tuple[str, str]:
    return place.topic, place.side
