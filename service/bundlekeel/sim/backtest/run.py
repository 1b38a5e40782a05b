"""The back-test: the same `plan()` as the daemon's, for each candidate, through the same recorded traffic.

Traffic is as recorded whatever is planned; ownership is each candidate's own, and so are memory, books, cool-downs and
budgets. A broker that owns what was recorded of it reports what was recorded of it, to the last bit; another one what
a unit of traffic makes of the difference (`RecordedTraffic.per_unit`). What the back-test cannot know: clients that
behave otherwise after a move, and moves that fail. One plan a period: cycles shorter than that make no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bundlekeel.sim.backtest.candidate_run import CandidateRun, CandidateStep
from bundlekeel.sim.backtest.candidates import Candidate
from bundlekeel.sim.backtest.measures import CandidateMeasures
from bundlekeel.sim.backtest.periods import beginning, periods, traits
from bundlekeel.sim.backtest.traffic import Chunk, RecordedTraffic

__all__ = ["Candidate", "CandidateStep", "DayMeasures", "backtest", "unbroken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayMeasures:
    """One candidate (its key) on one day (since 1970, UTC)."""

    candidate: str
    day: int
    measures: CandidateMeasures


def backtest(
    traffic: RecordedTraffic,
    candidates: Sequence[Candidate],
    *,
    warm: int = 0,
    seen: Callable[[Candidate, CandidateStep], None] | None = None,
    digests: bool = False,
) -> list[DayMeasures]:
    """Every candidate through all periods, the first `warm` of which are not counted.

    One result for each candidate and day with counted periods, in the order of candidates, then days. `seen` is told
    each step. digests: plans get the hashes of recorded ones. ConfigError for a candidate with a value out of range;
    HistoryError when what was recorded does not fit this release.
    """
    return unbroken([Chunk(traffic=traffic, warm=warm)], candidates, seen=seen, digests=digests)


def unbroken(
    pieces: Iterable[Chunk],
    candidates: Sequence[Candidate],
    *,
    seen: Callable[[Candidate, CandidateStep], None] | None = None,
    digests: bool = False,
) -> list[DayMeasures]:
    """Every candidate in one course through pieces of history that follow one another, as it would run: each goes on
    with the ownership it came to, not with the recorded one. Periods that an earlier piece had are passed over.

    Results, `seen`, `digests` and errors as of `backtest`.
    """
    courses: list[CandidateRun] = []
    last = -1
    for piece in pieces:
        traffic, known = piece.traffic, traits(piece.traffic)
        first = int(np.searchsorted(traffic.wall_ms, last, side="right"))
        if first == traffic.periods:
            continue
        if not courses:
            start = beginning(traffic)
            courses = [CandidateRun(traffic, known, start, candidate, digests=digests) for candidate in candidates]
        else:
            for run in courses:
                run.onto(traffic, known, first)
        for period in islice(periods(traffic), first, None):
            for run in courses:
                step = run.step(period, counted=period.number >= piece.warm)
                if seen is not None:
                    seen(run.candidate, step)
        last = int(traffic.wall_ms[-1])
    return [
        DayMeasures(candidate=run.candidate.key, day=day, measures=found)
        for run in courses
        for day, found in run.days()
    ]
