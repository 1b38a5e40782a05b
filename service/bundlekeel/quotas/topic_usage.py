"""Queries the throughput of the topics in quota groups from the brokers that serve them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from bundlekeel.model.errors import AdminApiError, StoreError
from bundlekeel.model.names import namespace_of
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.ports import Clock, Metadata, RawClusterView
from bundlekeel.pulsar.work import bounded
from bundlekeel.quotas.ports import QuotaAdmin
from bundlekeel.quotas.rules.groups import Membership, QuotaGroup, resolve
from bundlekeel.quotas.rules.usage import TopicRates

_log = structlog.get_logger(__name__)

# Seconds between two reads of all namespaces. A new namespace with load joins its group earlier.
_NAMES_SECONDS: Final = 30.0
# Seconds between two reads of a topic's number of partitions.
_PARTITIONS_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAnswers:
    """Responses of the brokers with the rates of their topics.

    `queried`: the queried brokers. `unresponsive`: brokers that did not respond, with the reason.
    """

    measured: tuple[TopicRates, ...]
    queried: tuple[str, ...]
    unresponsive: Mapping[str, str]


class UsageSurvey:
    """Queries the brokers that own bundles of quota groups, and all brokers every few cycles.

    All brokers are needed, because a load report can be minutes old and omit bundles that a broker has loaded since.
    """

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
        """Return the group of each namespace now. Raises StoreError if tenants or namespaces cannot be read."""
        if self._clock.boot() - self._names_boot > _NAMES_SECONDS:
            self._names = tuple(await self._metadata.tenants()), tuple(await self._metadata.namespaces())
            self._names_boot = self._clock.boot()
        tenants, namespaces = self._names
        loaded = snapshot.bundles.namespaces if snapshot is not None else ()
        inputs = groups, tenants, frozenset([*namespaces, *loaded])
        # Compute it only if the input has changed, because it takes long with 100,000 namespaces.
        if self._resolved is None or self._resolved[0] != inputs:
            self._resolved = inputs, resolve(*inputs)
        return self._resolved[1]

    def names_changed(self) -> None:
        """Make the next call of `membership` read tenants and namespaces again."""
        self._names_boot = float("-inf")

    async def survey(
        self,
        membership: Membership,
        picture: RawClusterView,
        snapshot: Snapshot | None,
        arriving: Iterable[tuple[str, str]],
        serving: Collection[str] = (),
    ) -> UsageAnswers:
        """Return the usage of every limited topic.

        `arriving`: bundles in transit, with their target broker. `serving`: brokers that reported topics of groups.
        They are queried even after their last bundle has left. Otherwise its topics would count twice, by the old
        values.
        """
        members = membership.group_of
        self._turn += 1
        if snapshot is None or self._turn % self._every == 1 or self._every == 1:
            brokers = set(picture.endpoints)
        else:
            brokers = {item.broker_id for item in picture.excluded} | _owners(snapshot, members)
            brokers |= {target for bundle, target in arriving if namespace_of(bundle) in members}
            brokers = (brokers | set(serving)) & set(picture.endpoints)
        names = sorted(brokers)
        answers = await asyncio.gather(*(self._ask(broker, members) for broker in names))
        rates = [answer for answer in answers if not isinstance(answer, str)]
        unresponsive = {name: answer for name, answer in zip(names, answers, strict=True) if isinstance(answer, str)}
        return UsageAnswers(measured=tuple(rates), queried=tuple(names), unresponsive=unresponsive)

    async def _ask(self, broker: str, members: Collection[str]) -> TopicRates | str:
        try:
            return await self._admin.topic_rates(broker, members)
        except AdminApiError as error:
            _log.info("broker did not return topic rates, using its last ones", broker=broker, error=str(error))
            return str(error)

    async def partitions(self, measured: Mapping[str, int]) -> dict[str, int]:
        """Return the number of partitions of each topic.

        `measured`: number of partitions that brokers reported, by topic. The result is at least this number, and
        at least the number last read from the metadata store.
        """
        now = self._clock.boot()
        self._partitions = {base: entry for base, entry in self._partitions.items() if base in measured}
        due = [base for base in measured if now - self._partitions.get(base, (0, -math.inf))[1] >= _PARTITIONS_SECONDS]
        await bounded([partial(self._count, base, now) for base in due])
        return {base: max(count, self._partitions.get(base, (0, 0.0))[0]) for base, count in measured.items()}

    async def _count(self, base: str, now: float) -> None:
        try:
            self._partitions[base] = await self._metadata.partitions(base), now
        except StoreError as error:
            _log.info("partition count could not be read, using the last one", topic=base, error=str(error))


def _owners(snapshot: Snapshot, members: Collection[str]) -> set[str]:
    table = snapshot.bundles
    limited = [name in members for name in table.namespaces]
    rows = {int(owner) for owner, space in zip(table.owner, table.namespace, strict=True) if limited[int(space)]}
    return {snapshot.brokers.ids[row] for row in rows}
