"""No value keeps brokers from a start: an install refuses it, or the server accepts the pods with their sidecar."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dev.chart import CHART, render
from dev.kubernetes.control_plane import CommandError
from tests.support.broker_pods import apache, pod_of
from tests.support.chart import Object
from tests.support.kubernetes import Namespace

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
# The values that reach a broker pod, and have an exact schema.
REACHING: dict[str, tuple[str, ...]] = {
    "image": ("repository", "tag", "digest", "pullPolicy"),
    "sidecar": ("resources", "brokerContainer", "runAsUser", "drain"),
    "pulsar": ("jwt", "tls", "sasl"),
    "api": ("port", "advertisedHost", "auth", "tls"),
    "livenessProbe": ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"),
}
_VOLUME: Object = {"name": "v", "emptyDir": {"sizeLimit": 1000000}}
# Parts of a pod. Half of them are wrong.
LOOSE: dict[str, list[Object]] = {
    "extraEnv": [
        {"name": "A", "value": 'say "$(POD_IP)" & <b>\\n é'},
        {"name": "A", "value": 1},
        {"name": "A", "value": None},
        {"name": "A", "valeu": "b"},
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ],
    "extraEnvFrom": [
        {"secretRef": {"name": "s"}},
        {"prefix": "P_", "configMapRef": {"name": "s"}},
        {"secretRef": {"nam": "s"}},
    ],
    "extraVolumes": [
        {"name": "v", "emptyDir": {"sizeLimit": "lots"}},
        _VOLUME,
        {"name": "V", "emptyDir": {}},
        {"name": "config", "emptyDir": {}},
        {"name": "v"},
        {"name": "v", "csi": {"driver": "a.example", "readOnly": True, "volumeAttributes": {"ttl": "1", "in": "x"}}},
        {"name": "v", "secret": {"secretName": "s", "defaultMode": 256, "items": [{"key": "k", "path": "../k"}]}},
        {
            "name": "v",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                    {"secret": {"name": "s"}},
                    {"configMap": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                ]
            },
        },
        {
            "name": "v",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "metadata": {"labels": {"a/b": "c"}, "annotations": {"d": "e"}},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }
            },
        },
    ],
    "extraVolumeMounts": [
        {"name": "v", "mountPath": "/v", "readOnly": True},
        {"name": "v", "mountPath": "/tmp"},
        {"name": "absent", "mountPath": "/a"},
        {"name": "v", "mountPath": "/v", "subPathExpr": "$(POD_NAME)"},
    ],
    "imagePullSecrets": [{"name": "own"}],
}


def _of(schema: Object) -> st.SearchStrategy[Any]:
    """Return values that the schema accepts. It supports the keywords that the chart's schema uses for these values."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "object" in kinds:
        fixed = {name: _of(value) for name, value in schema.get("properties", {}).items()}
        if fixed:
            return st.fixed_dictionaries({}, optional=fixed)
        names = st.from_regex(schema["propertyNames"]["pattern"], fullmatch=True)
        usual = st.sampled_from(["cpu", "memory"])
        return st.dictionaries(usual | names, _of(schema["additionalProperties"]), max_size=2)
    least, most = schema.get("minimum", -(2**40)), schema.get("maximum", 2**40)
    choices: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "integer": st.integers(least, most),
        "number": st.integers(least, most) | st.floats(least, most, allow_nan=False, width=32),
        "string": st.from_regex(schema.get("pattern", r"\A[ -~]*\Z"), fullmatch=True).filter(
            lambda text: schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 100)
        ),
    }
    return st.one_of(*(choices[kind] for kind in kinds))


@st.composite
def values(draw: st.DrawFn) -> Object:
    """Draw values that the schema accepts, most of them unset."""
    drawn: Object = {}
    for section, keys in REACHING.items():
        for key in keys:
            if draw(st.integers(0, 3)) == 0:
                drawn.setdefault(section, {})[key] = draw(_of(SCHEMA[section]["properties"][key]))
    for key, items in LOOSE.items():
        if draw(st.integers(0, 2)) == 0:
            drawn[key] = [draw(st.sampled_from(items))]
    return drawn


def each_loose_value(test: Any) -> Any:
    """Add an example for each of `LOOSE`."""
    for key, items in LOOSE.items():
        for item in items:
            mounted = {"extraVolumes": [_VOLUME]} if key == "extraVolumeMounts" else {}
            test = example(drawn={key: [item], **mounted})(test)
    return test


def test_a_broker_starts_with_every_value_that_an_install_accepts(namespace: Namespace, tmp_path: Path) -> None:
    """Helm refuses it, or the server refuses the object that is validated first, or the pod gets its sidecar."""
    numbers, accepted = itertools.count(), []

    @each_loose_value
    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(drawn=values())
    def check(drawn: Object) -> None:
        labels = {"example": f"e{next(numbers)}"}
        if _install(drawn, labels, namespace, tmp_path / "values.yaml"):
            _assert_starts(drawn, labels, namespace)
            accepted.append(drawn)

    check()
    assert len(accepted) >= 10


def _install(drawn: Object, labels: Object, namespace: Namespace, file: Path) -> bool:
    """Do what an install does with the policy. Return False if Helm or the server refuses the values."""
    sidecar = {**drawn.get("sidecar", {}), "enabled": True, "join": "policy", "brokerLabels": labels}
    image = {"image": {"repository": "mirror.example/bundlekeel", **drawn.get("image", {})}}
    more = {**image, "settings": {"store": {"sasl_username": "keel"}}, "sidecar": sidecar}
    file.write_text(yaml.safe_dump({**drawn, **more}), encoding="utf-8")
    try:
        objects = render("keel", file, "--namespace", namespace.name)
    except RuntimeError:
        return False
    (check,) = [item for item in objects if item["kind"] == "PodTemplate"]
    try:
        namespace.kubectl("create", "--dry-run=server", "-f-", stdin=json.dumps(check))
    except CommandError:
        return False
    policy = [item for item in objects if item["kind"].startswith("MutatingAdmissionPolicy")]
    assert len(policy) == 2
    namespace.kubectl("apply", "-f-", stdin=yaml.safe_dump_all(policy))
    return True


def _assert_starts(drawn: Object, labels: Object, namespace: Namespace) -> None:
    """Wait until the policy has its effect. A pod with a volume of the same name starts without the sidecar."""
    pod = pod_of(apache())
    pod["metadata"]["labels"] |= labels
    pod["spec"]["containers"][0]["name"] = drawn.get("sidecar", {}).get("brokerContainer", "pulsar-broker")
    clash = "config" in [item["name"] for item in drawn.get("extraVolumes", [])]
    end = time.monotonic() + (3 if clash else 60)
    joined = False
    while not joined and time.monotonic() < end:
        text = namespace.kubectl("create", "--dry-run=server", "-o", "json", "-f-", stdin=json.dumps(pod))
        joined = '"name": "bundlekeel"' in text
    assert joined is not clash
