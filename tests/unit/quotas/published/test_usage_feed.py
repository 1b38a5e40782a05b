"""Usage that brokers exchange per group, over fakes: received by the leader, shown by every replica."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from bundlekeel.model.errors import AdminUnreachable
from bundlekeel.quotas.published.usage_listener import (
    _PERIOD_DEFAULT,
    _PERIOD_KEY,
    BY_TOPIC,
    TRANSPORT_KEY,
    UsageListener,
)
from bundlekeel.quotas.published.usage_messages import PassedUsage
from bundlekeel.quotas.rules.groups import KINDS
from tests.support.builders import report
from tests.support.memory_admin import Fault
from tests.support.memory_usage import usage_message
from tests.support.quota_world import QuotaCluster, QuotaSidecar, leading
from tests.support.world import BROKERS
from tests.unit.pulsar.sources.test_s03_unusable_settings import WRONG

FIRST, SECOND, THIRD = (f"pulsar://{name.partition(':')[0]}:6650" for name in BROKERS)
WHO = {"reason": "r", "by": "ann"}
PERIOD = 20
NOTHING = PassedUsage(0, 0)


def exchanging(transport: str = BY_TOPIC) -> QuotaCluster:
    """Brokers that tell each other their usage, in periods of 20 s."""
    cluster = QuotaCluster()
    for broker in BROKERS:
        cluster.model.static[broker][TRANSPORT_KEY] = transport
        cluster.model.static[broker]["resourceUsageTransportPublishIntervalInSecs"] = str(PERIOD)
    return cluster


async def listening(cluster: QuotaCluster | None = None, **more: Any) -> QuotaSidecar:
    """A leader that listens."""
    sidecar = await leading(cluster or exchanging(), **{"enforcer": "native", **more})
    await sidecar.turn()
    assert (await sidecar.quotas.view()).transport.state == "ok"
    return sidecar


async def read_usage(sidecar: QuotaSidecar) -> dict[str, Any]:
    """The rows of the group acme, by broker."""
    return {row.broker: row for row in (await sidecar.quotas.group("acme")).reported}


async def test_told_beside_measured() -> None:
    sidecar = await listening()
    sidecar.usage_feed.say(
        usage_message(FIRST, acme=(PassedUsage(1000, 50_000), PassedUsage(2000, 90_000)), other=(NOTHING, None))
    )
    sidecar.usage_feed.say(usage_message(SECOND, acme=(None, PassedUsage(40, 400))))
    sidecar.cluster.clock.offset += 7
    await sidecar.turn()
    rows = await read_usage(sidecar)
    assert list(rows) == [BROKERS[0], BROKERS[1], BROKERS[2]], "those that told most first"
    assert list(asdict(rows[BROKERS[0]].reported).values()) == [50.0, 2500.0, 100.0, 4500.0]
    assert list(asdict(rows[BROKERS[1]].reported).values()) == [None, None, 2.0, 20.0]
    assert set(asdict(rows[BROKERS[2]].reported).values()) == {None}
    assert rows[BROKERS[0]].publish_age_seconds >= 7 and rows[BROKERS[1]].publish_age_seconds is None
    assert all(row.registered for row in rows.values())
    usage = (await sidecar.quotas.group("acme")).usage
    for kind in KINDS:
        assert sum(getattr(row.measured, kind) for row in rows.values()) == pytest.approx(getattr(usage, kind))
    follower = await leading(sidecar.quota_cluster, name="b", enforcer="native")
    await follower.turn()
    assert await read_usage(follower) == rows and follower.usage_feed.urls == []


@pytest.mark.parametrize("transport", ["", "org.example.Other"])
async def test_without_the_transport_nothing_is_read(transport: str) -> None:
    """And nothing is wrong."""
    sidecar = await leading(exchanging(transport), enforcer="native")
    await sidecar.turn(2)
    view = await sidecar.quotas.view()
    assert (sidecar.usage_feed.urls, view.transport.state, view.problems) == ([], "off", [])
    assert view.groups[0].reported == []


@pytest.mark.parametrize("enforcer", ["off", "policies", "native"])
async def test_while_there_are_groups(enforcer: str) -> None:
    """Whoever enforces them; with the last group it ends."""
    sidecar = await listening(enforcer=enforcer)
    assert sidecar.usage_feed.urls[0] == (FIRST, SECOND, THIRD)
    await sidecar.quotas.remove("acme", **WHO)
    await sidecar.turn()
    assert sidecar.usage_feed.tables().status.state == "off"
    assert (await sidecar.quotas.view()).transport.state == "off"


async def test_only_the_leader_listens() -> None:
    sidecar = await listening()
    await sidecar.leadership.stop()
    await sidecar.quotas.quotas.step()
    assert sidecar.usage_feed.tables().status.state == "off"


async def test_a_broken_connection_changes_nothing_else() -> None:
    sidecar = await listening()
    sidecar.usage_feed.say(usage_message(FIRST, acme=(PassedUsage(1000, 50_000), None)))
    sidecar.usage_feed.become("down", "not allowed")
    sidecar.usage_feed.spoil("broker is missing")
    await sidecar.turn()
    view = await sidecar.quotas.view()
    assert (view.transport.state, view.transport.detail) == ("down", "not allowed")
    assert view.transport.fault == "broker is missing" and view.problems == []
    assert (await read_usage(sidecar))[BROKERS[0]].reported.publish_messages == 50


async def test_brokers_that_do_not_answer_for_a_moment() -> None:
    sidecar = await listening()
    sidecar.usage_feed.say(usage_message(FIRST, acme=(PassedUsage(1000, 50_000), None)))
    sidecar.admin.fail("runtime_configuration", *[Fault(error=AdminUnreachable("silent"))] * 20)
    for name, url in zip(BROKERS, (FIRST, SECOND, THIRD), strict=True):
        sidecar.cluster.source.put(report(name, {}, start_timestamp=9), service_url=url)
    await sidecar.turn()
    assert sidecar.config.values(BROKERS[0]) is None
    assert FIRST in sidecar.usage_feed.tables().latest


async def test_a_dead_broker_that_told_nothing_does_not_count() -> None:
    for last, defects in ((NOTHING, []), (PassedUsage(9, 9), ["DeadBrokerCounted"]), (None, ["DeadBrokerCounted"])):
        cluster = exchanging()
        sidecar = await listening(cluster)
        sidecar.usage_feed.say(usage_message(SECOND, acme=(last, None)))
        cluster.die(BROKERS[1], BROKERS[2])
        await sidecar.turn()
        (row,) = (await sidecar.quotas.view()).groups
        assert [item.code for item in row.defects] == defects
        assert (await read_usage(sidecar))[BROKERS[1]].registered is False


async def test_an_unknown_broker_is_shown_by_its_address() -> None:
    sidecar = await listening()
    sidecar.usage_feed.say(usage_message("pulsar://b9:6650", acme=(PassedUsage(20, 20), None)))
    await sidecar.turn()
    row = (await read_usage(sidecar))["pulsar://b9:6650"]
    assert (row.registered, row.measured, row.reported.publish_messages) == (False, None, 1)


@WRONG
def test_s03_an_unusable_period_counts_as_the_stock_value(wrong: str) -> None:
    unused: Any = None
    config: Any = SimpleNamespace(values=lambda _broker: {_PERIOD_KEY: wrong}, adoptable=dict)
    assert UsageListener(feed=unused, config=config, clock=unused)._period("b:1") == _PERIOD_DEFAULT
