"""What is proposed of all that was tried, and what is only told: other strategies, other cycles, next steps. No Spark.

The rule itself is `sim.backtest.choice`; here it is applied to what sidecars may adopt in one night.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bundlekeel.core.calibration.thresholds import EQUAL, RANGES, searched, steps_between
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.text_format import figure
from bundlekeel.sim.backtest import Candidate
from bundlekeel.sim.backtest.choice import Choice, brought, choose
from bundlekeel.sim.backtest.search import SearchSpace, TriedCandidates, ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchDepth:
    """How thorough a search is. `points`: values of each parameter in the first round; `rounds`, `keep`: of refinement
    and the best candidates it goes on from; `tolerance`: share of imbalance that counts as equal; `names`: parameters,
    empty: all.
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
    """`strategies`: by other strategy, its best candidate's key. `values`: parameter -> values that were looked at.
    `labels`: of the held-out blocks, in order. `near`: keys of what might have been adopted. `plans`: by day, how often
    the back-test planned."""

    choice: Choice
    tried: TriedCandidates
    near: frozenset[str]
    strategies: Mapping[str, str]
    values: Mapping[str, Collection[float]]
    advice: tuple[str, ...]
    labels: Sequence[str] = ()
    plans: Mapping[str, int] = field(default_factory=dict)


def chosen_of(
    tried: TriedCandidates,
    base: Parameters,
    given: SearchDepth,
    *,
    train: Collection[int],
    held: Collection[int],
    reach: float,
) -> Selection:
    """The choice among thresholds of the strategy in force, and advice about the rest."""
    near = adoptable(tried)
    choice = choose(near, train=train, held=held, tolerance=given.tolerance, seed=given.seed)
    others = best_of_others(tried, base, train, given.tolerance)
    return Selection(
        choice=choice,
        tried=tried,
        near=frozenset(near.candidates),
        strategies=others,
        values=looked_at(near),
        advice=(
            *_at_the_end(choice.candidate, base, reach),
            *_elsewhere(tried, near, base, choice, train, held, given),
        ),
    )


def searchable(space: SearchSpace, given: SearchDepth) -> None:
    """ConfigError when no value of the strategy in force would be looked at: hours of work with nothing to propose."""
    strategy = space.base.strategy
    free = [name for name in space.names_of(strategy) if space.at(name, 1.0) != space.at(name, -1.0)]
    if free and (given.points > 1 or given.rounds):
        return
    if free:
        raise ConfigError("--points 1 with --rounds 0 tries nothing", field="--points", value=given.points)
    asked = ", ".join(given.names) or "all that it reads"
    alone = f"; not changed: {', '.join(space.without)}" if space.without else ""
    text = f"--parameter {asked}: strategy {strategy}, which is in force, has no such parameter to search{alone}"
    raise ConfigError(text, field="--parameter", value=asked, allowed=", ".join(searched(strategy)))


def left_alone(space: SearchSpace) -> dict[str, str]:
    """What was asked for (all that the strategy in force reads, where nothing was named) and is not searched for this
    strategy, and why."""
    strategy, found = space.base.strategy, dict[str, str]()
    for name in space.names or searched(strategy):
        value, row = getattr(space.base, name), RANGES[name]
        if name not in searched(strategy):
            found[name] = f"strategy {strategy}, which is in force, does not read it"
        elif name in space.without:
            found[name] = space.without[name]
        elif not row.minimum <= value <= row.maximum:
            found[name] = f"its value {figure(value)} is outside of {figure(row.minimum)} to {figure(row.maximum)}"
    return found


def adoptable(tried: TriedCandidates) -> TriedCandidates:
    """Only what changes thresholds alone: no other strategy, and the cycle as it is."""
    kept = {
        key: item
        for key, item in tried.candidates.items()
        if not item.cycle_seconds and all(name in RANGES for name in item.changes)
    }
    return replace(tried, candidates=kept, results={key: tried.results[key] for key in kept})


def best_of_others(
    tried: TriedCandidates, base: Parameters, train: Collection[int], tolerance: float
) -> dict[str, str]:
    """By other strategy the key of what did best on the days of the search."""
    found: dict[str, str] = {}
    for item in ranked(tried, blocks=train, tolerance=tolerance):
        strategy = item.changes.get("strategy", base.strategy)
        if strategy != base.strategy:
            found.setdefault(str(strategy), item.key)
    return found


def looked_at(tried: TriedCandidates) -> dict[str, set[float]]:
    """Which values of which parameter were tried."""
    found: dict[str, set[float]] = {}
    for item in tried.candidates.values():
        for name, value in item.changes.items():
            if isinstance(value, int | float):
                found.setdefault(name, set()).add(float(value))
    return found


def _at_the_end(candidate: Candidate, base: Parameters, reach: float) -> list[str]:
    """Values that went as far as one night may take them."""
    found = []
    for name, value in sorted(candidate.changes.items()):
        assert isinstance(value, int | float)
        if steps_between(name, getattr(base, name), value) > reach - 0.5:
            found.append(
                f"{name} {figure(value)} is as far as one night goes from {figure(getattr(base, name))}; "
                "further may be better"
            )
    return found


def _elsewhere(
    tried: TriedCandidates,
    near: TriedCandidates,
    base: Parameters,
    choice: Choice,
    train: Collection[int],
    held: Collection[int],
    given: SearchDepth,
) -> list[str]:
    """Another strategy or another cycle that would do better than what is proposed."""
    best = choose(tried, train=train, held=held, tolerance=given.tolerance, seed=given.seed)
    if best.candidate.key in near.candidates or best.chosen.moves >= choice.chosen.moves:
        return []
    return [f"{best.candidate.name}: {brought(best.present, best.chosen)}, on the held-out days"]
