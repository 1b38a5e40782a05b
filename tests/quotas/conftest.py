"""One cluster for all: its statistics are as old as some seconds, and its brokers exchange usage by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster import Cluster, ClusterSpec, open_cluster
from tests.quotas.stage import STATISTICS, make_topics

TRANSPORT = {
    "resourceUsageTransportClassName": ("org.apache.pulsar.broker.resourcegroup.ResourceUsageTopicTransportManager"),
    "resourceUsageTransportPublishIntervalInSecs": "10",
}


@pytest.fixture(scope="session")
def quota_cluster() -> Iterator[Cluster]:
    """Three brokers with the topics of the stage. Tests leave all three running."""
    settings = STATISTICS | TRANSPORT
    with open_cluster(ClusterSpec(brokers=3, mode="modular", broker_settings=settings)) as cluster:
        make_topics(cluster)
        yield cluster
