"""Enforcer `native` in a whole sidecar over fakes: ResourceGroups made, attached, watched and given back."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.model.errors import LeadershipLost
from bundlekeel.quotas.enforcing.owned_limits import NATIVE
from bundlekeel.quotas.rules.groups import QuotaGroup, QuotaLimits
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup
from tests.support.quota_world import QuotaCluster, QuotaSidecar, leading
from tests.support.world import BROKERS

WHO = {"reason": "r", "by": "ann"}
WANTED = ResourceGroup(200)
ATTACHED = {"acme/events": "acme", "acme/orders": "acme"}
TRANSPORT = "org.apache.pulsar.broker.resourcegroup.ResourceUsageTopicTransportManager"


async def native(cluster: QuotaCluster | None = None, **more: Any) -> QuotaSidecar:
    """A leader with that enforcer."""
    return await leading(cluster, enforcer="native", **more)


def exchanging() -> QuotaCluster:
    """Brokers that tell each other their usage."""
    cluster = QuotaCluster()
    for broker in BROKERS:
        cluster.model.static[broker]["resourceUsageTransportClassName"] = TRANSPORT
    return cluster


async def test_recommended_is_only_shown() -> None:
    sidecar = await native(mode="recommend")
    await sidecar.turn()
    quotas = sidecar.quota_cluster.model.quotas
    assert (quotas.groups, quotas.attached) == ({}, {})
    assert (await sidecar.quotas.view()).writes.planned == 3


async def test_made_attached_and_given_back() -> None:
    """A namespace that was attached elsewhere is so again, the others are not; the group is gone."""
    cluster = exchanging()
    quotas = cluster.model.quotas
    quotas.groups["old"] = ResourceGroup(9)
    quotas.attached["acme/events"] = "old"
    sidecar = await native(cluster)
    await sidecar.turn()
    assert quotas.groups == {"old": ResourceGroup(9), "acme": WANTED} and quotas.attached == ATTACHED
    assert sidecar.told("resource_groups")[0]["sentence"].startswith("3 changes")
    assert not quotas.rates
    await sidecar.turn(2)
    assert len(sidecar.told("resource_groups")) == 1
    quotas.groups["acme"] = ResourceGroup(1)
    await sidecar.turn()
    assert quotas.groups["acme"] == WANTED
    group = QuotaGroup(name="acme", limits=QuotaLimits(publish_messages=50), members=("t:acme",))
    await sidecar.quotas.put(group, **WHO)
    await sidecar.turn()
    assert quotas.groups["acme"] == ResourceGroup(50)
    await sidecar.quotas.remove("acme", **WHO)
    await sidecar.turn()
    assert (quotas.groups, quotas.attached) == ({"old": ResourceGroup(9)}, {"acme/events": "old"})
    assert await sidecar.coordination.read(NATIVE) is None


@pytest.mark.parametrize("written", [0, 1, 2])
async def test_killed_between_two_writes(written: int) -> None:
    """The next leader completes it, and gives all of it back."""
    cluster = exchanging()
    first = await native(cluster)
    for method, count in (("set_resource_group", min(written, 1)), ("attach", max(0, written - 1))):
        first.quota_admin.fail(method, *[None] * count, *[LeadershipLost("killed")] * 3)
    await first.turn()
    quotas = cluster.model.quotas
    assert (len(quotas.groups), len(quotas.attached)) == (min(written, 1), max(0, written - 1))
    await first.leadership.stop()
    second = await native(cluster, name="b")
    await second.turn()
    assert quotas.groups == {"acme": WANTED} and quotas.attached == ATTACHED
    await second.quotas.remove("acme", **WHO)
    await second.turn()
    assert (quotas.groups, quotas.attached) == ({}, {})


async def test_from_one_enforcer_to_the_other() -> None:
    cluster = exchanging()
    first = await native(cluster)
    await first.turn()
    await first.leadership.stop()
    second = await leading(cluster, name="b")
    await second.turn(3)
    assert (cluster.model.quotas.groups, cluster.model.quotas.attached) == ({}, {})
    assert cluster.model.quotas.rates
    await second.leadership.stop()
    third = await native(cluster, name="c")
    await third.turn()
    assert not cluster.model.quotas.rates and cluster.model.quotas.groups == {"acme": WANTED}


async def test_defects_are_named() -> None:
    """No exchange of usage; dispatch that is not enforced; a dead broker that counts until others restart."""
    sidecar = await native()
    await sidecar.turn()
    (row,) = (await sidecar.quotas.view()).groups
    assert [item.code for item in row.defects] == ["UsageNotExchanged"]
    cluster = exchanging()
    sidecar = await native(cluster, acme={"members": ("t:acme",), "dispatch_messages": 100})
    await sidecar.turn()
    cluster.die(BROKERS[1], BROKERS[2])
    await sidecar.turn()
    (row,) = (await sidecar.quotas.view()).groups
    assert [item.code for item in row.defects] == ["DispatchNotEnforced", "DeadBrokerCounted"]
    assert row.defects[1].detail == BROKERS[1]
    why = await sidecar.quotas.why("acme")
    assert BROKERS[1] in why.sentences and [item.code for item in why.codes][1] == "DeadBrokerCounted"
