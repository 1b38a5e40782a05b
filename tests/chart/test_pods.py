"""A setting for pods reaches every pod of the chart, Spark's executors included."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dev.chart import CHART, render
from tests.support.chart import Object, Pod, pods_of, rendered

SHARED = {
    "nodeSelector": {"pool": "pulsar"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "priorityClassName": "high",
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["zk1"]}],
    "dnsConfig": {"searches": ["pulsar.example"]},
}
NODES: Object = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
ADDED = {
    **SHARED,
    "imagePullSecrets": [{"name": "mirror"}],
    "affinity": NODES,
    "podAnnotations": {"example.com/scrape": "no"},
    "podLabels": {"team": "messaging"},
    "extraEnvFrom": [{"secretRef": {"name": "proxy"}}],
    "deadman": {"enabled": True},
    "recommend": {"enabled": True},
}


def _render(case: str, values: Object, folder: Path) -> list[Object]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return render("keel", CHART / "ci" / f"{case}-values.yaml", "-f", str(file))


def _pods(objects: list[Object]) -> list[Pod]:
    executor = next(item for item in objects if item["metadata"]["name"] == "keel-bundlekeel-executor")
    template = yaml.safe_load(executor["data"]["executor.yaml"])
    return [*pods_of("all", objects), Pod("executor", template["spec"], template["metadata"])]


def test_scheduling_reaches_every_pod(tmp_path: Path) -> None:
    """On a cluster whose nodes are all tainted the failsafe would wait for ever while the Deployment runs."""
    pods = _pods(_render("spark-kubernetes", ADDED, tmp_path))
    owners = {pod.owner.rpartition("-")[2].rpartition(" ")[2] for pod in pods}
    assert owners == {"bundlekeel", "deadman", "handback", "uninstall", "recalibrate", "1", "test", "executor"}
    for pod in pods:
        assert {key: pod.spec.get(key) for key in SHARED} == SHARED, pod.owner
        assert pod.spec["imagePullSecrets"] == [{"name": "mirror"}], pod.owner
        assert pod.spec["affinity"]["nodeAffinity"] == NODES["nodeAffinity"], pod.owner
        assert pod.metadata["labels"]["team"] == "messaging", pod.owner
        assert pod.metadata["annotations"]["example.com/scrape"] == "no", pod.owner


@pytest.mark.parametrize(
    ("section", "pods"),
    [
        ("recalibrate", ["executor", "recalibrate"]),
        ("deadman", ["deadman"]),
        ("handback", ["handback", "uninstall"]),
    ],
)
def test_jobs_may_run_on_nodes_of_their_own(section: str, pods: list[str], tmp_path: Path) -> None:
    """Driver and executors need far more memory than all else; the failsafe is safest where no candidate runs."""
    own: Object = {"nodeSelector": {"pool": "batch"}, "tolerations": [{"key": "batch", "operator": "Exists"}]}
    own |= {"affinity": {"podAffinity": {}}}
    job_pods = _pods(_render("spark-kubernetes", ADDED | {section: own}, tmp_path))
    batch = [pod for pod in job_pods if pod.spec["nodeSelector"] == own["nodeSelector"]]
    assert sorted(pod.owner.rpartition("-")[2] for pod in batch) == pods
    for pod in batch:
        assert pod.spec["tolerations"] == own["tolerations"], pod.owner
        assert "podAffinity" in pod.spec["affinity"] and "nodeAffinity" not in pod.spec["affinity"], pod.owner


def test_the_failsafe_stays_apart_from_the_candidates(tmp_path: Path) -> None:
    """With affinity of a person's own as well, unless that says something else about pods."""
    pods = _pods(_render("spark-kubernetes", ADDED, tmp_path))
    apart = [pod.owner.rpartition("-")[2] for pod in pods if "podAntiAffinity" in pod.spec["affinity"]]
    assert apart == ["deadman"]


def test_a_cluster_may_assign_the_user(tmp_path: Path) -> None:
    """OpenShift refuses pods that name one; all else stays as confined."""
    left_out = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
    for pod in _pods(_render("spark-kubernetes", ADDED | {"podSecurityContext": left_out}, tmp_path)):
        assert not left_out.keys() & pod.spec["securityContext"].keys(), pod.owner
        assert pod.spec["securityContext"]["runAsNonRoot"] is True, pod.owner
        assert not any("runAsUser" in item["securityContext"] for item in pod.containers), pod.owner


def test_environment_from_a_secret_reaches_every_container(tmp_path: Path) -> None:
    """Executors get theirs from Spark."""
    for pod in _pods(_render("spark-kubernetes", ADDED, tmp_path)):
        if pod.owner != "executor":
            assert all(item["envFrom"] == ADDED["extraEnvFrom"] for item in pod.containers), pod.owner


def test_resources_of_candidates_are_where_people_look(tmp_path: Path) -> None:
    """And of nothing else: the jobs need less."""
    objects = _render("default", {"resources": {"limits": {"memory": "1Gi"}}}, tmp_path)
    memory = {pod.owner: pod.containers[0]["resources"]["limits"]["memory"] for pod in pods_of("x", objects)}
    assert [owner for owner, limit in memory.items() if limit == "1Gi"] == ["x: Deployment keel-bundlekeel"]


def test_objects_of_ones_own(tmp_path: Path) -> None:
    """Values in them are filled in."""
    object_ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-mine"}}
    names = {item["metadata"]["name"] for item in _render("default", {"extraObjects": [object_]}, tmp_path)}
    assert names - {item["metadata"]["name"] for item in rendered("default")} == {"keel-mine"}


def test_the_recalibrations_image_by_digest(tmp_path: Path) -> None:
    """The digest is used by the job and by the executors."""
    digest = f"sha256:{'0' * 64}"
    values = {"recalibrate": {"image": {"digest": digest, "pullPolicy": "Always"}}}
    objects = _render("spark-kubernetes", values, tmp_path)
    (container,) = [c for pod in pods_of("x", objects) for c in pod.containers if c["name"] == "recalibrate"]
    assert (container["image"], container["imagePullPolicy"]) == (f"bundlekeel-spark@{digest}", "Always")
    assert f"spark.kubernetes.container.image=bundlekeel-spark@{digest}" in container["args"]
