"""The choice among what was tried: made by some days, confirmed or dropped by others that the search has not seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from bundlekeel.core.calibration.thresholds import RANGES, steps_between
from bundlekeel.core.model.load import Floats
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.text_format import gain
from bundlekeel.sim.backtest.intervals import SAME, Interval, PairedDifference, chance, compared
from bundlekeel.sim.backtest.measures import Candidate, CandidateMeasures
from bundlekeel.sim.backtest.search import PAIRS, TriedCandidates, changes_to, overloaded, strategy_of, total, worse

Day = TypeVar("Day", int, str)
TOLERANCE: Final = 0.01
# How often other days must say yes, each time as many as are held out. A proposal is to hold for weeks, and one that is
# refused tonight does not help: a sure gain goes before a larger one that is on the edge.
TIMES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to use from now on; the present settings when nothing is better, and `reason` says so.

    present, chosen: on the held-out blocks, with what lies between them.
    """

    candidate: Candidate
    reason: str
    present: CandidateMeasures
    chosen: CandidateMeasures
    between: PairedDifference


def split_days(days: Collection[Day], held_out: float = 0.3) -> tuple[tuple[Day, ...], tuple[Day, ...]]:
    """Days (numbers or dates) to search on, and those held out: the last ones, so that the future judges the past; at
    least one of each.

    ValueError with fewer than two days.
    """
    ordered = sorted(set(days))
    if len(ordered) < 2:
        raise ValueError(f"{len(ordered)} days cannot be divided")
    count = min(max(1, round(held_out * len(ordered))), len(ordered) - 1)
    return tuple(ordered[:-count]), tuple(ordered[-count:])


def choose(
    tried: TriedCandidates,
    base: Parameters,
    *,
    train: Collection[int],
    held: Collection[int],
    tolerance: float = TOLERANCE,
    seed: int = 0,
    draws: int = 1000,
) -> Choice:
    """What likely saves most moves on other days by the blocks of `train`, if the blocks `held` confirm it.

    One candidate only is shown to these: were they to pick among many, they would be part of the search. It must not
    be worse there (`search.worse`) and move less for certain, else the present settings stay. ValueError without blocks
    of either kind.
    """
    first = sorted(set(train) & set(tried.results[tried.present]))
    blocks = sorted(set(held) & set(tried.results[tried.present]))
    if not blocks or not first:
        raise ValueError("no block of the search to choose by" if blocks else "no held-out block to judge by")
    before = tried.results[tried.present]
    candidate = tried.candidates[_likely_best(tried, base, first, len(blocks), tolerance, seed)]
    if candidate.key == tried.present:
        return _unchanged(tried, blocks, "no candidate reduced moves without worsening balance")
    after = tried.results[candidate.key]
    between = compared(before, after, blocks, seed=seed, draws=draws)
    then, now = total(before, blocks), total(after, blocks)
    why = worse(then, now, tolerance) or _no_gain(between.moves)
    if why:
        return _unchanged(
            tried,
            blocks,
            f"the best of the search was not confirmed on {len(blocks)} held-out blocks: {candidate.name}: {why}",
        )
    return Choice(
        candidate=candidate,
        reason=brought(then, now),
        present=then,
        chosen=now,
        between=between,
    )


def brought(before: CandidateMeasures, after: CandidateMeasures) -> str:
    """What other settings bring, in words."""
    return gain((before.moves_per_day / 24, after.moves_per_day / 24), (before.imbalance, after.imbalance))


def _likely_best(
    tried: TriedCandidates, base: Parameters, train: Sequence[int], size: int, tolerance: float, seed: int
) -> str:
    """The key of what is likely best: the share of moves that is expected to go (`shrunk_estimates`), times the chance
    that it is confirmed `TIMES` times, each time by `size` other blocks. Only what was not overloaded for longer; the
    present itself when nothing saves any. Equals by balance, fewer changes, key."""
    expected, before = shrunk_estimates(tried, base, train), tried.results[tried.present]
    now, then = expected[tried.present], total(before, train)
    if not then.moves:
        # There is nothing to save, whatever the surroundings let expect.
        return tried.present

    def saved(key: str) -> float:
        found, after = expected[key], tried.results[key]
        if found.moves >= now.moves:
            return 0.0
        own = total(after, train)
        if overloaded(then, own, tolerance):
            return 0.0
        # What is next to nothing may be drawn down to nothing (`shrunk_estimates`).
        level = min(then.imbalance, now.imbalance) > 0
        luck = (
            _quotient(own.imbalance / then.imbalance, found.imbalance / now.imbalance) if level else 1.0,
            _quotient(own.moves / then.moves, found.moves / now.moves),
        )
        sure = chance(before, after, train, tolerance, size=size, luck=luck, seed=seed)
        return float((1 - found.moves / now.moves) * sure**TIMES)

    def worth(key: str) -> tuple[float, bool, float, int, str]:
        return -saved(key), key != tried.present, expected[key].imbalance, len(tried.candidates[key].changes), key

    return min(expected, key=worth)


def _quotient(one: float, other: float) -> float:
    return one / other if one > 0 and other > 0 else 1.0


def _unchanged(tried: TriedCandidates, blocks: Collection[int], reason: str) -> Choice:
    same = total(tried.results[tried.present], blocks)
    return Choice(candidate=tried.candidates[tried.present], reason=reason, present=same, chosen=same, between=SAME)


def _no_gain(moves: Interval) -> str:
    """Why it is no gain; empty: it is one."""
    if moves.high < 1:
        return ""
    return (
        f"fewer moves are not certain: there it makes {moves.value:.2f} times the moves of the settings in force, and "
        f"on other days it may make up to {moves.high:.2f} times as many"
    )


# What candidates likely come to on other blocks: half of what they came to, half of what their surroundings did.
# A run is chaotic: one move more or less, and all later ones are others. Of a hundred candidates the best by its
# own blocks was also lucky, and on other blocks it is not. Luck differs from one candidate to the next, what a
# threshold does changes slowly along it: a smooth surface through all candidates has little of the luck, but cannot
# follow every bend. Half-way between the two is nearer to what other blocks say than either (Stein's shrinkage,
# after James and Stein 1961).


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


def shrunk_estimates(tried: TriedCandidates, base: Parameters, blocks: Collection[int]) -> dict[str, ShrunkEstimate]:
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
