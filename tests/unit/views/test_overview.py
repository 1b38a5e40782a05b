"""The cluster in few rows: nothing is lost by leaving small bundles together, and marks change when something did."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from bundlekeel.model.errors import ConfigError
from bundlekeel.views.overview import changes, draw_overview
from bundlekeel.views.picture import OverviewBroker, OverviewView
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params

LOADS = {BROKERS[0]: [0.05, 0.2, 0.1, 0.15], BROKERS[1]: [0.3], BROKERS[2]: []}


async def test_the_largest_are_named_and_the_rest_is_summed() -> None:
    """Largest first, by short-term throughput; sums are those of the brokers' bundles."""
    sidecar = await FakeSidecar(FakeCluster(LOADS), mode="recommend").lead()
    assert draw_overview(sidecar.cycle.snapshot, 2) == OverviewView(wall_ms=None, namespaces=[], brokers=[])
    await sidecar.cycle.turn()
    overview = draw_overview(sidecar.cycle.snapshot, 2)
    rows = {row.broker: row for row in overview.brokers}
    first = rows[BROKERS[0]]
    assert [item.throughput for item in first.bundles] == pytest.approx([20e6, 15e6])
    assert first.other_bundles == 2 and first.other_throughput == pytest.approx(15e6)
    assert first.bundles[0].bundle == list(sidecar.cluster.shares)[1]
    assert (len(rows[BROKERS[1]].bundles), rows[BROKERS[1]].other_bundles) == (1, 0)
    assert rows[BROKERS[2]] == OverviewBroker(broker=BROKERS[2], bundles=[], other_bundles=0, other_throughput=0.0)
    (namespace,) = overview.namespaces
    assert namespace.namespace == "t/ns" and namespace.throughput == pytest.approx(80e6)


async def test_marks_change_with_what_they_stand_for() -> None:
    """Nothing while nothing happens; a move changes the moves, a task the tasks."""
    sidecar = await FakeSidecar(FakeCluster(), params=with_params(max_moves_per_cycle=1)).lead()

    def marks() -> dict[str, object]:
        return changes(sidecar.cycle, sidecar.shared_state, sidecar.leadership, connected=True, last=None)

    before = marks()
    assert marks() == before
    await sidecar.cycle.turn()
    moved = marks()
    assert {key for key, value in asdict(moved).items() if value != asdict(before)[key]} == {"picture", "moves"}
    sidecar.shared_state.tasks.append({"task": "1", "state": "running"})
    assert {key for key, value in asdict(marks()).items() if value != asdict(moved)[key]} == {"tasks"}


async def test_bundles_of_what_is_no_namespace() -> None:
    """One word is a mistake, not a namespace without bundles."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    with pytest.raises(ConfigError, match="'orders' is no namespace"):
        sidecar.service.bundles(namespace="orders")
