"""Select the proposal, and give advice on other strategies, other cycle intervals and next steps.

The rule is in `recalibration.backtest.choice`. Only changes that sidecars may adopt in one night can be proposed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import figure
from bundlekeel.recalibration.backtest import Candidate
from bundlekeel.recalibration.backtest.choice import Choice, choose, describe_gain
from bundlekeel.recalibration.backtest.search import SearchSpace, TriedCandidates, ranked
from bundlekeel.recalibration.rules.thresholds import EQUAL, RANGES, searched, steps_between


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchDepth:
    """Depth of a search.

    `points`: number of values of each parameter in the first round. `rounds`: number of rounds after that. `keep`:
    number of best candidates that a round starts from. `tolerance`: relative difference of imbalance that counts as
    equal. `names`: parameters to test; empty: all.
    """

    points: int = 3
    rounds: int = 3
    keep: int = 4
    tolerance: float = EQUAL
    held_out: float = 0.3
    names: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The proposal, all tested candidates, and facts for the report.

    `near`: keys of the candidates that could be adopted. `strategies`: key of the best candidate of each strategy that
    is not in use. `values`: tested values by parameter. `labels`: labels of the held-out blocks, in order. `plans`:
    number of plans in the back-test by day.
    """

    choice: Choice
    tried: TriedCandidates
    near: frozenset[str]
    strategies: Mapping[str, str]
    values: Mapping[str, Collection[float]]
    advice: tuple[str, ...]
    labels: Sequence[str] = ()
    plans: Mapping[str, int] = field(default_factory=dict)


def select(
    tried: TriedCandidates,
    base: Parameters,
    depth: SearchDepth,
    *,
    train: Collection[int],
    held_out: Collection[int],
    reach: float,
) -> Selection:
    """Select which tested thresholds of the active strategy to propose.

    The selection also contains advice if larger changes, another strategy or another cycle interval may be better.
    """
    near = adoptable(tried)
    choice = choose(near, train=train, held_out=held_out, tolerance=depth.tolerance, seed=depth.seed)
    others = best_of_others(tried, base, train, depth.tolerance)
    return Selection(
        choice=choice,
        tried=tried,
        near=frozenset(near.candidates),
        strategies=others,
        values=tested_values(near),
        advice=(
            *_at_the_end(choice.candidate, base, reach),
            *_elsewhere(tried, near, base, choice, train, held_out, depth),
        ),
    )


def check_searchable(space: SearchSpace, depth: SearchDepth) -> None:
    """Raise ConfigError if no value of the active strategy would be tested: the run could not propose anything."""
    strategy = space.base.strategy
    free = [name for name in space.names_of(strategy) if space.at(name, 1.0) != space.at(name, -1.0)]
    if free and (depth.points > 1 or depth.rounds):
        return
    if free:
        raise ConfigError("--points 1 with --rounds 0 tries nothing", field="--points", value=depth.points)
    names = ", ".join(depth.names) or "all that it reads"
    excluded = f"; not changed: {', '.join(space.without)}" if space.without else ""
    text = f"--parameter {names}: the active strategy {strategy} has no such parameter to search{excluded}"
    raise ConfigError(text, field="--parameter", value=names, allowed=", ".join(searched(strategy)))


def find_excluded(space: SearchSpace) -> dict[str, str]:
    """Return the requested parameters that are not searched for the active strategy, and why.

    If no parameter is requested, all parameters that the strategy reads count as requested.
    """
    strategy, reasons = space.base.strategy, dict[str, str]()
    for name in space.names or searched(strategy):
        value, row = getattr(space.base, name), RANGES[name]
        if name not in searched(strategy):
            reasons[name] = f"the active strategy {strategy} does not read it"
        elif name in space.without:
            reasons[name] = space.without[name]
        elif not row.minimum <= value <= row.maximum:
            reasons[name] = f"its value {figure(value)} is outside of {figure(row.minimum)} to {figure(row.maximum)}"
    return reasons


def adoptable(tried: TriedCandidates) -> TriedCandidates:
    """Return only the candidates with the present strategy and cycle interval, which differ only in thresholds."""
    candidates = {
        key: item
        for key, item in tried.candidates.items()
        if not item.cycle_seconds and all(name in RANGES for name in item.changes)
    }
    return replace(tried, candidates=candidates, results={key: tried.results[key] for key in candidates})


def best_of_others(
    tried: TriedCandidates, base: Parameters, train: Collection[int], tolerance: float
) -> dict[str, str]:
    """Return the key of the best candidate on the days of the search, for each strategy that is not in use."""
    best: dict[str, str] = {}
    for item in ranked(tried, blocks=train, tolerance=tolerance):
        strategy = item.changes.get("strategy", base.strategy)
        if strategy != base.strategy:
            best.setdefault(str(strategy), item.key)
    return best


def tested_values(tried: TriedCandidates) -> dict[str, set[float]]:
    """Return the tested values by parameter."""
    values: dict[str, set[float]] = {}
    for item in tried.candidates.values():
        for name, value in item.changes.items():
            if isinstance(value, int | float):
                values.setdefault(name, set()).add(float(value))
    return values


def _at_the_end(candidate: Candidate, base: Parameters, reach: float) -> list[str]:
    """Return advice on proposed values that changed as far as one night allows: a later run may go further."""
    advice = []
    for name, value in sorted(candidate.changes.items()):
        assert isinstance(value, int | float)
        if steps_between(name, getattr(base, name), value) > reach - 0.5:
            advice.append(
                f"{name} {figure(value)} is as far as one night may change it from {figure(getattr(base, name))}; "
                "a larger change may be better"
            )
    return advice


def _elsewhere(
    tried: TriedCandidates,
    near: TriedCandidates,
    base: Parameters,
    choice: Choice,
    train: Collection[int],
    held_out: Collection[int],
    depth: SearchDepth,
) -> list[str]:
    """Return advice if another strategy or another cycle would be better than the proposal."""
    best = choose(tried, train=train, held_out=held_out, tolerance=depth.tolerance, seed=depth.seed)
    if best.candidate.key in near.candidates or best.chosen.moves >= choice.chosen.moves:
        return []
    return [f"{best.candidate.name}: {describe_gain(best.present, best.chosen)}, on the held-out days"]
