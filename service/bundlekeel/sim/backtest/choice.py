"""The choice among what was tried: by days that the search has not seen, with an interval over days."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bundlekeel.core.load import Floats
from bundlekeel.sim.backtest.candidates import Candidate
from bundlekeel.sim.backtest.measures import FIGURES, Measures
from bundlekeel.sim.backtest.search import ByDay, Tried, ranked, total, worse

# Sums over some days, one row a draw; columns of `FIGURES`.
Statistic = Callable[[Floats], Floats]
TOLERANCE: Final = 0.01
_WEIGHTED, _SECONDS, _MOVES = (FIGURES.index(name) for name in ("weighted", "seconds", "moves"))
_WIDTH: Final = len(FIGURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure, and between what it lies in 95 of 100 draws of days."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to use from now on; the present settings when nothing is better, and `reason` says so.

    present, chosen: on the held-out days. imbalance: chosen less present. moves: chosen over present, 1 without any.
    passed_over: keys that were better on the days of the search, and why they were not taken.
    """

    candidate: Candidate
    reason: str
    present: Measures
    chosen: Measures
    imbalance: Interval
    moves: Interval
    passed_over: tuple[tuple[str, str], ...] = ()


def split_days(days: Collection[int], held_out: float = 0.3) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Days to search on, and those held out: the last ones, so that the future judges the past; one at least of each.

    ValueError with fewer than two days.
    """
    ordered = sorted(set(days))
    if len(ordered) < 2:
        raise ValueError(f"{len(ordered)} days cannot be divided")
    count = min(max(1, round(held_out * len(ordered))), len(ordered) - 1)
    return tuple(ordered[:-count]), tuple(ordered[-count:])


def choose(
    tried: Tried,
    *,
    train: Collection[int],
    held: Collection[int],
    tolerance: float = TOLERANCE,
    seed: int = 0,
    draws: int = 1000,
) -> Choice:
    """The fewest moves among what is not worse than the present settings (`search.worse`).

    Candidates are taken in the order that the days `train` give. The first one that is not worse on the days `held`
    either, and moves less there for certain (its whole interval), is it. ValueError without held-out days.
    """
    days = sorted(set(held) & set(tried.results[tried.present]))
    if not days:
        raise ValueError("no held-out day to judge by")
    now = tried.candidates[tried.present]
    before = tried.results[tried.present]
    passed: list[tuple[str, str]] = []
    for candidate in ranked(tried, days=train, tolerance=tolerance):
        if candidate.key == now.key:
            break
        after = tried.results[candidate.key]
        imbalance, moves = compared(before, after, days, seed=seed, draws=draws)
        why = worse(total(before, days), total(after, days), tolerance) or _no_gain(moves)
        if not why:
            return Choice(
                candidate=candidate,
                reason=f"{1 - moves.value:.0%} fewer moves, imbalance {imbalance.value:+.3f}, on {len(days)} days",
                present=total(before, days),
                chosen=total(after, days),
                imbalance=imbalance,
                moves=moves,
                passed_over=tuple(passed),
            )
        passed.append((candidate.key, why))
    same = total(before, days)
    return Choice(
        candidate=now,
        reason="nothing that was tried moves less at the same imbalance",
        present=same,
        chosen=same,
        imbalance=Interval(low=0.0, value=0.0, high=0.0),
        moves=Interval(low=1.0, value=1.0, high=1.0),
        passed_over=tuple(passed),
    )


def _no_gain(moves: Interval) -> str:
    """Why it is no gain; empty: it is one."""
    if moves.high < 1:
        return ""
    return f"{moves.value:.2f} times the moves on held-out days, up to {moves.high:.2f} on others"


def compared(
    before: ByDay, after: ByDay, days: Sequence[int], *, seed: int = 0, draws: int = 1000
) -> tuple[Interval, Interval]:
    """Imbalance (after less before) and moves (after over before) on the same days, each with its interval."""
    pairs = np.hstack([_table(before, days), _table(after, days)])

    def imbalance(sums: Floats) -> Floats:
        return _mean(sums, _WIDTH) - _mean(sums, 0)

    def moves(sums: Floats) -> Floats:
        then, now = sums[:, _MOVES], sums[:, _WIDTH + _MOVES]
        # Nothing against nothing is the same; something against nothing is more, however much.
        found: Floats = np.divide(now, then, out=np.where(now > 0, np.inf, 1.0), where=then > 0)
        return found

    return (
        bootstrap(pairs, imbalance, seed=seed, draws=draws),
        bootstrap(pairs, moves, seed=seed, draws=draws),
    )


def bootstrap(rows: Floats, statistic: Statistic, *, seed: int = 0, draws: int = 1000, level: float = 0.95) -> Interval:
    """A statistic of the sum of all rows (days), and its percentile interval over rows drawn with replacement.

    `statistic` gets sums, shape (n, columns), and gives n values. The same seed, the same interval.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(rows), size=(draws, len(rows)))
    values = np.sort(statistic(rows[drawn].sum(axis=1)))
    tail = (1 - level) / 2
    at = np.rint(np.array([tail, 1 - tail]) * (draws - 1)).astype(int)
    value = float(statistic(rows.sum(axis=0, keepdims=True))[0])
    return Interval(low=float(values[at[0]]), value=value, high=float(values[at[1]]))


def _table(results: ByDay, days: Sequence[int]) -> Floats:
    blank = Measures()
    return np.array([[getattr(results.get(day, blank), name) for name in FIGURES] for day in days])


def _mean(sums: Floats, offset: int) -> Floats:
    weighted, seconds = sums[:, offset + _WEIGHTED], sums[:, offset + _SECONDS]
    found: Floats = np.divide(weighted, seconds, out=np.zeros_like(weighted), where=seconds > 0)
    return found
