"""Recorded history as DataFrames: tasks rebuild the cycles of whole periods and return small rows. Loads pyspark.

The driver only lists files. Which rows a task makes is plain Python (`periods.py`, `digest.py`). The schema of every
DataFrame of the jobs is here, explicitly.
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

from bundlekeel.jobs import columns
from bundlekeel.jobs.digest import digest
from bundlekeel.jobs.periods import HistoryPeriod, open_store
from bundlekeel.ports.history import HistoryFile

_PLAIN: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
}


def spark_type(kind: pa.DataType) -> DataType:
    """The same type for Spark. KeyError for one that the jobs do not use."""
    if pa.types.is_struct(kind):
        return StructType([StructField(item.name, spark_type(item.type)) for item in kind])
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type))
    return _PLAIN[kind]


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns for Spark, all nullable."""
    return StructType([StructField(item.name, spark_type(item.type)) for item in schema])


PERIODS = spark_schema(columns.PERIODS)
DIGEST = spark_schema(columns.DIGEST)
DAYS = spark_schema(columns.DAYS)
LIES = spark_schema(columns.LIES)
WEEK = spark_schema(columns.WEEK)
PROFILE = spark_schema(columns.PROFILE)
CAPACITY = spark_schema(columns.CAPACITY)

# Tasks a core: enough for all cores to end at about the same time, few enough for a task to be worth its start.
_TASKS = 8


def spread(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: Any, tasks: int | None = None) -> DataFrame:
    """These rows in so many partitions, a task each; None: each row in one of its own."""
    parts = len(rows) if tasks is None else min(len(rows), tasks)
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, max(1, parts)), schema)


def periods(spark: SparkSession, found: Sequence[HistoryPeriod]) -> DataFrame:
    """One row a period, of schema `PERIODS`; a task takes some that follow one another."""
    rows = [
        (item.date, item.hour, item.epoch, [(file.first, file.last, file.size) for file in item.files])
        for item in found
    ]
    return spread(spark, rows, PERIODS, _TASKS * spark.sparkContext.defaultParallelism)


def period_of(row: dict[str, Any]) -> HistoryPeriod:
    """The period of a row of `PERIODS`."""
    place = {name: row[name] for name in ("date", "hour", "epoch")}
    return HistoryPeriod(**place, files=tuple(HistoryFile(**place, **file) for file in row["files"]))


def digests(given: DataFrame, uri: str) -> DataFrame:
    """`PERIODS` -> `DIGEST`: every period read once. Persist it: quality, features and capacity all use it."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(uri)
        for batch in batches:
            for row in batch.to_pylist():
                yield from digest(store, period_of(row))

    return given.mapInArrow(work, DIGEST)


def of_days(given: DataFrame, dates: Sequence[str]) -> DataFrame:
    """The rows of a digest that are of these days."""
    date = F.coalesce(*(F.col(f"{kind}.date") for kind in columns.PARTS))
    return given.where(date.isin(list(dates)))


def part(given: DataFrame, kind: str) -> DataFrame:
    """The rows of one kind of a digest: `cycle`, `slice`, `bundle` or `file`."""
    return given.where(F.col("kind") == kind).select(f"{kind}.*")
