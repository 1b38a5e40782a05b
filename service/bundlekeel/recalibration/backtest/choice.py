"""Choose the best candidate (settings to test) on some days, and confirm it on held-out days, which the search did not
use."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from bundlekeel.model.text_format import gain
from bundlekeel.recalibration.backtest.intervals import measures_of
from bundlekeel.recalibration.backtest.measures import ByBlock, Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.search import TriedCandidates, ranked, total, worse
from bundlekeel.recalibration.rules.thresholds import EQUAL

Day = TypeVar("Day", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The candidate to propose, or the present settings if no candidate is better; `reason` says why.

    present, chosen: measures of the present settings and of `candidate` on the held-out blocks (hours of history).
    """

    candidate: Candidate
    reason: str
    present: CandidateMeasures
    chosen: CandidateMeasures


def split_days(days: Collection[Day], held_out: float = 0.3) -> tuple[tuple[Day, ...], tuple[Day, ...]]:
    """Return the days (numbers or dates) to search by, and the held-out days, at least one of each.

    The last days are held out, so that a result of earlier days is tested on later ones. `held_out`: share of the days.
    Raises ValueError if there are fewer than two days.
    """
    ordered = sorted(set(days))
    if len(ordered) < 2:
        raise ValueError(f"{len(ordered)} days cannot be divided")
    count = min(max(1, round(held_out * len(ordered))), len(ordered) - 1)
    return tuple(ordered[:-count]), tuple(ordered[-count:])


def choose(
    tried: TriedCandidates,
    *,
    train: Collection[int],
    held_out: Collection[int],
    tolerance: float = EQUAL,
    seed: int = 0,
) -> Choice:
    """Return the candidate (settings) that is best on `train` and confirmed on `held_out`, else the present settings.

    `train`, `held_out`: numbers of blocks (hours of history). Only the best candidate is compared on `held_out`: a
    choice among many would make these blocks part of the search. On `held_out` it must not be worse (`search.worse`),
    and must certainly need fewer moves. Raises ValueError if `train` or `held_out` is empty.
    """
    before = tried.results[tried.present]
    first, blocks = set(train) & set(before), set(held_out) & set(before)
    if not blocks or not first:
        raise ValueError("no block of the search to choose by" if blocks else "no held-out block to judge by")
    candidate = ranked(tried, blocks=first, tolerance=tolerance, seed=seed)[0]
    after = tried.results[candidate.key]
    then, now = total(before, blocks), total(after, blocks)
    if candidate.key == tried.present:
        reason = "no candidate reduced moves without worsening balance"
    elif why := worse(then, now, tolerance) or _no_gain(before, after, blocks, seed):
        reason = f"the best of the search was not confirmed on {len(blocks)} held-out blocks: {candidate.name}: {why}"
        candidate, now = tried.candidates[tried.present], then
    else:
        reason = describe_gain(then, now)
    return Choice(candidate=candidate, reason=reason, present=then, chosen=now)


def describe_gain(before: CandidateMeasures, after: CandidateMeasures) -> str:
    """Return the difference between two measures in words, for example fewer moves."""
    return gain((before.moves_per_day / 24, after.moves_per_day / 24), (before.imbalance, after.imbalance))


def _no_gain(before: ByBlock, after: ByBlock, blocks: Collection[int], seed: int) -> str:
    """Return why it is not certain that `after` has fewer moves than `before`; empty if it is certain."""
    now = {block: after[block] for block in blocks if block in after}
    moves = measures_of(now, seed=seed, before=before).moves_per_hour
    if moves.high < 0:
        return ""
    return (
        f"fewer moves are not certain: the difference is {moves.mean:+.2f} moves per hour, and on other days it may be "
        f"up to {moves.high:+.2f}"
    )
