"""Every strategy on pictures of extensible brokers: scores given or by override, all bundles or the top ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bundlekeel.model.capacity import CapacityOverride
from bundlekeel.model.extensible import BundleLoads, is_rest
from bundlekeel.model.load import BrokerEndpoint, BrokerReport
from bundlekeel.model.snapshot import Snapshot, build_snapshot
from bundlekeel.planning.engine import PlanResult
from bundlekeel.planning.ledger import open_entries
from bundlekeel.ports import FeedStatus, LatestLoad, LoadTables
from bundlekeel.pulsar.sources.extensible_brokers import ExtensibleBrokers, Instant
from tests.support.builders import EAGER, NOW_MS, averages_of, broker, bundle_name, run
from tests.support.memory_feed import broker_load

STRATEGIES = ("avg", "threshold", "uniform", "transfer")
HOT: dict[str, Any] = {**EAGER, "transfer_hit_count": 0, "move_price": 0}
# 24 bundles, Zipf, as the step has them.
SIZES = [1e6 / rank for rank in range(1, 25)]
OVERRIDE = (CapacityOverride(pattern="*", ignore=("cpu",), throughput=20e6),)


def pictured(owned: Sequence[Sequence[float]], scores: Sequence[float], *, bundles: str = "all") -> list[BrokerReport]:
    """Reports as the sidecar makes them: each broker's bundles (bytes/s each way) and score, through the book."""
    book = ExtensibleBrokers(bundles="all" if bundles == "all" else "top", stats_interval=10.0)
    book.register({broker(row): BrokerEndpoint(broker_id=broker(row), web_url="http://x") for row in range(len(owned))})
    received, answers, number = {}, {}, 1
    for row, (sizes, score) in enumerate(zip(owned, scores, strict=True)):
        rows = np.array([(size / 1000, size / 1000, size, size) for size in sizes]).reshape(-1, 4)
        names = [bundle_name(number + place) for place in range(len(sizes))]
        number += len(sizes)
        stats = BundleLoads(names=tuple(names), traffic=rows, counts=np.ones((len(sizes), 3), dtype=np.int64))
        largest = sorted(range(len(sizes)), key=lambda place: sizes[place])[-10:]
        top = BundleLoads(
            names=tuple(names[place] for place in largest), traffic=rows[largest], counts=stats.counts[largest]
        )
        load = broker_load(broker(row), score, rows.sum(axis=0).tolist() or [0.0] * 4, NOW_MS, len(sizes))
        received[broker(row)] = LatestLoad(load=load, bundles=top, load_ms=NOW_MS, bundles_ms=NOW_MS)
        answers[broker(row)] = stats
    moment = Instant(NOW_MS, 0.0)
    book.take_in(LoadTables(latest=received, status=FeedStatus(state="ok")), moment)
    if bundles == "all":
        for name, stats in answers.items():
            book.polled(name, stats, moment)
    reports, excluded = book.reports(moment)
    assert excluded == []
    return reports


def seen(reports: Sequence[BrokerReport], capacity: Sequence[CapacityOverride] = ()) -> Snapshot:
    """The snapshot of mode `extensible` that a cycle would plan on."""
    return build_snapshot(
        reports=reports, averages=averages_of(reports), wall_ms=NOW_MS, mode="extensible", capacity=capacity
    )


def spread(result: PlanResult) -> tuple[float, float]:
    """max/mean of the predicted throughput, before and after."""
    before = [row.throughput_before for row in result.plan.loads]
    after = [row.throughput_after for row in result.plan.loads]
    return max(before) / (sum(before) / len(before)), max(after) / (sum(after) / len(after))


@pytest.mark.parametrize("bundles", ["all", "top"])
@pytest.mark.parametrize("capacity", [(), OVERRIDE], ids=["score", "throughput"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_everything_on_one_of_three(strategy: str, capacity: tuple[CapacityOverride, ...], bundles: str) -> None:
    """Each strategy takes bundles off the one, never the row of the rest, and predicts a better spread."""
    scores = (0.9, 0.02, 0.02) if not capacity else (0.0, 0.0, 0.0)
    snapshot = seen(pictured([SIZES, [], []], scores, bundles=bundles), capacity)
    result = run(snapshot, strategy=strategy, **HOT)
    assert result.plan.moves, result.plan.verdict.sentence
    assert {move.source for move in result.plan.moves} == {broker(0)}
    assert not any(is_rest(move.bundle) for move in result.plan.moves)
    before, after = spread(result)
    assert before == pytest.approx(3.0)
    assert after < 2.5
    hottest = result.plan.loads[0]
    assert hottest.score_after < hottest.score_before


@pytest.mark.parametrize("bundles", ["all", "top"])
def test_avg_brings_three_brokers_together(bundles: str) -> None:
    """The default strategy: over the cycles its moves take, to within a quarter of the mean."""
    owned: list[list[float]] = [list(SIZES), [], []]
    for _ in range(6):
        total = sum(map(sum, owned))
        reports = pictured(owned, [0.9 * sum(sizes) / total + 0.02 for sizes in owned], bundles=bundles)
        result = run(seen(reports), strategy="avg", **HOT)
        sizes = {
            name: float(rates[2])
            for report in reports
            for name, rates in zip(report.bundle_names, report.bundle_traffic, strict=True)
        }
        index = {broker(row): row for row in range(3)}
        for move in result.plan.moves:
            owned[index[move.source]].remove(sizes[move.bundle])
            owned[index[move.target]].append(sizes[move.bundle])
    carried = [sum(sizes) for sizes in owned]
    assert max(carried) / (sum(carried) / 3) <= 1.25


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_balanced_brokers_are_left_alone(strategy: str) -> None:
    thirds = [SIZES[row::3] for row in range(3)]
    even = [[sum(SIZES) / 3 / len(part)] * len(part) for part in thirds]
    result = run(seen(pictured(even, (0.4, 0.4, 0.4))), strategy=strategy, **HOT)
    assert result.plan.moves == ()


def test_the_score_is_the_brokers_own_whatever_weights_say() -> None:
    """It comes weighted already."""
    snapshot = seen(pictured([SIZES, [], []], (0.9, 0.02, 0.04)))
    result = run(snapshot, strategy="avg", cpu_weight=0.0, direct_memory_weight=0.0, **HOT)
    assert [row.score_before for row in result.plan.loads] == pytest.approx([0.9, 0.02, 0.04])


def test_cores_do_not_scale_a_given_score() -> None:
    """The score is in percent of the broker, not of a core."""
    reports = pictured([SIZES, [], []], (0.9, 0.02, 0.04))
    snapshot = seen(reports, (CapacityOverride(pattern="*", cores=8.0),))
    result = run(snapshot, strategy="avg", **HOT)
    assert [row.score_before for row in result.plan.loads] == pytest.approx([0.9, 0.02, 0.04])


@pytest.mark.parametrize("bundles", ["all", "top"])
def test_books_hold_after_the_moves(bundles: str) -> None:
    """On the next picture, before anything is seen of the moves, nothing is moved twice."""
    reports = pictured([SIZES, [], []], (0.9, 0.02, 0.02), bundles=bundles)
    snapshot = seen(reports)
    first = run(snapshot, strategy="avg", **HOT)
    ledger = open_entries(first.ledger, first.plan.moves, snapshot, NOW_MS)
    second = run(snapshot, strategy="avg", memory=first.memory, ledger=ledger, **HOT)
    again = {move.bundle for move in first.plan.moves} & {move.bundle for move in second.plan.moves}
    assert again == set()
    assert [row.score_before for row in second.plan.loads] == pytest.approx(
        [row.score_after for row in first.plan.loads], abs=1e-3
    )
