"""Real clusters of the extensible load manager, started once per session, with both variants of the ownership
channel.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.cluster import Cluster, ClusterSpec, open_cluster

STORE_TABLE_VIEW = "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateMetadataStoreTableViewImpl"


@pytest.fixture(scope="session")
def extensible_cluster() -> Iterator[Cluster]:
    """Three brokers with fast statistics; the channel is the system topic. Tests leave all three running."""
    with open_cluster(ClusterSpec(brokers=3, mode="extensible")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def store_cluster() -> Iterator[Cluster]:
    """Two brokers whose channel is in the metadata store (`/service_unit_state`)."""
    settings = {"loadManagerServiceUnitStateTableViewClassName": STORE_TABLE_VIEW}
    with open_cluster(ClusterSpec(brokers=2, mode="extensible", broker_settings=settings)) as cluster:
        yield cluster
