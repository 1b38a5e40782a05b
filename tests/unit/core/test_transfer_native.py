"""TransferShedder inside `plan()`: what it reads off a snapshot, and what the broker around it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.core.guard.state import GuardState, RecentMove
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import ExcludedBroker
from bundlekeel.core.planning.memory import Memory
from tests.support.builders import NOW_MS, broker, cluster, run, snapshot
from tests.support.transfer import AT_ONCE, HOT_COLD, after, moves, now, refused

NATIVE: dict[str, Any] = {**AT_ONCE, "compat": "4.2"}


def test_it_moves_the_smallest_first_and_the_swap_lands() -> None:
    """The class's decisions, its swap in the order in which no step is worse than before."""
    plan = now(HOT_COLD, compat="4.2")
    assert [(source, target) for _, source, target in moves(plan)] == [
        (broker(0), broker(1)),
        (broker(0), broker(1)),
        (broker(1), broker(0)),
    ]
    assert after(plan) == [0.45, 0.45]
    assert not [item for item in plan.refusals if item.detail == "final check"]


def test_without_transfer_the_placement_chooses_by_seed() -> None:
    """`LeastResourceUsageWithWeight` draws among the brokers well below the mean: never the hot one here."""
    loads = [[0.1] * 8, [0.05, 0.05], [0.05, 0.05], [0.05, 0.05]]
    plans = [now(loads, compat="4.2", transfer_enabled=False)] + [
        run(cluster(loads), **{**NATIVE, "transfer_enabled": False}, seed=seed).plan for seed in range(5)
    ]
    assert all(plan.moves and broker(0) not in {target for _, _, target in moves(plan)} for plan in plans)
    assert len({tuple(moves(plan)) for plan in plans}) > 1


def test_an_unload_whose_next_owner_is_its_last_one_is_refused() -> None:
    """With nobody well below the mean, any broker may be drawn, the source included."""
    given = {**NATIVE, "transfer_enabled": False, "transfer_target_std": 0.01}
    reports = cluster([[0.02] * 25, [0.02] * 20])
    codes = [refused(run(reports, **given, seed=seed).plan, Code.SAME_BROKER) for seed in range(8)]
    assert any(codes) and not all(codes)


def test_a_broker_without_load_data_ends_the_cycle() -> None:
    """NoLoadData, as in the class; the corrected form goes on."""
    seen = snapshot(cluster(HOT_COLD), excluded=[ExcludedBroker(broker_id="b9:8080", code="NotJson")])
    assert run(seen, **NATIVE).plan.verdict.code is Code.NO_LOAD_DATA
    assert run(seen, **AT_ONCE).plan.moves


def test_what_gave_lately_ends_the_cycle() -> None:
    """CoolDown by the source of a move the guard remembers."""
    guard = GuardState(recent={"t/ns/0x00000000_0x00000001": RecentMove(at_ms=NOW_MS - 1000, source=broker(1))})
    assert run(cluster(HOT_COLD), guard=guard, **NATIVE).plan.verdict.code is Code.COOL_DOWN


def test_ten_largest_bundles_are_all_it_sees() -> None:
    """The smallest of thirty stay out of sight, however well they would fit."""
    plan = now([[0.001 * n for n in range(1, 31)], [0.01]], compat="4.2", transfer_target_std=0.05)
    largest = set(cluster([[0.001 * n for n in range(1, 31)]])[0].bundle_names[-10:])
    assert plan.moves and {bundle for bundle, source, _ in moves(plan) if source == broker(0)} <= largest


def test_scores_are_smoothed_once_a_call() -> None:
    """Also without a fresh report, as brokers do on every scrape; hits count every call too."""
    memory = Memory()
    for _ in range(3):
        memory = run(cluster(HOT_COLD), memory=memory, strategy="transfer", compat="4.2").memory
    assert memory.condition_hits == 3
    calm = [replace(item, last_update=NOW_MS) for item in cluster([[0.1] * 4, [0.05, 0.05]])]
    once = run(calm, memory=memory, strategy="transfer", compat="4.2").memory
    assert once.compat.usage[broker(0)] == pytest.approx(0.8 * 0.9 + 0.4 * 0.1, abs=1e-5)
    again = run(calm, memory=once, strategy="transfer", compat="4.2").memory
    assert again.compat.usage[broker(0)] < once.compat.usage[broker(0)]
