"""Bundles to split: Pulsar's limits, the rule for imbalance that no placement can fix, and all refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.model.averages import Averages
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.load import BrokerReport
from bundlekeel.model.parameters import Parameters, coerce, from_pulsar
from bundlekeel.model.plan import Move, Split
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.state import GuardState, SplitFailed
from bundlekeel.planning.ledger import landed, open_entries
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.splitting.rules import in_quiet_hours
from tests.support.builders import NOW_MS, broker, bundle_name, report, snapshot, stored

HOUR_MS = 3_600_000
BIG, SMALL = bundle_name(0), bundle_name(1)
# Limits that a bundle of ten topics or more exceeds at first sight.
EAGER_SPLITS: dict[str, Any] = {
    "split_max_topics": 9,
    "split_hit_count": 0,
    "split_hot_share": 0.0,
    "split_max_msg_rate": 0.0,
}
INPUTS = ("memory", "ledger", "guard", "brokers_split", "namespace_bundles")
NOBODYS = "pulsar/system/0x00000000_0x10000000"


def brokers(counts: dict[str, tuple[int, int, int]], shares: dict[str, float] | None = None) -> list[BrokerReport]:
    """One broker that holds these bundles (topics, consumers, producers), and an equally loaded one."""
    loads = shares or dict.fromkeys(counts, 0.2)
    broker_report = report(broker(0), loads, bundle_counts=np.array(list(counts.values()), dtype=np.int64))
    return [broker_report, report(broker(1), {bundle_name(100): sum(loads.values())})]


def decide(reports: list[BrokerReport], **options: Any) -> PlanResult:
    """`plan()` with eager splits; `given` holds parameters and fields of `PlanInput`."""
    inputs = {name: options.pop(name) for name in INPUTS if name in options}
    shot = options.pop("shot", None) or snapshot(reports, averages=options.pop("averages", None))
    return plan(PlanInput(snapshot=shot, params=Parameters(**{**EAGER_SPLITS, **options}), **inputs))


def refused(result: PlanResult) -> dict[str, str]:
    return {item.bundle: item.code.value for item in result.plan.split_refusals}


def rules(result: PlanResult) -> list[tuple[str, str]]:
    """(bundle, rule) of the splits."""
    return [(split.bundle, split.rule) for split in result.plan.splits]


# --- the four limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "params", "at_limit", "above"),
    [
        ("topics", {"split_max_topics": 9}, (9, 1, 1), (10, 1, 1)),
        ("sessions", {"split_max_topics": 99, "split_max_sessions": 50}, (5, 30, 20), (5, 30, 21)),
    ],
)
def test_counts_are_strict(
    rule: str, params: dict[str, Any], at_limit: tuple[int, int, int], above: tuple[int, int, int]
) -> None:
    """At the limit a bundle is left alone, one above it is split (`>` in Pulsar)."""
    assert decide(brokers({BIG: at_limit}), **params).plan.splits == ()
    assert rules(decide(brokers({BIG: above}), **params)) == [(BIG, rule)]


@pytest.mark.parametrize(("key", "limit", "rule"), [("split_max_msg_rate", 20_000.0, "msg_rate"),
                                                    ("split_max_bandwidth_mb", 20e6 / 2**20, "bandwidth")])  # fmt: skip
def test_rates_are_strict(key: str, limit: float, rule: str) -> None:
    """A bundle of 0.2 carries 20,000 msg/s and 20 MB/s, in and out: at the limit it stays."""
    reports = brokers({BIG: (5, 1, 1)})
    off = {"split_max_topics": 0, "split_max_msg_rate": 0.0, "split_max_bandwidth_mb": 0.0}
    assert decide(reports, **{**off, key: limit}).plan.splits == ()
    splits = decide(reports, **{**off, key: limit * 0.999}).plan.splits
    assert [(split.rule, split.limit) for split in splits] == [(rule, limit * 0.999)]
    assert splits[0].value > splits[0].limit


def test_the_first_limit_in_pulsars_order_is_the_reason() -> None:
    """Topics, sessions, message rate, bandwidth."""
    limits = {"split_max_topics": 1, "split_max_sessions": 1, "split_max_msg_rate": 1.0, "split_max_bandwidth_mb": 0.1}
    reports = brokers({BIG: (5, 5, 5)})
    order = []
    for rule, key in zip(("topics", "sessions", "msg_rate", "bandwidth"), list(limits), strict=True):
        order.append(rules(decide(reports, **limits))[0] == (BIG, rule))
        limits[key] = 0
    assert order == [True] * 4
    assert decide(reports, **limits).plan.splits == ()


def test_short_term_averages_decide_and_long_term_ones_in_compat() -> None:
    """Pulsar's modular rule reads averages over a thousand samples: it notices hours later."""
    reports = brokers({BIG: (5, 1, 1)})
    averages = Averages()
    averages.seed([replace(stored(BIG, 0.2), long=(0.0, 0.0, 0.0, 0.0))])
    limits = {"split_max_msg_rate": 10_000.0, "averages": averages, "strategy": "threshold"}
    assert rules(decide(reports, **limits)) == [(BIG, "msg_rate")]
    assert rules(decide(reports, **limits, compat="4.2")) == []


# --- hits, budgets, quiet hours --------------------------------------------------------------------------------


def test_hits_need_fresh_reports() -> None:
    memory, seen_codes = StrategyMemory(), []
    for minute in (0, 0, 1, 2, 3):
        reports = [replace(item, last_update=NOW_MS + 10_000 * minute) for item in brokers({BIG: (10, 1, 1)})]
        result = decide(
            [], shot=snapshot(reports, wall_ms=NOW_MS + 10_000 * minute + 1), memory=memory, split_hit_count=3
        )
        memory = result.memory
        seen_codes.append(refused(result).get(BIG, "split"))
    assert seen_codes == ["SplitHitCount"] * 4 + ["split"]
    assert memory.split_hits[BIG].low == 4
    below = decide(brokers({BIG: (9, 1, 1)}), memory=memory)
    assert below.memory.split_hits == {}
    assert decide(brokers({BIG: (10, 1, 1)}), memory=below.memory, split_hit_count=1).plan.splits == ()


@pytest.mark.parametrize(("interval_ms", "hits"), [(0, 41), (3_000, 3)])
def test_a_burst_between_readings_of_counters_is_no_row_of_hits(interval_ms: int, hits: int) -> None:
    """Rule: two minutes of readings every 3 s are 3 hits, one a minute; every report of the broker itself is one."""
    memory = StrategyMemory()
    for second in range(0, 121, 3):
        reports = [replace(item, last_update=NOW_MS + 1000 * second) for item in brokers({BIG: (10, 1, 1)})]
        shot = snapshot(reports, wall_ms=NOW_MS + 1000 * second)
        shot = replace(shot, intervals=(interval_ms,) * len(reports))
        memory = decide([], shot=shot, memory=memory, split_hit_count=100).memory
    assert memory.split_hits[BIG].low == hits


def test_hits_far_apart_are_not_in_a_row() -> None:
    """A hit of an hour ago is forgotten."""
    first = decide(brokers({BIG: (10, 1, 1)}), split_hit_count=1)
    reports = [replace(item, last_update=NOW_MS + HOUR_MS) for item in brokers({BIG: (10, 1, 1)})]
    later = decide([], shot=snapshot(reports, wall_ms=NOW_MS + HOUR_MS), memory=first.memory, split_hit_count=1)
    assert refused(later) == {BIG: "SplitHitCount"}


def test_the_namespace_maximum_counts_splits_already_chosen() -> None:
    """Three bundles in the namespace, four allowed: one split fits, the one furthest above its limit."""
    reports = brokers({BIG: (10, 1, 1), SMALL: (30, 1, 1)})
    result = decide(reports, split_max_bundles=4)
    assert rules(result) == [(SMALL, "topics")]
    assert refused(result) == {BIG: "NamespaceMaximum"}


def test_budget_of_a_cycle() -> None:
    """The rest waits; a budget of 0 allows none."""
    reports = brokers({BIG: (10, 1, 1), SMALL: (30, 1, 1)})
    result = decide(reports, split_max_per_cycle=1)
    assert rules(result) == [(SMALL, "topics")]
    assert refused(result) == {BIG: "BudgetOfSplits"}
    assert rules(decide(reports, split_max_per_cycle=0)) == []


def test_compat_knows_neither_hits_nor_budget() -> None:
    """Pulsar's modular load manager splits at first sight, and as many as there are."""
    reports = brokers({BIG: (10, 1, 1), SMALL: (30, 1, 1)})
    result = decide(reports, split_hit_count=3, split_max_per_cycle=1, compat="4.2", strategy="threshold")
    assert rules(result) == [(SMALL, "topics"), (BIG, "topics")]


def test_compat_of_the_extensible_load_manager_counts_hits_and_keeps_a_budget() -> None:
    """More than `hits` in a row, however far above its limit, at any hour; figures of the moment decide."""
    averages = Averages()
    averages.seed([replace(stored(name, 0.2), long=(0.0, 0.0, 0.0, 0.0)) for name in (BIG, SMALL)])
    native = {"compat": "4.2", "strategy": "transfer", "split_quiet_hours": ("3-4",), "split_max_msg_rate": 1_000.0}
    memory, strategy_memory = StrategyMemory(), []
    for minute in range(5):
        reports = [
            replace(r, last_update=NOW_MS + 60_000 * minute) for r in brokers({BIG: (5, 1, 1), SMALL: (5, 1, 1)})
        ]
        shot = replace(snapshot(reports, averages=averages, wall_ms=NOW_MS + 60_000 * minute + 1), mode="extensible")
        result = decide([], shot=shot, memory=memory, **native, split_hit_count=3, split_max_per_cycle=1)
        memory = result.memory
        strategy_memory.append([rule for _, rule in rules(result)])
    assert strategy_memory == [[], [], [], ["msg_rate"], ["msg_rate"]]
    assert list(refused(result).values()) == ["BudgetOfSplits"]


@pytest.mark.parametrize(
    ("windows", "hour", "expected"),
    [
        ((), 12, True),
        (("22-06",), 23, True),
        (("22-06",), 5, True),
        (("22-06",), 6, False),
        (("01-03", "12-13"), 12, True),
        (("01-03", "12-13"), 13, False),
        (("0-24",), 0, True),
        (("7-7",), 3, True),
    ],
)
def test_quiet_hours(windows: tuple[str, ...], hour: int, expected: bool) -> None:
    """Windows of UTC hours, also over midnight; the end does not belong to it."""
    assert in_quiet_hours(windows, 20_000 * 24 * HOUR_MS + hour * HOUR_MS + 1) is expected


def test_outside_quiet_hours_only_what_is_far_above_a_limit_is_split() -> None:
    """Twice the limit waits, more does not."""
    now = NOW_MS // HOUR_MS % 24
    hours = f"{(now + 1) % 24}-{(now + 2) % 24}"
    result = decide(brokers({BIG: (18, 1, 1), SMALL: (19, 1, 1)}), split_quiet_hours=(hours,))
    assert rules(result) == [(SMALL, "topics")]
    assert refused(result) == {BIG: "QuietHours"}
    assert rules(decide(brokers({BIG: (18, 1, 1)}), split_quiet_hours=(hours, f"{now}-{now + 1}"))) == [(BIG, "topics")]


def test_far_above_a_limit_two_hits_do() -> None:
    """Twice the limit needs all of them, more needs two: moved first, it would overload the next broker."""
    reports = brokers({BIG: (18, 1, 1), SMALL: (19, 1, 1)})
    first = decide(reports, split_hit_count=3)
    assert {item.detail for item in first.plan.split_refusals} == {"1 of 4", "1 of 2"}
    later = [replace(item, last_update=item.last_update + 60_000) for item in reports]
    second = decide(later, split_hit_count=3, memory=first.memory)
    assert rules(second) == [(SMALL, "topics")]
    assert refused(second) == {BIG: "SplitHitCount"}


def test_quiet_hours_are_checked() -> None:
    """A window that is none is refused, naming it."""
    assert coerce("split_quiet_hours", "22-06, 12-13") == ("22-06", "12-13")
    for wrong in ("22", "25-26", "22-06h", "a-b"):
        with pytest.raises(ConfigError, match="split_quiet_hours"):
            coerce("split_quiet_hours", wrong)


def test_pulsars_keys() -> None:
    """Every key of the brokers' splits that ours reads."""
    options = {
        "loadBalancerNamespaceBundleMaxTopics": "11",
        "loadBalancerNamespaceBundleMaxSessions": "-1",
        "loadBalancerNamespaceBundleMaxMsgRate": "13",
        "loadBalancerNamespaceBundleMaxBandwidthMbytes": "14",
        "loadBalancerNamespaceMaximumBundles": "15",
        "loadBalancerMaxNumberOfBundlesToSplitPerCycle": "16",
        "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": "17",
    }
    assert from_pulsar(options) == {
        "split_max_topics": 11,
        "split_max_sessions": -1,
        "split_max_msg_rate": 13.0,
        "split_max_bandwidth_mb": 14.0,
        "split_max_bundles": 15,
        "split_max_per_cycle": 16,
        "split_hit_count": 17,
    }


# --- what is left alone ----------------------------------------------------------------------------------------


def test_bundles_that_cannot_be_divided() -> None:
    """One topic, a range of one, and Pulsar's own bundles."""
    narrow = "t/ns/0x00000005_0x00000006"
    reports = brokers({BIG: (1, 90, 90), narrow: (50, 1, 1), NOBODYS: (50, 1, 1)})
    result = decide(reports, split_max_sessions=100)
    assert rules(result) == []
    assert refused(result) == {BIG: "SingleTopic", narrow: "NarrowRange"}


def test_bundles_that_are_left_as_they_are() -> None:
    reports = brokers({BIG: (10, 1, 1)})
    for guard, code in (
        (GuardState(frozen=frozenset({BIG})), "FrozenIntent"),
        (GuardState(served_twice=frozenset({BIG})), "ServedTwice"),
        (GuardState(segments_changed={BIG: NOW_MS - 59_999}), "SegmentsChanged"),
        (GuardState(pinned={BIG: NOW_MS + 1}), "Pinned"),
        (GuardState(pinned={BIG: NOW_MS - 1}), ""),
        (GuardState(split_failed={BIG: SplitFailed(at_ms=NOW_MS - 1000, code="DominantTopic")}), "DominantTopic"),
        (GuardState(split_failed={BIG: SplitFailed(at_ms=NOW_MS - 1000, code="NoAnswer")}), "SplitFailed"),
        (GuardState(split_failed={BIG: SplitFailed(at_ms=NOW_MS - 1_800_000, code="NoAnswer")}), ""),
    ):
        assert refused(decide(reports, guard=guard)).get(BIG, "") == code
        assert len(decide(reports, guard=guard).plan.splits) == (code == "")
    assert refused(decide(reports, excluded_namespaces=("t/ns",))) == {BIG: "Excluded"}
    partial = GuardState(taken_over=("u/x",))
    assert refused(decide(reports, guard=partial, included_namespaces=("u/x",))) == {BIG: "NotTakenOver"}
    assert decide(reports, split_enabled=False).plan.split_refusals == ()
    assert decide(reports, split_enabled=False).plan.splits == ()


def test_bundles_under_way_are_not_split() -> None:
    """While it moves, and until both brokers had the time to report it."""
    current = snapshot(brokers({BIG: (10, 1, 1)}))
    move = Move(
        bundle=BIG, source=broker(0), target=broker(1), rule="x", threshold=0, source_before=0, source_after=0,
        target_before=0, target_after=0, runner_up="",
        traffic=(0, 0, 0, 0), pressure=(0, 0, 0, 0, 0, 0),
    )  # fmt: skip
    books = open_entries(decide([], shot=current).ledger, [move], current, NOW_MS)
    assert refused(decide([], shot=current, ledger=books)) == {BIG: "InTransit"}
    arrived = landed(books, BIG, broker(1), NOW_MS)
    assert refused(decide([], shot=current, ledger=arrived)) == {BIG: "Unsettled"}
    later = replace(current, wall_ms=current.wall_ms + 131_000)
    assert rules(decide([], shot=later, ledger=arrived)) == [(BIG, "topics")]


def test_brokers_that_split_themselves_keep_their_limits() -> None:
    reports = brokers({BIG: (10, 1, 1)})
    result = decide(reports, brokers_split=True)
    assert (rules(result), refused(result)) == ([], {BIG: "BrokersSplitThemselves"})
    assert result.plan.split_refusals[0].detail == "topics"
    hot = [report(broker(0), {BIG: 0.6}, bundle_counts=np.array([[10, 1, 1]])), report(broker(1), {SMALL: 0.1})]
    assert rules(decide(hot, brokers_split=True, split_hot_share=0.5)) == [(BIG, "hot")]


# --- hot -------------------------------------------------------------------------------------------------------

HOT: dict[str, Any] = {"split_max_topics": 0, "split_max_msg_rate": 0.0, "split_max_bandwidth_mb": 0.0,
                       "split_max_sessions": 0, "split_hot_share": 0.5}  # fmt: skip


def cluster_of(*loads: list[float], topics: int = 2) -> list[BrokerReport]:
    """Return reports with one broker per list of bundle shares; bundle numbers continue over brokers."""
    created, number = [], 0
    for index, shares in enumerate(loads):
        names = {bundle_name(number + offset): share for offset, share in enumerate(shares)}
        number += len(shares)
        created.append(
            report(broker(index), names, bundle_counts=np.array([[topics, 1, 1]] * len(shares)).reshape(-1, 3))
        )
    return created


def test_a_bundle_too_big_for_any_broker_is_hot() -> None:
    """Scenario 11: it keeps its broker far above the mean wherever it goes. Its value: shares of the mean."""
    result = decide(cluster_of([0.6, 0.01], [0.1], [0.08]), **HOT, move_price=0)
    assert rules(result) == [(bundle_name(0), "hot")]
    assert result.plan.splits[0].value == pytest.approx(0.6 / (0.79 / 3), rel=1e-3)
    assert "228%" in result.plan.splits[0].sentence
    assert [move.bundle for move in result.plan.moves if move.bundle == bundle_name(0)] == []
    assert {item.bundle: item.code for item in result.plan.refusals}[bundle_name(0)] == Code.SPLITTING


def test_a_hot_bundle_above_a_limit() -> None:
    reports, both = cluster_of([0.6], [0.1], [0.1]), {**HOT, "split_max_msg_rate": 50_000}
    assert rules(decide(reports, **both)) == [(bundle_name(0), "msg_rate")]
    assert rules(decide(reports, **both, brokers_split=True)) == [(bundle_name(0), "hot")]


def test_what_placement_can_balance_is_not_hot() -> None:
    """Balanced brokers, small bundles, or a broker whose other bundles can leave."""
    for loads in (
        [[0.5], [0.5], [0.5]],
        [[0.1] * 6, [0.1], [0.1]],
        [[0.3, 0.1, 0.1, 0.1], [0.2], [0.3]],
        [[0.3, 0.3], [0.3], [0.02], [0.3]],
    ):
        assert decide(cluster_of(*loads), **HOT).plan.splits == ()


def test_closed_brokers_make_no_bundle_hot_and_hide_none() -> None:
    """The mean is that of the brokers that take bundles, and only those could take one: a drain splits nothing."""
    closed = GuardState(cordoned=frozenset({broker(2)}))
    even, alone = cluster_of([0.3, 0.1], [0.3, 0.1], []), cluster_of([0.6, 0.01], [0.1], [])
    assert decide(even, **HOT, guard=closed).plan.splits == ()
    assert rules(decide(alone, **HOT, guard=closed)) == rules(decide(alone[:2], **HOT)) == [(bundle_name(0), "hot")]
    emptied = GuardState(cordoned=frozenset({broker(0)}))
    assert decide(cluster_of([0.6, 0.01], [], []), **HOT, guard=emptied).plan.splits == ()


def test_of_two_large_bundles_that_only_swap_roles_both_are_hot() -> None:
    """Each carries less than a mean broker, and yet none can leave without making another one as full."""
    result = decide(cluster_of([0.3, 0.3], [0.3], [0.3], [0.3]), **HOT)
    assert rules(result) == [(bundle_name(0), "hot"), (bundle_name(1), "hot")]


def test_a_larger_broker_may_take_it() -> None:
    """The value is that on the broker which would feel it least: four times the cores, a quarter of the score."""
    loads = cluster_of([0.6], [0.1])
    large = [loads[0], replace(loads[1], limit=np.array([400.0, 1024.0, -1000.0, -1000.0]))]
    small = decide(loads, **HOT).plan.splits[0].value
    assert small == pytest.approx(0.6 / 0.35, rel=1e-3)
    assert decide(large, **HOT).plan.splits == ()


def test_one_giant_topic_is_told_to_get_partitions() -> None:
    result = decide(cluster_of([0.6], [0.1], [0.1], topics=1), **HOT)
    assert (result.plan.moves, result.plan.splits) == ((), ())
    assert refused(result) == {bundle_name(0): "SingleTopic"}


def test_blind_brokers_do_not_count() -> None:
    loads = cluster_of([0.6], [0.1], [0.1])
    blind = replace(loads[2], limit=np.array([0.0, 0.0, -1000.0, -1000.0]))
    assert rules(decide([*loads[:2], blind], **HOT)) == [(bundle_name(0), "hot")]


def test_splits_are_in_the_plan_hash() -> None:
    """Two plans of one snapshot that differ in a split, its rule, or why there is none differ in their hash."""
    reports = brokers({BIG: (10, 1, 1)})
    sessions = {"split_max_topics": 0, "split_max_sessions": 1}
    result = [decide(reports, **params) for params in ({}, sessions, {"split_hit_count": 1}, {"split_max_topics": 10})]
    assert [rules(item) for item in result] == [[(BIG, "topics")], [(BIG, "sessions")], [], []]
    assert len({item.plan.hash for item in result}) == 4


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("by hand", "x: an operator requested it"),
        ("hot", "x: carries 123440% of a mean broker's load, which no placement can balance"),
        ("topics", "x: 1,234 topics, the limit is 1,000"),
        ("sessions", "x: 1,234 sessions, the limit is 1,000"),
        ("msg_rate", "x: 1,234 msg/s, the limit is 1,000"),
        ("bandwidth", "x: 1,234 MiB/s, the limit is 1,000"),
    ],
)
def test_each_rule_says_why(rule: str, message: str) -> None:
    assert (
        Split(bundle="x", broker="b", rule=rule, value=1234.4, limit=1000.0, hits=0, at=(), halves=False).sentence
        == message
    )


# --- the namespace's maximum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compat", ["none", "4.2"])
@pytest.mark.parametrize(("bundles", "splits"), [(0, 1), (126, 1), (127, 1), (128, 0), (500, 0)])
def test_n_l_the_maximum_counts_bundles_that_no_broker_has_loaded(compat: str, bundles: int, splits: int) -> None:
    """`NamespaceService.getBundleCount` counts the boundaries in the metadata store, whatever the brokers own."""
    reports = brokers({BIG: (10, 1, 1), SMALL: (5, 1, 1)})
    result = decide(reports, namespace_bundles={"t/ns": bundles}, compat=compat, strategy="threshold")
    assert len(result.plan.splits) == splits
    assert [(item.code, item.detail) for item in result.plan.split_refusals] == [
        (Code.NAMESPACE_MAXIMUM, f"{bundles} bundles, maximum 128")
    ] * (1 - splits)


def test_n_l_splits_of_one_plan_count_towards_the_maximum() -> None:
    """Two bundles above a limit, room for one more bundle in the namespace."""
    reports = brokers({BIG: (10, 1, 1), SMALL: (11, 1, 1)})
    assert rules(decide(reports, namespace_bundles={"t/ns": 127})) == [(SMALL, "topics")]


@pytest.mark.parametrize("bundles", [2, 0])
def test_n_l_loaded_bundles_count_where_the_store_has_fewer(bundles: int) -> None:
    """Boundaries may have been read before a split that the brokers report already."""
    reports = brokers({BIG: (10, 1, 1), SMALL: (5, 1, 1)})
    result = decide(reports, namespace_bundles={"t/ns": bundles}, split_max_bundles=3)
    assert refused(result) == {BIG: "NamespaceMaximum"}


def test_n_l_the_verdict_names_the_maximum() -> None:
    """A bundle that is too big for every broker cannot be split either: the verdict states what to raise."""
    shares = {BIG: 0.8}
    result = decide(
        [brokers({BIG: (10, 1, 1)}, shares)[0], report(broker(1), {bundle_name(100): 0.01, bundle_name(101): 0.01})],
        namespace_bundles={"t/ns": 128},
        move_price=0,
    )
    assert result.plan.verdict.code is Code.UNSPLITTABLE
    assert result.plan.verdict.sentence.endswith("; t/ns has 128 bundles, maximum 128 (split_max_bundles)")


@pytest.mark.parametrize(
    ("versions", "topics", "recommended"),
    [
        (("5.0.1", "5.0.0"), 1, True),
        (("5.0.1", "5.0.1"), 2, False),
        (("5.0.1", "4.2.4"), 1, False),
        (("5.0.0-M1", "5.0.1"), 1, False),
        (("", ""), 1, False),
    ],
)
def test_a_single_hot_topic_is_to_be_migrated(versions: tuple[str, str], topics: int, recommended: bool) -> None:
    """All brokers must run Pulsar 5.0: with several topics a split may help, and earlier releases know no segments."""
    hot, cold = (
        brokers({BIG: (topics, 1, 1)}, {BIG: 0.8})[0],
        report(broker(1), {bundle_name(100): 0.01, bundle_name(101): 0.01}),
    )
    reports = [replace(item, version=version) for item, version in zip((hot, cold), versions, strict=True)]
    result = decide(reports, move_price=0)
    assert result.plan.verdict.code is Code.UNSPLITTABLE
    assert (f"{BIG} has only one topic: `pulsar-admin scalable-topics migrate`" in result.plan.verdict.sentence) == (
        recommended
    )


def test_n_l_bundles_of_v1_namespaces_are_not_split() -> None:
    """The admin API has no route for `property/cluster/namespace`."""
    old = "prop/us-west/ns/0x00000000_0x10000000"
    assert refused(decide(brokers({old: (10, 1, 1)}, {old: 0.2}))) == {old: "V1Namespace"}
