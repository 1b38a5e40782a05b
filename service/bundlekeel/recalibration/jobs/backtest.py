"""Run the back-test on Spark: one task per group of candidates and initial placement, without a shuffle. Loads pyspark.

Each task reads the history itself, cycle by cycle, so nothing is stored between the stages, and a task needs the memory
of one cycle. Spark transfers only names, settings and rows of sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bundlekeel.model.codes import Code
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.costs import CpuCosts
from bundlekeel.planning.engine import PlanInput
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures, backtest
from bundlekeel.recalibration.backtest.events import HeldInput
from bundlekeel.recalibration.backtest.measures import FIGURES, RunDay
from bundlekeel.recalibration.history.frames import input_of
from bundlekeel.recalibration.history.ports import HistoryStore
from bundlekeel.recalibration.jobs.periods import HistoryPeriod, RecordedCycle, read
from bundlekeel.recalibration.jobs.read import spread
from bundlekeel.recalibration.parquet import ParquetStore

# One task. `placement`: initial owners of bundles. `candidates`: settings as JSON.
TASKS: Final = pa.schema([("placement", pa.int64()), ("candidates", pa.list_(pa.string()))])
_KEYS: Final = [("candidate", pa.string()), ("placement", pa.int64()), ("day", pa.int64())]
MEASURES: Final = pa.schema([*_KEYS, *((name, pa.float64()) for name in FIGURES)])
# Every task reads the whole history, which costs about as much as half a candidate. So it runs several.
_LEAST_CANDIDATES: Final = 4
# Obstacles of a sidecar that only watches. The back-test shows what it would do.
_WATCHING: Final = (None, Code.OBSERVE_ONLY.value, Code.RECOMMEND_ONLY.value)

Results = dict[str, dict[RunDay, CandidateMeasures]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestInputs:
    """The history, and values that are the same for all candidates.

    `history`: its place. `periods`: hours of the good days. `base`: present parameters. `costs`: learned CPU costs.
    """

    history: str
    periods: Sequence[HistoryPeriod]
    base: Parameters
    costs: CpuCosts


def recorded_inputs(store: HistoryStore, periods: Sequence[HistoryPeriod]) -> Iterator[PlanInput]:
    """Yield the recorded inputs of plans in order of time, without the cycles that a replaced leader recorded late.

    Cycles in which the gate allowed no moves are `HeldInput`. All inputs have the leader's own state (`STATE`) of the
    first one, which is the only one that a back-test uses.
    """
    last, first = -1, None
    for period in sorted(periods, key=lambda item: (item.date, item.hour, item.epoch)):
        for item in read(store, period):
            if isinstance(item, RecordedCycle) and item.frame is not None and item.record.wall_ms > last:
                last = item.record.wall_ms
                recorded = input_of(item.frame, first)
                first = first or recorded
                held = item.record.outcome.details["report"].get("obstacle") not in _WATCHING
                yield HeldInput.of(recorded) if held else recorded


def tasks(spark: SparkSession, candidates: Sequence[Candidate], placements: Sequence[int], size: int) -> DataFrame:
    """Return one row per placement and group of `size` candidates. Each row is the input of one task."""
    texts = [item.to_json() for item in candidates]
    groups = [texts[at : at + size] for at in range(0, len(texts), size)]
    rows = [(placement, group) for placement in placements for group in groups]
    return spread(spark, rows, from_arrow_schema(TASKS))


def measure(rows_of_tasks: DataFrame, inputs: BacktestInputs) -> DataFrame:
    """Run the candidates of each task. Input: rows of `TASKS`; result: rows of `MEASURES`, per run and day."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                recorded = recorded_inputs(ParquetStore(inputs.history), inputs.periods)
                candidates = [Candidate.from_json(text) for text in row["candidates"]]
                results = backtest(recorded, candidates, inputs.costs, placements=(row["placement"],), base=inputs.base)
                rows = [
                    {"candidate": item.candidate, "placement": item.placement, "day": item.day, **item.measures.row()}
                    for item in results
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=MEASURES)

    return rows_of_tasks.mapInArrow(work, from_arrow_schema(MEASURES))


def run_candidates(
    spark: SparkSession, candidates: Sequence[Candidate], placements: Sequence[int], inputs: BacktestInputs
) -> Results:
    """Run all candidates from all placements. Returns the measures by candidate key, then by run and day."""
    size = group_size(len(candidates) * len(placements), spark.sparkContext.defaultParallelism)
    results: Results = {item.key: {} for item in candidates}
    for row in measure(tasks(spark, candidates, placements, size), inputs).collect():
        results[row["candidate"]][row["placement"], row["day"]] = CandidateMeasures.of_row(row.asDict())
    return results


def group_size(runs: int, cores: int) -> int:
    """Return the number of candidates per task: every core has a task, and no more tasks read the history."""
    return max(1, min(_LEAST_CANDIDATES, -(-runs // max(1, cores))))


def usable(periods: Iterable[HistoryPeriod], dates: Iterable[str]) -> list[HistoryPeriod]:
    """Return the hours of these days."""
    days = set(dates)
    return [item for item in periods if item.date in days]


def by_day(results: Mapping[RunDay, CandidateMeasures]) -> dict[int, CandidateMeasures]:
    """Return the sums over all runs by day."""
    days: dict[int, CandidateMeasures] = {}
    for (_, day), measures in sorted(results.items()):
        days[day] = days.get(day, CandidateMeasures()) + measures
    return days
