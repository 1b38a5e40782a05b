"""The Spark session of a run: local, standalone, or what spark-submit decides. Loads pyspark."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkFiles
from pyspark.sql import SparkSession

import bundlekeel

# Times are UTC everywhere. The UI is off because a nightly job has no spectators and every run would need a port.
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A few large groups of plain numbers: batches of this size stay well below what a worker may hold.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Stages with few rows need no two hundred tasks.
    "spark.sql.adaptive.enabled": "true",
}
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session. `master`: `local[*]` unless given or decided by spark-submit; `settings` go over our own."""
    # Workers on this machine must be the Python that has Bundlekeel; elsewhere the cluster's own settings say it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("bundlekeel-recalibrate")
    if master is not None or _SUBMITTED not in os.environ:
        builder = builder.master(master or os.environ.get("MASTER") or "local[*]")
    for name, value in (_SETTINGS | dict(settings or {})).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    _give_wheel(made)
    return made


def _give_wheel(made: SparkSession) -> None:
    """Where the driver runs from a wheel (`--py-files`), the executors shall too: Spark copies a .whl to them but puts
    only .zip, .egg and .jar on their path."""
    wheel = next((path for path in Path(bundlekeel.__file__).parents if path.suffix == ".whl" and path.is_file()), None)
    if wheel is None:
        return
    # Below the session's own folder, which is gone with it.
    copy = Path(SparkFiles.getRootDirectory()) / "wheel" / f"{wheel.stem}.zip"
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(wheel, copy)
    made.sparkContext.addPyFile(str(copy))
