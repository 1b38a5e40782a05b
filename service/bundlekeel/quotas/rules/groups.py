"""Declared quota groups (limits and members), their checks, and the namespaces that belong to them now.

A member is `t:acme` (all present and future namespaces of the tenant), `n:acme/orders` (one namespace), or a pattern
of tenants or namespaces (`n:acme/tmp-*`). A namespace belongs to one group at most: PIP-82 has no hierarchy of limits,
and two groups with the same namespace would count its traffic twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np

from bundlekeel.model.errors import ConfigError
from bundlekeel.model.load import Floats
from bundlekeel.model.names import is_system_bundle, tenant_of
from bundlekeel.planning.guard.scope import NAMESPACE, TENANT, matches

# Columns of every matrix of rates in this package: messages/s and bytes/s, in (publish) and out (dispatch).
KINDS: Final = ("publish_messages", "publish_bytes", "dispatch_messages", "dispatch_bytes")
PUBLISH_MESSAGES, PUBLISH_BYTES, DISPATCH_MESSAGES, DISPATCH_BYTES = range(4)
Rates = tuple[float, float, float, float]

# Highest values in Pulsar's PublishRate and DispatchRate: a Java int for messages, a long for bytes.
MOST_MESSAGES: Final = 2**31 - 1
MOST_BYTES: Final = 2**63 - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_GLOB = re.compile(r"[*?\[]")
_MEMBERS: Final = "t:TENANT or n:TENANT/NAMESPACE, with * and ? where wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimits:
    """Limits of a quota group for all of its members together, per second; None: no limit."""

    publish_messages: float | None = None
    publish_bytes: float | None = None
    dispatch_messages: float | None = None
    dispatch_bytes: float | None = None

    def rates(self) -> Rates:
        """Return the limits in the order of `KINDS`; infinite: no limit."""
        rates = [math.inf if (value := getattr(self, name)) is None else float(value) for name in KINDS]
        return rates[0], rates[1], rates[2], rates[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGroup:
    """A quota group from the settings or an operator's request. `members`: see the module docstring."""

    name: str
    limits: QuotaLimits
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The quota group of each namespace now. `group_of`: index in `groups`, by namespace.

    `problems`: one error for each unknown tenant, and for each namespace in two groups. Such a namespace counts
    for the group that is declared first.
    """

    groups: tuple[QuotaGroup, ...] = ()
    group_of: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[ConfigError, ...] = ()

    def limits(self) -> Floats:
        """Return the limits of all groups, shape (groups, 4), columns `KINDS`; infinite: no limit."""
        return np.array([group.limits.rates() for group in self.groups], dtype=np.float64).reshape(-1, len(KINDS))


def check_group(group: QuotaGroup) -> QuotaGroup:
    """Check a group, and return it unchanged.

    Raises ConfigError if a value is invalid, with the field (below `quotas.groups`), the value and the allowed values.
    """
    where = f"quotas.groups.{group.name}"
    if _NAME.fullmatch(group.name) is None:
        raise _error("not a name", where, group.name, "letters, digits, dots, dashes and underscores")
    for item in fields(QuotaLimits):
        _check_limit(f"{where}.{item.name}", getattr(group.limits, item.name), item.name)
    if all(math.isinf(rate) for rate in group.limits.rates()):
        raise _error("limits nothing", where, None, f"at least one of {', '.join(KINDS)}")
    for side in ("publish", "dispatch"):
        messages, size = getattr(group.limits, f"{side}_messages"), getattr(group.limits, f"{side}_bytes")
        if messages is not None and size is not None and size < messages:
            raise _error("less than one byte a message", f"{where}.{side}_bytes", size, f"at least {messages:g}")
    if not group.members:
        raise _error("has no members", f"{where}.members", None, _MEMBERS)
    for member in group.members:
        _check_member(f"{where}.members", member)
    return group


def check_groups(groups: Sequence[QuotaGroup]) -> tuple[QuotaGroup, ...]:
    """Make all checks that need no connection to a cluster, and return the groups unchanged.

    Raises ConfigError if a value is invalid or two groups have a common member.
    """
    owners: dict[str, str] = {}
    for group in groups:
        check_group(group)
        for member in group.members:
            other = owners.setdefault(member, group.name)
            if other != group.name:
                raise _overlap(group.name, member, other)
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _error("declared twice", "quotas.groups", twice, "one group of a name")
    _check_inside(groups)
    return tuple(groups)


def check_least(group: QuotaGroup, least: Rates) -> QuotaGroup:
    """Return the group unchanged. Raises ConfigError if a limit is below `least`, the lowest share of any topic."""
    for kind, lowest in zip(KINDS, least, strict=True):
        value = getattr(group.limits, kind)
        if value is not None and value < lowest:
            setting = f"quotas.least_{kind.partition('_')[2]}"
            allowed = f"at least {lowest:g}: each topic may pass that much in any case ({setting})"
            raise _error("below the least rate", f"quotas.groups.{group.name}.{kind}", value, allowed)
    return group


def resolve(groups: Sequence[QuotaGroup], tenants: Collection[str], namespaces: Iterable[str]) -> Membership:
    """Assign the namespaces of the cluster to the groups. Returns errors in `problems`.

    Pulsar's own namespaces (system, heartbeats, SLA monitors) belong to a group only by their exact name.
    """
    names, tenant_names = _Names(namespaces), ", ".join(sorted(tenants))
    group_of: dict[str, int] = {}
    problems: list[ConfigError] = []
    for row, group in enumerate(groups):
        where = f"quotas.groups.{group.name}.members"
        for member in group.members:
            kind, _, text = member.partition(":")
            tenant = text if kind == TENANT else tenant_of(text)
            if _GLOB.search(tenant) is None and tenant not in tenants:
                problems.append(_error("unknown tenant", where, member, tenant_names))
            for name in names.covered_by(kind, text):
                other = group_of.setdefault(name, row)
                if other != row:
                    problems.append(_overlap(group.name, name, groups[other].name))
    return Membership(groups=tuple(groups), group_of=group_of, problems=_once(problems))


class _Names:
    """Namespaces of the cluster, indexed by tenant so that a lookup need not scan all of them."""

    def __init__(self, namespaces: Iterable[str]) -> None:
        self._all = sorted(set(namespaces))
        self._there = frozenset(self._all)
        self._by_tenant: dict[str, list[str]] = {}
        for name in self._all:
            self._by_tenant.setdefault(tenant_of(name), []).append(name)

    def covered_by(self, kind: str, text: str) -> Sequence[str]:
        """Return the namespaces that a member covers, sorted; Pulsar's own namespaces only by their exact name."""
        if _GLOB.search(text) is None:
            if kind == NAMESPACE:
                return (text,) if text in self._there else ()
            names = self._by_tenant.get(text, [])
        else:
            keys = [tenant_of(name) for name in self._all] if kind == TENANT else self._all
            names = [self._all[row] for row in np.flatnonzero(matches(text, keys)).tolist()]
        return [name for name in names if not is_system_bundle(f"{name}/")]


def _check_limit(where: str, value: object, kind: str) -> None:
    if value is None:
        return
    most = MOST_BYTES if kind.endswith("bytes") else MOST_MESSAGES
    allowed = f"1 to {most} a second, or nothing for no limit"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _error("not a number", where, value, allowed)
    if value < 0:
        raise _error("negative", where, value, allowed)
    # Refuse 0, because Pulsar reads a rate of 0 as "no limit".
    if not 1 <= value <= most:
        raise _error("out of range", where, value, allowed)


def _check_member(where: str, member: str) -> None:
    kind, colon, text = member.partition(":")
    slashes = {TENANT: (0,), NAMESPACE: (1, 2)}.get(kind, ())
    parts = text.split("/")
    if not colon or len(parts) - 1 not in slashes or any(not part or part != part.strip() for part in parts):
        raise _error("not a member", where, member, _MEMBERS)


def _check_inside(groups: Sequence[QuotaGroup]) -> None:
    """Raise ConfigError, about the later of two groups, if a member of one covers a namespace of the other."""
    owners = {
        member.partition(":")[2]: row for row, group in enumerate(groups) for member in group.members if _plain(member)
    }
    names, clashes = _Names(owners), list[tuple[int, str, str]]()
    for row, group in enumerate(groups):
        for member in group.members:
            kind, _, text = member.partition(":")
            for name in names.covered_by(kind, text):
                if (owner := owners[name]) < row:
                    clashes.append((row, member, groups[owner].name))
                elif owner > row:
                    clashes.append((owner, f"{NAMESPACE}:{name}", group.name))
    for row, member, other in sorted(clashes)[:1]:
        raise _overlap(groups[row].name, member, other)


def _plain(member: str) -> bool:
    return member.startswith(f"{NAMESPACE}:") and _GLOB.search(member) is None


def _overlap(group: str, member: str, other: str) -> ConfigError:
    where = f"quotas.groups.{group}.members"
    return _error(f"belongs to group {other} already", where, member, "a namespace is in one group at most")


def _error(what: str, where: str, value: object, allowed: str) -> ConfigError:
    assignment = "" if value is None else f" = {value!r}"
    return ConfigError(f"{where}{assignment}: {what} (allowed: {allowed})", field=where, value=value, allowed=allowed)


def _once(problems: Iterable[ConfigError]) -> tuple[ConfigError, ...]:
    return tuple({str(item): item for item in problems}.values())
