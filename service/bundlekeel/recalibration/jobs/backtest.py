"""Run the back-test on Spark: one task per block of history and group of candidates, without a shuffle. Loads pyspark.

One task per block converts the recorded cycles to arrays and stores them in a file below the output. The tasks that
plan read this file. Spark itself transfers only names, settings and rows of ten sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bundlekeel.model.errors import HistoryError
from bundlekeel.model.load import Floats
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures, Chunk, RecordedTraffic, unbroken
from bundlekeel.recalibration.backtest.measures import FIGURES
from bundlekeel.recalibration.jobs.blocks import Block, dense, warm_of
from bundlekeel.recalibration.jobs.columns import PERIODS
from bundlekeel.recalibration.jobs.places import OutputFolder
from bundlekeel.recalibration.jobs.read import period_of, spark_schema, spread
from bundlekeel.recalibration.parquet import ParquetStore

BLOCKS: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("date", pa.string()),
        ("start_ms", pa.int64()),
        ("periods", pa.list_(pa.struct(list(PERIODS)))),
    ]
)
# One block that was stored as arrays. `periods`: number of periods that count. `why`: why the block cannot be used.
DENSE: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("date", pa.string()),
        ("start_ms", pa.int64()),
        ("name", pa.string()),
        ("periods", pa.int64()),
        ("bytes", pa.int64()),
        ("why", pa.string()),
    ]
)
# One task. `pieces`: blocks through which candidates run without a new start. `number`: number of the first block.
TASKS: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("pieces", pa.list_(pa.struct([("name", pa.string()), ("start_ms", pa.int64())]))),
        ("candidates", pa.list_(pa.string())),
    ]
)
MEASURES: Final = pa.schema(
    [
        ("candidate", pa.string()),
        ("number", pa.int64()),
        ("day", pa.int64()),
        *((name, pa.float64()) for name in FIGURES),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseBlock:
    """A block of history whose arrays are stored in the file `name`."""

    number: int
    date: str
    start_ms: int
    name: str
    periods: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResult:
    """The measures of one candidate over one block on one day."""

    candidate: str
    number: int
    day: int
    measures: CandidateMeasures


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestInputs:
    """Places of the history and of the stored arrays (`work`), and values that are the same for all blocks."""

    history: str
    work: str
    period_ms: int
    per_unit: Mapping[str, Floats]
    params: Mapping[str, Any]


def blocks(spark: SparkSession, items: Sequence[Block]) -> DataFrame:
    """Return one row per block, of schema `BLOCKS`. Each row is the input of one task."""
    rows = [
        (
            block.number,
            block.date,
            block.start_ms,
            [
                (item.date, item.hour, item.epoch, [(file.first, file.last, file.size) for file in item.files])
                for item in block.periods
            ],
        )
        for block in items
    ]
    return spread(spark, rows, spark_schema(BLOCKS))


def write_dense(rows: DataFrame, inputs: BacktestInputs) -> DataFrame:
    """Convert every block to arrays and store them. Input: rows of `BLOCKS`; result: rows of `DENSE`."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store, place = ParquetStore(inputs.history), OutputFolder(inputs.work)
        for batch in batches:
            for row in batch.to_pylist():
                block = Block(**row | {"periods": tuple(period_of(item) for item in row["periods"])})
                result = {"number": block.number, "date": block.date, "start_ms": block.start_ms, "name": block.name}
                try:
                    traffic = dense(
                        store, block, period_ms=inputs.period_ms, per_unit=inputs.per_unit, params=inputs.params
                    )
                except HistoryError as error:
                    result |= {"periods": 0, "bytes": 0, "why": str(error)}
                else:
                    place.write(block.name, traffic.to_bytes())
                    counted = traffic.periods - warm_of(traffic, block.start_ms)
                    result |= {"periods": counted, "bytes": traffic.nbytes, "why": ""}
                yield pa.RecordBatch.from_pylist([result], schema=DENSE)

    return rows.mapInArrow(work, spark_schema(DENSE))


def tasks(
    spark: SparkSession, runs: Sequence[Sequence[DenseBlock]], candidates: Sequence[Candidate], chunk: int
) -> DataFrame:
    """Return one row per run (list of blocks) and group of `chunk` candidates. Each row is the input of one task.

    Rows of the same run are consecutive, so that a worker can use the arrays that it has in memory.
    """
    texts = [item.to_json() for item in candidates]
    chunks = [texts[at : at + chunk] for at in range(0, len(texts), chunk)]
    rows = [(run[0].number, [(block.name, block.start_ms) for block in run], part) for run in runs for part in chunks]
    return spread(spark, rows, spark_schema(TASKS))


def measure(rows_of_tasks: DataFrame, work_uri: str) -> DataFrame:
    """Run the candidates of each task. Input: rows of `TASKS`; result: rows of `MEASURES`, per candidate and day."""

    def piece(name: str, start_ms: int) -> Chunk:
        traffic = load_dense(work_uri, name)
        return Chunk(traffic=traffic, warm=warm_of(traffic, start_ms))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                candidates = [Candidate.from_json(text) for text in row["candidates"]]
                results = unbroken((piece(**item) for item in row["pieces"]), candidates)
                rows = [
                    {"candidate": item.candidate, "number": row["number"], "day": item.day, **item.measures.row()}
                    for item in results
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=MEASURES)

    return rows_of_tasks.mapInArrow(work, spark_schema(MEASURES))


@lru_cache(maxsize=1)
def load_dense(work_uri: str, name: str) -> RecordedTraffic:
    """Return the stored arrays of a block. A worker keeps those of the last block in memory."""
    return RecordedTraffic.from_bytes(OutputFolder(work_uri).read(name))


def build_dense(
    spark: SparkSession, blocks_to_read: Sequence[Block], inputs: BacktestInputs
) -> tuple[list[DenseBlock], dict[str, str]]:
    """Store the arrays of these blocks, and return the blocks that can be back-tested.

    The second result contains the other blocks: the reason why each cannot be back-tested, by date.
    """
    usable: list[DenseBlock] = []
    without: dict[str, str] = {}
    for row in write_dense(blocks(spark, blocks_to_read), inputs).collect():
        values = row.asDict()
        why = values.pop("why")
        if why or not values["periods"]:
            without[values["date"]] = why or "none of its periods count"
        else:
            usable.append(DenseBlock(**values))
    return sorted(usable, key=lambda item: item.number), without


def run_candidates(
    spark: SparkSession, runs: Sequence[Sequence[DenseBlock]], candidates: Sequence[Candidate], work_uri: str
) -> list[BlockResult]:
    """Run all candidates through each list of blocks in `runs`. Returns one result per candidate, list and day."""
    rows = measure(tasks(spark, runs, candidates, chunk_size(spark, len(runs), len(candidates))), work_uri)
    return [
        BlockResult(
            candidate=row["candidate"],
            number=row["number"],
            day=row["day"],
            measures=CandidateMeasures.of_row(row.asDict()),
        )
        for row in rows.collect()
    ]


def chunk_size(spark: SparkSession, runs: int, candidates: int) -> int:
    """Return the number of candidates per task for about three tasks per core, so that all cores end together."""
    target = max(1, 3 * spark.sparkContext.defaultParallelism)
    parts = min(candidates, max(1, -(-target // max(1, runs))))
    return max(1, -(-candidates // parts))
