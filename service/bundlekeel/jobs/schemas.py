"""The explicit schemas of every DataFrame of the jobs. Loads pyspark."""

from __future__ import annotations

import pyarrow as pa
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
