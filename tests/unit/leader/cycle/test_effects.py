"""Effects and durations in a whole sidecar: recorded, shared, restored after a restart, used by plans."""

from __future__ import annotations

import msgspec
import pytest

from bundlekeel.leader.cycle.effects import joined
from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.execution.durations import ENOUGH, Durations
from bundlekeel.leader.state.documents import Pause
from bundlekeel.planning.effects import EffectRecords, PairRecord
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params
from tests.unit.planning.test_effects import judged as an_effect

PARAMS = with_params(cool_down_seconds=1, max_moves_per_source=100, max_moves_per_target=100)


async def later(cluster: FakeCluster, sidecar: FakeSidecar, seconds: float = 200) -> None:
    """Time passes, every broker reports, the sidecar still leads."""
    cluster.clock.offset += seconds
    cluster.publish()
    await sidecar.leadership.turn()
    await sidecar.shared_state.refresh()


async def test_moves_are_judged_once_both_brokers_have_reported_them() -> None:
    """Predicted with the move, realised after settling: journal, metrics, shared state, move records."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, params=PARAMS).lead()
    report = await sidecar.cycle.turn()
    assert report.outcomes and sidecar.cycle.cycle_state.effects.open
    record = sidecar.shared_state.moves[0]
    assert set(record["predicted"]) == {"source_before", "source_after", "target_before", "target_after"}
    assert record["predicted"]["source_before"] > record["predicted"]["source_after"]
    assert not sidecar.journal.tail(10, kind="effect")
    await later(cluster, sidecar)
    await sidecar.cycle.turn()
    lines = sidecar.journal.tail(10, kind="effect")
    assert lines and {item["outcome"] for item in lines} == {"helped"}
    moved = {bundle for item in lines for bundle in item["bundles"]}
    assert moved == {outcome.bundle for outcome in report.outcomes}
    assert f'result="helped"}} {float(len(moved))}' in sidecar.metric("moves_helped_total")
    judged = sidecar.shared_state.shared.cycle_state.effects.judged
    assert {bundle for effect in judged for bundle in effect.bundles} == moved
    assert joined([record], judged)[0]["effect"] == "helped"


async def test_a_plan_that_a_person_executes_is_judged_too() -> None:
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, params=PARAMS).lead()
    pause = Pause(reason="look", by="ann", since_ms=1)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=pause))
    await sidecar.cycle.turn()
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pause=None))
    plan = await sidecar.planner.make(PlanRequest())
    moves = [[move.bundle, move.source, move.target] for move in plan.moves]
    await sidecar.shared_state.leave_request(
        {"hash": plan.hash, "moves": moves, "request": {}, "by": "a", "reason": "b"}
    )
    await sidecar.executions.serve()
    assert {item.move.bundle for item in sidecar.cycle.cycle_state.effects.open} == {move[0] for move in moves}
    await later(cluster, sidecar)
    await sidecar.cycle.turn()
    assert {item["outcome"] for item in sidecar.journal.tail(10, kind="effect")} == {"helped"}


async def test_the_next_leader_judges_what_the_last_one_began() -> None:
    """The book changes hands with the lead; the follower said nothing before."""
    cluster = FakeCluster()
    first, second = [await FakeSidecar(cluster, name, params=PARAMS).lead() for name in "ab"]
    await first.cycle.turn()
    await second.shared_state.refresh()
    second.cycle.adopt(second.shared_state.cycle_state(), None)
    await second.cycle.turn()
    assert not second.journal.tail(10, kind="effect")
    cluster.store.expire(first.coordination)
    cluster.clock.offset += 200
    cluster.publish()
    await second.leadership.turn()
    await second.cycle.turn()
    assert {item["outcome"] for item in second.journal.tail(10, kind="effect")} == {"helped"}


async def test_a_move_that_made_things_worse_goes_back_once() -> None:
    cluster = FakeCluster({BROKERS[0]: [0.2, 0.15, 0.05], BROKERS[1]: [0.05], BROKERS[2]: [0.2]})
    sidecar = await FakeSidecar(cluster, params=PARAMS, settings={"effects.revert_worse_moves": True}).lead()
    report = await sidecar.cycle.turn()
    assert report.outcomes
    moved = report.outcomes[0]
    cluster.shares[moved.bundle] = 0.9
    cluster.shares.update({name: 0.05 for name in cluster.shares if name != moved.bundle})
    await later(cluster, sidecar)
    await sidecar.cycle.turn()
    words = [item["outcome"] for item in sidecar.journal.tail(10, kind="effect")]
    assert words == ["worse"]
    assert cluster.owners()[moved.bundle] == moved.source
    rules = [entry for entry in sidecar.cycle.cycle_state.effects.reverted if entry[0] == moved.bundle]
    assert len(rules) == 1


async def test_a_quarantined_pair_is_not_used() -> None:
    """The plan finds another target, or says Quarantined."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, params=PARAMS).lead()
    until = cluster.clock.wall_ms() + 600_000
    pairs = tuple(
        PairRecord(source=BROKERS[0], target=target, useless=3, at_ms=0, until_ms=until) for target in BROKERS[1:]
    )
    cycle_state = sidecar.cycle.cycle_state
    sidecar.cycle.adopt(type(cycle_state)(effects=EffectRecords(pairs=pairs)), sidecar.leadership.epoch)
    report = await sidecar.cycle.turn()
    assert report.plan is not None and not report.outcomes
    assert not cluster.model.unloads


def test_durations_are_learned_per_mode() -> None:
    """The slow end, only from enough of them; the deadline stays within its bounds."""
    durations = Durations()
    assert durations.p95("modular") is None
    assert durations.confirm_seconds("modular", 10.0, 24.0) == 10.0
    for number in range(ENOUGH):
        durations.add("modular", 2.0 if number < ENOUGH - 2 else 6.0)
    durations.add("modular", float("nan"))
    assert (durations.p95("modular"), durations.p95("extensible")) == (6.0, None)
    assert durations.confirm_seconds("modular", 10.0, 24.0) == 18.0
    assert durations.confirm_seconds("modular", 10.0, 12.0) == 12.0
    assert durations.confirm_seconds("modular", 30.0, 24.0) == 30.0, "never less than set"


async def test_the_hand_learns_from_moves_that_landed() -> None:
    """Without the time a move waited for its slot."""
    sidecar = await FakeSidecar(FakeCluster(), params=PARAMS).lead()
    for _ in range(ENOUGH - 1):
        sidecar.executor.durations.add("modular", 0.0)
    report = await sidecar.cycle.turn()
    moving = [outcome.moving_seconds for outcome in report.outcomes]
    assert all(0 < outcome.moving_seconds <= outcome.seconds for outcome in report.outcomes)
    assert sidecar.executor.durations.p95("modular") in moving and max(moving) < 1


def test_records_without_an_effect_stay_as_they_are() -> None:
    """Other bundles, and moves before or after."""
    (effect,) = an_effect({"a:8080": 0.5, "b:8080": 0.5, "c:8080": 0.5})[1]
    record = {"bundle": effect.bundles[0], "landed_ms": effect.begun_ms + 1}
    assert joined([record], (effect,))[0]["realised_gain"] == pytest.approx(0.3)
    for other in (record | {"bundle": "x"}, record | {"landed_ms": effect.at_ms + 1}):
        assert joined([other], (effect,)) == [other]
