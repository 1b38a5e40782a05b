"""Ids of which one ends with the other: extensible brokers refuse to move a bundle from the longer to the shorter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.core.model.names import alike
from bundlekeel.core.model.plan import Plan
from tests.support.builders import EAGER, bundle_name, report, run, snapshot

LONG, SHORT, OTHER = "bb1:8080", "b1:8080", "c1:8080"
AT_ONCE: dict[str, Any] = {**EAGER, "transfer_hit_count": 0, "threshold_percent": 5}


def planned(mode: str, hot: str, cold: str, *, third: float, **params: Any) -> Plan:
    """The plan for a hot and an idle broker, and a third one."""
    small = {bundle_name(number): 0.1 for number in range(7)}
    seen = [
        report(hot, small),
        report(cold, {bundle_name(50): 0.02}),
        report(OTHER, {bundle_name(60 + number): third / 2 for number in range(2)}),
    ]
    return run(replace(snapshot(sorted(seen, key=lambda r: r.broker_id)), mode=mode), **{**AT_ONCE, **params}).plan


def ways(plan: Plan) -> set[tuple[str, str]]:
    """(source, target) of the moves."""
    return {(move.source, move.target) for move in plan.moves}


@pytest.mark.parametrize("strategy", ["avg", "threshold", "transfer"])
def test_the_plan_goes_another_way(strategy: str) -> None:
    """The idle broker is the best target, and brokers would answer 500: the third one takes some of it."""
    assert (LONG, SHORT) in ways(planned("modular", LONG, SHORT, third=0.1, strategy=strategy))
    found = ways(planned("extensible", LONG, SHORT, third=0.1, strategy=strategy))
    assert (LONG, OTHER) in found
    assert (LONG, SHORT) not in found


@pytest.mark.parametrize("strategy", ["avg", "threshold", "transfer"])
def test_the_other_way_round_is_no_trouble(strategy: str) -> None:
    """From the shorter id to the longer one brokers do as they are told."""
    assert (SHORT, LONG) in ways(planned("extensible", SHORT, LONG, third=0.1, strategy=strategy))


def test_which_ids_are_alike() -> None:
    """Row to rows; an id is not alike itself."""
    assert alike([LONG, SHORT, OTHER, "1:8080"]) == {0: [1, 3], 1: [3], 2: [3]}
    assert alike(["10.0.0.1:8080", "110.0.0.1:8080", "10.0.0.2:8080"]) == {1: [0]}
    assert alike(["a:1", "b:1"]) == {}
