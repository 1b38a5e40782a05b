"""State that a cycle passes to the next cycle, and a leader to the next leader. Stored with the leader's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bundlekeel.planning.effects import EffectRecords
from bundlekeel.planning.guard.external_moves import ExternalMoves
from bundlekeel.planning.guard.state import RecentMove, SplitFailed
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import StrategyMemory
from bundlekeel.planning.splitting.children import RecentSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChanges:
    """Starts, stops and restarts of brokers.

    `changed_ms`: time of the last change by broker. `rolling_ms`: last time of the latest roll-out. `rolled_ms`: end of
    the last roll-out whose brokers were warmed; 0: none."""

    changed_ms: Mapping[str, int] = field(default_factory=dict)
    rolling_ms: int = 0
    rolled_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """State that a cycle passes to the next cycle, and a leader to the next leader.

    `brokers`: registered brokers of the last cycle. `completed_ms`: time of the last completed cycle of a leader
    (`CycleReport.completed`); 0: never."""

    cycle: int = 0
    memory: StrategyMemory = field(default_factory=StrategyMemory)
    ledger: Ledger = field(default_factory=Ledger)
    recent: Mapping[str, RecentMove] = field(default_factory=dict)
    split_failed: Mapping[str, SplitFailed] = field(default_factory=dict)
    recent_splits: Mapping[str, RecentSplit] = field(default_factory=dict)
    brokers: tuple[str, ...] = ()
    changes: BrokerChanges = field(default_factory=BrokerChanges)
    completed_ms: int = 0
    effects: EffectRecords = field(default_factory=EffectRecords)
    external_moves: ExternalMoves = field(default_factory=ExternalMoves)
