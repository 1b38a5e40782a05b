"""What strategies remember between cycles, as a plain value: memory in, memory out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bundlekeel.core.planning.costs import CpuCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """In how many fresh readings in a row (`low`) a bundle was above a split limit. `reported`: `lastUpdate` of its
    broker at the last one, `at_ms`: when that was counted, Unix ms."""

    side: str
    low: int = 0
    reported: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """How a broker differs from the others by more than is tolerated (core/planning/calm.py).

    `side`: `hot` or `cold`. `since_ms`: when it began, Unix ms. `seconds`: measured time in excess that tolerated time
    has not taken back, `longest`: the largest value of it. `tolerated`: seconds since then without excess. `cost`: what
    it has cost, `rate`: cost per second at the last reading. `readings`: readings in a row with this excess.
    """

    side: str
    since_ms: int
    seconds: float = 0.0
    longest: float = 0.0
    tolerated: float = 0.0
    cost: float = 0.0
    rate: float = 0.0
    readings: int = 0

    @property
    def mean_rate(self) -> float:
        """Mean cost per second."""
        return self.cost / self.seconds if self.seconds > 0 else 0.0

    @property
    def owed(self) -> float:
        """Cost of what is left of the excess: as if it had been as small as it is now from the beginning."""
        return min(self.cost, self.rate * self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """An excess that ended without moves, or that came back on the other side after moves: how long it lasted in
    seconds, its mean cost per second, and when it ended (Unix ms)."""

    seconds: float
    rate: float
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCourse:
    """What the decision rule remembers of a broker.

    `level`, `traffic`: mean score and mean bytes/s (-1: unknown) of the last `seconds`, in which the load did not
    change. `updated_ms`: time of the last reading. `until_ms`: end of the measured time. `steady`: level and traffic
    when they had not changed for long, last at `steady_ms`. All times are Unix ms. `readings`: mean score and seconds
    of the last readings; no seconds: its bundles moved. `acted`: the excess because of which its bundles moved last;
    `acted_seconds`: measured time since these moves showed.
    """

    level: float
    until_ms: int
    updated_ms: int = 0
    traffic: float = -1.0
    seconds: float = 0.0
    steady: tuple[float, float] = (0.0, 0.0)
    steady_ms: int = 0
    readings: tuple[tuple[float, float], ...] = ()
    excess: Excess | None = None
    acted: Excess | None = None
    acted_seconds: float = 0.0
    swing: Swing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatMemory:
    """What Pulsar's own classes keep between calls, for `compat` forms. By broker unless said otherwise.

    `usage`: the shedder's smoothed score. `placement_usage`: that of LeastResourceUsageWithWeight, its own.
    `low`, `high`: AvgShedder's hit counters. `chosen`: AvgShedder's destination by bundle data (as a digest).
    `condition_hits`: how often in a row TransferShedder's condition was met. `table`: the size of AvgShedder's table of
    scores. `turn`, `listed`: round robin's counter and its candidates.
    """

    usage: Mapping[str, float] = field(default_factory=dict)
    placement_usage: Mapping[str, float] = field(default_factory=dict)
    low: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, int] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    condition_hits: int = 0
    table: int = 0
    turn: int = 0
    listed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyMemory:
    """Everything the strategies remember between two cycles.

    `courses`: by broker, what the decision rule remembers (core/planning/calm.py). `active`: brokers whose balancing
    has begun and is not finished. `urgent`: a reading in the next seconds may decide. `split_hits`: by bundle, readings
    above a split limit. `turn`: broker row at which `round_robin` continues. `costs`: learned CPU
    costs of traffic.
    """

    courses: Mapping[str, BrokerCourse] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    urgent: bool = False
    split_hits: Mapping[str, Hits] = field(default_factory=dict)
    turn: int = 0
    costs: CpuCosts = field(default_factory=CpuCosts)
    compat: CompatMemory = field(default_factory=CompatMemory)
