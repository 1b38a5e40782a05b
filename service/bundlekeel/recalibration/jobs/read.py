"""Read recorded history into DataFrames of small rows. Loads pyspark.

The driver only lists files. Each task rebuilds the cycles of whole periods and reduces them to rows, in plain Python
(`periods.py`, `digest.py`). This file also contains the schema of every DataFrame of the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from bundlekeel.recalibration.history.ports import HistoryFile
from bundlekeel.recalibration.jobs import columns
from bundlekeel.recalibration.jobs.digest import digest
from bundlekeel.recalibration.jobs.periods import HistoryPeriod
from bundlekeel.recalibration.parquet import ParquetStore

PERIODS = from_arrow_schema(columns.PERIODS)
DIGEST = from_arrow_schema(columns.DIGEST)
LIES = from_arrow_schema(columns.LIES)

# Tasks per core. More tasks let all cores end at about the same time, but the start of each task takes time.
_TASKS = 8


def spread(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: Any, tasks: int | None = None) -> DataFrame:
    """Return a DataFrame of these rows with `tasks` partitions, each the input of one task; None: one per row."""
    parts = len(rows) if tasks is None else min(len(rows), tasks)
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, max(1, parts)), schema)


def periods(spark: SparkSession, history: Sequence[HistoryPeriod]) -> DataFrame:
    """Return one row per period, of schema `PERIODS`. Each task gets consecutive periods."""
    rows = [
        (item.date, item.hour, item.epoch, [(file.first, file.last, file.size) for file in item.files])
        for item in history
    ]
    return spread(spark, rows, PERIODS, _TASKS * spark.sparkContext.defaultParallelism)


def period_of(row: dict[str, Any]) -> HistoryPeriod:
    """Return the period of a row of `PERIODS`."""
    place = {name: row[name] for name in ("date", "hour", "epoch")}
    return HistoryPeriod(**place, files=tuple(HistoryFile(**place, **file) for file in row["files"]))


def digests(rows: DataFrame, uri: str) -> DataFrame:
    """Read every period once, from rows of `PERIODS` to rows of `DIGEST`.

    Persist the result: quality and the present parameters use it.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = ParquetStore(uri)
        for batch in batches:
            for row in batch.to_pylist():
                yield from digest(store, period_of(row))

    return rows.mapInArrow(work, DIGEST)


def part(digest: DataFrame, kind: str) -> DataFrame:
    """Return only the rows of `digest` of this kind: `cycle`, `slice` or `file`."""
    return digest.where(F.col("kind") == kind).select(f"{kind}.*")
