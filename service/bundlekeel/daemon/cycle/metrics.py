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
    amounts = np.array([len(bundles) for bundles in waiting.values()])
    telemetry.table("broker_preallocated_bundles", tuple(waiting), amounts)
    kept = [(broker, item.score) for broker, item in result.memory.history.items() if broker in waiting]
    telemetry.table("broker_history_score_ratio", [name for name, _ in kept], np.array([score for _, score in kept]))
    _pairs(telemetry, given.params, result)
    for field in fields(Parameters):
        value = getattr(given.params, field.name)
        if isinstance(value, int | float):
            telemetry.gauge("parameter", float(value), parameter=field.name)


def _brokers(telemetry: Telemetry, snapshot: Snapshot) -> None:
    brokers = snapshot.brokers
    usage = np.where(brokers.limit > 0, brokers.percent() / 100, np.nan)
    telemetry.table("broker_usage_ratio", brokers.ids, usage, RESOURCES)
    for name, columns in (
        ("broker_average_msg_rate", (RATE_IN, RATE_OUT)),
        ("broker_average_bytes_per_second", (THROUGHPUT_IN, THROUGHPUT_OUT)),
    ):
        averages = [_sums(snapshot, traffic, *columns) for traffic in (snapshot.bundles.short, snapshot.bundles.long)]
        telemetry.table(name, brokers.ids, np.column_stack(averages), ("short", "long"))


def _sums(snapshot: Snapshot, traffic: Floats, one: int, other: int) -> Floats:
    """These two columns of the bundles' traffic, added up by owner."""
    weights = traffic[:, one] + traffic[:, other]
    summed: Floats = np.bincount(snapshot.bundles.owner, weights=weights, minlength=len(snapshot.brokers)).astype(
        np.float64
    )
    return summed


def _pairs(telemetry: Telemetry, params: Parameters, result: PlanResult) -> None:
    """Only `avg` pairs brokers: with another strategy its thresholds would say nothing."""
    plan = result.plan
    differences = _differences(plan) if plan.strategy == "avg" else {}
    telemetry.table("broker_pair_difference_ratio", tuple(differences), np.array(list(differences.values())))
    hits = [result.memory.hits.get(broker, _UNCOUNTED) for broker in differences]
    telemetry.table("broker_hits", tuple(differences), np.array([(hit.low, hit.high) for hit in hits]), ("low", "high"))
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
