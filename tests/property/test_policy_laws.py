"""Policies on random clusters: the planner's mask and the assignment pipeline say the same, and plans keep to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerReport, ExcludedBroker
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameter_table import STRATEGIES
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.filters.allowed import limits_of
from bundlekeel.planning.filters.assign import AssignmentInput, assign
from bundlekeel.planning.ledger import Ledger
from tests.support.builders import EAGER, bundle_name, report, snapshot

KEEN: dict[str, Any] = {
    "threshold_percent": 1.0,
    "throughput_multiple": 1.1,
    "msg_rate_difference_percent": 1.0,
    "overloaded_threshold_percent": 60.0,
    "transfer_hit_count": 0,
    "move_price": 0,
    "transfer_target_std": 0.01,
    "bundles_with_policies": True,
    "min_unload_message_rate": 0.0,
    "min_unload_throughput": 0.0,
    "min_unload_throughput_mb": 0.0,
}
NAMESPACES = ("t/a", "t/b", "t/c", "u/a", "u/b", "pulsar/system")
HOSTS = st.sampled_from(["b0", "b1", "b[0-2]", "b[^0]", "b.", "c", ".*", "["])
SPACES = st.sampled_from(["t/a", "t/.*", "[tu]/a", "u/.*", ".*", "x/.*", "["])

isolations = st.lists(
    st.builds(
        IsolationPolicy,
        name=st.just("p"),
        namespaces=st.lists(SPACES, min_size=1, max_size=2).map(tuple),
        primary=st.lists(HOSTS, min_size=1, max_size=2).map(tuple),
        secondary=st.lists(HOSTS, max_size=2).map(tuple),
        min_limit=st.integers(0, 3),
    ),
    max_size=3,
).map(tuple)
groups = st.dictionaries(st.sampled_from(NAMESPACES), st.sampled_from(["g", "G", "h"]), max_size=5)
domains = st.dictionaries(
    st.sampled_from(["east", "west"]), st.lists(st.sampled_from([f"b{n}:8080" for n in range(5)])).map(tuple)
)


@st.composite
def snapshots(draw: st.DrawFn, fewest: int = 0) -> Snapshot:
    """`fewest` to 5 brokers, each with at least as many bundles. Some are for non-persistent topics only, and one
    perhaps has no usable report.
    """
    reports: list[BrokerReport] = []
    number = 0
    for index in range(draw(st.integers(fewest, 5))):
        owners = {}
        for name in draw(st.lists(st.sampled_from(NAMESPACES), min_size=fewest, max_size=6)):
            owners[bundle_name(number, name)] = draw(st.sampled_from([0.0, 0.05, 0.1, 0.3]))
            number += 1
        persistent = draw(st.sampled_from([True, True, True, False]))
        reports.append(report(f"b{index}:8080", owners, persistent_topics_enabled=persistent))
    silent = (
        [ExcludedBroker(broker_id=reports.pop().broker_id, code="NotJson")] if reports and draw(st.booleans()) else []
    )
    return snapshot(reports, excluded=silent)


policies = st.builds(
    Policies,
    isolation=isolations,
    anti_affinity=groups,
    failure_domains=domains,
    failure_domains_enabled=st.booleans(),
    distribute_evenly=st.booleans(),
    unreadable=st.sets(st.sampled_from(NAMESPACES), max_size=1).map(frozenset),
    unknown=st.sampled_from(["", "", "", "the store is away"]),
)


@given(cluster=snapshots(), rules=policies)
def test_the_mask_agrees_with_the_pipeline(cluster: Snapshot, rules: Policies) -> None:
    """A namespace may be moved if the policy step leaves a broker that serves persistent topics. With a group, it may
    go to some of those, and always to at least one if there are any.
    """
    limits = limits_of(cluster, rules)
    question = AssignmentInput(draft=Draft(cluster, Ledger(), Parameters()), policies=rules)
    serves = {broker for broker, ok in zip(cluster.brokers.ids, cluster.brokers.takes_persistent(), strict=True) if ok}
    for row, namespace in enumerate(cluster.bundles.namespaces):
        assignment = assign(question, bundle_name(60_000, namespace))
        step = next(item for item in assignment.steps if item.name == "policies")
        legal = set() if assignment.code is Code.POLICY_UNREADABLE else set(step.candidates) & serves
        mask = np.ones(len(cluster.brokers), dtype=bool) if limits is None else limits.mask[row]
        allowed = {broker for broker, ok in zip(cluster.brokers.ids, mask.tolist(), strict=True) if ok}
        if rules.anti_affinity.get(namespace):
            assert allowed <= legal
            assert bool(allowed) == bool(legal)
        else:
            assert allowed == legal
        assert (limits is not None and bool(limits.unknown[row])) == (assignment.code is Code.POLICY_UNREADABLE)


@settings(suppress_health_check=list(HealthCheck))
@given(
    cluster=snapshots(fewest=3),
    rules=policies,
    strategy=st.sampled_from(STRATEGIES),
    compat=st.sampled_from(["none", "4.2"]),
)
def test_no_plan_moves_to_a_forbidden_broker(
    moved: list[bool], cluster: Snapshot, rules: Policies, strategy: str, compat: str
) -> None:
    """Two namespaces of one group never share a broker. A bundle without any allowed target is refused with that code,
    or for another reason, too.
    """
    params = Parameters(**{**EAGER, **KEEN, "strategy": strategy, "compat": compat})
    result = plan(PlanInput(snapshot=cluster, params=params, policies=rules)).plan
    limits = limits_of(cluster, rules)
    moved.append(limits is not None and bool(result.moves))
    if limits is None:
        return
    names = cluster.bundles.namespaces
    moving = []
    for move in result.moves:
        row = names.index(namespace_of(move.bundle))
        assert limits.mask[row, cluster.broker_row(move.target)]
        if limits.group[row] >= 0:
            moving.append(int(limits.group[row]))
    assert len(moving) == len(set(moving))
    bound = limits.nowhere_else(cluster.bundles.namespace, cluster.bundles.owner)
    stuck = {name for name, ok in zip(cluster.bundles.names, bound.tolist(), strict=True) if ok}
    assert not stuck & {move.bundle for move in result.moves}
    codes = {item.code for item in result.refusals if item.bundle in stuck}
    assert codes <= {Code.POLICY_FORBIDS, Code.POLICY_WITHOUT_BROKERS, Code.POLICY_UNREADABLE, Code.SYSTEM_BUNDLE}


@given(cluster=snapshots(), rules=policies, placement=st.sampled_from(["least_resource_usage", "round_robin", "avg"]))
def test_every_dropped_broker_has_a_code(cluster: Snapshot, rules: Policies, placement: str) -> None:
    """Steps only narrow, refill or recheck. A dropped broker has a code, and the choice is among the remaining ones."""
    question = AssignmentInput(draft=Draft(cluster, Ledger(), Parameters()), policies=rules, placement=placement)
    assignment = assign(question, bundle_name(60_000, "t/a"))
    before = set(assignment.steps[0].candidates)
    for step in assignment.steps[1:]:
        now = set(step.candidates)
        if step.name in ("refill", "overload recheck"):
            assert now >= before
        else:
            assert before - now == {item.broker for item in step.dropped}
            assert now <= before
        before = now
    assert (assignment.chosen in assignment.candidates) == (assignment.code is None)
    assert (assignment.code is None) != (assignment.chosen is None)
