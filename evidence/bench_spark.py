"""Time the back-test of the recalibration on Spark: `python -m evidence.bench_spark [--write]`.

Generated histories of several sizes are planned again by the present settings and three others, on a Spark standalone
cluster on this machine with two workers of one core each. Their cycles are sparse, one in 15 minutes: only the number
of cycles matters. Times are wall-clock seconds, and CPU seconds of the executors with their Python workers, which other
work on the machine hardly changes. Memory is the highest resident size of the driver (Python and Java), and of an
executor with its Python workers. `--folder` keeps the generated histories and the results; `--resume` measures only
sizes without a result there. Exit code 1: growth by days is more than linear by a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from threading import Event, Thread
from typing import Final

import psutil

from bundlekeel.recalibration.backtest import Candidate
from bundlekeel.recalibration.backtest.run import RECORDED
from bundlekeel.recalibration.jobs.backtest import BacktestInputs, run_candidates
from bundlekeel.recalibration.jobs.periods import periods_of
from bundlekeel.recalibration.jobs.session import session, show_progress
from bundlekeel.recalibration.parquet import ParquetStore
from dev.history_model import World, dense
from dev.history_worlds import write
from dev.markdown import table
from dev.spark_cluster import SETTINGS, standalone

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "bench-spark.md"
GROWTH: Final = 1.1
CANDIDATES: Final = tuple(
    Candidate(name=f"move_price {price:g}", changes={"move_price": price} if price != 50 else {})
    for price in (50.0, 62.5, 80.0, 100.0)
)
# Brokers, bundles and days.
SIZES: Final = tuple((brokers, 20 * brokers, days) for brokers in (3, 30, 100) for days in (1, 7, 30))
# Cycles of 14 days when the daemon plans every 5 s.
CYCLES: Final = 14 * 86_400 // 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Cost of one run. `wall`, `cpu`: seconds. `driver`, `executor`: highest resident size, bytes. `cycles`: number of
    recorded cycles. `history_bytes`: size of the history."""

    brokers: int
    bundles: int
    days: int
    cycles: int
    wall: float
    cpu: float
    driver: int
    executor: int
    history_bytes: int

    @property
    def plans_per_second(self) -> float:
        """Return the number of plans per CPU second, reading of the history included."""
        return self.cycles * len(CANDIDATES) / self.cpu


def world_of(brokers: int, bundles: int, days: int, cycle: int) -> World:
    """Return a generated cluster with a cycle every `cycle` seconds, in which all brokers' counters are read."""
    return World(days=days, brokers=brokers, bundles=bundles, period_seconds=cycle, counters=True)


def place_of(folder: Path, world: World) -> Path:
    """Return the directory of the history of a generated cluster."""
    return folder / f"{world.brokers}x{world.bundles}x{world.days}x{world.period_seconds}"


def recorded(folder: Path, world: World) -> Path:
    """Record the history of a generated cluster below `folder`, and return its directory. A complete one is reused."""
    place = place_of(folder, world)
    if len(ParquetStore(place).files()) < 24 * world.days:
        tell(f"{place.name}: the history is written")
        started = time.monotonic()
        write(world, place)
        tell(f"{place.name}: history written in {time.monotonic() - started:.0f} s")
    return place


def on_spark(history: Path, world: World) -> Timed:
    """Plan a history again on a new Spark cluster, and measure this."""
    store = ParquetStore(history)
    periods = periods_of(store.files())
    costs = dense(world, 0, 1).costs
    inputs = BacktestInputs(history=str(history), periods=periods, base=world.params, costs=costs)
    memory = {"spark.executor.memory": "1g", "spark.ui.enabled": "false"}
    with (
        tempfile.TemporaryDirectory() as folder,
        standalone(Path(folder), workers=2) as master,
        session(master, SETTINGS | memory) as spark,
        show_progress(spark.sparkContext, tell, 30.0) as begin,
    ):
        # The first job starts the Python workers, which import what the stages need.
        spark.range(0, 2, numPartitions=2).rdd.map(_imported).count()
        peaks, ended = {"driver": 0, "executor": 0}, Event()
        watch = Thread(target=_watch, args=(peaks, ended))
        watch.start()
        begin(history.name)
        cpu, started = cpu_below(), time.monotonic()
        results = run_candidates(spark, CANDIDATES, (RECORDED,), inputs)
        wall, cpu = time.monotonic() - started, cpu_below() - cpu
        ended.set()
        watch.join()
        assert all(len(days) == world.days for days in results.values())
    timed = Timed(
        brokers=world.brokers,
        bundles=world.bundles,
        days=world.days,
        cycles=sum(store.span(file).cycles for file in store.files()),
        wall=wall,
        cpu=cpu,
        history_bytes=sum(item.size for item in periods),
        **peaks,
    )
    tell(f"{history.name}: {timed.wall:.0f} s, {timed.cpu:.0f} s of CPU, {timed.plans_per_second:.0f} plans a second")
    return timed


def result_of(folder: Path, world: World, *, resume: bool) -> Timed:
    """Measure a size and store the result below `folder`. With `resume`, return a stored result."""
    result = place_of(folder, world).with_suffix(".json")
    if not resume or not result.exists():
        result.write_text(json.dumps(asdict(on_spark(recorded(folder, world), world))))
    return Timed(**json.loads(result.read_text()))


def _imported(_: object) -> bool:
    return bool(import_module("bundlekeel.recalibration.jobs.backtest"))


def _watch(peaks: dict[str, int], ended: Event) -> None:
    """Record the highest resident size of this process with its driver in Java, and of the largest executor with its
    Python workers, until `ended`."""
    own = psutil.Process()
    while not ended.wait(0.5):
        driver = own.memory_info().rss
        for process in own.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                command = process.cmdline()
                if "org.apache.spark.deploy.SparkSubmit" in command:
                    driver += process.memory_info().rss
                elif "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command:
                    together = [process, *process.children(recursive=True)]
                    peaks["executor"] = max(peaks["executor"], sum(item.memory_info().rss for item in together))
        peaks["driver"] = max(peaks["driver"], driver)


def cpu_below() -> float:
    """Return the CPU seconds of all child processes, direct and indirect. An ended process counts while its parent
    runs."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def growth(rows: list[Timed]) -> float:
    """Return the CPU seconds per day of the longest history of the smallest cluster, divided by those of one day."""
    small = sorted((row for row in rows if row.brokers == rows[0].brokers), key=lambda row: row.days)
    return (small[-1].cpu / small[-1].days) / (small[0].cpu / small[0].days)


def lines_of(rows: list[Timed]) -> list[str]:
    """Return the results as lines of a page."""
    head = ["brokers x bundles", "days", "cycles", "history, MB", "wall, s", "CPU, s", "plans per CPU second"]
    head += ["driver, MB", "executor, MB", "14 days, core-hours"]
    cells = [
        [
            f"{row.brokers} x {row.bundles}",
            row.days,
            f"{row.cycles:,}",
            *(f"{value:,.0f}" for value in (row.history_bytes / 1e6, row.wall, row.cpu, row.plans_per_second)),
            *(f"{value / 1e6:,.0f}" for value in (row.driver, row.executor)),
            f"{CYCLES / row.plans_per_second / 3600:.2f}",
        ]
        for row in rows
    ]
    text = (
        f"{len(CANDIDATES)} candidates from the recorded placement. A day of the longest history takes "
        f"{growth(rows):.2f} times the CPU of a single day. Last column: one candidate, if the history has a cycle "
        f"every 5 s ({CYCLES:,} cycles). This machine has {os.cpu_count()} cores."
    )
    return [*table(head, cells), "", *wrap(text, 120)]


def page(rows: list[Timed]) -> str:
    """Return the text of docs/reference/bench-spark.md."""
    assert __doc__ is not None
    about = __doc__.partition("\n\n")[2].partition("`--folder`")[0].strip()
    head = ["# Bench: the back-test on Spark", "", "Written by `python -m evidence.bench_spark --write`; do not edit."]
    return "\n".join([*head, "", about, "", *lines_of(rows)]) + "\n"


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def size(text: str) -> tuple[int, int, int]:
    """Parse `BROKERSxBUNDLESxDAYS` from the command line."""
    brokers, bundles, days = text.split("x")
    return int(brokers), int(bundles), int(days)


def main() -> int:
    """Measure the back-test and print. With `--write`, also write docs/reference/bench-spark.md. Return the
    exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m evidence.bench_spark", description=__doc__)
    parser.add_argument("--size", type=size, action="append", metavar="BROKERSxBUNDLESxDAYS", help="repeatable")
    parser.add_argument(
        "--cycle", type=int, default=900, metavar="SECONDS", help="time between two recorded cycles (900)"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".run" / "bench-spark", help="histories and results")
    parser.add_argument("--resume", action="store_true", help="measure only sizes without a result in the folder")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes: Sequence[tuple[int, int, int]] = options.size or SIZES
    worlds = [world_of(brokers, bundles, days, options.cycle) for brokers, bundles, days in sizes]
    rows = [result_of(options.folder, world, resume=options.resume) for world in worlds]
    print("\n".join(lines_of(rows)))
    if options.write:
        PAGE.write_text(page(rows), encoding="utf-8")
    if growth(rows) > GROWTH:
        print(f"a day of the longest history takes {growth(rows):.2f} times the CPU of a single day")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
