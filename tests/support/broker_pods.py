"""Minimal brokers for a real API server, in the shape of the Apache chart and of an operator."""

from __future__ import annotations

import copy

from tests.support.chart import Object

_CONFINED: Object = {
    "runAsNonRoot": True,
    "runAsUser": 10000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(name: str, **fields: object) -> Object:
    """Return a container that Pod Security `restricted` admits."""
    return {"name": name, "image": "pulsar:1", "securityContext": dict(_CONFINED), **fields}


def apache() -> Object:
    """Return brokers in the shape of the Apache chart: an init container, a mounted volume, no hook."""
    mounts = [{"name": "config", "mountPath": "/pulsar/conf-extra"}]
    spec = {
        "terminationGracePeriodSeconds": 30,
        "initContainers": [container("wait-zookeeper-ready")],
        "containers": [
            container("pulsar-broker", command=["sh", "-c"], args=["bin/pulsar broker"], volumeMounts=mounts)
        ],
        "volumes": [{"name": "config", "emptyDir": {}}],
    }
    return _stateful_set("pulsar-broker", {"app": "pulsar", "release": "pulsar", "component": "broker"}, spec)


def operator() -> Object:
    """Return brokers in the shape of an operator's: another container first, no init container, no volume."""
    ports = [{"name": "http", "containerPort": 8080}]
    spec = {"containers": [container("exporter"), container("shop-broker", ports=ports)]}
    return _stateful_set("shop-broker", {"app": "pulsar", "cluster": "shop", "component": "broker"}, spec)


def pod_of(stateful_set: Object, **fields: object) -> Object:
    """Return a pod from the template of a StatefulSet. `fields` replace fields of its spec."""
    template = copy.deepcopy(stateful_set["spec"]["template"])
    metadata = {**template["metadata"], "name": "pod"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **fields}}


def _stateful_set(name: str, labels: Object, pod: Object) -> Object:
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"serviceName": name, "replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "labels": labels}, "spec": spec}
