"""The tables of `evidence.decision_figures`.

A cell is a simulated situation with one balancer; it is run once per seed. A section is the text of a table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from bundlekeel.model.load import Floats
from bundlekeel.model.parameters import Parameters
from bundlekeel.planning.calm import PLAN_MOVES
from bundlekeel.simulator.pairs import native
from bundlekeel.simulator.run import DEFAULT, Simulation
from bundlekeel.simulator.sim_files import suite
from bundlekeel.simulator.virtual_time import run_virtually
from dev.markdown import table
from evidence import decision_worlds as worlds
from evidence.decision_models import QuickModel, play_simulated
from evidence.decision_worlds import Moved, World

# Results of one run by name; None: the event, such as a first move, did not happen.
Figures = dict[str, float | None]
Cell = tuple[str, Callable[[int], Figures]]
COUNTERS, REPORTS, NATIVE = "counters", "reports", "AvgShedder"
# Load reports are a minute old, so steps of 5 s are exact enough.
REPORT_TICK: Final = 5.0
EVEN, EVEN_SECONDS = 1.25, 5


@dataclass
class Results:
    """Stored results of one table, by cell (a situation with one balancer) and seed. `misses`: a sentence for each goal
    that was not reached.
    """

    path: Path
    seeds: Sequence[int]
    stored: dict[str, dict[str, Figures]] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)

    def load(self) -> Results:
        """Read the results that earlier runs stored."""
        if self.path.exists():
            self.stored = json.loads(self.path.read_text(encoding="utf-8"))
        return self

    def runs(self, key: str) -> list[Figures]:
        """Return the stored results of the cell `key`, one per seed."""
        by_seed = self.stored.get(key, {})
        return [by_seed[str(seed)] for seed in self.seeds if str(seed) in by_seed]

    def run(self, cells: Iterable[Cell]) -> None:
        """Run the cells that have no stored result, seed by seed, and store each result."""
        listed = list(cells)
        missing = [
            (seed, key, function)
            for seed in self.seeds
            for key, function in listed
            if str(seed) not in self.stored.get(key, {})
        ]
        saved = began = time.monotonic()
        for number, (seed, key, function) in enumerate(missing, start=1):
            self.stored.setdefault(key, {})[str(seed)] = function(seed)
            if time.monotonic() - saved > 10 or number == len(missing):
                saved = time.monotonic()
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(json.dumps(self.stored), encoding="utf-8")
                spent = f"{saved - began:.0f} s"
                print(f"{self.path.stem}: {number} of {len(missing)}, {spent}, {key}, seed {seed}", flush=True)


def _values(runs: Sequence[Figures], name: str) -> list[float]:
    return [np.inf if (value := item[name]) is None else value for item in runs]


def _spread(values: Sequence[float], digits: int = 0) -> str:
    texts = ["never" if np.isinf(value) else f"{value:.{digits}f}" for value in (median(values), max(values))]
    return " / ".join(texts)


def play(world: World, who: str, seed: int) -> list[Moved]:
    """Return the moves of one balancer (`who`) in a world."""
    if who == COUNTERS:
        return QuickModel(world).play()
    contender = native("avg") if who == NATIVE else replace(DEFAULT, source="reports")
    return play_simulated(world, seed, contender, REPORT_TICK)


# --- steps ---

STEPS: Final = [(brokers, factor) for brokers in (3, 10, 30) for factor in (3.0, 2.0, 1.5, 1.3)]
# Goals by size of step: moves of the version before this rule (30229c51), and the longest accepted median in seconds.
EARLIER_MOVES: Final = dict(zip(STEPS, (11, 6, 3, 3, 14, 10, 7, 3), strict=False))
GOAL_SECONDS: Final = {(3, 3.0): 16.0, (3, 2.0): 20.0}


def step_cells() -> Iterator[Cell]:
    """Yield one simulation for each number of brokers and each factor by which a broker's load increases."""
    for brokers, factor in STEPS:
        yield f"{brokers} {factor}", partial(_step, brokers, factor)


def _step(brokers: int, factor: float, seed: int) -> Figures:
    world = worlds.step(brokers, factor, seed)
    return step_figures(world, QuickModel(world).play())


def step_figures(world: World, moves: list[Moved]) -> Figures:
    """Return the seconds from the step to the first move and to an even load, the number of moves, and the fewest moves
    that would make the load even."""
    even, first = world.ratio(moves) <= EVEN, min((move.at for move in moves), default=None)
    steady = [at for at in range(world.begins, len(even) - EVEN_SECONDS) if even[at : at + EVEN_SECONDS].all()]
    before = world.loads([])[world.begins]
    hot = np.flatnonzero(world.owners == before.argmax())
    sizes = np.sort(world.sizes[hot] * world.factors[world.begins][world.groups[hot]])[::-1]
    fewest = int(np.searchsorted(np.cumsum(sizes), before.max() - EVEN * before.mean() - 1e-9)) + 1
    return {
        "first": None if first is None else first - world.begins,
        "even": steady[0] - world.begins if steady else None,
        "moves": len(moves),
        "fewest": fewest,
    }


def steps_section(results: Results) -> list[str]:
    """Return the lines about sudden increases of one broker's load."""
    rows = []
    for brokers, factor in STEPS:
        if not (runs := results.runs(f"{brokers} {factor}")):
            continue
        key, even, moves = (brokers, factor), _values(runs, "even"), _values(runs, "moves")
        earlier, limit = EARLIER_MOVES.get(key), GOAL_SECONDS.get(key)
        name = f"step to {factor} on {brokers} brokers"
        if limit is not None and median(even) > limit:
            results.misses.append(f"{name}: {median(even):.0f} s instead of {limit:.0f} s")
        if earlier is not None and median(moves) > earlier:
            results.misses.append(f"{name}: {median(moves):.0f} moves instead of {earlier}")
        cells = [
            _spread(_values(runs, "first")),
            _spread(even),
            _spread(moves),
            f"{median(_values(runs, 'fewest')):.0f}",
        ]
        rows.append([brokers, factor, *cells, "-" if earlier is None else earlier, len(runs)])
    head = (
        "brokers",
        "max/mean",
        "s to the first move",
        f"s to {EVEN}",
        "moves",
        "fewest moves",
        "moves before",
        "seeds",
    )
    return [
        "## Steps\n",
        "The leader has been running and idle for two minutes, at a mean load of 22 %. Then one broker gets this",
        "multiple of the mean. A move takes one second. *Fewest moves*: the fewest largest bundles of that broker that",
        f"bring it to {EVEN}. *Moves before*: median of the version before this rule.\n",
        *table(head, rows),
    ]


# --- jitter ---

SWINGS: Final = ((4, 1), (10, 2))
AMPLITUDES: Final = (0.1, 0.2, 0.3, 0.5)
HALVES: Final = (10, 30, 90, 150, 300, 600)
NOISES: Final = (0.0, 0.05, 0.1)
LATER_PER_HOUR: Final = 2.0


def jitter_cells(noises: Sequence[float]) -> Iterator[Cell]:
    """Yield one simulation for each load that swings and each balancer."""
    for noise in noises:
        for who in (COUNTERS, NATIVE, REPORTS):
            for name, (brokers, swinging, shape, amplitude) in _swings():
                for half in HALVES:
                    swing = (brokers, swinging, amplitude, half, shape, noise)
                    yield f"{name} {half} {noise} {who}", partial(_swing, swing, who)


def _swings() -> Iterator[tuple[str, tuple[int, int, str, float]]]:
    for brokers, swinging in SWINGS:
        for shape in ("square", "sine"):
            for amplitude in AMPLITUDES:
                yield f"{swinging} of {brokers} {shape} {amplitude}", (brokers, swinging, shape, amplitude)


def _swing(swing: tuple[int, int, float, int, str, float], who: str, seed: int) -> Figures:
    world = worlds.wave(*swing, seed)
    until = world.begins + 2 * swing[3]
    moves = play(world, who, seed)
    later = sum(move.at >= until for move in moves)
    return {"first": len(moves) - later, "later": later * 3600 / (world.seconds - until)}


def jitter_section(noises: Sequence[float], results: Results) -> list[str]:
    """Return the table of moves under loads that swing without noise, and the tables of the goals."""
    lines = (
        []
        if any(noises)
        else [
            "## Jitter\n",
            "The load of some brokers swings, at a mean load of 45 %. Cells: the moves of the first period plus the",
            "moves per hour after it, as medians; the worst seeds are in parentheses. *Noise*: standard deviation of a",
            "factor that each broker keeps for 5 s.",
        ]
    )
    for noise in noises:
        lines.append(f"{chr(10) * bool(lines)}### Noise {noise:.0%}\n")
        if not noise:
            lines += _jitter_table(results)
        lines += _judge(results, noise)
    return lines


def _jitter_table(results: Results) -> list[str]:
    rows, idle = [], 0
    for name, _ in _swings():
        by_balancer = {
            who: [_first_and_later(results.runs(f"{name} {half} {NOISES[0]} {who}")) for half in HALVES]
            for who in (COUNTERS, REPORTS, NATIVE)
        }
        is_idle = all(map(_is_idle, chain(*by_balancer.values())))
        idle += is_idle
        rows += [] if is_idle else [[*_named(name), who, *cells] for who, cells in by_balancer.items()]
    head = ("brokers", "shape", "swing", "balancer", *(f"{half} s" for half in HALVES))
    shown = [at for at in range(len(head)) if not all(_is_idle(row[at]) for row in rows)]
    return [
        *(table([head[at] for at in shown], [[row[at] for at in shown] for row in rows]) if rows else ()),
        f"\nIn {idle} more combinations of brokers, shape and swing, and in shorter periods, all medians are 0+0.\n",
    ]


def _is_idle(cell: str) -> bool:
    return cell == "-" or cell.startswith("0+0")


def _named(name: str) -> list[str]:
    swinging, _, brokers, shape, amplitude = name.split()
    return [f"{swinging} of {brokers}", shape, f"±{float(amplitude):.0%}"]


def _judge(results: Results, noise: float) -> list[str]:
    limit, rows = LATER_PER_HOUR if noise else 0.0, []
    for who in (COUNTERS, REPORTS):
        counts, seeds, missed = [0] * 5, [], 0
        for name, _ in _swings():
            for half in HALVES:
                runs = results.runs(f"{name} {half} {noise} {who}")
                # Compare only the seeds for which both balancers were run.
                other = results.runs(f"{name} {half} {noise} {NATIVE}")[: len(runs)]
                runs = runs[: len(other)]
                if not runs:
                    continue
                ours, theirs = _values(runs, "later"), _values(other, "later")
                marks = (
                    median(ours) > limit,
                    max(ours) > limit,
                    median(ours) > median(theirs),
                    max(ours) > max(theirs),
                )
                counts = [count + flag for count, flag in zip(counts, (True, *marks), strict=True)]
                seeds.append(len(runs))
                missed += marks[0] or marks[2] or (not noise and marks[1])
        if missed:
            results.misses.append(f"jitter with noise {noise:.0%}, {who}: {missed} of {counts[0]} cells")
        if seeds:
            rows.append([who, *counts, f"{min(seeds)} to {max(seeds)}" if min(seeds) < max(seeds) else seeds[0]])
    head = ("source", "cells", f"median above {limit:.0f}", f"worst above {limit:.0f}")
    return table((*head, f"median above {NATIVE}", f"worst above {NATIVE}", "seeds"), rows)


def _first_and_later(runs: Sequence[Figures]) -> str:
    if not runs:
        return "-"
    first, later = _values(runs, "first"), _values(runs, "later")
    text = f"{median(first):.0f}+{median(later):.0f}"
    return text if max(first) <= 0 and max(later) <= 0 else f"{text} ({max(first):.0f}+{max(later):.0f})"


# --- slow changes, overload ---

SLOW: Final = {
    "doubling": "one broker's load doubles within an hour and stays",
    "daily": "±40 % in two hours, two groups of brokers in opposite phase",
    "walk": "each bundle's load wanders at random, 8 % per minute",
}


def slow_cells() -> Iterator[Cell]:
    """Yield one simulation of the overload and of each slow change, for each balancer."""
    for who in (COUNTERS, REPORTS, NATIVE):
        yield f"overload {who}", partial(_overload, who)
        for kind in SLOW:
            yield f"{kind} {who}", partial(_slow, kind, who)


def _overload(who: str, seed: int) -> Figures:
    world = worlds.overload(seed)
    moves = [move.at for move in play(world, who, seed) if move.at >= world.begins]
    return {"first": moves[0] - world.begins if moves else None, "moves": len(moves)}


def _slow(kind: str, who: str, seed: int) -> Figures:
    world = worlds.slow(kind, seed)
    moves = play(world, who, seed)
    still, ratio = float(world.ratio([]).mean()), float(world.ratio(moves).mean())
    return {"moves": len(moves) * 3600 / world.seconds, "ratio": ratio, "still": still}


def slow_section(results: Results) -> list[str]:
    """Return the tables of an overload and of slow changes of load."""
    overload, rows = [], []
    for who in (COUNTERS, REPORTS, NATIVE):
        if runs := results.runs(f"overload {who}"):
            overload.append([who, _spread(_values(runs, "first")), _spread(_values(runs, "moves")), len(runs)])
    for kind, text in SLOW.items():
        for who in (COUNTERS, REPORTS, NATIVE):
            if runs := results.runs(f"{kind} {who}"):
                moves, ratio, still = (_values(runs, name) for name in ("moves", "ratio", "still"))
                cells = (_spread(moves), _spread(ratio, 2), f"{median(still):.2f}")
                rows.append([text, who, *cells, len(runs)])
    return [
        "## Overload\n",
        "One of four brokers rises from 75 % to 90 % of its CPU.\n",
        *table(("balancer", "s to the first move", "moves", "seeds"), overload),
        "\n## Slow changes\n",
        "Ten brokers at a mean load of 40 %, two hours.\n",
        *table(("change", "balancer", "moves per hour", "mean max/mean", "without moves", "seeds"), rows),
    ]


# --- the exact optimum ---

# Prices of a move. The first ones are seconds at a max/mean of 2.1 (1 above the tolerated 1.1). The others are in the
# unit of the rule.
RATIO_PRICES: Final = (10.0, 30.0)
RULE_PRICES: Final = (50.0, 150.0, 400.0)
STATED: Final = "rule 400"
WORST_RATIO: Final = 2.2
DP_SECONDS: Final = 5


def ratio_cells() -> Iterator[Cell]:
    """Yield one simulation per balancer, to compare its cost with the lowest possible cost."""
    for who in (COUNTERS, REPORTS, NATIVE, "none"):
        yield who, partial(_ratios, who)


def _ratios(who: str, seed: int) -> Figures:
    world = worlds.telegraph(seed)
    moves = [] if who == "none" else play(world, who, seed)
    ratios: Figures = {}
    for unit, prices in (("ratio", RATIO_PRICES), ("rule", RULE_PRICES)):
        loads = world.loads(moves)
        lasting = float(_cost(unit, loads[:, 0], loads[:, 1]).sum())
        for price in prices:
            plans = PLAN_MOVES * len({move.at for move in moves}) if unit == "rule" else 0
            best = _optimum(world, unit, price)
            ratios[f"{unit} {price:.0f}"] = (lasting + price * (len(moves) + plans)) / best
    return ratios


def _cost(unit: str, first: Floats, second: Floats) -> Floats:
    """Return the cost per second of the difference between two brokers' loads. `unit`: `ratio` (max/mean above 1.1) or
    `rule` (the cost in the decision rule).
    """
    mean = (first + second) / 2
    if unit == "ratio":
        excess: Floats = np.maximum(first, second) / mean - 1.1
    else:
        excess = np.abs(first - second) / (0.15 * (mean + worlds.CPU_BASE)) - 1
    return np.maximum(0.0, excess) ** (1 if unit == "ratio" else 2)


def _optimum(world: World, unit: str, price: float) -> float:
    """Return the lowest possible cost if future loads are known. `price`: cost of a move. Uses dynamic programming over
    the number of changing and of constant bundles on the first broker (up to twelve each).
    """
    count, size = worlds.TELEGRAPH_BUNDLES, float(world.sizes[0])
    mine = np.arange(count + 1, dtype=np.float64)
    least: Floats = np.full((count + 1, count + 1), np.inf)
    least[count, 0] = 0.0
    for begin in range(0, world.seconds, DP_SECONDS):
        moved = least.copy()
        for axis in (0, 1):
            rows = np.moveaxis(moved, axis, 0)
            for row in range(1, count + 1):
                rows[row] = np.minimum(rows[row], rows[row - 1] + price)
            for row in range(count - 1, -1, -1):
                rows[row] = np.minimum(rows[row], rows[row + 1] + price)
        factor = float(world.factors[begin : begin + DP_SECONDS, 0].mean())
        first = size * (mine[:, None] * factor + mine[None, :])
        second = size * ((count - mine)[:, None] * factor + (count - mine)[None, :])
        least = np.minimum(least, moved + (PLAN_MOVES * price if unit == "rule" else 0.0))
        least += DP_SECONDS * _cost(unit, first, second)
    return float(least.min())


def ratio_section(results: Results) -> list[str]:
    """Return the table of each balancer's cost, divided by the lowest possible cost."""
    rows, names = [], [f"ratio {price:.0f}" for price in RATIO_PRICES] + [f"rule {price:.0f}" for price in RULE_PRICES]
    for who in (COUNTERS, REPORTS, NATIVE, "none"):
        if runs := results.runs(who):
            rows.append([who, *(_spread(_values(runs, name), 2) for name in names), len(runs)])
    worst = max(_values(results.runs(COUNTERS), STATED), default=0.0)
    if worst > WORST_RATIO:
        price = STATED.removeprefix("rule ")
        results.misses.append(f"cost over the optimum at {price} per move: {worst:.2f} instead of {WORST_RATIO}")
    titles = [f"{price:.0f} s of max/mean 2.1" for price in RATIO_PRICES]
    titles += [f"{price:.0f} per move, {PLAN_MOVES * price:.0f} per plan" for price in RULE_PRICES]
    return [
        "## Cost over the optimum\n",
        "Two brokers with twelve equal bundles each; the load of half of the bundles jumps at random for an hour. The",
        "cost is that of the imbalance and of the moves, divided by the lowest possible cost with the future known",
        "(dynamic programming). Columns: what a move is worth. *none*: no move at all. The first two count what",
        "max/mean exceeds 1.1, the others are in the unit of the [rule](../concepts/decision-rule.md), whose price is",
        f"{Parameters().move_price:.0f} per move.\n",
        *table(("balancer", *titles, "seeds"), rows),
    ]


# --- PIP-364 ---

# After the first period, in minutes.
LATER_MINUTES: Final = {"pip364-jitter": 15.0}
SHORTER_MINUTES: Final = {"pip364-slow": 30.0}


def pip_cells() -> Iterator[Cell]:
    """Yield one simulation per scenario of PIP-364 and source of loads (counters, reports), on the simulator itself."""
    for item in suite():
        if item.name.startswith("pip364-"):
            for source in (COUNTERS, REPORTS):
                yield f"{item.name} {source}", partial(_scenario, item.name, source)


def _scenario(name: str, source: str, seed: int) -> Figures:
    item = next(item for item in suite() if item.name == name)
    item = replace(item, minutes=SHORTER_MINUTES.get(name, item.minutes))
    simulation = Simulation(item, replace(DEFAULT, source="counters" if source == COUNTERS else "reports"), seed)
    run_virtually(simulation.run())
    moves = [move for move in simulation.cluster.moved if move.by == "balancer"]
    later = sum(move.at >= 60 * LATER_MINUTES.get(name, np.inf) for move in moves)
    again = len(moves) - len({move.bundle for move in moves})
    return {"moves": len(moves), "later": later, "again": again}


def pip_section(results: Results) -> list[str]:
    """Return the table of the scenarios of PIP-364."""
    rows = []
    for key, _ in pip_cells():
        if runs := results.runs(key):
            name, source = key.split()
            later, swings = _values(runs, "later"), name in LATER_MINUTES
            if max(later) > 0:
                results.misses.append(f"{name}, {source}: {_spread(later)} moves after the first period")
            moves = (
                _spread(_values(runs, "moves")),
                _spread(later) if swings else "-",
                _spread(_values(runs, "again")),
            )
            rows.append([f"`{name}`", source, *moves, len(runs)])
    return [
        "## PIP-364\n",
        "The [scenarios](scenarios.md) of PIP-364 on the simulator itself, `pip364-slow` for its first 30 minutes.\n",
        *table(("scenario", "source", "moves", "after the first period", "bundles moved again", "seeds"), rows),
    ]


# --- a month ---

EPISODE_SECONDS: Final = 1800
DAYS: Final = (3, 30)


def month_cells() -> Iterator[Cell]:
    """Yield one simulation per balancer and length (3 and 30 days)."""
    for days in DAYS:
        for who in (COUNTERS, NATIVE):
            yield f"{days} {who}", partial(_wander, days, who)


def _wander(days: int, who: str, seed: int) -> Figures:
    world = worlds.wander(days, seed)
    times = [move.at for move in play(world, who, seed)]
    episodes = sum(at - before > EPISODE_SECONDS for before, at in zip([-np.inf, *times], times, strict=False))
    loads = world.loads([])
    spread = float((loads.max(axis=1) - loads.min(axis=1)).mean())
    return {"episodes": episodes, "moves": len(times), "points": 100 * spread}


def month_section(results: Results) -> list[str]:
    """Return the table of moves within days and a month."""
    rows = []
    for key, _ in month_cells():
        if runs := results.runs(key):
            points = f"{median(_values(runs, 'points')):.0f}"
            rows.append(
                [*key.split(), points, *(_spread(_values(runs, name)) for name in ("episodes", "moves")), len(runs)]
            )
    return [
        "## A month\n",
        "Four brokers at a mean load of 45 % with a daily pattern of ±30 %. The load of each broker wanders for hours.",
        "So the CPU of the brokers differs by 15 points on average if no bundle moves. An episode ends after 30",
        "minutes without a move.\n",
        *table(("days", "balancer", "points without moves", "episodes", "moves", "seeds"), rows),
    ]


# --- the quick model against the simulator ---

CHECKED_STEPS: Final = ((3, 3.0), (3, 2.0), (3, 1.5), (10, 2.0))
CHECKED_SWINGS: Final = (
    (4, 1, 0.3, 300, "square", 0.0),
    (4, 1, 0.5, 150, "square", 0.0),
    (10, 2, 0.5, 90, "sine", 0.1),
)


def check_cells() -> Iterator[Cell]:
    """Yield one simulation per world and model, to compare the quick model with the simulator."""
    for quick in (True, False):
        for brokers, factor in CHECKED_STEPS:
            world = partial(worlds.step, brokers, factor)
            yield f"step to {factor} on {brokers} brokers|{quick}", partial(_check, world, quick)
        for swing in CHECKED_SWINGS:
            name = f"{swing[4]} of ±{swing[2]:.0%} every {swing[3]} s, noise {swing[5]:.0%}, {swing[1]} of {swing[0]}"
            yield f"{name}|{quick}", partial(_check, partial(worlds.wave, *swing), quick)


def _check(make: Callable[[int], World], quick: bool, seed: int) -> Figures:
    world = make(seed)
    moves = QuickModel(world).play() if quick else play_simulated(world, seed, DEFAULT, 1.0)
    return {"first": moves[0].at - world.begins if moves else None, "moves": len(moves)}


def check_section(results: Results) -> list[str]:
    """Return the comparison of the quick model with the simulator."""
    rows = []
    for key, _ in check_cells():
        name, _, quick = key.partition("|")
        runs, other = results.runs(key), results.runs(f"{name}|False")
        if quick == "True" and runs and other:
            rows.append(
                [name, *(_spread(_values(part, value)) for value in ("first", "moves") for part in (runs, other))]
            )
    head = ("world", "first move after, s: quick model", "simulator", "moves: quick model", "simulator")
    return [
        "## The quick model\n",
        "Rows with counters come from a quick model, except those of PIP-364. It calls the product's `plan()` on exact",
        "readings, with the reading schedule of a sidecar. All other rows come from the simulator. The same worlds on",
        "both:\n",
        *table(head, rows),
    ]


TABLES: Final[dict[str, tuple[Callable[[], Iterable[Cell]], Callable[[Results], list[str]]]]] = {
    "steps": (step_cells, steps_section),
    "jitter": (partial(jitter_cells, NOISES[:1]), partial(jitter_section, NOISES[:1])),
    "noise": (partial(jitter_cells, NOISES[1:]), partial(jitter_section, NOISES[1:])),
    "others": (slow_cells, slow_section),
    "ratio": (ratio_cells, ratio_section),
    "pip364": (pip_cells, pip_section),
    "month": (month_cells, month_section),
    "check": (check_cells, check_section),
}
