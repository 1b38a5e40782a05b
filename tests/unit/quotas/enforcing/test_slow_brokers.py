"""Quotas with brokers that respond slowly or not at all, in virtual time: a cycle ends and resumes where it stopped."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar, TypeVar

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminTimeout
from bundlekeel.ports.commands import Permit
from bundlekeel.pulsar.work import within
from bundlekeel.quotas.enforcing.bounded_calls import LEAST, PARALLEL
from bundlekeel.quotas.ports import NamespaceRates
from bundlekeel.quotas.rules.rate_plan import PUBLISH, PolicyKey, Rate
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.quota_model import MemoryQuotaAdmin
from tests.support.quota_world import QuotaCluster, QuotaSidecar
from tests.support.virtual_time import LoopClock, in_virtual_time
from tests.support.world import BROKERS

T = TypeVar("T")
LIMIT = 200.0
CYCLE = 10.0
# As long as the client of the admin API waits for a topic's policy.
GIVEN_UP = 90.0
HOT = "persistent://acme/orders/t0"
COUNTED = "topic_rate", "set_topic_rate"


class SlowAdmin(MemoryQuotaAdmin):
    """Calls about topics' policies take `seconds`; those of `hanging` topics are never answered in time."""

    seconds = 0.0
    namespace_seconds = 0.0
    hanging: frozenset[str] = frozenset()
    most = 0
    _now = 0

    async def topic_rate(self, place: PolicyKey, *, permit: Permit) -> Rate | None:
        await self._wait(place.topic)
        return await super().topic_rate(place, permit=permit)

    async def set_topic_rate(self, place: PolicyKey, rate: Rate | None, *, permit: Permit) -> None:
        await self._wait(place.topic)
        await super().set_topic_rate(place, rate, permit=permit)

    async def namespace_rates(self, namespace: str, cluster: str) -> NamespaceRates:
        await asyncio.sleep(self.namespace_seconds)
        return await super().namespace_rates(namespace, cluster)

    async def _wait(self, topic: str) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(GIVEN_UP if topic in self.hanging else self.seconds)
            if topic in self.hanging:
                raise AdminTimeout("no answer in time")
        finally:
            self._now -= 1


class SlowSidecar(QuotaSidecar):
    """Sidecar that keeps its lease and records when cycles of quotas start and end."""

    settings: ClassVar = {"store.session_timeout": 15.0, "leadership.heartbeat": 5.0}
    quota_admin: SlowAdmin

    def reach_quotas(self) -> SlowAdmin:
        return SlowAdmin(self.quota_cluster.model)

    async def cycles(self, count: int) -> list[float]:
        took = []
        for _ in range(count):
            began = asyncio.get_running_loop().time()
            await self.turn()
            took.append(asyncio.get_running_loop().time() - began)
            await asyncio.sleep(max(0.0, CYCLE - took[-1]))
        return took

    def answered(self) -> Counter[str]:
        """Calls about topics' policies that came through."""
        return Counter(call[0] for call in self.quota_admin.calls if call[0] in COUNTED)


def with_new_topics(count: int) -> QuotaCluster:
    cluster = QuotaCluster(LoopClock())
    for number in range(count):
        name = f"persistent://acme/more/new{number:03}"
        bundle = f"acme/more/0x{number << 20:08x}_0x{(number + 1) << 20:08x}"
        cluster.shares[bundle] = 0.001
        cluster.metadata.bundle_boundaries.setdefault("acme/more", [0, 0xFFFFFFFF])
        cluster.model.add(bundle, BROKERS[number % 3], name)
        cluster.demand[name] = 4.0
    cluster.publish()
    return cluster


async def led(cluster: QuotaCluster, **more: Any) -> tuple[SlowSidecar, asyncio.Task[None]]:
    """A leader, and what keeps it one."""
    sidecar = SlowSidecar(cluster, **more)
    await sidecar.lead()

    async def keep() -> None:
        while True:
            await asyncio.sleep(2.0)
            await sidecar.leadership.turn()

    return sidecar, asyncio.create_task(keep())


@in_virtual_time
async def test_a_hundred_new_topics_at_slow_brokers() -> None:
    sidecar, lease = await led(with_new_topics(100))
    sidecar.quota_admin.seconds = 1.0
    rates, to_come = sidecar.quota_cluster.model.quotas.rates, []
    for _ in range(12):
        assert await sidecar.cycles(1) < [CYCLE]
        view = await sidecar.quotas.view()
        to_come.append(view.left.get(Code.RATE_NOT_REACHED.value, 0))
        assert (f"{to_come[-1]} still to come" in view.sentence) == (to_come[-1] > 0)
        reads = Counter(call[1] for call in sidecar.quota_admin.calls if call[0] == "topic_rate")
        assert len(reads) == len(sidecar.quota_cluster.model.loads) - 3 or max(reads.values()) <= 2
    assert to_come[0] > 50 and to_come[-1] == 0
    assert to_come == sorted(to_come, reverse=True)
    assert len(rates) == 116
    # Reads and writes, each with those that their cycle did not wait for.
    assert 1 < sidecar.quota_admin.most <= 2 * (PARALLEL + LEAST)
    sidecar.quota_admin.seconds = 0.0
    await sidecar.cycles(4)
    assert sidecar.quota_cluster.total() == pytest.approx(LIMIT, rel=0.1)
    lease.cancel()


@in_virtual_time
async def test_some_that_never_answer_keep_nobody_waiting() -> None:
    sidecar, lease = await led(with_new_topics(40))
    names = sorted(name for name in sidecar.quota_cluster.demand if "/more/" in name)
    # More than are asked at a time, and the first by name.
    sidecar.quota_admin.hanging = frozenset(names[:20])
    assert max(await sidecar.cycles(4)) < CYCLE
    rates = {place.topic for place in sidecar.quota_cluster.model.quotas.rates}
    assert rates == {*names[20:], *(name for name in rates if "/more/" not in name)} and len(rates) == 36
    left = (await sidecar.quotas.view()).left
    assert left[Code.RATE_NOT_REACHED.value] == 20
    sidecar.quota_admin.hanging = frozenset()
    await sidecar.cycles(int(GIVEN_UP / CYCLE))
    assert len(sidecar.quota_cluster.model.quotas.rates) == 56
    lease.cancel()


@in_virtual_time
async def test_a_write_that_hangs_goes_on_beside_the_cycles() -> None:
    sidecar, lease = await led(QuotaCluster(LoopClock()))
    await sidecar.cycles(5)
    place = PolicyKey(topic=HOT, side=PUBLISH)
    sidecar.quota_cluster.demand[HOT] = 1.0
    sidecar.quota_admin.fail("topic_rate")
    await sidecar.cycles(1)
    calls = sidecar.quota_admin.calls
    before, rate = len(calls), sidecar.quota_cluster.model.quotas.rates[place]
    slow = _SlowWrites(sidecar)
    assert max(await sidecar.cycles(4)) < CYCLE
    assert (await sidecar.quotas.view()).left[Code.RATE_NOT_REACHED.value] == 1
    assert slow.begun == 1 and ("set_topic_rate", HOT, PUBLISH) not in calls[before:]
    assert ("topic_rate", HOT, PUBLISH) not in calls[slow.since :]
    await sidecar.cycles(8)
    assert sidecar.told()[-1]["errors"] and slow.begun == 2
    assert sidecar.quota_cluster.model.quotas.rates[place] == rate
    sidecar.quota_admin.hanging = frozenset()
    await sidecar.cycles(12)
    assert sidecar.quota_cluster.model.quotas.rates[place] < rate
    lease.cancel()


class _SlowWrites:
    """Admin whose writes of the hot topic hang; reads do not."""

    def __init__(self, sidecar: SlowSidecar) -> None:
        self.begun, self.since = 0, 0
        admin = sidecar.quota_admin
        write = admin.set_topic_rate

        async def hang(place: PolicyKey, rate: Rate | None, *, permit: Permit) -> None:
            if place.topic == HOT and self.begun < 2:
                self.begun += 1
                self.since = len(admin.calls)
                await asyncio.sleep(GIVEN_UP)
                raise AdminTimeout("no answer in time")
            await write(place, rate, permit=permit)

        admin.set_topic_rate = hang  # type: ignore[method-assign]


@in_virtual_time
async def test_namespaces_that_are_not_reached() -> None:
    sidecar, lease = await led(QuotaCluster(LoopClock()))
    sidecar.quota_admin.namespace_seconds = 0.9 * CYCLE
    assert max(await sidecar.cycles(1)) < CYCLE
    assert not sidecar.quota_cluster.model.quotas.rates
    assert (await sidecar.quotas.view()).left == {Code.RATE_NOT_REACHED.value: 16}
    # The responses have arrived outside the cycle by now.
    assert max(await sidecar.cycles(1)) < CYCLE
    assert len(sidecar.quota_cluster.model.quotas.rates) == 16
    lease.cancel()


@in_virtual_time
async def test_the_budget_of_a_minute() -> None:
    """Cycles that follow each other faster than they should write no more for that."""
    sidecar, lease = await led(QuotaCluster(LoopClock()), writes_per_minute=12)
    await sidecar.turn(8)
    assert sidecar.answered()["set_topic_rate"] == 12
    assert (await sidecar.quotas.view()).left[Code.BUDGET_OF_RATES.value] == 4
    await asyncio.sleep(61)
    await sidecar.turn(2)
    assert len(sidecar.quota_cluster.model.quotas.rates) == 16
    lease.cancel()


@in_virtual_time
async def test_giving_back_goes_round() -> None:
    sidecar, lease = await led(with_new_topics(20))
    await sidecar.cycles(2)
    names = sorted({place.topic for place in sidecar.quota_cluster.model.quotas.rates})
    sidecar.quota_admin.hanging = frozenset(names[:17])
    await sidecar.quotas.remove("acme", reason="r", by="ann")
    assert max(await sidecar.cycles(4)) < CYCLE
    assert {place.topic for place in sidecar.quota_cluster.model.quotas.rates} == set(names[:17])
    lease.cancel()


@in_virtual_time
async def test_what_hangs_ends_with_the_sidecar() -> None:
    sidecar, lease = await led(QuotaCluster(LoopClock()))
    sidecar.quota_admin.hanging = frozenset({HOT})
    await sidecar.cycles(1)
    hangs = asyncio.all_tasks()
    task = asyncio.create_task(sidecar.quotas.quotas.run())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(hangs) > 2 and asyncio.all_tasks() == {lease, asyncio.current_task()}
    lease.cancel()


class TestWithin:
    """Jobs with a time."""

    def test_begun_in_order(self) -> None:
        async def main() -> list[int]:
            started: list[int] = []

            async def job(number: int) -> None:
                started.append(number)
                await asyncio.sleep(1)

            tasks = await within([lambda n=n: job(n) for n in range(9)], limit=2, seconds=2.5)
            assert [task.done() for task in tasks] == [True] * 4 + [False] * 2
            return started

        assert run_virtually(main()) == [0, 1, 2, 3, 4, 5]

    def test_the_first_always_begin(self) -> None:
        """Also without any time: so something is done in each cycle."""

        async def main() -> int:
            return len(await within([lambda: asyncio.sleep(1)] * 9, limit=3, seconds=0.0))

        assert run_virtually(main()) == 3

    def test_what_needs_no_time(self) -> None:
        """Is done in any case, as far as it begins: on a busy machine the time may be over before anything has run."""

        async def job() -> None:
            pass

        async def main() -> list[bool]:
            tasks = await within([job] * 9, limit=3, seconds=0.0)
            return [task.done() for task in tasks]

        assert run_virtually(main()) == [True] * 3

    def test_a_failure_ends_the_others(self) -> None:
        """And is raised."""

        async def main() -> list[str]:
            ended: list[str] = []

            async def fail() -> None:
                await asyncio.sleep(1)
                raise AdminTimeout("no answer")

            async def last() -> None:
                try:
                    await asyncio.sleep(9)
                except asyncio.CancelledError:
                    ended.append("cancelled")
                    raise

            with pytest.raises(AdminTimeout):
                await within([fail, last], limit=2)
            return ended

        assert run_virtually(main()) == ["cancelled"]
