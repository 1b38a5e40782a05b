"""Measure the load for the demo directly at the brokers, without Bundlekeel."""

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
    """The load of one broker by its own report: bytes/s in and out together, and bundles with traffic."""

    broker: str
    throughput: float
    busy_bundles: int


def loads(cluster: Cluster, mode: str) -> list[Load]:
    """Return the load of every broker: from a new load report, or in mode `extensible` from its topics' statistics."""
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
    """Return the highest throughput divided by the mean. 1.0: balanced; 0.0: no load."""
    total = sum(row.throughput for row in rows)
    return max(row.throughput for row in rows) * len(rows) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one sidecar during the measurement: resident memory in MiB, and CPU use as a share of one core."""

    name: str
    role: str
    resident_mib: float
    cpu_percent: float


def costs(sidecars: list[Sidecar], seconds: float) -> list[Cost]:
    """Measure the cost of the running sidecars for `seconds`, while no bundle has to move."""
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
