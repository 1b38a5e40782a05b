"""What Pulsar's policies allow: isolation policies, anti-affinity groups, failure domains, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationPolicy:
    """One namespace isolation policy (`NamespaceIsolationData`). All texts are Java regular expressions that must
    match fully; `namespaces` against `tenant/namespace`, the brokers' against the host part of a broker id.

    `min_limit`: with fewer available primaries, secondaries are candidates too.
    """

    name: str
    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    min_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Everything that narrows where a bundle may go.

    `isolation` keeps the order of Pulsar's map: the first policy that matches a namespace counts. `anti_affinity`:
    group by namespace. `failure_domains`: brokers by domain, counted when `failure_domains_enabled`. `unreadable`:
    namespaces whose own policies could not be read, and so must stay where they are; `unknown` says why nothing is
    known of any namespace. `load_manager`: the class the brokers are configured with, "" when not known.
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
