"""The policy of the chart in a real API server: what it adds to broker pods, and which pods it leaves unchanged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.chart import CHART, ROOT, render
from dev.gotools import HELM, ensure
from dev.kubernetes.control_plane import CommandError, control_plane
from tests.support.broker_pods import apache, container, operator, pod_of
from tests.support.chart import Object
from tests.support.kubernetes import PATIENCE, Namespace, values_file
from tests.support.newcomer import KUBERNETES, README, blocks

BROKERS = {"apache": apache(), "operator": operator()}
SLEEP = {"exec": {"command": ["sleep", "5"]}}
POLICIES = "mutatingadmissionpolicies"
OF_BROKERS = ("-l", "component=broker")


def _install(namespace: Namespace, *arguments: str) -> None:
    """Install the chart and wait until its policy changes new pods: up to a second later."""
    namespace.helm("install", str(CHART), "-f", str(values_file("sidecar-policy")), *arguments)
    _until_joined(namespace)


def _until_joined(namespace: Namespace, joined: bool = True) -> None:
    end = time.monotonic() + 60
    while ("bundlekeel" in _names(_admit(namespace, pod_of(apache())))) is not joined:
        assert time.monotonic() < end, "the policy, or its deletion, had no effect within a minute"
        time.sleep(0.2)


def _admit(namespace: Namespace, pod: Object) -> Object:
    """Return the pod as the server would store it."""
    text = namespace.kubectl("create", "--dry-run=server", "-o", "json", "-f-", stdin=json.dumps(pod))
    admitted: Object = json.loads(text)
    return admitted


def _names(pod: Object) -> list[str]:
    return [item["name"] for item in pod["spec"].get("initContainers", [])]


def _comparable(pod: Object) -> Object:
    """Return the spec without the random name of the token's volume, and with its lists in one order."""
    spec: Object = json.loads(re.sub(r"kube-api-access-\w+", "kube-api-access", json.dumps(pod["spec"])))
    spec["volumes"].sort(key=lambda volume: volume["name"])
    for item in [*spec["containers"], *spec.get("initContainers", [])]:
        item.get("volumeMounts", []).sort(key=lambda mount: mount["mountPath"])
    return spec


def _parts(namespace: Namespace) -> Object:
    """Return the parts that the chart adds, as it wrote them into the object that the server validates."""
    hooks = [item for item in yaml.safe_load_all(namespace.helm("get hooks")) if item]
    (spec,) = [item["template"]["spec"] for item in hooks if item["kind"] == "PodTemplate"]
    assert isinstance(spec, dict)
    return spec


def _joined_manually(pod: Object, parts: Object) -> Object:
    """Return the pod with these parts, as an operator would write it."""
    spec = pod["spec"]
    (hooked,) = parts["containers"]
    for key in ("initContainers", "volumes", "imagePullSecrets"):
        spec[key] = [*spec.get(key, []), *parts[key]]
    (broker,) = [item for item in spec["containers"] if item["name"].endswith("broker")]
    broker["volumeMounts"] = [*broker.get("volumeMounts", []), *hooked["volumeMounts"]]
    if "lifecycle" not in broker:
        broker["lifecycle"] = hooked["lifecycle"]
        spec["terminationGracePeriodSeconds"] = 660
    return pod


def _own_hook(hook: str) -> Object:
    pod = pod_of(apache())
    pod["spec"]["containers"][0]["lifecycle"] = {hook: SLEEP}
    return pod


JOINED: dict[str, Object] = {
    **{name: pod_of(item) for name, item in BROKERS.items()},
    "own preStop": _own_hook("preStop"),
    "own postStart": _own_hook("postStart"),
    "own pull secret": pod_of(apache(), imagePullSecrets=[{"name": "own"}]),
}


def test_the_policy_adds_exactly_the_parts_of_the_chart(namespace: Namespace) -> None:
    """The server stores the same pod as with parts that are written into its manifest. What the pod had stays; a second
    pass changes nothing.
    """
    _install(namespace)
    parts = _parts(namespace)
    for name, pod in JOINED.items():
        admitted = _admit(namespace, pod)
        expected = _admit(namespace, _joined_manually(json.loads(json.dumps(pod)), parts))
        assert _comparable(admitted) == _comparable(expected), name
        assert _names(admitted) == [*_names(pod), "bundlekeel"], name
        del admitted["metadata"]["uid"]
        assert _admit(namespace, admitted)["spec"] == admitted["spec"], name


def _with_broker(**fields: object) -> Object:
    return pod_of(apache(), containers=[container("pulsar-broker", **fields)])


LEFT: dict[str, Object] = {
    "other component": {
        **pod_of(apache()),
        "metadata": {"name": "p", "labels": {"app": "pulsar", "component": "proxy"}},
    },
    "no broker container": pod_of(apache(), containers=[container("pulsar-proxy")]),
    "same container": pod_of(apache(), initContainers=[container("bundlekeel")]),
    "same volume": pod_of(apache(), volumes=[{"name": n, "emptyDir": {}} for n in ("config", "bundlekeel-tmp")]),
    "same path": _with_broker(volumeMounts=[{"name": "config", "mountPath": "/run/bundlekeel"}]),
    "resources of the pod": pod_of(apache(), resources={"limits": {"memory": "64Mi"}}),
}


def test_a_pod_that_cannot_take_the_sidecar_starts_without_it(namespace: Namespace) -> None:
    """Also a pod that is not a broker. A pod with a name twice would be refused, whatever the failurePolicy."""
    _install(namespace)
    for name, pod in LEFT.items():
        assert "mirror.example/bundlekeel" not in json.dumps(_admit(namespace, pod)), name
    other = f"{namespace.name}-other"
    namespace.kubernetes.create_namespace(other, {})
    assert "bundlekeel" not in _names(_admit(Namespace(namespace.kubernetes, other), pod_of(apache())))


def test_a_broker_on_the_network_of_its_host_starts(namespace: Namespace) -> None:
    """The server sets host ports for every container of such a pod. Pod Security `restricted` does not allow one."""
    open_ = f"{namespace.name}-open"
    namespace.kubernetes.create_namespace(open_, {})
    brokers = Namespace(namespace.kubernetes, open_)
    _install(brokers)
    assert "bundlekeel" in _names(_admit(brokers, pod_of(operator(), hostNetwork=True)))


def _pods(namespace: Namespace) -> list[Object]:
    items: list[Object] = json.loads(namespace.kubectl("get", "pods", *OF_BROKERS, "-o", "json"))["items"]
    return sorted(
        (pod for pod in items if "test" not in pod["metadata"]["name"]), key=lambda pod: pod["metadata"]["name"]
    )


def _roll(namespace: Namespace, name: str, *command: str) -> list[Object]:
    namespace.kubectl("rollout", *(command or ("restart", f"statefulset/{name}")))
    namespace.kubectl("rollout", "status", f"statefulset/{name}", f"--timeout={PATIENCE}s")
    return _pods(namespace)


@pytest.mark.parametrize("shape", BROKERS)
def test_from_install_to_uninstall_of_the_policy(shape: str, namespace: Namespace) -> None:
    """Neither restarts a pod. A restart adds the sidecar, an upgrade of Pulsar keeps it, a restart after the uninstall
    removes it. Kubernetes replaces one pod at a time, from the last to the first.
    """
    brokers = BROKERS[shape]
    name = brokers["metadata"]["name"]
    namespace.kubectl("create", "-f-", stdin=json.dumps(brokers))
    namespace.kubectl("rollout", "status", f"statefulset/{name}", f"--timeout={PATIENCE}s")
    before, revision = _pods(namespace), _revision(namespace, name)
    assert len(before) == 3

    _install(namespace)
    assert (_pods(namespace), _revision(namespace, name)) == (before, revision)

    joined = _roll(namespace, name)
    assert all(_names(pod)[-1] == "bundlekeel" for pod in joined)
    ages = [pod["metadata"]["creationTimestamp"] for pod in joined]
    assert ages == sorted(ages, reverse=True)

    namespace.kubectl("set", "image", f"statefulset/{name}", f"{name}=pulsar:2")
    namespace.kubectl("rollout", "status", f"statefulset/{name}", f"--timeout={PATIENCE}s")
    upgraded = _pods(namespace)
    assert all(_names(pod)[-1] == "bundlekeel" for pod in upgraded)
    assert all("pulsar:2" in [item["image"] for item in pod["spec"]["containers"]] for pod in upgraded)

    namespace.helm("uninstall", "--wait", "--timeout", f"{PATIENCE}s")
    assert [pod["metadata"]["uid"] for pod in _pods(namespace)] == [pod["metadata"]["uid"] for pod in upgraded]
    _until_joined(namespace, False)
    assert not any("bundlekeel" in _names(pod) for pod in _roll(namespace, name))


def _revision(namespace: Namespace, name: str) -> Any:
    item = json.loads(namespace.kubectl("get", f"statefulset/{name}", "-o", "json"))
    return item["metadata"]["generation"], item["status"]["updateRevision"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["sidecar.resources.requests.memory=1Gi"], "must be less than or equal to memory limit"),
        (["extraVolumeMounts[0].name=absent", "extraVolumeMounts[0].mountPath=/a"], "absent"),
        (["extraEnv[0].name=A", "extraEnv[0].valeu=b"], "valeu"),
        (["pulsar.jwt.existingSecret=absent"], "there is no Secret absent in namespace"),
        (["journal.existingClaim=absent"], "journal.existingClaim: there is no bound PersistentVolumeClaim absent"),
        (
            ["extraVolumes[0].name=v", "extraVolumes[0].persistentVolumeClaim.claimName=absent"],
            "extraVolumes: .* absent",
        ),
        (["extraVolumes[0].name=v", "extraVolumes[0].csi.driver=absent"], "there is no CSIDriver absent"),
        (["journal.existingClaim=once"], "journal.existingClaim: claim once is ReadWriteOnce"),
    ],
)
def test_values_that_would_stop_brokers_are_refused(values: list[str], message: str, namespace: Namespace) -> None:
    """At the install, and at an upgrade, which leaves the policy that was there."""
    changes = [argument for value in values for argument in ("--set", value)]
    namespace.create_claims({"once"}, "ReadWriteOnce")
    with pytest.raises(CommandError, match=message):
        _install(namespace, *changes)
    assert namespace.name not in namespace.kubectl("get", POLICIES, "-o", "name")
    namespace.helm("uninstall", "--no-hooks", "--ignore-not-found")
    _install(namespace)
    with pytest.raises(CommandError, match=message):
        namespace.helm("upgrade", str(CHART), "-f", str(values_file("sidecar-policy")), *changes)
    assert "bundlekeel" in _names(_admit(namespace, pod_of(apache())))


def _limited(namespace: Namespace, kind: str, spec: Object) -> None:
    """Create an object that limits the pods of the namespace."""
    item = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "limit"}, "spec": spec}
    namespace.kubectl("create", "-f-", stdin=json.dumps(item))


def test_a_quota_does_not_refuse_the_sidecar(namespace: Namespace) -> None:
    """Such a quota refuses each pod that has a container without requests and limits."""
    _install(namespace)
    amounts = {"cpu": "1", "memory": "1Gi"}
    hard = {f"{kind}.{name}": "10Gi" for kind in ("requests", "limits") for name in amounts}
    _limited(namespace, "ResourceQuota", {"hard": hard})
    namespace.kubectl("wait", "quota/limit", "--for=jsonpath={.status.hard}", f"--timeout={PATIENCE}s")
    broker = container("pulsar-broker", resources={"limits": amounts})
    assert _names(_admit(namespace, pod_of(operator(), containers=[broker]))) == ["bundlekeel"]
    with pytest.raises(CommandError, match=r"must specify limits\.cpu for: pulsar-broker"):
        _admit(namespace, pod_of(operator(), containers=[container("pulsar-broker")]))


def test_the_notes_name_limits_of_the_namespace(namespace: Namespace) -> None:
    """Their command shows whether the server accepts a broker with its sidecar."""
    namespace.kubectl("create", "-f-", stdin=json.dumps(apache()))
    arguments = (str(CHART), "-f", str(values_file("sidecar-policy")))
    notes = namespace.helm("install", *arguments)
    _until_joined(namespace)
    _limited(namespace, "LimitRange", {"limits": [{"type": "Container", "max": {"memory": "256Mi"}}]})
    (command,) = [line for line in notes.splitlines() if "--dry-run=server" in line]
    path = f"{namespace.kubernetes.programs}:{os.environ['PATH']}"
    own = os.environ | {"KUBECONFIG": str(namespace.kubernetes.kubeconfig), "PATH": path}

    def check() -> str:
        ended = subprocess.run(command, shell=True, env=own, capture_output=True, text=True, check=False)
        return ended.stdout + ended.stderr

    assert "maximum memory usage per Container is 256Mi, but limit is 512Mi" in check()
    namespace.helm("upgrade", *arguments, "--set", "sidecar.resources.limits.memory=256Mi")
    end = time.monotonic() + 60
    while "pod/check created" not in (answer := check()):
        assert time.monotonic() < end, answer
        time.sleep(0.2)


def test_the_two_commands_of_the_readme(namespace: Namespace) -> None:
    """They add a sidecar to each broker."""
    namespace.kubectl("create", "-f-", stdin=json.dumps(apache()))
    lines = [line for block in blocks(README) for line in block if line.startswith(KUBERNETES)]
    install, restart = [line.replace("-n pulsar", f"-n {namespace.name}").split() for line in lines]
    namespace.kubernetes.run(ensure(HELM), *install[1:3], str(ROOT / install[3]), *install[4:])
    _until_joined(namespace)
    namespace.kubectl(*restart[1:])
    namespace.kubectl("rollout", "status", "statefulset/pulsar-broker", f"--timeout={PATIENCE}s")
    assert [_names(pod)[-1] for pod in _pods(namespace)] == ["bundlekeel"] * 3


def test_values_for_production(namespace: Namespace) -> None:
    """Three brokers of the Apache chart get sidecars; the jobs and the objects for Prometheus are there."""
    namespace.kubectl("create", "-f-", stdin=json.dumps(apache()))
    registry = ("--set", "image.repository=example.com/bundlekeel", "--set", "history.uri=s3://shop/keel")
    notes = namespace.helm("install", str(CHART), "-f", str(CHART / "values-production.yaml"), *registry)
    assert "rollout restart statefulset -l app=pulsar,component=broker" in notes
    _until_joined(namespace)
    pods = _roll(namespace, "pulsar-broker", "restart", "statefulset", "-l", "app=pulsar,component=broker")
    assert [_names(pod)[-1] for pod in pods] == ["bundlekeel"] * 3
    assert {f"CronJob keel-bundlekeel-{name}" for name in ("deadman", "recalibrate")} <= namespace.names()


@pytest.mark.parametrize("version", ["1.34", "1.35"])
def test_a_server_without_the_policy(version: str) -> None:
    """The notes say that nothing adds the sidecar yet, and the values for the Apache chart are there."""
    with control_plane(api_server=(f"--emulated-version={version}",)) as kubernetes:
        kubernetes.create_namespace("shop", {})
        namespace = Namespace(kubernetes, "shop")
        notes = namespace.helm("install", str(CHART), "--set", "sidecar.enabled=true")
        assert "does not serve MutatingAdmissionPolicy, so sidecar.join is `values`" in notes
        data = json.loads(namespace.kubectl("get", "configmap", "keel-bundlekeel-sidecar", "-o", "json"))["data"]
        assert "broker-values.yaml" in data


def test_the_beta_of_the_policy() -> None:
    """Rendered as for a server without v1. An emulated server does not start with the beta alone."""
    served = "admissionregistration.k8s.io/v1beta1"
    with control_plane(api_server=(f"--runtime-config={served}=true",)) as kubernetes:
        kubernetes.create_namespace("pulsar", {})
        arguments = ("--set", "sidecar.join=auto", "--api-versions", f"{served}/MutatingAdmissionPolicy")
        policy = [
            item
            for item in render("keel", values_file("sidecar-policy"), *arguments)
            if item["kind"].startswith("MutatingAdmissionPolicy")
        ]
        assert [item["apiVersion"] for item in policy] == [served] * 2
        kubernetes.kubectl("create", "-f-", stdin=yaml.safe_dump_all(policy))
        _until_joined(Namespace(kubernetes, "pulsar"))


def test_the_plugin_of_kubectl_finds_a_sidecar(namespace: Namespace, tmp_path: Path) -> None:
    """In a broker pod, and in a pod of the Deployment. Nothing runs here, so only `exec` is replaced by `echo`."""
    kubectl = namespace.kubernetes.programs / "kubectl"
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\n[ "$1" = exec ] && exec echo "$@"\nexec {kubectl} "$@"\n')
    (tmp_path / "kubectl").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(namespace.kubernetes.kubeconfig)}
    path["KUBECACHEDIR"] = str(tmp_path)
    command = [str(ROOT / "deploy" / "kubectl" / "kubectl-bundlekeel"), "-n", namespace.name, "plan", "-o", "json"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    assert "no running pod has a container bundlekeel" in run().stderr
    _install(namespace)
    namespace.kubectl("create", "-f-", stdin=json.dumps(apache()))
    namespace.kubectl("rollout", "status", "statefulset/pulsar-broker", f"--timeout={PATIENCE}s")
    tail = "--container=bundlekeel -- bundlekeel plan -o json\n"
    assert re.search(rf"pulsar-broker-\d {tail}", run().stdout)
    namespace.kubectl("delete", "statefulset", "pulsar-broker", "--wait")
    namespace.deploy("upgrade", "default", "--reset-values")
    namespace.kubectl("wait", "pods", *OF_BROKERS, "--for=delete", f"--timeout={PATIENCE}s")
    assert re.search(rf"keel-bundlekeel-\w+-\w+ {tail}", run().stdout)
