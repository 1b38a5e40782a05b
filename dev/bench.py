"""Times decoding and planning on large clusters: `make bench`. Prints a table; asserts nothing.

decode: JSON text of every broker's report to a snapshot, averages already in memory, as in the daemon.
plan: the strategy on that snapshot, three brokers in ten being hot, so that it acts.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bundlekeel.codec import decode_report
from bundlekeel.core.averages import Averages
from bundlekeel.core.engine import PlanInput, plan
from bundlekeel.core.params import STRATEGIES, Parameters
from bundlekeel.core.snapshot import Snapshot, build_snapshot

SIZES = ((10, 100), (100, 100), (1000, 100), (1000, 300))
NOW_MS = 1_700_000_000_000


def texts(brokers: int, bundles: int, seed: int = 1) -> dict[str, bytes]:
    """Reports as the brokers write them: Zipf-like bundles, three brokers in ten about twice as loaded."""
    random = np.random.default_rng(seed)
    found = {}
    for broker in range(brokers):
        rates = random.pareto(2.0, bundles) * 100 * (2.2 if broker % 10 < 3 else 1.0)
        names = [_bundle(broker * bundles + index) for index in range(bundles)]
        stats = {name: _stats(rate) for name, rate in zip(names, rates.tolist(), strict=True)}
        found[f"broker-{broker:04d}:8080"] = json.dumps(_report(broker, stats, float(rates.sum()))).encode()
    return found


def _bundle(number: int) -> str:
    lower = number % 65_535
    return f"t/ns{number // 65_535}/0x{lower << 16:08x}_0x{(lower + 1) << 16:08x}"


def _stats(rate: float) -> dict[str, float]:
    traffic = {"msgRateIn": rate, "msgThroughputIn": rate * 1000, "msgRateOut": rate, "msgThroughputOut": rate * 1000}
    return traffic | {"consumerCount": 1, "producerCount": 1, "topics": 2, "cacheSize": 0}


def _report(broker: int, stats: dict[str, dict[str, float]], total: float) -> dict[str, Any]:
    memory, blind = {"usage": 100.0, "limit": 1000.0}, {"usage": 0.0, "limit": 0.0}
    return {
        "webServiceUrl": f"http://broker-{broker:04d}:8080",
        "cpu": {"usage": min(95.0, total / len(stats) * 0.35), "limit": 100.0},
        "memory": memory,
        "directMemory": memory,
        "bandwidthIn": blind,
        "bandwidthOut": blind,
        **_stats(total),
        "lastUpdate": NOW_MS,
        "startTimestamp": NOW_MS - 10**6,
        "lastStats": stats,
        "numTopics": len(stats) * 2,
        "numBundles": len(stats),
        "bundles": list(stats),
        "loadReportType": "LocalBrokerData",
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    }


def decode(reports: dict[str, bytes], averages: Averages) -> Snapshot:
    """What the daemon does with freshly read nodes."""
    decoded = [decode_report(broker, data, max_bytes=10**8) for broker, data in reports.items()]
    return build_snapshot(reports=decoded, averages=averages, wall_ms=NOW_MS)


def timed(body: Callable[[], object], turns: int) -> tuple[float, float, float]:
    """(min, median, max) milliseconds of CPU time."""
    spent = []
    for _ in range(turns):
        started = time.process_time()
        body()
        spent.append((time.process_time() - started) * 1000)
    return min(spent), statistics.median(spent), max(spent)


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(prog="python -m dev.bench", description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="repetitions of each measurement (default 5)")
    turns = parser.parse_args().turns
    table = Table(title="CPU milliseconds: min / median / max", title_justify="left")
    for name in ("brokers x bundles", "what", "min", "median", "max", "moves"):
        table.add_column(name, justify="left" if name in ("brokers x bundles", "what") else "right")
    for brokers, bundles in SIZES:
        reports, averages = texts(brokers, bundles), Averages()
        for broker, data in reports.items():
            averages.add_report(decode_report(broker, data, max_bytes=10**8), now_ms=NOW_MS)
        snapshot = decode(reports, averages)
        label = f"{brokers} x {bundles}"
        row = timed(lambda reports=reports, averages=averages: decode(reports, averages), turns)  # type: ignore[misc]
        table.add_row(label, "decode", *(f"{value:.1f}" for value in row), "")
        for strategy in STRATEGIES:
            params = Parameters(strategy=strategy, avg_hit_count_low=1, avg_hit_count_high=1)
            given = PlanInput(snapshot=snapshot, params=params)
            moves = len(plan(given).plan.moves)
            row = timed(lambda given=given: plan(given), turns)  # type: ignore[misc]
            table.add_row("", strategy, *(f"{value:.1f}" for value in row), str(moves))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"peak resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
