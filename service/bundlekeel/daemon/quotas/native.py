"""Enforcer `native`: keeps Pulsar's ResourceGroups as declared, and says what is wrong with them.

Reads and writes each have a part of a cycle's time (`BoundedCalls`), writes the same budget as rates have; what was not
begun comes first in the next cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from bundlekeel.bounded_calls import BoundedCalls
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import AdminApiError, Forbidden, LeadershipLost
from bundlekeel.core.model.load import BrokerEndpoint
from bundlekeel.core.quotas.groups import KINDS, Membership
from bundlekeel.core.quotas.native import (
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
from bundlekeel.core.quotas.usage import UsageTable
from bundlekeel.daemon.quotas.namespaces import NamespaceReader
from bundlekeel.daemon.quotas.report import MOST_CHANGES
from bundlekeel.daemon.quotas.usage_listener import TRANSPORT_KEY, Json, uncounted
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.daemon.state.owned_limits import OwnedLimits
from bundlekeel.ports.commands import Permit, QuotaCommands, before_any_term
from bundlekeel.ports.quotas import QuotaAdmin

_log = structlog.get_logger(__name__)

# Parts of a cycle: for ResourceGroups, for namespaces, for writes.
_GROUPS_PART, _NAMESPACES_PART, _WRITES_PART = 0.15, 0.3, 0.3
# Changes named in a record's sentence, and problems listed one by one.
_MOST_SAID: Final = 5


@dataclass(slots=True)
class NativeWriteResult:
    """What became of a plan's puts, and of those that the last cycle did not wait for. `begun`: how many of this plan's
    were; `left`: why others were not, or are still under way."""

    done: list[ResourceGroupWrite] = field(default_factory=list)
    failed: list[tuple[ResourceGroupWrite, str]] = field(default_factory=list)
    begun: int = 0
    left: list[Code] = field(default_factory=list)


class NativeKeeper:
    """ResourceGroups and attachments, as read and written here. `kept`: by group, what was there before; `problems`:
    what could not be read for the last plan."""

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
        # By name, when each was last asked for and written, by the number of the plan.
        self._turn = 0
        self._asked: dict[str, int] = {}
        self._tried: dict[str, int] = {}
        # Answered since the last plan.
        self._found: dict[str, ResourceGroup | None] = {}
        self._unread: dict[str, str] = {}
        self._written = NativeWriteResult()
        self._reads: BoundedCalls[str] = BoundedCalls()
        self._writes: BoundedCalls[str] = BoundedCalls()

    def begin(self, kept: Mapping[str, OwnedResourceGroup], permit: Permit) -> None:
        """A term begins, with its permit: what the last leader kept."""
        self.kept = dict(kept)
        self._permit = permit
        self._serving = {name: item.serving for name, item in kept.items()}
        self._asked.clear()
        self._found.clear()
        self._unread.clear()
        self._tried.clear()

    async def stop(self) -> None:
        """End what is under way."""
        await asyncio.gather(self._reads.stop(), self._writes.stop())

    # --- planning ---

    async def plan(self, membership: Membership, seconds: float | None = None) -> NativePlan:
        """What to write so that everything is as declared; with an empty membership everything is given back.
        `seconds`: how long a cycle lasts (None: all of it is read, however long)."""
        self._turn += 1
        # What is being written beside the cycles is not known until that has ended.
        hanging = set(self._writes.under_way)
        former = {item: was for kept in self.kept.values() for item, was in kept.attached.items()}
        names = {group.name for group in membership.groups} | set(self.kept) | set(former.values()) - {""}
        spaces = set(membership.group_of) | set(former)
        groups, unread = await self._groups(names, seconds)
        known = await self._reader.read(spaces, None if seconds is None else _NAMESPACES_PART * seconds)
        unread += [f"{name}: {self._reader.errors[name]}" for name in sorted(self._unknown(spaces - set(known)))]
        self.problems = tuple(f"resource group or namespace not read: {why}" for why in _first(unread))
        attached = {name: rates.resource_group for name, rates in known.items() if name not in hanging}
        groups = {name: group for name, group in groups.items() if name not in hanging}
        return plan_native(membership, groups, attached, self.kept, self._reader.absent - hanging)

    def _unknown(self, namespaces: Collection[str]) -> set[str]:
        """Those that could not be read, though they are there."""
        return {name for name in namespaces if name in self._reader.errors and name not in self._reader.absent}

    async def _groups(
        self, names: Collection[str], seconds: float | None
    ) -> tuple[dict[str, ResourceGroup | None], list[str]]:
        """Those that could be read, and why others could not."""
        self._asked = {name: turn for name, turn in self._asked.items() if name in names}
        due = sorted(set(names) - set(self._reads.under_way), key=lambda name: (self._asked.get(name, -1), name))
        part = None if seconds is None else _GROUPS_PART * seconds
        begun = await self._reads.run({name: partial(self._ask, name) for name in due}, part)
        self._asked |= dict.fromkeys(due[:begun], self._turn)
        found, self._found = self._found, {}
        unread, self._unread = self._unread, {}
        why = [f"{name}: {unread[name]}" for name in sorted(unread) if name in names and name not in found]
        return {name: group for name, group in found.items() if name in names}, why

    async def _ask(self, name: str) -> None:
        """Who answers after his cycle's time counts in the next one."""
        try:
            self._found[name] = await self._admin.resource_group(name)
        except AdminApiError as error:
            self._unread[name] = str(error)
            _log.info("resource group not read", group=name, error=str(error))

    # --- writing ---

    async def carry_out(self, plan: NativePlan, epoch: int, *, most: int, seconds: float) -> NativeWriteResult:
        """Store what is kept, write, forget what was given back. So many writes at most; `seconds`: how long a cycle
        lasts. What fails, and what needs that, waits for the next plan; the rest goes on. StoreError, LeadershipLost.
        """
        await self._store(plan.kept, epoch)
        written, fine = await self.write(plan, most, seconds)
        concerned = {put.leaves for put in plan.moves if put not in fine}
        concerned |= {put.name for put in plan.ends if put not in fine}
        given = set(plan.done) - concerned
        if given:
            self._serving = {name: item for name, item in self._serving.items() if name not in given}
            await self._store({name: kept for name, kept in self.kept.items() if name not in given}, epoch)
        return written

    async def write(
        self, plan: NativePlan, most: int | None = None, seconds: float | None = None
    ) -> tuple[NativeWriteResult, set[ResourceGroupWrite]]:
        """Write without storing anything; what became of it, and what of this plan is done. None: no limit."""
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + _WRITES_PART * seconds
        chosen = plan.chosen(len(plan.puts) if most is None else most, self._tried)
        fine: set[ResourceGroupWrite] = set()
        begun: set[ResourceGroupWrite] = set()
        for stage in (plan.sets, plan.moves, plan.ends):
            waiting = _waiting(plan, fine)
            ready = [put for put in stage if put in chosen and put not in waiting]
            jobs = {put.what: partial(self._write, put, fine, self._permit) for put in ready}
            count = await self._writes.run(jobs, None if until is None else max(0.0, until - loop.time()))
            begun.update(ready[:count])
        written, self._written = self._written, NativeWriteResult()
        written.begun = len(begun)
        written.left = [Code.BUDGET_OF_RATES] * (len(plan.puts) - len(chosen))
        late = {put for put in chosen if put not in begun or put.what in self._writes.under_way}
        written.left += [Code.RATE_NOT_REACHED] * len(late - _waiting(plan, fine))
        turns = {put.what: self._tried[put.what] for put in plan.puts if put.what in self._tried}
        self._tried = turns | {put.what: self._turn for put in begun}
        return written, fine

    async def _write(self, put: ResourceGroupWrite, fine: set[ResourceGroupWrite], permit: Permit) -> None:
        try:
            if put.namespace:
                await self._commands.attach(put.namespace, put.name, permit=permit)
            else:
                await self._commands.set_resource_group(put.name, put.group, permit=permit)
        except (AdminApiError, LeadershipLost, Forbidden) as error:
            self._written.failed.append((put, str(error)))
            _log.warning("resource group not written", group=put.name, namespace=put.namespace, error=str(error))
        else:
            self._written.done.append(put)
            fine.add(put)
        finally:
            # Perhaps it took effect, even if it failed: read again.
            if put.namespace:
                self._reader.forget(put.namespace)

    async def _store(self, kept: Mapping[str, OwnedResourceGroup], epoch: int) -> None:
        """Make this what is kept, with who serves the groups now."""
        wanted = {name: replace(item, serving=self._serving.get(name, item.serving)) for name, item in kept.items()}
        if wanted != self.kept:
            await self._book.store_native(epoch, wanted)
        self.kept = wanted

    # --- reporting ---

    def defects(
        self,
        membership: Membership,
        table: UsageTable,
        endpoints: Mapping[str, BrokerEndpoint],
        reported: Mapping[str, Sequence[Json]],
    ) -> list[Defect]:
        """What bites now. A broker that is gone counts until all that were there have restarted, unless its last word
        was that nothing passes. `reported`: see `UsageListener.reported`."""
        names = {group.name for group in membership.groups} | set(self.kept)
        self._serving = {name: item for name, item in self._serving.items() if name in names}
        exchanged = all((self._config.values(broker) or {}).get(TRANSPORT_KEY, "") for broker in endpoints)
        found: list[Defect] = []
        for row, group in enumerate(membership.groups):
            usage = table.by_broker(row)
            serving = [name for name, rates in zip(table.brokers, usage, strict=True) if rates.any()]
            gone = self._departed(group.name, serving, endpoints) - uncounted(reported.get(group.name, ()))
            found += defects(group, usage, table.brokers, gone, exchanged=exchanged)
        return found

    def _departed(self, group: str, serving: Sequence[str], endpoints: Mapping[str, BrokerEndpoint]) -> set[str]:
        """Brokers that are gone and still count. It is stored with the next plan."""
        starts = {name: item.start_timestamp for name, item in endpoints.items()}
        found = self._serving[group] = serving_after(self._serving.get(group, GroupBrokers()), serving, starts)
        return set(found.gone)


def _waiting(plan: NativePlan, fine: Collection[ResourceGroupWrite]) -> set[ResourceGroupWrite]:
    """What cannot be written yet: its ResourceGroup is not there, or is in use. `fine`: what is written."""
    missing = {put.name for put in plan.sets if put.before is None and put not in fine}
    used = {put.leaves for put in plan.moves if put not in fine}
    return {put for put in plan.moves if put.name in missing} | {put for put in plan.ends if put.name in used}


def native_record(written: NativeWriteResult) -> Json:
    """What was written, for the journal."""
    done, failed = written.done, written.failed
    said = "; ".join(_first([write_text(put) for put in done]))
    sentence = f"{len(done)} changes of resource groups written, {len(failed)} failed"
    return {
        "what": "resource_groups",
        "code": "ResourceGroupsWritten",
        "changes": [put_row(put) for put in done[:MOST_CHANGES]],
        "errors": [put_row(put) | {"error": why} for put, why in failed[:MOST_CHANGES]],
        "sentence": f"{sentence}: {said}" if said else sentence,
    }


def put_row(put: ResourceGroupWrite) -> Json:
    """One write, for the journal. A namespace's `before` and `group`, and a ResourceGroup's `before` and `limits`, are
    None for none."""
    if put.namespace:
        return {"namespace": put.namespace, "before": put.leaves or None, "group": put.name or None}
    return {"group": put.name, "before": _limits(put.before), "limits": _limits(put.group)}


def write_text(put: ResourceGroupWrite) -> str:
    """The same in words."""
    if put.namespace:
        way = f"{put.leaves or 'none'} → {put.name or 'none'}"
        return f"{put.namespace}: ResourceGroup {way}"
    if put.group is None:
        return f"ResourceGroup {put.name}: removed"
    limits = [f"{kind} {value}" for kind, value in (_limits(put.group) or {}).items() if value is not None]
    return f"ResourceGroup {put.name}: {', '.join(limits) or 'no limits'}"


def add_planned(rows: Sequence[Json], plan: NativePlan) -> None:
    """To each group's row what of it is to be written, in words: the first hundred."""
    said: dict[str, list[str]] = {}
    for put in plan.puts:
        for name in {put.name, put.leaves} - {""}:
            said.setdefault(name, []).append(write_text(put))
    for row in rows:
        row["planned"] = _first(said.get(row["name"], ()), MOST_CHANGES)


def _first(texts: Sequence[str], most: int = _MOST_SAID) -> list[str]:
    more = len(texts) - most
    return [*texts[:most], *([f"and {more} more"] if more > 0 else [])]


def _limits(group: ResourceGroup | None) -> Json | None:
    if group is None:
        return None
    return {kind: value if value >= 0 else None for kind, value in zip(KINDS, group, strict=True)}
