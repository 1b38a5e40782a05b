"""The back-test: the same `plan()` as the daemon's, for each candidate, through the same recorded traffic.

Traffic is as recorded whatever is planned; ownership is each candidate's own, and so are memory, books, cool-downs and
budgets. A broker that owns what was recorded of it reports what was recorded of it, to the last bit; another one what
a unit of traffic makes of the difference (`RecordedTraffic.per_unit`). What the back-test cannot know: clients that
behave otherwise after a move, and moves that fail. One plan a period, on its last recorded
cycle: what was read before that in the period is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from bundlekeel.core.guard.state import GuardState, SplitFailed
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Floats
from bundlekeel.core.model.names import parse_bundle
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Split
from bundlekeel.core.model.snapshot import BrokerTable, Snapshot, digest_of
from bundlekeel.core.model.text_format import HOUR_MS
from bundlekeel.core.planning.engine import PlanInput, PlanResult
from bundlekeel.core.planning.scores import score_of, weights_of
from bundlekeel.sim.backtest.layout import BundlePieces, OwnershipLayout, broker_table, bundle_table, layout_of
from bundlekeel.sim.backtest.measures import Candidate, CandidateMeasures, measured
from bundlekeel.sim.backtest.periods import StartState, StaticTraits, TrafficPeriod, beginning, periods, traits
from bundlekeel.sim.backtest.traffic import DAY_MS, NO_BROKER, Chunk, RecordedTraffic
from bundlekeel.sim.leader import SimulatedLeader
from bundlekeel.sim.measures import AN_HOUR

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
    """Every candidate in one run through pieces of history that follow one another, as it would run: each goes on
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


# One candidate's run through recorded traffic: its own ownership, memory, books and guard state.


# How long an unload and the lookups after it take.
LANDING_MS: Final = 1000
_UNSAID: Final = "back-test"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateStep:
    """One period of a run. `given`, `result`: None where the candidate's cycle was not due. `agrees`: every bundle
    is where it was recorded."""

    period: int
    wall_ms: int
    agrees: bool
    given: PlanInput | None = None
    result: PlanResult | None = None


@dataclass(slots=True)
class _Day:
    """What was counted of a day."""

    scores: list[Floats] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    hours: list[int] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, **figures: float) -> None:
        """Add to the figures."""
        for name, value in figures.items():
            self.figures[name] = self.figures.get(name, 0.0) + value

    def measures(self) -> CandidateMeasures:
        """The day's measures."""
        table = np.array(self.scores)
        takes = ~np.isnan(table)
        hours = np.array(self.hours, dtype=np.int64)
        found = measured(np.where(takes, table, 0.0), takes, np.array(self.seconds), hours)
        return found + CandidateMeasures(**self.figures)  # type: ignore[arg-type]


class CandidateRun:
    """`step` takes it one period further. `digests`: snapshots get the digest that a recorded one has, so that plans
    have comparable hashes; that takes time."""

    def __init__(
        self,
        traffic: RecordedTraffic,
        traits: StaticTraits,
        start: StartState,
        candidate: Candidate,
        *,
        digests: bool = False,
    ) -> None:
        self.candidate = candidate
        self.params: Parameters = candidate.params(start.params)
        self._traffic, self._traits, self._start, self._digests = traffic, traits, start, digests
        self._pieces = BundlePieces(traffic.bundles, traffic.owner[0].astype(np.int64))
        self._row = {broker: row for row, broker in enumerate(traffic.brokers)}
        self._leader = SimulatedLeader(
            params=self.params,
            landing_ms=LANDING_MS,
            memory=start.memory,
            ledger=start.ledger,
            recent=start.guard.recent,
            last_hour=start.guard.last_hour,
            split_failed=start.guard.split_failed,
        )
        self._moved_at: dict[str, int] = {}
        self._planned_ms: int | None = None
        self._layout: tuple[tuple[int, int], OwnershipLayout] | None = None
        self._shape = 0
        self._days: dict[int, _Day] = {}
        self._past: dict[int, CandidateMeasures] = {}

    def onto(self, traffic: RecordedTraffic, traits: StaticTraits, first: int) -> None:
        """Go on in the stretch of history that follows, from its period `first`: with the ownership, memory, books and
        guard state that this run has come to."""
        row = {broker: row for row, broker in enumerate(traffic.brokers)}
        brokers = np.array([*(row.get(broker, NO_BROKER) for broker in self._row), NO_BROKER], dtype=np.int64)
        self._pieces = self._pieces.onto(traffic.bundles, traffic.owner[first].astype(np.int64), brokers)
        # Brokers may be others there, and a day's scores are one table.
        self._past, self._days = dict(self.days()), {}
        self._traffic, self._traits, self._row = traffic, traits, row
        self._layout, self._shape = None, 0

    def step(self, period: TrafficPeriod, *, counted: bool) -> CandidateStep:
        """Plan on a period and carry the plan out; `counted`: it goes into the measures."""
        self._follow(period)
        layout = self._laid_out(period)
        brokers = self._brokers(period, layout)
        day = self._days.setdefault(period.wall_ms // DAY_MS, _Day()) if counted else _Day()
        self._look(period, layout, brokers, day)
        agrees = not len(layout.apart)
        if not self._due(period.wall_ms):
            return CandidateStep(period=period.number, wall_ms=period.wall_ms, agrees=agrees)
        self._planned_ms = period.wall_ms
        given, result = self._leader.decide(self._given(period, layout, brokers))
        self._carry_out(period, result, day)
        day.add(plans=1, refused=len(result.plan.refusals))
        return CandidateStep(period=period.number, wall_ms=period.wall_ms, agrees=agrees, given=given, result=result)

    def days(self) -> list[tuple[int, CandidateMeasures]]:
        """What was counted, by day."""
        found = dict(self._past)
        for day, kept in self._days.items():
            found[day] = found.get(day, CandidateMeasures()) + kept.measures()
        return sorted(found.items())

    # --- ownership ---

    def _follow(self, period: TrafficPeriod) -> None:
        """New bundles come to where they were recorded, or to where the bundle was that they were split from; those of
        a broker that is gone to where they were recorded next."""
        if period.shape == self._shape:
            return
        self._shape = period.shape
        pieces = self._pieces
        for column, parent in period.arrived:
            # One that the run came with is only reported again.
            if pieces.owner[column] < 0:
                pieces.appear(column, parent, int(period.owner[column]))
        gone = ~period.present
        gone[[self._row[item.broker_id] for item in period.given.excluded if item.broker_id in self._row]] = False
        recorded = period.owner[pieces.column]
        lost = (pieces.owner >= 0) & gone[pieces.owner] & (recorded >= 0)
        if lost.any():
            pieces.owner[lost] = recorded[lost]
            pieces.version += 1

    def _laid_out(self, period: TrafficPeriod) -> OwnershipLayout:
        key = (period.shape, self._pieces.version)
        if self._layout is None or self._layout[0] != key:
            self._layout = key, layout_of(self._pieces, period, self._traits, self._traffic.brokers)
        return self._layout[1]

    # --- the picture ---

    def _brokers(self, period: TrafficPeriod, layout: OwnershipLayout) -> BrokerTable:
        every_ms = max(1, int(1000 * self.params.statistics_interval_seconds))
        return broker_table(layout, self._pieces, period, self._traits, self._traffic.per_unit, every_ms)

    def _look(self, period: TrafficPeriod, layout: OwnershipLayout, brokers: BrokerTable, day: _Day) -> None:
        """Note the scores, all candidates' by the recorded weights."""
        scores = np.full(len(self._traffic.brokers), np.nan)
        weights = weights_of(self._start.params, period.given.mode)
        scores[layout.here] = score_of(brokers.usage, brokers.limit, weights)
        day.scores.append(scores)
        day.seconds.append(period.seconds)
        day.hours.append(period.wall_ms // HOUR_MS)

    def _due(self, now_ms: int) -> bool:
        every_ms = 1000 * self.candidate.cycle_seconds
        return self._planned_ms is None or now_ms - self._planned_ms >= every_ms - LANDING_MS

    def _given(self, period: TrafficPeriod, layout: OwnershipLayout, brokers: BrokerTable) -> PlanInput:
        bundles, given = bundle_table(layout, self._pieces, period), period.given
        digest = digest_of(brokers, bundles, given.excluded) if self._digests else _UNSAID
        intervals = period.intervals[layout.here]
        snapshot = Snapshot(
            wall_ms=period.wall_ms,
            mode=given.mode,
            brokers=brokers,
            bundles=bundles,
            excluded=given.excluded,
            registered=given.registered,
            digest=digest,
            intervals=tuple(intervals.tolist()) if intervals.any() else (),
        )
        return PlanInput(
            snapshot=snapshot,
            params=self.params,
            guard=self._guard(given.guard),
            policies=given.policies,
            seed=given.seed,
            brokers_split=given.brokers_split,
            owned=self._owned(given.guard),
        )

    def _guard(self, state: GuardState) -> GuardState:
        """Return the recorded requests of operators, without the effects of the recorded moves."""
        start = self._start.guard
        return replace(state, recent_brokers=start.recent_brokers, quarantined=start.quarantined)

    def _owned(self, state: GuardState) -> dict[str, frozenset[str]]:
        """By draining broker, what it has in this run."""
        rows = {broker: self._row[broker] for broker in state.draining if broker in self._row}
        pieces = self._pieces
        return {
            broker: frozenset(pieces.texts(np.flatnonzero(pieces.alive & (pieces.owner == row))))
            for broker, row in rows.items()
        }

    # --- acting ---

    def _carry_out(self, period: TrafficPeriod, result: PlanResult, day: _Day) -> None:
        now, pieces = period.wall_ms, self._pieces
        for move in result.plan.moves:
            self._leader.land(move.bundle, move.target, now + LANDING_MS)
            row = pieces.place[move.bundle]
            pieces.move(row, self._row[move.target])
            column, part = int(pieces.column[row]), float(pieces.share[row])
            carried, counts = (period.rates[column] * part).tolist(), period.counts[column]
            last = self._moved_at.get(move.bundle)
            self._moved_at[move.bundle] = now
            day.add(
                moves=1,
                moved_rate=carried[0] + carried[1],
                moved_bytes=carried[2] + carried[3],
                moved_sessions=float(counts[1] + counts[2]) * part,
                moved_twice=float(last is not None and now - last < 1000 * AN_HOUR),
            )
        for split in result.plan.splits:
            self._divide(period, split, day)

    def _divide(self, period: TrafficPeriod, split: Split, day: _Day) -> None:
        """Halve a bundle, where there are topics and room for two."""
        pieces, name = self._pieces, parse_bundle(split.bundle)
        row = pieces.place[split.bundle]
        topics = float(period.counts[pieces.column[row], 0]) * float(pieces.share[row])
        narrow = name.upper - name.lower < 2
        if narrow or topics < 2:
            code = Code.NARROW_RANGE if narrow else Code.SINGLE_TOPIC
            self._leader.end_split(split.bundle, SplitFailed(at_ms=period.wall_ms, code=code.value))
            return
        pieces.split(row, (name.lower + name.upper) // 2)
        self._leader.end_split(split.bundle, None)
        day.add(splits=1)
