"""The choice among what was tried: made by some days, confirmed or dropped by others that the search has not seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from bundlekeel.core.model.parameters import Parameters
from bundlekeel.sim.backtest.candidates import Candidate
from bundlekeel.sim.backtest.intervals import SAME, Interval, PairedDifference, chance, compared
from bundlekeel.sim.backtest.measures import CandidateMeasures
from bundlekeel.sim.backtest.search import TriedCandidates, overloaded, total, worse
from bundlekeel.sim.backtest.shrinkage import shrunk

Day = TypeVar("Day", int, str)
TOLERANCE: Final = 0.01
# How often other days must say yes, each time as many as are held out. A proposal is to hold for weeks, and one that is
# refused tonight helps nobody: a sure gain goes before a larger one that is on the edge.
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
        return _unchanged(tried, blocks, f"not confirmed on {len(blocks)} held-out blocks: {candidate.name}: {why}")
    return Choice(
        candidate=candidate,
        reason=f"{1 - between.moves.value:.0%} fewer moves, imbalance {between.imbalance.value:+.3f}, "
        f"on {len(blocks)} held-out blocks",
        present=then,
        chosen=now,
        between=between,
    )


def _likely_best(
    tried: TriedCandidates, base: Parameters, train: Sequence[int], size: int, tolerance: float, seed: int
) -> str:
    """The key of what is likely best: the share of moves that is expected to go (`shrunk`), times the chance that it
    is confirmed `TIMES` times, each time by `size` other blocks. Only what was not overloaded for longer; the present
    itself when nothing saves any. Equals by balance, fewer changes, key."""
    expected, before = shrunk(tried, base, train), tried.results[tried.present]
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
        # What is next to nothing may be drawn down to nothing (`shrunk`).
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
    return f"{moves.value:.2f} times the moves, up to {moves.high:.2f} on others"
