"""Moves under traffic: where each bundle was asked to go is where it lands."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections import Counter

import pytest

from bundlekeel.leader.execution.intents import MoveOutcome, MoveRequest
from bundlekeel.requests.takeover import SHEDDING
from dev.traffic import Traffic
from dev.traffic.admin import ensure_namespace, place_all_on
from tests.chaos.stage import traffic_spec
from tests.integration.conftest import RealWorld

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

FEW, MANY = 40, 100
BATCH = 4
BUNDLES = 8


@pytest.mark.parametrize("moves", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
async def test_moves_under_traffic(real_world: RealWorld, moves: int) -> None:
    """All but one at most are done where asked, and none is reported done that is not."""
    await real_world.admin.set_dynamic(SHEDDING, "false", permit=real_world.permit)
    spec = {"bundles": BUNDLES, "topics_per_bundle": 2, "rate_total_msgs": 300.0}
    traffic = Traffic(traffic_spec(real_world.cluster, "demo/moves", **spec))
    bundles = sorted({plan.bundle for plan in await asyncio.to_thread(traffic.prepare)})
    executor, rng = real_world.executor(), random.Random(7)
    outcomes: list[MoveOutcome] = []
    try:
        await asyncio.to_thread(traffic.start)
        while len(outcomes) < moves:
            requests = await real_world.requests_for(rng.sample(bundles, min(BATCH, moves - len(outcomes))), rng)
            for outcome in await asyncio.gather(*map(executor.move, requests)):
                outcomes.append(outcome)
                if outcome.outcome == "done":
                    assert await real_world.owner_of(outcome.bundle) == outcome.destination
        acked = await asyncio.to_thread(traffic.acked)
        report = await asyncio.to_thread(traffic.stop)
    finally:
        traffic.close()
        await real_world.admin.delete_dynamic(SHEDDING, permit=real_world.permit)
    counts = Counter((outcome.outcome, outcome.code) for outcome in outcomes)
    seconds = sorted(outcome.seconds for outcome in outcomes)
    print(  # noqa: T201
        f"\nmoves: {dict(counts)}; seconds: median {statistics.median(seconds):.3f}, "
        f"p95 {seconds[int(0.95 * moves) - 1]:.3f}, max {seconds[-1]:.3f}; hops "
        f"{Counter(len(o.hops) for o in outcomes)}; traffic: sent {report.sent}, lost {report.lost}, longest publish "
        f"gap {report.publish_gap_seconds:.2f} s"
    )
    assert len(outcomes) == moves
    assert counts["done", ""] >= moves - 1, [o for o in outcomes if o.outcome != "done"]
    assert all(outcome.topic for outcome in outcomes)
    assert await real_world.coordination.read_tree("intents") == []
    assert report.lost == 0
    assert 0 < sum(acked.values()) <= report.acked


async def test_a_bundle_without_topics_is_told_by_its_owner(real_world: RealWorld) -> None:
    """There is no topic to look up: the unload arms the affinity, and the outcome is the owner of the ownership data.
    (A broker's own reader of the namespace's policies may have created its topic, or may request the bundle. Then it
    goes to the armed broker.)
    """
    broker, target = real_world.cluster.brokers[0], real_world.cluster.brokers[1]
    await asyncio.to_thread(ensure_namespace, broker.web_url, "demo/empty", 1)
    await asyncio.to_thread(place_all_on, broker.broker_id, broker.web_url, ["persistent://demo/empty/never-created"])
    bundle = "demo/empty/0x00000000_0xffffffff"
    assert await real_world.owner_of(bundle) == broker.broker_id
    request = MoveRequest(bundle=bundle, source=broker.broker_id, destination=target.broker_id)
    outcome = await real_world.executor().move(request)
    owner = await real_world.owner_of(bundle)
    assert outcome.topic in ("", "persistent://demo/empty/__change_events")
    assert (outcome.outcome, outcome.landed_on) in (("released", ""), ("done", target.broker_id))
    assert owner == outcome.landed_on
