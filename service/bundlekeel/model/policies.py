"""Pulsar's policies as plain values: isolation policies, anti-affinity groups, failure domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationPolicy:
    """One namespace isolation policy (`NamespaceIsolationData`).

    All strings are Java regular expressions. Those in `namespaces` must match a whole `tenant/namespace`. Those in
    `primary` and `secondary` must match the whole host part of a broker id. `min_limit`: if fewer primary brokers are
    available, secondary brokers may be used, too.
    """

    name: str
    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    min_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """All policies of Pulsar that restrict the brokers of a bundle.

    `isolation`: in the order of Pulsar's map, because the first policy that matches a namespace applies.
    `anti_affinity`: group by namespace. `failure_domains`: brokers by domain, used if `failure_domains_enabled`.
    `unreadable`: namespaces whose own policies could not be read, so their bundles must stay. `unknown`: why the
    policies of all namespaces are unknown, "" if they are known. `load_manager`: load manager class in the brokers'
    settings, "": unknown.
    """

    isolation: tuple[IsolationPolicy, ...] = ()
    anti_affinity: Mapping[str, str] = field(default_factory=dict)
    failure_domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failure_domains_enabled: bool = False
    distribute_evenly: bool = True
    prefer_later_versions: bool = False
    load_manager: str = ""
    unreadable: frozenset[str] = frozenset()
    unknown: str = ""
