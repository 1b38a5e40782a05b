"""Is a calibration worth it? `python -m dev.calibrated [--worlds 10] [--days 14] [--write]`.

Made-up worlds, each from its seed, of different sizes, noise, spikes and growth. In each the search of the nightly job
looks at the first days; what it proposes within some nights' steps is judged on the held-out ones, beside the default
settings: imbalance (time mean of max/mean - 1) and moves a day. Both go through the same traffic from the same
beginnings. What a world came to is kept in `--folder`, so that a run can be broken off and gone on with. Exit code 1: a
world's imbalance is more than 1 % worse than with the defaults, or the median world saves less than 15 % of the moves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import numpy as np

from bundlekeel.core.load import Ints
from bundlekeel.core.thresholds import EQUAL, Rules
from bundlekeel.jobs.choosing import adoptable
from bundlekeel.sim.backtest import Candidate, Measures, backtest
from bundlekeel.sim.backtest.choice import choose, split_days
from bundlekeel.sim.backtest.search import Space, search
from bundlekeel.sim.backtest.traffic import Chunk, chunks
from dev.history_model import World, dense
from dev.history_worlds import steps

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "calibration.md"
FEWER: Final = 0.15
# As the nightly job cuts history.
BLOCK_S: Final = 6 * 3600
WARM_S: Final = 3600
# What the default strategy itself reads; split limits and weights have nothing to do in these worlds.
NAMES: Final = (
    *("avg_low_threshold_percent", "avg_hit_count_low", "avg_low_floor_percent", "avg_high_threshold_percent"),
    *("avg_high_ratio", "avg_hit_count_high", "max_unload_ratio", "min_unload_share", "cool_down_seconds"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it: days, seconds between two pictures, points a parameter, rounds of refinement, how many of the
    best these go on from, and after how many nights' steps the settings are judged."""

    days: int
    period_seconds: int
    points: int
    rounds: int
    keep: int
    nights: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One world: what it is like, and both settings on its held-out days. `moves`: a day."""

    seed: int
    about: str
    candidates: int
    held_out: int
    imbalance: float
    calibrated_imbalance: float
    moves: float
    calibrated_moves: float
    changes: Mapping[str, Any]
    reason: str
    cpu_seconds: float

    @property
    def worse(self) -> float:
        """By which share imbalance is worse; below 0: better."""
        return self.calibrated_imbalance / self.imbalance - 1 if self.imbalance else 0.0

    @property
    def fewer(self) -> float:
        """Which share of the moves is saved."""
        return 1 - self.calibrated_moves / self.moves if self.moves else 0.0


def world_of(seed: int, size: Size) -> World:
    """The world of a seed: everything about it is drawn."""
    rng = np.random.default_rng([seed, 2024])
    return World(
        seed=seed,
        days=size.days,
        brokers=int(rng.integers(4, 13)),
        bundles=int(rng.integers(96, 321)),
        period_seconds=size.period_seconds,
        load=float(rng.uniform(0.25, 0.5)),
        daily=float(rng.uniform(0.2, 0.7)),
        weekly=float(rng.uniform(0.0, 0.5)),
        growth=float(rng.uniform(-0.005, 0.02)),
        noise=float(rng.uniform(0.05, 0.3)),
        zipf=float(rng.uniform(0.5, 1.0)),
        spiky=int(rng.integers(0, 4)),
        unequal=float(rng.choice([0.0, 0.0, 0.3])),
    )


def about(world: World) -> str:
    """What is particular about it."""
    told = f"{world.brokers} x {world.bundles}, noise {world.noise:.2f}, zipf {world.zipf:.2f}, {world.spiky} spiky"
    return f"{told}, brokers differ" if world.unequal else told


def owners_of(world: World) -> list[Ints]:
    """Where each bundle was at the beginning of every block while the default settings ran, from the first day on."""
    every = BLOCK_S // world.period_seconds
    # A split would leave halves that the next block does not know.
    whole = replace(world, params=replace(world.params, split_enabled=False))
    found: list[Ints] = []
    for number, step in enumerate(steps(whole)):
        if number % every == 0:
            assert step.given is not None
            bundles = step.given.snapshot.bundles
            found.append(bundles.owner[np.argsort(np.array(bundles.names))])
    return found


def blocks_of(world: World) -> Iterator[Chunk]:
    """The world as the nightly job cuts it: blocks that begin where bundles were recorded to be, the first hour of
    which (of the block before) warms up. Every candidate plays all blocks."""
    whole, length, warm = dense(world), BLOCK_S // world.period_seconds, WARM_S // world.period_seconds
    for number, (chunk, owner) in enumerate(zip(chunks(whole, length, warm), owners_of(world), strict=True)):
        begin = number * length - chunk.warm
        made = dense(world, begin, begin + chunk.traffic.periods, owner)
        given = chunk.traffic
        yield replace(chunk, traffic=replace(made, short=given.short, long=given.long, samples=given.samples))


def calibrated(seed: int, size: Size) -> Row:
    """Search on the first days of a world, choose, and judge on the last ones."""
    started, world = time.process_time(), world_of(seed, size)
    blocks = list(blocks_of(world))
    day_of = [int(block.traffic.days[-1]) for block in blocks]
    train, held = (_numbers(day_of, days) for days in split_days(day_of))

    def evaluate(candidates: Sequence[Candidate]) -> Mapping[str, Mapping[int, Measures]]:
        found: dict[str, dict[int, Measures]] = {}
        for number, block in enumerate(blocks):
            for row in backtest(block.traffic, candidates, warm=block.warm):
                numbers = found.setdefault(row.candidate, {})
                numbers[number] = numbers.get(number, Measures()) + row.measures
        return found

    space = Space(base=world.params, strategies=("avg",), names=NAMES, reach=size.nights * Rules().max_steps, cycles=())
    tried = adoptable(search(space, evaluate, blocks=train, points=size.points, rounds=size.rounds, keep=size.keep))
    choice = choose(tried, world.params, train=train, held=held)
    return Row(
        seed=seed,
        about=about(world),
        candidates=len(tried.candidates),
        held_out=len({day_of[number] for number in held}),
        imbalance=choice.present.imbalance,
        calibrated_imbalance=choice.chosen.imbalance,
        moves=choice.present.moves_per_day,
        calibrated_moves=choice.chosen.moves_per_day,
        changes=choice.candidate.changes,
        reason=choice.reason,
        cpu_seconds=time.process_time() - started,
    )


def _numbers(day_of: Sequence[int], days: Collection[int]) -> list[int]:
    """Blocks of these days."""
    return [number for number, day in enumerate(day_of) if day in days]


def rows_of(seeds: Sequence[int], size: Size, folder: Path, workers: int) -> list[Row]:
    """Every world, those that are kept in the folder read from there."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {seed: folder / f"{seed}-{'-'.join(map(str, asdict(size).values()))}.json" for seed in seeds}
    found = {seed: Row(**json.loads(path.read_text())) for seed, path in kept.items() if path.exists()}
    with ProcessPoolExecutor(workers) as pool:
        waiting = {pool.submit(calibrated, seed, size): seed for seed in seeds if seed not in found}
        for done in as_completed(waiting):
            row = found[waiting[done]] = done.result()
            kept[row.seed].write_text(json.dumps(asdict(row)))
            print(f"world {row.seed} ({row.about}): {row.reason}; {row.cpu_seconds:.0f} s of CPU", flush=True)
    return [found[seed] for seed in sorted(found)]


def faults(rows: Sequence[Row]) -> list[str]:
    """What does not hold, in sentences."""
    found = [f"world {row.seed}: imbalance is {row.worse:.1%} worse" for row in rows if row.worse > EQUAL]
    middle = statistics.median(row.fewer for row in rows)
    if middle < FEWER:
        found.append(f"the median world saves {middle:.0%} of the moves, at least {FEWER:.0%} are wanted")
    return found


def table_of(rows: Sequence[Row]) -> list[str]:
    """As lines of a page."""
    lines = [
        "| seed | brokers x bundles, what is particular | imbalance | calibrated | worse by |"
        " moves a day | calibrated | fewer | what changes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        said = ", ".join(f"`{name}` {value:g}" for name, value in sorted(row.changes.items())) or "nothing"
        lines.append(
            f"| {row.seed} | {row.about} | {row.imbalance:.4f} | {row.calibrated_imbalance:.4f} | {row.worse:+.1%} |"
            f" {row.moves:.1f} | {row.calibrated_moves:.1f} | {row.fewer:.0%} | {said} |"
        )
    middle = statistics.median(row.fewer for row in rows)
    most = max(row.worse for row in rows)
    return [*lines, "", f"Median: {middle:.0%} fewer moves. Largest loss of balance: {most:+.2%}."]


def page(rows: Sequence[Row], size: Size) -> str:
    """docs/reference/calibration.md."""
    most = max(row.candidates for row in rows)
    told = (
        f"{len(rows)} made-up worlds of {size.days} days, a picture each {size.period_seconds} s. The nightly job's"
        f" search (up to {most} candidates, within what {size.nights} nights may change) sees the first days; the"
        f" figures are of the {rows[0].held_out} held-out ones: the default settings beside the calibrated ones, on the"
        " same traffic. Imbalance is the time mean of max/mean - 1."
    )
    parts = [
        "# What a calibration is worth",
        "",
        "Written by `python -m dev.calibrated --write`; do not edit.",
        "",
        *wrap(told, 120),
        "",
        *table_of(rows),
        "",
        f"It took {sum(row.cpu_seconds for row in rows) / 60:.0f} minutes of one core.",
    ]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Run, print, and with `--write` renew the page; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.calibrated", description=__doc__)
    parser.add_argument("--worlds", type=int, default=10, help="seeds 1 to so many")
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--period", type=int, default=300, help="seconds between two pictures")
    parser.add_argument("--points", type=int, default=5, help="values a parameter in the first round")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of refinement")
    parser.add_argument("--keep", type=int, default=2, help="how many of the best they go on from")
    parser.add_argument("--nights", type=int, default=2, help="how many nights' steps a setting may be away")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / ".run" / "calibrated", help="where worlds are kept")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    size = Size(
        days=given.days,
        period_seconds=given.period,
        points=given.points,
        rounds=given.rounds,
        keep=given.keep,
        nights=given.nights,
    )
    rows = rows_of(range(1, given.worlds + 1), size, given.folder, given.workers)
    print("\n".join(table_of(rows)))
    if given.write:
        PAGE.write_text(page(rows, size), encoding="utf-8")
    for text in (wrong := faults(rows)):
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
