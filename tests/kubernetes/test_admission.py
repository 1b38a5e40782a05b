"""Pod Security `restricted` admits every pod of the chart, and the sidecar in a broker pod."""

from __future__ import annotations

import json

import pytest
import yaml

from dev.kubernetes.control_plane import CommandError
from tests.support.chart import CASES, Object, broker_values, cases_with_values, of_kind, pods, rendered
from tests.support.kubernetes import Namespace

CONFINED: Object = {
    "runAsNonRoot": True,
    "runAsUser": 10000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _admit(namespace: Namespace, name: str, metadata: Object, spec: Object) -> Object:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"name": name, "namespace": namespace.name}}
    text = namespace.kubectl("create", "--dry-run=server", "-o", "json", "-f-", stdin=json.dumps(pod | {"spec": spec}))
    admitted: Object = json.loads(text)
    return admitted


def _accounts(namespace: Namespace, case: str) -> None:
    for item in rendered(case):
        if item["kind"] == "ServiceAccount":
            namespace.kubectl("create", "serviceaccount", item["metadata"]["name"])


@pytest.mark.parametrize("case", CASES)
def test_restricted_namespaces_admit_every_pod(case: str, namespace: Namespace) -> None:
    """Also those that only run on demand: Jobs of CronJobs, the pod of `helm test`, Spark's executors."""
    _accounts(namespace, case)
    templates = [(pod.metadata, pod.spec) for pod in pods(case)]
    if any(item["metadata"]["name"] == "keel-bundlekeel-executor" for item in rendered(case)):
        executor = yaml.safe_load(of_kind(case, "ConfigMap", "keel-bundlekeel-executor")["data"]["executor.yaml"])
        executor["spec"]["containers"][0]["image"] = "spark"  # Spark sets it
        templates.append((executor["metadata"], executor["spec"]))
    for metadata, spec in templates:
        admitted = _admit(namespace, "pod", metadata, {**spec, "restartPolicy": spec.get("restartPolicy", "Always")})
        assert len(admitted["spec"]["containers"]) == len(spec["containers"])


@pytest.mark.parametrize("case", cases_with_values())
def test_restricted_namespaces_admit_the_sidecar_in_a_broker_pod(case: str, namespace: Namespace) -> None:
    """As the Apache chart adds it, next to a broker that is confined too."""
    ours = broker_values(case)
    broker = {"name": "pulsar-broker", "image": "pulsar", "securityContext": CONFINED}
    broker["volumeMounts"] = ours["extraVolumeMounts"]
    spec = {"containers": [broker], "initContainers": ours["initContainers"], "volumes": ours["extraVolumes"]}
    admitted = _admit(namespace, "pulsar-broker-0", {}, spec)
    assert [item["name"] for item in admitted["spec"]["initContainers"]] == ["bundlekeel"]


@pytest.mark.parametrize("field", sorted(CONFINED))
def test_restricted_is_enforced(field: str, namespace: Namespace) -> None:
    """A pod that lacks one of the fields is refused, so the tests above can fail."""
    context = {key: value for key, value in CONFINED.items() if key != field}
    if field == "runAsUser":
        context["runAsUser"] = 0
    with pytest.raises(CommandError, match='violates PodSecurity "restricted:latest"'):
        _admit(namespace, "pod", {}, {"containers": [{"name": "a", "image": "a", "securityContext": context}]})
