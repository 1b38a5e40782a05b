"""values.schema.json refuses what would not work, and names the field."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundlekeel.settings.schema import rows
from dev.chart import CHART, KUBERNETES
from dev.gotools import HELM, ensure

Values = dict[str, Any]


def _template(values: Values, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    command = [str(ensure(HELM)), "template", "keel", str(CHART), "--kube-version", KUBERNETES, "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _closed(ports: list[Any] | None = None, **values: Values) -> Values:
    """Return the values with a network policy."""
    return {"networkPolicy": {"enabled": True, **({"zookeeperPorts": ports} if ports else {})}, **values}


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
        ({"pulsar": {"metadataStore": ""}}, "/pulsar/metadataStore"),
        ({"pulsar": {"cluster": "a/b"}}, "/pulsar/cluster"),
        ({"pulsar": {"jwt": {"token": "eyJ..."}}}, "token"),
        ({"settings": {"leadership": {"seats": 5}}}, "/settings/leadership/seats"),
        ({"settings": {"foo": 1}}, "/settings"),
        ({"settings": {"store": {"password": "x"}}}, "/settings/store"),
        ({"settings": {"strategy": "nonsense"}}, "/settings/strategy"),
        ({"settings": {"force_mixed": "sometimes"}}, "/settings/force_mixed"),
        ({"settings": {"parameters": {"max_move_per_hour": 5}}}, "/settings/parameters"),
        ({"settings": {"parameters": {"max_moves_per_hour": "abc"}}}, "/settings/parameters/max_moves_per_hour"),
        ({"settings": {"history": {"keep_days": "abc"}}}, "/settings/history/keep_days"),
        ({"settings": {"cycle": {"interval": "soon"}}}, "/settings/cycle/interval"),
        ({"mode": None}, "mode"),
        ({"pulsar": {"cluster": None}}, "/pulsar"),
        ({"sidecar": {"runAsUser": 0}}, "/sidecar/runAsUser"),
        ({"sidecar": {"runAsUser": 2**31}}, "/sidecar/runAsUser"),
        ({"sidecar": {"join": "webhook"}}, "/sidecar/join"),
        ({"sidecar": {"brokerContainer": ""}}, "/sidecar/brokerContainer"),
        ({"sidecar": {"brokerLabels": {"a/b/c": "x"}}}, "a/b/c"),
        ({"sidecar": {"resources": {"limits": {"memory": -1}}}}, "/sidecar/resources/limits/memory"),
        ({"sidecar": {"resources": {"limits": {"memroy": 1}}}}, "memroy"),
        ({"image": {"repository": "a b"}}, "/image/repository"),
        ({"image": {"tag": "a:b"}}, "/image/tag"),
        ({"pulsar": {"jwt": {"key": ""}}}, "/pulsar/jwt/key"),
        ({"deployment": {"enabled": "no"}}, "/deployment/enabled"),
        ({"deadman": {"after": "10 minutes"}}, "/deadman/after"),
        ({"deadman": {"schedule": "every two minutes"}}, "/deadman/schedule"),
        ({"recalibrate": {"spark": {"master": "yarn"}}}, "/recalibrate/spark/master"),
        ({"networkPolicy": {"brokerPorts": []}}, "/networkPolicy/brokerPorts"),
        ({"recommend": {"output": "csv"}}, "/recommend/output"),
        ({"service": {"type": "ExternalName"}}, "/service/type"),
        ({"ingress": {"hosts": ["https://a.b"]}}, "/ingress/hosts/0"),
        ({"ingress": {"pathType": "Exact"}}, "/ingress/pathType"),
        ({"service": {"loadBalancerSourceRanges": ["10.0.0.1"]}}, "/service/loadBalancerSourceRanges/0"),
        ({"extraInitContainers": [{"image": "x"}]}, "/extraInitContainers/0"),
    ],
    ids=lambda item: json.dumps(item) if isinstance(item, dict) else "",
)
def test_refused(values: Values, named: str, tmp_path: Path) -> None:
    """Each by the schema, before anything is rendered."""
    answer = _template(values, tmp_path)
    assert answer.returncode != 0
    assert "values don't meet the specifications of the schema" in answer.stderr
    assert named in answer.stderr


def test_seconds_may_be_durations(tmp_path: Path) -> None:
    """The sidecar takes them by our names, so the schema does."""
    for value, code in (("30m", 0), ("soon", 1)):
        assert _template({"settings": {"parameters": {"cool_down_seconds": value}}}, tmp_path).returncode == code


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
        resources = section["properties"]["resources"]
        assert set(resources.pop("properties")) == without_defaults
        resources.pop("additionalProperties")
    del schema["properties"]["settings"]["additionalProperties"]  # these are the sidecar's, not the chart's
    compare(values, schema, "")


def test_every_value_is_described_in_the_schema() -> None:
    """Artifact Hub and editors show these words; they are those of the README, both from values.yaml."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z][\w.]+) \| \w+ \| `.*?` \| (.*) \|$", readme, re.MULTILINE)
    assert len(rows) > 100
    for name, description in rows:
        node = schema
        for part in name.split("."):
            node = node["properties"][part]
        assert node.get("description") == description, name


def test_no_secret_can_be_given_as_a_value() -> None:
    """Secrets are named, never held: values end up in the release's own Secret, in logs of pipelines and in git."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8").lower()
    keys = {line.strip().split(":")[0] for line in text.splitlines() if ":" in line and "#" not in line}
    assert not keys & {"password", "token", "secret", "secretkey", "privatekey"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"history": {"enabled": True, "uri": "/history"}}, "history.uri: the folder /history is on no volume"),
        ({"history": {"enabled": True, "uri": "history"}}, "history.uri: the folder history is on no volume"),
        (
            {"history": {"enabled": True, "uri": "/data/h", "existingClaim": "x"}},
            "history.existingClaim, which is mounted at /history",
        ),
        (
            {"history": {"enabled": True, "uri": "/history2", "existingClaim": "x"}},
            "the folder /history2 is on no volume",
        ),
        ({"history": {"existingClaim": "x"}}, "history.enabled is false, so nothing is recorded"),
        ({"history": {"uri": "s3://b"}}, "history.enabled is false, so nothing is recorded"),
        (
            {"history": {"enabled": True, "uri": "s3://b"}, "recalibrate": {"enabled": True, "out": "/out"}},
            "recalibrate.out: the folder",
        ),
        ({"sidecar": {"enabled": True, "join": "policy"}}, "image.repository names no registry"),
        ({"history": {"enabled": True}, "sidecar": {"enabled": True}}, "wait for a claim that this release makes"),
        (
            {"sidecar": {"enabled": True}, "extraVolumes": [{"name": "a", "hostPath": {"path": "/"}}]},
            "a volume of type hostPath is not supported",
        ),
        (_closed(pulsar={"metadataStore": "zk:a:2181,b:2182/x:1"}), "port 2182 of pulsar.metadataStore is missing"),
        (_closed([2182], pulsar={"configurationStore": "zk:b:2182"}), "port 2181 of pulsar.metadataStore is missing"),
        (_closed([2182], pulsar={"metadataStore": "zk:zk"}), "port 2181 of pulsar.metadataStore is missing"),
        (_closed(history={"enabled": True, "uri": "s3://b"}), "what history.uri names cannot be reached"),
        (_closed(settings={"prometheus": {"url": "http://p"}}), "what settings.prometheus.url names cannot be reached"),
        (
            _closed(settings={"notify": {"webhooks": [{"name": "a", "url_file": "/a"}]}}),
            "what settings.notify.webhooks names cannot be reached",
        ),
        ({"settings": {"api": {"port": 9999}}}, "settings.api.port: set api.port"),
        ({"settings": {"api": {"port": 0}}}, "settings.api.port: set api.port"),
        ({"settings": {"cluster": "other"}}, "settings.cluster: set pulsar.cluster"),
        ({"settings": {"mode": "act"}}, "settings.mode: set mode"),
        ({"settings": {"history": {"uri": "s3://b"}}}, "settings.history.uri: set history.uri"),
        ({"settings": {"admin": {"token": "abc"}}}, "name a Secret in pulsar.jwt.existingSecret"),
        ({"settings": {"store": {"sasl_password": "abc"}}}, "name a Secret in pulsar.sasl.existingSecret"),
        ({"settings": {"prometheus": {"token": "abc"}}}, "settings.prometheus.token: a ConfigMap is no place"),
        ({"settings": {"notify": {"webhooks": [{"name": "a", "url": "http://a"}]}}}, "set url_file"),
        ({"pulsar": {"metadataStore": "etcd:http://e:2379"}}, "pulsar.metadataStore: only ZooKeeper is supported"),
        ({"pulsar": {"configurationStore": "oxia://o:1"}}, "pulsar.configurationStore: only ZooKeeper is supported"),
        ({"api": {"tls": {"requireClientCertificate": True}}}, "set api.tls.existingSecret"),
        (
            {"monitoring": {"serviceMonitor": {"enabled": True}}, "deployment": {"enabled": False}},
            "enable monitoring.podMonitor instead",
        ),
        ({"monitoring": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}}, "enable one of them"),
        ({"fullnameOverride": "a.b"}, "fullnameOverride"),
        ({"nameOverride": "a.b"}, "cannot be the name of a Service (no dot, and no digit first): set fullnameOverride"),
        ({"commonLabels": {"app.kubernetes.io/name": "foo"}}, "commonLabels: the chart sets the label"),
        ({"podLabels": {"app.kubernetes.io/component": "foo"}}, "podLabels: the chart sets the label"),
        ({"deadman": {"after": "10s"}}, "deadman.after: 10s is shorter than three cycles of 10s"),
        ({"deadman": {"after": "2m"}, "settings": {"cycle": {"interval": 60}}}, "shorter than three cycles of 60"),
        ({"serviceAccount": {"create": False}, "kubernetesEvents": {"enabled": True}}, "set serviceAccount.name"),
        (
            {"journal": {"existingClaim": "x"}, "settings": {"journal": {"path": "/journal/a"}}},
            "settings.journal.path: leave it out",
        ),
        ({"ingress": {"enabled": True}}, "ingress.hosts is empty: name the host"),
        ({"service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}, "set service.type to LoadBalancer"),
        ({"service": {"type": "NodePort", "loadBalancerClass": "a/b"}}, "set service.type to LoadBalancer"),
        ({"pulsar": {"sasl": {"existingSecret": "zk"}}}, "set settings.store.sasl_username"),
        ({"ingress": {"enabled": True, "hosts": ["a.b"]}, "deployment": {"enabled": False}}, "there is no Service"),
        (_closed(ingress={"enabled": True, "hosts": ["a.b"]}), "networkPolicy.apiFrom is empty"),
        (_closed(monitoring={"podMonitor": {"enabled": True}}), "networkPolicy.metricsFrom is empty"),
        (_closed(monitoring={"serviceMonitor": {"enabled": True}}), "a Prometheus of another namespace is kept out"),
    ],
    ids=lambda item: json.dumps(item) if isinstance(item, dict) else "",
)
def test_dead_combinations_are_refused_with_the_way_out(values: Values, sentence: str, tmp_path: Path) -> None:
    """Each rendered, and its pods ended at once, recorded nothing, or were never scraped."""
    answer = _template(values, tmp_path)
    assert answer.returncode != 0
    assert sentence in answer.stderr, answer.stderr


def test_the_api_takes_the_hosts_of_the_ingress(tmp_path: Path) -> None:
    """Another Host is answered with 421; a wildcard is written as the API knows it."""
    values = {"ingress": {"enabled": True, "hosts": ["keel.example.com", "*.keel.example.com"]}}
    objects = [item for item in yaml.safe_load_all(_template(values, tmp_path).stdout) if item]
    (ingress,) = [item for item in objects if item["kind"] == "Ingress"]
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == values["ingress"]["hosts"]
    (file,) = [item["data"]["settings.yaml"] for item in objects if "settings.yaml" in (item.get("data") or {})]
    assert yaml.safe_load(file)["api"]["allowed_hosts"][-2:] == ["keel.example.com", ".keel.example.com"]


def test_hosts_of_the_settings_are_added_to_those_of_the_chart(tmp_path: Path) -> None:
    """A name for Prometheus does not replace the names of the Service and the Ingress. The list contains each once."""
    own = [".example.com", "keel.example.com"]
    values = {"ingress": {"enabled": True, "hosts": ["keel.example.com"]}, "settings": {"api": {"allowed_hosts": own}}}
    objects = [item for item in yaml.safe_load_all(_template(values, tmp_path).stdout) if item]
    (file,) = [item["data"]["settings.yaml"] for item in objects if "settings.yaml" in (item.get("data") or {})]
    (service,) = [item["metadata"] for item in objects if item["kind"] == "Service"]
    name = f"{service['name']}.{service['namespace']}"
    assert yaml.safe_load(file)["api"]["allowed_hosts"] == [
        *(service["name"], name, f"{name}.svc", f"{name}.svc.cluster.local"),
        *("keel.example.com", ".example.com"),
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"history": {"enabled": True}},
        {"history": {"enabled": True, "uri": "/history/pulsar", "existingClaim": "x"}},
        {"history": {"enabled": True, "uri": "file:///history", "existingClaim": "x"}},
        {
            "history": {"enabled": True, "uri": "/data/h"},
            "extraVolumes": [{"name": "data", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        _closed(pulsar={"metadataStore": "zk:a:2181,b:2281,c/chroot:1"}),
        {
            "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]},
            "monitoring": {"podMonitor": {"enabled": True}},
        },
        # The policy is not for brokers' pods.
        _closed(
            deployment={"enabled": False},
            sidecar={"enabled": True},
            monitoring={"podMonitor": {"enabled": True}},
        ),
        {"serviceAccount": {"create": False, "name": "mine"}, "kubernetesEvents": {"enabled": True}},
        {"settings": {"compat": 4.2, "counters": {"source": "off"}, "review": False, "cycle": {"interval": "500ms"}}},
        {
            "settings": {
                "parameters": {"maxUnloadPercentage": "0.3", "move_price": 60},
                "history": {"keep_days": None},
            }
        },
        {"commonLabels": {"team": "a"}, "podLabels": {"team": "b"}, "monitoring": {"labels": {"team": "c"}}},
    ],
    ids=json.dumps,
)
def test_what_works_is_taken(values: Values, tmp_path: Path) -> None:
    """The nearest valid neighbours of refused values."""
    answer = _template(values, tmp_path)
    assert answer.returncode == 0, answer.stderr


def test_a_long_watch_of_the_failsafe_is_not_cut_off(tmp_path: Path) -> None:
    """The job's own deadline comes after it."""
    objects = yaml.safe_load_all(_template({"deadman": {"confirm": "20m"}}, tmp_path).stdout)
    (job,) = [item for item in objects if item and item["metadata"]["name"] == "keel-bundlekeel-deadman"]
    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 20 * 60


def test_every_secret_of_the_settings_is_refused(tmp_path: Path) -> None:
    """The secrets come from the model, so a new one is included."""
    for row in rows():
        if row.secret:
            values: Values = {}
            node = values.setdefault("settings", {})
            *above, name = row.key.split(".")
            for part in above:
                node = node.setdefault(part, {})
            node[name] = "abc"
            assert f"settings.{row.key}: a ConfigMap is no place for secrets" in _template(values, tmp_path).stderr
