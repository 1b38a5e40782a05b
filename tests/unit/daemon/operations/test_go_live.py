"""`doctor --for act`: go only after a day of recommendations, and every line that does not hold says what to do."""

from __future__ import annotations

from dataclasses import replace

from bundlekeel.daemon.answers.summary import Period
from bundlekeel.daemon.operations.doctor_checks import DAY_MS, go_live
from bundlekeel.daemon.summary import summary
from tests.support.world import BROKERS, FakeCluster, FakeSidecar

NOW_MS = 10 * DAY_MS


async def test_a_day_of_recommendations_is_needed_and_told_of() -> None:
    """Hours, cycles, and what the plans would have done; a sidecar alone, and mode recommend, are warnings."""
    sidecar = await FakeSidecar(FakeCluster({BROKERS[0]: [0.3] * 3, BROKERS[1]: [0.0], BROKERS[2]: [0.0]})).lead()
    await sidecar.cycle.turn()
    report = sidecar.cycle.report
    assert report is not None and report.plan is not None and report.plan.moves
    cycle = {"kind": "cycle", "code": "Balanced", "sentence": "", "planned": 2, "wall_ms": NOW_MS - DAY_MS}
    records = [cycle, cycle | {"planned": 0, "wall_ms": NOW_MS - 5}, cycle | {"planned": 0, "wall_ms": NOW_MS}]
    day = summary(Period(since_ms=NOW_MS - DAY_MS), NOW_MS, records, [], [])
    found = {item.name: item for item in go_live([], mode_ceiling="recommend", members=1, day=day, plan=report.plan)}
    assert all(item.ok or item.fix for item in found.values())
    assert [name for name, item in found.items() if not item.ok] == ["mode", "replicas", "failsafe job"]
    assert found["a day of recommendations"].detail == "3 cycles in the last 24.0 hours"
    done = found["what acting would do"].detail
    assert done.startswith("1 of 3 cycles recommended moves, 2 at most in one; the last plan: ")
    assert "max/mean" in done
    late = summary(Period(since_ms=NOW_MS - DAY_MS), NOW_MS, records[1:], [], [])
    found = {item.name: item for item in go_live([], mode_ceiling="act", members=2, day=late, plan=None)}
    day_check = found["a day of recommendations"]
    assert (day_check.ok, day_check.severity) == (False, "error")
    assert found["mode"].ok and found["replicas"].ok
    assert found["what acting would do"].detail == "no move was recommended"
    often = replace(late, recommended=2, recommended_moves=1)
    (told,) = go_live([], mode_ceiling="act", members=2, day=often, plan=None)[-1:]
    assert not told.ok and "bundlekeel plan" in told.fix
