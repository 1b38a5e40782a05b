"""The local cluster itself: the properties that other tests rely on when they damage it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from dev.cluster import BrokerInfo, Cluster, ClusterError, ClusterSpec
from tests.chaos.stage import until

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).resolve().parents[2]

LAUNCHER = """
import time
from dev.cluster import Cluster, ClusterSpec
cluster = Cluster(ClusterSpec(brokers=0, cpu_quota_cores=1.0))
cluster.start()
print(cluster.pid("zookeeper"), cluster.data_dir, flush=True)
time.sleep(120)
"""


def listed(broker: BrokerInfo) -> set[str]:
    """Return the brokers one broker sees; it asks the broker itself, past any proxy."""
    with urllib.request.urlopen(f"{broker.bind_web_url}/admin/v2/brokers/local", timeout=10) as answer:
        return set(json.load(answer))


def everybody(cluster: Cluster) -> set[str]:
    """Return every broker id of the cluster."""
    return {broker.broker_id for broker in cluster.brokers}


def is_gone(pid: int) -> bool:
    """Say whether no process has this pid; a zombie counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_brokers_list_each_other_and_both_stores_are_populated(modular_cluster: Cluster) -> None:
    """A started cluster is whole: every broker sees all, and the stores live under their chroots."""
    for broker in modular_cluster.brokers:
        assert listed(broker) == everybody(modular_cluster)
    audit = modular_cluster.zk_audit_log.read_text()
    assert "znode=/pulsar/loadbalance/brokers/" in audit
    assert "znode=/config/admin/policies/public/default" in audit


@pytest.mark.nightly
def test_a_paused_broker_leaves_and_comes_back(modular_cluster: Cluster) -> None:
    """SIGSTOP outlasts the session, so the others drop the broker; SIGCONT brings it back."""
    first, second = modular_cluster.brokers[:2]
    modular_cluster.pause(second.name)
    try:
        assert modular_cluster.alive(second.name)
        until(lambda: second.broker_id not in listed(first), "the paused broker is dropped", within=30)
    finally:
        modular_cluster.resume(second.name)
    until(lambda: second.broker_id in listed(first), "the resumed broker is back", within=30)


def test_a_killed_broker_restarts_at_the_same_address(modular_cluster: Cluster) -> None:
    """``restart`` returns only when the broker is ready and sees all others."""
    last = modular_cluster.brokers[-1]
    before = modular_cluster.pid(last.name)
    modular_cluster.kill(last.name)
    try:
        assert not modular_cluster.alive(last.name)
        with pytest.raises(ClusterError, match="is not running"):
            modular_cluster.pause(last.name)
    finally:
        modular_cluster.restart(last.name)
    assert modular_cluster.pid(last.name) != before
    assert listed(last) == everybody(modular_cluster)


def test_zookeeper_alone_starts_and_leaves_nothing() -> None:
    """``brokers=0`` is a ZooKeeper within seconds; stop removes process and data."""
    with Cluster(ClusterSpec(brokers=0)) as cluster:
        assert cluster.names == ["zookeeper"]
        host, port = cluster.zk_hosts.split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"ruok")
            assert connection.recv(16) == b"imok"
        pid, data = cluster.pid("zookeeper"), cluster.data_dir
    assert is_gone(pid)
    assert not data.exists()


def test_a_failed_start_names_the_process_and_leaves_nothing_running(tmp_path: Path) -> None:
    """The error is enough to know what to look at; a kept data directory keeps its logs."""
    cluster = Cluster(ClusterSpec(brokers=0, zk_settings={"tickTime": "soon"}, data_dir=tmp_path / "data"))
    with pytest.raises(ClusterError, match=r"zookeeper ended with exit code \d+") as failure:
        cluster.start()
    assert str(cluster.log("zookeeper")) in str(failure.value)
    assert cluster.log("zookeeper").is_file()
    assert not cluster.alive("zookeeper")


def test_children_die_with_a_killed_launcher() -> None:
    """SIGKILL of the launcher leaves no process, no cgroup and no data but the logs."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], env=environment, stdout=subprocess.PIPE, text=True
    ) as launcher:
        try:
            assert launcher.stdout is not None
            pid, data = launcher.stdout.readline().split()
        finally:
            launcher.send_signal(signal.SIGKILL)
    until(lambda: is_gone(int(pid)), "ZooKeeper died with its launcher", within=5)
    until(lambda: [p.name for p in Path(data).iterdir()] == ["logs"], "the data is removed", within=10)
    mine = f"bundlekeel-{launcher.pid}-*"
    until(lambda: not any(Path("/sys/fs/cgroup").glob(f"*/{mine}")), "the cgroups are removed", within=10)
    for log in (Path(data) / "logs").iterdir():
        log.unlink()
    (Path(data) / "logs").rmdir()
    Path(data).rmdir()
