"""Features and capacity on a real Spark cluster, against what the made-up world is known to be."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bundlekeel.model.load import CPU, RESOURCES
from bundlekeel.recalibration.jobs import features, read
from bundlekeel.recalibration.jobs.capacity import capacity, per_unit
from bundlekeel.recalibration.jobs.read import of_days, part
from dev.history_model import CORE, IDLE, dense
from tests.spark.conftest import SMALL

pytestmark = pytest.mark.timeout(1800, method="signal")


def test_capacity_is_that_of_the_world(small_digest: DataFrame) -> None:
    """Usage by traffic comes out as it was put in, with a small error in hours that the fit has not seen."""
    rows = [row.asDict() for row in capacity(small_digest).collect()]
    assert len(rows) == 4 * SMALL.brokers
    truth = dense(SMALL)
    for row in rows:
        if row["resource"] == "cpu":
            assert row["limit"] == 8 * CORE
            assert row["base"] == pytest.approx(IDLE * 8 * CORE, abs=8)
            assert row["error"] < 0.5
        if row["resource"] == "bandwidth_out":
            assert row["per_msg_throughput_out"] == pytest.approx(0.008, rel=1e-6)
            assert row["per_msg_throughput_in"] == 0
    units = per_unit(rows)
    assert set(units) == set(truth.brokers)
    carried = truth.carried[:, 0]
    predicted = carried @ units[truth.brokers[0]][CPU]
    real = carried @ truth.per_unit[0, CPU]
    assert float(np.median(np.abs(predicted - real))) < 0.02 * float(real.mean())
    assert units[truth.brokers[0]].shape == (len(RESOURCES), 4)


def test_week_and_profile(small_digest: DataFrame) -> None:
    """Every hour is there once for each broker, bundle and namespace, and sums agree with each other."""
    hours = features.hourly(small_digest).persist()
    week = features.week(hours).persist()
    assert week.schema.names == read.WEEK.names
    counts = {row["kind"]: row["count"] for row in week.groupBy("kind").count().collect()}
    assert counts == {"broker": 72 * SMALL.brokers, "bundle": 72 * SMALL.bundles, "namespace": 72 * 2}
    # Three days from Monday on.
    assert week.agg(F.min("hour_of_week"), F.max("hour_of_week")).first() == (0, 71)
    sums = {row["kind"]: row["sum(bytes)"] for row in hours.groupBy("kind").agg(F.sum("bytes")).collect()}
    assert sums["broker"] == pytest.approx(sums["bundle"], rel=1e-6)
    assert sums["namespace"] == pytest.approx(sums["bundle"], rel=1e-6)
    profile = features.profile(hours)
    assert profile.schema.names == read.PROFILE.names
    rows = profile.where("kind = 'bundle'").collect()
    assert len(rows) == SMALL.bundles
    assert all(row["hours"] == 72 and row["bytes_peak"] >= row["bytes"] > 0 for row in rows)
    assert all(row["volatility"] > 0 and row["clients"] > 0 for row in rows)
    week.unpersist()
    hours.unpersist()


def test_a_move_takes_the_clients_of_its_own_bundle(small_digest: DataFrame) -> None:
    """A namespace's clients are those of its moved bundles, not all of its clients for each move."""
    moves = F.col("bundle").withField("moves", F.lit(1).cast("long"))
    each_hour = small_digest.withColumn("bundle", F.when(F.col("bundle").isNotNull(), moves))
    moved: dict[str, dict[str, float]] = {"broker": {}, "bundle": {}, "namespace": {}}
    for row in features.profile(features.hourly(each_hour)).collect():
        moved[row["kind"]][row["name"]] = row["clients_moved_per_day"]
    for space, clients in moved["namespace"].items():
        of_bundles = [values for name, values in moved["bundle"].items() if name.startswith(f"{space}/")]
        assert len(of_bundles) > 1 and clients == pytest.approx(sum(of_bundles)) and clients > 0


def test_days_that_were_left_out_count_nowhere(small_digest: DataFrame) -> None:
    """Every kind of row is of the days that are asked for, and none of those is lost."""
    dates = ["2023-11-13", "2023-11-15"]
    some, others = of_days(small_digest, dates), of_days(small_digest, ["2023-11-14"])
    assert some.count() + others.count() == small_digest.count()
    for kind in ("cycle", "slice", "bundle"):
        dates_counted = {row["date"] for row in part(some, kind).select("date").distinct().collect()}
        assert dates_counted == set(dates)
    week = features.week(features.hourly(some))
    assert {row["hour_of_week"] // 24 for row in week.collect()} == {0, 2}
