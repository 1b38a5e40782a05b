"""What strategies and splits remember between cycles, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bundlekeel.planning.costs import CpuCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How many new readings in a row (`low`) showed a bundle above a split limit.

    `reported`: `lastUpdate` of its broker at the last of these readings. `at_ms`: when that reading was counted, Unix
    ms.
    """

    side: str
    low: int = 0
    reported: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A period in which a broker's load differs too much from the others (planning/calm.py).

    `side`: `hot` (above the mean) or `cold`. `since_ms`: its start, Unix ms. `seconds`: measured time in excess; time
    with a tolerated difference reduces it. `longest`: the largest value of `seconds`. `tolerated`: seconds since the
    last reading in excess. `cost`: cost so far. `rate`: cost per second at the last reading. `readings`: readings in a
    row with this excess.
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
        """Return the mean cost per second of this period."""
        return self.cost / self.seconds if self.seconds > 0 else 0.0

    @property
    def owed(self) -> float:
        """Return the cost of this period so far, but at most its present cost per second times its duration."""
        return min(self.cost, self.rate * self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """A period of too large a difference that ended without moves, or turned to the opposite side after moves.

    `seconds`: its length. `rate`: its mean cost per second. `at_ms`: its end, Unix ms. See planning/calm.py.
    """

    seconds: float
    rate: float
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCourse:
    """Load history of one broker, as the decision rule (planning/calm.py) needs it. All times are Unix ms.

    `level`, `traffic`: mean score and mean bytes/s (-1: unknown) of the last `seconds`, in which the load did not
    change. `updated_ms`: time of the last reading. `until_ms`: end of the measured time. `steady`: level and traffic
    when they had not changed for long, last at `steady_ms`. `readings`: mean score and seconds of each of the last
    readings; 0 seconds: bundles of the broker moved. `excess`: present period in which the load differs too much from
    other brokers. `acted`: such a period that caused the broker's last moves. `acted_seconds`: measured time since the
    reports showed these moves. `swing`: last such period that ended without moves. `segments_ms`: time at which
    Pulsar last split or merged segments of scalable topics here; 0: never.
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
    segments_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatMemory:
    """State of the copies of Pulsar's own classes between calls, for `compat`.

    `usage`: the shedder's smoothed score, by broker. `placement_usage`: the smoothed score of
    LeastResourceUsageWithWeight. `low`, `high`: AvgShedder's hit counters, by broker. `chosen`: AvgShedder's targets
    before 5.0, by bundle data (as a digest). `planned`: since 5.0, AvgShedder's source and target by bundle, until the
    placement of the same call. `condition_hits`: number of consecutive calls in which TransferShedder's condition was
    met. `table`: size of AvgShedder's table of scores. `turn`, `listed`: round robin's counter and its candidates.
    """

    usage: Mapping[str, float] = field(default_factory=dict)
    placement_usage: Mapping[str, float] = field(default_factory=dict)
    low: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, int] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    planned: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    condition_hits: int = 0
    table: int = 0
    turn: int = 0
    listed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyMemory:
    """Everything that strategies and splits remember between two cycles.

    `courses`: load history by broker (planning/calm.py). `active`: brokers whose balancing has started and is not
    finished. `urgent`: whether an early reading, within seconds, can lead to moves. `split_hits`: by bundle, readings
    above a split limit. `turn`: broker row at which `round_robin` continues. `costs`: learned CPU costs of traffic.
    `trial`: memory of the parameters on trial (planning/trial.py); None: no trial.
    """

    courses: Mapping[str, BrokerCourse] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    urgent: bool = False
    split_hits: Mapping[str, Hits] = field(default_factory=dict)
    turn: int = 0
    costs: CpuCosts = field(default_factory=CpuCosts)
    compat: CompatMemory = field(default_factory=CompatMemory)
    trial: StrategyMemory | None = None
