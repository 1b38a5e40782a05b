"""Generated states of large clusters for `make bench`, as JSON lines for `decide` and Pulsar's Java classes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

SIZES = ((10, 100), (100, 100), (1000, 100), (1000, 300))
NOW_MS = 1_700_000_000_000


def turn_line(brokers: int, bundles: int) -> bytes:
    """Return one input line: the report of every broker, and the average loads of every bundle, equal to its current
    load.
    """
    reports = reports_of(brokers, bundles)
    averages = {
        name: _bundle_data(figures) for report in reports.values() for name, figures in report["lastStats"].items()
    }
    return json.dumps({"now": NOW_MS, "brokers": reports, "bundles": averages, "recent": []}).encode()


def extensible_line(brokers: int, bundles: int) -> bytes:
    """Return one input line with the same cluster under the extensible load manager: each broker's load and its ten
    largest bundles.
    """
    reports = reports_of(brokers, bundles)
    loads, top = {}, {}
    for name, report in reports.items():
        score, size = report["cpu"]["usage"] / 100, report["msgThroughputIn"] + report["msgThroughputOut"]
        resources = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut", *_traffic(0.0))
        loads[name] = {field: report[field] for field in resources} | {
            "bundleCount": report["numBundles"],
            "topics": report["numTopics"],
            "maxResourceUsage": score,
            "weightedMaxEMA": score,
            "msgThroughputEMA": size,
            "updatedAt": NOW_MS,
            "reportedAt": NOW_MS,
        }
        largest = sorted(report["lastStats"].items(), key=lambda item: float(item[1]["msgThroughputIn"]))[-10:]
        top[name] = [{"bundleName": bundle, "stats": figures} for bundle, figures in largest]
    return json.dumps({"now": NOW_MS, "brokers": loads, "top_bundles": top}).encode()


def reports_of(brokers: int, bundles: int) -> dict[str, dict[str, Any]]:
    """Return load reports as brokers write them, by broker. Bundle sizes are Zipf-like; three brokers in ten have about
    twice the load.
    """
    random = np.random.default_rng(1)
    reports = {}
    for broker in range(brokers):
        rates = random.pareto(2.0, bundles) * 100 * (2.2 if broker % 10 < 3 else 1.0)
        names = [_bundle(broker * bundles + index) for index in range(bundles)]
        stats = {name: _stats(rate) for name, rate in zip(names, rates.tolist(), strict=True)}
        reports[f"broker-{broker:04d}:8080"] = _report(broker, stats, float(rates.sum()))
    return reports


def _bundle(number: int) -> str:
    lower = number % 65_535
    return f"t/ns{number // 65_535}/0x{lower << 16:08x}_0x{(lower + 1) << 16:08x}"


def _traffic(rate: float) -> dict[str, float]:
    # 10 kB per message, because ThresholdShedder ignores a throughput below 10 MB/s.
    return {"msgRateIn": rate, "msgThroughputIn": rate * 10_000, "msgRateOut": rate, "msgThroughputOut": rate * 10_000}


def _stats(rate: float) -> dict[str, float]:
    return _traffic(rate) | {"consumerCount": 1, "producerCount": 1, "topics": 2, "cacheSize": 0}


def _bundle_data(figures: dict[str, float]) -> dict[str, Any]:
    traffic = {key: figures[key] for key in ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")}
    return {
        "shortTermData": traffic | {"maxSamples": 10, "numSamples": 10},
        "longTermData": traffic | {"maxSamples": 1000, "numSamples": 100},
        "topics": 2,
    }


def _report(broker: int, stats: dict[str, dict[str, float]], total: float) -> dict[str, Any]:
    memory, blind = {"usage": 100.0, "limit": 1000.0}, {"usage": 0.0, "limit": 0.0}
    return {
        "webServiceUrl": f"http://broker-{broker:04d}:8080",
        "cpu": {"usage": min(95.0, total / len(stats) * 0.35), "limit": 100.0},
        "memory": memory,
        "directMemory": memory,
        "bandwidthIn": blind,
        "bandwidthOut": blind,
        **_traffic(total),
        "lastUpdate": NOW_MS,
        "startTimestamp": NOW_MS - 10**6,
        "lastStats": stats,
        "numTopics": len(stats) * 2,
        "numBundles": len(stats),
        "bundles": list(stats),
        "loadReportType": "LocalBrokerData",
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    }
