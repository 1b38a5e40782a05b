"""`CLUSTER=docker` from start to stop, over a fake of the engine's API whose containers are plain processes."""

from __future__ import annotations

import pytest
from testcontainers.core.config import testcontainers_config

from dev.cluster import ClusterSpec, open_cluster
from dev.cluster.jars import ensure_jars
from dev.cluster.probe import brokers_listed
from dev.java import find_java
from dev.pulsar_releases import find_release
from tests.support.fake_engine import FakeEngine


@pytest.mark.cluster
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_i06_a_cluster_in_containers_runs_and_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three brokers find each other at published addresses; one is killed and comes back; no container is left."""
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    monkeypatch.setenv("CLUSTER", "docker")
    release = find_release()
    java = f"exec {find_java(release.oldest_java)} "
    programs = {"/pulsar/lib": str(ensure_jars(release)[0].parent), "exec java ": java}
    with FakeEngine(programs) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        with open_cluster(ClusterSpec()) as cluster:
            first = cluster.brokers[0]
            listed = {broker.broker_id for broker in cluster.brokers}
            assert {broker.partition(":")[0] for broker in listed} == {"127.0.0.1"}
            cluster.pause("broker-2")
            assert cluster.paused("broker-2")
            cluster.resume("broker-2")
            cluster.kill("broker-3")
            cluster.restart("broker-3")
            assert brokers_listed(first.bind_host, first.web_port, cluster.spec.cluster_name) == listed
        assert sorted(engine.removed) == sorted(engine.created)
        assert all(process.poll() is not None for process in engine.processes.values())
