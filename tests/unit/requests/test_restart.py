"""The plan of a rolling restart: order, free capacity, progress and refusal."""

from __future__ import annotations

import msgspec
import pytest

from bundlekeel.leader.gate.guard_state import KEPT_MS
from bundlekeel.model.codes import Code
from bundlekeel.requests.drain import GUESS_SECONDS
from bundlekeel.requests.restart import RestartPlan
from tests.support.builders import bundle_name
from tests.support.world import PIN, FakeCluster, FakeSidecar
from tests.unit.requests.sidecars import B1, B2, B3, WHO, seeing


async def plan_of(sidecar: FakeSidecar) -> RestartPlan:
    return await sidecar.service.requests.restart_plan()


def loaded(*counts: int, share: float = 0.05) -> FakeCluster:
    return FakeCluster({broker: [share] * count for broker, count in zip((B1, B2, B3), counts, strict=True)})


async def test_the_broker_with_the_fewest_bundles_is_first() -> None:
    """Its bundles move twice. Three equal brokers need 1 + 2/3 moves per bundle."""
    plan = await plan_of(await seeing(loaded(4, 2, 3)))
    assert [(step.broker, step.state, step.bundles, step.moves) for step in plan.brokers] == [
        (B2, "waiting", 2, 2),
        (B3, "waiting", 3, 3),
        (B1, "waiting", 4, 4),
    ]
    assert (plan.refused, plan.fix, plan.sentence) == (
        "",
        "",
        "0 of 3 brokers done, 0 restarting, 0 draining, 3 waiting",
    )
    equal = await plan_of(await seeing(loaded(6, 6, 6)))
    assert equal.moves == 18 + 2 * 6
    assert equal.eta_seconds == equal.moves * GUESS_SECONDS
    assert {step.eta_seconds for step in equal.brokers} == {6 * GUESS_SECONDS}


async def test_free_capacity_is_that_of_the_most_loaded_other_broker() -> None:
    """Each broker has a score of 0.3; without one of them, the others have 0.45."""
    plan = await plan_of(await seeing(loaded(6, 6, 6)))
    for step in plan.brokers:
        assert step.highest_ratio == pytest.approx(0.45)
        assert step.free_ratio == pytest.approx(plan.overloaded_ratio - 0.45)


async def test_missing_capacity_is_refused_with_a_fix() -> None:
    """Two brokers at 0.6 cannot receive the bundles of a third one below the threshold of 0.85."""
    plan = await plan_of(await seeing(loaded(12, 12, 12)))
    step = plan.brokers[0]
    assert 0 < step.homeless < 12
    assert plan.refused == f"{step.homeless} of 12 bundles of {step.broker} fit on no other broker"
    assert plan.fix.startswith("add a broker") and f"bundlekeel drain {step.broker}" in plan.fix


async def test_a_pinned_bundle_is_not_missing_capacity() -> None:
    sidecar = await seeing(loaded(3, 2, 3))
    pins = {bundle_name(0): PIN}
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, pinned=pins))
    plan = await plan_of(sidecar)
    assert plan.refused == ""
    assert {step.broker: step.moves for step in plan.brokers} == {B1: 2, B2: 2, B3: 3}


async def states_of(sidecar: FakeSidecar) -> dict[str, str]:
    return {step.broker: step.state for step in (await plan_of(sidecar)).brokers}


async def test_a_broker_without_a_usable_report_is_last_and_refused() -> None:
    """Its load is unknown, so it is not a broker without bundles."""
    sidecar = await seeing(loaded(3, 2, 3))
    sidecar.cluster.source.exclude(B2, Code.EMPTY_REPORT)
    await sidecar.cycle.turn()
    plan = await plan_of(sidecar)
    assert [(step.broker, step.bundles) for step in plan.brokers] == [(B1, 3), (B3, 3), (B2, None)]
    assert plan.refused == f"the load of {B2} is unknown"


async def test_the_next_broker_waits_for_the_present_one() -> None:
    """Also if only one other broker is registered, or if capacity is missing meanwhile."""
    sidecar = await seeing(FakeCluster({B1: [0.05] * 15, B2: [0.05] * 15}))
    sidecar.cluster.source.remove(B3)
    await sidecar.cycle.turn()
    await sidecar.service.requests.drain(B2, dry_run=False, **WHO)
    plan = await plan_of(sidecar)
    assert plan.refused == f"{B2} is being drained" and f"bundlekeel uncordon {B2}" in plan.fix
    sidecar.clock.offset += 60
    sidecar.cluster.source.remove(B2)
    await sidecar.cycle.turn()
    plan = await plan_of(sidecar)
    assert plan.refused == f"{B2} is restarting" and f"bundlekeel uncordon {B2}" in plan.fix


async def test_the_fill_of_the_last_broker_remains_until_its_drain_ends() -> None:
    """It is empty while it restarts, so its share of the bundles is still to come."""
    sidecar = await seeing(loaded(3, 3, 0))
    for broker in (B1, B2, B3):
        await sidecar.service.requests.drain(broker, dry_run=False, **WHO)
        sidecar.clock.offset += 60
        sidecar.cluster.source.remove(broker)
        await sidecar.cycle.turn()
        sidecar.cluster.publish()
        await sidecar.cycle.turn()
        if broker != B3:
            await sidecar.service.requests.uncordon(broker, **WHO)
    assert await states_of(sidecar) == {B1: "done", B2: "done", B3: "restarting"}
    assert (await plan_of(sidecar)).moves == 2
    await sidecar.service.requests.uncordon(B3, **WHO)
    assert (await plan_of(sidecar)).moves == 0


async def test_progress() -> None:
    """A drain, the stop of the broker, its start, and the end of its drain. It stays done in a long roll-out."""
    sidecar = await seeing(loaded(3, 2, 3))
    await sidecar.service.requests.drain(B2, dry_run=False, **WHO)
    assert await states_of(sidecar) == {B1: "waiting", B2: "draining", B3: "waiting"}
    sidecar.clock.offset += 60
    sidecar.cluster.source.remove(B2)
    await sidecar.cycle.turn()
    assert await states_of(sidecar) == {B1: "waiting", B2: "restarting", B3: "waiting"}
    sidecar.cluster.publish()
    await sidecar.cycle.turn()
    assert await states_of(sidecar) == {B1: "waiting", B2: "restarting", B3: "waiting"}
    await sidecar.service.requests.uncordon(B2, **WHO)
    plan = await plan_of(sidecar)
    first = plan.brokers[0]
    assert (first.broker, first.state, first.moves) == (B2, "done", 0)
    assert plan.sentence == "1 of 3 brokers done, 0 restarting, 0 draining, 2 waiting"
    for seconds, state in ((2 * 3600, "done"), (KEPT_MS // 1000, "waiting")):
        sidecar.clock.offset += seconds
        sidecar.cluster.publish()
        await sidecar.cycle.turn()
        assert await states_of(sidecar) == {B1: "waiting", B2: state, B3: "waiting"}


async def test_no_broker_is_registered() -> None:
    sidecar = await seeing(loaded(3, 2, 3))
    sidecar.cluster.source.remove(B1, B2, B3)
    await sidecar.cycle.turn()
    plan = await plan_of(sidecar)
    assert (plan.brokers, plan.moves) == ([], 0)
    assert plan.refused.startswith("0 brokers")
