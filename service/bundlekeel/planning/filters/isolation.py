"""The brokers that isolation policies and anti-affinity groups allow for a namespace.

Isolation (`LoadManagerShared.applyNamespacePolicies`): the first policy that matches the namespace applies. It allows
its primaries, and its secondaries too while fewer primaries than `min_limit` are available. A namespace without a
policy may use every broker that is not a primary of any policy.

Anti-affinity (`LoadManagerShared.filterAntiAffinityGroupOwnedBrokers`): namespaces of one group should not share a
broker, nor (when enabled) a failure domain. Namespaces are counted, not bundles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Ints
from bundlekeel.model.names import namespace_of
from bundlekeel.model.policies import IsolationPolicy, Policies
from bundlekeel.model.snapshot import Bools, Snapshot
from bundlekeel.planning.filters.javaregex import java_pattern, prefix_of
from bundlekeel.planning.ledger import Ledger

# Used instead of a policy's number. FREE: no policy matches. UNKNOWN: a policy that may match cannot be read.
FREE: Final = -1
UNKNOWN: Final = -2


def host_of(broker_id: str) -> str:
    """Return the part of a broker id that isolation policies match: the part before its last colon."""
    return broker_id.rpartition(":")[0] or broker_id


def matches(patterns: Iterable[str], text: str) -> bool | None:
    """Return whether one of these Java regular expressions matches the whole `text`.

    None: unknown, because an expression cannot be parsed and no other expression matches.
    """
    unsure = False
    for pattern in patterns:
        compiled = java_pattern(pattern)
        if compiled is None:
            unsure |= text.startswith(prefix_of(pattern))
        elif compiled.matches(text):
            return True
    return None if unsure else False


def governing(isolation: Sequence[IsolationPolicy], namespace: str) -> int:
    """Return the index of the first policy that matches the namespace; FREE: no policy matches.

    UNKNOWN: a policy before it cannot be parsed, and may match.
    """
    for number, policy in enumerate(isolation):
        matched = matches(policy.namespaces, namespace)
        if matched is None:
            return UNKNOWN
        if matched:
            return number
    return FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedIsolation:
    """Isolation policies, applied to the namespaces and brokers of a snapshot.

    `policy`: index of the policy that applies to each namespace (or FREE, UNKNOWN). `masks`: brokers that each policy
    allows, one row per policy. `readable`: whether all broker expressions of a policy can be parsed. `unmatched`:
    whether a policy matches no live broker. `shared`: brokers that are certainly not primary of any policy.
    `shared_readable`: False if no broker is in `shared` because some expressions cannot be parsed. `primary`,
    `secondary`: brokers that match a policy, one row per policy. `matched`: number of live brokers that match as
    primary and as secondary, one row per policy; it includes brokers without a usable report.
    """

    policy: Ints
    masks: Bools
    readable: Bools
    unmatched: Bools
    shared: Bools
    shared_readable: bool
    primary: Bools
    secondary: Bools
    matched: Ints

    def mask(self, namespace: int) -> Bools:
        """Return a mask of the brokers that policies allow for this namespace (row); all False if that is unknown."""
        row: Bools = self._masks()[self.policy[namespace]]
        return row

    def matrix(self) -> Bools:
        """Return the result of `mask` for every namespace; shape (namespaces, brokers)."""
        rows: Bools = self._masks()[self.policy]
        return rows

    def unknown(self) -> Bools:
        """Return a mask of the namespaces whose allowed brokers are unknown, because expressions cannot be parsed."""
        readable = np.concatenate([self.readable, [False, self.shared_readable]])
        mask: Bools = ~readable[self.policy]
        return mask

    def code(self, namespace: int, broker: int) -> Code:
        """Return the code of the reason why policies do not allow a broker (row) for a namespace (row)."""
        number = int(self.policy[namespace])
        if bool(self.unknown()[namespace]):
            return Code.POLICY_UNREADABLE
        if number == FREE:
            return Code.PRIMARY_OF_OTHERS if self.primary[:, broker].any() else Code.POLICY_UNREADABLE
        return Code.SECONDARY_NOT_NEEDED if self.secondary[number, broker] else Code.NOT_IN_POLICY

    def _masks(self) -> Bools:
        """Return one row per policy, then the rows of UNKNOWN and FREE, at the indices -2 and -1."""
        usable = self.masks & self.readable[:, None]
        free = self.shared if self.shared_readable else np.zeros_like(self.shared)
        stacked: Bools = np.vstack([usable, np.zeros_like(self.shared), free])
        return stacked


@lru_cache(maxsize=4)
def isolate(
    isolation: tuple[IsolationPolicy, ...],
    namespaces: tuple[str, ...],
    brokers: tuple[str, ...],
    without_report: tuple[str, ...] = (),
) -> AppliedIsolation:
    """Apply isolation policies to namespaces and brokers.

    `without_report`: live brokers that cannot be candidates but count as available primaries. Results of the last
    inputs are cached, because matching 1,000 policies with 10,000 namespaces takes too long for each cycle.
    """
    hosts = [host_of(broker) for broker in (*brokers, *without_report)]
    size, count = len(brokers), len(isolation)
    primary, secondary = np.zeros((count, len(hosts)), dtype=bool), np.zeros((count, len(hosts)), dtype=bool)
    readable, unsure = np.ones(count, dtype=bool), np.zeros(len(hosts), dtype=bool)
    for number, policy in enumerate(isolation):
        for place, host in enumerate(hosts):
            first = matches(policy.primary, host)
            second = False if first else matches(policy.secondary, host)
            primary[number, place], secondary[number, place] = bool(first), bool(second)
            readable[number] &= first is not None and second is not None
            unsure[place] |= first is None
    enough = primary.sum(axis=1) >= np.array([policy.min_limit for policy in isolation], dtype=np.int64)
    either = primary | secondary
    masks: Bools = np.where(enough[:, None], primary, either)
    shared: Bools = ~(primary.any(axis=0) | unsure)[:size]
    applied = AppliedIsolation(
        policy=np.array([governing(isolation, name) for name in namespaces], dtype=np.int64),
        masks=masks[:, :size],
        readable=readable,
        unmatched=readable & ~either.any(axis=1),
        shared=shared,
        shared_readable=bool(shared.any() or not unsure[:size].any()),
        primary=primary[:, :size],
        secondary=secondary[:, :size],
        matched=np.column_stack((primary.sum(axis=1), secondary.sum(axis=1))),
    )
    frozen = (
        applied.policy,
        applied.masks,
        readable,
        applied.unmatched,
        shared,
        applied.primary,
        applied.secondary,
        applied.matched,
    )
    for array in frozen:
        array.setflags(write=False)
    return applied


# All brokers without a failure domain form one domain, as in Pulsar.
NO_DOMAIN = ""


def group_numbers(policies: Policies, namespaces: Sequence[str]) -> Ints:
    """Return the number of each namespace's anti-affinity group, -1: none. Group names are not case-sensitive."""
    numbers: dict[str, int] = {}
    groups = [policies.anti_affinity.get(name, "").lower() for name in namespaces]
    return np.array(
        [numbers.setdefault(group, len(numbers)) if group else -1 for group in groups], dtype=np.int64
    ).reshape(-1)


def domain_numbers(policies: Policies, brokers: Sequence[str]) -> Ints | None:
    """Return the number of each broker's failure domain; None if failure domains are disabled."""
    if not policies.failure_domains_enabled:
        return None
    domain_of = {broker: name for name in sorted(policies.failure_domains) for broker in policies.failure_domains[name]}
    names = sorted({NO_DOMAIN, *policies.failure_domains})
    return np.array([names.index(domain_of.get(broker, NO_DOMAIN)) for broker in brokers], dtype=np.int64)


def lives_on(snapshot: Snapshot, ledger: Ledger) -> Bools:
    """Return whether a namespace (row) has a bundle on a broker (column).

    Both the owner by load report and the target of a move that reports do not show yet count.
    """
    bundles = snapshot.bundles
    lives = np.zeros((len(bundles.namespaces), len(snapshot.brokers)), dtype=bool)
    lives[bundles.namespace, bundles.owner] = True
    rows = {name: row for row, name in enumerate(bundles.namespaces)}
    for entry in ledger.entries:
        namespace, target = rows.get(namespace_of(entry.bundle), -1), snapshot.broker_row(entry.target)
        if namespace >= 0 and target >= 0:
            lives[namespace, target] = True
    return lives


@dataclass(frozen=True, slots=True)
class GroupCandidates:
    """Masks of the brokers that remain for a bundle of an anti-affinity group.

    `domains`: after the rule for failure domains. `brokers`: also after the rule for brokers.
    """

    domains: Bools
    brokers: Bools


def least_of_group(counts: Ints, candidates: Bools, domains: Ints | None) -> GroupCandidates:
    """Keep the candidates in failure domains with the fewest namespaces of an anti-affinity group.

    Of these brokers, keep those with the fewest namespaces. `counts`: namespaces of the group by broker. `domains`:
    failure domain by broker; None: not used.
    """
    if not candidates.any():
        return GroupCandidates(candidates, candidates)
    narrowed = candidates
    if domains is not None:
        size = int(domains.max()) + 1
        totals = np.bincount(domains[candidates], weights=counts[candidates], minlength=size)
        present = np.bincount(domains[candidates], minlength=size) > 0
        narrowed = candidates & (totals[domains] == totals[present].min())
    return GroupCandidates(narrowed, narrowed & (counts == counts[narrowed].min()))
