"""One standalone cluster (master and two workers) and one session for the whole suite.

Tests here time out by signal: the usual way ends the process on the spot, and would leave the cluster running.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from bundlekeel.recalibration.jobs.periods import periods_of
from bundlekeel.recalibration.jobs.read import digests, periods
from bundlekeel.recalibration.jobs.session import session
from bundlekeel.recalibration.parquet import ParquetStore
from dev.history_model import World
from dev.history_worlds import write
from dev.java import spark_environment
from dev.spark_cluster import SETTINGS, standalone

# Before any JVM is started, here or by the processes that tests start.
os.environ.update(spark_environment())

# Three days, a picture each quarter of an hour: quick, and enough for every rule of quality.
SMALL = World(seed=3, days=3, brokers=4, bundles=32, period_seconds=900)


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The cluster's URL."""
    with standalone(tmp_path_factory.mktemp("spark"), workers=2) as url:
        yield url


@pytest.fixture(scope="session")
def spark(master: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share."""
    places = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    value = session(master, SETTINGS | places)
    yield value
    value.stop()


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the history of `SMALL`; tests must not change it."""
    folder = tmp_path_factory.mktemp("small")
    write(SMALL, folder)
    return folder


@pytest.fixture(scope="session")
def small_digest(spark: SparkSession, small: Path) -> Iterator[DataFrame]:
    """The digest of `small`, computed once."""
    digest = digested(spark, small).persist()
    yield digest
    digest.unpersist()


@pytest.fixture
def untouched() -> Callable[[Path], dict[str, str]]:
    """Every file below a folder, with its hash."""
    return hashes


def hashes(folder: Path) -> dict[str, str]:
    """Every file below a folder, with its hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def digested(spark: SparkSession, folder: Path) -> DataFrame:
    """The digest of all history in a folder."""
    return digests(periods(spark, periods_of(ParquetStore(folder).files())), str(folder))
