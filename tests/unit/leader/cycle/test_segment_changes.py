"""Splits and merges of segments of scalable topics: their bundles stay for a minute."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from bundlekeel.leader.cycle.segment_changes import (
    AWAIT_SPLIT_MS,
    BELOW_MS,
    ENABLED,
    MOST_READS,
    THRESHOLDS,
    SegmentChanges,
    split_thresholds,
)
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import StoreError
from bundlekeel.model.names import FULL_UPPER, BundleName, bundle_for_hash, parse_topic
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.scalable import KEPT_MS, Segment
from bundlekeel.planning.effects import AVERAGED_MS
from bundlekeel.planning.ledger import timeout_ms
from bundlekeel.requests.doctor import examine
from tests.support.memory_source import MemoryMetadata
from tests.support.world import FakeCluster, FakeSidecar, WallClock


def segment_of(cluster: FakeCluster) -> tuple[Segment, str]:
    """A segment in one of the bundles of the cluster, and this bundle."""
    bounds = cluster.metadata.bundle_boundaries["t/ns"]
    for number in range(1_000_000):
        topic = parse_topic(f"topic://t/ns/hot{number}")
        name = f"segment://t/ns/hot{number}/0000-ffff-0"
        bundle = str(bundle_for_hash("t/ns", bounds, parse_topic(name).hash))
        if bundle in cluster.shares:
            return Segment(topic=topic, number=0, name=name), bundle
    raise AssertionError("no name has a hash in these bundles")


async def test_a_bundle_whose_segment_was_split_stays_for_a_minute() -> None:
    """`why` explains it."""
    cluster = FakeCluster(clock=WallClock())
    sidecar = await FakeSidecar(cluster).lead()
    segment, bundle = segment_of(cluster)
    cluster.metadata.scalable = [replace(segment, changed_ms=sidecar.clock.wall_ms() - 1_000)]
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


SETTINGS = {ENABLED: "true", **dict.fromkeys(THRESHOLDS, "10.0")}


async def read(changes: SegmentChanges, sidecar: FakeSidecar, seconds: float = 0.0) -> list[str]:
    """Read the layouts some seconds later. Returns the bundles that wait for a split."""
    sidecar.clock.offset += seconds
    sidecar.cluster.publish()
    await sidecar.cycle.turn()
    snapshot = sidecar.cycle.demand_snapshot()
    await changes.read(snapshot, SETTINGS)
    return [name for name, until_ms in changes.above.items() if until_ms > snapshot.wall_ms]


async def test_a_bundle_waits_for_the_split_of_a_segment_above_a_threshold() -> None:
    """At most five minutes: Pulsar may have the maximum of segments. A load that is not known is not above."""
    cluster = FakeCluster(clock=WallClock())
    sidecar, metadata = await FakeSidecar(cluster, mode="recommend").lead(), cluster.metadata
    segment, bundle = segment_of(cluster)
    metadata.scalable, changes = [segment], SegmentChanges(metadata)
    assert await read(changes, sidecar) == []
    metadata.segment_loads[segment.name] = (0.0, 0.0, 0.0, 11.0)
    assert await read(changes, sidecar) == [bundle]
    metadata.suspended = True
    with pytest.raises(StoreError):
        await metadata.layouts()
    await changes.read(sidecar.cycle.demand_snapshot(), SETTINGS)
    assert list(changes.above) == [bundle]
    metadata.suspended = False
    assert await read(changes, sidecar, AWAIT_SPLIT_MS / 1000 - 5) == [bundle]
    assert await read(changes, sidecar, 6) == []
    metadata.segment_loads[segment.name] = (10.0, 10.0, 10.0, 10.0)
    assert await read(changes, sidecar) == [] and changes.above == {}
    metadata.segment_loads[segment.name] = (11.0, 0.0, 0.0, 0.0)
    assert await read(changes, sidecar, BELOW_MS / 1000 + 1) == [bundle]
    metadata.scalable = [replace(segment, active=False)]
    assert await read(changes, sidecar) == []


async def test_few_loads_of_segments_are_read_per_cycle_each_in_turn() -> None:
    """Three of four bundles are large enough. Loads that are not read again remain."""
    edges = [0, 2**30, 2**31, 3 * 2**30, FULL_UPPER]
    names = tuple(str(BundleName(namespace="t/ns", lower=low, upper=high)) for low, high in pairwise(edges))
    latest = np.array([[0.0, 0.0, 0.0, 11.0]] * 3 + [[0.0] * 4])
    snapshot: Any = SimpleNamespace(bundles=SimpleNamespace(names=names, latest=latest), wall_ms=1_000)
    topics = [parse_topic(f"segment://t/ns/many{number}/0000-ffff-0") for number in range(3 * MOST_READS)]
    in_large = {str(topic) for topic in topics if topic.hash < edges[3]}
    assert 2 * MOST_READS < len(in_large) < 3 * MOST_READS
    metadata, asked = MemoryMetadata(), list[str]()
    metadata.scalable = [Segment(topic=topic.scalable_topic, number=0, name=str(topic)) for topic in topics]
    first, last = (next(str(topic) for topic in topics if edges[at] <= topic.hash < edges[at + 1]) for at in (0, 2))
    metadata.segment_loads = {first: (0.0, 0.0, 0.0, 11.0), last: (0.0, 0.0, 0.0, 11.0)}
    load_of = metadata.segment_load

    async def segment_load(segment: Segment) -> tuple[float, float, float, float]:
        asked.append(segment.name)
        return await load_of(segment)

    metadata.segment_load = segment_load  # type: ignore[method-assign]
    changes = SegmentChanges(metadata)
    for cycles in range(1, 4):
        await changes.read(snapshot, SETTINGS)
        assert len(asked) == cycles * MOST_READS
    assert set(asked) == in_large
    assert list(changes.above) == [names[0], names[2]]


async def test_a_bundle_that_is_above_now_and_then_does_not_wait_again() -> None:
    """Until it was below for ten minutes. Otherwise it would never move."""
    cluster = FakeCluster(clock=WallClock())
    sidecar, metadata = await FakeSidecar(cluster, mode="recommend").lead(), cluster.metadata
    segment, bundle = segment_of(cluster)
    metadata.scalable, changes = [segment], SegmentChanges(metadata)
    waits = []
    for minute in range(20):
        metadata.segment_loads[segment.name] = (0.0, 0.0, 0.0, 9.0 + 2 * (minute % 3 == 0))
        waits.append(await read(changes, sidecar, 60))
    assert waits == [[bundle], [], [], [bundle], *[[]] * 16]
    metadata.segment_loads[segment.name] = (0.0, 0.0, 0.0, 11.0)
    assert await read(changes, sidecar, BELOW_MS / 1000) == [bundle]


def test_changes_count_until_every_move_is_judged() -> None:
    """A broker whose load hardly changes may report its moves only after the longest interval of reports."""
    assert timeout_ms(Parameters()) + AVERAGED_MS <= KEPT_MS


@pytest.mark.parametrize("change", [{ENABLED: "false"}, {THRESHOLDS[0]: "x"}, {ENABLED: None}, {THRESHOLDS[3]: None}])
def test_no_thresholds(change: dict[str, str | None]) -> None:
    """Pulsar 4 does not have these settings."""
    settings = {key: value for key, value in (SETTINGS | change).items() if value is not None}
    assert split_thresholds(settings) is None
    assert split_thresholds(SETTINGS) == (10.0,) * 4


async def test_layouts_that_cannot_be_read_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By doctor, and once in the log: for example an identity without the right to read `/topics`."""
    cluster = FakeCluster(clock=WallClock())
    sidecar = await FakeSidecar(cluster).lead()
    assert "scalable topics" not in {check.name for check in await examine(sidecar.doctor_context())}

    async def refuse() -> list[Segment]:
        raise StoreError("/topics: NoAuth")

    monkeypatch.setattr(cluster.metadata, "layouts", refuse)
    with capture_logs() as lines:
        for _ in range(2):
            cluster.publish()
            await sidecar.cycle.turn()
    assert [line["error"] for line in lines if "scalable topics" in line["event"]] == ["/topics: NoAuth"]
    (check,) = [item for item in await examine(sidecar.doctor_context()) if item.name == "scalable topics"]
    assert (check.ok, check.severity) == (False, "warning") and "/topics" in check.fix
