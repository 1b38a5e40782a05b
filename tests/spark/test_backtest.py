"""The back-test on a real Spark cluster: the same measures as without Spark, and nothing is shuffled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

from bundlekeel.recalibration.backtest import Candidate
from bundlekeel.recalibration.backtest import backtest as plain_backtest
from bundlekeel.recalibration.jobs import backtest, quality
from bundlekeel.recalibration.jobs.periods import periods_of
from bundlekeel.recalibration.jobs.recalibrate import present_state
from bundlekeel.recalibration.parquet import ParquetStore
from dev.history_model import dense
from tests.spark.conftest import SMALL, hashes

pytestmark = pytest.mark.timeout(1800, method="signal")
DATES = ("2023-11-13", "2023-11-14")
COSTS = dense(SMALL, 0, 1).costs


def inputs(history: Path) -> backtest.BacktestInputs:
    """Return the inputs of the back-test for two days of the small world."""
    hours = backtest.usable(periods_of(ParquetStore(history).files()), DATES)
    return backtest.BacktestInputs(history=str(history), periods=hours, base=SMALL.params, costs=COSTS)


def candidates(count: int) -> list[Candidate]:
    """Return `count` candidates, from eager to lazy."""
    values = [2.5 + 2.5 * number for number in range(count)]
    return [Candidate(name=f"{value:g}", changes={"avg_low_threshold_percent": value}) for value in values]


def test_the_same_as_without_spark(spark: SparkSession, small: Path) -> None:
    """Every candidate from every placement comes to what the plain function makes of it, to the last bit."""
    before, tried, place = hashes(small), candidates(3), inputs(small)
    results = backtest.run_candidates(spark, tried, (0, 5), place)
    recorded = backtest.recorded_inputs(ParquetStore(small), place.periods)
    expected: backtest.Results = {item.key: {} for item in tried}
    for row in plain_backtest(recorded, tried, COSTS, placements=(0, 5), base=SMALL.params):
        expected[row.candidate][row.placement, row.day] = row.measures
    assert results == expected
    assert all(len(days) == 2 * len(DATES) for days in results.values())
    assert any(measures.moves for days in results.values() for measures in days.values())
    assert hashes(small) == before


def test_held_out_days_teach_no_costs(small_digest: DataFrame) -> None:
    """Costs are those at the end of the search's days, and parameters the present ones."""
    (base, early), (present, late) = (present_state(small_digest, day) for day in ("2023-11-13", "2023-11-15"))
    assert base == present == SMALL.params and early != late


@pytest.mark.nightly
def test_more_candidates_shuffle_nothing(spark: SparkSession, small: Path, small_digest: DataFrame) -> None:
    """Bytes that Spark shuffles stay the same, none, for two candidates and for twelve."""

    def shuffled(name: str, work: Callable[[], object]) -> int:
        spark.sparkContext.setJobGroup(name, name)
        work()
        return shuffle_bytes(spark, name)

    few = shuffled("few", lambda: backtest.run_candidates(spark, candidates(2), (0,), inputs(small)))
    many = shuffled("many", lambda: backtest.run_candidates(spark, candidates(12), (0,), inputs(small)))
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
