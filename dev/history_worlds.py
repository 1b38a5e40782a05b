"""Generate history: days of a cluster with daily patterns, growth, noise and spikes, in the schema of real history.

`python -m dev.history_worlds --days N --brokers B --bundles M --seed S --uri URI [--cluster NAME] [--flicker F]
[--counters N] [--parameter NAME=VALUE] [--recent] [--poison KIND]`

`dense` returns a generated cluster (`World`) as arrays, without files. `write` simulates the balancer on this cluster,
and the real adapters write its inputs and plans into files. Each file contains one hour, like real files after
compaction. The same seed gives the same history. `--flicker` is the noise of a bundle's traffic from snapshot to
snapshot, as a part of its hourly noise. `POISONS` are faults in the history, for tests of the jobs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from bundlekeel.model.averages import Averages
from bundlekeel.model.load import CPU, RESOURCES
from bundlekeel.model.parameters import Parameters, coerce
from bundlekeel.planning.engine import PlanInput
from bundlekeel.recalibration.backtest import Candidate, CandidateRun, CandidateStep
from bundlekeel.recalibration.backtest.events import events_of, usage_per_unit
from bundlekeel.recalibration.history.frames import frame_of, outcome_of
from bundlekeel.recalibration.history.ports import HOUR_MS
from bundlekeel.recalibration.history.record import SCHEMA, Frame, HistoryRecord, recorded
from bundlekeel.recalibration.parquet import ParquetStore
from dev.history_model import DAY_S, World, dense, inputs_of

__all__ = ["POISONS", "World", "dense", "records", "steps", "write"]


POISONS: Final = (
    *("missing_hours", "nan", "negative", "duplicates", "future_schema", "zero_day", "lying_broker", "torn"),
    "clock_back",
)


class _Bad:
    """A fault in the history. It affects the middle day: six hours from 06:00 UTC on, or the whole day."""

    def __init__(self, world: World, kind: str) -> None:
        self.world, self.kind = world, kind
        self._day = world.days // 2

    @property
    def date(self) -> str:
        return str(np.datetime64(self.world.start_ms + self._day * DAY_S * 1000, "ms"))[:10]

    def hour(self, wall_ms: int) -> bool:
        day, rest = divmod(wall_ms - self.world.start_ms, DAY_S * 1000)
        return day == self._day and 6 <= rest // HOUR_MS < 12

    def frame(self, number: int, frame: Frame) -> Frame:
        """Return the recorded snapshot (frame) of period `number`, with the fault if it affects that period."""
        wall_ms = self.world.start_ms + number * self.world.period_seconds * 1000
        day = (wall_ms - self.world.start_ms) // (DAY_S * 1000)
        brokers, bundles = frame.brokers.floats.copy(), frame.bundles.floats.copy()
        if self.kind == "clock_back" and self.hour(wall_ms):
            return replace(frame, document=frame.document | {"wall_ms": wall_ms - HOUR_MS})
        if self.kind == "nan" and self.hour(wall_ms):
            brokers[0, CPU] = np.nan
            bundles[::7, 0] = np.nan
        elif self.kind == "negative" and self.hour(wall_ms):
            bundles[::5, 0:4] *= -1
        elif self.kind == "zero_day" and day == self._day:
            brokers[:, : len(RESOURCES)] = 0.0
            brokers[:, 2 * len(RESOURCES) :] = 0.0
            bundles[:, 0:4] = 0.0
        elif self.kind == "lying_broker" and day == self._day:
            brokers[-1, CPU] = 0.01
        else:
            return frame
        return replace(
            frame, brokers=replace(frame.brokers, floats=brokers), bundles=replace(frame.bundles, floats=bundles)
        )


def steps(world: World) -> Iterator[CandidateStep]:
    """Run the balancer on the generated traffic. Yield every period with the balancer's input and plan."""
    params = world.params if world.recording else replace(world.params, max_moves_per_cycle=0, split_enabled=False)
    averages, costs = Averages(), dense(world, 0, 1).costs

    def generated() -> Iterator[PlanInput]:
        # A day at a time, because the arrays of many days are large.
        for day in range(world.days):
            yield from inputs_of(dense(world, day * world.periods_a_day, (day + 1) * world.periods_a_day), averages)

    run: CandidateRun | None = None
    for event in events_of(generated()):
        run = run or CandidateRun(event, Candidate(name="recorded"), params, digests=True)
        yield run.step(event, usage_per_unit(costs, event.inputs.snapshot.brokers))


def records(world: World, poison: Callable[[int, Frame], Frame] = lambda _, frame: frame) -> Iterator[HistoryRecord]:
    """Yield the history records of the run: a complete snapshot at the start of each hour, then only changes.

    `poison`: function that can add a fault to a snapshot (frame); it gets the number of the period and the frame.
    """
    before: tuple[int, Frame] | None = None
    hour = -1
    for number, step in enumerate(steps(world)):
        if step.inputs is None or step.result is None:
            continue
        frame = poison(number, frame_of(step.inputs))
        if step.wall_ms // HOUR_MS != hour:
            before, hour = None, step.wall_ms // HOUR_MS
        cycle = number + 1
        outcome = outcome_of(step.result, {"cycle": cycle}, acted=bool(step.result.plan.moves), software="made up")
        yield recorded(before, frame, epoch=1, cycle=cycle, outcome=outcome)
        before = cycle, frame


def write(world: World, place: str | Path, *, poison: str = "", cluster: str = "") -> ParquetStore:
    """Write all days below a directory or URI. `poison`: one of `POISONS`, empty: no fault. `cluster`: the cluster name
    in the files, empty: no name. Raises ValueError if `poison` is unknown.
    """
    if poison and poison not in POISONS:
        raise ValueError(f"{poison!r} is none of {', '.join(POISONS)}")
    store, bad = ParquetStore(place, cluster), _Bad(world, poison)
    waiting: list[HistoryRecord] = []
    for record in records(world, bad.frame):
        if waiting and record.wall_ms // HOUR_MS != waiting[0].wall_ms // HOUR_MS:
            _publish(store, waiting, bad)
            waiting = []
        waiting.append(record)
    if waiting:
        _publish(store, waiting, bad)
    if poison == "torn":
        _tear(place, store, bad)
    return store


def _publish(store: ParquetStore, together: list[HistoryRecord], bad: _Bad) -> None:
    """Write the records of one hour as one file, with the fault if it affects this hour."""
    seq = together[0].wall_ms // HOUR_MS - bad.world.start_ms // HOUR_MS + 1
    here = bad.hour(together[0].wall_ms)
    if here and bad.kind == "missing_hours":
        return
    if here and bad.kind == "future_schema":
        together = [replace(record, schema=SCHEMA + 1) for record in together]
    store.publish(1, seq, together)
    if here and bad.kind == "duplicates":
        store.publish(1, seq + 100_000, together)


def _tear(place: str | Path, store: ParquetStore, bad: _Bad) -> None:
    """Delete the second half of the first file of the day with the fault; only in a local directory."""
    file = next(item for item in store.files() if item.date == bad.date)
    path = Path(str(place).removeprefix("file://")) / file.path
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def main() -> None:
    """Write the history of a generated cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--recent", action="store_true", help="the last days up to midnight, UTC; else days of 2023")
    parser.add_argument("--brokers", type=int, default=10)
    parser.add_argument("--bundles", type=int, default=200, help="number in the whole cluster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--period", type=int, default=60, help="seconds between two records")
    parser.add_argument("--counters", type=int, default=0, help="read each broker's counters in every N-th record")
    parser.add_argument(
        "--flicker",
        type=float,
        default=World().flicker,
        help="noise from snapshot to snapshot, part of the hourly noise",
    )
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="NAME=VALUE", help="parameter of the balancer"
    )
    parser.add_argument("--uri", required=True)
    parser.add_argument("--cluster", default="", help="cluster name in the files")
    parser.add_argument("--poison", choices=("", *POISONS), default="")
    options = parser.parse_args()
    pairs = (item.split("=", 1) for item in options.parameter)
    changed: dict[str, Any] = {name: coerce(name, value) for name, value in pairs}
    midnight_ms = int(time.time() // DAY_S - options.days) * DAY_S * 1000
    world = World(
        seed=options.seed,
        days=options.days,
        start_ms=midnight_ms if options.recent else World().start_ms,
        brokers=options.brokers,
        bundles=options.bundles,
        period_seconds=options.period,
        flicker=options.flicker,
        reading_periods=options.counters or 1,
        counters=options.counters > 0,
        params=replace(Parameters(), **changed),
    )
    files = write(world, options.uri, poison=options.poison, cluster=options.cluster).files()
    print(f"{len(files)} files, {sum(file.size for file in files):,} bytes in {options.uri}")


if __name__ == "__main__":
    main()
