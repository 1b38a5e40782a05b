"""Explain the limits of a gain in the report: why a proposal does not save more."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import figure, numbered
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.choice import GOALS, Choice, TriedCandidates, of_days, worse
from bundlekeel.recalibration.backtest.run import RECORDED
from bundlekeel.recalibration.backtest.search import NATIVES, SearchDepth, SearchSpace
from bundlekeel.recalibration.rules.thresholds import RANGES, TITLES, searched, steps_between


def check_searchable(space: SearchSpace, depth: SearchDepth) -> None:
    """Raise ConfigError if no value of the active strategy would be tested: the run could not propose anything."""
    strategy = space.base.strategy
    free = [name for name in space.names if space.at(name, 1.0) != space.at(name, -1.0)]
    if free and (depth.points > 1 or depth.rounds):
        return
    if free:
        raise ConfigError("--points 1 with --rounds 0 tries nothing", field="--points", value=depth.points)
    text = "; ".join(f"{name}: {why}" for name, why in find_excluded(space).items())
    names, allowed = ", ".join(depth.names) or "all that the strategy reads", ", ".join(searched(strategy))
    raise ConfigError(f"nothing can be searched: {text}", field="--parameter", value=names, allowed=allowed)


def find_excluded(space: SearchSpace) -> dict[str, str]:
    """Return the requested parameters that are not searched for the active strategy, and why.

    If no parameter is requested, all parameters that the strategy reads count as requested.
    """
    strategy, reasons = space.base.strategy, dict[str, str]()
    for name in space.requested or searched(strategy):
        value, row = getattr(space.base, name), RANGES[name]
        if name not in searched(strategy):
            reasons[name] = f"the active strategy {strategy} does not read it"
        elif not row.minimum <= value <= row.maximum:
            reasons[name] = f"its value {figure(value)} is outside of {figure(row.minimum)} to {figure(row.maximum)}"
    return reasons


def explain_limits(
    tried: TriedCandidates,
    choice: Choice,
    base: Parameters,
    held_out: Collection[int],
    depth: SearchDepth,
    reach: float,
) -> tuple[str, ...]:
    """Return why the gain is not larger, as sentences. `reach`: steps of a parameter that one night may change.

    Candidates are compared by their runs from the recorded placement, because only a few have others.
    """
    return (
        *_costless(tried, held_out, depth.prefer),
        *_at_the_end(choice.candidate, base, reach),
        *_beyond(tried, choice, held_out, depth.prefer),
    )


def _costless(tried: TriedCandidates, held_out: Collection[int], prefer: str) -> Iterator[str]:
    present = CandidateMeasures.sum(of_days(tried.results[tried.present], held_out, RECORDED).values())
    if prefer == "calm" and not present.client_seconds:
        yield "the present settings moved no bundle on the held-out days: there is nothing to save"


def _at_the_end(candidate: Candidate, base: Parameters, reach: float) -> Iterator[str]:
    """Yield each proposed value that changed as far as one night allows: a later run may go further."""
    for name, value in sorted(candidate.changes.items()):
        if steps_between(name, getattr(base, name), float(value)) > reach - 0.5:
            yield (
                f"{name} {figure(float(value))} is as far as one night may change it from "
                f"{figure(getattr(base, name))}; a larger change may be better"
            )


def _beyond(tried: TriedCandidates, choice: Choice, held_out: Collection[int], prefer: str) -> Iterator[str]:
    """Explain the candidates that would save more of the goal's measure, but make another measure worse."""
    name, present = GOALS[prefer], of_days(tried.results[tried.present], held_out, RECORDED)
    own = _cost(tried, choice.candidate.key, held_out, name)
    # Pulsar's own classes are never proposed.
    keys = (key for key in tried.results if tried.candidates[key].name not in NATIVES)
    costs = {key: _cost(tried, key, held_out, name) for key in keys}
    better = {key: cost for key, cost in costs.items() if cost < own}
    if not better:
        yield f"none of the other {numbered(len(costs) - 1, 'tested candidate')} has lower {TITLES[name]}"
        return
    refused = {key for key in better if worse(present, of_days(tried.results[key], held_out, RECORDED))}
    if refused:
        key = min(refused, key=lambda item: (better[item], item))
        why = worse(present, of_days(tried.results[key], held_out, RECORDED))
        count = f"{numbered(len(refused), 'tested candidate')} with lower {TITLES[name]} made another measure worse"
        yield f"{count}; the lowest, {tried.candidates[key].name}: {TITLES[name]} {figure(better[key], 3)}, but {why}"
    if rest := len(better) - len(refused):
        yield (
            f"{numbered(rest, 'tested candidate')} had lower {TITLES[name]} on the held-out days only; the days of the "
            "search choose, because a choice by the held-out days could not be judged any more"
        )


def _cost(tried: TriedCandidates, key: str, days: Collection[int], name: str) -> float:
    total = CandidateMeasures.sum(of_days(tried.results[key], days, RECORDED).values())
    return total.imbalance if name == "imbalance" else total.per_day(total.client_seconds) / 24
