"""Restores the rates and ResourceGroups from before the quota groups, for `handback` without a running sidecar.

The record of set limits stays: a leader that still runs finds everything restored, and then deletes the record.
"""

from __future__ import annotations

from bundlekeel.leader.state.responses import EndedView
from bundlekeel.leader.state.takeover_record import SETS_RATES_AGAIN, TAKEOVER, TakeoverRecord
from bundlekeel.model.errors import AdminApiError, StaleWrite, StoreError
from bundlekeel.ports import Clock, Coordination
from bundlekeel.ports.commands import by_person
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig
from bundlekeel.quotas.enforcing.namespaces import NamespaceReader
from bundlekeel.quotas.enforcing.owned_limits import OwnedLimits
from bundlekeel.quotas.enforcing.rate_keeper import RateKeeper
from bundlekeel.quotas.enforcing.resource_group_keeper import ResourceGroupKeeper, write_text
from bundlekeel.quotas.ports import QuotaAdmin
from bundlekeel.quotas.rate_commands import QuotaCommands
from bundlekeel.quotas.rules.groups import Membership
from bundlekeel.quotas.rules.rate_plan import EnforcerPlan
from bundlekeel.quotas.rules.resource_group_plan import NativePlan

_ALL = 2**31
_WHAT = "rates and resource groups of quotas"
# Of the rates that could not be restored, list at most this many; count the others.
_MOST_NAMED = 20


async def quotas_owned(coordination: Coordination) -> list[str]:
    """Return a message with the number of rates and ResourceGroups to restore, or why it is unknown; empty: 0."""
    try:
        owned, groups = await OwnedLimits(coordination).load()
    except StoreError as error:
        return [_unknown(error)]
    count = len(owned) + len(groups)
    return [f"{count} {_WHAT} would be given back"] if count else []


async def put_quotas_aside(coordination: Coordination, clock: Clock, *, reason: str, by: str) -> list[str]:
    """Prevent a running leader from setting rates until the next takeover or `mode act`.

    To do so, stores the record of a takeover that has ended. Stores nothing if there is a takeover record.
    Returns messages for the operator. Raises StoreError if the record cannot be stored.
    """
    if await coordination.read(TAKEOVER) is not None:
        return []
    now = clock.wall_ms()
    # `by` of the takeover is empty, because there was no takeover.
    ended = EndedView(by=by, reason=reason, wall_ms=now, deadman=False)
    record = TakeoverRecord(by="", reason="", wall_ms=now, overrides={}, runtime={}, active=False, ended=ended)
    try:
        await coordination.write_shared(TAKEOVER, record.encode(), version=None)
    except StaleWrite:
        return ["another operator took over or handed back at the same time; check `bundlekeel status`"]
    return [f"quotas are suspended: no rates are written before the next {SETS_RATES_AGAIN}"]


async def give_quotas_back(
    admin: QuotaAdmin, commands: QuotaCommands, config: BrokerConfig, coordination: Coordination, clock: Clock
) -> list[str]:
    """Restore all rates and ResourceGroups that Bundlekeel set. Returns one line per result or problem; empty: nothing
    to restore.

    A request that brokers or the store reject adds a line, and raises no exception.
    """
    book = OwnedLimits(coordination)
    try:
        owned, resource_groups = await book.load()
    except StoreError as error:
        return [_unknown(error)]
    if not owned and not resource_groups:
        return []
    reader = NamespaceReader(admin, config, clock)
    rates, native = (
        RateKeeper(commands, config, book, reader),
        ResourceGroupKeeper(admin, commands, config, book, reader),
    )
    rates.begin(owned, by_person)
    native.begin(resource_groups, by_person)
    plan, groups = await rates.plan_back(_ALL), await native.plan(Membership())
    failures = []
    for change in plan.changes:
        try:
            await commands.set_topic_rate(change.place, change.rate, permit=by_person)
        except AdminApiError as error:
            failures.append(f"the {change.place.side} rate of {change.place.topic} could not be given back: {error}")
    groups_written, _ = await native.write(groups)
    count = len(plan.changes) - len(failures) + len(groups_written.done)
    failures += [f"{write_text(put)} could not be given back: {why}" for put, why in groups_written.failed]
    return [f"{count} {_WHAT} given back", *failures, *native.problems, *_unread(plan, groups, rates.unread)]


def _unread(plan: EnforcerPlan, groups: NativePlan, why: str) -> list[str]:
    """Return one line per rate or group that could not be restored because it could not be read."""
    planned = {change.place for change in plan.changes}
    places = sorted((place.topic, place.side) for place in plan.owned if place not in planned)
    lines = [f"the {side} rate of {topic} could not be read: not given back" for topic, side in places[:_MOST_NAMED]]
    if len(places) > _MOST_NAMED:
        lines.append(f"{len(places) - _MOST_NAMED} more rates could not be read: not given back")
    if places and why:
        lines.append(f"why a rate could not be read: {why}")
    left = sorted(set(groups.kept) - set(groups.done))
    return lines + [f"resource group {name}, or a namespace of it, could not be read: not given back" for name in left]


def _unknown(error: StoreError) -> str:
    return f"the record of the rates that quotas set could not be read: {error}"
