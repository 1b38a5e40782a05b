"""Giving back, at a person's word, what quotas set: for `handback`, which works without a running sidecar.

What is stored of it stays: the leader, if there is one, gives back as well and finds everything as it was.
"""

from __future__ import annotations

from bundlekeel.core.errors import AdminApiError, StoreError
from bundlekeel.core.quotas.groups import Membership
from bundlekeel.daemon.brokerconfig import BrokerConfig
from bundlekeel.daemon.quota_held import HeldBook
from bundlekeel.daemon.quota_namespaces import NamespaceReader
from bundlekeel.daemon.quota_native import NativeKeeper, put_said
from bundlekeel.daemon.quota_rates import RateKeeper
from bundlekeel.ports import Clock, Coordination
from bundlekeel.ports.quotas import QuotaAdmin

_ALL = 2**31


async def give_quotas_back(
    admin: QuotaAdmin, config: BrokerConfig, coordination: Coordination, clock: Clock
) -> list[str]:
    """What was given back and what could not be, a line each; empty when nothing was held. Never raises for what
    brokers or the store refuse."""
    book = HeldBook(coordination)
    try:
        held, kept = await book.load()
    except StoreError as error:
        return [f"what quotas set could not be read: {error}"]
    if not held and not kept:
        return []
    reader = NamespaceReader(admin, config, clock)
    rates, native = RateKeeper(admin, config, book, reader), NativeKeeper(admin, config, book, reader)
    rates.begin(held)
    native.begin(kept)
    plan, puts = await rates.plan_back(_ALL), await native.plan(Membership())
    said = []
    for change in plan.changes:
        try:
            await admin.set_topic_rate(change.place, change.rate)
        except AdminApiError as error:
            said.append(f"the {change.place.side} rate of {change.place.topic} could not be given back: {error}")
    given, _ = await native.write(puts)
    count = len(plan.changes) - len(said) + len(given.done)
    said += [f"{put_said(put)} could not be given back: {why}" for put, why in given.failed]
    said += native.problems
    return [f"{count} rates and resource groups of quotas given back", *said]
