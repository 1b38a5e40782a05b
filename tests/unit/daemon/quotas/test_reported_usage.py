"""What is told of a group by broker and topic: all of it by the leader, and by others through it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from bundlekeel.core.model.errors import NotFound, StoreError
from bundlekeel.daemon.quotas.report import MOST_TOPICS
from bundlekeel.daemon.quotas.service import QuotaService
from tests.support.quota_world import QuotaCluster, QuotaSidecar, leading
from tests.support.services import NoPeers
from tests.support.world import BROKERS

SMALL = "persistent://acme/orders/small"


def crowded() -> QuotaCluster:
    """A cluster with more topics than a report tells, and one of them that passes next to nothing."""
    cluster = QuotaCluster()
    (bundle,) = [name for name in cluster.model.topics if name.startswith("acme/orders/0x00000000_")]
    names = [f"persistent://acme/orders/more{number}" for number in range(MOST_TOPICS)]
    cluster.model.topics[bundle] += [*names, SMALL]
    cluster.demand |= dict.fromkeys(names, 3.0) | {SMALL: 0.01}
    return cluster


class LeaderPeers(NoPeers):
    """Another sidecar's API, without HTTP."""

    def __init__(self, leader: QuotaSidecar) -> None:
        self.leader, self.asked = leader, list[str]()

    async def quota_why(self, url: str, topic: str) -> dict[str, Any] | None:
        """As over HTTP: what is not known there is None."""
        self.asked.append(url)
        try:
            return await self.leader.service.why(topic, here=True)
        except NotFound:
            return None


async def test_usage_by_broker() -> None:
    """Each broker that serves the group, adding up to what the group passes."""
    sidecar = await leading()
    await sidecar.turn(8)
    row = await sidecar.service.group("acme")
    assert set(row.brokers) == set(BROKERS)
    for kind, total in asdict(row.usage).items():
        assert sum(getattr(rates, kind) for rates in row.brokers.values()) == pytest.approx(total, abs=0.01)
    passes = dict.fromkeys(BROKERS, 0.0)
    for bundle, owner in sidecar.quota_cluster.model.owners.items():
        for name in sidecar.quota_cluster.model.topics[bundle]:
            if name in sidecar.quota_cluster.demand:
                passes[owner.broker_id] += sidecar.quota_cluster.model.loads[name].traffic[0]
    assert {name: rates.publish_messages for name, rates in row.brokers.items()} == pytest.approx(passes, abs=0.5)


async def test_a_broker_that_serves_nothing_of_it() -> None:
    """Is not told, and each group has its own."""
    sidecar = await leading(
        orders={"members": ("n:acme/orders",), "publish_messages": 200},
        events={"members": ("n:acme/events",), "publish_messages": 200},
    )
    for number in range(8):
        sidecar.quota_cluster.move(number, BROKERS[0])
    await sidecar.turn(6)
    view = {row.name: row.brokers for row in (await sidecar.service.view()).groups}
    assert set(view["orders"]) == {BROKERS[0]} and set(view["events"]) == set(BROKERS)


async def test_small_topics_are_explained() -> None:
    """The report has the busiest ones only; the leader knows them all, a follower asks it."""
    cluster = crowded()
    leader = QuotaSidecar(cluster)
    leader.leadership.member = replace(leader.leadership.member, url="http://leader")
    await leader.lead()
    await leader.turn(2)
    stored = await leader.quotas.book.read_report()
    assert stored is not None and SMALL not in {row["topic"] for row in stored["groups"][0]["rows"]}
    told = await leader.service.why(SMALL)
    assert told.group == "acme" and "0 messages/s published, share" in told.sentences[0]
    assert "served by " in told.sentences[-1] and "no broker" not in told.sentences[-1]
    with pytest.raises(NotFound, match="no broker reported persistent://acme/orders/none"):
        await leader.service.why("persistent://acme/orders/none")
    follower = await leading(cluster, name="b")
    await follower.turn()
    peers = LeaderPeers(leader)
    service = QuotaService(follower.quotas, follower.service._p, follower.leadership, peers)
    assert await service.why(SMALL) == told and peers.asked == ["http://leader"]
    with pytest.raises(NotFound):
        await service.why(SMALL, here=True)


async def test_a_report_of_another_release_hides_no_group() -> None:
    """Its figures are left out where they cannot be read; what is declared is shown."""
    leader = await leading(crowded())
    await leader.turn(2)
    assert (await leader.service.group("acme")).topics
    assert leader.quotas.report is not None
    leader.quotas.report["groups"][0]["rows"][0].pop("loss")
    shown = await leader.service.group("acme")
    assert (shown.name, shown.topics, shown.rows) == ("acme", None, [])


async def test_the_busiest_are_explained_alike() -> None:
    """Live, and from the stored report when the leader does not answer."""
    cluster = crowded()
    leader = await leading(cluster)
    await leader.turn(2)
    stored = await leader.quotas.book.read_report()
    assert stored is not None
    follower = await leading(cluster, name="b")
    await follower.turn()
    silent = QuotaService(follower.quotas, follower.service._p, follower.leadership, NoPeers())
    with pytest.raises(StoreError):
        await NoPeers().quota_why("http://a", SMALL)
    for row in stored["groups"][0]["rows"][::20]:
        assert await silent.why(row["topic"]) == await leader.service.why(row["topic"])
