"""Usage, limit, share and loss of single topics: in the API's rows and as a bounded number of metrics."""

from __future__ import annotations

import re

import pytest

from tests.support.quota_world import QuotaCluster, QuotaSidecar, leading

SKEWED = "persistent://acme/events/t0"
NAMES = ("quota_topic_usage", "quota_topic_limit", "quota_topic_share", "quota_topic_loss")


async def skewed_world(topic_metrics: int = 20) -> QuotaSidecar:
    """All demand of the partitioned topic sits in one of its four partitions; other topics want what is left."""
    cluster = QuotaCluster()
    cluster.demand |= {f"{SKEWED}-partition-{number}": 0.0 for number in range(1, 4)} | {f"{SKEWED}-partition-0": 500.0}
    sidecar = await leading(cluster, topic_metrics=topic_metrics)
    await sidecar.turn(6)
    return sidecar


def figures(sidecar: QuotaSidecar, name: str) -> dict[str, float]:
    """By topic."""
    pairs = re.findall(r'topic="([^"]+)"[^}]*} (\S+)', sidecar.metric(name))
    return {topic: float(value) for topic, value in pairs}


async def test_loss_and_demand_of_a_skewed_topic() -> None:
    """Three quarters of its share cannot pass; the group's loss is the sum of those of its topics."""
    sidecar = await skewed_world()
    group = await sidecar.service.group("acme")
    rows = {
        row.topic: {key: getattr(row, key).publish_messages for key in ("usage", "share", "loss", "demand")}
        for row in group.rows
    }
    found = rows[SKEWED]
    assert found["loss"] == pytest.approx(found["share"] - found["usage"], abs=0.01)
    assert found["loss"] > 0.7 * found["share"]
    assert found["demand"] > found["share"]
    assert sum(row["loss"] for row in rows.values()) == pytest.approx(group.skew_loss.publish_messages, abs=0.01)
    assert {name for name, row in rows.items() if row["loss"]} == {SKEWED}


async def test_metrics_of_topics_are_bounded_and_begin_with_what_is_lost() -> None:
    """As many topics as is set, the one that loses most first; all four figures, which are those of the API."""
    sidecar = await skewed_world()
    shown = [figures(sidecar, name) for name in NAMES]
    assert len({frozenset(found) for found in shown}) == 1
    bounded = await skewed_world(topic_metrics=1)
    assert [set(figures(bounded, name)) for name in NAMES] == [{SKEWED}] * 4
    rows = {row.topic: row for row in (await sidecar.service.group("acme")).rows}
    usage, limit, share, loss = shown
    assert loss[SKEWED] == pytest.approx(rows[SKEWED].loss.publish_messages, abs=0.01)
    assert usage[SKEWED] == pytest.approx(rows[SKEWED].usage.publish_messages, abs=0.01)
    assert share[SKEWED] == pytest.approx(rows[SKEWED].share.publish_messages, abs=0.01)
    assert limit[SKEWED] == 4 * rows[SKEWED].partition_rate.publish_messages


async def test_no_metrics_of_topics_without_a_leader() -> None:
    """They are the next leader's to tell."""
    sidecar = await skewed_world()
    await sidecar.leadership.stop()
    await sidecar.quotas.step()
    assert [figures(sidecar, name) for name in NAMES] == [{}] * 4
