"""The back-test: the same `plan()` as the sidecar's, for each candidate, on the same recorded traffic.

Traffic does not depend on the plans. Each candidate has its own owners of bundles, memory, ledger (moves that reports
do not show yet), cool-downs and budgets. A broker with exactly its recorded bundles has its recorded report. The report
of another broker is corrected by the usage per unit of traffic (`RecordedTraffic.per_unit`) of the bundles that it
gained or lost. There is one plan per period, on its last recorded cycle. Not simulated are clients that behave
differently after a move, and moves that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Floats
from bundlekeel.model.names import parse_bundle
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Split
from bundlekeel.model.snapshot import BrokerTable, Snapshot, digest_of
from bundlekeel.model.text_format import HOUR_MS
from bundlekeel.planning.engine import PlanInput, PlanResult
from bundlekeel.planning.guard.state import GuardState, SplitFailed
from bundlekeel.planning.scores import score_of, weights_of
from bundlekeel.recalibration.backtest.layout import (
    BundlePieces,
    OwnershipLayout,
    broker_table,
    bundle_table,
    layout_of,
)
from bundlekeel.recalibration.backtest.measures import Candidate, CandidateMeasures, measure_scores
from bundlekeel.recalibration.backtest.periods import (
    StartState,
    StaticTraits,
    TrafficPeriod,
    parse_start,
    periods,
    traits,
)
from bundlekeel.recalibration.backtest.traffic import DAY_MS, NO_BROKER, Chunk, RecordedTraffic
from bundlekeel.simulator.leader import SimulatedLeader

__all__ = ["Candidate", "CandidateStep", "DayMeasures", "backtest", "unbroken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayMeasures:
    """The measures of one candidate on one day. `candidate`: its key; `day`: days since 1970-01-01, UTC."""

    candidate: str
    day: int
    measures: CandidateMeasures


def backtest(
    traffic: RecordedTraffic,
    candidates: Sequence[Candidate],
    *,
    warm: int = 0,
    observe: Callable[[Candidate, CandidateStep], None] | None = None,
    digests: bool = False,
) -> list[DayMeasures]:
    """Run every candidate through all periods. The first `warm` periods are not counted.

    Returns one result per candidate and day with counted periods, in the order of candidates, then days. `observe` is
    called after each period of a candidate. digests: compute the digest of each snapshot, so that plan hashes can be
    compared with the recorded ones. Raises ConfigError if a candidate's value is out of range, and HistoryError if the
    recorded state does not fit this release.
    """
    return unbroken([Chunk(traffic=traffic, warm=warm)], candidates, observe=observe, digests=digests)


def unbroken(
    pieces: Iterable[Chunk],
    candidates: Sequence[Candidate],
    *,
    observe: Callable[[Candidate, CandidateStep], None] | None = None,
    digests: bool = False,
) -> list[DayMeasures]:
    """Run every candidate through consecutive pieces of history, without a new start at each piece.

    At the start of a piece, a candidate's bundles stay where its own moves put them. Periods that an earlier piece
    contains are skipped. Results, `observe`, `digests` and errors are as in `backtest`.
    """
    courses: list[CandidateRun] = []
    last = -1
    for piece in pieces:
        traffic, static_traits = piece.traffic, traits(piece.traffic)
        first = int(np.searchsorted(traffic.wall_ms, last, side="right"))
        if first == traffic.periods:
            continue
        if not courses:
            start = parse_start(traffic)
            courses = [
                CandidateRun(traffic, static_traits, start, candidate, digests=digests) for candidate in candidates
            ]
        else:
            for run in courses:
                run.onto(traffic, static_traits, first)
        for period in islice(periods(traffic), first, None):
            for run in courses:
                step = run.step(period, counted=period.number >= piece.warm)
                if observe is not None:
                    observe(run.candidate, step)
        last = int(traffic.wall_ms[-1])
    return [
        DayMeasures(candidate=run.candidate.key, day=day, measures=measures)
        for run in courses
        for day, measures in run.days()
    ]


# Milliseconds that an unload and the following lookups take.
LANDING_MS: Final = 1000
_NO_DIGEST: Final = "back-test"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateStep:
    """Result of one period of a candidate's run.

    `inputs`, `result`: None if no plan was due. `agrees`: whether every bundle is at its recorded broker.
    """

    period: int
    wall_ms: int
    agrees: bool
    inputs: PlanInput | None = None
    result: PlanResult | None = None


@dataclass(slots=True)
class _Day:
    """Sums of a candidate's run over one day."""

    scores: list[Floats] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    hours: list[int] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, **figures: float) -> None:
        for name, value in figures.items():
            self.figures[name] = self.figures.get(name, 0.0) + value

    def measures(self) -> CandidateMeasures:
        table = np.array(self.scores)
        takes = ~np.isnan(table)
        hours = np.array(self.hours, dtype=np.int64)
        by_scores = measure_scores(np.where(takes, table, 0.0), takes, np.array(self.seconds), hours)
        return by_scores + CandidateMeasures(**self.figures)


class CandidateRun:
    """One candidate's run through recorded traffic. `step` advances the run by one period.

    `digests`: compute the digest of each snapshot, for comparable plan hashes. This is slow.
    """

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
        self._planned_ms: int | None = None
        self._layout: tuple[tuple[int, int], OwnershipLayout] | None = None
        self._shape = 0
        self._days: dict[int, _Day] = {}
        self._past: dict[int, CandidateMeasures] = {}

    def onto(self, traffic: RecordedTraffic, traits: StaticTraits, first: int) -> None:
        """Continue with the next piece of history, from period `first`, and keep the state of this run."""
        row = {broker: row for row, broker in enumerate(traffic.brokers)}
        brokers = np.array([*(row.get(broker, NO_BROKER) for broker in self._row), NO_BROKER], dtype=np.int64)
        self._pieces = self._pieces.onto(traffic.bundles, traffic.owner[first].astype(np.int64), brokers)
        # The next piece may have other brokers. A day's scores are one array with one column per broker, so finish it.
        self._past, self._days = dict(self.days()), {}
        self._traffic, self._traits, self._row = traffic, traits, row
        self._layout, self._shape = None, 0

    def step(self, period: TrafficPeriod, *, counted: bool) -> CandidateStep:
        """Plan on a period and execute the plan. `counted`: whether the period is added to the measures."""
        self._follow(period)
        layout = self._laid_out(period)
        brokers = self._brokers(period, layout)
        day = self._days.setdefault(period.wall_ms // DAY_MS, _Day()) if counted else _Day()
        self._sample(period, layout, brokers, day)
        agrees = not len(layout.apart)
        if not self._due(period.wall_ms):
            return CandidateStep(period=period.number, wall_ms=period.wall_ms, agrees=agrees)
        self._planned_ms = period.wall_ms
        inputs, result = self._leader.decide(self._plan_input(period, layout, brokers))
        self._execute(period, result, day)
        day.add(plans=1, refused=len(result.plan.refusals))
        return CandidateStep(period=period.number, wall_ms=period.wall_ms, agrees=agrees, inputs=inputs, result=result)

    def days(self) -> list[tuple[int, CandidateMeasures]]:
        """Return each day (number since 1970-01-01, UTC) with its measures, in order."""
        by_day = dict(self._past)
        for day, sums in self._days.items():
            by_day[day] = by_day.get(day, CandidateMeasures()) + sums.measures()
        return sorted(by_day.items())

    # --- ownership ---

    def _follow(self, period: TrafficPeriod) -> None:
        """Set the owners of bundles that are new or whose broker has disappeared.

        A new bundle goes to its recorded broker, or to the broker of the bundle that it was split from. Bundles of an
        absent broker go to their recorded broker.
        """
        if period.shape == self._shape:
            return
        self._shape = period.shape
        pieces = self._pieces
        for column, parent in period.arrived:
            # A bundle that already has an owner was in an earlier piece of the history.
            if pieces.owner[column] < 0:
                pieces.appear(column, parent, int(period.owner[column]))
        absent = ~period.traffic.present[period.number]
        absent[[self._row[item.broker_id] for item in period.conditions.excluded if item.broker_id in self._row]] = (
            False
        )
        recorded = period.owner[pieces.column]
        lost = (pieces.owner >= 0) & absent[pieces.owner] & (recorded >= 0)
        if lost.any():
            pieces.owner[lost] = recorded[lost]
            pieces.version += 1

    def _laid_out(self, period: TrafficPeriod) -> OwnershipLayout:
        key = (period.shape, self._pieces.version)
        if self._layout is None or self._layout[0] != key:
            self._layout = key, layout_of(self._pieces, period, self._traits)
        return self._layout[1]

    # --- the picture ---

    def _brokers(self, period: TrafficPeriod, layout: OwnershipLayout) -> BrokerTable:
        every_ms = max(1, int(1000 * self.params.statistics_interval_seconds))
        return broker_table(layout, self._pieces, period, self._traits, every_ms)

    def _sample(self, period: TrafficPeriod, layout: OwnershipLayout, brokers: BrokerTable, day: _Day) -> None:
        """Record the brokers' scores. All candidates use the recorded weights, so that their scores are comparable."""
        scores = np.full(len(self._traffic.brokers), np.nan)
        weights = weights_of(self._start.params, period.conditions.mode)
        scores[layout.here] = score_of(brokers.usage, brokers.limit, weights)
        day.scores.append(scores)
        day.seconds.append(period.seconds)
        day.hours.append(period.wall_ms // HOUR_MS)

    def _due(self, now_ms: int) -> bool:
        every_ms = 1000 * self.candidate.cycle_seconds
        return self._planned_ms is None or now_ms - self._planned_ms >= every_ms - LANDING_MS

    def _plan_input(self, period: TrafficPeriod, layout: OwnershipLayout, brokers: BrokerTable) -> PlanInput:
        bundles, conditions = bundle_table(layout, self._pieces, period), period.conditions
        digest = digest_of(brokers, bundles, conditions.excluded) if self._digests else _NO_DIGEST
        intervals = period.intervals[layout.here]
        snapshot = Snapshot(
            wall_ms=period.wall_ms,
            mode=conditions.mode,
            brokers=brokers,
            bundles=bundles,
            excluded=conditions.excluded,
            registered=conditions.registered,
            digest=digest,
            intervals=tuple(intervals.tolist()) if intervals.any() else (),
        )
        return PlanInput(
            snapshot=snapshot,
            params=self.params,
            guard=self._guard(conditions.guard),
            policies=conditions.policies,
            seed=conditions.seed,
            brokers_split=conditions.brokers_split,
            owned=self._owned(conditions.guard),
        )

    def _guard(self, state: GuardState) -> GuardState:
        """Return the recorded requests of operators, without the effects of recorded moves."""
        start = self._start.guard
        return replace(state, recent_brokers=start.recent_brokers, quarantined=start.quarantined)

    def _owned(self, state: GuardState) -> dict[str, frozenset[str]]:
        """Return, for each draining broker, the bundles that it owns in this run."""
        rows = {broker: self._row[broker] for broker in state.draining if broker in self._row}
        pieces = self._pieces
        return {
            broker: frozenset(pieces.texts(np.flatnonzero(pieces.alive & (pieces.owner == row))))
            for broker, row in rows.items()
        }

    # --- acting ---

    def _execute(self, period: TrafficPeriod, result: PlanResult, day: _Day) -> None:
        now, pieces = period.wall_ms, self._pieces
        for move in result.plan.moves:
            self._leader.land(move.bundle, move.target, now + LANDING_MS)
            row = pieces.place[move.bundle]
            pieces.move(row, self._row[move.target])
            counts = period.counts[int(pieces.column[row])]
            day.add(moves=1, moved_sessions=float(counts[1] + counts[2]) * float(pieces.share[row]))
        for split in result.plan.splits:
            self._divide(period, split, day)

    def _divide(self, period: TrafficPeriod, split: Split, day: _Day) -> None:
        """Split a bundle into halves if it has at least two topics and two hashes, else record that the split
        failed."""
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
