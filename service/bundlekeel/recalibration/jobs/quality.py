"""Compute the figures by which `rules.py` judges each day of recorded history. Loads pyspark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bundlekeel.recalibration.jobs import columns
from bundlekeel.recalibration.jobs.read import LIES, part
from bundlekeel.recalibration.jobs.rules import DayFigures, day_of, find_liars

# A pause between two cycles of more than this many usual intervals is a gap. A shorter pause counts as recorded time.
_PATIENCE = 3.0
_DAY_MS = 86_400_000
_COUNTED = {"doubles": "double", "misplaced": "misplaced", "broken": "broken"}


def days(digests: DataFrame) -> DataFrame:
    """Compute `rules.DayFigures` from `DIGEST`: one row per day with any record, even an unreadable file."""
    cycles = part(digests, "cycle")
    counted = cycles.groupBy("date").agg(
        F.min(F.when(F.col("why") != "", F.col("why"))).alias("cycle_why"),
        *(F.sum((F.col("status") == status).cast("long")).alias(name) for name, status in _COUNTED.items()),
        *(F.sum(F.col(name).cast("long")).alias(name) for name in ("dropped", "nan", "negative", "absurd")),
        F.max(F.col("brokers").cast("long")).alias("brokers"),
        F.max(F.col("bundles").cast("long")).alias("bundles"),
        F.sum(F.when(F.col("acted"), F.col("moves")).otherwise(0).cast("long")).alias("moves"),
    )
    files = part(digests, "file").groupBy("date").agg(F.count("*").alias("unreadable"), F.min("why").alias("file_why"))
    joined = counted
    for other in (measure_coverage(cycles), missing(cycles), files):
        joined = joined.join(other, "date", "full")
    explained = joined.withColumn("why", F.coalesce("file_why", "cycle_why"))
    return explained.orderBy("date")


def measure_coverage(cycles: DataFrame) -> DataFrame:
    """Compute the recorded share of each day: the sum of times between usable cycles, without long pauses."""
    by_time = Window.partitionBy("date").orderBy("wall_ms")
    midnight = (F.floor(F.col("wall_ms") / _DAY_MS) + 1) * _DAY_MS
    usable = cycles.where(F.col("status") == "ok").withColumn("next", F.lead("wall_ms").over(by_time))
    gaps = usable.withColumn("gap", F.col("next") - F.col("wall_ms")).withColumn("midnight", midnight)
    usual = gaps.groupBy("date").agg(F.percentile_approx("gap", 0.5).alias("usual"))
    # With a single cycle on a day there is no interval. The recorded time is then 0.
    with_usual = gaps.join(usual, "date").withColumn("usual", F.coalesce("usual", F.lit(0)))
    rest = F.coalesce(F.col("gap"), F.col("midnight") - F.col("wall_ms"))
    inside = F.when(rest <= _PATIENCE * F.col("usual"), rest).otherwise(F.col("usual"))
    return with_usual.groupBy("date").agg(
        F.count("*").alias("cycles"),
        F.min("wall_ms").alias("first_ms"),
        F.max("wall_ms").alias("last_ms"),
        (F.max("usual") / 1000).alias("interval_seconds"),
        (F.sum(inside) / _DAY_MS).alias("coverage"),
        (F.greatest(F.max(rest), F.min("wall_ms") - F.min(F.col("midnight") - _DAY_MS)) / 60_000).alias(
            "longest_gap_minutes"
        ),
        F.avg((F.col("bytes") + F.col("messages") <= 0).cast("double")).alias("silent"),
        F.avg("imbalance").alias("imbalance"),
        F.avg("messages").alias("messages"),
        F.avg("bytes").alias("bytes"),
    )


def missing(cycles: DataFrame) -> DataFrame:
    """Count the missing cycle numbers of each epoch, except cycles that the recorder counted as dropped or skipped.

    Also compute the longest step back of the leader's clock from one cycle to the next.
    """
    ordered = Window.partitionBy("epoch").orderBy("cycle")
    numbered = cycles.where(F.col("status").isin("ok", "broken"))
    lost = F.col("cycle") - F.lag("cycle").over(ordered) - 1 - F.col("dropped") - F.col("skipped")
    jumped = numbered.withColumn("jump", F.greatest(F.coalesce(lost, F.lit(0)), F.lit(0)))
    back = (F.lag("wall_ms").over(ordered) - F.col("wall_ms")) / 60_000
    return (
        jumped.withColumn("back", back)
        .groupBy("date")
        .agg(F.sum("jump").alias("missing"), F.max("back").alias("set_back_minutes"))
    )


def lies(digests: DataFrame) -> DataFrame:
    """Compute `LIES` from `DIGEST`: by day, the brokers whose reported usage contradicts their traffic."""
    slices = part(digests, "slice").select(
        "date",
        "broker",
        "start_ms",
        "usage_cpu",
        (F.col("score") * 100).alias("score"),
        "carried",
        "told",
    )
    return slices.groupBy("date").applyInArrow(_lies_of, LIES)


def _lies_of(table: pa.Table) -> pa.Table:
    names = table.column("broker").to_pylist()
    brokers = sorted(set(names))
    row = {name: number for number, name in enumerate(brokers)}
    arrays = {name: table.column(name).to_numpy() for name in ("usage_cpu", "score", "carried", "told")}
    # Brokers with the extensible load manager can report a score without CPU.
    cpu, score = arrays.pop("usage_cpu"), arrays.pop("score")
    arrays["usage"] = cpu if np.any(cpu > 0) else score
    arrays["broker"] = np.array([row[name] for name in names], dtype=np.float64)
    date = table.column("date")[0].as_py()
    rows = [{"date": date, "broker": broker, "why": why} for broker, why in sorted(find_liars(brokers, arrays).items())]
    return pa.Table.from_pylist(rows, columns.LIES)


def figures(digests: DataFrame) -> list[DayFigures]:
    """Return the figures of each day for `rules.judge`. The driver receives one small row per day."""
    lying: dict[str, dict[str, str]] = {}
    for row in lies(digests).collect():
        lying.setdefault(row["date"], {})[row["broker"]] = row["why"]
    rows: list[Mapping[str, Any]] = [row.asDict() for row in days(digests).collect()]
    return [day_of(row, lying.get(row["date"])) for row in rows]
