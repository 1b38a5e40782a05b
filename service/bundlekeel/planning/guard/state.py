"""What the guard (the rules that limit moves) knows in addition to the snapshot, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentMove:
    """Source of a bundle's last finished move, and its time (Unix ms)."""

    at_ms: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunMove:
    """A started move, for the budget per hour.

    `at_ms`: when it started, Unix ms. `share`: share of its source's traffic that it moved, 0 to 1.
    """

    bundle: str
    source: str
    target: str
    at_ms: int
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFailed:
    """A failed split of a bundle: its time (Unix ms) and the code of the reason."""

    at_ms: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """Input of the guard (the rules that limit moves) in addition to the snapshot. All times are Unix ms.

    `recent`: last move of each bundle. `recent_brokers`: time at which a broker lost an unknown bundle. `frozen`:
    bundles that an earlier leader began to move, with unknown result. `served_twice`: bundles with topics that two
    brokers serve. `segments_changed`: time at which Pulsar split or merged a segment in a bundle (scalable topics).
    `segments_above`: by bundle with a segment above Pulsar's split thresholds, the time until which Pulsar splits it.
    `pinned`: expiry by bundle of pins (operators' rules that a bundle stays); 0: never. `split_failed`: failed splits
    by bundle. `last_hour`: moves started in the last hour, oldest first.

    `cordoned`: brokers that get no bundles. `draining`: brokers that are emptied and stay empty; they are in `cordoned`
    too. `warming`: brokers that are filled slowly. `excluded`: expiry of exclusions by pattern of tenants, namespaces,
    bundles or brokers; 0: never. `changed_brokers`: time at which a broker started, stopped or restarted.
    `rolling_ms`: last time of a roll-out, in which brokers restart one at a time; 0: none.
    `quarantined`: expiry by (source, target) of pairs whose moves did not help.

    `rate`: moves that the adaptive rate allows in this cycle; None: no limit. `relief_until`: end of the time in which
    only overload may be relieved, because no window for other moves is open; 0: unknown; None: no such time. `limited`:
    bundles of `recent` in namespaces whose rates a quota group limits. `taken_over`: the only namespaces that
    Bundlekeel has taken over (they narrow `included_namespaces`); (): the takeover is not partial.
    """

    recent: Mapping[str, RecentMove] = field(default_factory=dict)
    recent_brokers: Mapping[str, int] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    served_twice: frozenset[str] = frozenset()
    segments_changed: Mapping[str, int] = field(default_factory=dict)
    segments_above: Mapping[str, int] = field(default_factory=dict)
    pinned: Mapping[str, int] = field(default_factory=dict)
    split_failed: Mapping[str, SplitFailed] = field(default_factory=dict)
    last_hour: tuple[BegunMove, ...] = ()
    cordoned: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    warming: frozenset[str] = frozenset()
    excluded: Mapping[str, int] = field(default_factory=dict)
    changed_brokers: Mapping[str, int] = field(default_factory=dict)
    rolling_ms: int = 0
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rate: int | None = None
    relief_until: int | None = None
    limited: frozenset[str] = frozenset()
    taken_over: tuple[str, ...] = ()
