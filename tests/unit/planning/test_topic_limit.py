"""`max_topics_per_broker` when every broker is above it, and the reason that a verdict then names.

Source: `LoadManagerShared.filterBrokersWithLargeTopicCount` drops no broker when it would drop all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.state import GuardState
from tests.support.builders import EAGER, broker, bundle_name, cluster, report, snapshot

BALANCERS = ["avg", "threshold", "uniform", "deviation", "transfer"]
LOADS = [[0.06] * 12, [0.1] * 3, [0.07] * 4]
ACTS = {
    **EAGER,
    "max_topics_per_broker": 10,
    "deviation_threshold": 1.0,
    "transfer_hit_count": 0,
    "move_price": 0,
    "transfer_target_std": 0.05,
}


def decide(
    loads: Sequence[Sequence[float]],
    topics: Sequence[int],
    *,
    mode: str = "modular",
    guard: GuardState | None = None,
    strategy: str = "avg",
) -> Plan:
    """A plan for brokers with these loads and numbers of topics; the limit is 10."""
    reports = [replace(item, num_topics=number) for item, number in zip(cluster(loads), topics, strict=True)]
    params = Parameters(**{**ACTS, "strategy": strategy})
    return plan(PlanInput(snapshot=snapshot(reports, mode=mode), params=params, guard=guard or GuardState())).plan


@pytest.mark.parametrize("strategy", BALANCERS)
@pytest.mark.parametrize("topics", [(11, 11, 11), (5_000, 12, 11)])
def test_n_i_a_limit_that_all_brokers_exceed_does_not_apply(strategy: str, topics: tuple[int, int, int]) -> None:
    """The limit is ignored for the whole plan: the same moves as without a limit."""
    with_limit, without = decide(LOADS, topics, strategy=strategy), decide(LOADS, (1, 1, 1), strategy=strategy)
    assert with_limit.moves
    assert with_limit.moves == without.moves


@pytest.mark.parametrize("room", [0, 1, 2])
def test_n_i_a_broker_within_the_limit_keeps_it_for_the_others(room: int) -> None:
    """The source counts too, as in Pulsar: a broker within the limit is the only candidate."""
    moves = decide(LOADS, [10 if row == room else 11 for row in range(3)]).moves
    assert {move.target for move in moves} == ({broker(room)} if room else set())


def test_n_i_a_closed_broker_does_not_keep_the_limit() -> None:
    """A cordoned broker is not a candidate, so its few topics do not count."""
    moves = decide([*LOADS, []], (11, 11, 11, 0), guard=GuardState(cordoned=frozenset({broker(3)}))).moves
    assert {move.source for move in moves} == {broker(0)}
    assert broker(3) not in {move.target for move in moves}


def test_n_i_extensible_brokers_keep_the_limit() -> None:
    """`BrokerMaxTopicCountFilter` drops every broker at the limit, also the last one."""
    refused = decide(LOADS, (10, 10, 10), mode="extensible")
    assert not refused.moves
    assert refused.verdict.sentence.endswith(
        "no other broker may take a bundle: each has max_topics_per_broker (10) topics or more; "
        "raise max_topics_per_broker, or add brokers"
    )


def test_n_i_a_drain_does_not_wait_for_a_broker_with_room() -> None:
    """The draining broker is not a candidate, so its few topics do not keep the limit for the others."""
    guard = GuardState(draining=frozenset({broker(0)}))
    moves = decide([[0.1] * 2, [0.1], [0.1]], (2, 11, 11), guard=guard).moves
    assert [(move.source, move.rule) for move in moves] == [(broker(0), "drain")] * 2


def policed(topics: Sequence[int], groups: dict[str, str] | None = None) -> PlanResult:
    """`t/gold` may use the first two brokers only, `t/ns` the other two."""
    gold = IsolationPolicy(name="gold", namespaces=("t/gold",), primary=("b0000", "b0001"), min_limit=1)
    spaces = ["t/gold", "t/gold", "t/ns", "t/ns"]
    sizes = [[0.1] * 7, [0.1] * 2, [0.1] * 7, [0.1] * 2]
    reports = [
        report(
            broker(row),
            {bundle_name(10 * row + place, spaces[row]): size for place, size in enumerate(sizes[row])},
            num_topics=topics[row],
        )
        for row in range(4)
    ]
    policies = Policies(isolation=(gold,), anti_affinity=groups or {})
    return plan(PlanInput(snapshot=snapshot(reports), params=Parameters(**ACTS), policies=policies))


@pytest.mark.parametrize(
    ("topics", "targets"),
    [
        ((11, 11, 1, 1), {broker(1), broker(3)}),
        ((11, 11, 11, 11), {broker(1), broker(3)}),
        ((11, 11, 1, 11), {broker(1)}),
        ((1, 11, 11, 11), {broker(3)}),
    ],
)
def test_n_i_the_brokers_that_policies_allow_decide(topics: Sequence[int], targets: set[str]) -> None:
    """Pulsar applies the limit after the policies: brokers that a namespace may not use do not count."""
    assert {move.target for move in policed(topics).plan.moves} == targets


def test_n_i_an_anti_affinity_group_does_not_lift_the_limit() -> None:
    """Pulsar applies the limit before anti-affinity: that only a full broker suits the group is not "all are full"."""
    moves = policed((1, 11, 1, 1), {"t/gold": "group"}).plan.moves
    assert {move.target for move in moves} == {broker(3)}


@pytest.mark.parametrize(
    ("loads", "topics", "cordoned", "reason"),
    [
        ([0.9, 0.87, 0.87], (1, 1, 1), (), "each is above 85%; add brokers"),
        (
            [0.9, 0.3, 0.3],
            (1, 1, 1),
            (1, 2),
            "each is closed (cordon, drain or exclusion); end a cordon or drain, or add brokers",
        ),
        (
            [0.9, 0.3, 0.3],
            (1, 11, 11),
            (),
            "each has more topics than max_topics_per_broker (10); raise max_topics_per_broker, or add brokers",
        ),
        (
            [0.95, 0.3, 0.3],
            (11, 1, 1),
            (1, 2),
            "each is closed (cordon, drain or exclusion); end a cordon or drain, or add brokers",
        ),
        (
            [0.9, 0.3, 0.3],
            (1, 11, 1),
            (2,),
            "each is closed (cordon, drain or exclusion) or has more topics than max_topics_per_broker (10); "
            "end a cordon or drain, raise max_topics_per_broker, or add brokers",
        ),
    ],
)
def test_n_i_the_verdict_names_the_reasons_that_apply(
    loads: list[float], topics: tuple[int, int, int], cordoned: tuple[int, ...], reason: str
) -> None:
    """A reason that applies to no broker is not named; the state of the source is not a reason."""
    guard = GuardState(cordoned=frozenset(map(broker, cordoned)))
    verdict = decide([[load / 10] * 10 for load in loads], topics, guard=guard, strategy="overload").verdict
    assert verdict.code is Code.NO_LEGAL_TARGET
    assert verdict.sentence.endswith(f"no other broker may take a bundle: {reason}")
