"""Render the Helm chart with the values files in `ci/`, and extract the parts that tests check."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from dev.chart import CHART, KUBERNETES, render

Object = dict[str, Any]
CASES = tuple(sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml")))
CLUSTER_KINDS = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
# Types of the Prometheus operator: Kubernetes' own schemas do not describe them.
OPERATOR_KINDS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")


@functools.cache
def rendered(case: str) -> tuple[Object, ...]:
    """Return the objects that the chart renders with one values file, for the release `keel`."""
    return tuple(render("keel", CHART / "ci" / f"{case}-values.yaml"))


def of_kind(case: str, kind: str, name: str | None = None) -> Object:
    """Return the only object of a kind, or of a kind and name."""
    objects = [o for o in rendered(case) if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert len(objects) == 1, f"{case}: {len(objects)} {kind} {name or ''}"
    return objects[0]


def kinds(case: str) -> list[str]:
    """Return the kinds of all objects of a values file, sorted."""
    return sorted(item["kind"] for item in rendered(case))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the release, or the part of a pod that the release adds: its template, its spec, its metadata."""

    owner: str
    spec: Object
    metadata: Object

    @property
    def containers(self) -> list[Object]:
        """Return all containers, with init containers."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def pods(case: str) -> Iterator[Pod]:
    """Yield every pod template of a values file."""
    return pods_of(case, rendered(case))


def pods_of(case: str, objects: Iterable[Object]) -> Iterator[Pod]:
    """Yield every pod template in these objects."""
    for item in objects:
        spec = item.get("spec", {})
        template = item if item["kind"] == "Pod" else spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            owner = f"{case}: {item['kind']} {item['metadata']['name']}"
            yield Pod(owner, template["spec"], template["metadata"])


def settings_of(case: str) -> str:
    """Return the text of the sidecar's settings file for a values file."""
    text: str = of_kind(case, "ConfigMap", "keel-bundlekeel")["data"]["settings.yaml"]
    return text


def cases_with_values() -> list[str]:
    """Return the cases in which values of the Apache Pulsar chart add the sidecar."""
    return [case for case in CASES if any("broker-values.yaml" in item.get("data", {}) for item in rendered(case))]


def broker_values(case: str) -> Object:
    """Return the values that the case sets for the Apache Pulsar chart, below `broker`."""
    sidecar_map = of_kind(case, "ConfigMap", "keel-bundlekeel-sidecar")
    values: Object = yaml.safe_load(sidecar_map["data"]["broker-values.yaml"])
    assert list(values) == ["broker"]
    broker: Object = values["broker"]
    return broker


def apache_statefulset(broker: Object) -> Object:
    """The broker StatefulSet of the Apache Pulsar chart, as far as these values reach it.

    Its template (4.7.0, templates/broker-statefulset.yaml) puts `broker.initContainers` after its own, appends
    `extraVolumes` and `extraVolumeMounts`, takes `gracePeriod` as terminationGracePeriodSeconds, and writes
    `additionalCommand` before the commands of the container's shell. It has no other hook.
    """
    own = {"name": "wait-zookeeper-ready", "image": "apachepulsar/pulsar", "command": ["true"]}
    labels = {"app": "pulsar", "release": "pulsar", "component": "broker"}
    container = {
        "name": "pulsar-broker",
        "image": "apachepulsar/pulsar",
        "command": ["sh", "-c"],
        "args": [f"{broker.get('additionalCommand', '')}\nexec bin/pulsar broker"],
        "volumeMounts": broker.get("extraVolumeMounts", []),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "pulsar-broker", "namespace": "pulsar", "labels": labels},
        "spec": {
            "serviceName": "pulsar-broker",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": broker.get("gracePeriod", 30),
                    "initContainers": [own, *broker.get("initContainers", [])],
                    "containers": [container],
                    "volumes": broker.get("extraVolumes", []),
                },
            },
        },
    }


def schema_folder(target: Path) -> Path:
    """Kubernetes' own strict schemas of our pinned version where kubeconform finds them.

    As published by kubernetes-validate they name each other by an address of no server; here by file.
    """
    source = Path(str(files("kubernetes_validate"))) / "kubernetes-json-schema" / f"v{KUBERNETES}-local-strict"
    folder = target / source.name
    shutil.copytree(source, folder)
    for file in folder.glob("*.json"):
        document = json.loads(file.read_text(encoding="utf-8"))
        document.pop("$id", None)
        text = json.dumps(document).replace('"/api/_definitions.json#', '"_definitions.json#')
        file.write_text(text, encoding="utf-8")
    return target
