"""docker-compose.yml as Compose itself reads it (without an engine), and what it promises."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundlekeel import __version__
from bundlekeel.settings.load import load_settings
from dev.chart import ROOT
from dev.gotools import COMPOSE, ensure
from tests.support.dockerfile import stages

FOLDER = ROOT / "deploy" / "compose"
FILE = ROOT / "docker-compose.yml"
ONE_SHOT = {"metadata", "history-owner", "recalibrate"}
Service = dict[str, Any]


@functools.cache
def _services() -> dict[str, Service]:
    """All services as `docker compose config` prints them: anchors, short forms and relative paths resolved."""
    command = [str(ensure(COMPOSE)), "-f", str(FILE), "--profile", "*", "config", "--format", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    services: dict[str, Service] = json.loads(answer.stdout)["services"]
    return services


def test_compose_finds_mistakes(tmp_path: Path) -> None:
    """A check that takes anything proves nothing."""
    wrong = tmp_path / "docker-compose.yml"
    text = FILE.read_text(encoding="utf-8").replace(
        "prometheus: {condition: service_healthy}", "promteus: {condition: x}"
    )
    wrong.write_text(text, encoding="utf-8")
    answer = subprocess.run([str(ensure(COMPOSE)), "-f", str(wrong), "config", "-q"], capture_output=True, check=False)
    assert answer.returncode != 0


def test_everything_of_the_issue_is_there() -> None:
    """ZooKeeper, bookie, three brokers and sidecars, failsafe, Prometheus, Grafana, Spark, traffic."""
    services = {"zookeeper", "bookie", "failsafe", "prometheus", "grafana", "spark-master", "spark-worker", "traffic"}
    services |= {f"{kind}-{number}" for kind in ("broker", "sidecar") for number in (1, 2, 3)}
    assert set(_services()) == services | ONE_SHOT


def test_a_plain_up_is_the_try_out() -> None:
    """Without a profile: all but Spark, which has no part in looking at a cluster and is slow to build."""
    command = [str(ensure(COMPOSE)), "config", "--services"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(answer.stdout.split()) == {name for name in _services() if "spark" not in name} - {"recalibrate"}


def test_what_is_built_here_is_not_pulled() -> None:
    """Two sidecars use what the first one builds: a plain `up` on a fresh machine must not look for it elsewhere."""
    for name, service in _services().items():
        assert (service.get("pull_policy") == "never") is service["image"].startswith("bundlekeel"), name


def test_the_docs_say_what_the_file_has() -> None:
    """Ports and cluster name of docs/operations/docker.md are those of the files."""
    text = (ROOT / "docs" / "operations" / "docker.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"(?m)^ *\| `([a-z0-9-]+)` \| .*?`127\.0\.0\.1:(\d+)` \|", text))
    published = {name: service["ports"][0]["published"] for name, service in _services().items() if "ports" in service}
    assert rows == published
    settings = yaml.safe_load((FOLDER / "sidecar" / "settings.yaml").read_text(encoding="utf-8"))
    assert f"cluster `{settings['cluster']}`" in text
    for name in ("broker-1", "broker-2", "broker-3"):
        environment = _services()[name]["environment"]
        assert environment["clusterName"] == settings["cluster"]
        assert environment["metadataStoreUrl"] == settings["metadata_store"]
        assert environment["configurationMetadataStoreUrl"] == settings["configuration_store"]


def test_no_volume_is_left_without_a_name() -> None:
    """A mount covers each volume that an image declares: `down` leaves those without a name behind."""
    declared = {"bundlekeel": {"/var/lib/bundlekeel", "/run/bundlekeel"}, "prom/prometheus": {"/prometheus"}}
    for name, service in _services().items():
        mounted = {mount["target"] for mount in service.get("volumes", [])}
        mounted |= {entry.split(":")[0] for entry in service.get("tmpfs", [])}
        assert declared.get(service["image"].split(":")[0], set()) <= mounted, name


def test_images_are_pinned() -> None:
    """Images of others are pinned by release. Our images have the release of this tree. Each is built once, from an
    existing target.
    """
    targets = {stage.name for stage in stages((ROOT / "Dockerfile").read_text(encoding="utf-8"))}
    built = []
    for name, service in _services().items():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), name
        if service["image"].startswith("bundlekeel"):
            assert service["image"].endswith(f":{__version__}")
        if "build" in service:
            built.append(service["image"])
            build = service["build"]
            assert (Path(build["context"]) / build["dockerfile"]).is_file()
            assert build["target"] in targets
    assert sorted(built) == [f"bundlekeel-spark:{__version__}", f"bundlekeel:{__version__}"]


def test_every_service_that_stays_has_a_healthcheck() -> None:
    """And whoever waits for a healthy one waits for one that can be."""
    services = _services()
    for name, service in services.items():
        assert ("healthcheck" in service) is (name not in ONE_SHOT), name
        for other, how in (service.get("depends_on") or {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other]
            elif how["condition"] == "service_completed_successfully":
                assert other in ONE_SHOT


def test_what_is_ours_is_confined() -> None:
    """Like in Kubernetes: a read-only root file system, no capability, and only the listed places are writable."""
    for name, service in _services().items():
        if not service["image"].startswith("bundlekeel"):
            continue
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "user" not in service
        assert "privileged" not in service


def test_sidecars_have_the_time_to_end() -> None:
    """At least as long as the command of the page allows; moves in progress are waited for."""
    page = (ROOT / "docs" / "operations" / "docker.md").read_text(encoding="utf-8")
    (seconds,) = set(re.findall(r"--stop-timeout (\d+)", page))
    for number in (1, 2, 3):
        assert _services()[f"sidecar-{number}"]["stop_grace_period"] == f"{seconds}s"


def test_a_failsafe_runs_beside_the_sidecars() -> None:
    """After `MODE=act` and a takeover, another process must restore the shedding when all sidecars are stopped."""
    service = _services()["failsafe"]
    page = (ROOT / "docs" / "operations" / "docker.md").read_text(encoding="utf-8")
    assert f"bundlekeel:{__version__} {' '.join(service['command'])}\n" in page
    assert service["healthcheck"]["test"] == ["NONE"]
    assert service["volumes"] == _services()["sidecar-1"]["volumes"] and service["restart"] == "unless-stopped"


def test_java_may_load_what_it_unpacks() -> None:
    """An engine mounts a tmpfs `noexec` unless it is told otherwise; Spark's compression is such a library."""
    for name in ("spark-master", "spark-worker", "recalibrate"):
        (folder,) = [item for item in _services()[name]["tmpfs"] if item.startswith("/tmp:")]
        assert "exec" in folder.partition(":")[2].split(",")
    page = (ROOT / "docs" / "operations" / "recalibrate.md").read_text(encoding="utf-8")
    assert "--tmpfs /tmp:exec " in page


def test_nothing_listens_beyond_this_machine() -> None:
    """It is a thing to look at, without any authentication."""
    published = [port for service in _services().values() for port in service.get("ports", [])]
    assert len(published) >= 6
    assert all(port["host_ip"] == "127.0.0.1" for port in published)
    assert len({port["published"] for port in published}) == len(published)


def test_every_service_has_a_limit_of_memory() -> None:
    """The services share a laptop with other programs."""
    assert [name for name, service in _services().items() if "mem_limit" not in service] == []


def test_no_check_starts_a_jvm() -> None:
    """Every few seconds, on each broker."""
    checks = [" ".join(service["healthcheck"]["test"]) for service in _services().values() if "healthcheck" in service]
    assert [check for check in checks if "pulsar-admin" in check or "bookkeeper" in check] == []


def test_a_port_that_is_taken_can_be_another() -> None:
    """Each has a variable of its own, and its default."""
    ports = re.findall(r'ports: \["127\.0\.0\.1:(.*?):\d+"\]', FILE.read_text(encoding="utf-8"))
    variables = [re.fullmatch(r"\$\{([A-Z0-9_]+_PORT):-\d+\}", port) for port in ports]
    assert len(ports) >= 6
    assert all(variables)
    assert len({match[1] for match in variables if match}) == len(ports)


def test_mounted_files_exist() -> None:
    """An engine would make a folder of a missing file."""
    for name, service in _services().items():
        for mount in service.get("volumes", []):
            if mount["type"] == "bind":
                assert Path(mount["source"]).exists(), f"{name}: {mount['source']}"
                assert mount["read_only"] is True


def test_settings_are_mounted_as_a_folder() -> None:
    """A mounted file stays the old one when an editor renames a new file over it; sidecars read a change again."""
    path = Path(re.findall(r"BUNDLEKEEL_CONFIG=(\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))[0])
    for number in (1, 2, 3):
        mounts = {mount["target"]: Path(mount["source"]) for mount in _services()[f"sidecar-{number}"]["volumes"]}
        assert (mounts[str(path.parent)] / path.name).is_file()
    page = (ROOT / "docs" / "operations" / "docker.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--volume \S+:(/etc/\S+?):ro", page)) == {str(path.parent)}


def test_prometheus_asks_every_sidecar_and_broker_and_knows_the_rules() -> None:
    """Names are those of services, ports those they listen on."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert targets["bundlekeel"] == [f"sidecar-{number}:8090" for number in (1, 2, 3)]
    assert targets["pulsar"] == [f"broker-{number}:8080" for number in (1, 2, 3)]
    settings = yaml.safe_load((FOLDER / "sidecar" / "settings.yaml").read_text(encoding="utf-8"))
    for job in config["scrape_configs"]:
        assert job["static_configs"][0]["labels"] == {"cluster": settings["cluster"]}
    mounts = {mount["target"]: Path(mount["source"]) for mount in _services()["prometheus"]["volumes"]}
    (pattern,) = config["rule_files"]
    folder, _, glob = pattern.rpartition("/")
    assert {path.name for path in mounts[folder].glob(glob)} == {"alerts.yml", "recording.yml"}


def test_grafana_shows_the_committed_dashboards() -> None:
    """The folder it reads is the one mounted; its source of data is the Prometheus of this file."""
    mounts = {mount["target"]: Path(mount["source"]) for mount in _services()["grafana"]["volumes"]}
    provider = yaml.safe_load((FOLDER / "grafana" / "dashboards.yml").read_text(encoding="utf-8"))["providers"][0]
    assert len(list(mounts[provider["options"]["path"]].glob("*.json"))) >= 5
    home = Path(_services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (mounts[str(home.parent)] / home.name).is_file()
    source = yaml.safe_load((FOLDER / "grafana" / "datasources.yml").read_text(encoding="utf-8"))["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"] is True


def test_sidecars_are_told_apart_and_beside_their_brokers() -> None:
    """Each has its own name, which the settings let in as Host, and waits for its broker."""
    allowed = yaml.safe_load((FOLDER / "sidecar" / "settings.yaml").read_text(encoding="utf-8"))["api"]["allowed_hosts"]
    for number in (1, 2, 3):
        service = _services()[f"sidecar-{number}"]
        assert service["hostname"] == f"sidecar-{number}"
        assert service["hostname"] in allowed
        assert f"broker-{number}" in service["depends_on"]


def test_links_of_dashboards_lead_to_a_sidecar() -> None:
    """The links contain the address of a dashboard: a port that this machine publishes."""
    published = {port["published"] for name, item in _services().items() if "sidecar" in name for port in item["ports"]}
    dashboards = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "deploy" / "dashboards").glob("*.json"))
    linked = set(re.findall(r"http://localhost:(\d+)/ui/", dashboards))
    assert linked and linked <= published


def test_the_mode_is_a_variable() -> None:
    """Read from the environment by the settings' own name; no file has to be changed."""
    command = [str(ensure(COMPOSE)), "config", "--format", "json"]
    for env, mode in ({}, "recommend"), ({"MODE": "act"}, "act"):
        environment = {key: value for key, value in os.environ.items() if key != "MODE"} | env
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
        services = json.loads(answer.stdout)["services"]
        for number in (1, 2, 3):
            variables = services[f"sidecar-{number}"]["environment"]
            assert load_settings(FOLDER / "sidecar" / "settings.yaml", environ=variables).settings.mode == mode


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_traffic_ends_when_one_of_its_clients_does(shell: str, tmp_path: Path) -> None:
    """So that the engine starts it again; whichever shell the image has."""
    (tmp_path / "bin").mkdir()
    for name, does in (("pulsar-admin", "true"), ("pulsar-perf", 'case "$*" in *large*) sleep 1;; *) sleep 60;; esac')):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    with subprocess.Popen([shell, str(FOLDER / "traffic.sh")], cwd=tmp_path, start_new_session=True) as run:
        try:
            assert run.wait(timeout=45) == 1
        finally:
            os.killpg(run.pid, signal.SIGKILL)
