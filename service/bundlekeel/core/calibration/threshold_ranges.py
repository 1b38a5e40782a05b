"""What a calibration may propose: which parameters, between which ends, in which steps, for which strategy. Pure.

The job searches this grid and the daemon refuses what lies off it, whatever a document says about its own ranges.
Ranges lie inside of those of the table of parameters: there the limit is what makes sense at all, here it is what
may come into force without a person having asked for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bundlekeel.core.model.parameters import defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Ends of the search and its step. `factor`: a step multiplies by `step` instead of adding it.

    `strategies`: those that read the parameter; empty: every one.
    """

    minimum: float
    maximum: float
    step: float
    factor: bool = False
    strategies: tuple[str, ...] = ()


def _limit(low: float, high: float) -> Range:
    return Range(minimum=low, maximum=high, step=1.25, factor=True)


_AVG = ("avg",)
_WEIGHT = Range(minimum=0.0, maximum=2.0, step=0.25)
RANGES: dict[str, Range] = {
    "avg_low_threshold_percent": Range(minimum=2.5, maximum=50.0, step=2.5, strategies=_AVG),
    "avg_low_floor_percent": Range(minimum=0.5, maximum=10.0, step=0.5, strategies=_AVG),
    "avg_high_threshold_percent": Range(minimum=10.0, maximum=80.0, step=5.0, strategies=_AVG),
    "avg_high_ratio": Range(minimum=1.1, maximum=5.0, step=0.1, strategies=_AVG),
    "avg_hit_count_low": Range(minimum=1.0, maximum=30.0, step=1.0, strategies=_AVG),
    "avg_hit_count_high": Range(minimum=1.0, maximum=10.0, step=1.0, strategies=_AVG),
    "max_unload_ratio": Range(minimum=0.1, maximum=0.8, step=0.05, strategies=_AVG),
    "min_unload_share": Range(minimum=0.005, maximum=0.2, step=0.005, strategies=("avg", "threshold", "uniform")),
    "threshold_percent": Range(minimum=2.0, maximum=40.0, step=1.0, strategies=("threshold",)),
    "history_weight": Range(minimum=0.0, maximum=0.98, step=0.05, strategies=("threshold",)),
    "msg_rate_difference_percent": Range(minimum=10.0, maximum=200.0, step=10.0, strategies=("uniform",)),
    "throughput_multiple": Range(minimum=1.25, maximum=10.0, step=0.25, strategies=("uniform",)),
    "uniform_max_unload_ratio": Range(minimum=0.05, maximum=0.8, step=0.05, strategies=("uniform",)),
    "overloaded_threshold_percent": Range(minimum=50.0, maximum=95.0, step=2.5),
    "transfer_target_std": Range(minimum=0.02, maximum=0.6, step=0.02, strategies=("transfer",)),
    "transfer_hit_count": Range(minimum=0.0, maximum=20.0, step=1.0, strategies=("transfer",)),
    "transfer_delay_seconds": Range(minimum=30.0, maximum=1800.0, step=1.25, factor=True, strategies=("transfer",)),
    "deviation_threshold": Range(minimum=0.25, maximum=4.0, step=0.25, strategies=("deviation",)),
    "split_max_topics": _limit(50.0, 50_000.0),
    "split_max_sessions": _limit(50.0, 50_000.0),
    "split_max_msg_rate": _limit(500.0, 2_000_000.0),
    "split_max_bandwidth_mb": _limit(2.0, 5_000.0),
    "split_hot_share": Range(minimum=0.1, maximum=1.0, step=0.05),
    "split_hit_count": Range(minimum=0.0, maximum=20.0, step=1.0),
    "cool_down_seconds": Range(minimum=60.0, maximum=14_400.0, step=1.25, factor=True),
    "cpu_weight": _WEIGHT,
    "direct_memory_weight": _WEIGHT,
    "bandwidth_in_weight": _WEIGHT,
    "bandwidth_out_weight": _WEIGHT,
}


# They count cycles: what is found with a plan a minute means nothing where a cycle takes ten seconds.
HIT_COUNTS: Final = tuple(name for name in RANGES if name.endswith("hit_count") or "_hit_count_" in name)


def searched(strategy: str) -> tuple[str, ...]:
    """The parameters worth searching for this strategy, in the order of the table."""
    return tuple(name for name, row in RANGES.items() if not row.strategies or strategy in row.strategies)


def steps_between(name: str, one: float, other: float) -> float:
    """How many steps of the table lie between two values, >= 0; infinite where no number of steps leads across."""
    row = RANGES[name]
    if one == other:
        return 0.0
    if not row.factor:
        return abs(other - one) / row.step
    return abs(math.log(other) - math.log(one)) / math.log(row.step) if one > 0 and other > 0 else math.inf


def stepped(name: str, value: float, steps: float) -> float | int:
    """`value`, so many steps up (or down, below 0), inside of the range and of the parameter's type."""
    row = RANGES[name]
    wanted = value * row.step**steps if row.factor else value + row.step * steps
    inside = min(max(wanted, row.minimum), row.maximum)
    # Steps of 0.05 leave dust in the last digits, which would come back as a difference.
    return round(inside) if whole(name) else round(inside, 9)


def whole(name: str) -> bool:
    """Whether the parameter is a whole number."""
    return isinstance(defaults()[name], int)
