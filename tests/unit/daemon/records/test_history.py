"""What the cycle hands to the recorder is what it planned with: sidecars over a fake cluster, recorded and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bundlekeel.core.history.frames import frame_of, outcome_of
from bundlekeel.core.history.record import CycleRecord, Frame, recorded
from bundlekeel.core.history.replay import rebuilt, replay
from bundlekeel.core.planning.engine import PlanInput, PlanResult
from tests.support.world import FakeCluster, FakeSidecar


class RecordedSidecar(FakeSidecar):
    """A sidecar whose cycles are recorded at once, in memory."""

    def __init__(self, cluster: FakeCluster, name: str = "a") -> None:
        self.records: list[CycleRecord] = []
        self.undecided: list[Mapping[str, Any]] = []
        self._before: tuple[int, Frame] | None = None
        super().__init__(cluster, name)

    def history(
        self, epoch: int | None, given: PlanInput | None, result: PlanResult | None, record: Mapping[str, Any]
    ) -> None:
        """Record what a leader planned with."""
        if epoch is None:
            return
        if given is None or result is None:
            self.undecided.append(record)
            return
        outcome = outcome_of(result, dict(record), acted=record["acted"], software="test")
        frame, cycle = frame_of(given), int(record["cycle"])
        self.records.append(recorded(self._before, frame, epoch=epoch, cycle=cycle, outcome=outcome))
        self._before = cycle, frame


async def test_every_cycle_of_a_leader_replays_with_what_it_did() -> None:
    """Cycles that move and cycles that wait for the reports: the recorded plan is the one the cycle reported, a replay
    gives it again, and the record says what became of it."""
    sidecar = await RecordedSidecar(FakeCluster()).lead()
    reports = [await sidecar.cycle.turn() for _ in range(4)]
    assert [item.outcome.plan_hash for item in sidecar.records] == [
        report.plan.hash for report in reports if report.plan is not None
    ]
    made = [replay(item) for item in rebuilt(sidecar.records)]
    assert [item.same for item in made] == [True] * 4
    first = sidecar.records[0].outcome
    assert first.acted and first.planned == made[0].moves > 0
    assert first.details["report"]["outcomes"] == {"done": first.planned}
    assert len(first.details["moves"]) == first.planned


async def test_the_new_leaders_records_go_on_where_the_old_ones_ended() -> None:
    """The first sidecar resigns, the second one leads: cycle numbers follow on, under another epoch, and a follower
    recorded nothing meanwhile."""
    cluster = FakeCluster()
    first = await RecordedSidecar(cluster, "a").lead()
    second = await RecordedSidecar(cluster, "b").lead()
    await first.cycle.turn()
    await second.cycle.turn()
    assert second.records == []
    await first.leadership.stop()
    await second.lead()
    await second.cycle.turn(lambda: second.cycle.adopt(second.shared_state.taken_over(), second.leadership.epoch))
    together = [*first.records, *second.records]
    assert [(item.cycle, item.full) for item in together] == [(1, True), (2, True)]
    assert together[0].epoch < together[1].epoch
    assert [replay(item).same for item in rebuilt(together)] == [True, True]


async def test_a_cycle_that_cannot_look_is_told_as_undecided() -> None:
    """Without a picture there is no plan to record, but the recorder hears of the cycle."""
    cluster = FakeCluster()
    sidecar = await RecordedSidecar(cluster).lead()
    await sidecar.cycle.turn()
    cluster.source.suspended = True
    await sidecar.cycle.turn()
    assert [record["cycle"] for record in sidecar.undecided] == [2]
    assert len(sidecar.records) == 1
