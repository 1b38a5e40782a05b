"""Budgets in addition to the count per cycle: tenants, the hour, a broker's traffic, the adaptive rate; swaps stay
whole.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move, Traffic4
from bundlekeel.model.text_format import HOUR_MS, clock_text
from bundlekeel.planning.guard.budgets import admit, hour_refusal, share_of
from bundlekeel.planning.guard.state import BegunMove, GuardState
from tests.support import builders
from tests.support.builders import NOW_MS, bundle_name

WIDE: dict[str, Any] = {
    "max_moves_per_cycle": 99,
    "max_moves_per_source": 99,
    "max_moves_per_target": 99,
    "max_moves_per_namespace": 99,
}


def move(number: int, source: str = "a:1", target: str = "b:1", *, space: str = "t/ns", share: float = 0.1) -> Move:
    """One move; `share` is what it carries of a broker that carries `FULL`."""
    carried = (share * 100, share * 100, share * 1000, share * 1000)
    return builders.move(bundle_name(number, space), source, target, traffic=carried)


FULL: Traffic4 = (100.0, 100.0, 1000.0, 1000.0)
CARRIED = {"a:1": FULL, "b:1": FULL}


def build_state(*ages_ms: int) -> GuardState:
    moves = (BegunMove(bundle="t/ns/x", source="a:1", target="b:1", at_ms=NOW_MS - age) for age in ages_ms)
    return GuardState(last_hour=tuple(moves))


def test_budget_of_a_tenant() -> None:
    """Rule: namespaces of one tenant share its budget; other tenants have their own; -1 is none."""
    moves = [move(0, space="t/a"), move(1, space="t/b"), move(2, space="u/a"), move(3, space="t/c")]
    done, refused = admit(moves, Parameters(**WIDE, max_moves_per_tenant=2))
    assert [item.bundle for item in done] == [item.bundle for item in moves[:3]]
    (only,) = refused
    assert (only.code, only.bundle, only.broker) == (Code.BUDGET_PER_TENANT, moves[3].bundle, "a:1")
    assert (only.limit, only.used, only.frees_ms) == (2, 2, 0)
    assert only.detail == "limit 2 a cycle of t, 2 used, free again in the next cycle"
    assert admit(moves, Parameters(**WIDE))[1] == ()
    assert admit(moves, Parameters(**WIDE, max_moves_per_tenant=0))[0] == ()


def test_budget_of_an_hour_counts_what_was_begun_before() -> None:
    """Rule: moves of the last 60 minutes and those of this plan share the hour; the oldest one frees the next place."""
    moves = [move(number) for number in range(3)]
    state = build_state(HOUR_MS, HOUR_MS - 1, 1000)
    done, refused = admit(moves, Parameters(**WIDE, max_moves_per_hour=3), state, NOW_MS)
    assert len(done) == 1
    assert {item.code for item in refused} == {Code.BUDGET_PER_HOUR}
    assert {(item.limit, item.used) for item in refused} == {(3, 3)}
    # The move that is an hour old does not count; the one after it does, for another millisecond.
    assert {item.frees_ms for item in refused} == {NOW_MS + 1}
    assert clock_text(NOW_MS + 1) in refused[0].detail


@pytest.mark.parametrize(
    ("limit", "ages", "frees"),
    [
        (2, (3000, 2000, 1000), HOUR_MS - 2000),  # one too many in the hour: the second one frees it
        (3, (3000, 2000, 1000), HOUR_MS - 3000),
        (1, (), HOUR_MS),  # this plan's own first move fills it
        (0, (), None),  # never
    ],
)
def test_when_the_hour_frees(limit: int, ages: tuple[int, ...], frees: int | None) -> None:
    """Rule: the reported time is the one at which fewer moves than the limit lie within an hour."""
    moves = [move(number) for number in range(2)]
    _, refused = admit(moves, Parameters(**WIDE, max_moves_per_hour=limit), build_state(*ages), NOW_MS)
    assert refused[-1].frees_ms == (0 if frees is None else NOW_MS + frees)
    assert ("allows no moves" in refused[-1].detail) == (frees is None)


@pytest.mark.parametrize(("limit", "words"), [(-1, ""), (0, "it allows no moves"), (2, "2 used"), (3, "")])
def test_a_move_manually_within_the_hour(limit: int, words: str) -> None:
    """Rule: a move by hand waits for the budget of the hour alone: -1 is none, 0 allows nothing."""
    refusal = hour_refusal(Parameters(max_moves_per_hour=limit), build_state(2000, 1000), NOW_MS)
    assert (refusal is not None) is bool(words)
    if refusal is not None:
        assert (refusal.code, refusal.limit, refusal.used) == (Code.BUDGET_PER_HOUR, limit, 2)
        assert words in refusal.detail
        assert refusal.frees_ms == (NOW_MS + HOUR_MS - 2000 if limit else 0)


def test_share_of_traffic() -> None:
    """Rule: a source sheds at most that share of its messages or bytes per cycle; each source counts separately."""
    moves = [move(0, share=0.3), move(1, share=0.2), move(2, share=0.01), move(3, "b:1", "a:2", share=0.4)]
    done, refused = admit(moves, Parameters(**WIDE, max_traffic_share_per_cycle=0.5), None, NOW_MS, CARRIED)
    assert [item.bundle for item in done] == [moves[number].bundle for number in (0, 1, 3)]
    (only,) = refused
    assert (only.code, only.limit) == (Code.BUDGET_OF_TRAFFIC, 0.5)
    assert only.used == pytest.approx(0.5)
    assert "50%" in only.detail


def test_one_huge_bundle_is_not_stuck() -> None:
    """Rule: the first move of a source is always allowed, whatever it carries; then nothing more leaves."""
    moves = [move(0, share=0.9), move(1, share=0.2)]
    done, refused = admit(moves, Parameters(**WIDE, max_traffic_share_per_cycle=0.2), None, NOW_MS, CARRIED)
    assert [item.bundle for item in done] == [moves[0].bundle]
    assert [item.code for item in refused] == [Code.BUDGET_OF_TRAFFIC]
    assert admit(moves, Parameters(**WIDE), None, NOW_MS, CARRIED)[1] == (), "1 means no limit"


def test_share_is_the_larger_of_messages_and_bytes() -> None:
    """Rule: many small messages and few large ones count alike; nothing of nothing is nothing."""
    chatty = replace(move(0), traffic=(50.0, 50.0, 10.0, 10.0))
    assert share_of(chatty, FULL) == pytest.approx(0.5)
    assert share_of(chatty, (0.0, 0.0, 0.0, 0.0)) == 0.0
    assert share_of(replace(move(0), traffic=(500.0, 0.0, 0.0, 0.0)), FULL) == 1.0, "no more than all of it"


def test_a_source_of_which_no_traffic_is_known_is_bound_by_counts_alone() -> None:
    """Rule: without a figure to compare with no share is used up."""
    moves = [move(0, "new:1", share=0.9), move(1, "new:1", share=0.9)]
    assert admit(moves, Parameters(**WIDE, max_traffic_share_per_cycle=0.2), None, NOW_MS, CARRIED)[0] == tuple(moves)


def test_a_refused_swap_uses_no_traffic() -> None:
    """Rule: the share that a refused swap would have taken is free for the moves after it."""
    swap = [move(1, share=0.3), move(2, "b:1", "a:1", share=0.1)]
    for before, after in (([], 0.9), ([move(0, share=0.1)], 0.35)):
        last = move(3, "a:1", "c:1", share=after)
        params = Parameters(**{**WIDE, "max_moves_per_cycle": len(before) + 1}, max_traffic_share_per_cycle=0.5)
        assert admit([*before, *swap, last], params, None, NOW_MS, CARRIED)[0] == (*before, last)


def test_adaptive_rate() -> None:
    """Rule: the adaptive rate is one more budget of the cycle; None means no limit."""
    moves = [move(number) for number in range(3)]
    done, refused = admit(moves, Parameters(**WIDE), GuardState(rate=1))
    assert len(done) == 1
    assert [item.code for item in refused] == [Code.ADAPTIVE_RATE] * 2
    assert {item.detail for item in refused} == {"limit 1 a cycle, 1 used, free again in the next cycle"}
    (none, *_) = admit(moves, Parameters(**WIDE), GuardState(rate=0))[1]
    assert none.detail == "limit 0 a cycle, 0 used, free again in the next cycle", "the rate grows again"
    assert len(admit(moves, Parameters(**WIDE), GuardState(rate=None))[0]) == 3


def test_a_swap_is_kept_whole() -> None:
    """Rule: what leaves and what comes back for it is admitted together or not at all; later moves may still fit."""
    swap = [move(0), move(1, "b:1", "a:1"), move(2, "b:1", "a:1")]
    moves = [*swap, move(3, "c:1", "d:1")]
    done, refused = admit(moves, Parameters(**{**WIDE, "max_moves_per_cycle": 2}))
    assert [item.bundle for item in done] == [moves[3].bundle]
    assert [(item.bundle, item.broker) for item in refused] == [(item.bundle, item.source) for item in swap]
    assert admit(moves, Parameters(**{**WIDE, "max_moves_per_cycle": 4}))[0] == tuple(moves)


@pytest.mark.parametrize("at_ms", [0, 951_782_400_000, NOW_MS, 1_709_164_800_000, 4_107_542_399_000])
def test_moments_are_those_of_the_calendar(at_ms: int) -> None:
    """Rule: times in sentences are UTC's, leap years included (29 February 2000 and 2024, the end of February 2100)."""
    assert clock_text(at_ms) == f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
