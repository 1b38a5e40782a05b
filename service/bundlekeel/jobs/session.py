"""The Spark session of a run: local, standalone, or what spark-submit decides. Loads pyspark."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bundlekeel
from bundlekeel.core.model.errors import ConfigError

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
_ON_LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session. `master`: `local[*]` unless given or decided by spark-submit; `settings` go over our own.

    ConfigError: Spark does not start (no Java, no such master, a setting that it does not take).
    """
    # Workers on this machine must be the Python that has Bundlekeel; elsewhere the cluster's own settings say it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("bundlekeel-recalibrate")
    own = dict(_SETTINGS)
    if master is not None or _SUBMITTED not in os.environ:
        chosen = master or os.environ.get("MASTER") or "local[*]"
        builder = builder.master(chosen)
        local = chosen == "local" or chosen.startswith("local[")
        if local or chosen.startswith("k8s://"):
            # Here Spark makes the secret itself and hands it to the executors; elsewhere the cluster must know it.
            own["spark.authenticate"] = "true"
        if local:
            own |= _ON_LOOPBACK
    for name, value in (own | dict(settings or {})).items():
        builder = builder.config(name, value)
    try:
        made = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise ConfigError(f"Spark does not start: {_told(error)}", field="--master", value=master) from None
    made.sparkContext.setLogLevel("ERROR")
    _give_wheel(made)
    return made


def _told(error: Exception) -> str:
    """What Spark says of it: Java's own words where there are any, instead of where they were caught."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line.lstrip(": ") for line in lines if line.startswith(":")), lines[0] if lines else "no reason")[:300]


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
