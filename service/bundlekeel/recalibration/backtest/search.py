"""Search for better settings: which candidates to test. A callable measures them.

`recalibration.rules.thresholds` defines the parameters, ranges and steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from bundlekeel.model.parameters import Parameters, compat_defaults, defaults
from bundlekeel.model.text_format import figure
from bundlekeel.recalibration.backtest.choice import Day, TriedCandidates, ranked
from bundlekeel.recalibration.backtest.measures import ByRunDay, Candidate, Value
from bundlekeel.recalibration.rules.thresholds import RANGES, searched, stepped, steps_between

Evaluate = Callable[[Sequence[Candidate]], Mapping[str, ByRunDay]]

# Parameters of each strategy whose values are tested in all combinations: those that start a move, and that delay it.
PAIRS: Final[Mapping[str, tuple[str, ...]]] = {
    "avg": ("avg_low_threshold_percent", "move_price"),
    "threshold": ("threshold_percent", "move_price"),
    "uniform": ("msg_rate_difference_percent", "throughput_multiple"),
    "overload": ("overloaded_threshold_percent",),
    "transfer": ("transfer_target_std", "move_price"),
    "deviation": ("deviation_threshold", "move_price"),
}
# Pulsar's shedders, each with the strategy that is its copy with `compat`.
NATIVES: Final = {"AvgShedder": "avg", "ThresholdShedder": "threshold", "TransferShedder": "transfer"}
RELEASE: Final = "4.2"
# Bundlekeel's own limits of moves, which Pulsar's shedders do not have.
_LIMITED: Final = ("cycle", "source", "target", "namespace", "tenant", "hour")
_NO_LIMITS: Final = {f"max_moves_per_{unit}": 10**6 for unit in _LIMITED} | {"no_return_seconds": 0}
# All candidates of a round are tested on this share of the days of the search, and this share of them on all days.
PILOT_SHARE: Final = 0.2
PILOT_KEEPS: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """The values to search.

    `base`: present parameters. `reach`: highest number of steps from the present value (a step is defined in `RANGES`);
    None: the whole range. `requested`: parameters to test; empty: all that the strategy reads.
    """

    base: Parameters
    requested: tuple[str, ...] = ()
    reach: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters to test."""
        return tuple(name for name in searched(self.base.strategy) if not self.requested or name in self.requested)

    def values(self, name: str, points: int) -> list[Value]:
        """Return `points` values of a parameter, ends included, each a whole number of steps from the present value."""
        low, high = self._ends(name)
        if points < 2 or low == high:
            return []
        steps = np.linspace(low, high, points)
        values = dict.fromkeys(self.at(name, float(np.trunc(step))) for step in steps)
        return [value for value in values if value != self._own(name)]

    def at(self, name: str, steps: float) -> float | int:
        """Return the parameter's present value plus a number of steps, limited to its range and to `reach`."""
        low, high = self._ends(name)
        return stepped(name, self._own(name), min(max(steps, low), high))

    def moved(self, name: str, value: float, steps: float) -> float | int:
        """Return a parameter's value plus a number of steps, limited to its range and to `reach`."""
        target = stepped(name, value, steps)
        if self.reach is None or steps_between(name, self._own(name), target) <= self.reach + 1e-9:
            return target
        return self.at(name, self.reach if target > self._own(name) else -self.reach)

    def _own(self, name: str) -> float:
        return float(getattr(self.base, name))

    def _ends(self, name: str) -> tuple[float, float]:
        """Return how many steps down and up `reach` and the range allow; (0, 0) if the present value is out of
        range."""
        row, own = RANGES[name], self._own(name)
        if not row.minimum <= own <= row.maximum or (row.factor and own <= 0):
            return 0.0, 0.0
        down, up = steps_between(name, own, row.minimum), steps_between(name, own, row.maximum)
        if self.reach is not None:
            down, up = min(down, self.reach), min(up, self.reach)
        return -down, up


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchDepth:
    """Depth of a search.

    `points`: number of values of each parameter in the first round. `rounds`: number of rounds after that, each around
    the best candidate. `held_out`: share of the days that the search does not use. `placements`: initial placements of
    bundles with which the best candidate is judged. `names`: parameters to test; empty: all. `prefer`:
    `calibration.prefer`.
    """

    points: int = 3
    rounds: int = 2
    held_out: float = 0.3
    placements: int = 3
    names: tuple[str, ...] = ()
    prefer: str = "calm"
    seed: int = 0


PRESENT: Final = Candidate(name="present")


def natives() -> list[Candidate]:
    """Return Pulsar's own classes with their defaults, without Bundlekeel's limits. They are never proposed."""
    candidates = []
    for name, strategy in NATIVES.items():
        plain = {item: defaults()[item] for item in searched(strategy)}
        changes = {**plain, **compat_defaults(RELEASE, strategy), **_NO_LIMITS, "strategy": strategy, "compat": RELEASE}
        candidates.append(Candidate(name=name, changes=changes))  # type: ignore[arg-type]
    return candidates


def grid(space: SearchSpace, *, points: int = 3) -> list[Candidate]:
    """Return the first candidates: unchanged, the main parameters combined in all ways, each other parameter alone."""
    main = [name for name in PAIRS.get(space.base.strategy, ()) if name in space.names]
    axes = [[None, *space.values(name, points)] for name in main]
    changes: list[Mapping[str, Value]] = [
        {name: value for name, value in zip(main, values, strict=True) if value is not None}
        for values in product(*axes)
    ]
    for name in space.names:
        if name not in main:
            changes += [{name: value} for value in space.values(name, points)]
    return _distinct(_candidate(space, change) for change in changes)


def neighbours(
    candidate: Candidate, space: SearchSpace, *, steps: float = 1.0, without: Collection[str] = ()
) -> list[Candidate]:
    """Return candidates that differ from this one in one parameter, by `steps` steps up or down. `without`: names to
    skip."""
    candidates = []
    for name in (name for name in space.names if name not in without):
        value = float(candidate.changes.get(name, getattr(space.base, name)))
        for step in (-steps, steps):
            other = space.moved(name, value, step)
            if other != value:
                changes = {**candidate.changes, name: other}
                if other == getattr(space.base, name):
                    del changes[name]
                candidates.append(_candidate(space, changes))
    return _distinct(candidates)


def search(
    space: SearchSpace, evaluate: Evaluate, pilot: Evaluate, *, days: Collection[int], depth: SearchDepth
) -> TriedCandidates:
    """Test the grid, then `depth.rounds` times the neighbours of the best candidate.

    `days`: days that the search uses (others are held out). Neighbours differ by several steps in the first round and
    by one in the last. `pilot` measures each candidate once, on the first days (`pilot_days`). Then `evaluate` measures
    the best `PILOT_KEEPS` of each round on all days; the others have no results. A parameter without effect in the
    pilot is not changed after the grid.
    """
    tried = short = TriedCandidates(present=PRESENT.key)
    new = _distinct([PRESENT, *grid(space, points=depth.points)])
    for number in range(depth.rounds + 1):
        if number:
            best, steps = ranked(tried, days, depth.prefer)[0], float(2 ** (depth.rounds - number))
            around = neighbours(best, space, steps=steps, without=_idle(short))
            new = [item for item in around if item.key not in short.results]
        if new:
            short = short.with_results(new, pilot(new))
            new = _promising(short, new, days, depth.prefer)
        if new:
            tried = tried.with_results(new, evaluate(new))
    return replace(tried, candidates=short.candidates)


def pilot_days(days: Collection[Day]) -> tuple[Day, ...]:
    """Return the first days of the search, on which all candidates are tested: `PILOT_SHARE` of them, at least one."""
    return tuple(sorted(days)[: max(1, round(PILOT_SHARE * len(days)))])


def _promising(short: TriedCandidates, new: Sequence[Candidate], days: Collection[int], prefer: str) -> list[Candidate]:
    """Return the present settings if they are new, and the best new candidates by the results of the pilot.

    A candidate that has exactly the results of a better one, or of the present settings, has no effect of its own.
    """
    best = [item for item in _without_equals(ranked(short, days, prefer), short) if item in new]
    present = [item for item in new if item.key == short.present]
    return _distinct([*present, *best[: math.ceil(PILOT_KEEPS * len(new))]])


def _idle(tried: TriedCandidates) -> frozenset[str]:
    """Return the parameters without effect: changing only this parameter did not change the results."""
    plain = tried.results[tried.present]
    same: dict[str, bool] = {}
    for key, item in tried.candidates.items():
        if len(item.changes) == 1:
            name = next(iter(item.changes))
            same[name] = same.get(name, True) and tried.results[key] == plain
    return frozenset(name for name, idle in same.items() if idle)


def _without_equals(candidates: Sequence[Candidate], tried: TriedCandidates) -> list[Candidate]:
    """Return the candidates, without each one that has exactly the results of an earlier one."""
    distinct: list[Candidate] = []
    for candidate in candidates:
        if all(tried.results[candidate.key] != tried.results[other.key] for other in distinct):
            distinct.append(candidate)
    return distinct


def _candidate(space: SearchSpace, changes: Mapping[str, Value]) -> Candidate:
    """Return the candidate with these changes. Its name is, for example, `move_price 50 -> 80`."""
    texts = [
        f"{name} {figure(float(getattr(space.base, name)))} -> {figure(float(value))}"
        for name, value in sorted(changes.items())
    ]
    return Candidate(name=", ".join(texts) or PRESENT.name, changes=changes)


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    return list({candidate.key: candidate for candidate in reversed(list(candidates))}.values())[::-1]
