"""Quota groups over fakes where rates are whole numbers, others limit too, brokers do not answer, writes land late."""

from __future__ import annotations

import pytest

from bundlekeel.model.errors import AdminTimeout
from bundlekeel.ports.commands import Permit
from bundlekeel.quotas.enforcing.rate_keeper import _whole
from bundlekeel.quotas.rules.rate_plan import PUBLISH, PolicyKey, Rate
from bundlekeel.quotas.rules.usage import TopicRates
from tests.support.quota_world import QuotaCluster, QuotaSidecar, leading
from tests.support.world import BROKERS

LIMIT = 200.0
BIG = tuple(f"persistent://acme/orders/t{number}" for number in range(3))
WHO = {"reason": "r", "by": "ann"}


def cluster_of(small: float) -> QuotaCluster:
    """Three topics want far more than there is, the others little."""
    cluster = QuotaCluster()
    cluster.demand |= dict.fromkeys(cluster.demand, small) | dict.fromkeys(BIG, 500.0)
    return cluster


def writes(sidecar: QuotaSidecar) -> int:
    return sum(call[0] == "set_topic_rate" for call in sidecar.quota_admin.calls)


class Deaf:
    """Brokers that serve topics but do not tell their usage."""

    def __init__(self, sidecar: QuotaSidecar, *brokers: str) -> None:
        self.brokers, self._ask = brokers, sidecar.quota_admin.topic_rates
        sidecar.quota_admin.topic_rates = self  # type: ignore[method-assign]

    async def __call__(self, broker: str, namespaces: frozenset[str]) -> TopicRates:
        if broker in self.brokers:
            raise AdminTimeout("no answer")
        return await self._ask(broker, namespaces)


@pytest.mark.parametrize("small", [0.4, 1.0, 2.0, 3.0, 4.0, 7.5, 12.0])
async def test_topics_that_are_content_stay_so(small: float) -> None:
    """A rate is a whole number; no topic is cut to what it passes, taken for one that wants more, and back."""
    sidecar = await leading(cluster_of(small))
    await sidecar.turn(6)
    before = writes(sidecar)
    for _ in range(8):
        await sidecar.turn()
        assert 0.9 * LIMIT <= sidecar.quota_cluster.total() <= 1.1 * LIMIT
    assert writes(sidecar) == before


async def test_what_somebody_else_keeps_a_topic_from_using_goes_to_others() -> None:
    cluster = cluster_of(1.0)
    cluster.model.quotas.rates[PolicyKey(topic=BIG[0], side=PUBLISH)] = Rate(10, -1)
    sidecar = await leading(cluster)
    await sidecar.turn(6)
    for _ in range(6):
        await sidecar.turn()
        assert 0.9 * LIMIT <= cluster.total() <= 1.1 * LIMIT
    assert cluster.model.quotas.rates[PolicyKey(topic=BIG[0], side=PUBLISH)] == Rate(10, -1)


async def test_a_broker_that_stays_unresponsive_keeps_its_part() -> None:
    sidecar = await leading()
    await sidecar.turn(5)
    Deaf(sidecar, BROKERS[0])
    for _ in range(18):
        await sidecar.turn()
        assert sidecar.quota_cluster.total() <= 1.1 * LIMIT


async def test_a_new_leader_counts_what_a_unresponsive_broker_may_pass() -> None:
    """Rates that were left there are taken off the limit until it has answered once; then all of it is used again."""
    sidecar = await leading()
    await sidecar.turn(5)
    await sidecar.leadership.stop()
    heir = QuotaSidecar(sidecar.quota_cluster, "b")
    await heir.lead()
    deaf = Deaf(heir, BROKERS[0])
    for _ in range(8):
        await heir.turn()
        assert sidecar.quota_cluster.total() <= 1.1 * LIMIT
    deaf.brokers = ()
    await heir.turn(4)
    assert 0.9 * LIMIT <= sidecar.quota_cluster.total() <= 1.1 * LIMIT


async def test_a_topic_that_left_its_broker_counts_once() -> None:
    """Also when it was the only one there: its old broker is asked until it has said so."""
    cluster = cluster_of(1.0)
    for number in range(8):
        for space in ("acme/orders", "acme/events"):
            cluster.move(number, BROKERS[1], space)
    cluster.move(0, BROKERS[0])
    cluster.demand[BIG[0]] = 50.0
    sidecar = await leading(cluster)
    await sidecar.turn(7)
    cluster.move(0, BROKERS[1])
    for _ in range(3):
        await sidecar.turn()
        rows = (await sidecar.quotas.group("acme")).rows
        (used,) = [row.usage.publish_messages for row in rows if row.topic == BIG[0]]
        assert used == pytest.approx(50.0)


async def test_a_write_that_lands_late_is_still_ours() -> None:
    sidecar = await leading()
    cluster, place = sidecar.quota_cluster, PolicyKey(topic=BIG[0], side=PUBLISH)
    really, lost = sidecar.quota_admin.set_topic_rate, list[Rate | None]()

    async def losing(where: PolicyKey, rate: Rate | None, *, permit: Permit) -> None:
        if where == place and not lost:
            lost.append(rate)
            raise AdminTimeout("no answer")
        await really(where, rate, permit=permit)

    sidecar.quota_admin.set_topic_rate = losing  # type: ignore[method-assign]
    await sidecar.turn()
    cluster.demand |= dict.fromkeys(BIG[1:], 0.0)
    await sidecar.turn()
    assert lost[0] is not None and cluster.model.quotas.rates[place] != lost[0]
    cluster.model.quotas.rates[place] = lost[0]
    await sidecar.turn(40)
    assert sidecar.quotas.quotas.rates.owned[place].original is None
    await sidecar.quotas.remove("acme", **WHO)
    await sidecar.turn(2)
    assert not cluster.model.quotas.rates


async def test_the_budget_of_a_minute_with_slow_statistics() -> None:
    """A cycle of two minutes writes no more than one minute may."""
    cluster = QuotaCluster()
    for broker in BROKERS:
        cluster.model.static[broker]["statsUpdateFrequencyInSecs"] = "60"
    sidecar = await leading(cluster, writes_per_minute=8)
    await sidecar.turn()
    assert sidecar.quotas.quotas.cycle_seconds == 120.0
    assert writes(sidecar) == 8


TOPIC = "persistent://acme/orders/t0"
FEW = {f"persistent://acme/orders/t{number}": rate for number, rate in enumerate([40.0, 30.0, 20.0])}


def small_cluster() -> QuotaCluster:
    cluster = QuotaCluster()
    cluster.demand |= dict.fromkeys(cluster.demand, 0.0) | FEW
    return cluster


async def test_a_change_of_less_than_a_tenth_counts_in_the_same_cycle() -> None:
    cluster = small_cluster()
    sidecar = await leading(cluster)
    await sidecar.turn(2)
    before = (await sidecar.quotas.group("acme")).rows[0]
    cluster.demand[TOPIC] = 42.0
    await sidecar.turn()
    after = (await sidecar.quotas.group("acme")).rows[0]
    assert (before.topic, before.usage.publish_messages) == (TOPIC, 40.0)
    assert after.usage.publish_messages == 42.0
    assert after.share.publish_messages > before.share.publish_messages > 1.1 * 40.0


async def test_a_topic_that_falls_by_a_few_percent_each_cycle_is_followed() -> None:
    """Steps below a tenth do not add up to one: the sum of a group's topics is the group's usage in each cycle."""
    cluster = small_cluster()
    sidecar = await leading(cluster)
    for step in range(4):
        cluster.demand[TOPIC] = 40.0 - step
        await sidecar.turn()
        group = await sidecar.quotas.group("acme")
        rows = sum(row.usage.publish_messages for row in group.rows)
        assert rows == group.usage.publish_messages == 90.0 - step


async def test_the_last_figures_of_a_broker_that_does_not_answer_count_until_it_answers() -> None:
    cluster = small_cluster()
    sidecar = await leading(cluster)
    await sidecar.turn(2)
    deaf = Deaf(sidecar, BROKERS[0])
    cluster.demand[TOPIC] = 10.0
    await sidecar.turn(12)
    rows = {row.topic: row for row in (await sidecar.quotas.group("acme")).rows}
    assert rows[TOPIC].usage.publish_messages == 40.0
    deaf.brokers = ()
    cluster.demand[TOPIC] = 0.0
    cluster.move(0, BROKERS[1])
    await sidecar.turn()
    rows = {row.topic: row for row in (await sidecar.quotas.group("acme")).rows}
    assert (rows[TOPIC].brokers, rows[TOPIC].usage.publish_messages) == ([BROKERS[1]], 0.0)


async def test_the_last_figures_of_a_broker_end_with_its_registration() -> None:
    cluster = small_cluster()
    sidecar = await leading(cluster)
    await sidecar.turn(2)
    Deaf(sidecar, BROKERS[0])
    await sidecar.turn()
    cluster.demand |= dict.fromkeys(cluster.demand, 0.0)
    cluster.die(BROKERS[0], BROKERS[1])
    await sidecar.turn()
    group = await sidecar.quotas.group("acme")
    assert sum(row.usage.publish_messages for row in group.rows) == 0.0


@pytest.mark.parametrize("wrong", ["9" * 5_000, "-1", "\u0663", "inf"])
def test_s03_the_number_of_a_partition_with_odd_digits(wrong: str) -> None:
    assert _whole(wrong) == -1
