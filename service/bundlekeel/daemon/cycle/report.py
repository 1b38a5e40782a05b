"""What one cycle saw, decided and did: its journal line, its sentence and its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, get_args

import numpy as np

from bundlekeel.core.filters.allowed import isolation_of
from bundlekeel.core.model.codes import OUTCOMES, Code
from bundlekeel.core.model.load import RATE_IN, RATE_OUT, RESOURCES, THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Plan
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.operations import manual_moves, relocation
from bundlekeel.core.planning.costs import BrokerCosts, broker_costs
from bundlekeel.core.planning.engine import PlanInput, PlanResult
from bundlekeel.core.planning.ledger import preallocated
from bundlekeel.core.splitting.rules import HOT, LIMIT_RULES
from bundlekeel.core.strategies.timing import tolerance
from bundlekeel.daemon.execution.intents import MoveOutcome
from bundlekeel.daemon.execution.split_intents import SplitOutcome, SplitWord
from bundlekeel.daemon.gate.gate import Obstacle
from bundlekeel.ports import Telemetry

# Verdicts of a cycle that could not decide.
UNDECIDED = frozenset({Code.NO_BROKERS, Code.NO_LOAD_DATA, Code.INCOMPLETE_PICTURE})
# Obstacles that no operator requested and that do not end by waiting.
UNABLE = frozenset({Code.NOT_LEADER, Code.CHANNEL_NOT_FOLLOWED})
# A cycle whose moves all end like this moves nothing, however often it is tried.
FAILED = frozenset(
    {Code.ADMIN_REFUSED, Code.ADMIN_UNAUTHORIZED, Code.ADMIN_UNREACHABLE, Code.NO_ANSWER, Code.STORE_UNAVAILABLE}
)


@dataclass(slots=True, kw_only=True)
class CycleReport:
    """What one cycle saw, decided and did. `measured_seconds`: the longest time between two readings of a broker's
    counters that its plan stood on; None where it stood on a report."""

    cycle: int
    wall_ms: int
    sentence: str
    code: Code
    acted: bool = False
    obstacle: Obstacle | None = None
    plan: Plan | None = None
    outcomes: list[MoveOutcome] = field(default_factory=list)
    splits: list[SplitOutcome] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    operations: dict[str, Any] = field(default_factory=dict)
    shadow: Mapping[str, Any] = field(default_factory=dict)
    measured_seconds: float | None = None

    def record(self, epoch: int | None) -> dict[str, Any]:
        """The journal line of this cycle."""
        return {
            "kind": "cycle",
            "cycle": self.cycle,
            "wall_ms": self.wall_ms,
            "epoch": epoch,
            "code": self.code.value,
            "sentence": self.sentence,
            "acted": self.acted,
            "obstacle": self.obstacle.code.value if self.obstacle else None,
            "plan": self.plan.hash if self.plan else None,
            "digest": self.plan.snapshot_digest if self.plan else None,
            "measured_seconds": self.measured_seconds,
            "planned": len(self.plan.moves) if self.plan else 0,
            "refused": dict(Counter(item.code.value for item in self.plan.refusals)) if self.plan else {},
            "outcomes": dict(Counter(item.outcome for item in self.outcomes)),
            "planned_splits": len(self.plan.splits) if self.plan else 0,
            "splits": dict(Counter(item.outcome for item in self.splits)),
            "seconds": {key: round(value, 4) for key, value in self.seconds.items()},
            **({"operations": self.operations} if self.operations else {}),
            **({"shadow": dict(self.shadow)} if self.shadow else {}),
        }

    @property
    def completed(self) -> bool:
        """Whether the cycle did its work: it could decide, and what it began was not refused by every broker.

        A pause or a lower mode is an operator's decision, not a failure: such a cycle is complete.
        """
        if self.plan is None or self.code in UNDECIDED:
            return False
        if self.obstacle is not None and (self.obstacle.unable or self.obstacle.code in UNABLE):
            return False
        return not self.outcomes or any(outcome.code not in FAILED for outcome in self.outcomes)

    def full_sentence(self) -> str:
        """What was decided, and what became of it."""
        text = self.sentence
        if self.splits:
            divided = sum(outcome.outcome == "done" for outcome in self.splits)
            text = f"{text}; {divided} of {len(self.splits)} bundles split"
        if self.acted:
            counts = Counter(outcome.outcome for outcome in self.outcomes)
            done = ", ".join(f"{amount} {name.replace('_', ' ')}" for name, amount in sorted(counts.items()))
            return f"{text}: {done or 'none started'}."
        if self.plan is not None and (self.plan.moves or self.plan.splits) and self.obstacle is not None:
            return f"{text}; not carried out: {self.obstacle.sentence}."
        return f"{text}."

    def publish(self, telemetry: Telemetry) -> None:
        """The cycle's metrics."""
        telemetry.count("cycles_total", outcome=self.code.value)
        for phase, seconds in self.seconds.items():
            telemetry.time("cycle_duration_seconds", seconds, phase=phase)
        obstacle = self.obstacle.code.value if self.obstacle is not None else ""
        if obstacle:
            telemetry.gauge("obstacle_info", 1.0, code=obstacle)
        telemetry.retain("obstacle_info", "code", {obstacle})
        if self.plan is None:
            return
        telemetry.gauge("planned_moves", len(self.plan.moves))
        telemetry.gauge("planned_splits", len(self.plan.splits))
        for code, amount in Counter(item.code for item in self.plan.refusals).items():
            telemetry.count("refusals_total", amount, code=code.value)
        loads = self.plan.loads
        brokers = [load.broker for load in loads]
        for name, values in (
            ("broker_score_ratio", [load.score_before for load in loads]),
            ("broker_throughput_bytes_per_second", [load.throughput_before for load in loads]),
            ("broker_msg_rate", [load.msg_rate_before for load in loads]),
            ("broker_bundles", [load.bundles_before for load in loads]),
        ):
            telemetry.table(name, brokers, np.array(values))
        for measure in ("throughput", "score"):
            spread = self.plan.imbalance(f"{measure}_before")
            telemetry.gauge("load_spread_ratio", spread, stat=f"{measure}_max_mean")


# What a plan was made from, as metrics: usage, averages, hit counts, differences, parameters. Nothing by bundle.


def publish_plan(telemetry: Telemetry, given: PlanInput, result: PlanResult) -> None:
    """Everything about one plan that its journal line does not contain."""
    snapshot, plan = given.snapshot, result.plan
    telemetry.count("decisions_total", strategy=plan.strategy, scope="cluster", code=plan.verdict.code.value)
    for code, amount in Counter(verdict.code.value for verdict in plan.brokers).items():
        telemetry.count("decisions_total", amount, strategy=plan.strategy, scope="broker", code=code)
    unsplit = Counter(refusal.code.value for refusal in plan.split_refusals)
    for code, amount in unsplit.items():
        telemetry.gauge("unsplit_bundles", float(amount), code=code)
    telemetry.retain("unsplit_bundles", "code", set(unsplit))
    telemetry.gauge("snapshot_bundles", float(len(snapshot.bundles)))
    isolation = isolation_of(snapshot, given.policies)
    names = [policy.name for policy in given.policies.isolation]
    telemetry.table("isolation_policy_brokers", names, isolation.matched.astype(np.float64), ("primary", "secondary"))
    _brokers(telemetry, snapshot)
    cpu_costs = broker_costs(result.memory.costs, snapshot.brokers)
    _costs(telemetry, snapshot.brokers.ids, cpu_costs)
    waiting = preallocated(result.ledger, snapshot.brokers.ids, snapshot.wall_ms)
    amounts = np.array([len(bundles) for bundles in waiting.values()])
    telemetry.table("broker_preallocated_bundles", tuple(waiting), amounts)
    costs = np.array([(item.cost, item.price) for item in plan.brokers])
    telemetry.table("broker_imbalance_cost", [item.broker for item in plan.brokers], costs, ("so_far", "price"))
    _pairs(telemetry, given.params, plan, cpu_costs)
    for parameter in fields(Parameters):
        value = getattr(given.params, parameter.name)
        if isinstance(value, int | float):
            telemetry.gauge("parameter", float(value), parameter=parameter.name)
    _begin(telemetry, given.params)


def _begin(telemetry: Telemetry, params: Parameters) -> None:
    """Moves and splits by rule begin at 0: `increase` does not see a series that begins at 1. Of a plugin only the rule
    that has its strategy's name does."""
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
    """These two columns of the bundles' traffic, added up by owner."""
    weights = traffic[:, one] + traffic[:, other]
    summed: Floats = np.bincount(snapshot.bundles.owner, weights=weights, minlength=len(snapshot.brokers)).astype(
        np.float64
    )
    return summed


def _pairs(telemetry: Telemetry, params: Parameters, plan: Plan, costs: BrokerCosts) -> None:
    """Only `avg` pairs brokers: with another strategy its thresholds mean nothing."""
    differences = _differences(plan) if plan.strategy == "avg" else {}
    telemetry.table("broker_pair_difference_ratio", tuple(differences), np.array(list(differences.values())))
    if differences:
        base = params.cpu_weight * float(np.nan_to_num(costs.base).min(initial=1.0))
        low = tolerance(params, plan.mean_of("score_before"), base)
        telemetry.gauge("pair_threshold_ratio", low, threshold="low")
    telemetry.retain("pair_threshold_ratio", "threshold", {"low"} if differences else set())


def _differences(plan: Plan) -> dict[str, float]:
    """By broker, the difference to its partner: i-th lowest with i-th highest score, 0 for the middle one. Not of those
    that take nothing and have nothing to give (`Context.concerned`)."""
    mean = plan.mean_of("score_before")
    paired = [load for load in plan.loads if load.broker not in plan.closed or load.score_before > mean]
    order = sorted(paired, key=lambda load: load.score_before)
    return {
        one.broker: abs(one.score_before - other.score_before)
        for one, other in zip(order, reversed(order), strict=True)
    }
