"""How `sidecar.enabled` gets a sidecar into broker pods: by a policy of the cluster, or by values of Pulsar's chart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.chart import CHART, render
from tests.support.chart import CASES, Object, cases_with_values

IMAGE = ("--set", "image.repository=mirror.example/bundlekeel")
ENABLED = ("--set", "sidecar.enabled=true", *IMAGE)
API = "admissionregistration.k8s.io/{}/MutatingAdmissionPolicy"


def _rendered(*arguments: str, case: str = "default") -> list[Object]:
    return render("keel", CHART / "ci" / f"{case}-values.yaml", *arguments)


def _only(objects: list[Object], kind: str) -> Object:
    (item,) = [item for item in objects if item["kind"] == kind]
    return item


@pytest.mark.parametrize(
    ("arguments", "version"),
    [
        (["--api-versions", API.format("v1")], "v1"),
        (["--api-versions", API.format("v1beta1")], "v1beta1"),
        (["--api-versions", API.format("v1"), "--api-versions", API.format("v1beta1")], "v1"),
        (["--set", "sidecar.join=policy"], "v1"),
        (["--set", "sidecar.join=values", "--api-versions", API.format("v1")], ""),
        ([], ""),
    ],
)
def test_a_policy_where_the_cluster_serves_it(arguments: list[str], version: str) -> None:
    """Otherwise a ConfigMap contains the values for Pulsar's chart. One value is enough, and the Deployment is gone."""
    objects = _rendered(*ENABLED, *arguments)
    versions = {item["kind"]: item["apiVersion"].partition("/")[2] for item in objects if "Mutating" in item["kind"]}
    assert versions == (
        dict.fromkeys(["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"], version) if version else {}
    )
    values = [item for item in objects if "broker-values.yaml" in item.get("data", {})]
    assert bool(values) is not bool(version)
    assert "Deployment" not in {item["kind"] for item in objects}


@pytest.mark.parametrize("case", cases_with_values())
def test_both_ways_add_the_same_parts(case: str) -> None:
    """Container, volumes and mounts have one definition. The hooks differ: values cannot set a postStart."""
    policy = _only(_rendered(*IMAGE, "--set", "sidecar.join=policy", case=case), "PodTemplate")["template"]["spec"]
    objects = _rendered(*IMAGE, "--set", "sidecar.join=values", case=case)
    (text,) = [o["data"]["broker-values.yaml"] for o in objects if "broker-values.yaml" in o.get("data", {})]
    values = yaml.safe_load(text)["broker"]
    assert policy["initContainers"] == values["initContainers"]
    assert policy["volumes"] == values["extraVolumes"]
    (broker,) = policy["containers"]
    assert broker["volumeMounts"] == values["extraVolumeMounts"]
    *_, back = broker["lifecycle"]["postStart"]["exec"]["command"]
    script = "python3 /opt/bundlekeel-hook/broker_hook.py back"
    assert back.split(" BUNDLEKEEL_LOG")[0] == values["additionalCommand"].removesuffix(f" {script} &")
    assert script in back and back.endswith("&")


def test_only_a_sidecar_in_a_broker_pod_reads_its_network_interfaces() -> None:
    """Also if the values add variables of their own."""
    variable = {"name": "BUNDLEKEEL__COUNTERS__NETWORK_FILE", "value": "/proc/net/dev"}
    more = ("--set", "extraEnv[0].name=MORE", "--set", "extraEnvFrom[0].secretRef.name=more")
    pod = _only(_rendered(*ENABLED, *more, "--set", "sidecar.join=policy"), "PodTemplate")["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert variable in sidecar["env"] and sidecar["env"][-1] == {"name": "MORE"}
    deployment = _only(_rendered(*IMAGE), "Deployment")["spec"]["template"]["spec"]
    assert variable not in [item for container in deployment["containers"] for item in container["env"]]


SOURCES = ("secret", "configMap", "secretKeyRef", "configMapKeyRef", "secretRef", "configMapRef")
OWN = {
    "extraEnv": [{"name": f"A_{key}", "valueFrom": {f"{key}KeyRef": {"name": "s", "key": "k"}}} for key in SOURCES[:2]],
    "extraEnvFrom": [{f"{key}Ref": {"name": "s"}} for key in SOURCES[:2]],
    "extraVolumes": [
        {"name": "a", "secret": {"secretName": "s"}},
        {"name": "b", "configMap": {"name": "s"}},
        {"name": "c", "projected": {"sources": [{key: {"name": "s"}} for key in SOURCES[:2]]}},
    ],
}


def _references(part: object) -> Iterator[Object]:
    """Yield every reference to a Secret or ConfigMap in a part of a pod."""
    if isinstance(part, list):
        for item in part:
            yield from _references(item)
    elif isinstance(part, dict):
        for key, item in part.items():
            if key in SOURCES:
                yield item
            yield from _references(item)


@pytest.mark.parametrize("join", ["policy", "values"])
def test_no_missing_secret_or_config_map_keeps_a_broker_from_starting(join: str, tmp_path: Path) -> None:
    """Each reference in a broker pod is optional, also those in an operator's own values."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(OWN), encoding="utf-8")
    objects = _rendered(*IMAGE, "-f", str(file), "--set", f"sidecar.join={join}", case="jwt-tls")
    if join == "policy":
        part = _only(objects, "PodTemplate")
    else:
        (part,) = [yaml.safe_load(o["data"][file]) for o in objects for file in o.get("data", {}) if "broker-v" in file]
    references = list(_references(part))
    assert len(references) >= 16
    assert [item for item in references if item.get("optional") is not True] == []


def test_the_policy_selects_by_namespace_and_labels() -> None:
    """The name is unique in the cluster, because a policy has no namespace."""
    objects = _rendered(case="sidecar-policy")
    policy, binding = _only(objects, "MutatingAdmissionPolicy"), _only(objects, "MutatingAdmissionPolicyBinding")
    assert policy["metadata"]["name"] == binding["spec"]["policyName"] == "pulsar-keel-bundlekeel"
    assert policy["spec"]["failurePolicy"] == "Ignore"
    constraints = policy["spec"]["matchConstraints"]
    assert constraints["objectSelector"] == {"matchLabels": {"app": "pulsar", "component": "broker"}}
    assert [rule["operations"] for rule in constraints["resourceRules"]] == [["CREATE"]]
    assert binding["spec"]["matchResources"] == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "pulsar"}}
    }


def test_without_the_drain_the_brokers_container_is_unchanged() -> None:
    """The policy adds the sidecar alone, and there is no ConfigMap for the hook."""
    objects = _rendered("--set", "sidecar.drain.enabled=false", case="sidecar-policy")
    (broker,) = _only(objects, "PodTemplate")["template"]["spec"]["containers"]
    assert set(broker) == {"name", "image"}
    (mutation,) = _only(objects, "MutatingAdmissionPolicy")["spec"]["mutations"]
    assert "lifecycle" not in mutation["jsonPatch"]["expression"]
    assert "keel-bundlekeel-sidecar" not in {item["metadata"]["name"] for item in objects}


def test_history_makes_its_claim_unless_another_store_is_set() -> None:
    """One value enables the recalibration, records and mounts. The claim outlives the release."""
    objects = _rendered("--set", "recalibrate.enabled=true")
    claim = _only(objects, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    pods = [_only(objects, "Deployment")["spec"]["template"]["spec"]]
    pods += [
        o["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for o in objects
        if o["metadata"]["name"].endswith("-recalibrate")
    ]
    assert len(pods) == 2
    for pod in pods:
        claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
        assert claims == [claim["metadata"]["name"]]
    for other in ("history.uri=s3://bucket/keel", "history.existingClaim=mine"):
        more = _rendered("--set", "history.enabled=true", "--set", other)
        assert "PersistentVolumeClaim" not in {item["kind"] for item in more}


def test_values_for_production_enable_everything() -> None:
    """Sidecars, history, recalibration, failsafe and monitoring, with the least that an operator must replace."""
    objects = render("keel", CHART / "values-production.yaml", "--api-versions", API.format("v1"))
    names = {item["metadata"]["name"].removeprefix("keel-bundlekeel-") for item in objects if item["kind"] == "CronJob"}
    assert names == {"deadman", "recalibrate", "handback"}
    assert {"MutatingAdmissionPolicy", "PodMonitor", "PrometheusRule"} <= {item["kind"] for item in objects}
    settings = yaml.safe_load(next(o["data"]["settings.yaml"] for o in objects if "settings.yaml" in o.get("data", {})))
    assert settings["history"]["uri"].startswith("s3://")
    assert settings["calibration"]["mode"] == "recommend"


def test_two_renderings_are_identical() -> None:
    """GitOps tools apply every difference."""
    for case in CASES:
        assert yaml.safe_dump_all(_rendered(case=case), sort_keys=False) == yaml.safe_dump_all(
            _rendered(case=case), sort_keys=False
        ), case
