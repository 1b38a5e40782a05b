"""Policies on random clusters: the planner's mask and the assignment pipeline say the same, and plans keep to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundlekeel.core.filters.allowed import limits_of
from bundlekeel.core.filters.assign import AssignmentInput, assign
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import BrokerReport, ExcludedBroker
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.model.parameter_table import STRATEGIES
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.policies import IsolationPolicy, Policies
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.planning.draft import Draft
from bundlekeel.core.planning.engine import PlanInput, plan
from bundlekeel.core.planning.ledger import Ledger
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
def snapshots(draw: st.DrawFn) -> Snapshot:
    """0..5 brokers, some of them for non-persistent topics only, one of them perhaps without a usable report."""
    made: list[BrokerReport] = []
    number = 0
    for index in range(draw(st.integers(0, 5))):
        held = {}
        for name in draw(st.lists(st.sampled_from(NAMESPACES), max_size=6)):
            held[bundle_name(number, name)] = draw(st.sampled_from([0.0, 0.05, 0.1, 0.3]))
            number += 1
        persistent = draw(st.sampled_from([True, True, True, False]))
        made.append(report(f"b{index}:8080", held, persistent_topics_enabled=persistent))
    silent = [ExcludedBroker(broker_id=made.pop().broker_id, code="NotJson")] if made and draw(st.booleans()) else []
    return snapshot(made, excluded=silent)


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


@given(seen=snapshots(), rules=policies)
def test_the_mask_agrees_with_the_pipeline(seen: Snapshot, rules: Policies) -> None:
    """A namespace may be moved where the policy step leaves a broker that serves persistent topics; with a group to
    some of those, and always to somewhere when there are any."""
    limits = limits_of(seen, rules)
    question = AssignmentInput(draft=Draft(seen, Ledger(), Parameters()), policies=rules)
    serves = {broker for broker, ok in zip(seen.brokers.ids, seen.brokers.takes_persistent(), strict=True) if ok}
    for row, namespace in enumerate(seen.bundles.namespaces):
        made = assign(question, bundle_name(60_000, namespace))
        step = next(item for item in made.steps if item.name == "policies")
        legal = set() if made.code is Code.POLICY_UNREADABLE else set(step.candidates) & serves
        mask = np.ones(len(seen.brokers), dtype=bool) if limits is None else limits.mask[row]
        allowed = {broker for broker, ok in zip(seen.brokers.ids, mask.tolist(), strict=True) if ok}
        if rules.anti_affinity.get(namespace):
            assert allowed <= legal
            assert bool(allowed) == bool(legal)
        else:
            assert allowed == legal
        assert (limits is not None and bool(limits.unknown[row])) == (made.code is Code.POLICY_UNREADABLE)


@settings(suppress_health_check=list(HealthCheck))
@given(seen=snapshots(), rules=policies, strategy=st.sampled_from(STRATEGIES), compat=st.sampled_from(["none", "4.2"]))
def test_no_plan_moves_to_a_forbidden_broker(
    moved: list[bool], seen: Snapshot, rules: Policies, strategy: str, compat: str
) -> None:
    """Nor two namespaces of one group; and a bundle that nobody else may take is refused as such, or for more."""
    params = Parameters(**{**EAGER, **KEEN, "strategy": strategy, "compat": compat})
    made = plan(PlanInput(snapshot=seen, params=params, policies=rules)).plan
    limits = limits_of(seen, rules)
    moved.append(limits is not None and bool(made.moves))
    if limits is None:
        return
    names = seen.bundles.namespaces
    moving = []
    for move in made.moves:
        row = names.index(namespace_of(move.bundle))
        assert limits.mask[row, seen.broker_row(move.target)]
        if limits.group[row] >= 0:
            moving.append(int(limits.group[row]))
    assert len(moving) == len(set(moving))
    bound = limits.nowhere_else(seen.bundles.namespace, seen.bundles.owner)
    stuck = {name for name, ok in zip(seen.bundles.names, bound.tolist(), strict=True) if ok}
    assert not stuck & {move.bundle for move in made.moves}
    codes = {item.code for item in made.refusals if item.bundle in stuck}
    assert codes <= {Code.POLICY_FORBIDS, Code.POLICY_UNREADABLE, Code.SYSTEM_BUNDLE}


@given(seen=snapshots(), rules=policies, placement=st.sampled_from(["least_resource_usage", "round_robin", "avg"]))
def test_every_dropped_broker_has_a_code(seen: Snapshot, rules: Policies, placement: str) -> None:
    """Steps only narrow, refill or recheck; what is gone is dropped with a code, and the choice is among the last."""
    question = AssignmentInput(draft=Draft(seen, Ledger(), Parameters()), policies=rules, placement=placement)
    made = assign(question, bundle_name(60_000, "t/a"))
    before = set(made.steps[0].candidates)
    for step in made.steps[1:]:
        now = set(step.candidates)
        if step.name in ("refill", "overload recheck"):
            assert now >= before
        else:
            assert before - now == set(step.dropped)
            assert now <= before
        before = now
    assert (made.chosen in made.candidates) == (made.code is None)
    assert (made.code is None) != (made.chosen == "")
