"""Figures of a group by broker and topic: in the API, from the leader or through it, and as some metrics."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import unquote

import pytest

from bundlekeel.model.errors import NotFound, StoreError
from bundlekeel.quotas.report import MOST_TOPICS
from bundlekeel.quotas.rules.groups import QuotaGroup, QuotaLimits
from bundlekeel.quotas.service import QuotaService
from tests.support.quota_world import QuotaCluster, QuotaSidecar, leading
from tests.support.world import BROKERS, NoPeers

SMALL = "persistent://acme/orders/small"


def crowded() -> QuotaCluster:
    """Build a cluster with more topics than a report contains, one of them with negligible traffic."""
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

    async def get(self, url: str, path: str) -> Any:
        self.asked.append(url)
        try:
            return asdict(await self.leader.quotas.why(unquote(path.split("/")[1]), here=True))
        except NotFound:
            return None


async def test_usage_by_broker() -> None:
    """Each broker that serves the group, adding up to what the group passes."""
    sidecar = await leading()
    await sidecar.turn(8)
    row = await sidecar.quotas.group("acme")
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
    sidecar = await leading(
        orders={"members": ("n:acme/orders",), "publish_messages": 200},
        events={"members": ("n:acme/events",), "publish_messages": 200},
    )
    for number in range(8):
        sidecar.quota_cluster.move(number, BROKERS[0])
    await sidecar.turn(6)
    view = {row.name: row.brokers for row in (await sidecar.quotas.view()).groups}
    assert set(view["orders"]) == {BROKERS[0]} and set(view["events"]) == set(BROKERS)


async def test_small_topics_are_explained() -> None:
    """The report has the busiest ones only; the leader knows them all, a follower asks it."""
    cluster = crowded()
    leader = QuotaSidecar(cluster)
    leader.leadership.member = replace(leader.leadership.member, url="http://leader")
    await leader.lead()
    await leader.turn(2)
    stored = await leader.quotas.quotas.book.read_report()
    assert stored is not None and SMALL not in {row["topic"] for row in stored["groups"][0]["rows"]}
    answer = await leader.quotas.why(SMALL)
    assert answer.group == "acme" and "0 messages/s published, share" in answer.sentences[0]
    assert "served by " in answer.sentences[-1] and "no broker" not in answer.sentences[-1]
    with pytest.raises(NotFound, match="no broker reported persistent://acme/orders/none"):
        await leader.quotas.why("persistent://acme/orders/none")
    follower = await leading(cluster, name="b")
    await follower.turn()
    peers = LeaderPeers(leader)
    service = QuotaService(follower.quotas.quotas, follower.quotas._p, follower.leadership, peers)
    assert await service.why(SMALL) == answer and peers.asked == ["http://leader"]
    with pytest.raises(NotFound):
        await service.why(SMALL, here=True)


async def test_a_report_of_another_release_hides_no_group() -> None:
    leader = await leading(crowded())
    await leader.turn(2)
    assert (await leader.quotas.group("acme")).topics
    assert leader.quotas.quotas.report is not None
    leader.quotas.quotas.report["groups"][0]["rows"][0].pop("loss")
    view = await leader.quotas.group("acme")
    assert (view.name, view.topics, view.rows) == ("acme", None, [])


async def test_the_busiest_are_explained_alike() -> None:
    """Live, and from the stored report when the leader does not answer."""
    cluster = crowded()
    leader = await leading(cluster)
    await leader.turn(2)
    stored = await leader.quotas.quotas.book.read_report()
    assert stored is not None
    follower = await leading(cluster, name="b")
    await follower.turn()
    with pytest.raises(StoreError):
        await NoPeers().get("http://a", f"quotas/{SMALL}/why")
    for row in stored["groups"][0]["rows"][::20]:
        assert await follower.quotas.why(row["topic"]) == await leader.quotas.why(row["topic"])


SKEWED = "persistent://acme/events/t0"
NAMES = ("quota_topic_usage", "quota_topic_limit", "quota_topic_share", "quota_topic_loss")
OF_GROUPS = ("quota_limit", "quota_usage", "quota_share", "quota_used_ratio", "quota_skew_loss")


async def skewed_world(topic_metrics: int = 20) -> QuotaSidecar:
    """Build a world where one of four partitions has all demand of its topic; other topics use the rest."""
    cluster = QuotaCluster()
    cluster.demand |= {f"{SKEWED}-partition-{number}": 0.0 for number in range(1, 4)} | {f"{SKEWED}-partition-0": 500.0}
    sidecar = await leading(cluster, topic_metrics=topic_metrics)
    await sidecar.turn(6)
    return sidecar


def figures(sidecar: QuotaSidecar, name: str) -> dict[str, float]:
    pairs = re.findall(r'topic="([^"]+)"[^}]*} (\S+)', sidecar.metric(name))
    return {topic: float(value) for topic, value in pairs}


async def test_loss_and_demand_of_a_skewed_topic() -> None:
    """Three quarters of its share cannot pass; the group's loss is the sum of those of its topics."""
    sidecar = await skewed_world()
    group = await sidecar.quotas.group("acme")
    rows = {
        row.topic: {key: getattr(row, key).publish_messages for key in ("usage", "share", "loss", "demand")}
        for row in group.rows
    }
    result = rows[SKEWED]
    assert result["loss"] == pytest.approx(result["share"] - result["usage"], abs=0.01)
    assert result["loss"] > 0.7 * result["share"]
    assert result["demand"] > result["share"]
    assert sum(row["loss"] for row in rows.values()) == pytest.approx(group.skew_loss.publish_messages, abs=0.01)
    assert {name for name, row in rows.items() if row["loss"]} == {SKEWED}


async def test_metrics_of_topics_are_bounded_and_begin_with_what_is_lost() -> None:
    sidecar = await skewed_world()
    figures_by_name = [figures(sidecar, name) for name in NAMES]
    assert len({frozenset(result) for result in figures_by_name}) == 1
    bounded = await skewed_world(topic_metrics=1)
    assert [set(figures(bounded, name)) for name in NAMES] == [{SKEWED}] * 4
    rows = {row.topic: row for row in (await sidecar.quotas.group("acme")).rows}
    usage, limit, share, loss = figures_by_name
    assert loss[SKEWED] == pytest.approx(rows[SKEWED].loss.publish_messages, abs=0.01)
    assert usage[SKEWED] == pytest.approx(rows[SKEWED].usage.publish_messages, abs=0.01)
    assert share[SKEWED] == pytest.approx(rows[SKEWED].share.publish_messages, abs=0.01)
    assert limit[SKEWED] == 4 * rows[SKEWED].partition_rate.publish_messages


async def test_no_metrics_of_topics_without_a_leader() -> None:
    sidecar = await skewed_world()
    await sidecar.leadership.stop()
    await sidecar.quotas.quotas.step()
    assert [figures(sidecar, name) for name in NAMES] == [{}] * 4


async def test_no_metrics_of_what_a_group_no_longer_limits() -> None:
    """Else its alert would last for ever: of the group and of its topics."""
    sidecar = await skewed_world()
    assert all('kind="publish_messages"' in sidecar.metric(name) for name in (*NAMES, *OF_GROUPS))
    group = QuotaGroup(name="acme", members=("t:acme",), limits=QuotaLimits(publish_bytes=1e9))
    await sidecar.quotas.put(group, reason="r", by="ann")
    await sidecar.turn()
    for name in (*NAMES, *OF_GROUPS):
        assert set(re.findall(r'kind="(\w+)"', sidecar.metric(name))) == {"publish_bytes"}, name
