"""Enforcer `native`: keeps Pulsar's ResourceGroups as declared, and says what is wrong with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import structlog

from bundlekeel.core.errors import AdminApiError, Forbidden, LeadershipLost
from bundlekeel.core.load import BrokerEndpoint
from bundlekeel.core.quotas.groups import Membership
from bundlekeel.core.quotas.native import Defect, Kept, NativePlan, Put, ResourceGroup, defects, plan_native
from bundlekeel.core.quotas.usage import UsageTable
from bundlekeel.daemon.brokerconfig import BrokerConfig
from bundlekeel.daemon.quota_heard import TRANSPORT_KEY, Json, uncounted
from bundlekeel.daemon.quota_held import HeldBook
from bundlekeel.daemon.quota_namespaces import NamespaceReader
from bundlekeel.daemon.quota_pace import PARALLEL
from bundlekeel.ports.quotas import QuotaAdmin
from bundlekeel.work import bounded

_log = structlog.get_logger(__name__)


class NativeKeeper:
    """ResourceGroups and attachments, as read and written here. `kept`: by group, what was there before."""

    def __init__(self, admin: QuotaAdmin, config: BrokerConfig, book: HeldBook, reader: NamespaceReader) -> None:
        self._admin = admin
        self._config = config
        self._book = book
        self._reader = reader
        self.kept: dict[str, Kept] = {}
        self._served: dict[str, dict[str, int]] = {}
        self._gone: dict[str, set[str]] = {}

    def begin(self, kept: Mapping[str, Kept]) -> None:
        """A term begins: what the last leader kept."""
        self.kept = dict(kept)
        self._served.clear()
        self._gone.clear()

    async def plan(self, membership: Membership) -> NativePlan:
        """What to write so that everything is as declared; with an empty membership everything is given back."""
        names = {group.name for group in membership.groups} | set(self.kept)
        spaces = set(membership.group_of) | {item for kept in self.kept.values() for item in kept.attached}
        return plan_native(membership, await self._groups(names), await self._attached(spaces), self.kept)

    async def _groups(self, names: Collection[str]) -> dict[str, ResourceGroup | None]:
        found: dict[str, ResourceGroup | None] = {}

        async def ask(name: str) -> None:
            try:
                found[name] = await self._admin.resource_group(name)
            except AdminApiError as error:
                _log.info("resource group not read", group=name, error=str(error))

        await bounded([partial(ask, name) for name in sorted(names)], limit=PARALLEL)
        return found

    async def _attached(self, namespaces: Collection[str]) -> dict[str, str]:
        return {name: rates.resource_group for name, rates in (await self._reader.read(namespaces)).items()}

    async def carry_out(self, plan: NativePlan, epoch: int) -> list[str]:
        """Store what is kept, write in order, forget what was given back; returns what failed. After a failure the rest
        waits for the next plan. StoreError, LeadershipLost."""
        if plan.puts or plan.kept != self.kept:
            await self._book.store_native(epoch, plan.kept)
        self.kept = dict(plan.kept)
        for put in plan.puts:
            try:
                await self.write(put)
            except (AdminApiError, LeadershipLost, Forbidden) as error:
                what = f"{put.namespace or put.name}: {error}"
                _log.warning("resource group not written", group=put.name, namespace=put.namespace, error=str(error))
                return [what]
        if plan.done:
            self.kept = {name: kept for name, kept in self.kept.items() if name not in plan.done}
            await self._book.store_native(epoch, self.kept)
        return []

    async def write(self, put: Put) -> None:
        """One write. AdminApiError."""
        if put.namespace:
            self._reader.forget(put.namespace)
            await self._admin.attach(put.namespace, put.name)
        else:
            await self._admin.set_resource_group(put.name, put.group)

    def defects(
        self,
        membership: Membership,
        table: UsageTable,
        endpoints: Mapping[str, BrokerEndpoint],
        told: Mapping[str, Sequence[Json]],
    ) -> list[Defect]:
        """What bites now. A broker that is gone counts until another one has restarted, unless its last word was that
        nothing passes. `told`: what was heard, see `Hearing.told`."""
        exchanged = all((self._config.values(broker) or {}).get(TRANSPORT_KEY, "") for broker in endpoints)
        found: list[Defect] = []
        for row, group in enumerate(membership.groups):
            usage = table.by_broker(row)
            serving = [name for name, rates in zip(table.brokers, usage, strict=True) if rates.any()]
            gone = self._departed(group.name, serving, endpoints) - uncounted(told.get(group.name, ()))
            found += defects(group, usage, table.brokers, gone, exchanged=exchanged)
        return found

    def _departed(self, group: str, serving: Sequence[str], endpoints: Mapping[str, BrokerEndpoint]) -> set[str]:
        served, gone = self._served.setdefault(group, {}), self._gone.setdefault(group, set())
        restarted = any(
            name in served and served[name] != item.start_timestamp
            for name, item in endpoints.items()
            if name in served
        )
        if restarted:
            gone.clear()
        gone |= {name for name in served if name not in endpoints}
        gone -= set(endpoints)
        now = {name: endpoints[name].start_timestamp for name in serving if name in endpoints}
        self._served[group] = {name: start for name, start in served.items() if name in endpoints} | now
        return gone
