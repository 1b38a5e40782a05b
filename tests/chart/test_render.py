"""Helm takes the chart and every file of values; Kubernetes' own schemas take what comes out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dev.chart import CHART, KUBERNETES, differing
from dev.gotools import HELM, HELM_UNITTEST, KUBECONFORM, ensure
from tests.support.chart import (
    CASES,
    OPERATOR_KINDS,
    apache_statefulset,
    broker_values,
    of_kind,
    rendered,
    schema_folder,
)

REQUIRED = {
    "default",
    "apache-sidecar",
    "jwt-tls",
    "extensible",
    "history-recalibrate",
    "deadman-only",
    "networkpolicy",
    "prometheus-operator",
}


def test_the_cases_of_the_issue_are_there() -> None:
    """A case that is deleted would otherwise pass."""
    assert set(CASES) >= REQUIRED


def test_helm_lint_with_every_case() -> None:
    """Lint knows things that template does not (Chart.yaml, names of files)."""
    for case in CASES:
        values = CHART / "ci" / f"{case}-values.yaml"
        command = [str(ensure(HELM)), "lint", "--strict", "--kube-version", KUBERNETES, "-f", str(values), str(CHART)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, f"{case}: {answer.stdout}{answer.stderr}"


def test_helm_unittest() -> None:
    """The chart's own tests, which users of it can run without Python."""
    answer = subprocess.run([str(ensure(HELM_UNITTEST)), str(CHART)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert re.search(r"Tests: +[1-9]\d* passed", answer.stdout), answer.stdout


def test_older_kubernetes_is_refused() -> None:
    """Without native sidecars an init container with restartPolicy Always would never let the broker start."""
    command = [str(ensure(HELM)), "template", "keel", str(CHART), "--kube-version", "1.28.9"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "incompatible with Kubernetes" in answer.stderr


def _conform(schemas: Path, manifests: Path) -> subprocess.CompletedProcess[str]:
    place = f"{schemas}/{{{{.NormalizedKubernetesVersion}}}}-local{{{{.StrictSuffix}}}}"
    command = [
        str(ensure(KUBECONFORM)),
        "-strict",
        "-summary",
        "-kubernetes-version",
        KUBERNETES,
        "-schema-location",
        f"{place}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        "-skip",
        ",".join(OPERATOR_KINDS),
        str(manifests),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return schema_folder(tmp_path_factory.mktemp("schemas"))


def test_kubernetes_takes_every_object(schemas: Path, tmp_path: Path) -> None:
    """Types, unknown fields, required ones; also of broker pods with our sidecar, and of Spark's executors."""
    count = 0
    for case in CASES:
        objects = [*rendered(case)]
        for name, make in (("keel-bundlekeel-sidecar", None), ("keel-bundlekeel-executor", "executor.yaml")):
            data = next((item["data"] for item in objects if item["metadata"]["name"] == name), {})
            if (make or "broker-values.yaml") in data:
                objects.append(yaml.safe_load(data[make]) if make else apache_statefulset(broker_values(case)))
        for item in objects:
            # kubeconform wants names in pods; Spark gives them.
            item.get("metadata", {}).setdefault("name", "executor")
        (tmp_path / f"{case}.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        count += len(objects)
    answer = _conform(schemas, tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"{count} resources found" in answer.stdout


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [(("spec", "replicas"), "three", "replicas"), (("spec", "replicaCount"), 3, "replicaCount")],
)
def test_the_schemas_find_mistakes(
    schemas: Path, tmp_path: Path, path: tuple[str, str], value: object, named: str
) -> None:
    """Schemas that let anything pass would prove nothing."""
    item = yaml.safe_load(yaml.safe_dump(of_kind("default", "Deployment")))
    item[path[0]][path[1]] = value
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(item), encoding="utf-8")
    answer = _conform(schemas, tmp_path)
    assert answer.returncode != 0
    assert named in answer.stdout


def test_made_files_are_current() -> None:
    """README, values for the Apache chart, copies of rules and dashboards: `python -m dev.chart write`."""
    assert differing() == []
