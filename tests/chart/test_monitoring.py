"""The chart's objects for Prometheus and Grafana, and how far they can be tuned."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.chart import CHART, ROOT, render
from tests.support.chart import Object, of_kind

TUNED = {
    "monitoring": {
        "cluster": "eu-pulsar",
        "scrapeTimeout": "5s",
        "relabelings": [{"targetLabel": "region", "replacement": "eu"}],
        "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"}],
        "prometheusRule": {"labels": {"team": "messaging"}, "leaveOut": ["BundlekeelPausedLong"]},
        "dashboards": {"labels": {"grafana_dashboard": "pulsar"}, "annotations": {"grafana_folder": "Pulsar"}},
    }
}


LINK = "${runbooks}/${__data.fields.alertname}.html"


@pytest.fixture
def tuned(tmp_path: Path) -> list[Object]:
    """The operator's objects with everything set."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(TUNED), encoding="utf-8")
    return render("keel", CHART / "ci" / "prometheus-operator-values.yaml", "-f", str(file))


def _endpoint(objects: list[Object]) -> Object:
    (monitor,) = [item for item in objects if item["kind"] == "ServiceMonitor"]
    (endpoint,) = monitor["spec"]["endpoints"]
    return dict(endpoint)


def _alerts(text: Any) -> list[Object]:
    return [rule for group in text["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(
    ("case", "kind", "key"),
    [
        ("prometheus-operator", "ServiceMonitor", "endpoints"),
        ("apache-sidecar", "PodMonitor", "podMetricsEndpoints"),
    ],
)
def test_metrics_carry_the_cluster(case: str, kind: str, key: str) -> None:
    """Rules aggregate by cluster and job: two releases in one Prometheus would be one with two leaders."""
    (endpoint,) = of_kind(case, kind)["spec"][key]
    labels = {item["targetLabel"]: item["replacement"] for item in endpoint["relabelings"]}
    assert labels == {"job": "bundlekeel", "cluster": "pulsar"}


def _dashboards(objects: list[Object]) -> dict[str, str]:
    """Every dashboard by the name of its file; its ConfigMap has the same name."""
    dashboards = {item["metadata"]["name"]: item["data"] for item in objects if item["kind"] == "ConfigMap"}
    documents_by_file = {
        f"bundlekeel-{name.removeprefix('keel-bundlekeel-dashboard-')}.json": data
        for name, data in dashboards.items()
        if name.startswith("keel-bundlekeel-dashboard")
    }
    assert [list(data) for data in documents_by_file.values()] == [[name] for name in documents_by_file]
    assert documents_by_file.keys() == {file.name for file in (ROOT / "deploy/dashboards").iterdir()}
    return {name: data[name] for name, data in documents_by_file.items()}


def test_scraping_can_be_tuned(tuned: list[Object]) -> None:
    """Relabelings come after the chart's own, so that they win."""
    endpoint = _endpoint(tuned)
    assert endpoint["scrapeTimeout"] == "5s"
    assert endpoint["relabelings"][-1] == {"targetLabel": "region", "replacement": "eu"}
    own = {item["targetLabel"]: item["replacement"] for item in endpoint["relabelings"][:-1]}
    assert own == {"job": "bundlekeel", "cluster": "eu-pulsar"}
    assert endpoint["metricRelabelings"] == TUNED["monitoring"]["metricRelabelings"]
    untouched = of_kind("prometheus-operator", "ServiceMonitor")["spec"]["endpoints"][0]
    assert not {"scrapeTimeout", "metricRelabelings"} & set(untouched)


def test_alerts_get_labels_and_can_be_left_out(tuned: list[Object]) -> None:
    """The remaining alerts are the repository's, with one more label."""
    shipped = _alerts(yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")))
    (alert_rules,) = [item for item in tuned if item["metadata"]["name"] == "keel-bundlekeel-alerts"]
    rules = [rule for rule in shipped if rule["alert"] != "BundlekeelPausedLong"]
    assert len(rules) == len(shipped) - 1
    for rule in rules:
        rule["labels"] = {**rule["labels"], "team": "messaging"}
    assert _alerts(alert_rules["spec"]) == rules


def test_single_alerts_can_be_changed(tmp_path: Path) -> None:
    """Threshold, duration, severity and texts, without a copy of the rules; the other alerts stay as they are."""
    changes: dict[str, Any] = {
        "BundlekeelImbalanceLasts": {"for": "2h", "labels": {"severity": "info"}},
        "BundlekeelPausedLong": {"expr": "bundlekeel_paused == 1", "annotations": {"summary": "paused"}},
    }
    file = tmp_path / "values.yaml"
    monitoring = {"prometheusRule": {"labels": {"severity": "page"}, "changes": changes}}
    file.write_text(yaml.safe_dump({"monitoring": monitoring}), encoding="utf-8")
    objects = render("keel", CHART / "ci" / "prometheus-operator-values.yaml", "-f", str(file))
    (alert_rules,) = [item for item in objects if item["metadata"]["name"] == "keel-bundlekeel-alerts"]
    shipped = _alerts(yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")))
    for rule in shipped:
        change = changes.get(rule["alert"], {})
        labels = {**rule["labels"], "severity": "page", **change.get("labels", {})}
        rule.update(change | {"labels": labels, "annotations": rule["annotations"] | change.get("annotations", {})})
    assert _alerts(alert_rules["spec"]) == shipped


@pytest.mark.parametrize("key", ["leaveOut={BundlekeelPause}", "changes.BundlekeelPause.for=1h"])
def test_an_alert_that_does_not_exist_cannot_be_left_out_or_changed(key: str) -> None:
    """A misspelt name would otherwise page on."""
    values, name = CHART / "ci" / "prometheus-operator-values.yaml", re.split(r"[=.]", key)[0]
    with pytest.raises(RuntimeError, match=rf"monitoring\.prometheusRule\.{name}: there is no alert BundlekeelPause\b"):
        render("keel", values, "--set", f"monitoring.prometheusRule.{key}")


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("https://d.example/runbooks/{alert}.html", "https://d.example/runbooks/${__data.fields.alertname}.html"),
        ("https://d.example/show/{alert}/", "https://d.example/show/${__data.fields.alertname}/"),
    ],
)
def test_dashboards_link_to_the_runbooks_and_to_the_page(address: str, link: str) -> None:
    """The links use the addresses of the values, so they need not be typed into Grafana. Nothing else in the files
    changes.
    """
    values = CHART / "ci" / "prometheus-operator-values.yaml"
    page = "ingress.enabled=true,ingress.hosts={keel.example},ingress.tls[0].secretName=tls"
    objects = render("keel", values, "--set", f"monitoring.prometheusRule.runbookUrl={address}", "--set", page)
    for name, text in _dashboards(objects).items():
        variables = {item["name"]: item["query"] for item in json.loads(text)["templating"]["list"]}
        assert variables["page"] == "https://keel.example/ui/"
        shipped = (ROOT / "deploy/dashboards" / name).read_text(encoding="utf-8")
        back = text.replace(variables["page"], "http://localhost:8090/ui/")
        back = back.replace(f"${{runbooks}}{link.removeprefix(variables['runbooks'])}", LINK)
        assert back.replace(variables["runbooks"], "http://localhost:8000/operations/runbooks") == shipped
        assert (LINK in shipped) == (name == "bundlekeel-overview.json")
        assert link.startswith(variables["runbooks"]) and len(variables["runbooks"]) > len("https://d.example/")


def test_the_page_without_an_ingress_has_an_address_of_its_own() -> None:
    """It has precedence over the address of an Ingress. An invalid address is refused."""
    values, key = CHART / "ci" / "prometheus-operator-values.yaml", "monitoring.dashboards.pageUrl"
    for more in ("ingress.enabled=false", "ingress.enabled=true,ingress.hosts={keel.example}"):
        objects = render("keel", values, "--set", f"{key}=https://page.example/ui/", "--set", more)
        for text in _dashboards(objects).values():
            variables = {item["name"]: item["query"] for item in json.loads(text)["templating"]["list"]}
            assert variables["page"] == "https://page.example/ui/"
    with pytest.raises(RuntimeError, match="pageUrl"):
        render("keel", values, "--set", f"{key}=page.example")


def test_dashboards_have_a_label_and_a_folder(tuned: list[Object]) -> None:
    """Labels and directory match Grafana's own sidecar. Each dashboard is a ConfigMap: `kubectl apply` and Argo CD
    store the whole object in an annotation, and an object's annotations have at most 262,144 bytes.
    """
    dashboards = [item for item in tuned if item["metadata"]["name"].startswith("keel-bundlekeel-dashboard")]
    assert len(dashboards) == 5
    for item in dashboards:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "pulsar"
        assert item["metadata"]["annotations"] == {"grafana_folder": "Pulsar"}
        assert len(json.dumps(item)) < 262_144 / 2
