"""One leader shares out what it measured: all of it, at once; of a broker that does not answer the last figures."""

from __future__ import annotations

from tests.support.quota_world import QuotaCluster, leading
from tests.support.world import BROKERS
from tests.unit.daemon.quotas.test_steady_limits import Deaf

TOPIC = "persistent://acme/orders/t0"
FEW = {f"persistent://acme/orders/t{number}": rate for number, rate in enumerate([40.0, 30.0, 20.0])}


def small_cluster() -> QuotaCluster:
    """Topics that want 90 messages/s of the 200 together: nobody is held back."""
    cluster = QuotaCluster()
    cluster.demand |= dict.fromkeys(cluster.demand, 0.0) | FEW
    return cluster


async def test_a_change_of_less_than_a_tenth_counts_in_the_same_cycle() -> None:
    """A topic grows by 5 %: the next cycle claims, and shows, what was measured; its share follows."""
    cluster = small_cluster()
    sidecar = await leading(cluster)
    await sidecar.turn(2)
    before = (await sidecar.service.group("acme")).rows[0]
    cluster.demand[TOPIC] = 42.0
    await sidecar.turn()
    after = (await sidecar.service.group("acme")).rows[0]
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
        group = await sidecar.service.group("acme")
        rows = sum(row.usage.publish_messages for row in group.rows)
        assert rows == group.usage.publish_messages == 90.0 - step


async def test_the_last_figures_of_a_broker_that_does_not_answer_count_until_it_answers() -> None:
    """However long that lasts; then what is measured replaces all of them, topics that have gone too."""
    cluster = small_cluster()
    sidecar = await leading(cluster)
    await sidecar.turn(2)
    deaf = Deaf(sidecar, BROKERS[0])
    cluster.demand[TOPIC] = 10.0
    await sidecar.turn(12)
    rows = {row.topic: row for row in (await sidecar.service.group("acme")).rows}
    assert rows[TOPIC].usage.publish_messages == 40.0
    deaf.brokers = ()
    cluster.demand[TOPIC] = 0.0
    cluster.move(0, BROKERS[1])
    await sidecar.turn()
    rows = {row.topic: row for row in (await sidecar.service.group("acme")).rows}
    assert (rows[TOPIC].brokers, rows[TOPIC].usage.publish_messages) == ([BROKERS[1]], 0.0)


async def test_the_last_figures_of_a_broker_end_with_its_registration() -> None:
    """A broker that did not answer and then died: what it said last is nobody's any more, but for the one cycle that a
    topic may be absent."""
    cluster = small_cluster()
    sidecar = await leading(cluster)
    await sidecar.turn(2)
    Deaf(sidecar, BROKERS[0])
    await sidecar.turn()
    cluster.demand |= dict.fromkeys(cluster.demand, 0.0)
    cluster.die(BROKERS[0], BROKERS[1])
    await sidecar.turn()
    group = await sidecar.service.group("acme")
    assert sum(row.usage.publish_messages for row in group.rows) == 0.0
