"""Enforcer `native` where namespaces refuse, are deleted, cannot be read, answer late, or are very many."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminApiError, AdminRefused, AdminTimeout
from bundlekeel.ports.commands import Permit
from bundlekeel.quotas.enforcing.owned_limits import NATIVE
from bundlekeel.quotas.enforcing.restore import give_quotas_back
from bundlekeel.quotas.ports import NamespaceRates
from bundlekeel.quotas.responses import WritesView
from bundlekeel.quotas.rules.groups import QuotaGroup, QuotaLimits
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup
from tests.support.builders import report
from tests.support.quota_model import MemoryQuotaAdmin
from tests.support.quota_world import QuotaCluster, QuotaSidecar
from tests.support.virtual_time import LoopClock, in_virtual_time
from tests.support.world import BROKERS, TestClock

WHO = {"reason": "r", "by": "ann"}
CYCLE = 10.0
EVENTS, ORDERS = "acme/events", "acme/orders"
REFUSED = AdminRefused("409 concurrent modification", status=409)
DELETED = AdminRefused("404 namespace does not exist", status=404)
TRANSPORT = "org.apache.pulsar.broker.resourcegroup.ResourceUsageTopicTransportManager"


class FaultyAdmin(MemoryQuotaAdmin):
    """Fake admin with faults. Attaching takes `seconds`; calls of `hanging` end after the caller gave up; `refused` and
    `unread` contain the reasons why a namespace cannot be attached or read.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.refused: dict[str, AdminApiError] = {}
        self.unread: dict[str, AdminApiError] = {}
        self.hanging: frozenset[str] = frozenset()
        self.seconds = 0.0
        self.group_seconds = 0.0

    async def resource_group(self, name: str) -> ResourceGroup | None:
        await asyncio.sleep(self.group_seconds)
        return await super().resource_group(name)

    async def namespace_rates(self, namespace: str, cluster: str) -> NamespaceRates:
        if namespace in self.unread:
            raise self.unread[namespace]
        return await super().namespace_rates(namespace, cluster)

    async def attach(self, namespace: str, name: str, *, permit: Permit) -> None:
        self.calls.append(("begun", namespace, name))
        await asyncio.sleep(4 * CYCLE if namespace in self.hanging else self.seconds)
        if namespace in self.refused:
            raise self.refused[namespace]
        await super().attach(namespace, name, permit=permit)

    def begun(self) -> list[str]:
        """Namespaces whose attachment was tried."""
        return [call[1] for call in self.calls if call[0] == "begun"]


class NativeSidecar(QuotaSidecar):
    """With this enforcer."""

    settings: ClassVar = {"store.session_timeout": 15.0, "leadership.heartbeat": 5.0}
    quota_admin: FaultyAdmin

    def reach_quotas(self) -> FaultyAdmin:
        return FaultyAdmin(self.quota_cluster.model)

    def unreadable(self, namespace: str, error: AdminApiError) -> None:
        self.quota_admin.unread[namespace] = error
        self.quotas.quotas.namespaces.clear()

    async def cycles(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            began = loop.time()
            await self.turn()
            assert loop.time() - began < CYCLE
            await asyncio.sleep(began + CYCLE - loop.time())


def exchanging(namespaces: int = 0, clock: TestClock | None = None) -> QuotaCluster:
    cluster = QuotaCluster(clock)
    for broker in BROKERS:
        cluster.model.static[broker]["resourceUsageTransportClassName"] = TRANSPORT
    for number in range(namespaces):
        cluster.put(f"acme/more{number:03}", 0, BROKERS[number % 3], 1.0)
    cluster.publish()
    return cluster


async def leader(cluster: QuotaCluster | None = None, **more: Any) -> NativeSidecar:
    """One that leads."""
    sidecar = NativeSidecar(cluster or exchanging(), enforcer="native", **more)
    await sidecar.lead()
    return sidecar


async def led(cluster: QuotaCluster, **more: Any) -> tuple[NativeSidecar, asyncio.Task[None]]:
    """A leader in virtual time, and what keeps it one."""
    sidecar = await leader(cluster, **more)

    async def keep() -> None:
        while True:
            await asyncio.sleep(2.0)
            await sidecar.leadership.turn()

    return sidecar, asyncio.create_task(keep())


async def test_a_refused_namespace_keeps_no_other_one() -> None:
    sidecar = await leader()
    quotas = sidecar.quota_cluster.model.quotas
    sidecar.quota_admin.refused[EVENTS] = REFUSED
    await sidecar.turn()
    assert quotas.attached == {ORDERS: "acme"}
    view = await sidecar.quotas.view()
    assert view.writes == WritesView(written=2, planned=3, failed=1, held=1)
    assert view.problems == [f"{EVENTS}: 409 concurrent modification"]
    assert view.left == {"RateNotWritten": 1}
    assert 'outcome="written"} 2.0' in sidecar.metric("quota_writes_total")
    assert 'outcome="failed"} 1.0' in sidecar.metric("quota_writes_total")
    (record,) = sidecar.told("resource_groups")
    limits = {"publish_messages": 200, "publish_bytes": None, "dispatch_messages": None, "dispatch_bytes": None}
    attached = {"namespace": ORDERS, "before": None, "group": "acme"}
    assert record["changes"] == [{"group": "acme", "before": None, "limits": limits}, attached]
    assert record["errors"] == [attached | {"namespace": EVENTS, "error": "409 concurrent modification"}]
    assert record["sentence"] == (
        "2 changes of resource groups written, 1 failed: ResourceGroup acme: publish_messages 200; "
        "acme/orders: ResourceGroup none → acme"
    )
    sidecar.quota_admin.refused.clear()
    await sidecar.turn()
    assert quotas.attached == {EVENTS: "acme", ORDERS: "acme"}


async def test_one_that_refuses_to_go_keeps_the_group() -> None:
    sidecar = await leader()
    quotas = sidecar.quota_cluster.model.quotas
    await sidecar.turn()
    sidecar.quota_admin.refused[EVENTS] = REFUSED
    await sidecar.quotas.remove("acme", **WHO)
    await sidecar.turn(2)
    assert quotas.attached == {EVENTS: "acme"} and set(quotas.groups) == {"acme"}
    assert sum(call[0] == "set_resource_group" for call in sidecar.quota_admin.calls) == 1
    sidecar.quota_admin.refused.clear()
    await sidecar.turn()
    assert not quotas.attached and not quotas.groups and await sidecar.coordination.read(NATIVE) is None


async def test_recommended_is_told() -> None:
    sidecar = await leader(mode="recommend")
    await sidecar.turn()
    (row,) = (await sidecar.quotas.view()).groups
    assert row.planned == [
        "ResourceGroup acme: publish_messages 200",
        "acme/events: ResourceGroup none → acme",
        "acme/orders: ResourceGroup none → acme",
    ]
    why = await sidecar.quotas.why("acme")
    assert "was, or is to be, written: acme/events: ResourceGroup none → acme" in why.sentences
    assert not sidecar.told("resource_groups")


async def problems(sidecar: Any) -> list[str]:
    return [text for text in (await sidecar.quotas.view()).problems if "declared in the settings" not in text]


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_deleted_namespace(by_hand: bool) -> None:
    sidecar = await leader()
    quotas = sidecar.quota_cluster.model.quotas
    await sidecar.turn()
    del quotas.attached[EVENTS]
    sidecar.unreadable(EVENTS, DELETED)
    if by_hand:
        person = FaultyAdmin(sidecar.quota_cluster.model)
        person.unread[EVENTS] = DELETED
        lines = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        assert lines == ["2 rates and resource groups of quotas given back"]
    else:
        await sidecar.quotas.remove("acme", **WHO)
        await sidecar.turn()
        assert not await problems(sidecar) and not sidecar.quotas.quotas.native.kept
    assert not quotas.attached and not quotas.groups


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_namespace_that_cannot_be_read(by_hand: bool) -> None:
    """It is named, and keeps the group; the other one gets back what it had."""
    sidecar = await leader()
    quotas = sidecar.quota_cluster.model.quotas
    await sidecar.turn()
    sidecar.unreadable(EVENTS, AdminTimeout("no answer"))
    unread = "resource group or namespace not read: acme/events: no answer"
    if by_hand:
        person = FaultyAdmin(sidecar.quota_cluster.model)
        person.unread[EVENTS] = AdminTimeout("no answer")
        lines = await give_quotas_back(person, person, sidecar.config, sidecar.coordination, sidecar.clock)
        left = "resource group acme, or a namespace of it, could not be read: not given back"
        assert lines == ["1 rates and resource groups of quotas given back", unread, left]
    else:
        await sidecar.quotas.remove("acme", **WHO)
        await sidecar.turn(2)
        assert await problems(sidecar) == [unread]
        assert set(sidecar.quotas.quotas.native.kept) == {"acme"}
    assert quotas.attached == {EVENTS: "acme"} and set(quotas.groups) == {"acme"}
    sidecar.quota_admin.unread.clear()
    await sidecar.quotas.remove("acme", **WHO) if by_hand else None
    await sidecar.turn()
    assert not quotas.attached and not quotas.groups and not await problems(sidecar)


async def test_renamed() -> None:
    """Namespaces are never without a limit in between, and are back where they were in the end."""
    cluster = exchanging()
    quotas = cluster.model.quotas
    quotas.groups["old"] = ResourceGroup(9)
    quotas.attached[EVENTS] = "old"
    sidecar = await leader(cluster, old_settings={"members": ("t:nobody",), "publish_messages": 1})
    await sidecar.quotas.put(
        QuotaGroup(name="alpha", limits=QuotaLimits(publish_messages=100), members=("t:acme",)), **WHO
    )
    await sidecar.turn()
    await sidecar.quotas.remove("alpha", **WHO)
    await sidecar.quotas.put(
        QuotaGroup(name="beta", limits=QuotaLimits(publish_messages=100), members=("t:acme",)), **WHO
    )
    await sidecar.turn()
    assert quotas.attached == {EVENTS: "beta", ORDERS: "beta"} and "alpha" not in quotas.groups
    assert not any(call[0] == "attach" and call[2] == "" for call in sidecar.quota_admin.calls)
    await sidecar.quotas.remove("beta", **WHO)
    await sidecar.turn()
    assert quotas.attached == {EVENTS: "old"} and set(quotas.groups) == {"old", "old_settings"}


@in_virtual_time
async def test_the_budget_of_writes() -> None:
    sidecar, lease = await led(exchanging(30, LoopClock()), writes_per_minute=48)
    attached = sidecar.quota_cluster.model.quotas.attached
    sidecar.quota_admin.refused = {f"acme/more{number:03}": REFUSED for number in range(9)}
    await sidecar.cycles(1)
    view = await sidecar.quotas.view()
    assert len(sidecar.quota_admin.begun()) == 7 and view.writes.planned == 33
    assert view.left == {Code.BUDGET_OF_RATES.value: 25, Code.RATE_NOT_WRITTEN.value: 6}
    assert "25 still to come" in view.sentence
    await sidecar.cycles(4)
    assert len(attached) == 23 and len(sidecar.quota_admin.begun()) == 39
    lease.cancel()


@in_virtual_time
async def test_cycles_end_in_time() -> None:
    sidecar, lease = await led(exchanging(98, LoopClock()), writes_per_minute=6000)
    attached = sidecar.quota_cluster.model.quotas.attached
    sidecar.quota_admin.seconds = 1.0
    sidecar.quota_admin.hanging = frozenset({EVENTS, ORDERS})
    await sidecar.cycles(1)
    assert 0 < len(attached) < 98
    assert (await sidecar.quotas.view()).left == {Code.RATE_NOT_REACHED.value: 100 - len(attached)}
    await sidecar.cycles(2)
    assert len(attached) == 98 and len(sidecar.quota_admin.begun()) == 100
    await sidecar.cycles(5)
    assert len(attached) == 100 and len(sidecar.quota_admin.begun()) == 100
    # Tasks done outside the cycles are counted, too.
    written = [change for record in sidecar.told("resource_groups") for change in record["changes"]]
    assert len(written) == 101
    lease.cancel()


@in_virtual_time
async def test_groups_that_are_read_slowly() -> None:
    sidecar, lease = await led(exchanging(clock=LoopClock()))
    sidecar.quota_admin.group_seconds = 0.9 * CYCLE
    await sidecar.cycles(1)
    assert not sidecar.quota_cluster.model.quotas.groups
    await sidecar.cycles(1)
    assert set(sidecar.quota_cluster.model.quotas.groups) == {"acme"}
    lease.cancel()


async def test_a_dead_broker_is_known_to_the_next_leader() -> None:
    """Until all brokers that heard it last have restarted."""
    cluster = exchanging()
    for number, broker in enumerate(BROKERS):
        cluster.source.put(report(broker, {}, last_update=cluster.clock.wall_ms(), start_timestamp=1 + number))
    first = await leader(cluster)
    await first.turn(2)
    await first.leadership.stop()
    cluster.die(BROKERS[1], BROKERS[2])
    for broker, start in ((BROKERS[0], 1), (BROKERS[2], 3)):
        cluster.source.put(report(broker, {}, last_update=cluster.clock.wall_ms(), start_timestamp=start))
    second = await leader(cluster, name="b")

    async def counted() -> list[str]:
        await second.turn()
        (row,) = (await second.quotas.view()).groups
        return [item.detail for item in row.defects if item.code == Code.DEAD_BROKER_COUNTED]

    assert await counted() == [BROKERS[1]]
    cluster.source.put(report(BROKERS[0], {}, last_update=cluster.clock.wall_ms(), start_timestamp=100))
    assert await counted() == [BROKERS[1]]
    cluster.source.put(report(BROKERS[2], {}, last_update=cluster.clock.wall_ms(), start_timestamp=101))
    assert await counted() == []
