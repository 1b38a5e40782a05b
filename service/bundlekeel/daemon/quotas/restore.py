"""Restores what quotas set, on an operator's command: for `handback`, which works without a running sidecar.

What is stored of it stays: the leader, if there is one, gives back as well and finds everything as it was.
"""

from __future__ import annotations

from bundlekeel.core.model.errors import AdminApiError, StaleWrite, StoreError
from bundlekeel.core.quotas.enforce import EnforcerPlan
from bundlekeel.core.quotas.groups import Membership
from bundlekeel.core.quotas.native import NativePlan
from bundlekeel.daemon.quotas.namespaces import NamespaceReader
from bundlekeel.daemon.quotas.native import NativeKeeper, write_text
from bundlekeel.daemon.quotas.rates import RateKeeper
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.daemon.state.owned_limits import OwnedLimits
from bundlekeel.daemon.state.takeover_record import SETS_RATES_AGAIN, TAKEOVER, TakeoverEnd, TakeoverRecord
from bundlekeel.ports import Clock, Coordination
from bundlekeel.ports.commands import QuotaCommands, by_person
from bundlekeel.ports.quotas import QuotaAdmin

_ALL = 2**31
_WHAT = "rates and resource groups of quotas"
# This many of the rates that are left are listed one by one.
_MOST_NAMED = 20


async def quotas_owned(coordination: Coordination) -> list[str]:
    """How much would be given back, or why that is not known; empty when nothing is held."""
    try:
        owned, kept = await OwnedLimits(coordination).load()
    except StoreError as error:
        return [_unknown(error)]
    count = len(owned) + len(kept)
    return [f"{count} {_WHAT} would be given back"] if count else []


async def put_quotas_aside(coordination: Coordination, clock: Clock, *, reason: str, by: str) -> list[str]:
    """Let a running leader write no rates before the next takeover or `mode act`, as after the end of a takeover. Where
    there is or was one, its record says what holds, and stays. What is to be said of it. StoreError."""
    if await coordination.read(TAKEOVER) is not None:
        return []
    now = clock.wall_ms()
    # There was no takeover: `by` is empty.
    ended = TakeoverEnd(by=by, reason=reason, wall_ms=now)
    record = TakeoverRecord(by="", reason="", wall_ms=now, overrides={}, runtime={}, active=False, ended=ended)
    try:
        await coordination.write_shared(TAKEOVER, record.encode(), version=None)
    except StaleWrite:
        return ["somebody took over or handed back at the same moment; look at `bundlekeel status`"]
    return [f"quotas are suspended: no rates are written before the next {SETS_RATES_AGAIN}"]


async def give_quotas_back(
    admin: QuotaAdmin, commands: QuotaCommands, config: BrokerConfig, coordination: Coordination, clock: Clock
) -> list[str]:
    """What was given back and what could not be, a line each; empty when nothing was held. Never raises for what
    brokers or the store refuse."""
    book = OwnedLimits(coordination)
    try:
        owned, kept = await book.load()
    except StoreError as error:
        return [_unknown(error)]
    if not owned and not kept:
        return []
    reader = NamespaceReader(admin, config, clock)
    rates, native = RateKeeper(commands, config, book, reader), NativeKeeper(admin, commands, config, book, reader)
    rates.begin(owned, by_person)
    native.begin(kept, by_person)
    plan, groups = await rates.plan_back(_ALL), await native.plan(Membership())
    said = []
    for change in plan.changes:
        try:
            await commands.set_topic_rate(change.place, change.rate, permit=by_person)
        except AdminApiError as error:
            said.append(f"the {change.place.side} rate of {change.place.topic} could not be given back: {error}")
    given, _ = await native.write(groups)
    count = len(plan.changes) - len(said) + len(given.done)
    said += [f"{write_text(put)} could not be given back: {why}" for put, why in given.failed]
    return [f"{count} {_WHAT} given back", *said, *native.problems, *_unread(plan, groups, rates.unread)]


def _unread(plan: EnforcerPlan, groups: NativePlan, why: str) -> list[str]:
    """What is neither given back nor as it was: what is in force there is unknown."""
    begun = {change.place for change in plan.changes}
    places = sorted((place.topic, place.side) for place in plan.owned if place not in begun)
    said = [f"the {side} rate of {topic} could not be read: not given back" for topic, side in places[:_MOST_NAMED]]
    if len(places) > _MOST_NAMED:
        said.append(f"{len(places) - _MOST_NAMED} more rates could not be read: not given back")
    if places and why:
        said.append(f"why a rate could not be read: {why}")
    left = sorted(set(groups.kept) - set(groups.done))
    return said + [f"resource group {name}, or a namespace of it, could not be read: not given back" for name in left]


def _unknown(error: StoreError) -> str:
    return f"what quotas set could not be read: {error}"
