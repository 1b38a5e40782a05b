"""A leader of quotas that dies during its writes, on real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.cluster import Cluster
from dev.sidecar import Sidecar, leader_of, running
from dev.traffic.admin import request
from tests.quotas.sidecars import STILL, remove, view
from tests.quotas.stage import GROUP, clients, demands, make_topics, topic_rates

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

# Half of the 32 writes in a cycle: the leader dies between two of them.
QUOTAS = {"enforcer": "policies", "groups": GROUP, "writes_per_minute": 96}
PLACES = 2 * len(demands())


def count_rates(sidecar: Sidecar) -> int:
    """Return how many rates the sidecar reports to hold."""
    return int(view(sidecar).get("writes", {}).get("held", 0))


@pytest.mark.nightly
def test_the_next_leader_completes_and_gives_back(quota_cluster: Cluster, tmp_path: Path) -> None:
    """The next leader completes the killed leader's work. It also restores every earlier rate, including rates that
    operators had set.
    """
    make_topics(quota_cluster)
    web, topic = quota_cluster.brokers[0].web_url, list(demands())[3]
    body = {"publishThrottlingRateInMsg": 5000, "publishThrottlingRateInByte": -1}
    assert request("POST", f"{web}/admin/v2/{topic.replace('://', '/')}/publishRate", body)[0] == 204
    pair = running(quota_cluster, ["q1", "q2"], tmp_path, root=tmp_path.name, quotas=QUOTAS, **STILL)
    with clients(quota_cluster, tmp_path) as load:
        before = topic_rates(quota_cluster)
        assert any("5000" in body for _, body in before.values())
        with pair as sidecars:
            first = sidecars[0]
            first.until(lambda: leader_of(sidecars) is not None, "one leads", within=60)
            leader = leader_of(sidecars)
            assert leader is not None
            leader.until(lambda: 0 < count_rates(leader) < PLACES, "it began", within=60)
            leader.kill()
            (other,) = (item for item in sidecars if item is not leader)
            other.until(lambda: count_rates(other) == PLACES, "the next leader has completed it", within=150)
            assert load.measure(1.0).totals[0] > 0
            remove(other)
        assert topic_rates(quota_cluster) == before
