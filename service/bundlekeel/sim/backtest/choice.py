"""The choice among what was tried: made by some days, confirmed or dropped by others that the search has not seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from bundlekeel.sim.backtest.candidates import Candidate
from bundlekeel.sim.backtest.intervals import SAME, Compared, Interval, compared
from bundlekeel.sim.backtest.measures import Measures
from bundlekeel.sim.backtest.search import Tried, ranked, total, worse

TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to use from now on; the present settings when nothing is better, and `reason` says so.

    present, chosen: on the held-out days, with what lies between them.
    """

    candidate: Candidate
    reason: str
    present: Measures
    chosen: Measures
    between: Compared


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
    """What likely saves most moves on other days by those of `train` (`search.saving`), if the days `held` confirm it.

    One candidate only is shown to them: were they to pick among many, they would be days of the search. It must not
    be worse there (`search.worse`) and move less for certain, else the present settings stay. ValueError without days
    of either kind.
    """
    first = sorted(set(train) & set(tried.results[tried.present]))
    days = sorted(set(held) & set(tried.results[tried.present]))
    if not days or not first:
        raise ValueError("no day of the search to choose by" if days else "no held-out day to judge by")
    before = tried.results[tried.present]
    candidate = ranked(tried, days=first, tolerance=tolerance, seed=seed)[0]
    if candidate.key == tried.present:
        return _unchanged(tried, days, "nothing that was tried moves less at the same imbalance")
    after = tried.results[candidate.key]
    between = compared(before, after, days, seed=seed, draws=draws)
    then, now = total(before, days), total(after, days)
    why = worse(then, now, tolerance) or _no_gain(between.moves)
    if why:
        return _unchanged(tried, days, f"not confirmed on {len(days)} held-out days: {candidate.name}: {why}")
    return Choice(
        candidate=candidate,
        reason=f"{1 - between.moves.value:.0%} fewer moves, imbalance {between.imbalance.value:+.3f}, "
        f"on {len(days)} days",
        present=then,
        chosen=now,
        between=between,
    )


def _unchanged(tried: Tried, days: Collection[int], reason: str) -> Choice:
    same = total(tried.results[tried.present], days)
    return Choice(candidate=tried.candidates[tried.present], reason=reason, present=same, chosen=same, between=SAME)


def _no_gain(moves: Interval) -> str:
    """Why it is no gain; empty: it is one."""
    if moves.high < 1:
        return ""
    return f"{moves.value:.2f} times the moves, up to {moves.high:.2f} on others"
