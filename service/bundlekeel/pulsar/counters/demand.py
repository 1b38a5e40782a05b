"""How often, and under which conditions, the counters of brokers are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# While something changes, a broker rests for this many times the duration of its response.
QUICK_REST: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterOptions:
    """How often the counters of brokers are read; times in seconds."""

    interval: float = 15.0
    """Time between two readings of a broker while nothing changes."""
    quick_interval: float = 3.0
    """Time between two readings of a broker while something changes."""
    at_once: int = 8
    """Number of brokers that are read in parallel."""
    max_topics: int = 300_000
    """Counters are not read in clusters with more topics: that would take longer than load reports are old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterDemand:
    """Functions that return whether there is a reason to read counters, or to read them more often or less often."""

    wanted: Callable[[], bool] = bool
    """Whether readings are worth their cost now."""
    moving: Callable[[], bool] = bool
    """Whether loads do not show some of Bundlekeel's moves yet."""
    in_flight: Callable[[], bool] = bool
    """Whether moves are being executed."""
    urgent: Callable[[], bool] = bool
    """Whether a plan may need a new load before the next regular reading."""
