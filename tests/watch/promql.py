"""The metrics and labels of a query, read by patterns: promtool 2.42 cannot print a query's tree."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import ProcessCollector

from bundlekeel.records.metrics import METRICS, PREFIX

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "deploy/prometheus"
BOARDS: Final = sorted((ROOT / "deploy/dashboards").glob("*.json"))
# What Prometheus itself adds to a scraped series; `cluster` where the scrape configuration sets it.
TARGET: Final = frozenset({"cluster", "job", "instance"})
# Metrics of others: the Prometheus client of the process, kube-state-metrics, brokers, and Prometheus itself.
OTHERS: Final = {
    **{
        sample.name: TARGET
        for family in ProcessCollector(namespace=PREFIX.rstrip("_"), registry=None).collect()
        for sample in family.samples
    },
    "kube_job_status_failed": frozenset({"cluster", "namespace", "job_name", "reason"}),
    "kube_job_owner": frozenset({"cluster", "namespace", "job_name", "owner_kind", "owner_name"}),
    "ALERTS": TARGET
    | {"alertname", "alertstate", "severity", "namespace", "broker", "code", "state", "group", "topic", "kind"}
    | {"sink", "where"},
    "kube_job_status_start_time": frozenset({"cluster", "namespace", "job_name"}),
    **dict.fromkeys(("pulsar_broker_publish_latency", "pulsar_topic_load_times"), TARGET | {"quantile"}),
    **dict.fromkeys(("pulsar_broker_producers_count", "pulsar_broker_consumers_count"), TARGET),
    "pulsar_lb_unload_bundle_total": TARGET,
}

_NAME = re.compile(r"\b(?:bundlekeel_\w+|kube_\w+|pulsar_\w+|ALERTS|\w+:bundlekeel_[\w:]+)")
_SELECTOR = re.compile(r"([\w:]+)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_STRING = re.compile(r'"[^"]*"')


def documents(name: str) -> list[dict[str, Any]]:
    """The rules of a file of deploy/prometheus."""
    groups = yaml.safe_load((RULES / name).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[tuple[str, dict[str, Any]]]:
    """(dashboard, panel) of the dashboards, rows left out."""
    boards = [(file.stem, json.loads(file.read_text(encoding="utf-8"))) for file in BOARDS]
    return [(name, panel) for name, board in boards for panel in flat(board) if panel["type"] != "row"]


def flat(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the dashboard's panels and rows, with those of collapsed rows."""
    return [panel for outer in board["panels"] for panel in (outer, *outer.get("panels", ()))]


def panel_queries() -> list[tuple[str, str]]:
    """Every (place, query) of the dashboards' panels."""
    return [(f"{name}/{panel['title']}", target["expr"]) for name, panel in panels() for target in panel["targets"]]


def annotations() -> list[tuple[str, dict[str, Any]]]:
    """Return (dashboard, annotation) for the marks on all panels."""
    boards = [(file.stem, json.loads(file.read_text(encoding="utf-8"))) for file in BOARDS]
    return [(name, item) for name, board in boards for item in board["annotations"]["list"]]


@dataclass(frozen=True)
class Known:
    """Labels by name of every series there is: those we expose, those that recording rules make."""

    labels: dict[str, frozenset[str]]

    @classmethod
    def now(cls) -> Known:
        """Return the metrics of this release."""
        metrics: dict[str, frozenset[str]] = dict(OTHERS)
        for metric in METRICS:
            labels = frozenset(metric.labels) | TARGET
            if metric.kind == "histogram":
                metrics |= {PREFIX + metric.name + end: labels for end in ("_sum", "_count")}
                metrics[f"{PREFIX}{metric.name}_bucket"] = labels | {"le"}
            else:
                metrics[PREFIX + metric.name] = labels
        for rule in documents("recording.yml"):
            metrics[rule["record"]] = frozenset(groupings(rule["expr"]))
        return cls(metrics)

    def faults(self, query: str) -> list[str]:
        """Return the unknown parts of a query."""
        problems = [f"no metric {name}" for name in names(query) if name not in self.labels]
        for name, matchers in _SELECTOR.findall(query):
            wrong = set(_MATCHER.findall(matchers)) - self.labels.get(name, frozenset())
            problems += [f"{name} has no label {label}" for label in sorted(wrong)]
        wrong = set(groupings(query)) - self.of(query)
        return problems + [f"no metric of it has a label {label}" for label in sorted(wrong)]

    def of(self, query: str) -> frozenset[str]:
        """The labels of all metrics in a query together."""
        return frozenset().union(*(self.labels.get(name, frozenset()) for name in names(query)))


def names(query: str) -> list[str]:
    """Metrics named in a query."""
    return _NAME.findall(_STRING.sub('""', query))


def series(query: str) -> set[str]:
    """Metrics that a query comes from; of what a recording rule makes, those that the rule reads."""
    expressions = {rule["record"]: rule["expr"] for rule in documents("recording.yml")}
    return {leaf for name in names(query) for leaf in (series(expressions[name]) if name in expressions else {name})}


def groupings(query: str) -> list[str]:
    """Labels named in by, on, ignoring and so on."""
    groups = _GROUPING.findall(_STRING.sub('""', query))
    return [label.strip() for group in groups for label in group.split(",") if label.strip()]
