"""Usual load of brokers, bundles and namespaces, by hour of the week, and what moves cost. Loads pyspark."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bundlekeel.recalibration.jobs.read import PROFILE, part

_MESSAGES = ("carried_msg_rate_in", "carried_msg_rate_out")
_BYTES = ("carried_msg_throughput_in", "carried_msg_throughput_out")


def hourly(digests: DataFrame) -> DataFrame:
    """Return one row per hour of each broker, bundle and namespace.

    Columns: messages and bytes per second, clients, moves, clients of the moved bundles, score.
    """
    slices, bundles = part(digests, "slice"), part(digests, "bundle")
    brokers = slices.groupBy("date", "hour", F.col("broker").alias("name")).agg(
        _mean(sum((F.col(name) for name in _MESSAGES), F.lit(0.0)), "messages"),
        _mean(sum((F.col(name) for name in _BYTES), F.lit(0.0)), "bytes"),
        F.max(sum((F.col(name) for name in _BYTES), F.lit(0.0))).alias("bytes_peak"),
        F.lit(None).cast("double").alias("clients"),
        F.lit(None).cast("long").alias("moves"),
        F.lit(None).cast("double").alias("clients_moved"),
        _mean(F.col("score"), "score"),
    )
    # If the leader changed within an hour, a bundle has two rows for that hour, one per leader. Combine them.
    single = bundles.groupBy("date", "hour", F.col("bundle").alias("name"), "namespace").agg(
        *(_mean(F.col(name), name) for name in ("messages", "bytes")),
        F.max("bytes_max").alias("bytes_peak"),
        _mean(F.col("clients"), "clients"),
        F.sum("moves").alias("moves"),
        F.lit(None).cast("double").alias("score"),
    )
    # Computed per bundle, because a move disconnects only the clients of its bundle.
    single = single.withColumn("clients_moved", F.col("moves") * F.col("clients"))
    spaces = single.groupBy("date", "hour", F.col("namespace").alias("name")).agg(
        *(F.sum(name).alias(name) for name in ("messages", "bytes")),
        F.sum("bytes").alias("bytes_peak"),
        *(F.sum(name).alias(name) for name in ("clients", "moves", "clients_moved")),
        F.lit(None).cast("double").alias("score"),
    )
    parts = {"broker": brokers, "bundle": single.drop("namespace"), "namespace": spaces}
    frames = [rows.withColumn("kind", F.lit(kind)) for kind, rows in parts.items()]
    return frames[0].unionByName(frames[1]).unionByName(frames[2])


def _mean(value: Column, name: str) -> Column:
    return (F.sum(value * F.col("samples")) / F.sum("samples")).alias(name)


def week(hours: DataFrame) -> DataFrame:
    """Compute `WEEK` from the rows of `hourly`: the usual load by hour of the week; 0 is Monday 00:00 UTC."""
    weekday = (F.dayofweek(F.to_date("date")) + 5) % 7
    numbered = hours.withColumn("hour_of_week", (weekday * 24 + F.col("hour")).cast("int"))
    return numbered.groupBy("kind", "name", "hour_of_week").agg(
        F.count("*").alias("hours"),
        F.avg("messages").alias("messages"),
        F.avg("bytes").alias("bytes"),
        F.max("bytes_peak").alias("bytes_peak"),
        F.avg("score").alias("score"),
    )


def profile(hours: DataFrame) -> DataFrame:
    """Compute `PROFILE` from the rows of `hourly`: the typical load of each broker, bundle and namespace."""
    keys = ("kind", "name")
    day = F.datediff(F.to_date("date"), F.lit("1970-01-01")).cast("double")
    daily = hours.groupBy(*keys, "date").agg(F.avg("bytes").alias("mean"))
    trend = daily.groupBy(*keys).agg(
        F.expr("regr_slope(mean, cast(datediff(to_date(date), '1970-01-01') as double))").alias("slope")
    )
    totals = (
        hours.withColumn("day", day)
        .groupBy(*keys)
        .agg(
            F.count("*").alias("hours"),
            F.avg("messages").alias("messages"),
            F.avg("bytes").alias("bytes"),
            F.max("bytes_peak").alias("bytes_peak"),
            F.stddev_pop("bytes").alias("deviation"),
            F.avg("clients").alias("clients"),
            (F.sum("moves") / F.countDistinct("date")).alias("moves_per_day"),
            (F.sum("clients_moved") / F.countDistinct("date")).alias("clients_moved_per_day"),
        )
    )
    relative = (
        totals.join(trend, list(keys))
        .withColumn("volatility", _share("deviation"))
        .withColumn("growth", _share("slope"))
    )
    return relative.select(*(F.col(item.name).cast(item.dataType).alias(item.name) for item in PROFILE))


def _share(name: str) -> Column:
    """Return a column divided by the mean traffic; null without traffic."""
    return F.when(F.col("bytes") > 0, F.col(name) / F.col("bytes"))
