"""Plans of the strategy `transfer`, in one cycle or several, and the decision of Pulsar's class for the same
brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.compat import transfer as compat
from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.planning.engine import PlanResult
from bundlekeel.planning.memory import StrategyMemory
from tests.support import builders
from tests.support.builders import EAGER, NOW_MS, cluster, run

AT_ONCE: dict[str, Any] = {**EAGER, "strategy": "transfer", "transfer_hit_count": 0, "move_price": 0}
HOT_COLD: list[list[float]] = [[0.2, 0.2, 0.2, 0.2], [0.05, 0.05]]


def now(loads: Sequence[Sequence[float]], **params: Any) -> Plan:
    """Return the plan of one cycle that moves bundles immediately."""
    return run(cluster(loads), **{**AT_ONCE, **params}).plan


def after(plan: Plan) -> list[float]:
    """Return the predicted scores of the brokers after the plan."""
    return [round(row.score_after, 4) for row in plan.loads]


def moves(plan: Plan) -> list[tuple[str, str, str]]:
    """(bundle, source, target) of every move, in order."""
    return [(move.bundle, move.source, move.target) for move in plan.moves]


def refused(plan: Plan, code: Code) -> list[str]:
    """Return the bundles (or whole brokers) that were refused with this code."""
    return [item.bundle or item.broker for item in plan.refusals if item.code is code]


def turn(reports: Sequence[BrokerReport], at: int, memory: StrategyMemory, **params: Any) -> PlanResult:
    """One cycle of `transfer` `at` ms after the beginning."""
    return builders.turn(reports, at, memory, **{"strategy": "transfer", **params})


def written(at: int, loads: Sequence[Sequence[float]] = HOT_COLD) -> list[BrokerReport]:
    """Reports written at this time."""
    return cluster(loads, last_update=NOW_MS + at)


def as_class(loads: Sequence[Sequence[float]], **params: Any) -> compat.TransferOutcome:
    """Return the decision of Pulsar's class on the same brokers. A bundle's share is its part of 100 MB/s."""
    brokers, top = {}, {}
    for reported in cluster(loads):
        size = float(reported.traffic[2:].sum())
        brokers[reported.broker_id] = compat.Load(
            ema=float(reported.usage[0]) / 100,
            throughput_ema=size,
            throughput_in=size,
            throughput_out=0.0,
            updated_at=NOW_MS,
        )
        sizes = reported.bundle_traffic[:, 2:].sum(axis=1).tolist()
        rows = sorted(zip(reported.bundle_names, sizes, strict=True), key=lambda row: row[1])
        top[reported.broker_id] = [compat.TopBundle(name, value, 0.0) for name, value in rows]
    values = Parameters(**{"strategy": "transfer", "compat": "4.2", "transfer_hit_count": 0, "move_price": 0, **params})
    return compat.find_bundles(compat.TransferPicture(now_ms=NOW_MS, brokers=brokers, top=top), values, 0)
