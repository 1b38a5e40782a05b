"""Only the driver of Spark may create pods; images can be named by a digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.chart import CHART, render
from tests.support.chart import Object, pods_of


def _rendered(case: str, values: Object, folder: Path) -> list[Object]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return render("keel", CHART / "ci" / f"{case}-values.yaml", "-f", str(file))


def _spark(values: Object, folder: Path) -> list[Object]:
    return _rendered("spark-kubernetes", values, folder)


def _rules(objects: list[Object], account: str) -> list[Any]:
    roles = {item["metadata"]["name"]: item["rules"] for item in objects if item["kind"] == "Role"}
    bindings = [item for item in objects if item["kind"] == "RoleBinding"]
    return [
        rule
        for binding in bindings
        if account in {subject["name"] for subject in binding["subjects"]}
        for rule in roles[binding["roleRef"]["name"]]
    ]


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize(
    "account", [{}, {"serviceAccount": {"create": False, "name": "mine"}, "recalibrate": {"spark": {"account": "own"}}}]
)
def test_s18_only_the_driver_may_create_pods(events: bool, account: Object, tmp_path: Path) -> None:
    """Events and Spark are both enabled: sidecars may write events, and have no other right."""
    objects = _spark({"kubernetesEvents": {"enabled": events}, **account}, tmp_path)
    accounts = {pod.owner: pod.spec["serviceAccountName"] for pod in pods_of("all", objects)}
    drivers = {name: service_account for name, service_account in accounts.items() if "recalibrate" in name}
    assert len(drivers) == 1 and not set(drivers.values()) & {accounts[name] for name in accounts.keys() - drivers}
    (driver,) = drivers.values()
    assert "pods" in _rules(objects, driver)[0]["resources"]
    for sidecar in set(accounts.values()) - {driver}:
        rules = _rules(objects, sidecar)
        assert [rule["resources"] for rule in rules] == ([["events"]] if events else [])
    created = {item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"}
    assert driver in created or account


@pytest.mark.parametrize(
    "values",
    [
        {"serviceAccount": {"create": False, "name": "mine"}},
        {"serviceAccount": {"name": "mine"}, "recalibrate": {"spark": {"account": "mine"}}},
        {"recalibrate": {"spark": {"account": "keel-bundlekeel"}}},
    ],
)
def test_s18_sidecars_and_the_driver_need_two_accounts(values: Object, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"recalibrate\.spark\.account"):
        _spark(values, tmp_path)


@pytest.mark.parametrize("section", [[], ["recalibrate"]])
def test_s18_images_by_digest(section: list[str], tmp_path: Path) -> None:
    """The digest wins over the tag, in every pod that uses the image."""
    digest = "sha256:" + "0" * 64
    values: Object = {"image": {"repository": "r", "tag": "t", "digest": digest}}
    objects = _spark({"recalibrate": values} if section else values, tmp_path)
    images = {(pod.owner, item["image"]) for pod in pods_of("all", objects) for item in pod.spec["containers"]}
    assert {image for owner, image in images if ("recalibrate" in owner) == bool(section)} == {f"r@{digest}"}


_CLUSTER = {"settings": None, "tmp": None, "token": {"token"}, "cert": {"tls.crt", "tls.key"}, "ca": {"ca.crt"}}
_CLUSTER |= {"secrets": {"store__sasl_password"}}
_API = {"auth": {"tokens", "peer"}, "api-tls": None}
_RUN = {"run": None, "data": None}


@pytest.mark.parametrize("client_certificate", [True, False])
@pytest.mark.parametrize("running", [True, False])
def test_s18_jobs_mount_what_their_command_opens(running: bool, client_certificate: bool, tmp_path: Path) -> None:
    """For each container: the volumes, and the files of each secret. Every volume of a pod is mounted by a
    container.
    """
    values: Object = {
        "recommend": {"enabled": True},
        "deadman": {"enabled": True},
        "handback": {"onUninstall": running},
        "deployment": {"enabled": running},
        "settings": {"store": {"sasl_username": "keel"}},
        "api": {
            "auth": {"existingSecret": "api"},
            "tls": {"existingSecret": "api-tls", "requireClientCertificate": client_certificate},
        },
        "pulsar": {
            "jwt": {"existingSecret": "jwt"},
            "sasl": {"existingSecret": "sasl"},
            "tls": {"brokers": True, "zookeeper": True, "caSecret": "ca", "certSecret": "cert"},
        },
    }
    pair = {"tls.crt", "tls.key"} if client_certificate else set()
    over_tcp: Object = {"tmp": None, "auth": {"peer"}, "api-tls": {"ca.crt", *pair}}
    mounts: Object = {
        "deadman": _CLUSTER,
        "handback": _CLUSTER,
        "plan": over_tcp if running else {"tmp": None, "run": None},
        "bundlekeel": _CLUSTER | _API | _RUN,
        "doctor": _CLUSTER | _API | _RUN,
    }
    jobs: set[str] = set()
    for pod in pods_of("all", _rendered("default", values, tmp_path)):
        volumes = {item["name"].removeprefix("bundlekeel-"): item for item in pod.spec["volumes"]}
        mounted = {item["name"]: {mount["name"] for mount in item["volumeMounts"]} for item in pod.containers}
        assert set().union(*mounted.values()) == {item["name"] for item in volumes.values()}
        for name, names in mounted.items():
            keys = {
                mount: {item["path"] for item in items} if (items := volume.get("secret", {}).get("items")) else None
                for mount, volume in volumes.items()
                if f"bundlekeel-{mount}" in names
            }
            assert keys == mounts[name], (pod.owner, name)
            jobs.add(name)
    assert jobs >= {"deadman", "handback", "plan", "bundlekeel"}
