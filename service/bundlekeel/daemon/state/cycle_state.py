"""What one cycle leaves to the next one, and one leader to the next: one value, stored with the leader's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

from bundlekeel.core.guard.external_moves import ExternalMoves
from bundlekeel.core.guard.state import RecentMove, SplitFailed
from bundlekeel.core.planning.effects import EffectRecords
from bundlekeel.core.planning.ledger import Ledger
from bundlekeel.core.planning.memory import StrategyMemory
from bundlekeel.core.splitting.children import RecentSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """What one cycle leaves to the next one, and one leader to the next. `brokers`: those registered in the last
    cycle; `completed_ms`: when a leader's cycle was completed last (`CycleReport.completed`), 0 for never."""

    cycle: int = 0
    memory: StrategyMemory = field(default_factory=StrategyMemory)
    ledger: Ledger = field(default_factory=Ledger)
    recent: Mapping[str, RecentMove] = field(default_factory=dict)
    split_failed: Mapping[str, SplitFailed] = field(default_factory=dict)
    recent_splits: Mapping[str, RecentSplit] = field(default_factory=dict)
    brokers: tuple[str, ...] = ()
    completed_ms: int = 0
    effects: EffectRecords = field(default_factory=EffectRecords)
    external_moves: ExternalMoves = field(default_factory=ExternalMoves)


# Moments of one machine's clock, as another machine has them: no two wall clocks are ever compared.


T = TypeVar("T")
# Fields that hold names with a moment each.
_DATED = frozenset({"undone", "reverted"})
# Fields with the time of a broker's report (`BrokerReport.updated_ms`), of which the names do not end with `_ms`.
_REPORTED = frozenset({"reported", "since", "compared"})


def rebased(value: T, by_ms: int) -> T:
    """The same value with every moment in it (fields `..._ms` and `_REPORTED`; 0 stands for none) so much later."""
    found: Any = _moved("", value, by_ms)
    return found  # type: ignore[no-any-return]


def _moved(name: str, value: Any, by_ms: int) -> Any:
    if name.endswith("_ms") or name in _REPORTED:
        return value + by_ms if value else value
    if name in _DATED:
        return tuple((item, at + by_ms) for item, at in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{item.name: _moved(item.name, getattr(value, item.name), by_ms) for item in fields(value)}
        )
    if isinstance(value, Mapping):
        return {key: _moved("", item, by_ms) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_moved("", item, by_ms) for item in value)
    return value
