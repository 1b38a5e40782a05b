"""The back-test on Spark: blocks of history x chunks of candidates, a task each, and no shuffle. Loads pyspark.

The dense arrays of a block are made once, by one task, and lie in files below the output; the tasks that plan read
them. A row that Spark moves holds names and settings, and a row that comes back ten sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bundlekeel.core.model.errors import HistoryError
from bundlekeel.core.model.load import Floats
from bundlekeel.jobs.blocks import Block, dense, warm_of
from bundlekeel.jobs.columns import PERIODS
from bundlekeel.jobs.periods import open_store
from bundlekeel.jobs.places import OutputFolder
from bundlekeel.jobs.read import period_of, spark_schema, spread
from bundlekeel.sim.backtest import Candidate, CandidateMeasures, Chunk, RecordedTraffic, unbroken
from bundlekeel.sim.backtest.measures import FIGURES

BLOCKS: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("date", pa.string()),
        ("start_ms", pa.int64()),
        ("periods", pa.list_(pa.struct(list(PERIODS)))),
    ]
)
# One block as arrays. `periods`: counted ones; `why`: what is wrong with it, then it is left out.
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
# `pieces`: blocks that candidates run through without a break. `number`: of the first.
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
    """A block whose arrays are there."""

    number: int
    date: str
    start_ms: int
    name: str
    periods: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResult:
    """One candidate over one block (on one day)."""

    candidate: str
    number: int
    day: int
    measures: CandidateMeasures


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestInputs:
    """Where arrays are and what all blocks share."""

    history: str
    work: str
    period_ms: int
    per_unit: Mapping[str, Floats]
    params: Mapping[str, Any]


def blocks(spark: SparkSession, given: Sequence[Block]) -> DataFrame:
    """One row a block, of schema `BLOCKS`, a task each."""
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
        for block in given
    ]
    return spread(spark, rows, spark_schema(BLOCKS))


def densed(given: DataFrame, ground: BacktestInputs) -> DataFrame:
    """`BLOCKS` -> `DENSE`: every block rebuilt once and written as arrays."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store, place = open_store(ground.history), OutputFolder(ground.work)
        for batch in batches:
            for row in batch.to_pylist():
                block = Block(**row | {"periods": tuple(period_of(item) for item in row["periods"])})
                made = {"number": block.number, "date": block.date, "start_ms": block.start_ms, "name": block.name}
                try:
                    traffic = dense(
                        store, block, period_ms=ground.period_ms, per_unit=ground.per_unit, params=ground.params
                    )
                except HistoryError as error:
                    made |= {"periods": 0, "bytes": 0, "why": str(error)}
                else:
                    place.write(block.name, traffic.to_bytes())
                    counted = traffic.periods - warm_of(traffic, block.start_ms)
                    made |= {"periods": counted, "bytes": traffic.nbytes, "why": ""}
                yield pa.RecordBatch.from_pylist([made], schema=DENSE)

    return given.mapInArrow(work, spark_schema(DENSE))


def tasks(
    spark: SparkSession, given: Sequence[Sequence[DenseBlock]], candidates: Sequence[Candidate], chunk: int
) -> DataFrame:
    """Every run of blocks with every chunk of candidates, a task each. Chunks of a run follow one another, so that a
    worker that takes the next one has the arrays of a single block still."""
    texts = [item.to_json() for item in candidates]
    chunks = [texts[at : at + chunk] for at in range(0, len(texts), chunk)]
    rows = [(run[0].number, [(block.name, block.start_ms) for block in run], part) for run in given for part in chunks]
    return spread(spark, rows, spark_schema(TASKS))


def measured(given: DataFrame, work_uri: str) -> DataFrame:
    """`TASKS` -> `MEASURES`: one row a candidate and day of the run. The same `core.model.plan()` as in a sidecar."""

    def piece(name: str, start_ms: int) -> Chunk:
        traffic = loaded(work_uri, name)
        return Chunk(traffic=traffic, warm=warm_of(traffic, start_ms))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                wanted = [Candidate.from_json(text) for text in row["candidates"]]
                found = unbroken((piece(**item) for item in row["pieces"]), wanted)
                rows = [
                    {"candidate": item.candidate, "number": row["number"], "day": item.day, **item.measures.row()}
                    for item in found
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=MEASURES)

    return given.mapInArrow(work, spark_schema(MEASURES))


@lru_cache(maxsize=1)
def loaded(work_uri: str, name: str) -> RecordedTraffic:
    """The arrays of a block; a worker keeps the last ones."""
    return RecordedTraffic.from_bytes(OutputFolder(work_uri).read(name))


def made_dense(
    spark: SparkSession, given: Sequence[Block], ground: BacktestInputs
) -> tuple[list[DenseBlock], dict[str, str]]:
    """The blocks that can be back-tested, and by date why others cannot. One small row a block comes back."""
    there: list[DenseBlock] = []
    without: dict[str, str] = {}
    for row in densed(blocks(spark, given), ground).collect():
        known = row.asDict()
        why = known.pop("why")
        if why or not known["periods"]:
            without[known["date"]] = why or "nothing of it is counted"
        else:
            there.append(DenseBlock(**known))
    return sorted(there, key=lambda item: item.number), without


def tried(
    spark: SparkSession, given: Sequence[Sequence[DenseBlock]], candidates: Sequence[Candidate], work_uri: str
) -> list[BlockResult]:
    """All candidates on all runs of blocks. What comes back is one row of figures a candidate, run and day."""
    found = measured(tasks(spark, given, candidates, chunk_of(spark, len(given), len(candidates))), work_uri)
    return [
        BlockResult(
            candidate=row["candidate"],
            number=row["number"],
            day=row["day"],
            measures=CandidateMeasures.of_row(row.asDict()),
        )
        for row in found.collect()
    ]


def chunk_of(spark: SparkSession, given: int, candidates: int) -> int:
    """Candidates a task: as many as leave three tasks for each core, so that all cores end at about the same time."""
    wanted = max(1, 3 * spark.sparkContext.defaultParallelism)
    parts = min(candidates, max(1, -(-wanted // max(1, given))))
    return max(1, -(-candidates // parts))
