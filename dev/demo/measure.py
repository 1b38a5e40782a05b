"""The demo's own measurements, without Bundlekeel: the brokers' own fresh values."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

from dev.cluster import BrokerInfo, Cluster
from dev.identity import Identity
from dev.sidecar import Sidecar


@dataclass(frozen=True, slots=True)
class Load:
    """One broker by its own load report: bytes/s in and out together, and bundles that carry traffic."""

    broker: str
    throughput: float
    busy_bundles: int


def loads(cluster: Cluster, mode: str) -> list[Load]:
    """Ask every broker for its own figures: a fresh load report, or in extensible mode, which has none, its topics."""
    look, identity = _by_topics if mode == "extensible" else _by_report, cluster.identity("admin")
    return [look(broker, identity) for broker in cluster.brokers]


def _by_report(broker: BrokerInfo, identity: Identity | None) -> Load:
    report = _ask(broker, "load-report", identity)
    stats = report.get("lastStats", {}).values()
    busy = sum(1 for item in stats if item["msgThroughputIn"] + item["msgThroughputOut"] > 0)
    return Load(broker.broker_id, float(report["msgThroughputIn"]) + float(report["msgThroughputOut"]), busy)


def _by_topics(broker: BrokerInfo, identity: Identity | None) -> Load:
    total, busy = 0.0, 0
    for bundles in _ask(broker, "topics", identity).values():
        for domains in bundles.values():
            stats = [topic for topics in domains.values() for topic in topics.values()]
            carried = sum(float(topic["msgThroughputIn"]) + float(topic["msgThroughputOut"]) for topic in stats)
            total, busy = total + carried, busy + (carried > 0)
    return Load(broker.broker_id, total, busy)


def _ask(broker: BrokerInfo, what: str, identity: Identity | None) -> dict[str, Any]:
    answer = httpx.get(
        f"{broker.web_url}/admin/v2/broker-stats/{what}",
        timeout=10.0,
        verify=True if identity is None else identity.tls,
        headers={} if identity is None else identity.headers,
    )
    answer.raise_for_status()
    document: dict[str, Any] = answer.json()
    return document


def max_over_mean(rows: list[Load]) -> float:
    """max/mean of throughput over brokers; 1.0 is even, 0.0 means no load at all."""
    total = sum(row.throughput for row in rows)
    return max(row.throughput for row in rows) * len(rows) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one sidecar: resident memory in MiB, share of one core during the measurement."""

    name: str
    role: str
    resident_mib: float
    cpu_percent: float


def costs(sidecars: list[Sidecar], seconds: float) -> list[Cost]:
    """Measure the sidecars that are alive for a while in which nothing has to be done."""
    alive = [item for item in sidecars if item.alive]
    before = {item.name: item.cost()[1] for item in alive}
    started = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - started
    rows = []
    for item in alive:
        resident, used = item.cost()
        rows.append(
            Cost(item.name, item.state().get("role", "?"), resident, (used - before[item.name]) / elapsed * 100)
        )
    return rows
