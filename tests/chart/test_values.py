"""values.schema.json refuses what would not work, and names the field."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.chart import CHART, KUBERNETES
from dev.gotools import HELM, ensure

Values = dict[str, Any]


def _template(values: Values, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    command = [str(ensure(HELM)), "template", "keel", str(CHART), "--kube-version", KUBERNETES, "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 2}, "replicas"),
        ({"imagePullSecrets": ["mine"]}, "/imagePullSecrets/0"),
        ({"extraArgs": "--verbose"}, "/extraArgs"),
        ({"extraVolumes": [{"emptyDir": {}}]}, "/extraVolumes/0"),
        ({"extraVolumeMounts": [{"name": "x", "mountPath": "x"}]}, "/extraVolumeMounts/0/mountPath"),
        ({"podSecurityContext": {"runAsUser": 0}}, "/podSecurityContext/runAsUser"),
        ({"livenessProbe": {"periodSeconds": 0}}, "/livenessProbe/periodSeconds"),
        ({"readinessProbe": {"httpGet": {}}}, "httpGet"),
        ({"deployment": {"replica": 2}}, "replica"),
        ({"replicaCount": 0}, "/replicaCount"),
        ({"replicaCount": "3"}, "/replicaCount"),
        ({"resources": {"limit": {"memory": "1Gi"}}}, "limit"),
        ({"resources": {"limits": {"memory": "lots"}}}, "/resources/limits/memory"),
        ({"mode": "dry-run"}, "/mode"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"api": {"port": 70000}}, "/api/port"),
        ({"api": {"tls": {"requireClientCertificate": True}}}, "/api/tls/existingSecret"),
        ({"pulsar": {"metadataStore": ""}}, "/pulsar/metadataStore"),
        ({"pulsar": {"cluster": "a/b"}}, "/pulsar/cluster"),
        ({"pulsar": {"jwt": {"token": "eyJ..."}}}, "token"),
        ({"settings": {"leadership": {"seats": 5}}}, "/settings/leadership/seats"),
        ({"sidecar": {"runAsUser": 0}}, "/sidecar/runAsUser"),
        ({"deadman": {"after": "10 minutes"}}, "/deadman/after"),
        ({"deadman": {"schedule": "every two minutes"}}, "/deadman/schedule"),
        ({"recalibrate": {"enabled": True}}, "/history/uri"),
        ({"recalibrate": {"spark": {"master": "yarn"}}}, "/recalibrate/spark/master"),
        ({"monitoring": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}}, "serviceMonitor"),
        ({"networkPolicy": {"brokerPorts": []}}, "/networkPolicy/brokerPorts"),
        ({"recommend": {"output": "csv"}}, "/recommend/output"),
    ],
    ids=lambda item: json.dumps(item) if isinstance(item, dict) else "",
)
def test_refused(values: Values, named: str, tmp_path: Path) -> None:
    """Each by the schema, before anything is rendered."""
    answer = _template(values, tmp_path)
    assert answer.returncode != 0
    assert "values don't meet the specifications of the schema" in answer.stderr
    assert named in answer.stderr


def test_every_value_is_in_the_schema() -> None:
    """A value that the schema does not know could not be set; one that only the schema knows would do nothing."""

    def compare(values: Values, schema: Values, path: str) -> None:
        if schema.get("additionalProperties") is not False:
            return
        assert set(values) == set(schema["properties"]) - ({"global"} if not path else set()), path
        for key, value in values.items():
            if isinstance(value, dict):
                compare(value, schema["properties"][key], f"{path}.{key}")

    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    without_defaults = {"requests", "limits"}
    sections = ("sidecar", "deadman", "handback", "recommend", "recalibrate")
    for section in [schema] + [schema["properties"][section] for section in sections]:
        found = section["properties"]["resources"]
        assert set(found.pop("properties")) == without_defaults
        found.pop("additionalProperties")
    compare(values, schema, "")


def test_no_secret_can_be_given_as_a_value() -> None:
    """Secrets are named, never held: values end up in the release's own Secret, in logs of pipelines and in git."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8").lower()
    keys = {line.strip().split(":")[0] for line in text.splitlines() if ":" in line and "#" not in line}
    assert not keys & {"password", "token", "secret", "secretkey", "privatekey"}
