"""Small builders for reports, averages, snapshots and plan inputs, so that a test contains only what it is about.

Load is a share of the broker's capacity: a bundle of 0.2 uses 20 % of its broker's CPU and has 20 MB/s and
20,000 msg/s, half in and half out. NICs report no limit, as in VMs and pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bundlekeel.model.averages import Averages
from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.load import BrokerReport, BundleAverages, ExcludedBroker, Floats
from bundlekeel.model.names import FULL_UPPER
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Plan
from bundlekeel.model.snapshot import Snapshot, build_snapshot
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.ledger import Ledger, LedgerEntry
from bundlekeel.planning.memory import StrategyMemory

NOW_MS = 1_700_000_000_000
MINUTE = 60_000
BYTES_PER_SHARE = 100e6
MESSAGES_PER_SHARE = 100e3
BLIND_NIC = -1000.0
# Parameters with which a plan moves bundles at the first reading (with `compat` at the first call), without budgets.
EAGER: dict[str, Any] = {
    "move_price": 0,
    "avg_hit_count_low": 1,
    "avg_hit_count_high": 1,
    "max_moves_per_cycle": 10_000,
    "max_moves_per_source": 10_000,
    "max_moves_per_target": 10_000,
    "max_moves_per_namespace": 10_000,
}


def bundle_name(number: int, namespace: str = "t/ns") -> str:
    """Return a valid bundle name. Numbers below 65,536 give different names."""
    lower = number << 16
    return f"{namespace}/0x{lower:08x}_0x{min(lower + 0x10000, FULL_UPPER):08x}"


def traffic(share: float) -> tuple[float, float, float, float]:
    """Return the traffic of a bundle that uses this share of a broker."""
    rate, size = share * MESSAGES_PER_SHARE / 2, share * BYTES_PER_SHARE / 2
    return rate, rate, size, size


def report(broker: str, bundles: Mapping[str, float], *, cpu: float | None = None, **changes: Any) -> BrokerReport:
    """Return the report of a broker with one core and these bundles (name -> share). `cpu`: by default the sum of the
    shares."""
    rows: Floats = np.array([traffic(share) for share in bundles.values()], dtype=float).reshape(-1, 4)
    busy = sum(bundles.values()) if cpu is None else cpu
    fields: dict[str, Any] = {
        "broker_id": broker,
        "usage": np.array([busy * 100, 0.0, 0.0, 0.0]),
        "limit": np.array([100.0, 1024.0, BLIND_NIC, BLIND_NIC]),
        "traffic": rows.sum(axis=0),
        "last_update": NOW_MS,
        "num_topics": len(bundles),
        "bundle_names": tuple(bundles),
        "bundle_traffic": rows,
        "bundle_counts": np.ones((len(bundles), 3), dtype=np.int64),
    }
    return BrokerReport(**{**fields, **changes})


def cluster(loads: Sequence[Sequence[float]], **changes: Any) -> list[BrokerReport]:
    """Return one report per item of `loads`: broker `b0:8080` with bundles of these shares, then `b1:8080`, and
    so on.
    """
    reports, number = [], 0
    for index, shares in enumerate(loads):
        names = [bundle_name(number + offset) for offset in range(len(shares))]
        number += len(shares)
        reports.append(report(broker(index), dict(zip(names, shares, strict=True)), **changes))
    return reports


def broker(index: int) -> str:
    """Return the id of the broker with this index in `cluster`. Ids sort by index."""
    return f"b{index:04d}:8080"


def averages_of(reports: Iterable[BrokerReport]) -> Averages:
    """Return the averages after these reports only."""
    store = Averages()
    for item in reports:
        store.add_report(item, now_ms=item.last_update)
    return store


def stored(bundle: str, share: float, samples: int = 10) -> BundleAverages:
    """Return the averages of a bundle, as a broker stores them."""
    return BundleAverages(
        bundle=bundle, short=traffic(share), long=traffic(share), short_samples=samples, long_samples=samples
    )


def entry(bundle: str, source: str, target: str, **changes: Any) -> LedgerEntry:
    """Return a move in the ledger. By default it began at `NOW_MS`, is in transit, and carries nothing."""
    empty: dict[str, Any] = {"opened_ms": NOW_MS, "traffic": (0.0,) * 4, "pressure": (0.0,) * 6}
    return LedgerEntry(bundle=bundle, source=source, target=target, **{**empty, **changes})


def move(bundle: str, source: str, target: str, **changes: Any) -> Move:
    """Return a planned move. By default it carries nothing."""
    fields: dict[str, Any] = {"rule": "avg", "threshold": 0.1, "runner_up": ""}
    fields |= {"source_before": 0.5, "source_after": 0.4, "target_before": 0.1, "target_after": 0.2}
    fields |= {"traffic": (0.0,) * 4, "pressure": (0.0,) * 6}
    return Move(bundle=bundle, source=source, target=target, **{**fields, **changes})


def snapshot(
    reports: Sequence[BrokerReport],
    *,
    averages: Averages | None = None,
    wall_ms: int = NOW_MS,
    capacity: Sequence[CapacityOverride] = (),
    excluded: Iterable[ExcludedBroker] = (),
    mode: str = "modular",
) -> Snapshot:
    """Return a snapshot of these reports. `averages`: by default the reported values."""
    store = averages_of(reports) if averages is None else averages
    return build_snapshot(
        reports=reports, averages=store, wall_ms=wall_ms, mode=mode, capacity=capacity, excluded=excluded
    )


def run(
    load: Snapshot | Sequence[BrokerReport],
    *,
    memory: StrategyMemory | None = None,
    ledger: Ledger | None = None,
    guard: GuardState | None = None,
    seed: int = 0,
    **params: Any,
) -> PlanResult:
    """Call `plan()` with a snapshot or reports, and with these parameters."""
    cluster = load if isinstance(load, Snapshot) else snapshot(load)
    return plan(
        PlanInput(
            snapshot=cluster,
            params=Parameters(**params),
            memory=memory or StrategyMemory(),
            ledger=ledger or Ledger(),
            guard=guard or GuardState(),
            seed=seed,
        )
    )


def eager(load: Snapshot | Sequence[BrokerReport], **params: Any) -> PlanResult:
    """Call `run` without hit counts and budgets, so that the whole plan comes in one cycle."""
    return run(load, **{**EAGER, **params})


def turn(reports: Sequence[BrokerReport], at: int, memory: StrategyMemory, **params: Any) -> PlanResult:
    """Run one cycle, `at` ms after `NOW_MS`."""
    return run(snapshot(reports, wall_ms=NOW_MS + at), memory=memory, **params)


def written(reports: Sequence[BrokerReport], at: int) -> list[BrokerReport]:
    """Return `reports` with `at` as their time."""
    return [replace(item, last_update=NOW_MS + at) for item in reports]


def after(plan: Plan) -> list[float]:
    """Return the predicted scores of the brokers after the plan."""
    return [round(row.score_after, 6) for row in plan.loads]


def percents_after(plan: Plan) -> list[float]:
    return [round(row.score_after * 100, 3) for row in plan.loads]
