"""What the guard knows besides the snapshot, as plain values: state in, no state out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentMove:
    """A finished move the guard remembers: when, and where the bundle came from."""

    at_ms: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunMove:
    """A move that was begun, for the budgets of an hour. `share`: of its source's traffic then, 0..1."""

    bundle: str
    source: str
    target: str
    at_ms: int
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFailed:
    """An attempt to split that came to nothing: when, and the code that says why."""

    at_ms: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What the guard knows besides the snapshot: last moves, frozen intents, pins (bundle -> expiry ms),
    splits that came to nothing. `recent_brokers`: when (ms) a broker gave a bundle, where the bundle is not known.

    `last_hour`: moves begun in the last hour, oldest first. `cordoned`: brokers that get nothing; `draining`: those
    that are emptied and kept empty (cordoned as well); `warming`: those that are filled gently. `excluded`: patterns of
    tenants, namespaces, bundles and brokers left alone, with their expiry in ms (0: none). `changed_brokers`: when (ms)
    a broker came, went or restarted. `quarantined`: (source, target) pairs whose moves did not help, with their expiry.
    `rate`: moves the adaptive rate allows in this cycle, None: no limit from there. `relief_until`: outside of the
    windows in which everything may move, overload may still be relieved, until then (ms, 0: not known); None: no window
    says so. `limited`: of the bundles in `recent`, those of namespaces whose rates a quota group limits. `taken_over`:
    the namespaces that a partial takeover is limited to, by which `included_namespaces` is narrowed too; () for none.
    """

    recent: Mapping[str, RecentMove] = field(default_factory=dict)
    recent_brokers: Mapping[str, int] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    pinned: Mapping[str, int] = field(default_factory=dict)
    split_failed: Mapping[str, SplitFailed] = field(default_factory=dict)
    last_hour: tuple[BegunMove, ...] = ()
    cordoned: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    warming: frozenset[str] = frozenset()
    excluded: Mapping[str, int] = field(default_factory=dict)
    changed_brokers: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rate: int | None = None
    relief_until: int | None = None
    limited: frozenset[str] = frozenset()
    taken_over: tuple[str, ...] = ()
