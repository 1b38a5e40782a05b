"""`transfer`: what TransferShedder promises, and when the corrected form counts and acts where the class differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.compat import transfer as compat
from bundlekeel.model.codes import Code
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.guard.state import GuardState, RecentMove
from bundlekeel.planning.ledger import Ledger, open_entries
from bundlekeel.planning.memory import StrategyMemory
from tests.support.builders import MINUTE, NOW_MS, broker, bundle_name, cluster, report, run, snapshot
from tests.support.transfer import AT_ONCE, HOT_COLD, after, moves, now, refused, turn, written

# --- what the class promises, and we keep ------------------------------------------------------------------


@pytest.mark.parametrize(("target", "acts"), [(0.34, True), (0.36, False)])
def test_the_target_is_a_standard_deviation(target: float, acts: bool) -> None:
    """90 % and 20 % deviate by 35 %; the other conditions stay out of it."""
    plan = now([[0.15] * 6, [0.1, 0.1]], transfer_target_std=target, overloaded_threshold_percent=95.0)
    assert plan.verdict.code is (Code.OVERLOADED if acts else Code.BALANCED)
    assert bool(plan.moves) is acts


def test_an_idle_broker_is_underloaded_although_the_deviation_is_small() -> None:
    """Ten at 20 %, one at 0: deviation 6 %, far below the target."""
    plan = now([*([[0.05] * 4] * 10), []])
    assert plan.verdict.code is Code.UNDERLOADED
    assert {target for _, _, target in moves(plan)} == {broker(10)}


def test_an_overloaded_broker_sheds_although_the_deviation_is_small() -> None:
    """One of fifteen above 85 % and above mean + target."""
    plan = now([[0.1] * 9, *([[0.2, 0.2, 0.2]] * 14)])
    assert plan.verdict.code is Code.OVERLOADED and {source for _, source, _ in moves(plan)} == {broker(0)}


def test_underloaded_by_score_or_by_throughput() -> None:
    """Either is below 12.5 %: of the mean score, or of what the most loaded broker carries."""
    names = [bundle_name(n) for n in range(40)]
    even = [report(broker(n), dict.fromkeys(names[4 * n : 4 * n + 4], 0.05)) for n in range(4)]
    quiet = report(broker(4), dict.fromkeys(names[20:24], 0.05), cpu=0.01)
    blind = report(broker(4), dict.fromkeys(names[20:24], 0.001), cpu=0.15)
    same = report(broker(4), dict.fromkeys(names[20:24], 0.05), cpu=0.15)
    codes = [run([*even, last], **AT_ONCE).plan.verdict.code for last in (quiet, blind, same)]
    assert codes == [Code.UNDERLOADED, Code.UNDERLOADED, Code.BALANCED]


def test_a_difference_that_is_not_worth_a_move_is_told() -> None:
    """Half of the difference has to be worth a reconnect: here it is 60 % of the mean."""
    for share, code in ((0.5, None), (0.7, Code.BELOW_MINIMUM)):
        plan = now([[0.2, 0.1, 0.1], [0.1]], min_unload_share=share, transfer_target_std=0.05)
        whole = [item.code for item in plan.refusals if not item.bundle]
        assert whole == ([] if code is None else [code])


def test_above_85_percent_alone_is_not_overloaded() -> None:
    """As in the class: it must also be above mean + target; three at 90, 80 and 80 % are alike."""
    assert now([[0.1] * 9, [0.1] * 8, [0.1] * 8]).verdict.code is Code.BALANCED


def test_half_of_the_difference_moves() -> None:
    """80 % and 10 %: about 35 points, in bundles of 10."""
    plan = now([[0.1] * 8, [0.05, 0.05]])
    assert after(plan) == [0.5, 0.4]
    assert len(plan.moves) == 3


@pytest.mark.parametrize("most", [1, 2, 3])
def test_at_most_so_many_brokers_shed_in_a_cycle(most: int) -> None:
    """Four hot and four idle brokers."""
    plan = now([*([[0.2] * 4] * 4), *([[]] * 4)], transfer_max_brokers=most)
    assert len({source for _, source, _ in moves(plan)}) == most


def test_every_pair_has_another_taker() -> None:
    """Two hot and two idle brokers; with one idle broker, one gives."""
    plan = now([*([[0.2] * 4] * 2), [], []])
    assert after(plan) == [0.4] * 4
    assert sorted(after(now([*([[0.2] * 4] * 2), []], transfer_target_std=0.1))) == [0.4, 0.4, 0.8]


def test_bundles_of_namespaces_with_policies_stay_unless_told_otherwise() -> None:
    """HasPolicy, by isolation policy and by anti-affinity group."""
    loads = {bundle_name(0, "t/kept"): 0.3, bundle_name(1, "t/group"): 0.3, bundle_name(2, "t/free"): 0.25}
    current = snapshot([report(broker(0), loads), *(report(broker(n), {bundle_name(2 + n): 0.01}) for n in (1, 2))])
    policy = IsolationPolicy(name="p", namespaces=("t/kept",), primary=("b0000", "b0002"))
    policies = Policies(isolation=(policy,), anti_affinity={"t/group": "g"})
    plans = [
        plan(
            PlanInput(snapshot=current, params=Parameters(**AT_ONCE, bundles_with_policies=allowed), policies=policies)
        ).plan
        for allowed in (False, True)
    ]
    assert set(refused(plans[0], Code.HAS_POLICY)) == {bundle_name(0, "t/kept"), bundle_name(1, "t/group")}
    assert {bundle for bundle, _, _ in moves(plans[0])} == {bundle_name(2, "t/free")}
    assert not refused(plans[1], Code.HAS_POLICY)
    assert {bundle for bundle, _, _ in moves(plans[1])} - {bundle_name(2, "t/free")}


# --- corrected: when it counts and acts --------------------------------------------------------------------


def test_the_deviation_is_never_nan() -> None:
    """Corrected: the class takes the root of a difference that rounding can make negative."""
    loads = [0.1, 0.1, 0.1]
    total = sum(loads)
    squares = sum(value * value for value in loads)
    assert squares / 3 - (total / 3) ** 2 < 0, "the class's deviation of these is NaN"
    plan = now([[value / 2] * 2 for value in loads], transfer_target_std=0.0)
    assert plan.verdict.code is Code.BALANCED and "deviation 0.0%" in plan.verdict.sentence


def test_brokers_without_load_end_the_search() -> None:
    """Corrected: with an EMA of 0 the class divides by zero, wants NaN bytes/s, and unloads what it finds.

    The scores are blind here; only the throughput says that the second broker carries less.
    """
    reports = [
        report(broker(0), {bundle_name(n): 0.1 for n in range(4)}, cpu=0.0),
        report(broker(1), {bundle_name(9): 0.001}, cpu=0.0),
        report(broker(2), {bundle_name(8): 0.05}, cpu=1e-9),
    ]
    plan = run(reports, **AT_ONCE).plan
    assert not plan.moves
    blind = [
        compat.Load(ema=0.0, throughput_ema=size, throughput_in=size, throughput_out=0.0, updated_at=NOW_MS)
        for size in (4e7, 1e5)
    ]
    picture = compat.TransferPicture(
        now_ms=NOW_MS,
        brokers={broker(1): blind[1], broker(0): blind[0]},
        top={broker(0): [compat.TopBundle(bundle_name(n), 1e7, 0.0) for n in range(4)]},
    )
    outcome = compat.find_bundles(picture, Parameters(**AT_ONCE, compat="4.2"), 0)
    assert len(outcome.unloads) == 3, "all but the last bundle leave, at the class's own word"


def test_a_broker_without_load_data_stops_nobody() -> None:
    """Corrected: in the class one missing broker ends the cycle (NoLoadData), and moves make brokers missing."""
    current = snapshot(cluster([*HOT_COLD, [0.1]]), excluded=[ExcludedBroker(broker_id="b9:8080", code="NoLoadData")])
    assert run(current, **AT_ONCE).plan.moves


def test_stale_load_data_neither_count_nor_give_nor_take() -> None:
    """Corrected: in the class stale brokers do not count, and yet may be chosen."""
    reports = cluster([*HOT_COLD, [0.3, 0.3, 0.3], []])
    for row in (2, 3):
        reports[row] = replace(reports[row], last_update=NOW_MS - 1_800_001)
    plan = run(snapshot(reports), **AT_ONCE).plan
    assert {broker(2), broker(3)} <= set(refused(plan, Code.OUT_DATED_DATA))
    assert {name for _, *pair in moves(plan) for name in pair} == {broker(0), broker(1)}
    for row in (2, 3):
        reports[row] = replace(reports[row], last_update=NOW_MS - 1_800_000)
    assert not refused(run(snapshot(reports), **AT_ONCE).plan, Code.OUT_DATED_DATA)


def test_a_stale_broker_does_not_count_in_the_deviation() -> None:
    """As in the class: two at 40 % are balanced, whatever a third one reported an hour ago."""
    reports, tight = cluster([[0.2, 0.2], [0.2, 0.2], [0.3, 0.3, 0.2]]), {**AT_ONCE, "transfer_target_std": 0.1}
    assert run(snapshot(reports), **tight).plan.verdict.code is Code.OVERLOADED
    reports[2] = replace(reports[2], last_update=NOW_MS - 10**7)
    assert run(snapshot(reports), **tight).plan.verdict.code is Code.BALANCED


def test_only_stale_load_data_is_a_verdict() -> None:
    """OutDatedData for the cycle."""
    reports = [replace(item, last_update=NOW_MS - 10**7) for item in cluster(HOT_COLD)]
    assert run(snapshot(reports), **AT_ONCE).plan.verdict.code is Code.OUT_DATED_DATA


def recently(at: int, loads: Sequence[Sequence[float]], *, reported: int, **params: Any) -> Plan:
    """A plan after the first bundle of the last broker came from the first broker at this time."""
    reports = [replace(item, last_update=NOW_MS + reported) for item in cluster(loads)]
    moved = reports[-1].bundle_names[0]
    guard = GuardState(recent={moved: RecentMove(at_ms=NOW_MS + at, source=broker(0))})
    return run(snapshot(reports), guard=guard, **{**AT_ONCE, **params}).plan


def test_brokers_that_gave_or_took_wait_and_the_others_go_on() -> None:
    """Corrected: in the class one broker in its cool-down stops the whole cycle, and takers do not cool down."""
    loads = [[0.2] * 4, [0.2] * 4, [], [0.05]]
    plan = recently(-100_000, loads, reported=0)
    assert {name for _, *pair in moves(plan) for name in pair} == {broker(1), broker(2)}
    codes = {item.broker: item.code for item in plan.brokers}
    assert codes[broker(0)] is codes[broker(3)] is Code.COOL_DOWN
    assert refused(plan, Code.COOL_DOWN) == [broker(0)], "the cold one would not have given anyway"


def test_the_cool_down_is_over_when_a_report_is_late_enough() -> None:
    loads = [[0.2] * 4, [0.05, 0.05]]
    assert not recently(-180_000, loads, reported=-1).moves
    assert recently(-180_000, loads, reported=0).moves


def test_silence_ends_the_cool_down_at_last() -> None:
    """Corrected: a quiet broker that reports nothing new would cool down for as long as it is quiet."""
    loads = [[0.2] * 4, [0.05, 0.05]]
    assert not recently(-1_079_000, loads, reported=-1_000_000).moves
    assert recently(-1_080_000, loads, reported=-1_000_000).moves


def test_brokers_with_moves_in_the_books_wait() -> None:
    current = snapshot(cluster([[0.2] * 4, [], [0.2] * 4, []]))
    first = run(current, **AT_ONCE, transfer_max_brokers=1)
    booked = open_entries(Ledger(), first.plan.moves, current, NOW_MS)
    second = run(current, ledger=booked, **AT_ONCE)
    busy = {name for _, *pair in moves(first.plan) for name in pair}
    assert busy and not busy & {name for _, *pair in moves(second.plan) for name in pair}
    assert {item.broker for item in second.plan.brokers if item.code is Code.UNSETTLED} == busy


def test_a_peak_that_is_over_is_not_shed() -> None:
    """Corrected: what moves is the present difference (PIP-364's history of 90 and 10)."""
    memory = turn(written(0, [[0.1] * 9, [0.1]]), 0, StrategyMemory()).memory
    assert not turn(written(MINUTE, [[0.05] * 9, [0.45]]), MINUTE, memory, **AT_ONCE).plan.moves
    tight = {**AT_ONCE, "transfer_target_std": 0.05}
    nearly = turn(written(MINUTE, [[0.09, 0.05, 0.36], [0.3]]), MINUTE, memory, **tight)
    assert after(nearly.plan) == [0.41, 0.39], "10 points, not the largest that could go"
