"""Time the back-test of the recalibration on Spark: `python -m evidence.bench_spark [--write]`.

A generated day with one snapshot per minute is read from its files and planned again by five strategies, on a Spark
standalone cluster on this machine with two workers of one core each. A smaller cluster is measured with one day and
with four (growth), and with one worker and with two (speed-up). One and two processes without Spark plan the same, for
comparison. A few minutes of a thousand brokers are planned for the extrapolation. Times are wall-clock seconds, and
CPU seconds of the executors and their Python workers, which a busy machine does not change. `--folder` keeps the
generated histories. Exit code 1: the day took more than five minutes, growth is more than linear, or the speed-up is
below 0.8 of that without Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from textwrap import wrap
from typing import Final

import psutil

from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.backtest import Candidate, RecordedTraffic, backtest
from bundlekeel.recalibration.history.frames import plain
from bundlekeel.recalibration.jobs import backtest as spark_backtest
from bundlekeel.recalibration.jobs.backtest import BacktestInputs, DenseBlock
from bundlekeel.recalibration.jobs.blocks import blocks_of, warm_of
from bundlekeel.recalibration.jobs.periods import periods_of
from bundlekeel.recalibration.jobs.places import OutputFolder
from bundlekeel.recalibration.jobs.session import session
from bundlekeel.recalibration.parquet import ParquetStore
from dev.history_model import World, dense
from dev.history_worlds import write
from dev.markdown import table
from dev.spark_cluster import SETTINGS, standalone

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "bench-spark.md"
PERIOD_MS: Final = 60_000
ALLOWED_SECONDS: Final = 300.0
ENOUGH: Final = 0.8
STRATEGIES: Final = ("avg", "threshold", "uniform", "overload", "transfer")
CANDIDATES: Final = tuple(
    Candidate(name=name, changes={"strategy": name, "compat": "none"} if name != "avg" else {}) for name in STRATEGIES
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Durations of one run: wall-clock seconds of its two stages (`rebuild`, `plan`), and CPU seconds of both
    (`cpu`).
    """

    what: str
    days: int
    workers: int
    rebuild: float
    plan: float
    cpu: float
    history_bytes: int

    @property
    def wall(self) -> float:
        """Return the wall-clock seconds of both stages together."""
        return self.rebuild + self.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """Measurements of a few minutes of a large cluster, planned in one process without Spark."""

    brokers: int
    bundles: int
    periods: int
    seconds_a_period: float
    bytes_a_period: float


def recorded(folder: Path, brokers: int, bundles: int, days: int) -> Path:
    """Record a history of `days` days below `folder` and return its directory. A complete history is used again."""
    place = folder / f"{brokers}x{bundles}x{days}"
    if len(ParquetStore(place).files()) < 24 * days:
        started = time.monotonic()
        write(World(days=days, brokers=brokers, bundles=bundles), place)
        tell(f"{place.name}: {days} days of history written in {time.monotonic() - started:.0f} s")
    return place


def on_spark(history: Path, days: int, workers: int, work: Path) -> tuple[Timed, list[DenseBlock]]:
    """Rebuild all snapshots of a history and plan them on a new Spark cluster. Return the durations and the rebuilt
    blocks.
    """
    periods = periods_of(ParquetStore(history).files())
    dates = sorted({item.date for item in periods})[:days]
    blocks = blocks_of(periods, dates, hours=6, warm_hours=1)
    params = {f"params.{name}": value for name, value in plain(Parameters()).items()}
    ground = BacktestInputs(history=str(history), work=str(work), period_ms=PERIOD_MS, per_unit={}, params=params)
    with tempfile.TemporaryDirectory() as folder, standalone(Path(folder), workers=workers) as master:
        memory = {"spark.executor.memory": "1g", "spark.ui.enabled": "false"}
        with session(master, SETTINGS | memory) as spark:
            # The first job starts the Python workers, which import what the stages need.
            spark.range(0, workers, numPartitions=workers).rdd.map(_imported).count()
            cpu, started = cpu_below(), time.monotonic()
            there, without = spark_backtest.build_dense(spark, blocks, ground)
            assert not without, without
            between = time.monotonic()
            measures = spark_backtest.run_candidates(spark, [[item] for item in there], CANDIDATES, str(work))
            ended = time.monotonic()
            assert len(measures) >= len(there) * len(CANDIDATES)
            cpu = cpu_below() - cpu
    timed = Timed(
        what=history.name,
        days=days,
        workers=workers,
        rebuild=between - started,
        plan=ended - between,
        cpu=cpu,
        history_bytes=sum(item.size for item in periods if item.date in dates),
    )
    tell(f"{timed.what}, {days} days, {workers} workers: {timed.wall:.0f} s, {timed.cpu:.0f} s of CPU")
    return timed, there


def _imported(_: object) -> bool:
    return bool(import_module("bundlekeel.recalibration.jobs.backtest"))


def cpu_below() -> float:
    """Return the CPU seconds of all child processes, direct and indirect. An ended process counts while its parent
    runs."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def planned(work: str, name: str, start_ms: int) -> int:
    """Plan one block of the history with each candidate setting, without Spark. Return the number of results."""
    traffic = RecordedTraffic.from_bytes(OutputFolder(work).read(name))
    return len(backtest(traffic, CANDIDATES, warm=warm_of(traffic, start_ms)))


def by_processes(work: Path, there: Sequence[DenseBlock], count: int) -> float:
    """Return the seconds in which `count` processes without Spark plan the blocks `there` of the history."""
    # Spawned, because a forked process would inherit the connection to Spark.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        list(pool.map(time.sleep, [1.0] * count))
        started = time.monotonic()
        waiting = [pool.submit(planned, str(work), item.name, item.start_ms) for item in there]
        assert all(item.result() for item in waiting)
        return time.monotonic() - started


def large(brokers: int, bundles: int, periods: int) -> Large:
    """Plan `periods` snapshots of a large cluster with each candidate setting, and measure this."""
    traffic = dense(World(days=1, brokers=brokers, bundles=bundles), 0, periods)
    started = time.process_time()
    backtest(traffic, CANDIDATES)
    seconds = (time.process_time() - started) / periods
    return Large(
        brokers=brokers,
        bundles=bundles,
        periods=periods,
        seconds_a_period=seconds,
        bytes_a_period=traffic.nbytes / periods,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Results of one run of this tool. `plain`: seconds of planning without Spark, by one process and by two. `busy`:
    number of processes on this machine that used or waited for a core before the run.
    """

    day: Timed
    growth: tuple[Timed, Timed]
    alone: Timed
    plain: tuple[float, float]
    large: Large
    busy: float

    @property
    def growing(self) -> float:
        """Return the seconds of four days, divided by four times the seconds of one day; 1 is linear."""
        one, more = self.growth
        return more.wall / one.wall / (more.days / one.days)

    @property
    def speed_up(self) -> float:
        """Return the seconds of planning with one worker, divided by those with two."""
        return self.alone.plan / self.growth[0].plan

    @property
    def plain_speed_up(self) -> float:
        return self.plain[0] / self.plain[1]

    def faults(self) -> list[str]:
        """Return a sentence for each condition of this tool that the results violate."""
        problems = []
        if self.day.wall > ALLOWED_SECONDS:
            problems.append(f"a day took {self.day.wall:.0f} s, {ALLOWED_SECONDS:.0f} are allowed")
        if self.growing > 1:
            problems.append(f"four days took {self.growing:.2f} times as long as four times one day")
        if self.speed_up < ENOUGH * self.plain_speed_up:
            problems.append(f"speed-up {self.speed_up:.2f}, that of plain processes is {self.plain_speed_up:.2f}")
        return problems


def measured(folder: Path, day: tuple[int, int], small: tuple[int, int], much: tuple[int, int]) -> Results:
    """Make all measurements. Each argument is (brokers, bundles) of a cluster: `day` for the day, `small` for growth
    and speed-up, `much` for the extrapolation.
    """
    busy = os.getloadavg()[0]
    growing = recorded(folder, *small, 4)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        places = [Path(work) / str(number) for number in range(5)]
        # The first run reads all files from the disk, so its time is not used.
        on_spark(growing, 1, 2, places[4])
        one, blocks = on_spark(growing, 1, 2, places[0])
        alone, _ = on_spark(growing, 1, 1, places[1])
        processes = by_processes(places[0], blocks, 1), by_processes(places[0], blocks, 2)
        tell(f"plain processes: one {processes[0]:.0f} s, two {processes[1]:.0f} s")
        four, _ = on_spark(growing, 4, 2, places[2])
        whole, _ = on_spark(recorded(folder, *day, 1), 1, 2, places[3])
    return Results(
        day=whole, growth=(one, four), alone=alone, plain=processes, large=large(*much, periods=10), busy=busy
    )


def lines_of(results: Results) -> list[str]:
    """Return the results as lines of a page."""
    rows = (results.day, *results.growth, results.alone)
    head = ["brokers x bundles x days recorded", "days", "workers", "rebuild, s", "plan, s", "together, s", "CPU, s"]
    seconds = ([f"{value:.0f}" for value in (row.rebuild, row.plan, row.wall, row.cpu)] for row in rows)
    lines = table(head, ([row.what, row.days, row.workers, *took] for row, took in zip(rows, seconds, strict=True)))
    one, two = results.plain
    growth = (
        f"Growth: four days take {results.growing:.2f} times four times one day. Speed-up of planning by two workers"
        f" over one: {results.speed_up:.2f}; by two plain processes over one ({one:.0f} s and {two:.0f} s):"
        f" {results.plain_speed_up:.2f}. Before the run {results.busy:.1f} processes of this machine"
        f" ({os.cpu_count()} cores) ran or waited for a core."
    )
    lines += ["", *wrap(growth, 120), "", *wrap(extrapolated(results), 120)]
    return lines


def extrapolated(results: Results) -> str:
    """Return a sentence with the extrapolated cost of thirty days of a thousand brokers and a hundred thousand
    bundles.
    """
    sample, day = results.large, results.day
    periods, scale = 30 * 1440, sample.bundles / int(day.what.split("x")[1])
    # Each block of six hours also plans the hour before it, to warm up.
    planning = periods * 7 / 6 * sample.seconds_a_period / 3600
    share = day.rebuild / day.wall
    rebuilding = 30 * scale * day.cpu * share / 3600
    history, arrays = 30 * scale * day.history_bytes, periods * 7 / 6 * sample.bytes_a_period
    return (
        f"Extrapolated to 30 days of {sample.brokers:,} brokers x {sample.bundles:,} bundles, five strategies:"
        f" {planning + rebuilding:,.0f} core-hours ({planning:,.0f} of planning, from {sample.seconds_a_period:.2f} s a"
        f" minute of history, measured on {sample.periods} minutes; {rebuilding:,.0f} of rebuilding, by size from the"
        f" day above), {history / 1e9:,.0f} GB of history to read, {arrays / 1e9:,.0f} GB of arrays between the stages."
    )


def page(results: Results) -> str:
    """Return the text of docs/reference/bench-spark.md."""
    head = [
        "# Bench: the back-test on Spark",
        "",
        "Written by `python -m evidence.bench_spark --write`; do not edit.",
        "",
    ]
    assert __doc__ is not None
    about = __doc__.partition("\n\n")[2].partition("`--folder`")[0].strip()
    return "\n".join([*head, about, "", *lines_of(results)]) + "\n"


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def size(text: str) -> tuple[int, int]:
    """Parse `BROKERSxBUNDLES` from the command line."""
    brokers, _, bundles = text.partition("x")
    return int(brokers), int(bundles)


def main() -> int:
    """Measure the back-test and print. With `--write`, also write docs/reference/bench-spark.md. Return the
    exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m evidence.bench_spark", description=__doc__)
    parser.add_argument("--size", type=size, default=(100, 10_000), metavar="BROKERSxBUNDLES", help="of the day")
    parser.add_argument("--small", type=size, default=(20, 2_000), metavar="BROKERSxBUNDLES", help="of the growth")
    parser.add_argument("--large", type=size, default=(1000, 100_000), metavar="BROKERSxBUNDLES", help="planned only")
    parser.add_argument("--folder", type=Path, default=ROOT / ".run" / "bench-spark", help="where histories are kept")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    results = measured(options.folder, options.size, options.small, options.large)
    print("\n".join(lines_of(results)))
    if options.write:
        PAGE.write_text(page(results), encoding="utf-8")
    for text in (wrong := results.faults()):
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
