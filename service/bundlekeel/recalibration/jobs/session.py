"""Spark session of a run: local, standalone, or from spark-submit. Loads pyspark."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread
from typing import BinaryIO, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext, SparkFiles, StatusTracker
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bundlekeel
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.text_format import how_far

# Times are UTC. Spark's UI is off, because each run would need a port for it.
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Batches of this many rows of plain numbers fit into a worker's memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Without this, Spark would start two hundred tasks even for a few rows.
    "spark.sql.adaptive.enabled": "true",
}
_ON_LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
# Bytes of the output of Java and Spark to show after a crash.
_LAST_BYTES: Final = 20_000
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def session(
    master: str | None = None, settings: Mapping[str, str] | None = None, messages: BinaryIO | None = None
) -> SparkSession:
    """Start Spark and return the session.

    `master`: where Spark runs; None: the master of spark-submit, else `local[*]`. `settings`: Spark settings that
    override `_SETTINGS`. `messages`: file for the standard error of Java and Spark. Raises ConfigError if Spark does
    not start (no Java, unknown master, invalid setting).
    """
    # Local workers must use the Python in which Bundlekeel is installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("bundlekeel-recalibrate")
    own = dict(_SETTINGS)
    if master is not None or _SUBMITTED not in os.environ:
        address = master or os.environ.get("MASTER") or "local[*]"
        builder = builder.master(address)
        local = address == "local" or address.startswith("local[")
        if local or address.startswith("k8s://"):
            # In these modes Spark itself creates the secret and passes it to the executors.
            own["spark.authenticate"] = "true"
        if local:
            own |= _ON_LOOPBACK
    for name, value in (own | dict(settings or {})).items():
        builder = builder.config(name, value)
    try:
        with nullcontext() if messages is None else _stderr_into(messages):
            spark = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise ConfigError(f"Spark does not start: {_reason_of(error)}", field="--master", value=master) from None
    spark.sparkContext.setLogLevel("ERROR")
    _give_wheel(spark)
    return spark


@contextmanager
def _stderr_into(file: BinaryIO) -> Iterator[None]:
    """Redirect the standard error of child processes that are started within the context into a file."""
    sys.stderr.flush()
    original = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)


@contextmanager
def report_crash(messages: BinaryIO, write: Callable[[str], None]) -> Iterator[None]:
    """Write the last output of Java and Spark if Spark crashes."""
    try:
        yield
    except (PySparkException, Py4JError):
        messages.seek(max(0, messages.seek(0, os.SEEK_END) - _LAST_BYTES))
        write(messages.read().decode(errors="replace"))
        raise


@contextmanager
def stop_after(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop Spark at the end of the context.

    If a signal interrupted a call into Java, later calls could get wrong responses. In that case no call is made: Java
    exits when its standard input is closed.
    """
    stop = spark.stop
    try:
        yield spark
    except SystemExit:
        stop = _end_java
        raise
    finally:
        stop()


def _end_java() -> None:
    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        java.stdin.close()
        java.wait()


@contextmanager
def show_progress(context: SparkContext, show: Callable[[str], None], every: float) -> Iterator[Callable[[str], None]]:
    """Show the progress of Spark's present step every `every` seconds. Yields a function that starts a step.

    The name of the step is also the job description in Spark. One step can have several of Spark's stages.
    """
    ended, steps = Event(), ["Spark"]

    def begin(step: str) -> None:
        steps.append(step)
        context.setJobDescription(step)

    thread = Thread(target=_watch, args=(context.statusTracker(), steps, show, every, ended), daemon=True)
    thread.start()
    try:
        yield begin
    finally:
        ended.set()
        thread.join()


def _watch(
    tracker: StatusTracker, steps: Sequence[str], show: Callable[[str], None], every: float, ended: Event
) -> None:
    starts: dict[int, tuple[str, float]] = {}
    passes = Counter[int]()
    while not ended.wait(every):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is None:
                continue
            if stage not in starts:
                number = len(steps)
                passes[number] += 1
                again = f", pass {passes[number]}" if passes[number] > 1 else ""
                starts[stage] = f"{steps[-1]}{again}", time.monotonic() - every
            name, since = starts[stage]
            far = how_far(info.numCompletedTasks, info.numTasks, "task", time.monotonic() - since)
            show(f"{name}: {far}")


def _reason_of(error: Exception) -> str:
    """Return Java's message of an error if there is one, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line.lstrip(": ") for line in lines if line.startswith(":")), lines[0] if lines else "no reason")[:300]


def _give_wheel(spark: SparkSession) -> None:
    """Add the wheel to the executors' path if the driver runs from one (`--py-files`).

    Spark copies a .whl to the executors, but adds only .zip, .egg and .jar to their path.
    """
    wheel = next((path for path in Path(bundlekeel.__file__).parents if path.suffix == ".whl" and path.is_file()), None)
    if wheel is None:
        return
    # In the session's own directory, which is deleted with it.
    copy = Path(SparkFiles.getRootDirectory()) / "wheel" / f"{wheel.stem}.zip"
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(wheel, copy)
    spark.sparkContext.addPyFile(str(copy))
