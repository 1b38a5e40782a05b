"""What the demo measures by itself, without asking Bundlekeel: the brokers' own fresh reports."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx

from dev.cluster import BrokerInfo
from dev.sidecar import Sidecar


@dataclass(frozen=True, slots=True)
class Load:
    """One broker by its own load report: bytes/s in and out together, and bundles that carry traffic."""

    broker: str
    throughput: float
    busy_bundles: int


def loads(brokers: list[BrokerInfo]) -> list[Load]:
    """Ask every broker for a fresh report (`/admin/v2/broker-stats/load-report`)."""
    found = []
    for broker in brokers:
        answer = httpx.get(f"{broker.web_url}/admin/v2/broker-stats/load-report", timeout=10.0)
        answer.raise_for_status()
        report = answer.json()
        stats = report.get("lastStats", {}).values()
        busy = sum(1 for item in stats if item["msgThroughputIn"] + item["msgThroughputOut"] > 0)
        total = float(report["msgThroughputIn"]) + float(report["msgThroughputOut"])
        found.append(Load(broker.broker_id, total, busy))
    return found


def max_over_mean(rows: list[Load]) -> float:
    """max/mean of throughput over brokers; 1.0 is even, 0.0 means no load at all."""
    total = sum(row.throughput for row in rows)
    return max(row.throughput for row in rows) * len(rows) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one sidecar takes: resident memory in MiB, share of one core over the time measured."""

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
