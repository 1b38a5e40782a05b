"""Report of a cycle: its journal record, its sentence and its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.execution.split_intents import SplitOutcome
from bundlekeel.leader.gate.gate import Obstacle
from bundlekeel.model.codes import Code
from bundlekeel.model.plan import Plan
from bundlekeel.ports import Telemetry

# Verdicts of a cycle that could not decide.
UNDECIDED = frozenset({Code.NO_BROKERS, Code.NO_LOAD_DATA, Code.INCOMPLETE_PICTURE})
# Obstacles that no operator requested and that do not end by waiting.
UNABLE = frozenset({Code.NOT_LEADER, Code.CHANNEL_NOT_FOLLOWED})
# If all moves of a cycle end with these codes, another attempt would fail too.
FAILED = frozenset(
    {Code.ADMIN_REFUSED, Code.ADMIN_UNAUTHORIZED, Code.ADMIN_UNREACHABLE, Code.NO_ANSWER, Code.STORE_UNAVAILABLE}
)


@dataclass(slots=True, kw_only=True)
class CycleReport:
    """Observations, decisions and results of a cycle.

    `measured_seconds`: longest time, among the plan's brokers, between the two readings of Prometheus counters that
    gave the load; None: the plan used load reports."""

    cycle: int
    wall_ms: int
    sentence: str
    code: Code
    acted: bool = False
    obstacle: Obstacle | None = None
    plan: Plan | None = None
    outcomes: list[MoveOutcome] = field(default_factory=list)
    splits: list[SplitOutcome] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    operations: dict[str, Any] = field(default_factory=dict)
    shadow: Mapping[str, Any] = field(default_factory=dict)
    measured_seconds: float | None = None

    def record(self, epoch: int | None) -> dict[str, Any]:
        """Return the journal record of this cycle."""
        return {
            "kind": "cycle",
            "cycle": self.cycle,
            "wall_ms": self.wall_ms,
            "epoch": epoch,
            "code": self.code.value,
            "sentence": self.sentence,
            "acted": self.acted,
            "obstacle": self.obstacle.code.value if self.obstacle else None,
            "plan": self.plan.hash if self.plan else None,
            "digest": self.plan.snapshot_digest if self.plan else None,
            "measured_seconds": self.measured_seconds,
            "planned": len(self.plan.moves) if self.plan else 0,
            "refused": dict(Counter(item.code.value for item in self.plan.refusals)) if self.plan else {},
            "outcomes": dict(Counter(item.outcome for item in self.outcomes)),
            "planned_splits": len(self.plan.splits) if self.plan else 0,
            "splits": dict(Counter(item.outcome for item in self.splits)),
            "seconds": {key: round(value, 4) for key, value in self.seconds.items()},
            **({"operations": self.operations} if self.operations else {}),
            **({"shadow": dict(self.shadow)} if self.shadow else {}),
        }

    @property
    def completed(self) -> bool:
        """Whether the cycle did its work: it could decide, and at least one broker accepted its moves, if any.

        A pause or a lower mode is an operator's decision, not a failure: such a cycle is complete.
        """
        if self.plan is None or self.code in UNDECIDED:
            return False
        if self.obstacle is not None and (self.obstacle.unable or self.obstacle.code in UNABLE):
            return False
        return not self.outcomes or any(outcome.code not in FAILED for outcome in self.outcomes)

    def full_sentence(self) -> str:
        """Return the decision and its results as one sentence."""
        text = self.sentence
        if self.splits:
            divided = sum(outcome.outcome == "done" for outcome in self.splits)
            text = f"{text}; {divided} of {len(self.splits)} bundles split"
        if self.acted:
            counts = Counter(outcome.outcome for outcome in self.outcomes)
            done = ", ".join(f"{amount} {name.replace('_', ' ')}" for name, amount in sorted(counts.items()))
            return f"{text}: {done or 'none started'}."
        if self.plan is not None and (self.plan.moves or self.plan.splits) and self.obstacle is not None:
            return f"{text}; not carried out: {self.obstacle.sentence}."
        return f"{text}."

    def publish(self, telemetry: Telemetry) -> None:
        """Publish the metrics of the cycle."""
        telemetry.count("cycles_total", outcome=self.code.value)
        for phase, seconds in self.seconds.items():
            telemetry.time("cycle_duration_seconds", seconds, phase=phase)
        obstacle = self.obstacle.code.value if self.obstacle is not None else ""
        if obstacle:
            telemetry.gauge("obstacle_info", 1.0, code=obstacle)
        telemetry.retain("obstacle_info", "code", {obstacle})
        if self.plan is None:
            return
        telemetry.gauge("planned_moves", len(self.plan.moves))
        telemetry.gauge("planned_splits", len(self.plan.splits))
        for code, amount in Counter(item.code for item in self.plan.refusals).items():
            telemetry.count("refusals_total", amount, code=code.value)
        loads = self.plan.loads
        brokers = [load.broker for load in loads]
        for name, values in (
            ("broker_score_ratio", [load.score_before for load in loads]),
            ("broker_throughput_bytes_per_second", [load.throughput_before for load in loads]),
            ("broker_msg_rate", [load.msg_rate_before for load in loads]),
            ("broker_bundles", [load.bundles_before for load in loads]),
        ):
            telemetry.table(name, brokers, np.array(values))
        for measure in ("throughput", "score"):
            spread = self.plan.imbalance(f"{measure}_before")
            telemetry.gauge("load_spread_ratio", spread, stat=f"{measure}_max_mean")
