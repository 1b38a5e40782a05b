"""Enforcer `native`: sets Pulsar's ResourceGroups as quota groups declare, and reports Pulsar's defects in them.

Reads and writes each get a part of a cycle's time (`BoundedCalls`). Calls that did not start within their time come
first in the next cycle. These writes and the writes of topic rates have one common budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminApiError, Forbidden, LeadershipLost
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.ports.commands import Permit, before_any_term
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.quotas.enforcing.bounded_calls import BoundedCalls
from bundlekeel.quotas.enforcing.namespaces import NamespaceReader
from bundlekeel.quotas.enforcing.owned_limits import OwnedLimits
from bundlekeel.quotas.ports import QuotaAdmin
from bundlekeel.quotas.published.usage_listener import TRANSPORT_KEY, Json, uncounted
from bundlekeel.quotas.rate_commands import QuotaCommands
from bundlekeel.quotas.report import MOST_CHANGES
from bundlekeel.quotas.rules.groups import KINDS, Membership
from bundlekeel.quotas.rules.resource_group_plan import (
    Defect,
    GroupBrokers,
    NativePlan,
    OwnedResourceGroup,
    ResourceGroup,
    ResourceGroupWrite,
    defects,
    plan_native,
    serving_after,
)
from bundlekeel.quotas.rules.usage import UsageTable

_log = structlog.get_logger(__name__)

# Parts of a cycle's time (0 to 1) for reading ResourceGroups, reading namespaces, and writes.
_GROUPS_PART, _NAMESPACES_PART, _WRITES_PART = 0.15, 0.3, 0.3
# A journal record lists at most this many changes in its sentence, and a cycle at most this many separate problems.
_MOST_LISTED: Final = 5


@dataclass(slots=True)
class NativeWriteResult:
    """Results of the writes that have ended since the last cycle, including late writes of earlier plans.

    `started`: number of this plan's writes that were started. `left`: reason codes of this plan's writes that were
    not started, or have not ended.
    """

    done: list[ResourceGroupWrite] = field(default_factory=list)
    failed: list[tuple[ResourceGroupWrite, str]] = field(default_factory=list)
    started: int = 0
    left: list[Code] = field(default_factory=list)


class ResourceGroupKeeper:
    """Reads and writes ResourceGroups, and which namespaces are attached to them.

    `kept`: ResourceGroups that Bundlekeel manages, with their earlier state. `problems`: read errors of the last plan.
    """

    def __init__(
        self,
        admin: QuotaAdmin,
        commands: QuotaCommands,
        config: BrokerConfig,
        book: OwnedLimits,
        reader: NamespaceReader,
    ) -> None:
        self._admin = admin
        self._commands = commands
        self._permit: Permit = before_any_term
        self._config = config
        self._book = book
        self._reader = reader
        self.kept: dict[str, OwnedResourceGroup] = {}
        self.problems: tuple[str, ...] = ()
        self._serving: dict[str, GroupBrokers] = {}
        # Number of the last plan, and of the plan in which each name was last read and last written.
        self._turn = 0
        self._read_turns: dict[str, int] = {}
        self._write_turns: dict[str, int] = {}
        # Responses, errors and finished writes since the last plan.
        self._responses: dict[str, ResourceGroup | None] = {}
        self._unread: dict[str, str] = {}
        self._written = NativeWriteResult()
        self._reads: BoundedCalls[str] = BoundedCalls()
        self._writes: BoundedCalls[str] = BoundedCalls()

    def begin(self, groups: Mapping[str, OwnedResourceGroup], permit: Permit) -> None:
        """Reset the state, because this sidecar became the leader. `groups`: ResourceGroups that earlier leaders set.

        `permit`: checks before each request that this sidecar still leads and can write.
        """
        self.kept = dict(groups)
        self._permit = permit
        self._serving = {name: item.serving for name, item in groups.items()}
        self._read_turns.clear()
        self._responses.clear()
        self._unread.clear()
        self._write_turns.clear()

    async def stop(self) -> None:
        """Cancel the reads and writes in progress."""
        await asyncio.gather(self._reads.stop(), self._writes.stop())

    # --- planning ---

    async def plan(self, membership: Membership, seconds: float | None = None) -> NativePlan:
        """Read the current state, and return the writes that make ResourceGroups as the quota groups declare.

        With an empty membership, these writes restore all ResourceGroups. `seconds`: length of a cycle, of which reads
        get a part; None: read everything, without a time limit.
        """
        self._turn += 1
        # Skip objects with a write in progress, because their state is unknown until it has ended.
        hanging = set(self._writes.under_way)
        former = {item: before for owned in self.kept.values() for item, before in owned.attached.items()}
        names = {group.name for group in membership.groups} | set(self.kept) | set(former.values()) - {""}
        spaces = set(membership.group_of) | set(former)
        groups, unread = await self._groups(names, seconds)
        policies = await self._reader.read(spaces, None if seconds is None else _NAMESPACES_PART * seconds)
        unread += [f"{name}: {self._reader.errors[name]}" for name in sorted(self._unknown(spaces - set(policies)))]
        self.problems = tuple(f"resource group or namespace not read: {why}" for why in _first(unread))
        attached = {name: rates.resource_group for name, rates in policies.items() if name not in hanging}
        groups = {name: group for name, group in groups.items() if name not in hanging}
        return plan_native(membership, groups, attached, self.kept, self._reader.absent - hanging)

    def _unknown(self, namespaces: Collection[str]) -> set[str]:
        """Return those of these namespaces that exist but could not be read."""
        return {name for name in namespaces if name in self._reader.errors and name not in self._reader.absent}

    async def _groups(
        self, names: Collection[str], seconds: float | None
    ) -> tuple[dict[str, ResourceGroup | None], list[str]]:
        """Read ResourceGroups. Returns the groups (None: the group does not exist), and the errors of failed reads."""
        self._read_turns = {name: turn for name, turn in self._read_turns.items() if name in names}
        due = sorted(set(names) - set(self._reads.under_way), key=lambda name: (self._read_turns.get(name, -1), name))
        part = None if seconds is None else _GROUPS_PART * seconds
        count = await self._reads.run({name: partial(self._ask, name) for name in due}, part)
        self._read_turns |= dict.fromkeys(due[:count], self._turn)
        groups, self._responses = self._responses, {}
        unread, self._unread = self._unread, {}
        why = [f"{name}: {unread[name]}" for name in sorted(unread) if name in names and name not in groups]
        return {name: group for name, group in groups.items() if name in names}, why

    async def _ask(self, name: str) -> None:
        """Read one ResourceGroup and store the response. A late response is used in the next cycle."""
        try:
            self._responses[name] = await self._admin.resource_group(name)
        except AdminApiError as error:
            self._unread[name] = str(error)
            _log.info("resource group could not be read, the next cycle tries again", group=name, error=str(error))

    # --- writing ---

    async def carry_out(self, plan: NativePlan, epoch: int, *, most: int, seconds: float) -> NativeWriteResult:
        """Record the ResourceGroups' state before Bundlekeel, execute the writes, drop the record of restored groups.

        `most`: maximum number of writes. `seconds`: length of a cycle, of which writes get a part. Failed writes, and
        writes that depend on them, wait for the next plan. Raises StoreError or LeadershipLost if the record cannot be
        stored.
        """
        await self._store(plan.kept, epoch)
        written, fine = await self.write(plan, most, seconds)
        concerned = {put.leaves for put in plan.moves if put not in fine}
        concerned |= {put.name for put in plan.ends if put not in fine}
        restored = set(plan.done) - concerned
        if restored:
            self._serving = {name: item for name, item in self._serving.items() if name not in restored}
            await self._store({name: owned for name, owned in self.kept.items() if name not in restored}, epoch)
        return written

    async def write(
        self, plan: NativePlan, most: int | None = None, seconds: float | None = None
    ) -> tuple[NativeWriteResult, set[ResourceGroupWrite]]:
        """Execute writes like `carry_out`, but store no record. Also returns the writes of this plan that succeeded.

        `most`, `seconds`: see `carry_out`; None: no limit.
        """
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + _WRITES_PART * seconds
        selected = plan.chosen(len(plan.puts) if most is None else most, self._write_turns)
        fine: set[ResourceGroupWrite] = set()
        started: set[ResourceGroupWrite] = set()
        for stage in (plan.sets, plan.moves, plan.ends):
            waiting = _waiting(plan, fine)
            ready = [put for put in stage if put in selected and put not in waiting]
            jobs = {put.what: partial(self._write, put, fine, self._permit) for put in ready}
            count = await self._writes.run(jobs, None if until is None else max(0.0, until - loop.time()))
            started.update(ready[:count])
        written, self._written = self._written, NativeWriteResult()
        written.started = len(started)
        written.left = [Code.BUDGET_OF_RATES] * (len(plan.puts) - len(selected))
        late = {put for put in selected if put not in started or put.what in self._writes.under_way}
        written.left += [Code.RATE_NOT_REACHED] * len(late - _waiting(plan, fine))
        turns = {put.what: self._write_turns[put.what] for put in plan.puts if put.what in self._write_turns}
        self._write_turns = turns | {put.what: self._turn for put in started}
        return written, fine

    async def _write(self, put: ResourceGroupWrite, fine: set[ResourceGroupWrite], permit: Permit) -> None:
        try:
            if put.namespace:
                await self._commands.attach(put.namespace, put.name, permit=permit)
            else:
                await self._commands.set_resource_group(put.name, put.group, permit=permit)
        except (AdminApiError, LeadershipLost, Forbidden) as error:
            self._written.failed.append((put, str(error)))
            _log.warning(
                "resource group could not be written, a later cycle tries again",
                group=put.name,
                namespace=put.namespace,
                error=str(error),
            )
        else:
            self._written.done.append(put)
            fine.add(put)
        finally:
            # A failed write may have taken effect.
            if put.namespace:
                self._reader.forget(put.namespace)

    async def _store(self, groups: Mapping[str, OwnedResourceGroup], epoch: int) -> None:
        """Record the ResourceGroups' state before Bundlekeel, with the brokers that serve their topics now."""
        current = {name: replace(item, serving=self._serving.get(name, item.serving)) for name, item in groups.items()}
        if current != self.kept:
            await self._book.store_native(epoch, current)
        self.kept = current

    # --- reporting ---

    def defects(
        self,
        membership: Membership,
        table: UsageTable,
        endpoints: Mapping[str, BrokerEndpoint],
        reported: Mapping[str, Sequence[Json]],
    ) -> list[Defect]:
        """Return the known defects of Pulsar's ResourceGroups that affect quota groups now.

        For example, until they restart, brokers count the last usage report of a stopped broker, if it is above 0.
        `reported`: see `UsageListener.reported`.
        """
        names = {group.name for group in membership.groups} | set(self.kept)
        self._serving = {name: item for name, item in self._serving.items() if name in names}
        exchanged = all((self._config.values(broker) or {}).get(TRANSPORT_KEY, "") for broker in endpoints)
        result: list[Defect] = []
        for row, group in enumerate(membership.groups):
            usage = table.by_broker(row)
            serving = [name for name, rates in zip(table.brokers, usage, strict=True) if rates.any()]
            departed = self._departed(group.name, serving, endpoints) - uncounted(reported.get(group.name, ()))
            result += defects(group, usage, table.brokers, departed, exchanged=exchanged)
        return result

    def _departed(self, group: str, serving: Sequence[str], endpoints: Mapping[str, BrokerEndpoint]) -> set[str]:
        """Return the stopped brokers whose last usage report on a group is still counted by other brokers."""
        starts = {name: item.start_timestamp for name, item in endpoints.items()}
        brokers = self._serving[group] = serving_after(self._serving.get(group, GroupBrokers()), serving, starts)
        return set(brokers.gone)


def _waiting(plan: NativePlan, fine: Collection[ResourceGroupWrite]) -> set[ResourceGroupWrite]:
    """Return the writes that must wait for another write: their ResourceGroup does not exist yet, or is still in use.

    `fine`: writes that succeeded.
    """
    missing = {put.name for put in plan.sets if put.before is None and put not in fine}
    used = {put.leaves for put in plan.moves if put not in fine}
    return {put for put in plan.moves if put.name in missing} | {put for put in plan.ends if put.name in used}


def native_record(written: NativeWriteResult) -> Json:
    """Return the journal record of writes of ResourceGroups."""
    done, failed = written.done, written.failed
    changes = "; ".join(_first([write_text(put) for put in done]))
    sentence = f"{len(done)} changes of resource groups written, {len(failed)} failed"
    return {
        "what": "resource_groups",
        "code": "ResourceGroupsWritten",
        "changes": [put_row(put) for put in done[:MOST_CHANGES]],
        "errors": [put_row(put) | {"error": why} for put, why in failed[:MOST_CHANGES]],
        "sentence": f"{sentence}: {changes}" if changes else sentence,
    }


def put_row(put: ResourceGroupWrite) -> Json:
    """Return a write as JSON for the journal. None as a value: there is no ResourceGroup, or no limit."""
    if put.namespace:
        return {"namespace": put.namespace, "before": put.leaves or None, "group": put.name or None}
    return {"group": put.name, "before": _limits(put.before), "limits": _limits(put.group)}


def write_text(put: ResourceGroupWrite) -> str:
    """Return one write of a ResourceGroup as a part of a sentence for operators."""
    if put.namespace:
        way = f"{put.leaves or 'none'} → {put.name or 'none'}"
        return f"{put.namespace}: ResourceGroup {way}"
    if put.group is None:
        return f"ResourceGroup {put.name}: removed"
    limits = [f"{kind} {value}" for kind, value in (_limits(put.group) or {}).items() if value is not None]
    return f"ResourceGroup {put.name}: {', '.join(limits) or 'no limits'}"


def add_planned(rows: Sequence[Json], plan: NativePlan) -> None:
    """Add the planned writes, as text, to their groups' rows in the report, at most `MOST_CHANGES` per row."""
    texts: dict[str, list[str]] = {}
    for put in plan.puts:
        for name in {put.name, put.leaves} - {""}:
            texts.setdefault(name, []).append(write_text(put))
    for row in rows:
        row["planned"] = _first(texts.get(row["name"], ()), MOST_CHANGES)


def _first(texts: Sequence[str], most: int = _MOST_LISTED) -> list[str]:
    more = len(texts) - most
    return [*texts[:most], *([f"and {more} more"] if more > 0 else [])]


def _limits(group: ResourceGroup | None) -> Json | None:
    if group is None:
        return None
    return {kind: value if value >= 0 else None for kind, value in zip(KINDS, group, strict=True)}
