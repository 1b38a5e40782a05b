"""`plan()`: typed verdicts for each obstacle, loads that match the moves, hashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.codes import Code
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.plan import Plan, Split, Verdict, imbalance, plan_hash
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.memory import CompatMemory, StrategyMemory
from bundlekeel.planning.strategies import SHEDDERS, Context, Decision
from tests.support.builders import EAGER, NOW_MS, broker, bundle_name, cluster, eager, report, run, snapshot

OUT = [ExcludedBroker(broker_id="z:1", code="NotJson"), ExcludedBroker(broker_id="z:2", code="NotJson")]
STRATEGIES = ["avg", "threshold", "uniform"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("loads", "excluded", "code"),
    [
        ([], [], Code.NO_BROKERS),
        ([], OUT, Code.NO_LOAD_DATA),
        ([[0.9]], OUT, Code.INCOMPLETE_PICTURE),
        ([[0.9, 0.1]], [], Code.SOLE_BROKER),
    ],
)
def test_obstacle_has_its_verdict(
    strategy: str, loads: list[list[float]], excluded: list[ExcludedBroker], code: Code
) -> None:
    """Rule: an undecidable case is a typed verdict with a sentence, never an exception and never a move."""
    plan = run(snapshot(cluster(loads), excluded=excluded), strategy=strategy, **EAGER).plan
    assert plan.verdict.code is code
    assert plan.verdict.sentence
    assert not plan.moves


@pytest.mark.parametrize("strategy", ["avg", "threshold"])
def test_zero_average_is_said(strategy: str) -> None:
    """Rule: traffic that no resource sees is a blind cluster, not a balanced one."""
    reports = cluster([[0.5, 0.5], []], cpu=0.0)
    assert eager(reports, strategy=strategy).plan.verdict.code is Code.ZERO_AVERAGE


def test_uniform_needs_no_resource() -> None:
    """Rule: uniform compares traffic, so brokers without resource usage are not an obstacle for it."""
    plan = eager(cluster([[0.1] * 10, []], cpu=0.0), strategy="uniform").plan
    assert len(plan.moves) == 2


def test_obstacle_keeps_the_memory() -> None:
    """Rule: a cycle that cannot decide forgets nothing."""
    reports = cluster([[0.5, 0.1], []])
    counted = run(reports)
    assert counted.memory.courses
    assert run(snapshot(reports[:1]), memory=counted.memory).memory == counted.memory


def test_loads_after_are_those_of_the_admitted_moves() -> None:
    """Rule: the table shows what this plan does, not what later cycles will do."""
    reports = cluster([[0.1] * 8, []])
    whole, part = eager(reports).plan, eager(reports, max_moves_per_cycle=1).plan
    assert [round(row.score_after, 6) for row in whole.loads] == [0.4, 0.4]
    assert [round(row.score_after, 6) for row in part.loads] == [0.7, 0.1]
    assert [row.bundles_after for row in part.loads] == [7, 1]
    assert [row.bundles_before for row in part.loads] == [8, 0]
    assert [row.throughput_after for row in part.loads] == pytest.approx([70e6, 10e6])
    assert [row.msg_rate_before for row in part.loads] == pytest.approx([80e3, 0])
    assert "1 now, 3 in later cycles" in part.verdict.sentence
    assert [item.code for item in part.refusals].count(Code.BUDGET_PER_CYCLE) == 3


def test_who_takes_because_it_gave_must_have_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: what a budget cuts out takes along the moves that were lawful only after it."""

    def give_first(context: Context) -> Decision:
        draft = context.draft
        for row, source, target in ((5, 3, 1), (0, 0, 1), (3, 2, 0)):
            draft.take(row, source, target, rule="give_first", threshold=0.0)
        return Decision(verdict=Verdict(code=Code.OVERLOADED, sentence="as asked"), memory=context.memory)

    monkeypatch.setitem(SHEDDERS, "give_first", give_first)
    loads = [{"x/a": 0.3, "t/b": 0.3}, {"t/c": 0.01}, {"u/a": 0.25, "u/b": 0.1}, {"x/a": 0.1}]
    names = iter(range(10))
    reports = [
        report(broker(index), {bundle_name(next(names), space): share for space, share in owned.items()})
        for index, owned in enumerate(loads)
    ]
    whole = eager(reports, strategy="give_first").plan
    cut = eager(reports, strategy="give_first", max_moves_per_namespace=1).plan
    assert [move.source for move in whole.moves] == [broker(3), broker(0), broker(2)]
    assert [move.source for move in cut.moves] == [broker(3)]
    codes = {item.bundle: item.code for item in cut.refusals}
    assert codes[bundle_name(0, "x/a")] is Code.BUDGET_PER_NAMESPACE
    assert codes[bundle_name(3, "u/a")] is Code.NO_GAIN
    assert cut.verdict.sentence == (
        "as asked; 1 now, 1 in later cycles (budgets); 1 of the strategy's moves dropped, they break the invariants"
    )
    assert max(row.score_after for row in cut.loads) <= max(row.score_before for row in cut.loads)


def test_unequal_brokers_are_compared_by_their_own_limits() -> None:
    """Rule: the same bundle is a third of the load on a broker three times as large."""
    reports = [report("a:1", {bundle_name(n): 0.1 for n in range(8)}), report("big:1", {})]
    current = snapshot(reports, capacity=[CapacityOverride(pattern="big:1", cores=3)])
    plan = eager(current).plan
    after = {row.broker: row.score_after for row in plan.loads}
    assert plan.moves[0].target_after == pytest.approx(0.1 / 3)
    assert after["big:1"] == pytest.approx(after["a:1"], abs=0.11)
    assert after["a:1"] < 0.4


def other_plans(plan: Plan, changes: list[dict[str, Any]]) -> list[str]:
    """The hashes of the plan with each of these changes."""
    assert all(replace(plan, **change) != plan for change in changes)
    return [plan_hash(replace(plan, **change)) for change in changes]


def test_hash_is_of_every_decision() -> None:
    """Rule: another input, move, order, rule, split, verdict, hit count or refusal is another hash, each its own."""
    plan = eager(cluster([[0.1] * 8, []])).plan
    first, second, *rest = plan.moves
    split = Split(bundle="t/n/0x0_0x1", broker="a:1", rule="topics", value=2.0, limit=1.0, hits=0, at=(), halves=False)
    refusal, verdict = plan.refusals[0], plan.verdict
    changes: list[dict[str, Any]] = [
        {"seed": 1},
        {"strategy": "x"},
        {"placement": "x"},
        {"snapshot_digest": "x"},
        {"verdict": replace(verdict, code=Code.NO_BUNDLES)},
        {"verdict": replace(verdict, broker="x")},
        {"verdict": replace(verdict, hits_low=7)},
        {"verdict": replace(verdict, hits_high=7)},
        {"brokers": plan.brokers[1:]},
        {"moves": plan.moves[1:]},
        {"moves": (second, first, *rest)},
        *({"moves": (replace(first, **{name: "x"}), second, *rest)} for name in ("bundle", "source", "target", "rule")),
        {"splits": (split,)},
        *({"splits": (replace(split, **{name: "x"}),)} for name in ("bundle", "broker", "rule")),
        {"splits": (replace(split, at=(5,)),)},
        {"splits": (replace(split, halves=True),)},
        {"refusals": plan.refusals[1:]},
        {"refusals": (refusal._replace(code=Code.NO_BUNDLES), *plan.refusals[1:])},
        {"refusals": (refusal._replace(bundle="x"), *plan.refusals[1:])},
        {"refusals": (refusal._replace(broker="x"), *plan.refusals[1:])},
        {"split_refusals": (refusal,)},
        {"refusals": (), "split_refusals": (refusal,)},
        {"refusals": (refusal,), "split_refusals": ()},
    ]
    hashes = other_plans(plan, changes)
    assert len({plan.hash, *hashes}) == 1 + len(changes)
    assert {len(text) for text in hashes} == {16}, "short enough to be typed"


def test_hash_is_of_no_sentence_and_no_figure() -> None:
    """Rule: wording, predictions and time may change, and the decisions have the same hash."""
    current = snapshot(cluster([[0.1] * 8, []]))
    plan = eager(current).plan
    assert plan.hash == eager(replace(current, wall_ms=current.wall_ms + 1)).plan.hash
    changes: list[dict[str, Any]] = [
        {"wall_ms": 0, "hash": ""},
        {"verdict": replace(plan.verdict, sentence="x")},
        {"brokers": tuple(replace(item, sentence="x") for item in plan.brokers)},
        {"refusals": (plan.refusals[0]._replace(detail="x", limit=1.0, used=2.0, frees_ms=3), *plan.refusals[1:])},
        {"moves": (replace(plan.moves[0], target_after=0.0, runner_up="x"), *plan.moves[1:])},
        {"loads": (replace(plan.loads[0], score_after=0.0), *plan.loads[1:])},
        {"mean": -1.0},
    ]
    assert set(other_plans(plan, changes)) == {plan.hash}


@pytest.mark.parametrize(
    ("values", "closed", "expected"),
    [
        ([1.0, 1.0, 1.0], "...", 1.0),
        ([3.0, 0.0, 0.0], "...", 3.0),
        ([0.0, 0.0], "..", 0.0),
        ([], "", 0.0),
        ([1.0, 1.0, 0.0], "..x", 1.0),
        ([3.0, 1.0, 1.0], "x..", 3.0),
        ([3.0, 0.0, 0.0], "x..", 3.0),
        ([3.0, 1.0], "xx", 1.5),
    ],
)
def test_imbalance(values: list[float], closed: str, expected: float) -> None:
    """Rule: the busiest of all over the mean of those that take bundles, or of all where these carry nothing; 1 is
    even, 0 means no load."""
    assert imbalance(values, [mark == "x" for mark in closed]) == expected


@pytest.mark.parametrize("everything", [False, True])
def test_a_broker_kept_empty_is_no_imbalance(everything: bool) -> None:
    """Rule: a drained broker counts for no mean, also while too many changes at once stop the plan."""
    changed = dict.fromkeys(map(broker, range(3 if everything else 0)), NOW_MS)
    guard = GuardState(cordoned=frozenset({broker(2)}), draining=frozenset({broker(2)}), changed_brokers=changed)
    plan = eager(cluster([[0.2, 0.2], [0.2, 0.2], []]), guard=guard).plan
    assert (plan.verdict.code is Code.BLAST_RADIUS) is everything
    assert plan.closed == {broker(2)}
    assert [plan.imbalance(f"{name}_{when}") for name in ("score", "throughput") for when in ("before", "after")] == [
        1.0
    ] * 4


def test_full_brokers_take_nothing() -> None:
    """Rule: when all are overloaded, nothing circulates: neither to a predicted nor to a reported overload."""
    reports = cluster([[0.5, 0.49], [0.44, 0.43], [0.43, 0.43]])
    for strategy in STRATEGIES:
        plan = eager(reports, strategy=strategy, avg_low_threshold_percent=1.0, threshold_percent=1.0).plan
        assert not plan.moves, strategy


@pytest.mark.parametrize(
    ("mode", "topics", "takes"),
    [("modular", 10, True), ("modular", 11, False), ("extensible", 9, True), ("extensible", 10, False)],
)
def test_topic_limit_closes_a_target(mode: str, topics: int, takes: bool) -> None:
    """Rule: modular brokers above the limit take no bundle, extensible ones not at the limit either."""
    first, second = cluster([[0.4, 0.4], []])
    current = snapshot([first, replace(second, num_topics=topics)], mode=mode)
    assert bool(eager(current, max_topics_per_broker=10).plan.moves) is takes


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_plan_looks_ten_cycles_ahead(strategy: str) -> None:
    """Rule: of a plan far beyond the budgets only what ten cycles may do is worked out; the rest is said to wait."""
    reports = cluster([[0.001] * 500, *[[]] * 3])
    plan = run(reports, strategy=strategy, **{**EAGER, "max_moves_per_cycle": 10}).plan
    assert len(plan.moves) == 10
    assert sum(item.code is Code.BUDGET_PER_CYCLE for item in plan.refusals) == 490


def test_plan_looks_no_further_than_500_moves() -> None:
    """Rule: whatever the budget, what comes later is planned on a later picture."""
    reports = cluster([[0.0005] * 1020, []])
    assert len(eager(reports, strategy="uniform", uniform_max_unload_ratio=0.5).plan.moves) == 500


@pytest.mark.parametrize("placement", ["round_robin", "least_resource_usage"])
def test_round_robin_goes_on_where_it_was(placement: str) -> None:
    """Rule: the next cycle begins after the last target; other placements leave the position as it was."""
    reports = cluster([[0.3, 0.3, 0.3], [], [], []])
    result = eager(reports, strategy="threshold", placement=placement, memory=StrategyMemory(turn=2))
    first, *_, last = (int(move.target[1:5]) for move in result.plan.moves)
    assert (first == 2) is (placement == "round_robin")
    assert result.memory.turn == ((last + 1) % 4 if placement == "round_robin" else 2)


def test_who_counts_nothing_remembers_nothing() -> None:
    """Rule: a strategy without a count leaves none to the next one."""
    memory = eager(cluster([[0.1], [0.1]]), strategy="uniform").memory
    assert (memory.active, memory.turn, memory.compat) == ((), 0, CompatMemory())


@pytest.mark.parametrize("strategy", ["threshold", "uniform", "overload"])
def test_who_counts_no_hits_shows_none(strategy: str) -> None:
    """Rule: only a strategy that waits for several reports shows the number of reports so far."""
    plan = eager(cluster([[0.3, 0.3], []]), strategy=strategy).plan
    assert {(item.hits_low, item.hits_high) for item in (plan.verdict, *plan.brokers)} == {(0, 0)}


def test_pinned_and_frozen_bundles_stay_while_others_move() -> None:
    """Rule: the plan works around bundles that may not move."""
    reports = cluster([[0.4, 0.2, 0.2], []])
    pinned = GuardState(pinned={bundle_name(0): 2**62}, frozen=frozenset({bundle_name(1)}))
    plan = run(reports, guard=pinned, **EAGER).plan
    assert [move.bundle for move in plan.moves] == [bundle_name(2)]
    assert {(item.bundle, item.code) for item in plan.refusals} == {
        (bundle_name(0), Code.PINNED),
        (bundle_name(1), Code.FROZEN_INTENT),
    }
    assert plan.moves[0].source == broker(0)


def test_a_strategy_that_pulsar_has_not_is_ours_in_every_form() -> None:
    """Rule: `compat` asks for the class of a release; `deviation` has none."""
    reports = cluster([[0.1] * 8, [0.1], []])
    ours, bare = (
        eager(reports, strategy="deviation", deviation_threshold=0.3, compat=compat).plan for compat in ("none", "4.2")
    )
    assert bare.moves == ours.moves != ()
