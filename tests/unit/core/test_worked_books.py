"""Exact limits of what a plan stands on: books, idle CPU, shares of resources, and when a look ahead ends."""

from __future__ import annotations

import numpy as np
import pytest

from bundlekeel.core.model.load import CPU, RESOURCES
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.planning.engine import PlanInput, plan
from bundlekeel.core.planning.ledger import Ledger, landed, open_entries
from bundlekeel.core.planning.pressure import learn_idle, shares_of
from bundlekeel.core.planning.whatif import finish
from tests.support.builders import NOW_MS, broker, bundle_name, cluster, eager, report, run, snapshot


def test_a_landing_is_that_of_one_bundle() -> None:
    """Rule: the other moves of the plan are still under way."""
    seen = snapshot(cluster([[0.2] * 4, [0.1], [0.1]]))
    first, second, *_ = eager(seen).plan.moves
    books = landed(open_entries(Ledger(), (first, second), seen, NOW_MS), first.bundle, first.target, NOW_MS + 5000)
    assert [(entry.bundle, entry.landed_ms) for entry in books.entries] == [
        (first.bundle, NOW_MS + 5000),
        (second.bundle, 0),
    ]


@pytest.mark.parametrize(
    ("up_ms", "cpu", "learnt"), [(120_000, 35.0, 35.0), (119_999, 35.0, None), (120_000, 35.1, None)]
)
def test_when_a_broker_without_traffic_tells_what_it_uses(up_ms: int, cpu: float, learnt: float | None) -> None:
    """Rule: up for one statistics and one host-usage interval, and busy with at most 35 % of its CPU."""
    idle = report(broker(1), {}, cpu=cpu / 100, start_timestamp=NOW_MS - up_ms)
    seen = snapshot([report(broker(0), {bundle_name(0): 0.5}), idle])
    assert learn_idle({}, seen, Parameters()).get(broker(1)) == learnt


@pytest.mark.parametrize(
    ("carried", "whole", "cpu", "others"),
    [
        ([1, 1, 10, 30], [4, 4, 20, 60], 0.375, [0.5, 0.5, 0.5, 0.25, 0.5]),
        ([1, 1, 0, 0], [4, 4, 0, 0], 0.25, [0, 0, 0, 0.25, 0]),
        ([0, 0, 10, 0], [0, 0, 20, 0], 0.5, [0.5, 0.5, 0, 0, 0.5]),
        ([0, 0, 0, 0], [0, 0, 0, 0], 0.0, [0, 0, 0, 0, 0]),
    ],
)
def test_shares_of_messages_and_bytes(
    carried: list[float], whole: list[float], cpu: float, others: list[float]
) -> None:
    """Rule: CPU follows the mean of both where there are both, else the one there is; the rest follows its own."""
    (found,) = shares_of(np.array([carried], dtype=float), np.array(whole, dtype=float)).tolist()
    assert len(found) == len(RESOURCES)
    assert (found[CPU], found[CPU + 1 :]) == (cpu, others)


def test_a_look_ahead_ends_after_a_hundred_cycles() -> None:
    """Rule: what takes longer is told as not through; hits that are still counted are a reason to go on."""
    seen = snapshot(cluster([[0.2] * 4, [0.1]]))
    given = PlanInput(snapshot=seen, params=Parameters(avg_hit_count_low=102, avg_hit_count_high=102))
    ends = {}
    for most in (99, 100, 101):
        params = Parameters(avg_hit_count_low=most, avg_hit_count_high=most)
        given = PlanInput(snapshot=seen, params=params)
        end = finish(given, plan(given), interval_seconds=120.0, eta=lambda moves: 4.0 * moves)
        ends[most] = end.cycles, end.complete
    assert ends == {99: (99, True), 100: (100, True), 101: (100, False)}


def test_the_mean_of_no_brokers_is_zero() -> None:
    """Rule: there is a plan for every picture."""
    assert run([]).plan.mean == 0.0
