"""The services of docker-compose.yml as plain processes: their commands, environment and mounted files, without a
container engine.

Every process has its own /etc/hosts, so that the names of the file are valid. Where processes of one machine differ
from containers, a comment explains the replacement. Not included: Grafana and the traffic of `pulsar-perf` (only their
images contain the programs), Spark (see tests/spark) and `history-owner` (there is no volume).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from dev.chart import ROOT
from dev.cluster import conf, probe
from dev.cluster.cluster import BOOKIE_MAIN, BROKER_MAIN, SETUP_MAIN, ZOOKEEPER_MAIN
from dev.cluster.jars import ensure_jars
from dev.cluster.process import Child, Spawner
from dev.cluster.spec import ClusterSpec
from dev.java import find_java
from dev.pulsar_releases import find_release
from dev.tools_prometheus import ToolsMissing, ensure
from tests.support.dockerfile import stages

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]

NUMBERS = (1, 2, 3)
BROKERS = [f"broker-{number}" for number in NUMBERS]
SIDECARS = [f"sidecar-{number}" for number in NUMBERS]
# Containers each have all ports for themselves; here each has an address.
HOSTS = {"localhost": "127.0.0.1", "zookeeper": "127.0.0.1", "bookie": "127.0.0.1", "prometheus": "127.0.2.21"}
HOSTS |= {name: f"127.0.2.{number}" for number, name in enumerate(BROKERS, 1)}
HOSTS |= {name: f"127.0.2.{number}" for number, name in enumerate(SIDECARS, 11)}
MAIN = {"zookeeper": ZOOKEEPER_MAIN, "bookie": BOOKIE_MAIN, "broker": BROKER_MAIN}
# bin/apply-config-from-env.py lays the environment over a file of the image, and bin/pulsar starts a program with it.
FROM_ENVIRONMENT = re.compile(r"bin/apply-config-from-env\.py conf/(\S+)\s+&& exec bin/pulsar (\w+)")
# With the names of the file, and ended by the kernel when whoever started it ends.
NAMED = 'mount --bind "$0" /etc/hosts && exec setpriv --pdeathsig KILL "$@"'
PATIENCE = 120.0


class Stack:
    """The file's services; those that were started run until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
        self._spawner, self._children = Spawner(), list[Child]()
        release = find_release()
        java = find_java(release.oldest_java)
        assert java is not None
        self._java = [str(java), f"-Dlog4j2.configurationFile={self._file('log4j2.xml', conf.log4j2_xml())}"]
        self._jars = ["-cp", f"{ensure_jars(release)[0].parent}/*"]
        self._hosts = self._file("hosts", "".join(f"{address} {name}\n" for name, address in HOSTS.items()))

    def start(self, name: str, command: list[str], ready: Callable[[], bool]) -> None:
        """Start a service, and wait until it is ready."""
        child = Child(name, [*_namespace(), str(self._hosts), *command], self.folder / f"{name}.log", self.folder)
        self._children.append(child)
        self._spawner.start(child)
        probe.wait_until(ready, child, PATIENCE)

    def pulsar(self, name: str, base: str) -> list[str]:
        """The command of one of Pulsar's servers; `base` stands for the file of the image."""
        file, program = FROM_ENVIRONMENT.findall(self.services[name]["command"][-1])[0]
        environment = self.services[name]["environment"]
        stood = dict(line.split("=", 1) for line in base.splitlines())
        settings = self._file(f"{name}-{file}", conf.properties(stood | self.settings(name)))
        memory = environment["BOOKIE_MEM" if program == "bookie" else "PULSAR_MEM"].split()
        flags = [*conf.jvm_flags(heap_mb=256, direct_mb=128), *memory, *conf.BOOKIE_DRIVERS]
        named = {"bookie": ["--conf"], "broker": ["--broker-conf"]}.get(program, [])
        return [*self._java, *flags, *self._jars, MAIN[program], *named, str(settings)]

    def settings(self, name: str) -> dict[str, str]:
        """Return the server's own settings from its environment."""
        return {key: value for key, value in self.services[name]["environment"].items() if not key.endswith("_MEM")}

    def initialise(self) -> None:
        """The service `metadata`, which ends by itself."""
        program, word, *arguments = self.services["metadata"]["command"]
        assert (program, word) == ("bin/pulsar", "initialize-cluster-metadata")
        command = [*_namespace(), str(self._hosts), *self._java, *self._jars, SETUP_MAIN, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout[-2000:]

    def sidecar(self, name: str) -> list[str]:
        """Return the command of the image, with the mounted settings file and default variables. Its four directories
        are below ours.
        """
        image = stages((ROOT / "Dockerfile").read_text("utf-8"))[-1]
        program, *arguments = json.loads(image.last("ENTRYPOINT")) + json.loads(image.last("CMD"))
        (settings,) = [m["source"] for m in self.services[name]["volumes"] if m["target"] == "/etc/bundlekeel"]
        own = self.folder / name
        variables = self.services[name]["environment"].items()
        environment = {
            **{key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for key, value in variables},
            "BUNDLEKEEL_CONFIG": ROOT / settings / "settings.yaml",
            "BUNDLEKEEL__MEMBER_ID": self.services[name]["hostname"],
            "BUNDLEKEEL__API__HOST": HOSTS[name],
            "BUNDLEKEEL__API__SOCKET": self.socket(name),
            "BUNDLEKEEL__JOURNAL__PATH": own / "journal.jsonl",
            "BUNDLEKEEL__HISTORY__URI": self.folder / "history",
            "BUNDLEKEEL__HISTORY__WAL": own / "history",
        }
        own.mkdir()
        assigned = [f"{key}={value}" for key, value in environment.items()]
        return ["env", *assigned, sys.executable, "-m", program, *arguments]

    def socket(self, name: str) -> Path:
        """Return the socket for a sidecar's health check."""
        return self.folder / f"{name}.sock"

    def healthy(self, name: str) -> bool:
        """The health check of the image."""
        check = [sys.executable, str(ROOT / "deploy" / "image" / "healthcheck.py")]
        environment = {**os.environ, "BUNDLEKEEL_SOCKET": str(self.socket(name))}
        return subprocess.run(check, env=environment, capture_output=True, check=False).returncode == 0

    def prometheus(self, program: Path) -> list[str]:
        """The command of the file, with its configuration; the rules are read where the file mounts them from."""
        mounts = {mount["target"]: ROOT / mount["source"] for mount in self.services["prometheus"]["volumes"]}
        text = mounts["/etc/prometheus/prometheus.yml"].read_text("utf-8")
        rules = "/etc/prometheus/rules"
        config = self._file("prometheus.yml", text.replace(rules, str(mounts[rules])))
        command = self.services["prometheus"]["command"]
        flags = [flag.replace("/etc/prometheus/prometheus.yml", str(config)) for flag in command]
        own = [f"--storage.tsdb.path={self.folder / 'tsdb'}", f"--web.listen-address={HOSTS['prometheus']}:9090"]
        return [str(program), *flags, *own]

    def close(self) -> None:
        """End all that was started, the last first."""
        for child in reversed(self._children):
            child.ask_to_stop()
            child.wait_or_kill(20.0)
        self._spawner.close(clean=True)

    def _file(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name


def _namespace() -> list[str]:
    """Starts a program in a mount namespace of its own; without root's rights as root of a user namespace."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [shutil.which("unshare") or "unshare", "--mount", *own, "sh", "-c", NAMED]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """ZooKeeper, bookie, three brokers and three sidecars, started in the order of `depends_on`."""
    folder = tmp_path_factory.mktemp("compose")
    hosts = folder / "try"
    hosts.touch()
    if shutil.which("unshare") is None or subprocess.run([*_namespace(), str(hosts), "true"], check=False).returncode:
        pytest.skip("a program can have no /etc/hosts of its own here: util-linux is missing, or namespaces are closed")
    running = Stack(folder)
    try:
        _start(running, folder)
        yield running
    finally:
        running.close()


def _start(stack: Stack, folder: Path) -> None:
    zookeeper = conf.zookeeper_conf(ClusterSpec(), folder / "zookeeper", 2181)
    stack.start(
        "zookeeper", stack.pulsar("zookeeper", zookeeper), lambda: probe.zookeeper_serves(HOSTS["zookeeper"], 2181)
    )
    stack.initialise()
    bookie = conf.bookie_conf(folder / "bookie", 3181, "")
    stack.start("bookie", stack.pulsar("bookie", bookie), lambda: probe.accepts(HOSTS["bookie"], 3181))
    for name in BROKERS:
        address = HOSTS[name]
        command = stack.pulsar(name, conf.properties({"bindAddress": address}))
        stack.start(name, command, lambda address=address: probe.broker_ready(address, 8080))
    for name in SIDECARS:
        stack.start(name, stack.sidecar(name), lambda name=name: stack.healthy(name))


def _ask(name: str, path: str, port: int = 8090) -> Any:
    """GET by the name that the file gives it, which a sidecar lets in as Host."""
    url = f"http://{HOSTS[name]}:{port}{path}"
    answer = httpx.get(url, headers={"Host": f"{name}:{port}"}, trust_env=False, timeout=20.0)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _eventually(holds: Callable[[], bool]) -> bool:
    """Whether it comes to hold while all run."""
    return any(holds() or time.sleep(1.0) for _ in range(60))


def _prometheus_ready() -> bool:
    """It answers 503 while it reads its rules."""
    try:
        return httpx.get(f"http://{HOSTS['prometheus']}:9090/-/ready", trust_env=False, timeout=5.0).status_code == 200
    except httpx.TransportError:
        return False


def test_brokers_have_the_settings_of_the_file(stack: Stack) -> None:
    """Each under its own name and in the file's cluster; a setting that Pulsar does not know would not be there."""
    for name in BROKERS:
        settings = stack.settings(name)
        runtime = _ask(name, "/admin/v2/brokers/configuration/runtime", 8080)
        assert {key: runtime.get(key) for key in settings} == settings
        assert set(_ask(name, f"/admin/v2/brokers/{settings['clusterName']}", 8080)) == {f"{b}:8080" for b in BROKERS}


def test_one_sidecar_leads_and_all_see_three_brokers(stack: Stack) -> None:
    """In the mode that the file sets."""
    assert _eventually(lambda: sorted(_ask(name, "/api/v1/state")["role"] for name in SIDECARS).count("leader") == 1)
    assert {_ask(name, "/api/v1/state")["mode"] for name in SIDECARS} == {"recommend"}
    for name in SIDECARS:
        assert _eventually(
            lambda name=name: (
                {row["broker"] for row in _ask(name, "/api/v1/brokers") if row["state"] == "ok"}
                == {f"{broker}:8080" for broker in BROKERS}
            )
        )


def test_prometheus_reaches_every_target_and_takes_the_rules(stack: Stack) -> None:
    """Three sidecars and three brokers, by name."""
    try:
        program = ensure()["prometheus"]
    except ToolsMissing as missing:
        pytest.skip(str(missing))
    stack.start("prometheus", stack.prometheus(program), _prometheus_ready)

    def up() -> bool:
        targets = _ask("prometheus", "/api/v1/targets", 9090)["data"]["activeTargets"]
        health = {target["labels"]["instance"]: target["health"] for target in targets}
        return health == {f"{b}:8080": "up" for b in BROKERS} | {f"{s}:8090": "up" for s in SIDECARS}

    assert _eventually(up)
    groups = _ask("prometheus", "/api/v1/rules", 9090)["data"]["groups"]
    assert {Path(group["file"]).name for group in groups} == {"alerts.yml", "recording.yml"}
