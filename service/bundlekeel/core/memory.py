"""What strategies remember between cycles, as a plain value: memory in, memory out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
class History:
    """A broker's smoothed score and the report it was last advanced with."""

    score: float
    reported: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Everything the strategies remember. `active`: brokers whose rebalancing has begun and is not finished."""

    hits: Mapping[str, Hits] = field(default_factory=dict)
    history: Mapping[str, History] = field(default_factory=dict)
    active: tuple[str, ...] = ()
