"""Only the driver of Spark may create pods; images can be named by a digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.chart import CHART, render
from tests.support.chart import Object, pods_of


def _spark(values: Object, folder: Path) -> list[Object]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return render("keel", CHART / "ci" / "spark-kubernetes-values.yaml", "-f", str(file))


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
    drivers = {name: found for name, found in accounts.items() if "recalibrate" in name}
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
