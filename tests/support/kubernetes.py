"""Releases of the chart in a real API server: each test has its own namespace."""

from __future__ import annotations

import functools
import json
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from dev.chart import CHART
from dev.gotools import HELM, ensure
from dev.kubernetes.control_plane import ControlPlane
from tests.support.chart import Object

RELEASE = "keel"
PATIENCE = 300
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
# Kubernetes itself creates and deletes these at any time.
_BUSY = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "nodes", "namespaces", "persistentvolumes"}


def values_file(case: str) -> Path:
    """Return the values file of a case."""
    return CHART / "ci" / f"{case}-values.yaml"


def name_of(item: Object) -> str:
    """Return kind and name of an object."""
    return f"{item['kind']} {item['metadata']['name']}"


@functools.cache
def _kinds(kubernetes: ControlPlane) -> str:
    """Return the names of all kinds of objects that can be listed and deleted."""
    names = kubernetes.kubectl("api-resources", "--verbs=list,delete", "-o", "name").split()
    return ",".join(sorted(set(names) - _BUSY))


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace for the release `keel`."""

    kubernetes: ControlPlane
    name: str

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl in the namespace. Return its output. Raises CommandError."""
        return self.kubernetes.kubectl("--namespace", self.name, *arguments, stdin=stdin)

    def helm(self, verb: str, *arguments: str) -> str:
        """Run a command of helm for the release. Return its output. Raises CommandError."""
        command = [*verb.split(), RELEASE, *arguments, "--namespace", self.name]
        return self.kubernetes.run(ensure(HELM), *command)

    def deploy(self, verb: str, case: str, *arguments: str) -> None:
        """Install or upgrade with a values file. Wait until all pods are ready and all Jobs have completed."""
        wait = ("--wait", "--wait-for-jobs", "--timeout", f"{PATIENCE}s")
        self.helm(verb, str(CHART), "-f", str(values_file(case)), *wait, *arguments)

    def manifest(self) -> list[Object]:
        """Return the objects of the release, as Helm sent them."""
        return [item for item in yaml.safe_load_all(self.helm("get manifest")) if item]

    def objects(self) -> list[Object]:
        """Return the objects of the namespace, and those of the cluster that belong to no namespace."""
        items: list[Object] = json.loads(self.kubectl("get", _kinds(self.kubernetes), "-o", "json"))["items"]
        return items

    def names(self) -> set[str]:
        """Return kind and name of each object."""
        return {name_of(item) for item in self.objects()}

    def of_release(self) -> set[str]:
        """Return kind and name of the objects that Helm created. (ReplicaSets inherit annotations.)"""
        return {
            name_of(item)
            for item in self.objects()
            if item["metadata"].get("annotations", {}).get("meta.helm.sh/release-name") == RELEASE
            and item["metadata"]["annotations"]["meta.helm.sh/release-namespace"] == self.name
            and "ownerReferences" not in item["metadata"]
        }

    def until_names(self, expected: set[str]) -> set[str]:
        """Return the objects that exist besides the expected ones, once there are none or after some time."""
        end = time.monotonic() + PATIENCE / 5
        while (more := self.names() - expected) and time.monotonic() < end:
            time.sleep(0.5)
        return more

    def create_claims(self, names: set[str], mode: str = "ReadWriteMany") -> None:
        """Create a volume claim for each name, with a volume, and wait until it is bound. The scheduler places no pod
        without it.
        """
        for name in names:
            size, modes = {"storage": "1Gi"}, [mode]
            volume = f"{self.name}-{name}"
            claim = {
                "accessModes": modes,
                "resources": {"requests": size},
                "storageClassName": "",
                "volumeName": volume,
            }
            spec = {"capacity": size, "accessModes": modes, "hostPath": {"path": "/none"}}
            items = [_object("PersistentVolume", volume, spec), _object("PersistentVolumeClaim", name, claim)]
            self.kubectl("create", "-f-", stdin=yaml.safe_dump_all(items))
            self.kubectl("wait", f"pvc/{name}", "--for=jsonpath={.status.phase}=Bound", f"--timeout={PATIENCE}s")


def _object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
