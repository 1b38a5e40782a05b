"""What real brokers tell each other of a group is heard, and is what is measured."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest

from bundlekeel.adapters.topics.child import TOPICS
from bundlekeel.adapters.topics.usage_feed import TopicUsageFeed
from bundlekeel.core.quotas.published_usage import UsageMessage
from bundlekeel.ports.quotas import UsageFeed
from dev.cluster import Cluster
from dev.sidecar import Sidecar
from tests.quotas.sidecars import cycles, quota_sidecar, remove, view
from tests.quotas.stage import CYCLE_SECONDS, GROUP, clients
from tests.support.channel_cluster import Followers
from tests.support.contracts.usage import UsageContract
from tests.support.memory_usage import encode_usage

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

# Both are averages over some seconds of what goes up and down, and not over the same ones.
NEAR = 0.35
SIX_PERIODS = 6 * CYCLE_SECONDS


@pytest.mark.nightly
def test_what_brokers_tell_is_what_is_measured(quota_cluster: Cluster, tmp_path: Path) -> None:
    """Every broker with traffic of the group is heard, each in the first six periods; together they tell about what is
    measured at the brokers and at the clients; the command shows them."""
    with (
        clients(quota_cluster, tmp_path) as load,
        quota_sidecar(quota_cluster, tmp_path, enforcer="native", groups=GROUP) as made,
    ):
        made.until(lambda: _all_heard(made, len(quota_cluster.brokers)), "all are heard", within=SIX_PERIODS + 60)
        # What passed before the limits were there has been told too.
        cycles(made, 3)
        measured = load.measure(2 * CYCLE_SECONDS)
        rows = _told(made)
        assert {row["broker"] for row in rows} == {broker.broker_id for broker in quota_cluster.brokers}
        assert all(row["registered"] and row["publish_age_seconds"] <= SIX_PERIODS for row in rows)
        told, counted = (sum(row[name]["publish_messages"] for row in rows) for name in ("reported", "measured"))
        out = sum(row["reported"]["dispatch_messages"] for row in rows)
        published, delivered = measured.totals
        sys.stdout.write(f"told {told:.0f}, counted {counted:.0f}, at clients {published:.0f} messages/s\n")
        assert told == pytest.approx(published, rel=NEAR) and told == pytest.approx(counted, rel=NEAR)
        assert out == pytest.approx(delivered, rel=NEAR)
        assert view(made)["transport"]["state"] == "ok"
        remove(made)
        made.until(lambda: view(made)["transport"]["state"] == "off", "it listens no more", within=40)


def _told(made: Sidecar) -> Sequence[dict[str, Any]]:
    groups = view(made).get("groups")
    return groups[0]["reported"] if groups else []


def _all_heard(made: Sidecar, count: int) -> bool:
    ages = [row[f"{side}_age_seconds"] for row in _told(made) for side in ("publish", "dispatch")]
    return len(ages) == 2 * count and None not in ages


class BrokersKit(Followers):
    """The topic of real brokers; a client publishes to it as brokers do."""

    patience = 60.0

    def __init__(self, cluster: Cluster, client: pulsar.Client) -> None:
        super().__init__()
        self.service_urls = [broker.service_url for broker in cluster.brokers]
        self._producer = client.create_producer(TOPICS["usage"], compression_type=pulsar.CompressionType.LZ4)

    def make(self) -> UsageFeed:
        return self.follower(TopicUsageFeed)

    async def say(self, message: UsageMessage) -> None:
        await asyncio.to_thread(partial(self._producer.send, encode_usage(message)))

    async def say_nonsense(self) -> None:
        await asyncio.to_thread(partial(self._producer.send, b"nonsense"))
        await asyncio.sleep(0.1)


class TestRealTopic(UsageContract):
    """The contract."""

    @pytest.fixture
    def kit(self, quota_cluster: Cluster) -> Iterator[BrokersKit]:
        client = pulsar.Client(quota_cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        yield BrokersKit(quota_cluster, client)
        client.close()
