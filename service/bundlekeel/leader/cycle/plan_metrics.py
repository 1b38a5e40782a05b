"""Metrics of a plan and its input: usage, averages and CPU costs of brokers, and parameters. No series per bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from itertools import product
from typing import get_args

import numpy as np

from bundlekeel.leader.execution.split_intents import SplitWord
from bundlekeel.model.codes import OUTCOMES
from bundlekeel.model.load import RATE_IN, RATE_OUT, RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning import manual_moves, relocation
from bundlekeel.planning.costs import BrokerCosts, broker_costs
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.planning.filters.allowed import isolation_of
from bundlekeel.planning.ledger import preallocated
from bundlekeel.planning.splitting.rules import HOT, LIMIT_RULES
from bundlekeel.planning.strategies.timing import tolerance
from bundlekeel.ports import Telemetry


def publish_plan(telemetry: Telemetry, plan_input: PlanInput, result: PlanResult) -> None:
    """Publish the values of a plan that its journal record does not contain."""
    snapshot, plan = plan_input.snapshot, result.plan
    telemetry.count("decisions_total", strategy=plan.strategy, scope="cluster", code=plan.verdict.code.value)
    for code, amount in Counter(verdict.code.value for verdict in plan.brokers).items():
        telemetry.count("decisions_total", amount, strategy=plan.strategy, scope="broker", code=code)
    unsplit = Counter(refusal.code.value for refusal in plan.split_refusals)
    for code, amount in unsplit.items():
        telemetry.gauge("unsplit_bundles", float(amount), code=code)
    telemetry.retain("unsplit_bundles", "code", set(unsplit))
    telemetry.gauge("snapshot_bundles", float(len(snapshot.bundles)))
    isolation = isolation_of(snapshot, plan_input.policies)
    names = [policy.name for policy in plan_input.policies.isolation]
    telemetry.table("isolation_policy_brokers", names, isolation.matched.astype(np.float64), ("primary", "secondary"))
    _brokers(telemetry, snapshot)
    cpu_costs = broker_costs(result.memory.costs, snapshot.brokers)
    _costs(telemetry, snapshot.brokers.ids, cpu_costs)
    waiting = preallocated(result.ledger, snapshot.brokers.ids, snapshot.wall_ms)
    amounts = np.array([len(bundles) for bundles in waiting.values()])
    telemetry.table("broker_preallocated_bundles", tuple(waiting), amounts)
    costs = np.array([(item.cost, item.price) for item in plan.brokers])
    telemetry.table("broker_imbalance_cost", [item.broker for item in plan.brokers], costs, ("so_far", "price"))
    _pairs(telemetry, plan_input.params, plan, cpu_costs)
    for parameter in fields(Parameters):
        value = getattr(plan_input.params, parameter.name)
        if isinstance(value, int | float):
            telemetry.gauge("parameter", float(value), parameter=parameter.name)
    _begin(telemetry, plan_input.params)


def _begin(telemetry: Telemetry, params: Parameters) -> None:
    """Create the series of moves and splits by rule with the value 0, because `increase` ignores a first value of 1.

    Of a strategy in a plugin, only the rule with the strategy's name is known."""
    rules = [params.strategy, *relocation.NOT_FOR_BALANCE, manual_moves.RULE, "revert", "unknown"]
    if params.compat != "none":
        rules.append(f"{params.strategy} {params.compat}")
    elif params.strategy == "avg":
        rules.append("avg swap")
    for rule, outcome in product(rules, OUTCOMES):
        telemetry.count("moves_by_rule_total", 0.0, rule=rule, outcome=outcome)
    for rule, outcome in product((*LIMIT_RULES, HOT, manual_moves.RULE), get_args(SplitWord)):
        telemetry.count("splits_total", 0.0, rule=rule, outcome=outcome)


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


def _costs(telemetry: Telemetry, ids: Sequence[str], costs: BrokerCosts) -> None:
    for name, values in (
        ("broker_cpu_base_ratio", costs.base),
        ("broker_cpu_message_seconds", costs.seconds[:, 0]),
        ("broker_cpu_byte_seconds", costs.seconds[:, 1]),
        ("broker_cpu_capacity_msg_rate", costs.capacity),
    ):
        telemetry.table(name, ids, values)


def _sums(snapshot: Snapshot, traffic: Floats, one: int, other: int) -> Floats:
    """Return for each broker the sum of two traffic columns over its bundles."""
    weights = traffic[:, one] + traffic[:, other]
    summed: Floats = np.bincount(snapshot.bundles.owner, weights=weights, minlength=len(snapshot.brokers)).astype(
        np.float64
    )
    return summed


def _pairs(telemetry: Telemetry, params: Parameters, plan: Plan, costs: BrokerCosts) -> None:
    """Publish the threshold and the score differences of strategy `avg`. Other strategies do not pair brokers."""
    differences = _differences(plan) if plan.strategy == "avg" else {}
    telemetry.table("broker_pair_difference_ratio", tuple(differences), np.array(list(differences.values())))
    if differences:
        base = params.cpu_weight * float(np.nan_to_num(costs.base).min(initial=1.0))
        low = tolerance(params, plan.mean_of("score_before"), base)
        telemetry.gauge("pair_threshold_ratio", low, threshold="low")
    telemetry.retain("pair_threshold_ratio", "threshold", {"low"} if differences else set())


def _differences(plan: Plan) -> dict[str, float]:
    """Return each broker's difference of scores to its partner: i-th lowest and i-th highest score are partners.

    The middle broker has the difference 0. Brokers that can neither receive nor lose bundles are omitted
    (`Context.concerned`)."""
    mean = plan.mean_of("score_before")
    paired = [load for load in plan.loads if load.broker not in plan.closed or load.score_before > mean]
    order = sorted(paired, key=lambda load: load.score_before)
    return {
        one.broker: abs(one.score_before - other.score_before)
        for one, other in zip(order, reversed(order), strict=True)
    }
