"""Memory of the guard: the moves of the last hour, and brokers that came, went or restarted."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import pytest

from bundlekeel.leader.gate.guard_state import GuardMemory, list_moved_brokers
from bundlekeel.leader.gate.windows import Calendar
from bundlekeel.leader.state.cycle_state import BrokerChanges
from bundlekeel.leader.state.documents import OperatorRequest
from bundlekeel.model.codes import Code
from bundlekeel.model.load import BrokerEndpoint
from bundlekeel.model.text_format import HOUR_MS
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.ledger import Ledger, LedgerEntry
from bundlekeel.ports import RawClusterView
from bundlekeel.settings.sections import WindowSettings
from tests.support.builders import NOW_MS, bundle_name, entry, report
from tests.support.world import BROKERS, FakeCluster, FakeSidecar, with_params


def picture(**starts: int) -> RawClusterView:
    endpoints = {name: BrokerEndpoint(broker_id=name, web_url="", start_timestamp=at) for name, at in starts.items()}
    return RawClusterView(wall_ms=NOW_MS, boot=0.0, generation=1, mode="modular", reports=(), endpoints=endpoints)


def observe_changes(*pictures: RawClusterView) -> dict[str, int]:
    guard_memory = GuardMemory(deque[dict[str, Any]])
    for index, item in enumerate(pictures):
        guard_memory.see(item, NOW_MS + 1000 * index)
    return {broker: (at - NOW_MS) // 1000 for broker, at in guard_memory.changed.items()}


EARLY = NOW_MS - 10**6


def test_the_first_picture_changes_nothing() -> None:
    """Rule: a broker that was there before the first poll is not a change, however young it is."""
    assert observe_changes(picture(a=EARLY, b=NOW_MS), picture(a=EARLY, b=NOW_MS)) == {}


def test_restarts_departures_and_arrivals() -> None:
    """Rule: another start, a broker that is gone and one that is back or new are changes, each at its time."""
    later = NOW_MS + 500
    assert observe_changes(picture(a=EARLY), picture(a=later)) == {"a": 1}
    assert observe_changes(picture(a=EARLY, b=EARLY), picture(a=EARLY)) == {"b": 1}
    assert observe_changes(picture(a=EARLY, b=EARLY), picture(a=EARLY), picture(a=EARLY, b=EARLY)) == {"b": 2}
    assert observe_changes(picture(a=EARLY), picture(a=EARLY, b=later)) == {"b": 1}


def test_a_broker_seen_late_is_no_news() -> None:
    """Rule: a broker that ran before the first poll was there all the time; one with an unreadable start counts as
    absent.
    """
    assert observe_changes(picture(a=EARLY), picture(a=EARLY, b=EARLY)) == {}
    assert observe_changes(picture(a=EARLY), picture(a=0), picture(a=EARLY)) == {}
    assert observe_changes(picture(a=EARLY), picture(a=0), picture(a=NOW_MS + 500)) == {"a": 2}


def test_from_which_start_on_a_broker_is_new() -> None:
    """Rule: a broker that started with the first poll, or without a start time, came since; one a second earlier was
    there.

    A broker that came back without a start counts as one that came back.
    """
    assert observe_changes(picture(a=EARLY), picture(a=EARLY, b=NOW_MS)) == {"b": 1}
    assert observe_changes(picture(a=EARLY), picture(a=EARLY, b=NOW_MS - 1)) == {}
    assert observe_changes(picture(a=EARLY), picture(a=EARLY, b=0)) == {"b": 1}
    assert observe_changes(picture(a=EARLY), picture(a=EARLY, b=1)) == {}
    assert observe_changes(picture(a=0), picture(a=EARLY)) == {}
    assert observe_changes(
        picture(a=EARLY), picture(a=EARLY, b=0), picture(a=EARLY, b=EARLY), picture(a=EARLY, b=NOW_MS)
    ) == {"b": 3}


def test_changes_are_forgotten() -> None:
    """Rule: after a day a change is history."""
    guard_memory = GuardMemory(deque[dict[str, Any]])
    guard_memory.see(picture(a=EARLY, b=EARLY), NOW_MS)
    guard_memory.see(picture(a=EARLY), NOW_MS + 1)
    assert guard_memory.changed == {"b": NOW_MS + 1}
    guard_memory.see(picture(a=EARLY), NOW_MS + 24 * HOUR_MS)
    assert guard_memory.changed == {"b": NOW_MS + 1}
    guard_memory.see(picture(a=EARLY), NOW_MS + 1 + 24 * HOUR_MS)
    assert guard_memory.changed == {}


def test_the_leaders_changes_are_known() -> None:
    """Rule: changes before the first snapshot come from the leader. A roll-out that has ended is not reported again.

    Here drains prolonged the present roll-out, so b restarted in it, although longer ago than the quiet time."""
    guard_memory = GuardMemory(deque[dict[str, Any]])
    changed = {"a": NOW_MS - 300_000, "b": NOW_MS - 150_000}
    known = BrokerChanges(changed_ms=changed, rolling_ms=NOW_MS - 59_999, rolled_ms=NOW_MS - 240_000)
    guard_memory.see(picture(a=EARLY, b=EARLY), NOW_MS, (), QUIET, known=known)
    assert guard_memory.changes == known
    assert guard_memory.rolled_out(NOW_MS, QUIET) == frozenset()
    assert guard_memory.rolled_out(NOW_MS + 1, QUIET) == {"b"}
    guard_memory.see(picture(a=EARLY), NOW_MS + 5, (), QUIET, known=known)
    assert guard_memory.changed == changed | {"b": NOW_MS + 5}, "its own changes count from then on"


QUIET = 60.0


def rolling(*cycles: tuple[float, RawClusterView, set[str]]) -> int:
    """Return the last second of the roll-out after these cycles: (seconds, snapshot, drained brokers)."""
    guard_memory = GuardMemory(deque[dict[str, Any]])
    for seconds, view, drains in cycles:
        guard_memory.see(view, NOW_MS + int(1000 * seconds), drains, QUIET)
    return (guard_memory.state(GuardState(), Ledger(), NOW_MS).rolling_ms - NOW_MS) // 1000


def test_a_drain_prolongs_a_roll_out() -> None:
    """Rule: a drain that starts within the quiet time of a restart, and the absence of its broker, are part of it."""
    before, after = picture(a=EARLY, b=EARLY), picture(a=EARLY, b=NOW_MS)
    start = ((0, before, set[str]()), (1, after, set[str]()))
    assert rolling(*start, (50, after, set())) == 1
    assert rolling(*start, (50, after, {"a"})) == 50
    assert rolling(*start, (50, after, {"a"}), (109, after, {"a"}), (168, after, {"a"})) == 168
    assert rolling(*start, (62, after, {"a"})) == 1, "the roll-out has ended before"
    assert rolling((0, before, set()), (50, before, {"a"})) == -NOW_MS // 1000, "a drain alone is not a roll-out"


def test_a_drain_without_progress_does_not_prolong_a_roll_out_for_ever() -> None:
    """Rule: after ten quiet times without progress it does not count. A broker that leaves is progress."""
    after, gone = picture(a=EARLY, b=NOW_MS), picture(b=NOW_MS)
    start = [(0.0, picture(a=EARLY, b=EARLY), set[str]()), (1.0, after, set[str]())]
    idle = [(float(second), after, {"a"}) for second in range(11, 1200, 50)]
    assert rolling(*start, *idle) == 561
    absent = [(float(second), gone, {"a"}) for second in range(561, 2000, 50)]
    assert rolling(*start, *idle[:11], *absent) == 1111


def test_in_a_drain_only_fewer_bundles_than_ever_are_progress() -> None:
    """Rule: Pulsar places new bundles at a drained broker, and they leave again. A missing report is not 0 bundles."""
    before, after = picture(a=EARLY, b=EARLY), picture(a=EARLY, b=NOW_MS)
    few = [replace(after, reports=(report("a", {bundle_name(n): 0.0 for n in range(count)}),)) for count in range(40)]
    start = [(0.0, before, set[str]()), (1.0, after, set[str]())]
    swinging = [(float(second), few[second // 50 % 2], {"a"}) for second in range(11, 1200, 50)]
    assert rolling(*start, *swinging) == 561
    falling = [(float(second), few[39 - second // 50], {"a"}) for second in range(11, 1200, 50)]
    assert rolling(*start, *falling) == 1161
    assert rolling(*start, falling[0], (61.0, after, {"a"}), *falling[2:]) == 1161


def record(number: int, age_ms: int, outcome: str = "done") -> dict[str, Any]:
    where = {"bundle": bundle_name(number), "source": "a:1", "destination": "b:1"}
    return where | {"outcome": outcome, "started_ms": NOW_MS - age_ms, "landed_ms": NOW_MS - age_ms + 100}


def test_the_last_hour() -> None:
    """Rule: moves started within 60 minutes count with any outcome; refused ones were not started."""
    records = deque(
        [record(0, HOUR_MS), record(1, HOUR_MS - 1), record(2, 5000, "unknown"), record(3, 4000, "refused")]
    )
    books = Ledger(entries=(entry(bundle_name(4), "a:1", "b:1", opened_ms=NOW_MS - 10),))
    state = GuardMemory(lambda: records).state(GuardState(), books, NOW_MS)
    assert [item.bundle for item in state.last_hour] == [bundle_name(number) for number in (1, 2, 4)]
    assert state.last_hour[0].at_ms == NOW_MS - HOUR_MS + 1


def booked(number: int, opened_ms: int, landed_ms: int = 0) -> LedgerEntry:
    """A move in the books."""
    return entry(bundle_name(number), "c:1", "d:1", opened_ms=opened_ms, landed_ms=landed_ms)


def test_of_the_last_hour_each_move_counts_once() -> None:
    """Rule: landed moves count by their record, moves in progress by the books, unless a record exists or they started
    an hour ago. Records are in the order of their ends: a late one hides no earlier ones of the hour.
    """
    records = [record(0, 2 * HOUR_MS), record(1, 9000), record(2, HOUR_MS + 5000), record(3, 2000), {"outcome": "done"}]
    entries = (
        booked(3, NOW_MS - 2000),
        booked(4, NOW_MS - 3000, landed_ms=NOW_MS - 1000),
        booked(5, NOW_MS - HOUR_MS),
        booked(6, NOW_MS - HOUR_MS + 1),
        booked(7, NOW_MS - 2000),
    )
    last_hour = GuardMemory(lambda: records[:4]).state(GuardState(), Ledger(entries=entries), NOW_MS).last_hour
    assert [(item.bundle, NOW_MS - item.at_ms, item.source, item.target) for item in last_hour] == [
        (bundle_name(6), HOUR_MS - 1, "c:1", "d:1"),
        (bundle_name(1), 9000, "a:1", "b:1"),
        (bundle_name(3), 2000, "a:1", "b:1"),
        (bundle_name(7), 2000, "c:1", "d:1"),
    ]
    # Nothing older is looked for behind a record from long ago, or without a time.
    assert GuardMemory(lambda: [records[1], records[0]]).state(GuardState(), Ledger(), NOW_MS).last_hour == ()
    assert GuardMemory(lambda: [records[1], records[4]]).state(GuardState(), Ledger(), NOW_MS).last_hour == ()
    assert len(GuardMemory(lambda: [records[1], records[2]]).state(GuardState(), Ledger(), NOW_MS).last_hour) == 1


def test_what_the_guard_is_told_beside_the_books() -> None:
    """Rule: what the adaptive rate allows, until when only overload is relieved, and which brokers changed."""
    calendar = Calendar([WindowSettings(cron="* * * * *", minutes=1, allow="overload")])
    guard_memory = GuardMemory(deque[dict[str, Any]], calendar, rate=lambda: 3)
    guard_memory.see(picture(a=EARLY), NOW_MS)
    guard_memory.see(picture(), NOW_MS + 1)
    state = guard_memory.state(GuardState(), Ledger(), NOW_MS)
    assert (state.rate, state.changed_brokers) == (3, {"a": NOW_MS + 1})
    assert state.relief_until is not None and NOW_MS < state.relief_until <= NOW_MS + 60_000
    plain = GuardMemory(deque[dict[str, Any]]).state(GuardState(), Ledger(), NOW_MS)
    assert (plain.rate, plain.relief_until, plain.changed_brokers) == (None, None, {})


def ended(number: int, at_ms: int, **changes: Any) -> dict[str, Any]:
    """A record of a move from `s<number>` that landed on `t<number>` then."""
    result = {"source": f"s{number}", "destination": f"t{number}", "outcome": "done", "landed_ms": at_ms}
    return result | {"started_ms": at_ms - 100} | changes


def test_brokers_that_moves_concerned() -> None:
    """Rule: brokers that shed or took a bundle since then; a bundle that landed elsewhere counts for its landing, one
    without a landing for its start; refused moves concern no broker.
    """
    records = [
        ended(0, NOW_MS - 1),
        ended(1, NOW_MS),
        ended(2, NOW_MS - 5),
        ended(3, NOW_MS + 5, landed_on="x"),
        ended(4, NOW_MS + 6, outcome="refused"),
        ended(5, 0, started_ms=NOW_MS + 7, landed_on=""),
        ended(6, 0, started_ms=NOW_MS - 7),
    ]
    assert list_moved_brokers(records, NOW_MS) == {"s1", "t1", "s3", "x", "s5", "t5"}
    # Records are in the order in which moves ended; none took more than an hour.
    for behind, result in ((HOUR_MS, {"s1", "t1"}), (HOUR_MS + 1, set())):
        early = [records[1], ended(7, NOW_MS - behind)]
        assert list_moved_brokers(early, NOW_MS) == result
    assert list_moved_brokers([records[1], {"outcome": "done"}], NOW_MS) == set()


def test_what_is_limited() -> None:
    requests: list[frozenset[str]] = []

    def limited(namespaces: frozenset[str]) -> frozenset[str]:
        requests.append(namespaces)
        return namespaces & {"acme/orders"}

    guard_memory = GuardMemory(deque[dict[str, Any]])
    guard_memory.limited = limited
    names = [f"{space}/0x00000000_0xffffffff" for space in ("acme/orders", "acme/events")]
    recent = {name: RecentMove(at_ms=NOW_MS, source="x") for name in names}
    assert guard_memory.state(GuardState(recent=recent), Ledger(), NOW_MS).limited == {names[0]}
    assert guard_memory.state(GuardState(), Ledger(), NOW_MS).limited == frozenset()
    assert requests == [frozenset({"acme/orders", "acme/events"})]


# --- through whole cycles over fakes ---------------------------------------------------------------------------


async def test_the_hour_survives_a_change_of_leader() -> None:
    """Rule: the budget of an hour is the cluster's: the next leader knows what the last one moved."""
    cluster, params = FakeCluster(), with_params(max_moves_per_hour=2, report_max_interval_seconds=1.0)
    first = await FakeSidecar(cluster, params=params).lead()
    done = await first.cycle.turn()
    assert len(done.outcomes) == 2
    assert done.plan is not None
    assert Code.BUDGET_PER_HOUR in {item.code for item in done.plan.refusals}
    await first.coordination.close()
    second = await FakeSidecar(cluster, "b", params=params).lead()
    cluster.publish()
    after = await second.cycle.turn()
    assert len(second.cycle.plan_input(second.cycle.snapshot).guard.last_hour) == 2  # type: ignore[arg-type]
    assert after.outcomes == []


@pytest.mark.parametrize("leads", [True, False])
async def test_a_sidecar_that_starts_in_a_roll_out_knows_it(leads: bool) -> None:
    """Rule: sidecars restart with their brokers. A new one knows the brokers that restarted before, from the leader."""
    cluster = FakeCluster()
    first = await FakeSidecar(cluster).lead()
    await first.cycle.turn()
    cluster.source.remove(BROKERS[2])
    await first.cycle.turn()
    cluster.publish()
    await first.cycle.turn()
    if leads:
        await first.coordination.close()
    second = await FakeSidecar(cluster, "b").lead()
    await second.cycle.turn()
    assert second.cycle.snapshot is not None
    guard = [item.cycle.plan_input(second.cycle.snapshot).guard for item in (first, second)]
    assert guard[1].changed_brokers == guard[0].changed_brokers and guard[1].changed_brokers.keys() == {BROKERS[2]}
    assert guard[1].rolling_ms == guard[0].rolling_ms


async def test_a_broker_that_goes_and_comes_holds_the_plan() -> None:
    """Rule: the cycle sees it in its pictures; until a minute after the last change only overload would be relieved."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    codes, moves = [], []
    for event in ("nothing", "gone", "back", "a minute"):
        if event == "gone":
            cluster.source.remove(BROKERS[2])
        elif event == "back":
            cluster.publish()
        elif event == "a minute":
            cluster.clock.offset += 61.0
            cluster.publish()
        report = await sidecar.cycle.turn()
        assert report.plan is not None
        codes.append(report.plan.verdict.code)
        moves.append(bool(report.plan.moves))
    assert moves == [True, False, False, True]
    assert codes[1:3] == [Code.ROLLOUT_HOLD] * 2


def test_a_roll_out_ends_once() -> None:
    """Rule: a quiet time after the last change; those that came back, each once, and again only in the next one."""
    guard_memory = GuardMemory(deque[dict[str, Any]])
    guard_memory.see(picture(a=EARLY, b=EARLY, c=EARLY), NOW_MS)
    assert guard_memory.rolled_out(NOW_MS, 60) == frozenset()
    guard_memory.see(picture(a=NOW_MS, b=EARLY), NOW_MS + 1000)
    guard_memory.see(picture(a=NOW_MS, b=NOW_MS + 1500), NOW_MS + 2000)
    assert guard_memory.rolled_out(NOW_MS + 61_999, 60) == frozenset()
    assert guard_memory.rolled_out(NOW_MS + 62_000, 60) == {"a", "b"}
    assert guard_memory.rolled_out(NOW_MS + 70_000, 60) == frozenset()
    guard_memory.see(picture(a=NOW_MS, b=NOW_MS + 1500, c=NOW_MS + 75_000), NOW_MS + 80_000)
    assert guard_memory.rolled_out(NOW_MS + 200_000, 0) == frozenset()
    assert guard_memory.rolled_out(NOW_MS + 200_000, 60) == {"c"}


async def test_after_a_roll_out_those_that_restarted_are_warmed() -> None:
    """Rule: the leader asks for it for all to see; a cordoned broker is left empty, and a follower asks for nothing."""
    cluster = FakeCluster({BROKERS[0]: [0.2, 0.15, 0.12, 0.1], BROKERS[1]: [0.1]})
    leader, follower = [await FakeSidecar(cluster, name).lead() for name in "ab"]
    cordon = OperatorRequest(by="ann", reason="disks", since_ms=1)
    await leader.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, cordons={BROKERS[1]: cordon})
    )
    for broker in BROKERS[1:]:
        for event in ("here", "gone", "back"):
            if event == "gone":
                cluster.source.remove(broker)
            else:
                cluster.publish()
            for sidecar in (follower, leader):
                await sidecar.cycle.turn()
        assert leader.shared_state.desired.warms == {}
    cluster.clock.offset += 61.0
    cluster.publish()
    await leader.leadership.turn()
    await follower.cycle.turn()
    assert leader.shared_state.desired.warms == {}
    await leader.cycle.turn()
    (warmed,) = leader.shared_state.desired.warms.items()
    assert warmed[0] == BROKERS[2] and warmed[1].by == "bundlekeel"


async def test_a_drained_broker_in_a_roll_out_holds_the_plan() -> None:
    """Rule: the cycle passes drains and the quiet time, so no broker is warmed before the drained one is back."""
    cluster = FakeCluster({BROKERS[0]: [0.2, 0.15, 0.12, 0.1], BROKERS[1]: [0.1]})
    sidecar = await FakeSidecar(cluster).lead()
    drain = OperatorRequest(by="ann", reason="disks", since_ms=1)
    cluster.source.remove(BROKERS[2])
    await sidecar.cycle.turn()
    cluster.publish()
    await sidecar.cycle.turn()
    await sidecar.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, drains={BROKERS[1]: drain})
    )
    for _ in range(3):
        cluster.clock.offset += 50.0
        cluster.publish()
        report = await sidecar.cycle.turn()
        assert "brokers are restarting" in report.sentence
    assert sidecar.shared_state.desired.warms == {}


class Closed(FakeSidecar):
    """A sidecar whose only window opens on 29 February."""

    settings: ClassVar = {"windows": [{"cron": "0 0 29 2 *", "minutes": 1}]}


async def test_outside_of_the_windows_nothing_is_carried_out() -> None:
    """Rule: the plan is made and shown, with the next opening, and that is all."""
    cluster = FakeCluster()
    sidecar = await Closed(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.obstacle is not None and report.obstacle.code is Code.OUTSIDE_WINDOW
    assert "02-29 00:00 UTC" in report.sentence
    assert report.plan is not None and report.plan.moves
    assert report.outcomes == [] and sidecar.moves() == []


async def test_outside_of_the_windows_a_drain_goes_on() -> None:
    """Rule: windows bind the balancer; what a person asked for is done, and nothing else with it."""
    cluster = FakeCluster({BROKERS[0]: [0.2, 0.15, 0.12, 0.1], BROKERS[1]: [0.05]})
    sidecar = await Closed(cluster).lead()
    operator_request = OperatorRequest(by="ann", reason="disks", since_ms=sidecar.clock.wall_ms() - 1)
    await sidecar.shared_state.change_desired(
        lambda desired: msgspec.structs.replace(desired, drains={BROKERS[1]: operator_request})
    )
    report = await sidecar.cycle.turn()
    assert {outcome.source for outcome in report.outcomes} == {BROKERS[1]}
    assert cluster.model.owned_by(BROKERS[1]) == []
    assert len(cluster.model.owned_by(BROKERS[0])) + len(cluster.model.owned_by(BROKERS[2])) == 5


@pytest.mark.parametrize(
    ("params", "at_once"),
    [
        ({"max_moves_per_cycle": 1}, True),
        ({"max_moves_per_cycle": 2, "max_traffic_share_per_cycle": 0.1}, False),
        ({"max_moves_per_cycle": 2, "max_moves_per_hour": 1}, False),
    ],
)
async def test_what_is_to_come_slowly_does_not_come_at_once(params: dict[str, Any], at_once: bool) -> None:
    """Rule: the rest of a plan follows without waiting, but not past a share of traffic or the budget of an hour."""
    sidecar = await FakeSidecar(FakeCluster(), params=with_params(**params)).lead()
    report = await sidecar.cycle.turn()
    assert len(report.outcomes) == 1
    assert sidecar.cycle.cut_off is at_once


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -3_600_000])
def test_n_f_the_clock_of_a_broker_does_not_tell_whether_it_is_new(ahead_ms: int) -> None:
    """Rule: a broker seen late, and one that started since we look, are told apart by our clock."""
    for started, result in ((EARLY, {}), (NOW_MS + 500, {"b": 1})):
        later = picture(a=EARLY, b=started + ahead_ms)
        broker_report = report("b", {}, start_timestamp=started + ahead_ms, clock_ahead_ms=ahead_ms)
        assert observe_changes(picture(a=EARLY), replace(later, reports=(broker_report,))) == result
