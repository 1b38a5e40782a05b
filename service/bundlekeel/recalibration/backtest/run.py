"""The back-test: the sidecar's own `plan()`, for each candidate, at the times of the recorded cycles.

Traffic does not depend on the plans. Each candidate has its own owners of bundles, memory, ledger (moves that reports
do not show yet), cool-downs and budgets, and runs once through all days. A broker with exactly its recorded bundles has
its recorded readings, with their recorded age. The readings of another broker are corrected by the cost of the traffic
that it gained or lost. In a cycle in which the gate allowed no moves (`HeldInput`), a candidate starts only drains and
warm-ups. Not simulated are clients that behave differently after a move, moves that fail, moves that operators made,
trials of thresholds in some namespaces, and readings that the sidecar would have made early because of a candidate's
own moves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Floats, Ints
from bundlekeel.model.names import namespace_of, parse_bundle
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Split
from bundlekeel.model.snapshot import BrokerTable, digest_of
from bundlekeel.planning.costs import CpuCosts
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.scope import not_taken_over
from bundlekeel.planning.guard.state import GuardState, SplitFailed
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.relocation import NOT_FOR_BALANCE, RULES
from bundlekeel.planning.scores import score_of, weights_of
from bundlekeel.recalibration.backtest.events import CycleEvent, HeldInput, events_of, usage_per_unit
from bundlekeel.recalibration.backtest.layout import (
    BundlePieces,
    OwnershipLayout,
    broker_table,
    bundle_table,
    layout_of,
)
from bundlekeel.recalibration.backtest.measures import Candidate, CandidateMeasures
from bundlekeel.recalibration.history.replay import check_installed
from bundlekeel.simulator.leader import SimulatedLeader
from bundlekeel.simulator.measures import OVER

DAY_MS: Final = 86_400_000
# How long an unload and the following lookups take. Producers and consumers of the bundle have no service for this
# time: on a real cluster of Pulsar 5.0, a transfer left a producer without service for 0.8 s.
LANDING_SECONDS: Final = 1.0
LANDING_MS: Final = int(1000 * LANDING_SECONDS)
# Brokers run Pulsar's own classes once per minute (`loadBalancerSheddingIntervalMinutes`), and the classes count their
# calls. A sidecar with `compat` runs them in each cycle.
NATIVE_MS: Final = 60_000
# The initial owners of bundles: those of the first recorded cycle.
RECORDED: Final = 0
_NO_DIGEST: Final = "back-test"


@dataclass(frozen=True, slots=True, kw_only=True)
class DayMeasures:
    """The measures of one run on one day.

    `candidate`: its key. `placement`: its initial owners, `RECORDED` or the seed of random ones. `day`: days since
    1970-01-01, UTC.
    """

    candidate: str
    placement: int
    day: int
    measures: CandidateMeasures


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateStep:
    """Result of one event of a candidate's run.

    `inputs`, `result`: None if no plan was due. `agrees`: whether every bundle is at its recorded broker.
    """

    wall_ms: int
    agrees: bool
    inputs: PlanInput | None = None
    result: PlanResult | None = None


def backtest(
    inputs: Iterable[PlanInput],
    candidates: Sequence[Candidate],
    costs: CpuCosts,
    *,
    placements: Sequence[int] = (RECORDED,),
    base: Parameters | None = None,
    observe: Callable[[Candidate, CandidateStep], None] | None = None,
    digests: bool = False,
) -> list[DayMeasures]:
    """Run every candidate, from every placement, once through all recorded inputs. Returns one result per run and day.

    Args:
        inputs: recorded inputs of plans, in order of time. They are read once and not stored.
        costs: learned CPU costs of traffic, for brokers with other bundles than recorded.
        placements: initial owners of bundles: `RECORDED`, or seeds of random owners (`shuffle_owners`).
        base: parameters that the candidates change; None: those of the first input.
        observe: called after each event of a run.
        digests: compute the digest of each snapshot, so that plan hashes can be compared with the recorded ones.

    Raises:
        ConfigError: a candidate's value is out of range.
        HistoryError: there is no input, or a plugin that is not installed here was in effect.
    """
    runs: list[CandidateRun] = []
    per_unit: tuple[int, Floats] = 0, np.zeros(0)
    for event in events_of(inputs):
        if not runs:
            base = base or event.inputs.params
            check_installed(base)
            runs = [
                CandidateRun(event, candidate, base, placement, digests=digests)
                for placement in placements
                for candidate in candidates
            ]
        if per_unit[0] != event.shape:
            per_unit = event.shape, usage_per_unit(costs, event.inputs.snapshot.brokers)
        for run in runs:
            step = run.step(event, per_unit[1])
            if observe is not None:
                observe(run.candidate, step)
    return [
        DayMeasures(candidate=run.candidate.key, placement=run.placement, day=day, measures=measures)
        for run in runs
        for day, measures in run.days()
    ]


def shuffle_owners(event: CycleEvent, placement: int) -> Ints:
    """Return the owner of each bundle, by number, if the bundles of each namespace exchange their brokers at random.

    Every namespace thus stays on brokers that its policies allow. `placement`: seed; `RECORDED`: the recorded owners.
    """
    owners = event.owner.copy()
    if placement == RECORDED:
        return owners
    rng, by_namespace = np.random.default_rng(placement), defaultdict[str, list[int]](list)
    for number in np.flatnonzero(owners >= 0).tolist():
        by_namespace[namespace_of(event.bundle_names[number])].append(number)
    for _, numbers in sorted(by_namespace.items()):
        owners[numbers] = rng.permutation(owners[numbers])
    return owners


def add_balance(sums: defaultdict[str, float], brokers: BrokerTable, weights: Floats, seconds: float) -> None:
    """Add the balance of the brokers, which lasts for `seconds`, to sums by the names of `CandidateMeasures`."""
    if not len(brokers):
        return
    scores = score_of(brokers.usage, brokers.limit, weights)
    mean, highest = float(scores.mean()), float(scores.max())
    sums["seconds"] += seconds
    sums["weighted"] += seconds * max(highest / mean - 1, 0.0) if mean > 0 else 0.0
    sums["overloaded_minutes"] += seconds / 60 if highest > OVER else 0.0


def _plan_held(inputs: PlanInput) -> PlanResult:
    """Return the plan with only the moves of drains and warm-ups."""
    result = plan(inputs)
    moves = tuple(move for move in result.plan.moves if move.rule in RULES)
    return replace(result, plan=replace(result.plan, moves=moves, splits=()), memory=result.waiting)


class CandidateRun:
    """One candidate's run through recorded cycles. `step` advances the run by one event.

    `digests`: compute the digest of each snapshot, for comparable plan hashes. This is slow.
    """

    def __init__(
        self,
        first: CycleEvent,
        candidate: Candidate,
        base: Parameters,
        placement: int = RECORDED,
        *,
        digests: bool = False,
    ) -> None:
        self.candidate, self.placement = candidate, placement
        self.params = candidate.params(base)
        # Those of the base parameters, so that all candidates are comparable.
        self._weights = weights_of(base, first.inputs.snapshot.mode)
        recorded, own = first.inputs, placement == RECORDED
        self._effects = recorded.guard if own else GuardState()
        self._leader = SimulatedLeader(
            params=self.params,
            landing_ms=LANDING_MS,
            memory=recorded.memory if own else StrategyMemory(costs=recorded.memory.costs),
            ledger=recorded.ledger if own else Ledger(),
            recent=self._effects.recent,
            last_hour=self._effects.last_hour,
            split_failed=self._effects.split_failed,
        )
        self._pieces = BundlePieces()
        self._initial: Ints | None = shuffle_owners(first, placement)
        self._digests, self._shape = digests, 0
        self._planned_ms = -NATIVE_MS
        self._layout: tuple[tuple[int, int], OwnershipLayout] | None = None
        self._days: dict[int, defaultdict[str, float]] = {}

    def step(self, event: CycleEvent, per_unit: Floats) -> CandidateStep:
        """Plan on an event and execute the plan. `per_unit`: result of `usage_per_unit` for its brokers."""
        self._follow(event)
        layout, wall_ms = self._laid_out(event), event.inputs.snapshot.wall_ms
        every_ms = max(1, int(1000 * self.params.statistics_interval_seconds))
        brokers = broker_table(layout, self._pieces, event, per_unit, every_ms)
        day = self._days.setdefault(wall_ms // DAY_MS, defaultdict(float))
        add_balance(day, brokers, self._weights, event.seconds)
        agrees = not len(layout.apart)
        if "compat" in self.candidate.changes and wall_ms - self._planned_ms < NATIVE_MS:
            return CandidateStep(wall_ms=wall_ms, agrees=agrees)
        self._planned_ms = wall_ms
        make_plan = _plan_held if isinstance(event.inputs, HeldInput) else plan
        inputs, result = self._leader.decide(self._plan_input(event, layout, brokers), make_plan)
        self._execute(event, result, day)
        day["plans"] += 1
        return CandidateStep(wall_ms=wall_ms, agrees=agrees, inputs=inputs, result=result)

    def days(self) -> list[tuple[int, CandidateMeasures]]:
        """Return each day (number since 1970-01-01, UTC) with its measures, in order."""
        return [(day, CandidateMeasures(**sums)) for day, sums in sorted(self._days.items())]

    # --- ownership ---

    def _follow(self, event: CycleEvent) -> None:
        """Set the owners of bundles that are new, whose broker has disappeared, or that brokers balance themselves.

        A new bundle goes to its recorded broker, or to the broker of the bundle that it was split from. Bundles of an
        absent broker, and of namespaces that were not taken over, go to their recorded broker.
        """
        if event.shape == self._shape:
            return
        self._shape, pieces = event.shape, self._pieces
        if event.arrived:
            pieces.add(event, event.owner if self._initial is None else self._initial)
        self._initial = None
        absent = np.ones(len(event.broker_names) + 1, dtype=bool)
        absent[event.brokers] = absent[-1] = False
        excluded = {item.broker_id for item in event.inputs.snapshot.excluded}
        absent[[row for row, name in enumerate(event.broker_names) if name in excluded]] = False
        recorded = event.owner[pieces.column]
        foreign = np.zeros(len(event.row), dtype=bool)
        foreign[event.bundles] = not_taken_over(event.inputs.snapshot.bundles, event.inputs.guard)
        goes = (absent[pieces.owner] | foreign[pieces.column]) & (recorded >= 0) & (pieces.owner != recorded)
        if goes.any():
            pieces.owner[goes] = recorded[goes]
            pieces.version += 1

    def _laid_out(self, event: CycleEvent) -> OwnershipLayout:
        key = (event.shape, self._pieces.version)
        if self._layout is None or self._layout[0] != key:
            self._layout = key, layout_of(self._pieces, event)
        return self._layout[1]

    # --- the snapshot ---

    def _plan_input(self, event: CycleEvent, layout: OwnershipLayout, brokers: BrokerTable) -> PlanInput:
        recorded = event.inputs
        bundles, excluded = bundle_table(layout, self._pieces, event), recorded.snapshot.excluded
        digest = digest_of(brokers, bundles, excluded) if self._digests else _NO_DIGEST
        snapshot = replace(recorded.snapshot, brokers=brokers, bundles=bundles, digest=digest)
        return replace(
            recorded,
            snapshot=snapshot,
            guard=self._guard(recorded.guard),
            trial=None,
            owned=self._owned(event) if recorded.owned or recorded.guard.draining else {},
        )

    def _guard(self, recorded: GuardState) -> GuardState:
        """Return the recorded requests of operators and restarts of brokers, without the effects of recorded moves."""
        start = self._effects
        return replace(
            recorded,
            recent={},
            recent_brokers=start.recent_brokers,
            frozen=frozenset(),
            split_failed={},
            last_hour=(),
            quarantined=start.quarantined,
            limited=frozenset(),
            rate=None,
        )

    def _owned(self, event: CycleEvent) -> dict[str, frozenset[str]]:
        """Return, for each draining broker, the bundles that it owns in this run."""
        pieces, draining = self._pieces, event.inputs.guard.draining
        return {
            name: frozenset(pieces.texts(np.flatnonzero(pieces.alive & (pieces.owner == number))))
            for number, name in enumerate(event.broker_names)
            if name in draining
        }

    # --- acting ---

    def _execute(self, event: CycleEvent, result: PlanResult, day: defaultdict[str, float]) -> None:
        snapshot, pieces = event.inputs.snapshot, self._pieces
        for move in result.plan.moves:
            self._leader.land(move.bundle, move.target, snapshot.wall_ms + LANDING_MS)
            row = pieces.place[move.bundle]
            pieces.move(row, int(event.brokers[snapshot.broker_row(move.target)]))
            if move.rule in NOT_FOR_BALANCE:
                continue
            clients = float(snapshot.bundles.counts[event.row[pieces.column[row]], 1:].sum()) * float(pieces.share[row])
            day["moves"] += 1
            day["client_seconds"] += clients * LANDING_SECONDS
        for split in result.plan.splits:
            self._divide(event, split, day)

    def _divide(self, event: CycleEvent, split: Split, day: defaultdict[str, float]) -> None:
        """Split a bundle into halves if it has at least two topics and two hashes, else record that the split
        failed."""
        pieces, name, snapshot = self._pieces, parse_bundle(split.bundle), event.inputs.snapshot
        row = pieces.place[split.bundle]
        topics = float(snapshot.bundles.counts[event.row[pieces.column[row]], 0]) * float(pieces.share[row])
        narrow = name.upper - name.lower < 2
        if narrow or topics < 2:
            code = Code.NARROW_RANGE if narrow else Code.SINGLE_TOPIC
            self._leader.end_split(split.bundle, SplitFailed(at_ms=snapshot.wall_ms, code=code.value))
            return
        pieces.split(row, (name.lower + name.upper) // 2)
        self._leader.end_split(split.bundle, None)
        day["splits"] += 1
