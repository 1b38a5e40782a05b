"""The Spark session of a run: local, standalone, or what spark-submit decides. Loads pyspark."""

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
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.text_format import how_far

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
# Of what Java and Spark said, after a crash.
_LAST_BYTES: Final = 20_000
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def session(
    master: str | None = None, settings: Mapping[str, str] | None = None, messages: BinaryIO | None = None
) -> SparkSession:
    """A session. `master`: `local[*]` unless given or decided by spark-submit; `settings` go over our own; `messages`:
    the file that gets what Java and Spark write to standard error.

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
        with nullcontext() if messages is None else _stderr_into(messages):
            made = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise ConfigError(f"Spark does not start: {_told(error)}", field="--master", value=master) from None
    made.sparkContext.setLogLevel("ERROR")
    _give_wheel(made)
    return made


@contextmanager
def _stderr_into(file: BinaryIO) -> Iterator[None]:
    """What is started meanwhile has this file as its standard error, for as long as it runs."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def crash_told(messages: BinaryIO, write: Callable[[str], None]) -> Iterator[None]:
    """Where Spark crashes, what it and Java said last is written."""
    try:
        yield
    except (PySparkException, Py4JError):
        messages.seek(max(0, messages.seek(0, os.SEEK_END) - _LAST_BYTES))
        write(messages.read().decode(errors="replace"))
        raise


@contextmanager
def stopped(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, stopped in the end. Where a signal cut a call into Java no further one is answered right: Java ends with
    its input."""
    asked = spark.stop
    try:
        yield spark
    except SystemExit:
        asked = _end_java
        raise
    finally:
        asked()


def _end_java() -> None:
    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        java.stdin.close()
        java.wait()


@contextmanager
def watched(context: SparkContext, show: Callable[[str], None], every: float) -> Iterator[Callable[[str], None]]:
    """Show meanwhile how far Spark is with the present step, each so many seconds. What is yielded begins a step: its
    name is in Spark's own page, too. A step may take several passes over the data (Spark's stages)."""
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
    begun: dict[int, tuple[str, float]] = {}
    passes = Counter[int]()
    while not ended.wait(every):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is None:
                continue
            if stage not in begun:
                number = len(steps)
                passes[number] += 1
                again = f", pass {passes[number]}" if passes[number] > 1 else ""
                begun[stage] = f"{steps[-1]}{again}", time.monotonic() - every
            name, since = begun[stage]
            far = how_far(info.numCompletedTasks, info.numTasks, "task", time.monotonic() - since)
            show(f"{name}: {far}")


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
