"""Plans for assumed inputs (what-if): other brokers, other traffic, their assumptions and their end."""

from __future__ import annotations

import re

import pytest

from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.policies import IsolationPolicy
from tests.support.world import BROKERS, PATIENT, FakeCluster, FakeSidecar, with_params

SLOWLY = {"cycle.interval": 30.0}


async def test_a_what_if_says_what_it_assumes() -> None:
    sidecar = await FakeSidecar(FakeCluster(), params=PATIENT).lead()
    await sidecar.cycle.turn()
    snapshot = sidecar.cycle.snapshot
    assert snapshot is not None
    plan = await sidecar.planner.make(PlanRequest(remove_brokers=(BROKERS[0],), traffic_scale=1.5))
    match = re.fullmatch(
        r"what if: without b1:8080, whose bundles moved to the other brokers, the largest to the least loaded; all "
        r"traffic times 1\.5\. The most loaded broker is at ([\d.]+)% now, at ([\d.]+)% in the what-if, and at "
        r"([\d.]+)% after its moves; "
        r"(\d) brokers? above 85% \(overloaded_threshold_percent\)",
        plan.assumption,
    )
    assert match, plan.assumption
    now, before, after, over = map(float, match.groups())
    as_it_is = await sidecar.planner.make(PlanRequest())
    assert now == round(100 * max(load.score_before for load in as_it_is.loads), 1)
    assert before == round(100 * max(load.score_before for load in plan.loads), 1)
    assert after == round(100 * max(load.score_after for load in plan.loads), 1)
    assert over == sum(load.score_after > 0.85 for load in plan.loads)
    assert as_it_is.assumption == ""
    assert [row.what_if for row in sidecar.planner.all()] == [True, False]


async def test_what_if_with_other_brokers_and_with_more_traffic() -> None:
    """A dry run may take brokers away, add some or scale traffic; it stores and touches nothing."""
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await sidecar.cycle.turn()
    cycle_state = sidecar.cycle.cycle_state
    plan = await sidecar.planner.make(PlanRequest(remove_brokers=(BROKERS[2],)))
    assert {load.broker for load in plan.loads} == set(BROKERS[:2])
    assert BROKERS[2] not in {move.target for move in plan.moves}
    doubled = await sidecar.planner.make(PlanRequest(traffic_scale=2.0))
    plain = await sidecar.planner.make(PlanRequest())
    more = await sidecar.planner.make(PlanRequest(add_brokers=("new-1", "new-2"), remove_brokers=(BROKERS[2],)))
    assert [load.broker for load in more.loads] == [*BROKERS[:2], "new-1", "new-2"]
    assert {move.target for move in more.moves} & {"new-1", "new-2"}
    assert plan.what_if and doubled.what_if and more.what_if and not plain.what_if
    assert doubled.loads[0].throughput_before == pytest.approx(2 * plain.loads[0].throughput_before)
    assert sidecar.cycle.cycle_state == cycle_state and not sidecar.cluster.model.unloads
    assert sidecar.planner.find(plan.hash)[0] is plan


async def test_a_what_if_right_after_moves_keeps_every_bundle() -> None:
    """The brokers' reports do not show them yet: nothing is lost with a broker that they went to."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    moved = sidecar.cycle.cycle_state.ledger.entries
    assert moved
    plan = await sidecar.planner.make(PlanRequest(remove_brokers=(moved[0].target,)))
    assert sum(load.bundles_before for load in plan.loads) == len(sidecar.cluster.shares)
    everything = sum(load.throughput_before for load in (await sidecar.planner.make(PlanRequest())).loads)
    assert sum(load.throughput_before for load in plan.loads) == pytest.approx(everything)


async def test_a_what_if_goes_by_policies() -> None:
    """A broker that is reserved for others takes nothing; where no other is left, the bundles are named."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    gold, only = (
        IsolationPolicy(name=n, namespaces=(f"t/{n}",), primary=(b,)) for n, b in (("gold", "b2"), ("ns", "b1"))
    )
    for policies, stays in (((gold,), BROKERS[2]), ((gold, only), "")):
        cluster.metadata.isolation["local"] = policies
        await sidecar.cycle.turn()
        plan = await sidecar.planner.make(PlanRequest(remove_brokers=(BROKERS[0],), traffic_scale=1.5))
        assert {load.broker for load in plan.loads if load.bundles_before} == {stays} - {""}
        named = {item.bundle for item in plan.refusals if item.code == "PolicyForbids" and item.broker == BROKERS[0]}
        assert named == (set() if stays else set(cluster.shares))
        assert ("except 6 bundles that no other broker can receive" in plan.assumption) == bool(named)
        assert plan.refusal_counts.get("PolicyForbids", 0) >= len(named)


@pytest.mark.parametrize("strategy", ["avg", "threshold", "transfer"])
async def test_a_what_if_at_first_sight_waits_for_no_counter(strategy: str) -> None:
    """Whatever the running strategy counts before it acts: an added broker is filled at once, an even cluster rests."""
    params = with_params(strategy=strategy, move_price=1e9)
    even = FakeCluster({broker: [0.1] * 6 for broker in BROKERS})
    sidecar = await FakeSidecar(even, mode="recommend", params=params).lead()
    await sidecar.cycle.turn()
    more = await sidecar.planner.make(PlanRequest(ignore_hit_counts=True, add_brokers=("new-1",)))
    assert {move.target for move in more.moves} == {"new-1"}
    assert not (await sidecar.planner.make(PlanRequest(ignore_hit_counts=True))).moves


async def test_a_what_if_tells_how_it_ends() -> None:
    """Plan after plan until nothing moves: as many moves and cycles as it takes, and how even the load is then."""
    params = with_params(max_moves_per_cycle=2, move_price=50)
    cluster = FakeCluster({broker: [0.05] * 12 for broker in BROKERS})
    sidecar = await FakeSidecar(cluster, mode="recommend", params=params, settings=SLOWLY).lead()
    await sidecar.cycle.turn()
    plan = await sidecar.planner.make(PlanRequest(add_brokers=("new-1",)))
    assert len(plan.moves) == 2 and plan.finished is not None
    output = plan.finished
    assert output.complete and output.moves > 2 and output.cycles == -(-output.moves // 2)
    assert 1.0 <= output.max_mean < plan.imbalance.after
    # Cycles that the budgets cut off follow each other after a fifth of the interval.
    assert (output.cycles - 1) * 6 <= output.seconds < output.cycles * 6 + output.moves
    assert (await sidecar.planner.make(PlanRequest())).finished is None
    feed = await sidecar.planner.make(PlanRequest(add_brokers=("new-1",), ignore_hit_counts=False))
    assert not feed.moves and feed.verdict.code == "HitCount" and feed.finished is not None
    assert feed.finished.moves == output.moves and feed.finished.seconds > output.seconds


async def test_a_what_if_waits_for_the_hour_and_gives_up_after_many_cycles() -> None:
    """A full hour is waited for; what takes more cycles than are looked at is not called finished."""
    cluster = FakeCluster({broker: [0.05] * 12 for broker in BROKERS})
    sidecar = await FakeSidecar(cluster, mode="recommend", params=with_params(max_moves_per_hour=4)).lead()
    await sidecar.cycle.turn()
    finished = (await sidecar.planner.make(PlanRequest(add_brokers=("new-1",)))).finished
    assert finished is not None and finished.complete and finished.moves > 4
    assert 3600 * ((finished.moves - 1) // 4) <= finished.seconds < 3600 * ((finished.moves - 1) // 4 + 1)
    many = FakeCluster({broker: [0.004] * 130 for broker in BROKERS})
    slow = await FakeSidecar(many, mode="recommend", params=with_params(max_moves_per_cycle=1)).lead()
    await slow.cycle.turn()
    finished = (await slow.planner.make(PlanRequest(add_brokers=("new-1", "new-2")))).finished
    assert finished is not None and not finished.complete and finished.moves == finished.cycles == 100


async def test_smoothed_scores_of_the_real_cluster_do_not_count_in_a_what_if() -> None:
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend", params=with_params(strategy="threshold")).lead()
    await sidecar.cycle.turn()
    assert (await sidecar.planner.make(PlanRequest())).moves
    assert not (await sidecar.planner.make(PlanRequest(traffic_scale=0.01))).moves


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (PlanRequest(remove_brokers=BROKERS), "remove_brokers"),
        (PlanRequest(add_brokers=(BROKERS[1],)), "add_brokers"),
        (PlanRequest(add_brokers=("new-1", "new-1")), "add_brokers"),
        (PlanRequest(remove_brokers=BROKERS, add_brokers=("new-1",)), "remove_brokers"),
        (PlanRequest(traffic_scale=0.0), "traffic_scale"),
        (PlanRequest(strategy="magic"), "strategy"),
        (PlanRequest(parameters={"nonsense": 1}), "parameters.nonsense"),
    ],
)
async def test_impossible_what_if_names_the_field(request_: PlanRequest, field: str) -> None:
    """A wrong override is a ConfigError that names its field."""
    sidecar = await FakeSidecar(FakeCluster(), mode="recommend").lead()
    await sidecar.cycle.turn()
    with pytest.raises(ConfigError) as caught:
        await sidecar.planner.make(request_)
    assert caught.value.field == field
