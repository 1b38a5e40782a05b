"""Search for better settings: which candidates to test, and their order. A callable measures the candidates.

`recalibration.rules.thresholds` defines the parameters, ranges and steps. In addition, the search tests the length of a
cycle, which is a setting of the sidecar and not a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Final

import numpy as np

from bundlekeel.model.parameter_table import STRATEGIES
from bundlekeel.model.parameters import Parameters, defaults
from bundlekeel.model.text_format import max_mean
from bundlekeel.recalibration.backtest import intervals
from bundlekeel.recalibration.backtest.measures import ByBlock, Candidate, CandidateMeasures, Value
from bundlekeel.recalibration.rules.thresholds import RANGES, searched, stepped, steps_between

Evaluate = Callable[[Sequence[Candidate]], Mapping[str, ByBlock]]

# Seconds between two cycles to test. Values below the period of the back-test would make no difference.
CYCLES: Final = (60.0, 120.0, 300.0, 600.0)
# A candidate is ranked by the chance that this many other samples of blocks confirm it, as it is used for weeks.
TIMES: Final = 3
# Parameters of each strategy whose values are tested in all combinations: those that start a move, and that delay it.
PAIRS: Final[Mapping[str, tuple[str, ...]]] = {
    "avg": ("avg_low_threshold_percent", "move_price"),
    "threshold": ("threshold_percent", "history_weight"),
    "uniform": ("msg_rate_difference_percent", "throughput_multiple"),
    "overload": ("overloaded_threshold_percent",),
    "transfer": ("transfer_target_std", "move_price"),
    "deviation": ("deviation_threshold",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """The values to search.

    `reach`: highest number of steps from the present value (a step is defined in `RANGES`); None: the whole range.
    `strategies`: strategies to test. `names`: parameters to test; empty: all that a strategy reads. `without`: excluded
    parameters, and why.
    """

    base: Parameters
    strategies: tuple[str, ...] = STRATEGIES
    names: tuple[str, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    reach: float | None = None
    cycles: tuple[float, ...] = CYCLES

    def names_of(self, strategy: str) -> tuple[str, ...]:
        """Return the parameters to test with this strategy."""
        names = (name for name in searched(strategy) if not self.names or name in self.names)
        return tuple(name for name in names if name not in self.without)

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
class TriedCandidates:
    """The tested candidates (settings) and their results, by `Candidate.key`. `present`: key of the present
    settings."""

    present: str
    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    results: Mapping[str, ByBlock] = field(default_factory=dict)

    def with_results(self, candidates: Iterable[Candidate], results: Mapping[str, ByBlock]) -> TriedCandidates:
        """Return a copy with additional candidates and their results."""
        added = {candidate.key: candidate for candidate in candidates}
        return replace(self, candidates={**self.candidates, **added}, results={**self.results, **results})


def present() -> Candidate:
    """Return the candidate without changes: the present settings."""
    return Candidate(name="present")


def grid(strategy: str, space: SearchSpace, *, points: int = 3) -> list[Candidate]:
    """Return a strategy's first candidates: unchanged, its main parameters combined in all ways, each other parameter
    alone."""
    own = changes_to(strategy, space.base)
    names = space.names_of(strategy)
    main = [name for name in PAIRS.get(strategy, ()) if name in names]
    changes: list[Mapping[str, Value]] = [own]
    axes = [[None, *space.values(name, points)] for name in main]
    for values in product(*axes):
        changes.append(own | {name: value for name, value in zip(main, values, strict=True) if value is not None})
    for name in names:
        if name not in main:
            changes += [own | {name: value} for value in space.values(name, points)]
    candidates = [_candidate(strategy, change) for change in changes]
    candidates += [_candidate(strategy, own, cycle) for cycle in space.cycles]
    return _distinct(candidates)


def neighbours(
    candidate: Candidate, space: SearchSpace, *, steps: float = 1.0, without: Collection[str] = ()
) -> list[Candidate]:
    """Return candidates that differ from this one in one parameter, by `steps` steps up or down. `without`: names to
    skip."""
    strategy = strategy_of(candidate, space.base)
    candidates = []
    for name in space.names_of(strategy):
        if name in without:
            continue
        value = float(candidate.changes.get(name, getattr(space.base, name)))
        for step in (-steps, steps):
            other = space.moved(name, value, step)
            if other != value:
                changes = {**candidate.changes, name: other}
                if other == getattr(space.base, name):
                    del changes[name]
                candidates.append(_candidate(strategy, changes, candidate.cycle_seconds))
    return _distinct(candidates)


def together(candidates: Sequence[Candidate], base: Parameters) -> list[Candidate]:
    """Combine each two candidates (settings) of one strategy. If both change a parameter, the value of the first
    applies."""
    combined = []
    for one, other in combinations(candidates, 2):
        strategy = strategy_of(one, base)
        if strategy == strategy_of(other, base):
            cycle = one.cycle_seconds or other.cycle_seconds
            combined.append(_candidate(strategy, {**other.changes, **one.changes}, cycle))
    return _distinct(combined)


def search(
    space: SearchSpace,
    evaluate: Evaluate,
    *,
    blocks: Collection[int] | None = None,
    points: int = 3,
    rounds: int = 3,
    keep: int = 4,
    tolerance: float = 0.01,
) -> TriedCandidates:
    """Test the present settings and each strategy's grid, then `rounds` times the neighbours of the best candidates.

    The best candidates are the first `keep` of `ranked`, and the best-balanced candidate without more moves than the
    present settings, because another change of that candidate may save moves. `blocks`: blocks that the search uses
    (others are held out), None: all. Neighbours differ by several steps in the first round and by one in the last.
    `evaluate` is called once per candidate. A parameter that had no effect in the grid is not changed afterwards.
    """
    now = present()
    first = _distinct([now, *(item for strategy in space.strategies for item in grid(strategy, space, points=points))])
    tried = TriedCandidates(present=now.key).with_results(first, evaluate(first))
    idle = {strategy: _idle(strategy, space, tried) for strategy in space.strategies}
    for number in range(rounds):
        order = _without_equals(ranked(tried, blocks=blocks, tolerance=tolerance), tried)
        best = _distinct([*order[:keep], *_best_balanced(tried, blocks)])
        steps = float(2 ** (rounds - 1 - number))
        around = [
            other
            for candidate in best
            for other in neighbours(candidate, space, steps=steps, without=idle[strategy_of(candidate, space.base)])
        ]
        new = [item for item in _distinct([*together(best, space.base), *around]) if item.key not in tried.results]
        if new:
            tried = tried.with_results(new, evaluate(new))
    return tried


def ranked(
    tried: TriedCandidates, *, blocks: Collection[int] | None = None, tolerance: float = 0.01, seed: int = 0
) -> list[Candidate]:
    """Return the tested candidates (settings), best first.

    The first criterion is the likely saving of moves (`saving`). Among candidates that save nothing, the present
    settings are first. Then the order is by less imbalance, fewer moves, fewer changes, and key.
    """

    def worth(key: str) -> tuple[float, bool, float, float, int, str]:
        totals, changes = total(tried.results[key], blocks), len(tried.candidates[key].changes)
        saved = saving(tried, key, blocks=blocks, tolerance=tolerance, seed=seed)
        return -saved, key != tried.present, totals.imbalance, totals.moves_per_day, changes, key

    return [tried.candidates[key] for key in sorted(tried.results, key=worth)]


def saving(
    tried: TriedCandidates, key: str, *, blocks: Collection[int] | None, tolerance: float, seed: int = 0
) -> float:
    """Return the share of moves that a candidate saves, times the chance that other blocks confirm it `TIMES` times.

    0: it saves no moves. The chance ranks a certain small gain above a large gain that may be luck, because one
    additional move changes all later moves.
    """
    before, after = tried.results[tried.present], tried.results[key]
    shared = [block for block in sorted(set(before) & set(after)) if blocks is None or block in blocks]
    then, now = total(before, shared).moves, total(after, shared).moves
    if now >= then:
        return 0.0
    return (1 - now / then) * intervals.chance(before, after, shared, tolerance, seed=seed) ** TIMES


def _idle(strategy: str, space: SearchSpace, tried: TriedCandidates) -> frozenset[str]:
    """Return the parameters of a strategy without effect: changing only this parameter did not change the results."""
    own = changes_to(strategy, space.base)
    plain = tried.results[_candidate(strategy, own).key]
    same: dict[str, bool] = {}
    for key, item in tried.candidates.items():
        names = [name for name, value in item.changes.items() if name not in own or own[name] != value]
        if strategy_of(item, space.base) == strategy and len(names) == 1 and not item.cycle_seconds:
            same[names[0]] = same.get(names[0], True) and tried.results[key] == plain
    return frozenset(name for name, idle in same.items() if idle)


def _without_equals(candidates: Sequence[Candidate], tried: TriedCandidates) -> list[Candidate]:
    """Return the candidates, without each one that has exactly the results of an earlier one."""
    distinct: list[Candidate] = []
    for candidate in candidates:
        if all(tried.results[candidate.key] != tried.results[other.key] for other in distinct):
            distinct.append(candidate)
    return distinct


def _best_balanced(tried: TriedCandidates, blocks: Collection[int] | None) -> list[Candidate]:
    """Return the candidate with the least imbalance that does not move more than the present settings, as a list.

    The list is empty if no candidate with other results than the present settings qualifies.
    """
    now = tried.results[tried.present]
    totals = {key: total(results, blocks) for key, results in tried.results.items()}
    most = totals[tried.present].moves
    able = [key for key, results in totals.items() if results.moves <= most and tried.results[key] != now]
    return [tried.candidates[min(able, key=lambda key: (totals[key].imbalance, key))]] if able else []


def worse(before: CandidateMeasures, after: CandidateMeasures, tolerance: float) -> str:
    """Return the measure in which `after` is worse than `before` (`intervals.worse`), with both values; empty: not
    worse."""
    imbalance, overload = intervals.worse(intervals.sums_of(before), intervals.sums_of(after), tolerance)
    if imbalance:
        return max_mean(before.imbalance, after.imbalance)
    if overload:
        then, now = (measures.per_day(measures.overloaded_minutes) for measures in (before, after))
        return f"overloaded minutes per day {then:.4g} -> {now:.4g}"
    return ""


def total(results: ByBlock, blocks: Collection[int] | None = None) -> CandidateMeasures:
    """Return the sum of a candidate's measures over these blocks; None: over all blocks."""
    return CandidateMeasures.sum(
        measures for block, measures in sorted(results.items()) if blocks is None or block in blocks
    )


def strategy_of(candidate: Candidate, base: Parameters) -> str:
    """Return the strategy of a candidate: the one in its changes, else the one in `base`."""
    return str(candidate.changes.get("strategy", base.strategy))


def changes_to(strategy: str, base: Parameters) -> dict[str, Value]:
    """Return the changes of `base` that select a strategy. Parameters that are out of range are set to defaults."""
    changes: dict[str, Value] = {} if strategy == base.strategy else {"strategy": strategy}
    for name in searched(strategy):
        row, own = RANGES[name], getattr(base, name)
        if strategy in row.strategies and strategy != base.strategy and not row.minimum <= own <= row.maximum:
            changes[name] = defaults()[name]  # type: ignore[assignment]
    return changes


def _candidate(strategy: str, changes: Mapping[str, Value], cycle_seconds: float = 0.0) -> Candidate:
    texts = [
        f"{name} {value}" if isinstance(value, str | bool) else f"{name} {value:g}"
        for name, value in sorted(changes.items())
        if name != "strategy"
    ]
    if cycle_seconds:
        texts.append(f"cycle {cycle_seconds:g} s")
    return Candidate(name=f"{strategy}: {', '.join(texts) or 'as it is'}", changes=changes, cycle_seconds=cycle_seconds)


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    return list({candidate.key: candidate for candidate in reversed(list(candidates))}.values())[::-1]
