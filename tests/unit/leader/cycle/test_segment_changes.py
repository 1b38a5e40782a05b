"""Splits and merges of segments of scalable topics: their bundles stay for a minute."""

from __future__ import annotations

from bundlekeel.model.codes import Code
from bundlekeel.model.names import bundle_for_hash, parse_topic
from bundlekeel.model.scalable import Segment
from tests.support.world import FakeCluster, FakeSidecar, WallClock


async def test_a_bundle_whose_segment_was_split_stays_for_a_minute() -> None:
    """`why` explains it. If the store does not respond, the last splits and merges are kept."""
    cluster = FakeCluster(clock=WallClock())
    sidecar = await FakeSidecar(cluster).lead()
    bounds = cluster.metadata.bundle_boundaries["t/ns"]
    names = (f"segment://t/ns/hot{number}/0000-ffff-0" for number in range(1_000_000))
    name = next(
        name for name in names if str(bundle_for_hash("t/ns", bounds, parse_topic(name).hash)) in cluster.shares
    )
    bundle = str(bundle_for_hash("t/ns", bounds, parse_topic(name).hash))
    cluster.metadata.scalable = [Segment(name=name, changed_ms=sidecar.clock.wall_ms() - 1_000)]
    cluster.publish()
    report = await sidecar.cycle.turn()
    assert report.outcomes and bundle not in {outcome.bundle for outcome in report.outcomes}
    answer = await sidecar.service.why(bundle)
    assert [item.code for item in answer.codes][:1] == [Code.SEGMENTS_CHANGED.value]
    sidecar.clock.offset += 60
    cluster.publish()
    await sidecar.cycle.turn()
    assert sidecar.cycle.plan_input(sidecar.cycle.demand_snapshot()).guard.segments_changed.keys() == {bundle}
    answer = await sidecar.service.why(bundle)
    assert Code.SEGMENTS_CHANGED.value not in [item.code for item in answer.codes]
