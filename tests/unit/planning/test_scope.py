"""Bundles that the guard does not touch: patterns with expiry, closed brokers, and the way a bundle came."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Plan
from bundlekeel.planning.guard.scope import check_pattern, excluded_bundles, matching_bundles, pattern_for
from bundlekeel.planning.guard.state import GuardState, RecentMove
from tests.support.builders import EAGER, NOW_MS, broker, bundle_name, cluster, report, run, snapshot

NAMES = [bundle_name(0, "acme/orders"), bundle_name(1, "acme/bills"), bundle_name(2, "zeta/orders")]
REPORTS = [report("a:1", {NAMES[0]: 0.1, NAMES[1]: 0.1}), report("b:1", {NAMES[2]: 0.1})]


def excluded(guard: dict[str, int] | None = None, **params: Any) -> list[str]:
    """The bundles that stay where they are."""
    current = snapshot(REPORTS)
    mask = excluded_bundles(current, GuardState(excluded=guard or {}), Parameters(**params), NOW_MS)
    return [name for name, out in zip(current.bundles.names, mask.tolist(), strict=True) if out]


@pytest.mark.parametrize(
    ("pattern", "stay"),
    [
        ("t:acme", NAMES[:2]),
        ("t:ac?e", NAMES[:2]),
        ("t:ACME", []),
        ("n:acme/orders", NAMES[:1]),
        ("n:*/orders", [NAMES[0], NAMES[2]]),
        (f"b:{NAMES[1]}", NAMES[1:2]),
        ("b:acme/*", NAMES[:2]),
        ("r:b:1", NAMES[2:]),
        ("r:*:1", NAMES),
        ("n:acme", []),
        ("x:acme", []),
    ],
)
def test_patterns_of_people(pattern: str, stay: list[str]) -> None:
    """Rule: a pattern names tenant, namespace, bundle or broker, with globs; no other kind, no prefix."""
    assert excluded({pattern: 0}) == stay


@pytest.mark.parametrize("pattern", ["t:ac?e", "n:acme/orders", f"b:{NAMES[0]}", "r:*:1"])
def test_one_bundle_is_told_apart_alike(pattern: str) -> None:
    """Rule: asked for one bundle and its broker, a pattern in force says the same as for all of them."""
    owners = dict(zip(NAMES, ("a:1", "a:1", "b:1"), strict=True))
    result = [name for name in NAMES if pattern_for({"t:none": 0, pattern: 0}, NOW_MS, name, [owners[name]])]
    assert result == excluded({pattern: 0}) != []
    assert pattern_for({pattern: NOW_MS}, NOW_MS, NAMES[0], ["a:1"]) == ""


@pytest.mark.parametrize(("expiry", "holds"), [(0, True), (NOW_MS + 1, True), (NOW_MS, False), (NOW_MS - 1, False)])
def test_a_pattern_ends_with_its_time(expiry: int, holds: bool) -> None:
    """Rule: an exclusion ends at its expiry; 0 is never."""
    assert bool(excluded({"t:*": expiry})) is holds


@pytest.mark.parametrize(
    ("params", "stay"),
    [
        ({"excluded_tenants": ("ze*",)}, NAMES[2:]),
        ({"excluded_brokers": ("a:1",)}, NAMES[:2]),
        ({"included_namespaces": ("acme/orders",)}, NAMES[1:]),
        ({"included_namespaces": ("acme/*", "zeta/x")}, NAMES[2:]),
        ({"included_namespaces": ("acme/*",), "excluded_namespaces": ("acme/bills",)}, NAMES[1:]),
        ({}, []),
    ],
)
def test_settings(params: dict[str, Any], stay: list[str]) -> None:
    """Rule: settings exclude tenants, namespaces and brokers; if any are included, all others stay, too."""
    assert excluded(**params) == stay


@pytest.mark.parametrize("bad", [
        "acme", "x:acme", "t:", "t: ", ":acme", "", "t:[", "t:[]", "t:a[b", "t:a]", "t:a b", "t:a\0", "t:a/b", "t:a/*",
        "t:é", "n:a", "n:/a", "n:a/", "n:a//b", "n:a/b/c", "n:a/b/*", "n:a?b", "b:a/b", "b:a/b/c", "b:*/*/*/*/*",
        "r:a/b", "r:a b", f"b:{NAMES[0]}0",
    ],
)  # fmt: skip
def test_a_pattern_that_names_nothing_is_refused(bad: str) -> None:
    """Rule: a pattern without a match is reported with its value when it is set, not silently ignored."""
    with pytest.raises(ConfigError) as caught:
        check_pattern(bad)
    assert (caught.value.field, caught.value.value) == ("pattern", bad)


@pytest.mark.parametrize(
    "good",
    [
        "t:acme", "t:a.b=c-d:e_f", "t:*", "t:a[bc]?", "t:[!a]", "n:a/b", "n:*", "n:a*", "n:a/*", "b:a/*", "b:*",
        f"b:{NAMES[0]}", "b:a/b/0x0000000?_0x10000000", "r:broker-1:8080", "r:*:1", "r:[::1]:8080",
    ],
)  # fmt: skip
def test_a_pattern_is_kept_without_blanks(good: str) -> None:
    """Rule: names and globs as Pulsar's names can be; blanks around kind and name are not meant."""
    kind, _, text = good.partition(":")
    assert check_pattern(good) == check_pattern(f" {kind} :\t{text} ") == good


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("b:a/B/0xC0000000_0xFFFFFFFF", "b:a/B/0xc0000000_0xffffffff"),
        ("b:a/B/0xC00000??_0x[DE]*", "b:a/B/0xc00000??_0x[de]*"),
        ("b:*/0xC*", "b:*/0xc*"),
        ("n:A/0xAB", "n:A/0xAB"),
        ("r:0xAB:8080", "r:0xAB:8080"),
    ],
)
def test_a_hash_range_is_kept_as_pulsar_writes_it(value: str, expected: str) -> None:
    """Rule: digits of a range in upper case name the same bundle; names keep their case."""
    assert check_pattern(value) == expected


def test_how_many_bundles_a_pattern_matches() -> None:
    """Rule: by the pattern alone, whatever the settings leave out; none is none."""
    current = snapshot(REPORTS)
    result = {
        pattern: int(matching_bundles(current, pattern).sum()) for pattern in ("t:acme", "r:b:1", "n:*", "t:nosuch")
    }
    assert result == {"t:acme": 2, "r:b:1": 1, "n:*": 3, "t:nosuch": 0}


# --- brokers that take nothing -------------------------------------------------------------------------------

LOADS = [[0.1] * 6, [], []]
STRATEGIES = ("avg", "threshold", "uniform", "transfer", "deviation")


def plan(loads: list[list[float]] = LOADS, *, guard: GuardState | None = None, **params: Any) -> Plan:
    """One plan that acts at once."""
    return run(cluster(loads), guard=guard, **{**EAGER, "transfer_hit_count": 0, "move_price": 0, **params}).plan


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("guard", [{"cordoned": frozenset({broker(1)})}, {"excluded": {f"r:{broker(1)}": 0}}])
def test_closed_brokers_take_nothing(strategy: str, guard: dict[str, Any]) -> None:
    """Rule: a cordoned or excluded broker gets no bundle from any strategy; the open one is filled all the same."""
    threshold: dict[str, Any] = {"threshold_percent": 5.0, "deviation_threshold": 0.5}
    moves = plan(strategy=strategy, guard=GuardState(**guard), **threshold).moves
    assert {move.target for move in moves} == {broker(2)}


def test_an_excluded_broker_gives_nothing() -> None:
    """Rule: its bundles are refused as excluded, one by one."""
    result = plan(guard=GuardState(excluded={f"r:{broker(0)}": 0}))
    assert result.moves == ()
    assert {item.code for item in result.refusals if item.bundle} == {Code.EXCLUDED}


@pytest.mark.parametrize("strategy", [*STRATEGIES, "overload"])
def test_a_cordoned_empty_broker_is_no_imbalance(strategy: str) -> None:
    """Rule: two even brokers and a cordoned empty one are balanced in every cycle, and the mean is that of the two."""
    params = {"lower_boundary_shedding": True, "deviation_threshold": 0.5}
    result = plan([[0.4], [0.4], []], guard=GuardState(cordoned=frozenset({broker(2)})), strategy=strategy, **params)
    assert (result.moves, result.verdict.code) == ((), Code.BALANCED)


def test_the_difference_is_told_of_open_brokers() -> None:
    """Rule: the verdict counts as the decision does."""
    result = plan([[0.1] * 4, [0.1] * 4, []], guard=GuardState(cordoned=frozenset({broker(2)})))
    assert "at most 0.0%" in result.verdict.sentence


@pytest.mark.parametrize("strategy", ["avg", "threshold", "deviation"])
def test_a_cordoned_busy_broker_may_give(strategy: str) -> None:
    """Rule: cordoned means it takes nothing; what it has too much still leaves it."""
    guard = GuardState(cordoned=frozenset({broker(0)}))
    moves = plan(LOADS, guard=guard, strategy=strategy, threshold_percent=5.0, deviation_threshold=0.5).moves
    assert {move.source for move in moves} == {broker(0)}


# --- no A -> B -> A ------------------------------------------------------------------------------------------


def lately(*ages_s: float, source: int = 1) -> GuardState:
    moved = {
        bundle_name(n): RecentMove(at_ms=NOW_MS - int(1000 * age), source=broker(source))
        for n, age in enumerate(ages_s)
    }
    return GuardState(recent=moved)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "uniform"])
def test_nobody_goes_straight_back(strategy: str) -> None:
    """Rule: after the cool-down a bundle may go anywhere but back to where it came from, until that window ends."""
    threshold: dict[str, Any] = {"threshold_percent": 5.0, "deviation_threshold": 0.5, "cool_down_seconds": 60.0}
    moves = plan(strategy=strategy, guard=lately(*[2000.0] * 6), **threshold).moves
    assert moves
    assert {move.target for move in moves} == {broker(2)}


def test_uniform_has_one_target_only() -> None:
    """Rule: uniform uses the least loaded broker only; a bundle that may not return there stays, with the reason."""
    result = plan(strategy="uniform", guard=lately(*[2000.0] * 6), cool_down_seconds=60.0)
    assert result.moves == ()
    assert Code.NO_RETURN in {item.code for item in result.refusals}


@pytest.mark.parametrize(("age", "returns"), [(3599.0, False), (3600.0, True)])
def test_the_way_back_opens_again(age: float, returns: bool) -> None:
    """Rule: with two brokers the way back is the only one: refused and typed with its end, then open."""
    result = plan([[0.1] * 6, []], guard=lately(*[age] * 6))
    assert bool(result.moves) is returns
    if not returns:
        output = {(item.code, item.frees_ms) for item in result.refusals if item.bundle}
        assert output == {(Code.NO_RETURN, NOW_MS + 1000)}
        assert f"not back to {broker(1)}" in result.refusals[0].detail


def test_a_useless_pair_is_left_alone() -> None:
    """Rule: moves between quarantined brokers are not made until that ends; other targets are."""
    pair = (broker(0), broker(1))
    moves = plan(guard=GuardState(quarantined={pair: NOW_MS + 1})).moves
    assert {move.target for move in moves} == {broker(2)}
    assert broker(1) in {move.target for move in plan(guard=GuardState(quarantined={pair: NOW_MS})).moves}


def test_the_pattern_for_one_bundle() -> None:
    bundle = "acme/orders/0x00000000_0x40000000"
    for pattern in ("t:acme", "t:a*", "n:acme/orders", "n:*/orders", f"b:{bundle}", "b:acme/orders/*", "r:b1:*"):
        assert pattern_for({"t:other": 0, pattern: 0}, 100, bundle, ["b1:8080", "b2:8080"]) == pattern
        assert pattern_for({pattern: 101}, 100, bundle, ["b1:8080"]) == pattern
        assert pattern_for({pattern: 100}, 100, bundle, ["b1:8080"]) == ""
    for pattern in ("t:acme/orders", "n:acme", "n:acme/order", "r:b3:8080", "b:acme/orders", "t:["):
        assert pattern_for({pattern: 0}, 100, bundle, ["b1:8080"]) == ""
