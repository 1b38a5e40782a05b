"""The leader of a simulation: the same `plan()` as the sidecar's, and its state between cycles.

`simulate` and the back-test both use it. They differ in the source of their snapshots, and in how they execute moves
and splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import bundlekeel.compat.in_plan  # noqa: F401 - plans with `compat` need its shedders
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.plan import Move
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import HOUR_MS
from bundlekeel.planning.engine import PlanInput, PlanResult, plan
from bundlekeel.planning.guard.budgets import share_of
from bundlekeel.planning.guard.state import BegunMove, RecentMove, SplitFailed
from bundlekeel.planning.ledger import Ledger, landed, open_entries, parted
from bundlekeel.planning.memory import StrategyMemory


@dataclass(slots=True, kw_only=True)
class SimulatedLeader:
    """Plans, and keeps the state that one plan passes to the next.

    The state is the strategy's memory, the ledger (moves that reports do not show yet), and the recent moves and failed
    splits that the guard checks. `landing_ms`: the cool-down of a moved bundle starts this long after the plan.
    """

    params: Parameters
    landing_ms: int = 0
    memory: StrategyMemory = field(default_factory=StrategyMemory)
    ledger: Ledger = field(default_factory=Ledger)
    recent: Mapping[str, RecentMove] = field(default_factory=dict)
    last_hour: tuple[BegunMove, ...] = ()
    split_failed: Mapping[str, SplitFailed] = field(default_factory=dict)

    def decide(
        self, inputs: PlanInput, make_plan: Callable[[PlanInput], PlanResult] = plan
    ) -> tuple[PlanInput, PlanResult]:
        """Add the state of this leader to `inputs`, plan, and update the state.

        Returns the completed inputs and the result. `make_plan` replaces `plan()`, for example to measure its duration.
        """
        inputs = self._completed(inputs)
        result, snapshot = make_plan(inputs), inputs.snapshot
        now_ms, moves = snapshot.wall_ms, result.plan.moves
        self.memory, self.ledger = result.memory, open_entries(result.ledger, moves, snapshot, now_ms)
        moved = {move.bundle: RecentMove(at_ms=now_ms + self.landing_ms, source=move.source) for move in moves}
        self.recent = {**self.recent, **moved}
        self.last_hour += tuple(_started_move(move, snapshot) for move in moves)
        return inputs, result

    def _completed(self, inputs: PlanInput) -> PlanInput:
        now_ms, params = inputs.snapshot.wall_ms, self.params
        rest = int(1000 * max(params.cool_down_limited_factor * params.cool_down_seconds, params.no_return_seconds))
        self.recent = {name: move for name, move in self.recent.items() if move.at_ms > now_ms - rest}
        self.last_hour = tuple(move for move in self.last_hour if move.at_ms > now_ms - HOUR_MS)
        guard = replace(inputs.guard, recent=self.recent, last_hour=self.last_hour, split_failed=self.split_failed)
        return replace(inputs, params=params, memory=self.memory, ledger=self.ledger, guard=guard)

    def land(self, bundle: str, broker: str, at_ms: int) -> None:
        """Record in the ledger that a bundle arrived at its new broker at `at_ms`."""
        self.ledger = landed(self.ledger, bundle, broker, at_ms)

    def end_split(self, bundle: str, failed: SplitFailed | None) -> None:
        """Record that a bundle was split, or why its split failed."""
        if failed is None:
            self.ledger = parted(self.ledger, bundle)
        else:
            self.split_failed = {**self.split_failed, bundle: failed}


def _started_move(move: Move, snapshot: Snapshot) -> BegunMove:
    a, b, c, d = snapshot.brokers.traffic[snapshot.broker_row(move.source)].tolist()
    share = share_of(move, (a, b, c, d))
    return BegunMove(bundle=move.bundle, source=move.source, target=move.target, at_ms=snapshot.wall_ms, share=share)
