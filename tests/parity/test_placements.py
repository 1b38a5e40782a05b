"""Compare our compat placements with Pulsar's real classes: the same candidates, the same memory afterwards.

Java draws among them at random (`ThreadLocalRandom`; in AvgShedder a CRC of a random number). So the test compares the
candidates, and the run continues with Java's draw. Round robin draws nothing and is compared exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bundlekeel.planning.memory import CompatMemory
from dev.oracle import Oracle
from tests.parity.beside import Outcome, compare_placement, parameters, picture_of_turn
from tests.parity.states import PLACEMENTS, Scenario, Turn, scenario
from tests.support.pulsar import select

TURNS = 4


def scenarios(placement: str, seeds: range) -> list[Scenario]:
    # AvgShedder fails without a candidate (below), and the broker never asks it without one.
    return [scenario(seed, TURNS, selections=True, fewest=placement == "avg") for seed in seeds]


def check(outcome: Outcome, states: int) -> None:
    assert outcome.states == states
    assert not outcome.differences, f"{len(outcome.differences)} differences, first: {outcome.differences[:3]}"
    # In many selections the class really had a preference.
    assert outcome.acted > states / 10
    assert set(outcome.seen) == {"all", "some"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_thousand_states(each_oracle: Oracle, placement: str) -> None:
    check(compare_placement(each_oracle, placement, scenarios(placement, range(250))), 1000)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_four_thousand_states(each_oracle: Oracle, placement: str) -> None:
    check(compare_placement(each_oracle, placement, scenarios(placement, range(10_000, 11_000))), 4000)


def test_avg_fails_in_java_without_candidates_and_ours_names_none(oracle: Oracle) -> None:
    turn = Turn(brokers={"b:80": {}}, bundles={}, recent=[], select=[{"bundle": "t/a/0x0_0x1", "candidates": []}])
    oracle.ask({"reset": {"placement": "avg", "config": {}}})
    assert "by zero" in oracle.ask(turn.line())["error"]
    picture = picture_of_turn(turn)
    nobody = np.array([], dtype=np.int64)
    allowed, selected, _ = select(picture, parameters({}), CompatMemory(), "avg", -1, nobody)
    assert (len(allowed), selected) == (0, -1)


def test_avg_sends_a_hundred_fresh_bundles_to_one_broker(oracle: Oracle) -> None:
    """The class keys its map by the bundle's data: equal data, equal destination (fixed in 5.0.1, PR 26246)."""
    brokers: dict[str, dict[str, Any]] = {f"b{number}:80": {} for number in range(5)}
    expected = [{"bundle": f"t/a/0x{n:08x}_0x{n + 1:08x}", "candidates": list(brokers)} for n in range(100)]
    turn = Turn(brokers=brokers, bundles={}, recent=[], select=expected)
    oracle.ask({"reset": {"placement": "avg", "config": {}}})
    answer = oracle.ask(turn.line())
    assert len({one["chosen"] for one in answer["selected"]}) == 1
    picture, memory, ours = picture_of_turn(turn), CompatMemory(), set()
    for seed in range(100):
        _, selected, memory = select(picture, parameters({}), memory, "avg", -1, np.arange(5), seed)
        ours.add(selected)
    assert len(ours) == 1


def test_a_draw_depends_on_the_seed_alone() -> None:
    turn = Turn(brokers={f"b{number}:80": {} for number in range(50)}, bundles={}, recent=[])
    picture = picture_of_turn(turn)

    def draw(seed: int) -> int:
        return select(picture, parameters({}), CompatMemory(), "least_resource_usage", -1, np.arange(50), seed)[1]

    assert [draw(seed) for seed in range(20)] == [draw(seed) for seed in range(20)]
    assert len({draw(seed) for seed in range(20)}) > 5
