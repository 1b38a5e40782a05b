"""Drain and warm: which bundles go where, in which order, what stays, and what the shedder makes of the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import HOUR_MS
from bundlekeel.planning.effects import EffectRecords, begun
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.external_moves import ExternalMove, ExternalMoves, apart_from, noted
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.ledger import Ledger, landed, open_entries
from bundlekeel.planning.owned import with_owned
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, entry, report, snapshot

B0, B1, B2 = broker(0), broker(1), broker(2)
DRAINING = GuardState(draining=frozenset({B0}))


def planned(
    current: Snapshot,
    guard: GuardState = DRAINING,
    owned: dict[str, frozenset[str]] | None = None,
    ledger: Ledger | None = None,
    **params: object,
) -> PlanResult:
    """The plan of an eager balancer that would move nothing by itself."""
    expected = replace(Parameters(), **params)  # type: ignore[arg-type]
    return plan(PlanInput(snapshot=current, params=expected, guard=guard, owned=owned or {}, ledger=ledger or Ledger()))


def drains(result: PlanResult) -> list[tuple[str, str]]:
    """(bundle, target) of the moves that a drain makes."""
    return [(move.bundle, move.target) for move in result.plan.moves if move.rule == "drain"]


def test_every_bundle_leaves_idle_ones_too() -> None:
    """The shedder never moves idle bundles; a drain does, and nothing of it goes back to the broker."""
    current = snapshot(cluster([[0.1, 0.0, 0.05], [0.1], [0.1]]))
    result = planned(current)
    assert {bundle for bundle, _ in drains(result)} == {bundle_name(n) for n in range(3)}
    assert {target for _, target in drains(result)} <= {B1, B2}
    assert result.plan.verdict.code is Code.ADMIN
    assert result.plan.verdict.sentence.startswith("3 bundles leave draining brokers; ")
    rows = {row.broker: row for row in result.plan.loads}
    assert (rows[B0].bundles_before, rows[B0].bundles_after, rows[B0].score_after) == (3, 0, 0.0)
    assert rows[B0].score_before > 0.14


def test_a_cluster_without_traffic_is_drained_all_the_same() -> None:
    """The average is zero, and the shedder decides nothing; idle bundles spread over the brokers with fewest."""
    result = planned(snapshot(cluster([[0.0] * 6, [0.0] * 3, [0.0]])))
    counts = Counter(target for _, target in drains(result))
    assert counts == {B1: 2, B2: 4}


def test_bundles_in_no_report_leave_and_old_reports_do_not_bring_them_back() -> None:
    current = snapshot(cluster([[0.1, 0.1], [0.1], [0.1]]))
    silent = "t/other/0x00000000_0x80000000"
    here = frozenset({bundle_name(0), silent})
    result = planned(with_owned(current, {B0: here}), owned={B0: here})
    assert {bundle for bundle, _ in drains(result)} == here


def test_a_bundle_that_landed_there_leaves_before_any_report_names_it() -> None:
    """Another broker's older report still names it; it is owned by the draining one."""
    current = snapshot(cluster([[], [0.2, 0.1], [0.1]]))
    here = frozenset({bundle_name(0)})
    whole = with_owned(current, {B0: here})
    assert whole.bundles.names[: len(here)] == (bundle_name(0),)
    assert whole.digest != current.digest
    assert [bundle for bundle, _ in drains(planned(whole, owned={B0: here}))] == [bundle_name(0)]


def test_with_owned_changes_nothing_that_is_known() -> None:
    """No list, or the list says what the report says: the very same snapshot."""
    current = snapshot(cluster([[0.1], [0.2]]))
    assert with_owned(current, {}) is current
    assert with_owned(current, {B0: [bundle_name(0)], "away:8080": ["t/x/0x00000000_0xffffffff"]}) is current


def test_cool_down_and_open_books_do_not_hold_a_drain() -> None:
    """A bundle that left and landed there again leaves at once, although it moved a second ago."""
    current = snapshot(cluster([[0.1], [0.2], [0.1]]))
    name = bundle_name(0)
    first = planned(current).plan.moves
    ledger = landed(open_entries(Ledger(), first, current, NOW_MS - 3000), name, B0, NOW_MS - 2000)
    guard = replace(DRAINING, recent={name: RecentMove(at_ms=NOW_MS - 1000, source=B0)})
    assert [bundle for bundle, _ in drains(planned(current, guard, {B0: frozenset({name})}, ledger))] == [name]


def test_what_binds_a_bundle_binds_it_here_too() -> None:
    """Pins, exclusions, frozen intents and moves under way stay, each with its code; system bundles are not counted."""
    names = [bundle_name(n, space) for n, space in enumerate(("t/pin", "t/out", "t/ice", "t/way", "pulsar/system"))]
    current = snapshot([report(B0, dict.fromkeys(names, 0.05)), report(B1, {bundle_name(9): 0.1}), report(B2, {})])
    guard = replace(DRAINING, pinned={names[0]: 0}, frozen=frozenset({names[2]}))
    result = planned(current, guard, excluded_namespaces=("t/out",))
    (move,) = [item for item in result.plan.moves if item.bundle == names[3]]
    ledger = open_entries(Ledger(), [move], current, NOW_MS - 1000)
    plan_result = planned(current, guard, {B0: frozenset(names)}, ledger, excluded_namespaces=("t/out",))
    assert drains(plan_result) == []
    codes = {item.bundle: item.code for item in plan_result.plan.refusals if item.broker == B0}
    assert codes == {
        names[0]: Code.PINNED,
        names[1]: Code.EXCLUDED,
        names[2]: Code.FROZEN_INTENT,
        names[3]: Code.IN_TRANSIT,
    }


def test_least_disruption_first_but_the_largest_are_not_left_to_the_end() -> None:
    reports = cluster([[0.01] * 8, [0.1], [0.1]])
    counts = np.array([[1, 0, clients] for clients in (5, 1, 9, 3, 7, 2, 8, 4)])
    reports[0] = replace(reports[0], bundle_counts=counts)
    result = planned(snapshot(reports), drain_max_moves_per_cycle=5)
    clients = {bundle_name(n): int(row[2]) for n, row in enumerate(counts)}
    assert [clients[bundle] for bundle, _ in drains(result)] == [1, 2, 3, 9, 4]
    left = [item for item in result.plan.refusals if item.code is Code.BUDGET_OF_DRAIN]
    assert sorted(clients[item.bundle] for item in left) == [5, 7, 8]
    assert {(item.limit, item.used) for item in left} == {(5.0, 5.0)}
    assert {item.detail for item in left} == {"limit 5 a cycle, 5 used, continues in the next cycle"}


def test_two_drains_share_the_budget_and_take_nothing_from_each_other() -> None:
    """One move of each in turn, and none to the other one, nor to a cordoned broker."""
    current = snapshot(cluster([[0.05] * 4, [0.05] * 4, [0.1], [0.01]]))
    guard = GuardState(draining=frozenset({B0, B1}), cordoned=frozenset({broker(3)}))
    result = planned(current, guard, drain_max_moves_per_cycle=4)
    assert Counter(move.source for move in result.plan.moves) == {B0: 2, B1: 2}
    assert {target for _, target in drains(result)} == {B2}


def test_nowhere_to_go_is_said() -> None:
    """All others cordoned: no legal target; all others full: overloaded, except for what weighs nothing."""
    current = snapshot(cluster([[0.2, 0.0], [0.1], [0.1]]))
    closed = replace(DRAINING, cordoned=frozenset({B1, B2}))
    assert {item.code for item in planned(current, closed).plan.refusals if item.broker == B0} == {Code.NO_LEGAL_TARGET}
    full = planned(snapshot(cluster([[0.2, 0.0], [0.84], [0.84]])))
    assert [bundle for bundle, _ in drains(full)] == [bundle_name(1)]
    assert [item.code for item in full.plan.refusals if item.bundle == bundle_name(0)] == [Code.TARGET_OVERLOADED]


def test_the_shedder_sees_the_drain_in_the_books() -> None:
    """It moves none of those bundles again, and every bundle of a donor is accounted for once."""
    current = snapshot(cluster([[0.3, 0.3, 0.2], [0.05], [0.01]]))
    result = planned(current, move_price=0, drain_max_moves_per_cycle=2)
    moved = [move.bundle for move in result.plan.moves]
    output = moved + [item.bundle for item in result.plan.refusals if item.broker == B0 and item.bundle]
    assert len(moved) == len(set(moved))
    assert sorted(output) == sorted({bundle_name(n) for n in range(3)})


def test_without_a_drain_nothing_is_different() -> None:
    """Same plan, same hash, whatever is listed."""
    current = snapshot(cluster([[0.3, 0.1], [0.05], [0.01]]))
    assert planned(current, GuardState()).plan == planned(current, GuardState(), {B0: frozenset()}).plan


def test_a_warming_broker_is_filled_with_few_moves_until_it_carries_its_share() -> None:
    current = snapshot(cluster([[0.05] * 12, [0.05] * 8, []]))
    guard = GuardState(warming=frozenset({B2}))
    result = planned(current, guard)
    warms = [move for move in result.plan.moves if move.rule == "warm"]
    assert [(move.source, move.target) for move in warms] == [(B0, B2)] * 2
    assert result.ready == {B2: False}
    assert planned(snapshot(cluster([[0.05] * 7, [0.05] * 7, [0.05] * 6])), guard).ready == {B2: True}


def test_a_broker_is_not_warm_because_bundles_wait_until_their_moves_are_seen() -> None:
    """A little later some of them may come: the request must not end meanwhile."""
    current, guard = snapshot(cluster([[0.3, 0.3], [0.1, 0.1], []])), GuardState(warming=frozenset({B2}))
    waiting = Ledger(entries=tuple(entry(bundle_name(n), B1, B0, landed_ms=NOW_MS) for n in range(4)))
    result = planned(current, guard, ledger=waiting)
    assert result.plan.moves == () and result.ready == {B2: False}


def test_in_a_roll_out_a_drain_prefers_brokers_that_have_restarted() -> None:
    """The others are drained next, so bundles would move twice; but no broker gets more than the mean without B0."""
    changed = NOW_MS - 2 * HOUR_MS
    guard = replace(DRAINING, changed_brokers={B2: changed}, rolling_ms=changed)
    rolling = replace(guard, rolling_ms=NOW_MS - 1000)
    empty, partly = (snapshot(cluster([[0.05] * 6, [0.2], loads, [0.6]])) for loads in ([], [0.15]))
    assert {target for _, target in drains(planned(empty, guard))} == {B1, B2}
    assert {target for _, target in drains(planned(empty, rolling))} == {B2}
    assert Counter(target for _, target in drains(planned(partly, rolling))) == {B2: 5, B1: 1}


def test_a_warm_up_waits_for_the_end_of_a_roll_out() -> None:
    """It takes bundles from brokers that restart next. A closed window for moves does not delay it."""
    current, guard = snapshot(cluster([[0.05] * 12, [0.05] * 8, []])), GuardState(warming=frozenset({B2}))
    waiting = planned(current, replace(guard, changed_brokers={B2: NOW_MS - 1000}))
    assert (waiting.plan.moves, waiting.ready) == ((), {})
    assert len(planned(current, replace(guard, relief_until=NOW_MS + 1000)).plan.moves) == 2


def test_a_broker_that_is_warmed_and_drained_is_drained() -> None:
    """Nothing comes to it."""
    guard = GuardState(warming=frozenset({B2}), draining=frozenset({B2}))
    result = planned(snapshot(cluster([[0.3], [0.3], [0.01]])), guard)
    assert {move.target for move in result.plan.moves} <= {B0, B1}
    assert result.ready == {}


def test_drains_are_not_judged_by_what_they_do_to_the_balance() -> None:
    result = planned(snapshot(cluster([[0.3, 0.1], [0.05], [0.01]]))).plan
    assert {move.rule for move in result.moves} == {"drain"}
    assert begun(EffectRecords(), result.moves, result, NOW_MS).open == ()


def test_what_left_for_the_maintenance_may_come_back() -> None:
    """Bundles in their cool-down come to the broker they left, and to no other one that is warmed."""
    current = snapshot(cluster([[0.1] * 5, [0.1] * 5, []]))
    recent = {bundle_name(n): RecentMove(at_ms=NOW_MS - 1000, source=B2) for n in range(10)}
    back = planned(current, GuardState(warming=frozenset({B2}), recent=recent))
    assert [move.target for move in back.plan.moves] == [B2, B2]
    away = {name: replace(moved, source=B1) for name, moved in recent.items()}
    assert planned(current, GuardState(warming=frozenset({B2}), recent=away)).plan.moves == ()


def test_closed_brokers_do_not_lower_what_warm_means() -> None:
    """The mean is that of the brokers in use: a drained one carries nothing."""
    current = snapshot(cluster([[0.05] * 8, [0.05] * 6, []]))
    guard = GuardState(warming=frozenset({B1}), draining=frozenset({B2}))
    assert planned(current, guard).ready == {B1: False}


def test_bundles_that_come_back_to_a_drained_broker_are_no_second_balancer() -> None:
    rounds = [
        ExternalMove(bundle=bundle_name(n), source=B1, target=B0, at_ms=NOW_MS + n * 60_000, undone=True)
        for n in range(3)
    ]
    here = there = ExternalMoves()
    for change in rounds:
        here = noted(here, apart_from([change], {B0}), change.at_ms)
        there = noted(there, apart_from([change], {B2}), change.at_ms)
    assert here.rest_until_ms == 0
    assert there.rest_until_ms > rounds[-1].at_ms
