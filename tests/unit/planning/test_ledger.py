"""The ledger: a move is counted once, from its booking until both reports show it, however late they come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.load import BrokerReport, ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.ledger import (
    Baseline,
    Ledger,
    dropped,
    landed,
    open_entries,
    parted,
    preallocated,
    settle,
    timeout_ms,
)
from tests.support.builders import NOW_MS, averages_of, bundle_name, eager, report, snapshot

PARAMS = Parameters()
SECOND = 1000
WAIT = 120 * SECOND
X, Y = bundle_name(1), bundle_name(2)
BEFORE = [report("a:1", {X: 0.4, Y: 0.4}), report("b:1", {})]
AVERAGES = averages_of(BEFORE)
THROUGHPUT = [CapacityOverride(pattern="*", throughput=100e6, ignore=("cpu",))]


def see(reports: list[BrokerReport], at: int = 0, **more: object) -> Snapshot:
    """A snapshot some ms after the move was booked."""
    return snapshot(reports, averages=AVERAGES, wall_ms=NOW_MS + at, **more)  # type: ignore[arg-type]


def build_reports(
    at: int, source: dict[str, float], target: dict[str, float], cpu: tuple[float, float]
) -> list[BrokerReport]:
    """Both brokers' reports, written `at` ms after the booking."""
    when = NOW_MS + at
    return [report("a:1", source, cpu=cpu[0], last_update=when), report("b:1", target, cpu=cpu[1], last_update=when)]


def a_move() -> Move:
    """The move of one of the two equal bundles from a to b."""
    (move,) = eager(see(BEFORE)).plan.moves
    return move


def booked(landing: int | None = 5 * SECOND) -> Ledger:
    """The move in the books, landed after 5 s unless told otherwise."""
    ledger = open_entries(Ledger(), [a_move()], see(BEFORE), NOW_MS)
    return ledger if landing is None else landed(ledger, a_move().bundle, "b:1", NOW_MS + landing)


def scores(current: Snapshot, ledger: Ledger) -> list[float]:
    """The predicted scores of a and b."""
    settled = settle(ledger, current, PARAMS, current.wall_ms)
    return [round(value, 6) for value in Draft(current, settled, PARAMS).score.tolist()]


def open_sides(current: Snapshot, ledger: Ledger) -> list[tuple[bool, bool]]:
    left = settle(ledger, current, PARAMS, current.wall_ms)
    return [(entry.source_settled, entry.target_settled) for entry in left.entries]


def moved() -> tuple[dict[str, float], dict[str, float]]:
    """The bundles of a and b once the move shows."""
    bundle = a_move().bundle
    return {name: 0.4 for name in (X, Y) if name != bundle}, {bundle: 0.4}


def test_booked_move_counts_at_once() -> None:
    """Rule: a move under way debits its source and credits its target before any report shows it."""
    assert scores(see(BEFORE, SECOND), booked(None)) == [0.4, 0.4]


def test_booked_move_counts_at_once_in_traffic() -> None:
    """Rule: the same for resources that follow the traffic."""
    before = see(BEFORE, capacity=THROUGHPUT)
    (move,) = eager(before).plan.moves
    ledger = open_entries(Ledger(), [move], before, NOW_MS)
    assert scores(see(BEFORE, SECOND, capacity=THROUGHPUT), ledger) == [0.4, 0.4]


@pytest.mark.parametrize("cpu", [(0.8, 0.0), (0.6, 0.2), (0.4, 0.4)])
def test_report_between_landing_and_settling_does_not_debit_twice(cpu: tuple[float, float]) -> None:
    """Rule: a report in between is old, half old or new in its CPU; either way the move counts exactly once."""
    source, target = moved()
    for bundles in ((BEFORE[0], BEFORE[1]), None):
        reports = (
            build_reports(60 * SECOND, source, target, cpu)
            if bundles is None
            else build_reports(60 * SECOND, {X: 0.4, Y: 0.4}, {}, cpu)
        )
        assert scores(see(reports, 60 * SECOND), booked()) == [0.4, 0.4]


def test_traffic_follows_the_bundle_lists_in_between() -> None:
    """Rule: what the source still lists is taken off, what the target does not list yet or only in part is put on."""
    before = see(BEFORE, capacity=THROUGHPUT)
    ledger = open_entries(Ledger(), list(eager(before).plan.moves), before, NOW_MS)
    source, target = moved()
    partial = dict.fromkeys(target, 0.1)
    for bundles in ((source, {}), (source, partial), (source, target), ({X: 0.4, Y: 0.4}, {})):
        reports = build_reports(60 * SECOND, *bundles, (0.0, 0.0))
        assert scores(see(reports, 60 * SECOND, capacity=THROUGHPUT), ledger) == [0.4, 0.4], bundles


def test_settles_when_both_reported_late_enough() -> None:
    """Rule: landing + one statistics + one host-usage interval, on both sides; then the reports stand alone."""
    source, target = moved()
    early = build_reports(5 * SECOND + WAIT - 1, source, target, (0.4, 0.4))
    late = build_reports(5 * SECOND + WAIT, source, target, (0.3, 0.5))
    assert open_sides(see(early, WAIT + 6 * SECOND), booked()) == [(False, False)]
    assert open_sides(see(late, WAIT + 6 * SECOND), booked()) == []
    assert scores(see(late, WAIT + 6 * SECOND), booked()) == [0.3, 0.5]


def test_each_side_settles_on_its_own() -> None:
    """Rule: a settled source is not debited any more while the target's credit continues, and the bundle waits."""
    source, _ = moved()
    reports = [report("a:1", source, cpu=0.4, last_update=NOW_MS + WAIT + 5 * SECOND), BEFORE[1]]
    current = see(reports, WAIT + 6 * SECOND)
    assert open_sides(current, booked()) == [(True, False)]
    assert scores(current, booked()) == [0.4, 0.4]
    assert settle(booked(), current, PARAMS, current.wall_ms).unsettled() == {"b:1"}


def test_move_under_way_never_settles_by_reports() -> None:
    """Rule: reports written before the landing say nothing about it, however many."""
    source, target = moved()
    late = build_reports(WAIT * 2, source, target, (0.4, 0.4))
    assert open_sides(see(late, WAIT * 2), booked(None)) == [(False, False)]


def test_quiet_broker_is_predicted_until_the_time_out() -> None:
    """Rule: a broker that never reports again keeps its prediction until the time-out after the landing."""
    quiet = [report("a:1", {X: 0.4, Y: 0.4}, cpu=0.45), report("b:1", {}, cpu=0.35)]
    timeout = 5 * SECOND + timeout_ms(PARAMS)
    assert scores(see(quiet, timeout - 1), booked()) == [0.4, 0.4]
    assert open_sides(see(quiet, timeout), booked()) == []


def test_silence_refutes_a_prediction() -> None:
    """Rule: a broker silent for long is within 10 points of its last report; a prediction further off is corrected."""
    source, target = moved()
    reports = build_reports(60 * SECOND, source, target, (0.6, 0.4))
    assert scores(see(reports, WAIT), booked()) == [0.4, 0.4], "it may still report"
    current = see(reports, WAIT + 20 * SECOND)
    assert scores(current, booked()) == pytest.approx([0.5, 0.4])
    assert open_sides(current, booked()) == [(False, False)]
    again = settle(settle(booked(), current, PARAMS, current.wall_ms), current, PARAMS, current.wall_ms)
    assert scores(current, again) == pytest.approx([0.5, 0.4]), "once is enough"


@pytest.mark.parametrize(("points", "expected"), [(5.0, 0.55), (10.0, 0.5), (20.0, 0.4)])
def test_the_band_of_silence_is_the_brokers_own(points: float, expected: float) -> None:
    """Rule: silent brokers are as near to their last report as their `...ReportUpdateThresholdPercentage` says."""
    source, target = moved()
    current = see(build_reports(60 * SECOND, source, target, (0.6, 0.4)), WAIT + 20 * SECOND)
    settled = settle(booked(), current, replace(PARAMS, report_change_percent=points), current.wall_ms)
    assert Draft(current, settled, PARAMS).score[0] == pytest.approx(expected)


@pytest.mark.parametrize(("ended", "settled"), [(20 * SECOND - 1, False), (20 * SECOND, True)])
def test_what_was_measured_after_the_landing_shows_it(ended: int, settled: bool) -> None:
    """Rule: figures of 15 s that began when the bundle had landed contain it; those that began earlier only a part."""
    measured = [replace(item, interval_ms=15 * SECOND) for item in build_reports(ended, *moved(), (0.4, 0.4))]
    assert open_sides(see(measured, 21 * SECOND), booked()) == ([] if settled else [(False, False)])


def test_time_outs_follow_the_brokers_intervals() -> None:
    """Rule: 1,080 s and 10 s are stock; brokers that report every 30 min and look every 20 s are waited for longer."""
    slow = replace(PARAMS, report_max_interval_seconds=1800.0, report_min_interval_seconds=20.0)
    assert [timeout_ms(params) for params in (Parameters(), slow)] == [1080 * SECOND, 1980 * SECOND]
    assert booked().not_yet_reported(PARAMS, NOW_MS + WAIT + 20 * SECOND) == frozenset()
    assert booked().not_yet_reported(slow, NOW_MS + WAIT + 20 * SECOND) == {"a:1", "b:1"}


def test_brokers_not_yet_reported_are_those_that_could_not_answer_yet() -> None:
    """Rule: while a move is under way or fresh nothing new is known; silent for longer, the prediction counts."""
    assert booked(None).not_yet_reported(PARAMS, NOW_MS + 10 * WAIT) == {"a:1", "b:1"}
    assert booked().not_yet_reported(PARAMS, NOW_MS + WAIT) == {"a:1", "b:1"}
    assert booked().not_yet_reported(PARAMS, NOW_MS + WAIT + 20 * SECOND) == frozenset()


def test_a_bundle_is_not_yet_reported_until_its_brokers_had_time_to_report_it() -> None:
    """Rule: both intervals and twice the slack after its landing, to the millisecond; before that it counts nowhere."""
    received = NOW_MS + 5 * SECOND + WAIT + int(2 * SECOND * PARAMS.report_min_interval_seconds)
    assert booked().not_yet_reported_bundles(PARAMS, received - 1) == {a_move().bundle}
    assert booked().not_yet_reported(PARAMS, received - 1) == {"a:1", "b:1"}
    assert (
        booked().not_yet_reported_bundles(PARAMS, received)
        == booked().not_yet_reported(PARAMS, received)
        == frozenset()
    )
    assert booked(None).not_yet_reported_bundles(PARAMS, NOW_MS) == frozenset()


@pytest.mark.parametrize(("source", "target"), [(True, False), (False, True)])
def test_who_has_settled_is_heard_while_the_other_side_waits(source: bool, target: bool) -> None:
    """Rule: each broker is open for as long as its own report does not show the move."""
    (entry,) = booked().entries
    ledger = Ledger(entries=(replace(entry, source_settled=source, target_settled=target),))
    assert ledger.not_yet_reported(PARAMS, NOW_MS + WAIT) == {"b:1" if source else "a:1"}
    assert landed(ledger, "x", "b:1", NOW_MS).baselines == ()
    left = settle(
        ledger, see(build_reports(30 * SECOND, {X: 0.4, Y: 0.4}, {}, (0.8, 0.0)), WAIT), PARAMS, NOW_MS + WAIT
    )
    assert [item.broker for item in left.baselines] == ["b:1" if source else "a:1"]


def test_a_bundle_that_was_split_is_told_by_its_children() -> None:
    """Rule: after a split the parent's traffic is credited no more, for the children carry it; its pressure is, until
    the brokers' host usage shows it."""
    bundle = a_move().bundle
    source, _ = moved()
    children = {f"{bundle[:-21]}0x90000000_0x98000000": 0.3, f"{bundle[:-21]}0x98000000_0xa0000000": 0.1}
    late = build_reports(20 * SECOND, source, children, (0.8, 0.0))
    ledger = parted(booked(), bundle)
    current = snapshot(late, averages=averages_of(late), wall_ms=NOW_MS + 30 * SECOND)
    draft = Draft(current, settle(ledger, current, PARAMS, current.wall_ms), PARAMS)
    assert draft.traffic[1].tolist() == pytest.approx(current.brokers.traffic[1].tolist())
    assert draft.score.tolist() == pytest.approx([0.4, 0.4])
    assert parted(booked(None), bundle) == booked(None), "a move under way is none that was split"


def test_landed_elsewhere_credits_the_one_that_has_it() -> None:
    """Rule: a bundle that another broker took debits the source and credits that one; and it settles there."""
    third = [*BEFORE, report("c:1", {})]
    (move,) = eager(see(BEFORE)).plan.moves
    ledger = landed(open_entries(Ledger(), [move], see(third), NOW_MS), move.bundle, "c:1", NOW_MS + SECOND)
    current = see(third, 2 * SECOND)
    assert scores(current, ledger) == [0.4, 0.0, 0.4]
    state = settle(ledger, current, PARAMS, current.wall_ms)
    assert state.unsettled() == {"a:1", "c:1"}
    source, target = moved()
    late = [
        report(name, bundles, last_update=NOW_MS + WAIT + SECOND)
        for name, bundles in (("a:1", source), ("b:1", {}), ("c:1", target))
    ]
    assert open_sides(see(late, WAIT + 2 * SECOND), state) == []


def test_landed_back_at_its_source_changes_nothing() -> None:
    """Rule: a bundle that came back is neither debited nor credited."""
    ledger = landed(booked(None), a_move().bundle, "a:1", NOW_MS + SECOND)
    assert scores(see(BEFORE, 2 * SECOND), ledger) == [0.8, 0.0]


def test_dropped_move_leaves_the_books() -> None:
    """Rule: when nothing happened to the bundle, neither entry nor baseline stays."""
    assert dropped(booked(None), a_move().bundle) == Ledger()


def test_broker_gone_settles_its_side() -> None:
    """Rule: a broker that is no longer registered has nothing to show."""
    alone = [report("a:1", moved()[0], cpu=0.4)]
    assert open_sides(see(alone, SECOND), booked()) == [(False, True)]
    assert open_sides(see([report("c:1", {})], SECOND), booked()) == []


def test_broker_without_usable_report_is_waited_for_until_the_time_out() -> None:
    """Rule: a broker with an unreadable record is alive: its side stays open, but not for ever."""
    alone = [report("a:1", moved()[0], cpu=0.4, last_update=NOW_MS + 2 * WAIT)]
    out = [ExcludedBroker(broker_id="b:1", code="NotJson")]
    assert open_sides(see(alone, 2 * WAIT, excluded=out), booked()) == [(True, False)]
    assert open_sides(see(alone, 2000 * SECOND, excluded=out), booked()) == []


def test_restarted_broker_voids_its_books() -> None:
    """Rule: a broker that started after the booking is what it reports; its old CPU is not held against it."""
    restarted = [BEFORE[0], report("b:1", {}, cpu=0.05, start_timestamp=NOW_MS + 10 * SECOND)]
    current = see(restarted, 20 * SECOND)
    assert open_sides(current, booked()) == [(False, True)]
    assert scores(current, booked()) == [0.4, 0.05]


def test_unlanded_move_times_out() -> None:
    """Rule: a move that never landed leaves the books after the time-out."""
    timeout = timeout_ms(PARAMS)
    assert open_sides(see(BEFORE, timeout - 1), booked(None)) == [(False, False)]
    assert open_sides(see(BEFORE, timeout), booked(None)) == []


def test_later_moves_build_on_the_first_baseline() -> None:
    """Rule: with a second move the first one is not forgotten, although the report shows neither."""
    other = replace(a_move(), bundle=Y if a_move().bundle == X else X)
    twice = open_entries(booked(), [other], see(BEFORE, SECOND), NOW_MS + SECOND)
    assert scores(see(BEFORE, 2 * SECOND), twice) == [0.0, 0.8]
    assert len(twice.baselines) == 2


def test_moving_again_replaces_the_earlier_entry() -> None:
    """Rule: a bundle has one entry at most."""
    again = open_entries(booked(), [a_move()], see(BEFORE), NOW_MS + SECOND)
    assert [entry.opened_ms for entry in again.entries] == [NOW_MS + SECOND]


def test_books_name_bundles_and_preallocations() -> None:
    """Rule: the ledger is the preallocated bundle data: per target, the bundles in transit and their duration."""
    name = a_move().bundle
    assert booked(None).bundles() == booked(None).under_way() == {name}
    assert booked().under_way() == frozenset()
    assert preallocated(booked(), ["a:1", "b:1"], NOW_MS + 9000) == {"a:1": [], "b:1": [(name, 9.0)]}


def test_other_load_is_seen_through_the_held_baseline() -> None:
    """Rule: a third broker's CPU is taken from its report while others are held."""
    third = [*BEFORE, report("c:1", {}, cpu=0.7)]
    assert scores(see(third, SECOND), booked()) == [0.4, 0.4, 0.7]
    assert np.isclose(sum(scores(see(third, SECOND), booked())), 1.5)


@pytest.mark.parametrize(
    ("share", "reported", "limit", "believed"),
    [
        (0.5, 30.2, 100.0, 30.2),  # who took uses what it reported or more
        (-0.5, 29.8, 100.0, 29.8),  # who gave uses that or less
        (0.5, 45.0, 100.0, 45.0),
        (0.5, 15.0, 100.0, 25.0),  # above it by ten points of the limit at most
        (-0.5, 45.0, 100.0, 35.0),
        (0.5, 0.4, 0.5, 0.45),
        (0.5, 90.0, 0.0, 30.0),  # without a limit there is nothing to compare with
    ],
)
def test_a_silent_broker_is_as_near_as_it_may_be(share: float, reported: float, limit: float, believed: float) -> None:
    """Rule: the prediction is 30; a report since the landing that was not rewritten limits that."""
    sides = ("b:1", "a:1") if share > 0 else ("a:1", "b:1")
    ledger = landed(
        open_entries(Ledger(), [replace(a_move(), source=sides[0], target=sides[1])], see(BEFORE), NOW_MS),
        a_move().bundle,
        sides[1],
        NOW_MS,
    )
    (entry,) = ledger.entries
    entry = replace(entry, pressure=(abs(share), 0, 0, 0, 0, 0))
    baselines = tuple(replace(item, usage=(30.0 - share, 0, 0, 0)) for item in ledger.baselines)
    usage, limits = np.array([reported, 0, 0, 0]), np.array([limit, 1024.0, -1000.0, -1000.0])
    own, other = (replace(item, last_update=NOW_MS + 30 * SECOND) for item in BEFORE)
    current = see([replace(own, usage=usage, limit=limits), other], 300 * SECOND)
    books = settle(Ledger(entries=(entry,), baselines=baselines), current, PARAMS, current.wall_ms)
    (owned,) = (item for item in books.baselines if item.broker == "a:1")
    assert owned.usage[0] + share == pytest.approx(believed)


@pytest.mark.parametrize("gave", [True, False])
def test_what_has_settled_is_no_part_of_a_prediction(gave: bool) -> None:
    """Rule: of two moves of a broker the one that its report shows already adds nothing to it, nor takes anything."""
    (entry,) = booked(0).entries
    heavy, light = (50.0, 0, 0, 0, 0, 0), (10.0, 0, 0, 0, 0, 0)
    output = (
        replace(entry, pressure=heavy, source_settled=True)
        if gave
        else replace(entry, source="b:1", target="a:1", pressure=heavy, target_settled=True)
    )
    changed = replace(entry, bundle="t/ns/0x00000000_0x00010000", source="b:1", target="a:1", pressure=light)
    baseline = Baseline(broker="a:1", usage=(30.0, 0, 0, 0), since_ms=NOW_MS)
    reports = [replace(item, last_update=NOW_MS + 30 * SECOND) for item in BEFORE]
    current = see([replace(reports[0], usage=np.array([40.0, 0, 0, 0])), reports[1]], 300 * SECOND)
    books = settle(Ledger(entries=(output, changed), baselines=(baseline,)), current, PARAMS, current.wall_ms)
    assert {item.broker: item.usage[0] for item in books.baselines}["a:1"] == pytest.approx(30.0)
