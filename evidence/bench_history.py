"""Time the history recorder on a large generated cluster: `python -m evidence.bench_history [--brokers N --bundles N]`.

In each cycle some brokers report (each broker once per minute by default), with new loads of all their bundles. Real
brokers report less often: not while their usage changes by less than ten points. The tool prints the seconds that the
recorder's thread needs per cycle, per published minute and to rebuild everything, the bytes per day, and the seconds of
planning for comparison. Then the sidecar's recorder runs while cycles follow each other without a pause. This is the
worst case, because both share an interpreter. The tool prints how long a cycle plans without and with the recorder, how
long it takes to put the input on the recorder's queue, and how many cycles were recorded. `--write` writes
docs/reference/bench-history.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from bundlekeel.model.averages import Averages
from bundlekeel.model.load import BrokerReport, Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.snapshot import build_snapshot
from bundlekeel.planning.engine import PlanInput, plan
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.recalibration.history.frames import frame_of, outcome_of
from bundlekeel.recalibration.history.record import Frame, recorded
from bundlekeel.recalibration.history.replay import rebuilt, replay
from bundlekeel.recalibration.parquet import FileWal, ParquetStore
from bundlekeel.recalibration.recorder.recorder import Recorder
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.wiring.clock import SystemClock

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "bench-history.md"
NOW_MS = 1_700_000_000_000 // 3_600_000 * 3_600_000
CYCLE_MS = 10_000
Result = TypeVar("Result")
CYCLES_A_DAY = 86_400_000 // CYCLE_MS


def main() -> None:
    """Measure the recorder and print. With `--write`, also write docs/reference/bench-history.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--bundles", type=int, default=100, help="of each broker")
    parser.add_argument("--minutes", type=int, default=2)
    parser.add_argument("--report-every", type=int, default=6, help="cycles between two reports of a broker")
    parser.add_argument("--beside", type=int, default=6, help="cycles beside the sidecar's recorder; 0 leaves that out")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.report_every)
        bench.run(options.brokers, options.bundles, 6 * options.minutes)
        if options.beside:
            cycles = list(inputs(options.brokers, options.bundles, options.beside, options.report_every))
            bench.lines += asyncio.run(Beside(Path(folder) / "beside", cycles).run())
    print("\n".join(bench.lines))
    if options.write:
        write_page(bench.lines, busy)


def write_page(lines: list[str], busy: float) -> None:
    """Write docs/reference/bench-history.md. `busy`: number of processes that used or waited for a core before
    the run.
    """
    assert __doc__ is not None
    head = ["# Bench: the recorder", "", "Written by `python -m evidence.bench_history --write`; do not edit.", ""]
    about = __doc__.partition("\n\n")[2].partition("With `--write`")[0].strip()
    machine = f"Before the run {busy:.1f} processes of this machine ({os.cpu_count()} cores) ran or waited for a core."
    PAGE.write_text("\n".join([*head, about, machine, "", "```", *lines, "```"]) + "\n", encoding="utf-8")


@dataclass(slots=True)
class Bench:
    """One measurement of the recorder's steps, with its files in `folder`."""

    folder: Path
    report_every: int
    took: dict[str, list[float]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def run(self, brokers: int, bundles: int, cycles: int) -> None:
        """Record `cycles` cycles, publish the records of each minute, rebuild all snapshots from them, and plan them
        again.
        """
        wal, store = FileWal(self.folder / "wal"), ParquetStore(self.folder / "store")
        before: tuple[int, Frame] | None = None
        for cycle, plan_input in enumerate(inputs(brokers, bundles, cycles, self.report_every), 1):
            result = self.timed("plan", partial(plan, plan_input))
            outcome = outcome_of(result, {"cycle": cycle}, acted=False, software="bench")
            started = time.perf_counter()
            frame = frame_of(plan_input)
            record = recorded(before, frame, epoch=1, cycle=cycle, outcome=outcome)
            wal.append(1, record)
            self.took.setdefault("first record" if record.full else "record", []).append(time.perf_counter() - started)
            before = cycle, frame
            if cycle % 6 == 0:
                wal.roll()
                for segment in wal.closed():
                    records = wal.records(segment)
                    self.timed("publish", partial(store.publish, 1, segment.seq, records))
                    wal.discard(segment)
        files = store.files()
        together = [record for file in files for record in store.records(file)]
        frames = self.timed("rebuild all", lambda: list(rebuilt(together)))
        same = sum(replay(item).same for item in frames)
        self.show(brokers, bundles, cycles, [file.size for file in files], same)
        wal.close()

    def timed(self, name: str, work: Callable[[], Result]) -> Result:
        """Call `work` and return its result. Store its duration under `name`."""
        started = time.perf_counter()
        result = work()
        self.took.setdefault(name, []).append(time.perf_counter() - started)
        return result

    def show(self, brokers: int, bundles: int, cycles: int, sizes: list[int], same: int) -> None:
        """Store the results in `lines`, as text. `sizes`: bytes of each file. `same`: number of plans that were
        repeated exactly.
        """
        self.lines = [
            f"{brokers:,} brokers x {bundles} bundles, {cycles} cycles, a report each {self.report_every} cycles"
        ]
        for name, seconds in self.took.items():
            self.lines.append(_spread(name, seconds))
        later = sizes[1:] or sizes
        delta = sum(later) / (6 * len(later))
        full = max(0.0, sizes[0] - 6 * delta) if sizes[1:] else 0.0
        day = (24 * full + CYCLES_A_DAY * delta) / 1e9
        self.lines += [
            f"  files: {sizes[0]:,} B with a whole picture, then {statistics.mean(later):,.0f} B a minute",
            f"  a day: {day:.2f} GB in {24 * 60} files, 24 of them after compaction",
            f"  replayed to the recorded hash: {same} of {cycles}",
        ]


def _spread(name: str, seconds: list[float]) -> str:
    return f"  {name:22} median {statistics.median(seconds):8.3f} s   most {max(seconds):8.3f} s"


@dataclass(slots=True)
class Beside:
    """Measures how much the sidecar's recorder delays cycles that run in the same process."""

    folder: Path
    cycles: list[PlanInput]
    handed: list[float] = field(default_factory=list)

    async def run(self) -> list[str]:
        """Plan all cycles without the recorder, then again with it. Return the durations as lines of text."""
        alone = [await self._cycle(number, None) for number in range(1, len(self.cycles) + 1)]
        telemetry = PrometheusTelemetry()

        def places() -> tuple[FileWal, ParquetStore]:
            return FileWal(self.folder / "wal"), ParquetStore(self.folder / "store")

        recorder = Recorder(places, telemetry, SystemClock(), leads=lambda: False)
        running = asyncio.create_task(recorder.run())
        await asyncio.sleep(0.5)
        beside = [await self._cycle(number, recorder) for number in range(1, len(self.cycles) + 1)]
        await asyncio.sleep(1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await recorder.close()
        counted = telemetry.render("text/plain")[0].decode()
        counts = [
            line.rpartition(" ") for line in counted.splitlines() if line.startswith("bundlekeel_history_cycles_total{")
        ]
        return [
            "cycles one after the other, beside the sidecar's recorder",
            _spread("cycle alone", alone),
            _spread("cycle beside it", beside),
            _spread("handing over", self.handed),
            *(f"  {name.partition('{')[2].rstrip('}')}: {float(value):.0f}" for name, _, value in counts),
        ]

    async def _cycle(self, number: int, recorder: Recorder | None) -> float:
        started = time.perf_counter()
        item = self.cycles[number - 1]
        # In a thread, as the sidecar plans.
        result = await asyncio.to_thread(plan, item)
        planned = time.perf_counter()
        if recorder is not None:
            recorder.take(1, item, result, {"cycle": number, "acted": False})
            self.handed.append(time.perf_counter() - planned)
        return planned - started


def inputs(brokers: int, bundles: int, cycles: int, report_every: int) -> Iterator[PlanInput]:
    """Yield the input of each cycle: brokers report in turn, and the Zipf-like loads of bundles change by a few
    percent.
    """
    random = np.random.default_rng(1)
    averages, memory = Averages(), StrategyMemory()
    base = random.pareto(2.0, (brokers, bundles)) * 100
    reports = [_report(number, base[number], NOW_MS) for number in range(brokers)]
    for report in reports:
        averages.add_report(report, now_ms=NOW_MS)
    for cycle in range(cycles):
        now = NOW_MS + cycle * CYCLE_MS
        for number in range(cycle % report_every, brokers, report_every) if cycle else ():
            reports[number] = _report(number, base[number] * random.normal(1, 0.05, bundles).clip(0.1), now)
            averages.add_report(reports[number], now_ms=now)
        snapshot = build_snapshot(reports=reports, averages=averages, wall_ms=now)
        item = PlanInput(snapshot=snapshot, params=Parameters(), memory=memory)
        memory = plan(item).memory
        yield item


def _report(number: int, rates: Floats, now: int) -> BrokerReport:
    names = tuple(
        f"t/ns{(number * len(rates) + row) // 65_535}/0x{((number * len(rates) + row) % 65_535) << 16:08x}"
        f"_0x{((number * len(rates) + row) % 65_535 + 1) << 16:08x}"
        for row in range(len(rates))
    )
    traffic = np.column_stack([rates, rates, rates * 10_000, rates * 10_000])
    total = traffic.sum(axis=0)
    return BrokerReport(
        broker_id=f"broker-{number:04d}:8080",
        usage=np.array([total[0] / 100, 100.0, total[2] / 125, total[3] / 125]),
        limit=np.array([800.0, 1000.0, 1e7, 1e7]),
        traffic=total,
        last_update=now,
        bundle_names=names,
        bundle_traffic=traffic,
        bundle_counts=np.ones((len(rates), 3), dtype=np.int64),
    )


if __name__ == "__main__":
    main()
