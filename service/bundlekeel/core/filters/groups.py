"""Anti-affinity groups: namespaces of one group should not share a broker, nor (when enabled) a failure domain.

Counted are namespaces, not bundles (`LoadManagerShared.filterAntiAffinityGroupOwnedBrokers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bundlekeel.core.model.load import Ints
from bundlekeel.core.model.names import namespace_of
from bundlekeel.core.model.policies import Policies
from bundlekeel.core.model.snapshot import Bools, Snapshot
from bundlekeel.core.planning.ledger import Ledger

# Brokers in no failure domain make one together, as in Pulsar.
NO_DOMAIN = ""


def group_numbers(policies: Policies, namespaces: Sequence[str]) -> Ints:
    """The group of each namespace as a number, -1 without one. Group names differ in more than their case."""
    numbers: dict[str, int] = {}
    found = [policies.anti_affinity.get(name, "").lower() for name in namespaces]
    return np.array(
        [numbers.setdefault(group, len(numbers)) if group else -1 for group in found], dtype=np.int64
    ).reshape(-1)


def domain_numbers(policies: Policies, brokers: Sequence[str]) -> Ints | None:
    """The failure domain of each broker as a number; None when domains do not count."""
    if not policies.failure_domains_enabled:
        return None
    domain_of = {broker: name for name in sorted(policies.failure_domains) for broker in policies.failure_domains[name]}
    names = sorted({NO_DOMAIN, *policies.failure_domains})
    return np.array([names.index(domain_of.get(broker, NO_DOMAIN)) for broker in brokers], dtype=np.int64)


def lives_on(snapshot: Snapshot, ledger: Ledger) -> Bools:
    """Which namespace (row) has a bundle on which broker, by report or because the books say it is going there."""
    bundles = snapshot.bundles
    lives = np.zeros((len(bundles.namespaces), len(snapshot.brokers)), dtype=bool)
    lives[bundles.namespace, bundles.owner] = True
    rows = {name: row for row, name in enumerate(bundles.namespaces)}
    index = {broker: row for row, broker in enumerate(snapshot.brokers.ids)}
    for entry in ledger.entries:
        namespace, target = rows.get(namespace_of(entry.bundle), -1), index.get(entry.target, -1)
        if namespace >= 0 and target >= 0:
            lives[namespace, target] = True
    return lives


@dataclass(frozen=True, slots=True)
class GroupCandidates:
    """What the group rules leave of some candidates: by failure domain first, then by broker."""

    domains: Bools
    brokers: Bools


def least_of_group(counts: Ints, candidates: Bools, domains: Ints | None) -> GroupCandidates:
    """Candidates in the domains with the fewest namespaces of the group, and of those the brokers with the fewest."""
    if not candidates.any():
        return GroupCandidates(candidates, candidates)
    kept = candidates
    if domains is not None:
        size = int(domains.max()) + 1
        totals = np.bincount(domains[candidates], weights=counts[candidates], minlength=size)
        present = np.bincount(domains[candidates], minlength=size) > 0
        kept = candidates & (totals[domains] == totals[present].min())
    return GroupCandidates(kept, kept & (counts == counts[kept].min()))
