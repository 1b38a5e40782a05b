"""What a plan was made from, as metrics: usage, averages, hit counts, differences, parameters. Nothing by bundle."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields
from typing import Final

import numpy as np

from bundlekeel.core.model.load import RATE_IN, RATE_OUT, RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Plan
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.planning.engine import PlanInput, PlanResult
from bundlekeel.core.planning.ledger import preallocated
from bundlekeel.core.planning.memory import Hits
from bundlekeel.core.strategies.avg import thresholds_of
from bundlekeel.ports import Telemetry

# The gauges by broker that this module sets; brokers that are gone lose their series.
BY_BROKER: Final = (
    "broker_usage_ratio",
    "broker_average_msg_rate",
    "broker_average_bytes_per_second",
    "broker_preallocated_bundles",
)
OF_PAIRS: Final = ("broker_hits", "broker_pair_difference_ratio")
_UNCOUNTED: Final = Hits(side="")


def publish_plan(telemetry: Telemetry, given: PlanInput, result: PlanResult) -> None:
    """Everything about one plan that its journal line does not say."""
    snapshot, plan = given.snapshot, result.plan
    telemetry.count("decisions_total", strategy=plan.strategy, scope="cluster", code=plan.verdict.code.value)
    for code, amount in Counter(verdict.code.value for verdict in plan.brokers).items():
        telemetry.count("decisions_total", amount, strategy=plan.strategy, scope="broker", code=code)
    unsplit = Counter(refusal.code.value for refusal in plan.split_refusals)
    for code, amount in unsplit.items():
        telemetry.gauge("unsplit_bundles", float(amount), code=code)
    telemetry.retain("unsplit_bundles", "code", set(unsplit))
    telemetry.gauge("snapshot_bundles", float(len(snapshot.bundles)))
    _brokers(telemetry, snapshot)
    waiting = preallocated(result.ledger, snapshot.brokers.ids, snapshot.wall_ms)
    for broker, bundles in waiting.items():
        telemetry.gauge("broker_preallocated_bundles", float(len(bundles)), broker=broker)
    present = set(snapshot.brokers.ids)
    for name in BY_BROKER:
        telemetry.retain(name, "broker", present)
    _history(telemetry, result, present)
    _pairs(telemetry, given.params, result)
    for field in fields(Parameters):
        value = getattr(given.params, field.name)
        if isinstance(value, int | float):
            telemetry.gauge("parameter", float(value), parameter=field.name)


def _brokers(telemetry: Telemetry, snapshot: Snapshot) -> None:
    brokers = snapshot.brokers
    for broker, percents, limits in zip(brokers.ids, brokers.percent().tolist(), brokers.limit.tolist(), strict=True):
        for resource, percent, limit in zip(RESOURCES, percents, limits, strict=True):
            if limit > 0:
                telemetry.gauge("broker_usage_ratio", percent / 100, broker=broker, resource=resource)
    for window, traffic in (("short", snapshot.bundles.short), ("long", snapshot.bundles.long)):
        for name, columns in (
            ("broker_average_msg_rate", (RATE_IN, RATE_OUT)),
            ("broker_average_bytes_per_second", (THROUGHPUT_IN, THROUGHPUT_OUT)),
        ):
            for broker, total in zip(brokers.ids, _sums(snapshot, traffic, columns).tolist(), strict=True):
                telemetry.gauge(name, total, broker=broker, window=window)


def _sums(snapshot: Snapshot, traffic: Floats, columns: tuple[int, int]) -> Floats:
    """These columns of the bundles' traffic, added up by owner."""
    weights = traffic[:, list(columns)].sum(axis=1)
    summed: Floats = np.bincount(snapshot.bundles.owner, weights=weights, minlength=len(snapshot.brokers)).astype(
        np.float64
    )
    return summed


def _history(telemetry: Telemetry, result: PlanResult, present: set[str]) -> None:
    kept = {broker: item.score for broker, item in result.memory.history.items() if broker in present}
    for broker, score in kept.items():
        telemetry.gauge("broker_history_score_ratio", score, broker=broker)
    telemetry.retain("broker_history_score_ratio", "broker", set(kept))


def _pairs(telemetry: Telemetry, params: Parameters, result: PlanResult) -> None:
    """Only `avg` pairs brokers: with another strategy its thresholds would say nothing."""
    plan = result.plan
    differences = _differences(plan) if plan.strategy == "avg" else {}
    for broker, difference in differences.items():
        hits = result.memory.hits.get(broker, _UNCOUNTED)
        telemetry.gauge("broker_pair_difference_ratio", difference, broker=broker)
        telemetry.gauge("broker_hits", float(hits.low), broker=broker, threshold="low")
        telemetry.gauge("broker_hits", float(hits.high), broker=broker, threshold="high")
    for name in OF_PAIRS:
        telemetry.retain(name, "broker", set(differences))
    if differences:
        mean = math.fsum(load.score_before for load in plan.loads) / len(plan.loads)
        for threshold, value in zip(("low", "high"), thresholds_of(params, mean), strict=True):
            telemetry.gauge("pair_threshold_ratio", value, threshold=threshold)
    telemetry.retain("pair_threshold_ratio", "threshold", {"low", "high"} if differences else set())


def _differences(plan: Plan) -> dict[str, float]:
    """By broker, the difference to its partner: i-th lowest with i-th highest score, 0 for the middle one."""
    order = sorted(plan.loads, key=lambda load: load.score_before)
    return {
        one.broker: abs(one.score_before - other.score_before)
        for one, other in zip(order, reversed(order), strict=True)
    }
