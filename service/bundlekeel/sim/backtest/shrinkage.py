"""What candidates likely come to on other blocks: half of what they came to, half of what their surroundings did.

A course is chaotic: one move more or less, and all later ones are others. Of a hundred candidates the best by its own
blocks was also lucky, and on other blocks it is not. Luck differs from one candidate to the next, what a threshold does
changes slowly along it: a smooth surface through all candidates has little of the luck, but cannot follow every bend.
Half-way between the two is nearer to what other blocks say than either (Stein's shrinkage, after James and Stein 1961).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.core.calibration.threshold_ranges import RANGES, steps_between
from bundlekeel.core.model.load import Floats
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.sim.backtest.candidates import Candidate
from bundlekeel.sim.backtest.search import PAIRS, TriedCandidates, changes_to, strategy_of, total

# How much of a figure is its own; the rest is the surface's.
OWN: Final = 0.5
# So flat may the surface be, in units of the columns; which one, the candidates decide (each left out once).
_PENALTIES: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
# Nothing has no logarithm: this share of the mean is added.
_FLOOR: Final = 0.02
# Fewer candidates make no surface.
_FEWEST: Final = 5
_FAR: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkEstimate:
    """What a candidate likely comes to. imbalance: time mean of max/mean - 1. moves: on so many blocks."""

    imbalance: float
    moves: float


def shrunk(tried: TriedCandidates, base: Parameters, blocks: Collection[int]) -> dict[str, ShrunkEstimate]:
    """By key, what is to be expected of every candidate by these blocks. Candidates of one strategy and cycle have a
    surface of their own; so few that there is none keep their figures."""
    groups: dict[tuple[str, float], list[str]] = {}
    for key, item in tried.candidates.items():
        groups.setdefault((strategy_of(item, base), item.cycle_seconds), []).append(key)
    found: dict[str, ShrunkEstimate] = {}
    for (strategy, _), keys in groups.items():
        sums = [total(tried.results[key], blocks) for key in keys]
        columns = _columns([tried.candidates[key] for key in keys], strategy, base)
        imbalance = _drawn(columns, np.array([item.imbalance for item in sums]))
        moves = _drawn(columns, np.array([item.moves for item in sums], dtype=float))
        for key, one, other in zip(keys, imbalance, moves, strict=True):
            found[key] = ShrunkEstimate(imbalance=float(one), moves=float(other))
    return found


def _columns(candidates: Sequence[Candidate], strategy: str, base: Parameters) -> Floats:
    """One row a candidate: 1, then for every parameter how far up and how far down it is from where the strategy
    starts, then the two main parameters multiplied; shape (candidates, columns), each at most 1 away from 0."""
    own = changes_to(strategy, base)
    names = sorted({name for item in candidates for name in item.changes if name in RANGES})
    at = {name: np.array([_steps(name, item.changes, own, base) for item in candidates]) for name in names}
    columns = [np.ones(len(candidates))]
    for name in names:
        columns += [np.maximum(at[name], 0.0), np.minimum(at[name], 0.0)]
    main = [at[name] for name in PAIRS.get(strategy, ()) if name in at]
    if len(main) == 2:
        columns.append(main[0] * main[1])
    table = np.column_stack(columns)
    width = np.abs(table).max(axis=0)
    kept: Floats = table[:, width > 0] / width[width > 0]
    return kept


def _steps(name: str, changes: Mapping[str, object], own: Mapping[str, object], base: Parameters) -> float:
    start = float(own.get(name, getattr(base, name)))  # type: ignore[arg-type]
    value = float(changes.get(name, start))  # type: ignore[arg-type]
    return float(np.clip(steps_between(name, start, value), 0.0, _FAR) * np.sign(value - start))


def _drawn(columns: Floats, values: Floats) -> Floats:
    """Values >= 0 drawn half-way to the surface through all of them; on a scale where twice is as far as half."""
    floor = _FLOOR * values.mean()
    if len(values) < _FEWEST or floor <= 0:
        return values
    own = np.log(values + floor)
    found: Floats = np.maximum(np.exp(OWN * own + (1 - OWN) * _surface(columns, own)) - floor, 0.0)
    return found


def _surface(columns: Floats, values: Floats) -> Floats:
    """A ridge regression, the first column (1) free; its penalty is that which foretells each value best from all the
    others."""
    best, found = np.inf, values
    for penalty in _PENALTIES:
        weights = np.full(columns.shape[1], penalty)
        weights[0] = 1e-9
        hat = columns @ np.linalg.solve(columns.T @ columns + np.diag(weights), columns.T)
        surface = hat @ values
        left_out = (values - surface) / np.maximum(1 - np.diag(hat), 1e-3)
        error = float((left_out**2).mean())
        if error < best:
            best, found = error, surface
    return found
