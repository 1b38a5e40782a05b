"""Allowed targets of moves: the brokers that policies allow for each namespace.

The rules are stricter than those for bundles without an owner (filters/assign.py), so that a move does not undo a
placement. A namespace of an anti-affinity group may move only to brokers with the fewest *other* namespaces of its
group (Pulsar's `shouldAntiAffinityNamespaceUnload` allows one more). No namespace may move to a broker that does not
serve persistent topics. Policies that cannot be read forbid moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bundlekeel.model.load import Ints
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import Bools, BundleTable, Snapshot
from bundlekeel.planning.filters.isolation import (
    AppliedIsolation,
    domain_numbers,
    group_numbers,
    isolate,
    least_of_group,
    lives_on,
)
from bundlekeel.planning.ledger import Ledger


@dataclass(frozen=True, slots=True)
class AllowedTargets:
    """Brokers that policies allow for each namespace.

    `mask`: namespace (row) by broker (column), True if allowed. `unknown`: namespaces whose policies cannot be read;
    their rows are False. `group`: number of the anti-affinity group of each namespace, -1: none. `isolated`: the mask
    without the anti-affinity groups. `unmatched`: by namespace (row) the name of its isolation policy, if that matches
    no broker.
    """

    mask: Bools
    unknown: Bools
    group: Ints
    isolated: Bools
    unmatched: Mapping[int, str] = field(default_factory=dict)

    def nowhere_else(self, namespace: Ints, owner: Ints) -> Bools:
        """Return a mask of the bundles that no broker other than their owner may take.

        `namespace`, `owner`: row numbers of each bundle's namespace and owner.
        """
        others: Ints = self.mask.sum(axis=1)[namespace] - self.mask[namespace, owner]
        bound: Bools = others == 0
        return bound

    def exchanging(self, bundles: BundleTable) -> list[Ints]:
        """Return the groups of brokers (rows) that policies let exchange bundles, directly or through other brokers.

        Idle bundles do not count. Anti-affinity groups are ignored: the brokers that they allow for a bundle change
        with each move.
        """
        count = self.mask.shape[1]
        if self.unknown.all():
            return [np.arange(count)]
        lives, loaded = np.zeros_like(self.mask), bundles.short.any(axis=1)
        lives[bundles.namespace[loaded], bundles.owner[loaded]] = True
        usable = lives.any(axis=1) & self.isolated.any(axis=1)
        label = np.arange(count)
        for packed in np.unique(np.packbits((lives | self.isolated)[usable], axis=1), axis=0):
            joined = label[np.unpackbits(packed, count=count).astype(bool)]
            label[np.isin(label, joined)] = joined.min()
        return [np.flatnonzero(label == number) for number in np.unique(label).tolist()]


def limits_of(snapshot: Snapshot, policies: Policies, ledger: Ledger | None = None) -> AllowedTargets | None:
    """Return the brokers that policies allow for each namespace of the snapshot; None without restrictions.

    `ledger`: moves that reports do not show yet; they count for anti-affinity groups.
    """
    names, brokers = snapshot.bundles.namespaces, snapshot.brokers
    serves = brokers.takes_persistent()
    nothing = not (policies.isolation or policies.anti_affinity or policies.unreadable or policies.unknown)
    if nothing and serves.all():
        return None
    if policies.unknown:
        shape = len(names), len(brokers)
        everyone = np.ones(len(names), dtype=bool)
        nowhere = np.zeros(shape, dtype=bool)
        return AllowedTargets(nowhere, everyone, np.full(len(names), -1, dtype=np.int64), nowhere)
    isolation = isolation_of(snapshot, policies)
    unknown = isolation.unknown() | np.array([name in policies.unreadable for name in names], dtype=bool)
    mask = isolation.matrix() & serves
    mask[unknown] = False
    group = group_numbers(policies, names)
    isolated = mask
    if (group >= 0).any():
        mask = mask.copy()
        # Namespaces that cannot be read may be in any group. They count in none, but they do not move either.
        _apply_groups(mask, group, lives_on(snapshot, ledger or Ledger()), domain_numbers(policies, brokers.ids))
    rows = np.flatnonzero((isolation.policy >= 0) & ~unknown)
    rows = rows[isolation.unmatched[isolation.policy[rows]]]
    unmatched = {row: policies.isolation[isolation.policy[row]].name for row in rows.tolist()}
    return AllowedTargets(mask, unknown, group, isolated, unmatched)


def isolation_of(snapshot: Snapshot, policies: Policies) -> AppliedIsolation:
    """Apply the isolation policies to a snapshot. Brokers without a usable report count as live."""
    others = tuple(item.broker_id for item in snapshot.excluded)
    return isolate(policies.isolation, snapshot.bundles.namespaces, snapshot.brokers.ids, others)


def _apply_groups(mask: Bools, group: Ints, lives: Bools, domains: Ints | None) -> None:
    """Limit, in place, namespaces of anti-affinity groups to brokers with the fewest other namespaces of the group."""
    for number in range(int(group.max(initial=-1)) + 1):
        members = np.flatnonzero(group == number)
        together = lives[members].sum(axis=0)
        for namespace in members.tolist():
            others = together - lives[namespace]
            mask[namespace] = least_of_group(others, mask[namespace], domains).brokers


def with_policies(snapshot: Snapshot, policies: Policies) -> Bools:
    """Return a mask of the namespaces with an isolation policy, an anti-affinity group, or unreadable policies.

    TransferShedder does not move their bundles unless it is configured to (code `HasPolicy`).
    """
    names = snapshot.bundles.namespaces
    if policies.unknown:
        return np.ones(len(names), dtype=bool)
    isolation = isolation_of(snapshot, policies)
    unreadable = np.array([name in policies.unreadable for name in names], dtype=bool)
    mask: Bools = (isolation.policy != -1) | (group_numbers(policies, names) >= 0) | unreadable
    return mask
