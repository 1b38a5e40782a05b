"""What every rule for moves and splits uses: the cluster, and Bundlekeel's own state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bundlekeel.model.parameters import Parameters
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning.guard.state import GuardState
from bundlekeel.planning.ledger import Ledger
from bundlekeel.planning.memory import StrategyMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Input of every rule for moves and splits.

    `ledger`: moves that reports do not show yet. `guard`: what limits moves. `owned`: bundles by draining broker, from
    the broker's own list, reported or not. `brokers_split`: the brokers' own automatic split is on, so Bundlekeel does
    not apply Pulsar's four split limits. `namespace_bundles`: number of bundles by namespace, loaded or not, from the
    boundaries in the metadata store. If a namespace is missing there or has fewer bundles, the number of loaded bundles
    counts.
    """

    snapshot: Snapshot
    params: Parameters
    memory: StrategyMemory = field(default_factory=StrategyMemory)
    ledger: Ledger = field(default_factory=Ledger)
    guard: GuardState = field(default_factory=GuardState)
    policies: Policies = field(default_factory=Policies)
    owned: Mapping[str, frozenset[str]] = field(default_factory=dict)
    brokers_split: bool = False
    namespace_bundles: Mapping[str, int] = field(default_factory=dict)
