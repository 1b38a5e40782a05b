"""A change of settings reaches running pods without a restart, where the sidecar takes it without one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bundlekeel.settings.parameters import TOP_LEVEL
from dev.chart import CHART, render
from tests.support.chart import CASES, Object, Pod, broker_values, of_kind, pods

LIVE = {
    "strategy": "threshold",
    "placement": "avg",
    "compat": "4.2",
    "parameters": {"max_moves_per_hour": 20},
}


def _template(*arguments: str) -> Object:
    output = render("keel", CHART / "ci" / "default-values.yaml", *arguments)
    (deployment,) = [item for item in output if item["kind"] == "Deployment"]
    return dict(deployment["spec"]["template"])


def _with_settings() -> Iterator[Pod]:
    for case in CASES:
        yield from pods(case)
        if case in ("apache-sidecar", "jwt-tls", "customized"):
            values = broker_values(case)
            yield Pod(f"{case}: broker", {**values, "containers": [], "volumes": values["extraVolumes"]}, {})


@pytest.mark.parametrize("pod", list(_with_settings()), ids=lambda pod: pod.owner)
def test_settings_are_mounted_as_a_folder(pod: Pod) -> None:
    """The kubelet never renews a file mounted with subPath. Nothing else is mounted into that read-only folder."""
    folder = {"name": "bundlekeel-settings", "mountPath": "/etc/bundlekeel", "readOnly": True}
    for container in pod.containers:
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert not any("subPath" in mount for mount in mounts.values())
        # `plan` asks a sidecar, and reads no settings.
        assert mounts.get("/etc/bundlekeel") == (None if container["name"] == "plan" else folder)
        assert not [path for path in mounts if path.startswith("/etc/bundlekeel/")]


@pytest.mark.parametrize("key", sorted({"parameters", *TOP_LEVEL}))
def test_what_is_read_again_replaces_no_pod(key: str) -> None:
    """The leader keeps its leadership."""
    changed = _template("--set-json", f"settings.{key}={json.dumps(LIVE[key])}")
    assert changed == _template()


@pytest.mark.parametrize("value", ["mode=act", "settings.cycle.interval=20s", "pulsar.cluster=other"])
def test_what_needs_a_restart_gets_one(value: str) -> None:
    """The sidecar would only say so."""
    assert _template("--set", value) != _template()


def test_the_settings_file_is_where_the_image_looks_for_it() -> None:
    """So that commands in a pod need no `-c`."""
    assert list(of_kind("default", "ConfigMap", "keel-bundlekeel")["data"]) == ["settings.yaml"]
    assert "BUNDLEKEEL_CONFIG=/etc/bundlekeel/settings.yaml" in (CHART.parents[2] / "Dockerfile").read_text("utf-8")
