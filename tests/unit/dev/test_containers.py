"""The cluster in containers, over a fake of the engine's API: chosen only where asked for, and on loopback alone."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcontainers.core.config import testcontainers_config

from dev.cluster import Cluster, ClusterError, ClusterSpec, open_cluster
from dev.cluster.conf import broker_conf, zookeeper_conf
from dev.cluster.containers import ContainerCluster, ContainerSpawner
from dev.cluster.probe import wait_until
from dev.cluster.process import Child, Spawner
from dev.cluster.spec import broker_info
from tests.support.fake_engine import FakeEngine

IMAGE = "apachepulsar/pulsar:4.2.4"
PORTS = [15001, 15002]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    with FakeEngine() as fake_engine:
        monkeypatch.setenv("DOCKER_HOST", fake_engine.address)
        yield fake_engine


@pytest.fixture(params=["processes", "containers"])
def spawner(request: pytest.FixtureRequest) -> Iterator[Spawner]:
    if request.param == "containers":
        request.getfixturevalue("engine")
        container_spawner: Spawner = ContainerSpawner(IMAGE, lambda: PORTS)
    else:
        container_spawner = Spawner()
    yield container_spawner
    container_spawner.close(clean=True)


def child(folder: Path, *command: str) -> Child:
    return Child("one", list(command), folder / "one.log", folder)


@pytest.mark.parametrize("value", [None, "", "jars"])
def test_i06_jars_are_the_default_also_where_an_engine_answers(
    value: str | None, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTER", raising=False)
    if value is not None:
        monkeypatch.setenv("CLUSTER", value)
    assert type(open_cluster(ClusterSpec())) is Cluster


def test_i06_containers_are_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """`CLUSTER=docker`; another value is refused, not passed over."""
    monkeypatch.setenv("CLUSTER", "docker")
    assert isinstance(open_cluster(ClusterSpec()), ContainerCluster)
    monkeypatch.setenv("CLUSTER", "podman")
    with pytest.raises(ClusterError, match=r'CLUSTER is "jars" .* or "docker", not .podman.'):
        open_cluster(ClusterSpec())


def test_i06_without_an_engine_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what else there is."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"no Docker engine answers .* leave CLUSTER out to run from jars"):
        ContainerCluster(ClusterSpec()).start()


def test_i06_every_port_is_published_on_loopback_under_its_own_number(engine: FakeEngine, tmp_path: Path) -> None:
    spawner = ContainerSpawner(IMAGE, lambda: PORTS)
    spawner.start(child(tmp_path, "/bin/sleep", "60"))
    spawner.start(child(tmp_path, "/bin/sleep", "61"))
    holder, *others = engine.created
    published = engine.created[holder]["HostConfig"]["PortBindings"]
    assert published == {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}] for port in PORTS}
    assert len(others) == 2
    for container in others:
        body = engine.created[container]
        assert body["HostConfig"]["NetworkMode"] == f"container:{holder}"
        assert not body["HostConfig"].get("PortBindings")
        assert body["HostConfig"]["Binds"] == [f"{tmp_path}:{tmp_path}:rw"]
        assert body["WorkingDir"] == str(tmp_path)
    assert engine.pulled == [IMAGE]
    spawner.close(clean=True)
    assert engine.removed == [*reversed(others), holder], "the network goes last"


def test_i06_a_cpu_quota_is_the_engine_s_to_hold(engine: FakeEngine, tmp_path: Path) -> None:
    """A quarter core is 25 ms in 100 ms."""
    spawner = ContainerSpawner(IMAGE, lambda: PORTS)
    limited = child(tmp_path, "/bin/sleep", "60")
    limited.cpu_quota_cores = 0.25
    spawner.start(limited)
    host = list(engine.created.values())[-1]["HostConfig"]
    assert (host["CpuPeriod"], host["CpuQuota"]) == (100_000, 25_000)
    spawner.close(clean=True)


def test_i06_processes_listen_behind_the_published_ports() -> None:
    cluster = ContainerCluster(ClusterSpec(broker_settings={"a": "b"}, secure=True))
    brokers = [broker_info(n, 8080 + n, 6650 + n, "bind", bind_host=cluster._bind_host) for n in (1, 2)]
    assert [broker.broker_id for broker in brokers] == ["127.0.0.1:8081", "127.0.0.1:8082"]
    conf = broker_conf(cluster.spec, brokers[0], "zk:x", "zk:x").splitlines()
    assert {"bindAddress=0.0.0.0", "advertisedAddress=127.0.0.1", "a=b"} <= set(conf)
    zookeeper = zookeeper_conf(cluster.spec, Path("d"), 1, {"secureClientPortAddress": "127.0.0.1"}).splitlines()
    assert {"clientPortAddress=0.0.0.0", "secureClientPortAddress=0.0.0.0"} <= set(zookeeper)


def test_i06_a_child_runs_stops_and_dies(spawner: Spawner, tmp_path: Path) -> None:
    """A process and a container are the same to the cluster: log, pause, kill, start again."""
    one = child(tmp_path, "/bin/sh", "-c", "echo it says; exec sleep 60")
    spawner.start(one)
    assert one.alive
    with pytest.raises(ClusterError, match="already running"):
        spawner.start(one)
    wait_until(lambda: one.log.exists() and one.log.read_text() == "it says\n", one, 60)
    one.send(signal.SIGSTOP)
    assert (one.alive, one.paused) == (True, True)
    with pytest.raises(subprocess.TimeoutExpired):
        one.running().wait(0.2)
    one.kill()
    assert (one.alive, one.paused) == (False, False)
    spawner.start(one)
    wait_until(lambda: one.log.read_text() == "it says\n" * 2, one, 60)
    one.ask_to_stop()
    one.wait_or_kill(20)
    assert not one.alive


def test_i06_an_exit_code_is_told(spawner: Spawner, tmp_path: Path) -> None:
    one = child(tmp_path, "/bin/sh", "-c", "exit 3")
    spawner.start(one)
    assert one.process is not None
    assert one.process.wait(20) == 3
