"""The guard: which bundles may move, and which moves fit this cycle's budgets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need it
from bundlekeel.model.codes import Code
from bundlekeel.model.load import ExcludedBroker
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move
from bundlekeel.planning.guard.budgets import admit
from bundlekeel.planning.guard.eligibility import completeness, eligibility, hold_back, leave_alone
from bundlekeel.planning.guard.state import GuardState, RecentMove
from tests.support.builders import NOW_MS, averages_of, bundle_name, cluster, eager, report, snapshot

A, B, C, D = (bundle_name(number) for number in range(4))
SYSTEM = "pulsar/system/0x00000000_0xffffffff"


def codes(state: GuardState | None = None, **more: Any) -> dict[str, Code]:
    current = snapshot([report("a:1", {A: 0.1, B: 0.0, C: 0.1, D: 0.1, SYSTEM: 0.1})])
    params = Parameters(**more.pop("params", {}))
    rules = eligibility(
        current, state or GuardState(), params, NOW_MS, more.get("in_books", frozenset()), frozenset({D})
    )
    result = {item.bundle: item.code for item in rules.refusals(current, 0)}
    assert {current.bundles.names[row]: code for row, code in rules.codes.items()} == result
    assert len(rules.codes) == len(result)
    assert [not allowed for allowed in rules.mask.tolist()] == [name in result for name in current.bundles.names]
    return result


def test_idle_and_system_bundles_never_move() -> None:
    """Rule: no traffic and Pulsar's own namespaces are obstacles in themselves; so is a move not yet shown."""
    assert codes() == {B: Code.IDLE, SYSTEM: Code.SYSTEM_BUNDLE, D: Code.UNSETTLED}


@pytest.mark.parametrize(("latest", "usual"), [(0.0, 0.1), (0.1, 0.0)])
def test_idle_now_or_idle_usually(latest: float, usual: float) -> None:
    """Rule: a bundle moves only if it has traffic both in the latest report and on average."""
    averages = averages_of([report("a:1", {A: usual, B: 0.1})])
    current = snapshot([report("a:1", {A: latest, B: 0.1})], averages=averages)
    rules = eligibility(current, GuardState(), Parameters(), NOW_MS, frozenset())
    assert [(item.bundle, item.code) for item in rules.refusals(current, 0)] == [(A, Code.IDLE)]


def test_when_an_obstacle_ends() -> None:
    """Rule: a refusal contains the end of a cool-down or a pin; 0 if it is unknown."""
    state = GuardState(
        recent={A: RecentMove(at_ms=NOW_MS - 60_000, source="x")}, pinned={B: NOW_MS + 5, C: 0}, frozen=frozenset({D})
    )
    current = snapshot([report("a:1", dict.fromkeys((A, B, C, D), 0.1))])
    rules = eligibility(current, state, Parameters(), NOW_MS, frozenset())
    result = {item.bundle: (item.code, item.frees_ms) for item in rules.refusals(current, 0)}
    assert result == {
        A: (Code.COOL_DOWN, NOW_MS - 60_000 + 1_800_000),
        B: (Code.PINNED, NOW_MS + 5),
        C: (Code.PINNED, 0),
        D: (Code.FROZEN_INTENT, 0),
    }


# A takeover of another namespace than these bundles have.
PARTIAL = GuardState(taken_over=("u/x",))


def limited(bundle: str, ago_ms: int) -> GuardState:
    """A bundle that moved some while ago, while a quota group limits the namespace of this one."""
    return GuardState(recent={A: RecentMove(at_ms=NOW_MS - ago_ms, source="x")}, limited=frozenset({bundle}))


@pytest.mark.parametrize(
    ("state", "more", "code"),
    [
        (GuardState(recent={A: RecentMove(at_ms=NOW_MS - 1_799_999, source="x")}), {}, Code.COOL_DOWN),
        (GuardState(recent={A: RecentMove(at_ms=NOW_MS - 1_800_000, source="x")}), {}, None),
        (limited(A, 3_599_999), {}, Code.COOL_DOWN),
        (limited(A, 3_600_000), {}, None),
        (limited("t/other/0x00000000_0xffffffff", 1_800_000), {}, None),
        (limited(A, 1_800_000), {"params": {"cool_down_limited_factor": 1.0}}, None),
        (GuardState(pinned={A: NOW_MS + 1}), {}, Code.PINNED),
        (GuardState(pinned={A: NOW_MS}), {}, None),
        (GuardState(frozen=frozenset({A})), {}, Code.FROZEN_INTENT),
        (GuardState(segments_changed={A: NOW_MS - 59_999}), {}, Code.SEGMENTS_CHANGED),
        (GuardState(segments_changed={A: NOW_MS - 60_000}), {}, None),
        (GuardState(segments_above={A: NOW_MS + 1}), {}, Code.SEGMENT_ABOVE_LIMIT),
        (GuardState(segments_above={A: NOW_MS}), {}, None),
        (GuardState(frozen=frozenset({A}), served_twice=frozenset({A})), {}, Code.SERVED_TWICE),
        (GuardState(), {"in_books": frozenset({A})}, Code.IN_TRANSIT),
        (GuardState(), {"params": {"excluded_namespaces": ("t/ns",)}}, Code.EXCLUDED),
        (GuardState(), {"params": {"excluded_namespaces": ("t/n",)}}, None),
        (PARTIAL, {"params": {"included_namespaces": ("u/x",)}}, Code.NOT_TAKEN_OVER),
        (GuardState(), {"params": {"included_namespaces": ("u/x",)}}, Code.EXCLUDED),
        (GuardState(taken_over=("t/ns",)), {"params": {"included_namespaces": ("u/x",)}}, Code.EXCLUDED),
        # A what-if that includes more, to see what a larger takeover would bring.
        (PARTIAL, {"params": {"included_namespaces": ("t/ns",)}}, None),
        (GuardState(recent={"no/such/bundle": RecentMove(at_ms=NOW_MS, source="x")}), {}, None),
    ],
)
def test_obstacle_of_one_bundle(state: GuardState, more: dict[str, Any], code: Code | None) -> None:
    """Rule: cool-down (longer where a quota group limits rates), pin (until its expiry), frozen intent, a move under
    way and exclusion keep a bundle."""
    assert codes(state, **more).get(A) is code


def test_a_partial_takeover_changes_no_bundle_that_may_move() -> None:
    """Rule: it only names another reason, and so no plan changes where there is none."""
    options = {"params": {"included_namespaces": ("u/x",)}}
    assert codes(PARTIAL, **options).keys() == codes(**options).keys()
    assert codes(PARTIAL)[SYSTEM] is Code.SYSTEM_BUNDLE


def test_strongest_obstacle_is_told() -> None:
    """Rule: when several obstacles hold, the one that ends last is named."""
    state = GuardState(recent={B: RecentMove(at_ms=NOW_MS, source="x")}, frozen=frozenset({B}))
    assert codes(state)[B] is Code.FROZEN_INTENT


def moves() -> tuple[Move, ...]:
    """At least eight moves of one namespace, from two brokers to two others."""
    reports = cluster([[0.1] * 9, [0.1] * 9, [], []])
    plan = eager(reports, overloaded_threshold_percent=100.0).plan
    return plan.moves


@pytest.mark.parametrize(
    ("limits", "admitted", "code"),
    [
        ({"max_moves_per_cycle": 3}, 3, Code.BUDGET_PER_CYCLE),
        ({"max_moves_per_cycle": 0}, 0, Code.BUDGET_PER_CYCLE),
        ({"max_moves_per_source": 2}, 4, Code.BUDGET_PER_SOURCE),
        ({"max_moves_per_target": 1}, 2, Code.BUDGET_PER_TARGET),
        ({"max_moves_per_namespace": 5}, 5, Code.BUDGET_PER_NAMESPACE),
    ],
)
def test_budgets(limits: dict[str, int], admitted: int, code: Code) -> None:
    """Rule: each budget lets that many moves through, in order, and refuses the others with its own code."""
    wide = {"max_moves_per_source": 99, "max_moves_per_target": 99, "max_moves_per_namespace": 99}
    move_list = moves()
    assert len(move_list) >= 8
    done, refused = admit(move_list, Parameters(**{"max_moves_per_cycle": 99, **wide, **limits}))
    assert len(done) == admitted
    assert Counter(item.code for item in refused) == {code: len(move_list) - admitted}
    assert [move for move in move_list if move in done] == list(done)
    assert {move.bundle for move in done} | {item.bundle for item in refused} == {move.bundle for move in move_list}


def test_default_budget_of_a_target() -> None:
    """Rule: by default a target takes fewer moves per cycle than a cycle has."""
    result = eager(cluster([[0.05] * 16, [0.05] * 16, []])).plan.moves
    assert len(result) == 10
    done, refused = admit(result, Parameters())
    assert len(done) == Parameters().max_moves_per_target < 10
    assert {item.code for item in refused} == {Code.BUDGET_PER_TARGET}


def test_completeness_gate() -> None:
    """Rule: exactly the required share of usable reports is enough, fewer are not, no broker never is."""
    out = [ExcludedBroker(broker_id=f"z{number}", code="NotJson") for number in range(3)]
    two = [report("a:1", {}), report("b:1", {})]
    assert completeness(snapshot(two, excluded=out[:2]), Parameters()) is None
    refused = completeness(snapshot(two, excluded=out), Parameters())
    assert refused is not None
    assert refused.code is Code.INCOMPLETE_PICTURE
    assert "2 of 5" in refused.detail
    assert completeness(snapshot([]), Parameters()) is not None


def test_what_waits_for_a_window_stays_so_beside_policies() -> None:
    """Rule: a later obstacle is reported only for bundles that were free until then, and frees none."""
    current = snapshot([report("a:1", dict.fromkeys((A, B, C), 0.1))])
    rules = eligibility(current, GuardState(frozen=frozenset({C})), Parameters(), NOW_MS, frozenset())
    eligible = hold_back(rules, np.array([True, False, True]), Code.OUTSIDE_WINDOW, NOW_MS + 5)
    bound = leave_alone(eligible, np.array([True, True, True]))
    assert bound.mask.tolist() == [False] * 3
    result = {item.bundle: (item.code, item.frees_ms) for item in bound.refusals(current, 0)}
    assert result == {A: (Code.OUTSIDE_WINDOW, NOW_MS + 5), B: (Code.HAS_POLICY, 0), C: (Code.FROZEN_INTENT, 0)}
    assert leave_alone(eligible, np.array([False] * 3)).mask.tolist() == eligible.mask.tolist() == [False, True, False]
    assert bound.codes.rows_with({Code.OUTSIDE_WINDOW, Code.FROZEN_INTENT}) == [0, 2]


@pytest.mark.parametrize("strategy", ["avg", "threshold", "overload", "uniform", "deviation", "transfer"])
@pytest.mark.parametrize("compat", ["none", "4.2"])
def test_n_l_v1_namespaces_are_refused_when_the_plan_is_made(strategy: str, compat: str) -> None:
    """The admin API has no route for `property/cluster/namespace`, so no plan may count on such a move."""
    old = [f"prop/us-west/ns/0x{row:04x}0000_0x{row + 1:04x}0000" for row in range(8)]
    reports = [report("a:1", dict.fromkeys(old, 0.11)), report("b:1", {A: 0.05}), report("c:1", {B: 0.05})]
    params = {"transfer_hit_count": 0, "move_price": 0, "deviation_threshold": 0.5, "strategy": strategy}
    if compat == "none" or strategy not in ("overload", "deviation"):
        decided = eager(reports, compat=compat, **params).plan
        assert not decided.moves
        assert {item.code for item in decided.refusals if item.bundle in old} == {Code.V1_NAMESPACE}


def test_n_l_a_v1_heartbeat_namespace_is_a_system_one() -> None:
    """`pulsar/cluster/host:port` belongs to its broker."""
    beat = "pulsar/us-west/a:1/0x00000000_0xffffffff"
    snap = snapshot([report("a:1", {beat: 0.1, A: 0.1})])
    eligible = eligibility(snap, GuardState(), Parameters(), NOW_MS, frozenset())
    assert [(item.bundle, item.code) for item in eligible.refusals(snap, 0)] == [(beat, Code.SYSTEM_BUNDLE)]
