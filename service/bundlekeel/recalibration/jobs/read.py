"""Recorded history as DataFrames: tasks rebuild the cycles of whole periods and return small rows. Loads pyspark.

The driver only lists files; plain Python in tasks makes the rows (`periods.py`, `digest.py`). The schema of every
DataFrame of the jobs is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from bundlekeel.recalibration.history.ports import HistoryFile
from bundlekeel.recalibration.jobs import columns
from bundlekeel.recalibration.jobs.digest import digest
from bundlekeel.recalibration.jobs.periods import HistoryPeriod, open_store

_PLAIN: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
}


def spark_type(kind: pa.DataType) -> DataType:
    """Return the Spark type of an Arrow type. Raises KeyError if the jobs do not use it."""
    if pa.types.is_struct(kind):
        return StructType([StructField(item.name, spark_type(item.type)) for item in kind])
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type))
    return _PLAIN[kind]


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema with the same columns, all nullable."""
    return StructType([StructField(item.name, spark_type(item.type)) for item in schema])


PERIODS = spark_schema(columns.PERIODS)
DIGEST = spark_schema(columns.DIGEST)
DAYS = spark_schema(columns.DAYS)
LIES = spark_schema(columns.LIES)
WEEK = spark_schema(columns.WEEK)
PROFILE = spark_schema(columns.PROFILE)
CAPACITY = spark_schema(columns.CAPACITY)

# Tasks per core: enough that all cores end at about the same time, and few enough to justify the start of each.
_TASKS = 8


def spread(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: Any, tasks: int | None = None) -> DataFrame:
    """Return these rows in this many partitions, each for one task; None: one partition per row."""
    parts = len(rows) if tasks is None else min(len(rows), tasks)
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, max(1, parts)), schema)


def periods(spark: SparkSession, history: Sequence[HistoryPeriod]) -> DataFrame:
    """Return one row per period, of schema `PERIODS`; a task has consecutive ones."""
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
    """Read every period once: `PERIODS` to `DIGEST`. Persist the result: quality, features and capacity all use it."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(uri)
        for batch in batches:
            for row in batch.to_pylist():
                yield from digest(store, period_of(row))

    return rows.mapInArrow(work, DIGEST)


def of_days(digest: DataFrame, dates: Sequence[str]) -> DataFrame:
    """Return the rows of a digest of these days."""
    date = F.coalesce(*(F.col(f"{kind}.date") for kind in columns.PARTS))
    return digest.where(date.isin(list(dates)))


def part(digest: DataFrame, kind: str) -> DataFrame:
    """Return the rows of one kind of a digest: `cycle`, `slice`, `bundle` or `file`."""
    return digest.where(F.col("kind") == kind).select(f"{kind}.*")
