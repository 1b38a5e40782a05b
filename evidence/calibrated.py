"""Calibrate generated clusters: `python -m evidence.calibrated [--worlds N] [--days 14] [--write]`.

Each world belongs to a named family (dev/history_families.py), in turn. Its seed is derived from the hash of the
commit, so it was never used before. The search of the nightly job runs on the first days, and the proposal is measured
on the following week, which neither the search nor the judgement has seen. A world without a proposal counts as 0.
Pulsar's own classes run with their defaults. One process per core; results are stored, and a repeated run continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures, backtest
from bundlekeel.recalibration.backtest.choice import choose, of_days, ranked, split_days
from bundlekeel.recalibration.backtest.intervals import measures_of
from bundlekeel.recalibration.backtest.measures import RunDay
from bundlekeel.recalibration.backtest.run import DAY_MS, RECORDED
from bundlekeel.recalibration.backtest.search import NATIVES, SearchSpace, natives, search
from bundlekeel.recalibration.jobs.selection import SearchDepth
from bundlekeel.recalibration.rules.thresholds import EQUAL, MEASURES, AdoptionRules, HeldOutMeasures
from dev.history_families import FAMILIES, generated
from dev.history_model import World, dense
from dev.markdown import table

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "calibration.md"
# Days after those of the job, on which a proposal is measured.
AFTER: Final = 7
SHORT: Final = {"client_seconds_per_hour": "client-seconds", "moves_per_hour": "moves", "imbalance": "imbalance"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldResult:
    """Result of one world. `present`, `chosen`, `natives`: mean measures on the days after the job, by name.
    `overload`: lowest value of the interval of the difference of overloaded minutes per day. `seconds`: CPU seconds."""

    family: str
    seed: int
    decision: str
    present: Mapping[str, float]
    chosen: Mapping[str, float]
    natives: Mapping[str, Mapping[str, float]]
    overload: float
    seconds: float

    def change(self, name: str, other: Mapping[str, float] | None = None) -> float:
        """Return the change of a measure in percent, by the proposal or by `other`; 0 if it was 0 and stays 0."""
        before, after = self.present[name], (other or self.chosen)[name]
        return 100 * (after / before - 1) if before > 0 else (0.0 if after <= 0 else float("inf"))

    @property
    def worse(self) -> bool:
        """Whether the proposal made balance worse by more than 1 %, or certainly added overloaded minutes."""
        return self.change("imbalance") > 100 * EQUAL or self.overload > 0


def calibrate(family: str, seed: int, days: int, period: int, brokers: int) -> WorldResult:
    """Run the search of the nightly job on a world, and measure the proposal on the following days."""
    started, depth = time.process_time(), SearchDepth()
    world = World(seed=seed, days=days + AFTER, brokers=brokers, bundles=16 * brokers, period_seconds=period)
    inputs, costs = list(generated(family, world)), dense(world, 0, 1).costs
    first = world.start_ms // DAY_MS
    train, held_out = split_days(range(first, first + days), depth.held_out)
    after = range(first + days, first + days + AFTER)
    results: dict[str, dict[RunDay, CandidateMeasures]] = {}

    def add(candidates: Sequence[Candidate], placements: Sequence[int]) -> None:
        for row in backtest(inputs, candidates, costs, placements=placements, base=world.params):
            results.setdefault(row.candidate, {})[row.placement, row.day] = row.measures

    def evaluate(candidates: Sequence[Candidate]) -> dict[str, dict[RunDay, CandidateMeasures]]:
        add(candidates, (RECORDED,))
        return {item.key: dict(results[item.key]) for item in candidates}

    space = SearchSpace(base=world.params, reach=AdoptionRules().max_steps)
    tried = search(
        space, evaluate, days=train, prefer=depth.prefer, points=depth.points, rounds=depth.rounds, keep=depth.keep
    )
    best, present = ranked(tried, train, depth.prefer)[0], tried.candidates[tried.present]
    add(natives(), range(depth.placements))
    add(list({item.key: item for item in (present, best)}.values()), range(1, depth.placements))
    choice = choose(best, present, results, held_out, depth.prefer)
    later = {key: of_days(rows, after) for key, rows in results.items()}
    difference = measures_of(later[choice.candidate.key], seed=0, before=later[present.key])
    return WorldResult(
        family=family,
        seed=seed,
        decision=choice.decision,
        present=_means(measures_of(later[present.key], seed=0)),
        chosen=_means(measures_of(later[choice.candidate.key], seed=0)),
        natives={item.name: _means(measures_of(later[item.key], seed=0)) for item in natives()},
        overload=difference.overloaded_minutes_per_day.low,
        seconds=time.process_time() - started,
    )


def _means(measures: HeldOutMeasures) -> dict[str, float]:
    return {name: getattr(measures, name).mean for name in MEASURES}


def seed_of(commit: str, number: int) -> int:
    """Return the seed of a world, derived from the hash of the commit."""
    return int(hashlib.sha256(f"{commit}:{number}".encode()).hexdigest()[:8], 16)


def measured(commit: str, options: argparse.Namespace, store: Path) -> list[WorldResult]:
    """Calibrate all worlds that `store` (one JSON line per world) does not contain yet, and return all results."""
    store.parent.mkdir(parents=True, exist_ok=True)
    lines = store.read_text().splitlines() if store.exists() else []
    rows = [WorldResult(**json.loads(line)) for line in lines]
    names, ended = list(FAMILIES), {row.seed for row in rows}
    worlds = [(names[number % len(names)], seed_of(commit, number)) for number in range(options.worlds)]
    with ProcessPoolExecutor(os.cpu_count()) as pool, store.open("a") as file:
        runs = [
            pool.submit(calibrate, family, seed, options.days, options.period, options.brokers)
            for family, seed in worlds
            if seed not in ended
        ]
        for run in as_completed(runs):
            row = run.result()
            rows.append(row)
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
            print(f"{row.family}, seed {row.seed}, {row.seconds:.0f} s: {row.decision}", file=sys.stderr, flush=True)
    seeds = {seed for _, seed in worlds}
    return [row for row in rows if row.seed in seeds]


def lines_of(rows: Sequence[WorldResult], commit: str, days: int) -> list[str]:
    """Return the results as lines of a page."""
    lines = table(
        ["family", "worlds", "proposals", *(f"{name}, median (worst)" for name in SHORT.values()), "became worse"],
        [_row(family, [row for row in rows if row.family == family]) for family in (*FAMILIES, "")],
    )
    heads = ["", *(f"{name}, median (worst)" for name in SHORT.values())]
    compared = [
        [name, *(_spread([row.change(item, row.natives[name]) for row in rows]) for item in SHORT)] for name in NATIVES
    ]
    share = sum(row.worse for row in rows) / max(1, len(rows))
    return [
        f"{len(rows)} worlds of {days} days, seeds from commit {commit[:12]}; changes on the {AFTER} days after them, "
        f"in percent of the present settings. {share:.0%} of the worlds became worse: more than {EQUAL:.0%} imbalance, "
        "or certainly more overloaded minutes.",
        "",
        *lines,
        "",
        "Pulsar's own classes with their defaults, compared with Bundlekeel's present settings:",
        "",
        *table(heads, compared),
    ]


def _row(family: str, rows: Sequence[WorldResult]) -> list[object]:
    proposals = sum(not row.decision.startswith("keep") for row in rows)
    cells = [_spread([row.change(name) for row in rows]) for name in SHORT]
    return [family or "all", len(rows), proposals, *cells, sum(row.worse for row in rows)]


def _spread(changes: Sequence[float]) -> str:
    return f"{np.median(changes):+z.1f} % ({max(changes):+z.1f} %)" if changes else "-"


def page(rows: Sequence[WorldResult], commit: str, days: int) -> str:
    """Return the text of docs/reference/calibration.md."""
    assert __doc__ is not None
    head = [
        "# Calibration of generated clusters",
        "",
        "Written by `python -m evidence.calibrated --write`; do not edit.",
    ]
    return "\n".join([*head, "", __doc__.partition("\n\n")[2].strip(), "", *lines_of(rows, commit, days)]) + "\n"


def main() -> int:
    """Calibrate and print. With `--write`, also write docs/reference/calibration.md. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evidence.calibrated", description=__doc__)
    parser.add_argument("--worlds", type=int, default=30, metavar="N", help="number of worlds (30)")
    parser.add_argument("--days", type=int, default=14, metavar="N", help="recorded days of each world (14)")
    parser.add_argument("--period", type=int, default=60, metavar="SECONDS", help="time between two cycles (60)")
    parser.add_argument("--brokers", type=int, default=6, metavar="N", help="brokers of each world (6)")
    parser.add_argument("--commit", default="", help="hash to derive seeds from; default: that of HEAD")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    command = ["git", "rev-parse", "HEAD"]
    head = options.commit or subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    commit = head.strip()
    store = ROOT / ".run" / "calibrated" / f"{commit[:12]}-{options.days}-{options.period}-{options.brokers}.jsonl"
    rows = measured(commit, options, store)
    print("\n".join(lines_of(rows, commit, options.days)))
    if options.write:
        PAGE.write_text(page(rows, commit, options.days), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
