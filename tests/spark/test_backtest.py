"""The back-test on a real Spark cluster: the same figures as without Spark, and nothing is shuffled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

from bundlekeel.recalibration.backtest import Candidate, Chunk, unbroken
from bundlekeel.recalibration.backtest import backtest as plain_backtest
from bundlekeel.recalibration.history.frames import plain
from bundlekeel.recalibration.history.record import dumped
from bundlekeel.recalibration.jobs import backtest, quality
from bundlekeel.recalibration.jobs.blocks import blocks_of, dense, warm_of
from bundlekeel.recalibration.jobs.periods import periods_of
from bundlekeel.recalibration.parquet import ParquetStore
from tests.spark.conftest import SMALL, hashes

pytestmark = pytest.mark.timeout(1800, method="signal")
DATES = ("2023-11-13", "2023-11-14")


def ground(history: Path, work: Path) -> backtest.BacktestInputs:
    """Return the backtest's inputs for the small world's arrays."""
    params = {f"params.{name}": value for name, value in plain(SMALL.params).items()}
    assert dumped(params)
    return backtest.BacktestInputs(history=str(history), work=str(work), period_ms=900_000, per_unit={}, params=params)


def candidates(count: int) -> list[Candidate]:
    """Return `count` candidates, from eager to lazy."""
    values = [2.5 + 2.5 * number for number in range(count)]
    return [Candidate(name=f"{value:g}", changes={"avg_low_threshold_percent": value}) for value in values]


def test_the_same_as_without_spark(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    """Every candidate on every block comes to what the plain function makes of it, to the last bit."""
    before = hashes(small)
    store = ParquetStore(small)
    blocks = blocks_of(periods_of(store.files()), DATES, hours=12, warm_hours=2)
    assert [(block.date, len(block.periods)) for block in blocks] == [
        ("2023-11-13", 12),
        ("2023-11-13", 14),
        ("2023-11-14", 14),
        ("2023-11-14", 14),
    ]
    place = ground(small, tmp_path)
    there, without = backtest.build_dense(spark, blocks, place)
    assert not without
    # The first block has nothing before it: its own first two hours warm up.
    assert [item.periods for item in there] == [40, 48, 48, 48]
    tried = candidates(3)
    results = backtest.run_candidates(spark, [[item] for item in there], tried, str(tmp_path))
    assert len(results) == len(tried) * len(blocks)
    by_place = {(item.candidate, item.number): item.measures for item in results}
    for block in blocks:
        traffic = dense(store, block, period_ms=900_000, per_unit={}, params=place.params)
        for item in plain_backtest(traffic, tried, warm=warm_of(traffic, block.start_ms)):
            assert by_place[item.candidate, block.number] == item.measures
    assert any(item.measures.moves for item in results)
    assert hashes(small) == before


def test_j13_all_blocks_in_one_course(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    """There is one task per candidate. Ownership goes from block to block and agrees with the run without Spark to the
    last bit.
    """
    store, place = ParquetStore(small), ground(small, tmp_path)
    blocks = blocks_of(periods_of(store.files()), DATES, hours=12, warm_hours=2)
    there, _ = backtest.build_dense(spark, blocks, place)
    tried = candidates(2)
    results = backtest.run_candidates(spark, [there], tried, str(tmp_path))
    arrays = [dense(store, block, period_ms=900_000, per_unit={}, params=place.params) for block in blocks]
    pieces = [
        Chunk(traffic=traffic, warm=warm_of(traffic, block.start_ms))
        for traffic, block in zip(arrays, blocks, strict=True)
    ]
    assert [(item.candidate, item.day, item.measures) for item in results] == [
        (item.candidate, item.day, item.measures) for item in unbroken(pieces, tried)
    ]
    alone = backtest.run_candidates(spark, [[item] for item in there], tried, str(tmp_path))
    assert sum(item.measures.periods for item in results) == sum(item.measures.periods for item in alone)
    assert sum(item.measures.moves for item in results) != sum(item.measures.moves for item in alone)


@pytest.mark.nightly
def test_more_candidates_shuffle_nothing(
    spark: SparkSession, small: Path, small_digest: DataFrame, tmp_path: Path
) -> None:
    """Bytes that Spark shuffles stay the same, none, for two candidates and for twelve."""
    blocks = blocks_of(periods_of(ParquetStore(small).files()), DATES[:1], hours=6, warm_hours=1)
    there, _ = backtest.build_dense(spark, blocks, ground(small, tmp_path))

    def shuffled(name: str, work: Any) -> int:
        spark.sparkContext.setJobGroup(name, name)
        work()
        return shuffle_bytes(spark, name)

    few = shuffled(
        "few", lambda: backtest.run_candidates(spark, [[item] for item in there], candidates(2), str(tmp_path))
    )
    many = shuffled(
        "many", lambda: backtest.run_candidates(spark, [[item] for item in there], candidates(12), str(tmp_path))
    )
    # The same measurement sees what a job shuffles that does.
    assert shuffled("days", lambda: quality.days(small_digest).collect()) > 0
    assert few == many == 0


def shuffle_bytes(spark: SparkSession, group: str) -> int:
    """Return how many bytes all stages of a group's jobs wrote to be shuffled, by Spark's own REST interface."""
    context = spark.sparkContext
    tracker = context.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for info in infos if info is not None for stage in info.stageIds}
    assert stages
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    end = time.monotonic() + 900
    while True:
        rows = [row for row in httpx.get(url, timeout=60).json() if row["stageId"] in stages]
        # The interface is updated a moment later.
        if {row["stageId"] for row in rows} == stages and all(row["status"] in ("COMPLETE", "SKIPPED") for row in rows):
            return sum(row["shuffleWriteBytes"] for row in rows)
        assert time.monotonic() < end, rows
        time.sleep(0.1)
