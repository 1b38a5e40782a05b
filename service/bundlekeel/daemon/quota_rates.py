"""Enforcer `policies`: reads what is in force for topics, plans their rates, writes them. Called by the leader."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
import structlog

from bundlekeel.core.errors import AdminApiError, AdminRefused, Forbidden, LeadershipLost
from bundlekeel.core.load import Floats
from bundlekeel.core.quotas.enforce import (
    DISPATCH,
    PUBLISH,
    SIDES,
    Change,
    EnforcerPlan,
    Held,
    InForce,
    Place,
    Rate,
    Thrift,
    give_back,
    plan_writes,
    stricter,
)
from bundlekeel.core.quotas.groups import KINDS, Membership, Rates
from bundlekeel.core.quotas.shares import Shares
from bundlekeel.core.quotas.usage import Key
from bundlekeel.daemon.brokerconfig import BrokerConfig
from bundlekeel.daemon.quota_held import HeldBook
from bundlekeel.daemon.quota_namespaces import PARALLEL, NamespaceReader
from bundlekeel.ports.quotas import NamespaceRates, QuotaAdmin
from bundlekeel.work import bounded

_log = structlog.get_logger(__name__)

# Topics' own rates are read whenever they are written, and a part of them each cycle.
_ROUNDS: Final = 30
# So many of them a cycle at least: a second or two.
_READS: Final = 1000
_NOT_FOUND, _NOT_ALLOWED = 404, 405
_BROKER_KEYS: Final = {
    PUBLISH: ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes"),
    DISPATCH: ("dispatchThrottlingRatePerTopicInMsg", "dispatchThrottlingRatePerTopicInByte"),
}
_RELATIVE_KEY: Final = "dispatchThrottlingRateRelativeToPublishRate"


@dataclass(slots=True)
class Written:
    """What became of a plan's changes."""

    done: list[Change] = field(default_factory=list)
    failed: list[tuple[Change, str]] = field(default_factory=list)


class RateKeeper:
    """What is in force for topics, as read and written here. `held`: by place, what we hold."""

    def __init__(self, admin: QuotaAdmin, config: BrokerConfig, book: HeldBook, reader: NamespaceReader) -> None:
        self._admin = admin
        self._config = config
        self._book = book
        self._reader = reader
        self.held: dict[Place, Held] = {}
        # The last reason why some rate could not be read in the last cycle, "" when all could.
        self.unread = ""
        self._topics: dict[Place, InForce] = {}
        self._round: list[Place] = []
        self._namespaces: dict[str, NamespaceRates] = {}
        # What follows from namespaces and brokers' settings, by namespace and side; made anew in each cycle.
        self._arounds: dict[tuple[str, str], InForce] = {}
        self._free: dict[str, Rates] = {}

    def begin(self, held: Mapping[Place, Held]) -> None:
        """A term begins: what the last leader held, and nothing read yet."""
        self.held = dict(held)
        self._topics.clear()
        self._arounds.clear()
        self._free.clear()

    def rate_of(self, key: Key) -> Rates:
        """What each partition of a topic may pass now, as far as it is known; infinite: no limit."""
        publish, dispatch = (self._in_force(Place(topic=key[1], side=side)) for side in SIDES)
        return (*_passes(publish), *_passes(dispatch))

    def passing(self, keys: Sequence[Key]) -> Floats:
        """The same of many topics, shape (keys, 4)."""
        rates = chain.from_iterable(self._passing(key[1]) for key in keys)
        return np.fromiter(rates, dtype=np.float64, count=len(keys) * len(KINDS)).reshape(-1, len(KINDS))

    def _passing(self, topic: str) -> Rates:
        """Topics without policies of their own pass what their namespace lets them: most, in large groups."""
        own = [self._topics.get(Place(topic=topic, side=side)) for side in SIDES]
        if any(item is not None and item.topic is not None for item in own):
            return self.rate_of(("", topic))
        namespace = _namespace(topic)
        found = self._free.get(namespace)
        if found is None:
            publish, dispatch = (self._in_force(Place(topic=topic, side=side)) for side in SIDES)
            found = self._free[namespace] = (*_passes(publish), *_passes(dispatch))
        return found

    # --- planning ---

    async def plan(self, shares: Shares, membership: Membership, thrift: Thrift, *, ask: bool) -> EnforcerPlan:
        """What to write, or what would be. Without `ask` topics' own policies are not read (that is no harmless read):
        then they count as absent, apart from what we set ourselves."""
        self.unread = ""
        limited = {topic for _, topic in shares.keys}
        places = [Place(topic=topic, side=side) for topic in sorted(limited) for side in SIDES]
        places += [place for place in self.held if place.topic not in limited]
        await self._read_namespaces({_namespace(place.topic) for place in places})
        if not ask:
            in_force = {place: self._in_force(place) for place in places}
            return await asyncio.to_thread(plan_writes, shares, membership, in_force, self.held, thrift)
        wanted = set(_concerned(shares)) | set(self.held)
        fresh = await self._read(self._due(wanted, max(_READS, 2 * thrift.most)))
        made = await asyncio.to_thread(plan_writes, shares, membership, self._known(wanted), self.held, thrift)
        again = [change.place for change in made.changes if change.place not in fresh]
        if not again:
            return made
        # Somebody may have set another one since it was read last.
        await self._read(again)
        return await asyncio.to_thread(plan_writes, shares, membership, self._known(wanted), self.held, thrift)

    async def plan_back(self, most: int) -> EnforcerPlan:
        """How to give everything back."""
        places = list(self.held)[: 2 * most]
        await self._read(places)
        return give_back(self.held, self._known(places), most)

    def _known(self, places: Iterable[Place]) -> dict[Place, InForce]:
        return {place: self._in_force(place) for place in places if place in self._topics}

    def _due(self, wanted: Collection[Place], most: int) -> list[Place]:
        """What has not been read, and a part of the rest, in turn."""
        missing = sorted((place for place in wanted if place not in self._topics), key=_name)
        if not self._round:
            self._round = sorted((place for place in wanted if place in self._topics), key=_name)
        part = -(-len(wanted) // _ROUNDS)
        turn, self._round = self._round[:part], self._round[part:]
        return [*missing, *(place for place in turn if place in wanted)][:most]

    # --- reading ---

    async def _read(self, places: Iterable[Place]) -> set[Place]:
        """Read topics' own policies anew; those that cannot be read are not known any more."""
        due = sorted(set(places), key=_name)
        answers = await bounded([partial(self._ask, place) for place in due], limit=PARALLEL)
        for place, found in zip(due, answers, strict=True):
            if found is None:
                self._topics.pop(place, None)
            else:
                self._topics[place] = found
        return set(due)

    async def _ask(self, place: Place) -> InForce | None:
        if not self._allowed():
            return InForce(allowed=False)
        try:
            return InForce(topic=await self._admin.topic_rate(place))
        except AdminRefused as error:
            if error.status == _NOT_ALLOWED:
                return InForce(allowed=False)
            # Its policy is gone with the topic: there is nothing to give back.
            if error.status == _NOT_FOUND:
                return InForce() if place in self.held else None
            self.unread = str(error)
            return None
        except AdminApiError as error:
            self.unread = str(error)
            _log.info("rate not read", topic=place.topic, side=place.side, error=str(error))
            return None

    async def _read_namespaces(self, names: Collection[str]) -> None:
        self._namespaces = await self._reader.read(names)
        self._arounds.clear()
        self._free.clear()

    def _allowed(self) -> bool:
        values = self._config.adoptable()
        keys = ("topicLevelPoliciesEnabled", "systemTopicEnabled")
        return all(values.get(key, "true").strip().lower() == "true" for key in keys)

    def _in_force(self, place: Place) -> InForce:
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

    async def carry_out(self, plan: EnforcerPlan, epoch: int) -> Written:
        """Store what will be held, write, then forget what was given back. StoreError, LeadershipLost: whoever leads
        next goes on from what is stored."""
        if plan.changes or plan.held != self.held:
            await self._book.store(epoch, plan.held)
        self.held = dict(plan.held)
        written = Written()
        await bounded([partial(self._write, change, written) for change in plan.changes], limit=PARALLEL)
        given = {change.place for change in written.done} & set(plan.forget)
        if given:
            self.held = {place: held for place, held in self.held.items() if place not in given}
            await self._book.store(epoch, self.held)
        return written

    async def _write(self, change: Change, written: Written) -> None:
        try:
            await self._admin.set_topic_rate(change.place, change.rate)
        except (AdminApiError, LeadershipLost, Forbidden) as error:
            # Perhaps it took effect: read again before anything else is made of it.
            self._topics.pop(change.place, None)
            written.failed.append((change, str(error)))
            _log.warning("rate not written", topic=change.place.topic, side=change.place.side, error=str(error))
            return
        self._topics[change.place] = InForce(topic=change.rate)
        written.done.append(change)


def _concerned(shares: Shares) -> Iterable[Place]:
    """The places whose side is limited."""
    for row, (_, topic) in enumerate(shares.keys):
        finite = [value < float("inf") for value in shares.share[row].tolist()]
        for side, columns in ((PUBLISH, finite[:2]), (DISPATCH, finite[2:])):
            if any(columns):
                yield Place(topic=topic, side=side)


def _whole(text: str) -> int:
    try:
        return value if (value := int(text)) > 0 else -1
    except ValueError:
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


def _name(place: Place) -> tuple[str, str]:
    return place.topic, place.side
