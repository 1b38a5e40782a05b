"""The pure parts of the local cluster: what it writes, which ports it takes, how it refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dev.cluster import Cluster, ClusterError, ClusterSpec
from dev.cluster.cgroups import cgroup_mounts, open_groups, write_quota
from dev.cluster.cli import build_parser, foreground_flags, parse_settings
from dev.cluster.conf import BOOKIE_DIRECT_MB, bookie_conf, broker_conf, jvm_flags, log4j2_xml, zookeeper_conf
from dev.cluster.janitor import remove_data
from dev.cluster.ports import free_ports
from dev.cluster.process import Child, Spawner, telling_lines
from dev.cluster.spec import broker_info
from dev.pulsar_releases import RELEASES, UnknownReleaseError

METADATA, CONFIGURATION = "zk:127.0.0.1:1/pulsar", "zk:127.0.0.1:1/config"


def parsed(text: str) -> dict[str, str]:
    """Read ``key=value`` lines back."""
    return dict(line.split("=", 1) for line in text.splitlines())


def rendered(spec: ClusterSpec, number: int = 1) -> dict[str, str]:
    """Render one broker.conf and read it back."""
    return parsed(broker_conf(spec, broker_info(number, 8080, 6650, spec.advertise), METADATA, CONFIGURATION))


def test_brokers_bind_different_hosts() -> None:
    """Isolation policies and metric labels tell brokers apart by host, so hosts must differ."""
    assert rendered(ClusterSpec(), 1)["bindAddress"] == "127.0.1.1"
    assert rendered(ClusterSpec(), 3)["advertisedAddress"] == "127.0.1.3"


def test_stores_are_separate_chroots() -> None:
    """The local metadata and the configuration store are two paths, as in production."""
    conf = rendered(ClusterSpec())
    assert (conf["metadataStoreUrl"], conf["configurationMetadataStoreUrl"]) == (METADATA, CONFIGURATION)


def test_proxied_brokers_advertise_another_host_for_http_only() -> None:
    """A recording proxy sees every admin call and never the binary protocol."""
    spec = ClusterSpec(advertise="proxy")
    conf, broker = rendered(spec, 2), broker_info(2, 8080, 6650, "proxy")
    assert (conf["bindAddress"], conf["advertisedAddress"]) == ("127.0.1.2", "127.0.0.12")
    assert conf["advertisedListeners"] == "internal:pulsar://127.0.1.2:6650"
    assert (broker.broker_id, broker.service_url) == ("127.0.0.12:8080", "pulsar://127.0.1.2:6650")
    assert (broker.web_url, broker.bind_web_url) == ("http://127.0.0.12:8080", "http://127.0.1.2:8080")


def test_stock_statistics_leave_the_pace_to_pulsar() -> None:
    """``fast_stats=False`` writes none of the pace settings, so Pulsar's defaults hold."""
    assert rendered(ClusterSpec())["statsUpdateFrequencyInSecs"] == "1"
    assert "statsUpdateFrequencyInSecs" not in rendered(ClusterSpec(fast_stats=False))


def test_mode_chooses_the_load_manager_and_its_shedder() -> None:
    """The extensible manager gets a shedder it can load."""
    assert rendered(ClusterSpec(mode="modular"))["loadManagerClassName"].endswith(".ModularLoadManagerImpl")
    conf = rendered(ClusterSpec(mode="extensible"))
    assert conf["loadManagerClassName"].endswith(".ExtensibleLoadManagerImpl")
    assert conf["loadBalancerLoadSheddingStrategy"].endswith(".TransferShedder")


def test_settings_of_the_spec_win() -> None:
    """A test can override every line this package writes."""
    spec = ClusterSpec(broker_settings={"statsUpdateFrequencyInSecs": "7"}, zk_settings={"tickTime": "9"})
    assert rendered(spec)["statsUpdateFrequencyInSecs"] == "7"
    assert parsed(zookeeper_conf(spec, Path("d"), 1))["tickTime"] == "9"


def test_zookeeper_and_bookie_listen_on_loopback_only() -> None:
    """Nothing of the cluster is reachable from another machine."""
    assert parsed(zookeeper_conf(ClusterSpec(), Path("d"), 1))["clientPortAddress"] == "127.0.0.1"
    assert parsed(bookie_conf(Path("d"), 1, METADATA))["listeningInterface"] == "lo"


def test_a_journal_that_stands_still_does_not_end_the_bookie() -> None:
    """Each waiting entry keeps its read buffer: at BookKeeper's 64 KiB two seconds of demo traffic filled the direct
    memory.
    """
    conf = parsed(bookie_conf(Path("d"), 1, METADATA))
    waiting = int(conf["maxAddsInProgressLimit"]) * int(conf["byteBufAllocatorSizeMax"])
    assert 0 < waiting <= BOOKIE_DIRECT_MB * 2**20


def test_what_has_ended_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    """Loads of 0 and nothing in the demo's output said that the bookie was gone."""
    cluster = Cluster(ClusterSpec())
    log = tmp_path / "bookie.log"
    log.write_text("started\nERROR BookieService - Unable to allocate memory, exiting bookie\n")
    spawner = Spawner()
    for name, code in (("bookie", "raise SystemExit(1)"), ("zookeeper", "import time; time.sleep(60)")):
        child = Child(name, [sys.executable, "-c", code], log, tmp_path)
        spawner.start(child)
        cluster._children[name] = child
    cluster._children["bookie"].wait_or_kill(20.0)
    failures = cluster.failures()
    cluster._children["zookeeper"].kill()
    spawner.close(clean=True)
    assert list(failures) == ["bookie"]
    assert str(failures["bookie"]).startswith(f"bookie has ended; its log {log} says:")
    assert "Unable to allocate memory" in str(failures["bookie"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_ends_in_order(number: signal.Signals) -> None:
    """Also where a script started it with `&`, which lets SIGINT be ignored; a second signal breaks into nothing."""
    code = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from dev.demo.__main__ import end_in_order\n"
        "end_in_order()\n"
        "try:\n print('up', flush=True); time.sleep(60)\n"
        "finally:\n print('stopping', flush=True); time.sleep(0.5); print('stopped')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as demo:
        assert demo.stdout is not None
        for expected in ("up", "stopping"):
            assert demo.stdout.readline().strip() == expected
            demo.send_signal(number)
        assert demo.stdout.read().strip() == "stopped"


def test_audit_goes_to_its_own_file() -> None:
    """The audit logger is separate, and absent where there is no audit file."""
    assert 'fileName="a.log"' in log4j2_xml(Path("a.log"))
    assert "audit" not in log4j2_xml()


def test_jvms_may_read_their_cgroup() -> None:
    """Without this package opened a broker reports the CPU limit of the whole host."""
    assert "--add-opens=java.base/jdk.internal.platform=ALL-UNNAMED" in jvm_flags(heap_mb=1, direct_mb=1)


@pytest.mark.parametrize(
    "wrong", [{"brokers": -1}, {"brokers": 10}, {"mode": "simple"}, {"advertise": "nat"}, {"cpu_quota_cores": 0.0}]
)
def test_impossible_specs_are_refused(wrong: dict[str, object]) -> None:
    """A wrong value is named at once, not discovered by a broker."""
    with pytest.raises(ClusterError, match=next(iter(wrong))):
        ClusterSpec(**wrong)  # type: ignore[arg-type]


def test_free_ports_are_distinct_and_free() -> None:
    """Every chosen port can be bound, on any loopback address."""
    ports = free_ports(8)
    assert len(set(ports)) == 8
    for number, port in enumerate(ports, 1):
        with socket.socket() as probe:
            probe.bind((f"127.0.1.{number}", port))


def test_cgroup_mounts_of_both_versions_are_found() -> None:
    """cpu and cpuacct may be one v1 hierarchy or two; v2 is one mount."""
    text = (
        "1 0 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "2 0 0:2 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "3 0 0:3 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
        "4 0 0:4 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    v1, v2 = cgroup_mounts(text)
    assert v1 == [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpuacct")]
    assert v2 == Path("/sys/fs/cgroup/unified")


def test_without_cgroups_isolation_is_none() -> None:
    """A machine without writable cgroups says so instead of failing."""
    assert open_groups(mountinfo="").isolation == "none"
    unwritable = "1 0 0:1 / /nowhere/cpu rw - cgroup cgroup rw,cpu\n2 0 0:1 / /nowhere/all rw - cgroup2 cgroup2 rw\n"
    assert open_groups(mountinfo=unwritable).isolation == "none"


@pytest.mark.parametrize("present", ["cpu.max", "cpu.cfs_quota_us"])
def test_quota_is_written_in_the_words_of_the_hierarchy(tmp_path: Path, present: str) -> None:
    (tmp_path / present).touch()
    write_quota(tmp_path, 0.25)
    assert (tmp_path / present).read_text().startswith("25000")


def test_telling_lines_prefer_errors(tmp_path: Path) -> None:
    """A failure quotes what looks like an error, or the end of the log when nothing does."""
    log = tmp_path / "x.log"
    assert telling_lines(log) == ["(no log was written)"]
    log.write_text("one\ntwo\n")
    assert telling_lines(log) == ["one", "two"]
    log.write_text("one\nERROR two\nthree\n")
    assert telling_lines(log) == ["ERROR two"]


@pytest.mark.parametrize("spare_logs", [True, False])
def test_janitor_spares_the_logs_of_a_crash(tmp_path: Path, spare_logs: bool) -> None:
    """After a crash the logs stay, after a clean stop nothing does."""
    data = tmp_path / "data"
    (data / "logs").mkdir(parents=True)
    (data / "bookie").mkdir()
    remove_data(data, data / "logs" if spare_logs else None)
    assert [entry.name for entry in tmp_path.rglob("*")] == (["data", "logs"] if spare_logs else [])


def test_detached_launcher_gets_the_same_request() -> None:
    """``--detach`` passes every flag but itself to the launcher."""
    line = [
        "--pulsar",
        "5.0",
        "up",
        "--brokers",
        "2",
        "--mode",
        "extensible",
        "--stock-stats",
        "--cpu-quota",
        "0.5",
        "--set",
        "a=b",
    ]
    assert foreground_flags(build_parser().parse_args([*line, "--detach"])) == line


def test_the_environment_selects_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every suite makes its cluster without naming a release; an unknown one is refused with those that run here."""
    assert ClusterSpec().release.line == "4.2"
    monkeypatch.setenv("PULSAR", "5.0")
    assert ClusterSpec().release == RELEASES["5.0"]
    monkeypatch.setenv("PULSAR", "3.0")
    with pytest.raises(UnknownReleaseError, match=r"PULSAR is 4\.2 or 5\.0, not '3\.0'"):
        ClusterSpec()


def test_settings_on_the_command_line() -> None:
    """A value may hold "=", a key must have one."""
    assert parse_settings(["a=b=c"]) == {"a": "b=c"}
    with pytest.raises(ClusterError, match="KEY=VALUE"):
        parse_settings(["a"])
