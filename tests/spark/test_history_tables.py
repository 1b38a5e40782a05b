"""Recorded history as a DataFrame."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bundlekeel.recalibration.parquet import read_history


def test_spark_takes_every_table_as_it_is(spark: SparkSession, small: Path) -> None:
    for name in ("cycles", "brokers", "bundles", "moves"):
        table = read_history(str(small), name)
        frame = spark.createDataFrame(table)
        assert (frame.columns, frame.count()) == (table.column_names, table.num_rows)
        assert frame.toPandas().equals(table.to_pandas()), name
