"""What members of groups pass, asked of the brokers that serve them, and what brokers publish of resource groups."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import structlog

from bundlekeel.core.model.errors import AdminApiError, StoreError
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.model.numbers import setting
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.quotas.groups import KINDS, Membership, QuotaGroup, resolve
from bundlekeel.core.quotas.native import PassedUsage
from bundlekeel.core.quotas.usage import TopicRates, UsageTable
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.ports import BrokerEndpoint, Clock, Metadata, RawClusterView
from bundlekeel.ports.quotas import QuotaAdmin, ReceivedUsage, UsageFeed
from bundlekeel.work import bounded

_log = structlog.get_logger(__name__)

# New namespaces join at once when they carry something; the others are looked up this often.
_NAMES_SECONDS: Final = 30.0
# How often it is asked whether a topic has more partitions by now.
_PARTITIONS_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAnswers:
    """What brokers answered. `asked`: the brokers asked; `unresponsive`: those of them that did not answer, with the
    reason.
    """

    measured: tuple[TopicRates, ...]
    asked: tuple[str, ...]
    unresponsive: Mapping[str, str]


class UsageSurvey:
    """Asks the brokers that own limited bundles, and every few cycles the others as well: a load report may be minutes
    old, and what came to a broker since is not in it."""

    def __init__(self, admin: QuotaAdmin, metadata: Metadata, clock: Clock, every: int) -> None:
        self._admin = admin
        self._metadata = metadata
        self._clock = clock
        self._every = every
        self._turn = 0
        self._names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._names_boot = float("-inf")
        self._partitions: dict[str, tuple[int, float]] = {}
        self._resolved: tuple[tuple[tuple[QuotaGroup, ...], tuple[str, ...], frozenset[str]], Membership] | None = None

    async def membership(self, groups: tuple[QuotaGroup, ...], snapshot: Snapshot | None) -> Membership:
        """Who belongs to which group now. StoreError when tenants and namespaces cannot be read."""
        if self._clock.boot() - self._names_boot > _NAMES_SECONDS:
            self._names = tuple(await self._metadata.tenants()), tuple(await self._metadata.namespaces())
            self._names_boot = self._clock.boot()
        tenants, namespaces = self._names
        loaded = snapshot.bundles.namespaces if snapshot is not None else ()
        asked = groups, tenants, frozenset([*namespaces, *loaded])
        # Resolving 100,000 namespaces takes a while.
        if self._resolved is None or self._resolved[0] != asked:
            self._resolved = asked, resolve(*asked)
        return self._resolved[1]

    def names_changed(self) -> None:
        """Look tenants and namespaces up again with the next membership."""
        self._names_boot = float("-inf")

    async def survey(
        self,
        membership: Membership,
        picture: RawClusterView,
        snapshot: Snapshot | None,
        arriving: Iterable[tuple[str, str]],
        serving: Collection[str] = (),
    ) -> UsageAnswers:
        """Usage of every limited topic. `arriving`: bundles on their way, with their target. `serving`: brokers that
        told of limited topics: when their last bundle has left they have to say so, or its topics count twice."""
        members = membership.group_of
        self._turn += 1
        if snapshot is None or self._turn % self._every == 1 or self._every == 1:
            asked = set(picture.endpoints)
        else:
            asked = {item.broker_id for item in picture.excluded} | _owners(snapshot, members)
            asked |= {target for bundle, target in arriving if namespace_of(bundle) in members}
            asked = (asked | set(serving)) & set(picture.endpoints)
        names = sorted(asked)
        answers = await asyncio.gather(*(self._ask(broker, members) for broker in names))
        told = [answer for answer in answers if not isinstance(answer, str)]
        unresponsive = {name: answer for name, answer in zip(names, answers, strict=True) if isinstance(answer, str)}
        return UsageAnswers(measured=tuple(told), asked=tuple(names), unresponsive=unresponsive)

    async def _ask(self, broker: str, members: Collection[str]) -> TopicRates | str:
        try:
            return await self._admin.topic_rates(broker, members)
        except AdminApiError as error:
            _log.info("usage of topics not reported", broker=broker, error=str(error))
            return str(error)

    async def partitions(self, seen: Mapping[str, int]) -> dict[str, int]:
        """How many partitions each of these topics has. What cannot be read keeps what was known, or counts as many as
        are seen."""
        now = self._clock.boot()
        self._partitions = {base: known for base, known in self._partitions.items() if base in seen}
        due = [base for base in seen if now - self._partitions.get(base, (0, -math.inf))[1] >= _PARTITIONS_SECONDS]
        await bounded([partial(self._count, base, now) for base in due])
        return {base: max(count, self._partitions.get(base, (0, 0.0))[0]) for base, count in seen.items()}

    async def _count(self, base: str, now: float) -> None:
        try:
            self._partitions[base] = await self._metadata.partitions(base), now
        except StoreError as error:
            _log.info("partitions not reported", topic=base, error=str(error))


def _owners(snapshot: Snapshot, members: Collection[str]) -> set[str]:
    table = snapshot.bundles
    limited = [name in members for name in table.namespaces]
    rows = {int(owner) for owner, space in zip(table.owner, table.namespace, strict=True) if limited[int(space)]}
    return {snapshot.brokers.ids[row] for row in rows}


# What brokers publish about resource groups, where they run Pulsar's own transport: read and shown, nothing more.
# The sums that ResourceGroups are cut by are made of just these figures, so beside the measured usage they tell
# whether a broker is counted for what it passes.


Json = dict[str, Any]
TRANSPORT_KEY: Final = "resourceUsageTransportClassName"
# The only transport there is in Pulsar; the messages of another one are unknown.
BY_TOPIC: Final = "org.apache.pulsar.broker.resourcegroup.ResourceUsageTopicTransportManager"
_PERIOD_KEY: Final = "resourceUsageTransportPublishIntervalInSecs"
_PERIOD_DEFAULT: Final = 60.0
# Rows of all groups together: they are part of the report, which has to fit into the shared state.
_ALL_ROWS: Final = 2000


@dataclass(slots=True)
class UsageListener:
    """Reads while there are groups and brokers exchange their usage. `service_urls` replaces the addresses
    that brokers registered; of a broker's own two `prefer_tls` takes the encrypted one."""

    feed: UsageFeed
    config: BrokerConfig
    clock: Clock
    service_urls: tuple[str, ...] = ()
    prefer_tls: bool = False
    # Brokers by service URL, those that are gone too.
    _ids: dict[str, str] = field(default_factory=dict)
    _listens: bool = False

    async def follow(self, groups: bool, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Listen or not, by what there is now (`groups`: whether there are any). Never waits for a broker."""
        known = [values for broker in endpoints if (values := self.config.values(broker)) is not None]
        if not groups or (known and not any(values.get(TRANSPORT_KEY) == BY_TOPIC for values in known)):
            await self.stop()
        elif known:
            self._ids |= {_url(item.service_url): broker for broker, item in endpoints.items() if item.service_url}
            registered = {item.client_url(tls=self.prefer_tls) for item in endpoints.values()} - {""}
            self._listens = True
            await self.feed.start(self.service_urls or tuple(sorted(registered)))

    async def stop(self) -> None:
        """Listen no more and forget."""
        if self._listens:
            self._listens = False
            self._ids.clear()
            await self.feed.close()

    def view(self) -> Json:
        """Whether anything is received: the fields of `answers.quotas.TransportView`."""
        tables = self.feed.tables()
        return {"state": tables.state, "detail": tables.detail, "since_ms": tables.since_ms, "fault": tables.fault}

    def reported(
        self, membership: Membership, table: UsageTable, endpoints: Mapping[str, BrokerEndpoint]
    ) -> dict[str, list[Json]]:
        """By group, a row for each broker that said something of it or serves it; those that said most first."""
        if not self._listens:
            return {}
        received = self.feed.tables().latest
        most = max(1, _ALL_ROWS // max(1, len(membership.groups)))
        found: dict[str, list[Json]] = {}
        for number, group in enumerate(membership.groups):
            rates = zip(table.brokers, table.by_broker(number).tolist(), strict=True)
            measured = {broker: row for broker, row in rates if any(row)}
            said = {self._broker(url): groups[group.name] for url, groups in received.items() if group.name in groups}
            rows = [
                {"registered": broker in endpoints, **self._row(broker, said.get(broker), measured.get(broker))}
                for broker in {**said, **measured}
            ]
            rows.sort(key=lambda row: (-(row["reported"]["publish_messages"] or 0.0), row["broker"]))
            found[group.name] = rows[:most]
        return found

    def _row(self, broker: str, received: ReceivedUsage | None, measured: Sequence[float] | None) -> Json:
        said = received or ReceivedUsage()
        now, period = self.clock.wall_ms(), self._period(broker)
        rates = (*_per_second(said.publish, period), *_per_second(said.dispatch, period))
        return {
            "broker": broker,
            "reported": dict(zip(KINDS, rates, strict=True)),
            "measured": None if measured is None else dict(zip(KINDS, map(_rounded, measured), strict=True)),
            "publish_age_seconds": _age(said.publish_ms, now),
            "dispatch_age_seconds": _age(said.dispatch_ms, now),
        }

    def _broker(self, url: str) -> str:
        return self._ids.get(_url(url), url)

    def _period(self, broker: str) -> float:
        """Seconds of a period of this broker; one that is gone had that of the others, as far as is known."""
        values = self.config.values(broker) or self.config.adoptable()
        return setting(values, _PERIOD_KEY, _PERIOD_DEFAULT, lowest=1)


def uncounted(rows: Sequence[Json]) -> set[str]:
    """Brokers whose last word was that they publish nothing: gone or not, no part of the limit is theirs."""
    return {
        row["broker"] for row in rows if row["reported"]["publish_messages"] == row["reported"]["publish_bytes"] == 0
    }


def _url(url: str) -> str:
    return url.rstrip("/")


def _per_second(passed: PassedUsage | None, period: float) -> tuple[float | None, float | None]:
    return (None, None) if passed is None else (_rounded(passed.messages / period), _rounded(passed.size / period))


def _rounded(value: float) -> float:
    return round(value, 3)


def _age(at_ms: int, now_ms: int) -> float | None:
    return max(0, now_ms - at_ms) / 1000 if at_ms else None
