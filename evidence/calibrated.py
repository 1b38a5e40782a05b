"""Calibrate generated clusters: `python -m evidence.calibrated [--worlds N] [--write]`.

A world is a generated cluster of 6 brokers and 96 bundles. Each belongs to a named family (dev/history_families.py), in
turn. Its seed is derived from the hash of a commit and was never used before. Settings are the defaults.

- **Days.** The search of the nightly job uses the first 7 days, and the next 3 judge its best candidate. This page
  contains only the last 4 days, which neither has used. Runs are unbroken. Without a proposal, the change counts as 0.
- **Costs.** Search and judgement use the CPU costs of traffic that the present settings have learned by the end of the
  search. The reported days use the true costs of the world.
- **Cycles.** The load of a world changes once per period of five minutes. Each period is one reading of all brokers and
  one cycle. The daemon reads more often, but its decision rule counts measured seconds and not readings. So more cycles
  within a period would see the same load, and could only start the same moves up to five minutes earlier.
- **Pulsar's own classes** run with their defaults, once per minute, on the same load with a period of 60 s. Their runs
  begin two days before the reported ones, with the same owners as the first day.
- **Intervals** of 95 % are a bootstrap over worlds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from scipy import stats

from bundlekeel.planning.engine import PlanInput
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures, backtest
from bundlekeel.recalibration.backtest.choice import choose, of_days, ranked
from bundlekeel.recalibration.backtest.intervals import measures_of
from bundlekeel.recalibration.backtest.measures import RunDay
from bundlekeel.recalibration.backtest.run import DAY_MS, RECORDED, CandidateStep
from bundlekeel.recalibration.backtest.search import PRESENT, SearchDepth, SearchSpace, natives, pilot_days, search
from bundlekeel.recalibration.rules.thresholds import EQUAL, MEASURES, AdoptionRules
from dev.history_families import FAMILIES, generated
from dev.history_model import START_MS, World, dense
from dev.markdown import table
from evidence import recorded_hour

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "calibration.md"
STORE: Final = Path(__file__).with_name("calibration.jsonl")
WORLD: Final = World(days=14, brokers=6, bundles=96, period_seconds=300)
NATIVE_WORLD: Final = replace(WORLD, period_seconds=60)
DAYS: Final = tuple(range(START_MS // DAY_MS, START_MS // DAY_MS + WORLD.days))
SEARCHED, JUDGED, REPORTED = DAYS[:7], DAYS[7:10], DAYS[10:]
HEADS: Final = dict(
    zip(MEASURES, ("imbalance", "moves per hour", "client-seconds per hour", "overloaded min/day"), strict=True)
)
Results = dict[str, dict[RunDay, CandidateMeasures]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldResult:
    """Result of one world. `commit`: source of the seed. `code`: git hash of the measured service. `means`: of the
    reported days, by settings (`present`, `chosen`, Pulsar's classes) and name of the measure. `overload`: lower end of
    the interval by which the proposal adds overloaded minutes per day. `tested`: number of candidates. `plans`: number
    of plans. `seconds`: CPU seconds."""

    commit: str
    code: str
    number: int
    family: str
    decision: str
    means: Mapping[str, Mapping[str, float]]
    overload: float
    tested: int
    plans: float
    seconds: float

    def change(self, name: str) -> float:
        """Return the change of a measure by the proposal, in percent; overloaded minutes: the difference."""
        before, after = self.means["present"][name], self.means["chosen"][name]
        if name == "overloaded_minutes_per_day" or before == after:
            return after - before
        return 100 * (after / before - 1) if before > 0 else float("inf")

    @property
    def worse(self) -> bool:
        """Whether the proposal made balance or client-seconds worse by more than 1 %, or certainly added overloaded
        minutes."""
        rises = (self.change(name) > 100 * EQUAL for name in ("imbalance", "client_seconds_per_hour"))
        return any(rises) or self.overload > 0


class Runs:
    """Back-tests of one world. `results`: measures by candidate, then by run and day."""

    def __init__(self, family: str, seed: int) -> None:
        self.family, self.world = family, replace(WORLD, seed=seed)
        self.inputs = list(generated(family, self.world))
        self.costs = self.learned = dense(self.world, 0, 1).costs
        self.results: Results = {}
        self.plans = 0.0

    def learn(self, last: int) -> None:
        """Use the costs that the present settings have learned by the end of the day `last` for all later runs."""
        self.run([PRESENT], last)
        self.costs = self.learned
        self.results.clear()

    def _follow(self, _: Candidate, step: CandidateStep) -> None:
        if step.result is not None:
            self.learned = step.result.memory.costs

    def run(
        self, candidates: Sequence[Candidate], last: int, first: int = DAYS[0], placements: Sequence[int] = (RECORDED,)
    ) -> Results:
        """Run candidates on the days `first` to `last`. Returns only these results."""
        inputs: Iterable[PlanInput] = self.inputs
        if "compat" in candidates[0].changes:
            inputs = generated(self.family, replace(NATIVE_WORLD, seed=self.world.seed))
        days = (item for item in inputs if first <= item.snapshot.wall_ms // DAY_MS <= last)
        results: Results = {}
        for row in backtest(
            days, candidates, self.costs, placements=placements, base=self.world.params, observe=self._follow
        ):
            results.setdefault(row.candidate, {})[row.placement, row.day] = row.measures
            self.results.setdefault(row.candidate, {})[row.placement, row.day] = row.measures
            self.plans += row.measures.plans
        return results


def calibrate(commit: str, code: str, number: int) -> WorldResult:
    """Run the search of the nightly job on a world, and measure the proposal on the last days."""
    started, depth, family = time.process_time(), SearchDepth(), list(FAMILIES)[number % len(FAMILIES)]
    runs = Runs(family, int(hashlib.sha256(f"{commit}:{number}".encode()).hexdigest()[:8], 16))
    costs = runs.costs
    runs.learn(SEARCHED[-1])
    tried = search(
        SearchSpace(base=WORLD.params, reach=AdoptionRules().max_steps),
        lambda candidates: runs.run(candidates, SEARCHED[-1]),
        lambda candidates: runs.run(candidates, pilot_days(SEARCHED)[-1]),
        days=SEARCHED,
        depth=depth,
    )
    best, present = ranked(tried, SEARCHED, depth.prefer)[0], tried.candidates[tried.present]
    finalists = list({item.key: item for item in (present, best)}.values())
    runs.run(finalists, JUDGED[-1])
    runs.run(finalists, JUDGED[-1], SEARCHED[-1], range(1, depth.placements))
    choice = choose(best, present, runs.results, JUDGED, depth.prefer)
    runs.costs = costs
    runs.run(list({item.key: item for item in (present, choice.candidate)}.values()), DAYS[-1])
    runs.run(natives(), DAYS[-1], JUDGED[-2])
    settings = {"present": present, "chosen": choice.candidate, **{item.name: item for item in natives()}}
    later = {name: of_days(runs.results[item.key], REPORTED, RECORDED) for name, item in settings.items()}
    measures = {name: measures_of(days, seed=0) for name, days in later.items()}
    overload = measures_of(later["chosen"], seed=0, before=later["present"]).overloaded_minutes_per_day
    return WorldResult(
        commit=commit,
        code=code,
        number=number,
        family=family,
        decision=choice.decision,
        means={name: {item: getattr(row, item).mean for item in MEASURES} for name, row in measures.items()},
        overload=overload.low,
        tested=len(tried.candidates),
        plans=runs.plans,
        seconds=time.process_time() - started,
    )


def stored(path: Path) -> list[WorldResult]:
    """Return the results in a file with one JSON line per world."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [WorldResult(**json.loads(line)) for line in lines]


def measured(commit: str, worlds: int, processes: int, path: Path) -> list[WorldResult]:
    """Calibrate all worlds of this commit that the file `path` does not contain yet, and return all results.

    Ends the program if the service differs from that of the stored results, or has changes without a commit.
    """
    code, changed = _git("rev-parse", "HEAD:service"), _git("status", "--porcelain", "service")
    rows = [row for row in stored(path) if row.commit == commit]
    if changed or any(row.code != code for row in rows):
        sys.exit("the service has changed since the stored results: commit it, and use --commit with a newer hash")
    numbers = set(range(worlds)) - {row.number for row in rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes) as pool, path.open("a", encoding="utf-8") as file:
        for run in as_completed([pool.submit(calibrate, commit, code, number) for number in sorted(numbers)]):
            row = run.result()
            rows.append(row)
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
            print(f"{row.number} {row.family}, {row.seconds:.0f} s: {row.decision}", file=sys.stderr, flush=True)
    return sorted(rows, key=lambda row: row.number)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def lines_of(rows: Sequence[WorldResult]) -> list[str]:
    """Return the results as lines of a page."""
    families = [_family(name, [row for row in rows if row.family == name]) for name in FAMILIES]
    names = {"present": "Bundlekeel, defaults", "chosen": "Bundlekeel, calibrated"}
    absolute = [
        [names.get(name, name), *(_interval([row.means[name][item] for row in rows]) for item in MEASURES)]
        for name in rows[0].means
    ]
    share = sum(row.worse for row in rows) / len(rows)
    return [
        f"{len(rows)} worlds of {WORLD.days} days, seeds from {rows[0].commit[:12]}. {100 * share:.0f} % of them "
        f"became worse: more than {100 * EQUAL:.0f} % imbalance or client-seconds, or certainly more overloaded "
        "minutes.",
        "",
        "## Change by the proposals",
        "",
        "In percent of the defaults; overloaded minutes: the difference.",
        "",
        *table(
            ["", *HEADS.values()], [["median, worst", *(_interval([row.change(n) for row in rows]) for n in MEASURES)]]
        ),
        "",
        "Median (worst) by family:",
        "",
        *table(["family", "worlds", "proposals", *HEADS.values(), "became worse"], families),
        "",
        "## Compared with Pulsar's own classes",
        "",
        "Imbalance: max/mean of the scores, minus 1.",
        "",
        *table(["median, worst", *HEADS.values()], absolute),
    ]


def _family(name: str, rows: Sequence[WorldResult]) -> list[object]:
    proposals = sum(not row.decision.startswith("keep") for row in rows)
    cells = [_spread([row.change(item) for row in rows]) for item in MEASURES]
    return [name, len(rows), proposals, *cells, sum(row.worse for row in rows)]


def _interval(values: Sequence[float]) -> str:
    """Return the median with its bootstrap interval, and the highest value."""
    low = high = median = float(np.median(values))
    if len(values) > 1:
        found = stats.bootstrap((values,), np.median, method="percentile", rng=0).confidence_interval
        low, high = float(found.low), float(found.high)
    return f"{median:.3g} ({low:.3g} to {high:.3g}), {max(values):.3g}"


def _spread(changes: Sequence[float]) -> str:
    return f"{np.median(changes):+.3g} ({max(changes):+.3g})" if changes else "-"


def page(rows: Sequence[WorldResult]) -> str:
    """Return the text of docs/reference/calibration.md."""
    assert __doc__ is not None
    head = [
        "# Calibration of generated clusters",
        "",
        "Written by `python -m evidence.calibrated --write`; do not edit.",
    ]
    hour = [
        "## An hour of a real cluster",
        "",
        "Not generated: three brokers with a quarter of a core each, whose load was shuffled every ten minutes. The "
        "sidecar's history was back-tested from its first cycle (`python -m evidence.recorded_hour`). *Same owners*: "
        "share of the cycles in which the back-test had every bundle at its real broker.",
        "",
        *recorded_hour.lines_of(recorded_hour.read_results()),
    ]
    return "\n".join([*head, "", __doc__.partition("\n\n")[2].strip(), "", *lines_of(rows), "", *hour]) + "\n"


def main() -> int:
    """Calibrate and print. With `--write`, also write docs/reference/calibration.md. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evidence.calibrated", description=__doc__)
    parser.add_argument("--worlds", type=int, default=30, metavar="N", help="number of worlds (30)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="worlds at the same time (1)")
    parser.add_argument("--commit", default="", help="hash to derive seeds from; default: that of the results, or HEAD")
    parser.add_argument("--store", type=Path, default=STORE, help="results, one JSON line per world")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    commit = options.commit or next((row.commit for row in stored(options.store)[-1:]), _git("rev-parse", "HEAD"))
    rows = measured(commit, options.worlds, options.processes, options.store)
    print("\n".join(lines_of(rows)))
    if options.write:
        PAGE.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
