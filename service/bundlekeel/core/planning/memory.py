"""What strategies remember between cycles, as a plain value: memory in, memory out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bundlekeel.core.planning.costs import CpuCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How often a broker was seen on one side (`hot` or `cold`) of a too large difference.

    `reported` is its `lastUpdate` at the last counted hit, `at_ms` when that hit was counted.
    """

    side: str
    low: int = 0
    high: int = 0
    reported: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothedScore:
    """A broker's smoothed score and the report it was last advanced with."""

    score: float
    reported: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatMemory:
    """What Pulsar's own classes keep between calls, for `compat` forms. By broker unless said otherwise.

    `usage`: the shedder's smoothed score. `placement_usage`: that of LeastResourceUsageWithWeight, its own.
    `low`, `high`: AvgShedder's hit counters. `chosen`: AvgShedder's destination by bundle data (as a digest).
    `table`: the size of AvgShedder's table of scores. `turn`, `listed`: round robin's counter and its candidates.
    """

    usage: Mapping[str, float] = field(default_factory=dict)
    placement_usage: Mapping[str, float] = field(default_factory=dict)
    low: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, int] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    table: int = 0
    turn: int = 0
    listed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyMemory:
    """Everything the strategies remember. `active`: brokers whose rebalancing has begun and is not finished.

    `acted`: brokers that `avg` let give or take, until their reports show that nothing is left to do.
    `condition_hits`: how often in a row `transfer` (and TransferShedder) found its condition met, `condition_at_ms`
    when that was counted last. `split_hits`: by bundle, how often in a row it was above a split limit. `turn`: where
    `round_robin` goes on. `costs`: learned CPU costs of traffic.
    """

    hits: Mapping[str, Hits] = field(default_factory=dict)
    history: Mapping[str, SmoothedScore] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    acted: tuple[str, ...] = ()
    condition_hits: int = 0
    condition_at_ms: int = 0
    split_hits: Mapping[str, Hits] = field(default_factory=dict)
    turn: int = 0
    costs: CpuCosts = field(default_factory=CpuCosts)
    compat: CompatMemory = field(default_factory=CompatMemory)

    @staticmethod
    def recorded(values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return members that an earlier build recorded (core/history/frames.py) as members of today: it recorded only
        the CPU of brokers without traffic (`idle`)."""
        if "idle" not in values:
            return values
        brokers = {broker: {"idle": cpu} for broker, cpu in dict(values["idle"]).items()}
        return {name: item for name, item in values.items() if name != "idle"} | {"costs": {"brokers": brokers}}
