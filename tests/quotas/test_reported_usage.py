"""Usage that real brokers publish about a group is received, and agrees with the measurements."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest

from bundlekeel.pulsar.topics.child import TOPICS
from bundlekeel.quotas.ports import UsageFeed
from bundlekeel.quotas.published.usage_feed import TopicUsageFeed
from bundlekeel.quotas.published.usage_messages import UsageMessage
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
    """Every broker with traffic of the group reports, each in the first six periods. The sum of the reports agrees with
    the measurements at brokers and clients. The command shows the reports.
    """
    with (
        clients(quota_cluster, tmp_path) as load,
        quota_sidecar(quota_cluster, tmp_path, enforcer="native", groups=GROUP) as sidecar,
    ):
        sidecar.until(lambda: _all_heard(sidecar, len(quota_cluster.brokers)), "all are heard", within=SIX_PERIODS + 60)
        # Traffic before the limits has been reported, too.
        cycles(sidecar, 3)
        measured = load.measure(2 * CYCLE_SECONDS)
        rows = _read_reports(sidecar)
        assert {row["broker"] for row in rows} == {broker.broker_id for broker in quota_cluster.brokers}
        assert all(row["registered"] and row["publish_age_seconds"] <= SIX_PERIODS for row in rows)
        reported, counted = (sum(row[name]["publish_messages"] for row in rows) for name in ("reported", "measured"))
        out = sum(row["reported"]["dispatch_messages"] for row in rows)
        published, delivered = measured.totals
        sys.stdout.write(f"told {reported:.0f}, counted {counted:.0f}, at clients {published:.0f} messages/s\n")
        assert reported == pytest.approx(published, rel=NEAR) and reported == pytest.approx(counted, rel=NEAR)
        assert out == pytest.approx(delivered, rel=NEAR)
        assert view(sidecar)["transport"]["state"] == "ok"
        remove(sidecar)
        sidecar.until(lambda: view(sidecar)["transport"]["state"] == "off", "it listens no more", within=40)


def _read_reports(sidecar: Sidecar) -> Sequence[dict[str, Any]]:
    groups = view(sidecar).get("groups")
    return groups[0]["reported"] if groups else []


def _all_heard(sidecar: Sidecar, count: int) -> bool:
    ages = [row[f"{side}_age_seconds"] for row in _read_reports(sidecar) for side in ("publish", "dispatch")]
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
