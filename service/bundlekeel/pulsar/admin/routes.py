"""The admin routes in use, their URLs, and the allow-list of reads without side effects.

A GET can have effects: `/lookup` assigns bundles, `/metrics` of an extensible broker changes its load averages,
`/health` publishes a message, `partitions?checkAllowAutoCreation=true` creates a topic. So the list contains exact
paths with exact query keys. Method, path and query are checked right before each request, also after redirects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from bundlekeel.model.errors import AdminRefused
from bundlekeel.model.names import is_v1, parse_bundle, parse_topic

_MIB: Final = 1024 * 1024
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRoute:
    """An HTTP method and a path template. The template is also a metric label, so it never contains a topic or broker.

    `query`: the allowed query keys of a read without side effects (brokers add `authoritative` to redirects); None: the
    route changes something. `idempotent`: this change may be repeated at any broker, because it writes a whole value.
    `max_bytes`: a longer response is rejected while it is read. The failsafe job has only 256 MiB of memory, so it
    calls only routes with the default limit or a lower one.
    """

    method: str
    template: str
    query: frozenset[str] | None = None
    idempotent: bool = False
    max_bytes: int = 4 * _MIB
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = _PLACEHOLDER.split(self.template)
        expression = "".join(re.escape(p) if i % 2 == 0 else "[^/]+" for i, p in enumerate(parts))
        object.__setattr__(self, "pattern", re.compile(expression))

    def path(self, **values: str) -> str:
        """Return the path with every value percent-encoded as one segment. Raises AdminRefused if a value is empty."""
        empty = sorted(name for name, value in values.items() if not value)
        if empty:
            raise AdminRefused(f"{self.template}: empty {', '.join(empty)}", reason="empty name")
        return _PLACEHOLDER.sub(lambda match: segment(values[match[1]]), self.template)


def segment(text: str) -> str:
    """Return `text` percent-encoded as one path segment. URL libraries would resolve `.` and `..`: encode them, too."""
    encoded = quote(text, safe="", errors="surrogatepass")
    return encoded.replace(".", "%2E") if text in (".", "..") else encoded


# A response usually has 60 KB.
RUNTIME: Final = AdminRoute(
    method="GET", template="/admin/v2/brokers/configuration/runtime", query=frozenset(), max_bytes=_MIB
)
DYNAMIC: Final = AdminRoute(method="GET", template="/admin/v2/brokers/configuration/values", query=frozenset())
SET_DYNAMIC: Final = AdminRoute(
    method="POST", template="/admin/v2/brokers/configuration/{key}/{value}", idempotent=True
)
DELETE_DYNAMIC: Final = AdminRoute(method="DELETE", template="/admin/v2/brokers/configuration/{key}", idempotent=True)
HASH_POSITIONS: Final = AdminRoute(
    method="GET",
    template="/admin/v2/namespaces/{tenant}/{namespace}/{range}/topicHashPositions",
    query=frozenset({"topics", "authoritative"}),
)
UNLOAD: Final = AdminRoute(method="PUT", template="/admin/v2/namespaces/{tenant}/{namespace}/{range}/unload")
SPLIT: Final = AdminRoute(method="PUT", template="/admin/v2/namespaces/{tenant}/{namespace}/{range}/split")
# Looks up the owner of each segment of a scalable topic (Pulsar 5.0), and so assigns segments without an owner.
SCALABLE_STATS: Final = AdminRoute(method="GET", template="/admin/v2/scalable/{tenant}/{namespace}/{topic}/stats")
LOOKUP: Final = AdminRoute(method="GET", template="/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}")

# Each topic takes one to two kilobytes.
TOPIC_STATS: Final = AdminRoute(
    method="GET", template="/admin/v2/broker-stats/topics", query=frozenset(), max_bytes=128 * _MIB
)
MBEANS: Final = AdminRoute(method="GET", template="/admin/v2/broker-stats/mbeans", query=frozenset())
# Harmless with the modular load manager only: `Client.client_signs` calls no other broker.
METRICS: Final = AdminRoute(
    method="GET", template="/admin/v2/broker-stats/metrics", query=frozenset(), max_bytes=16 * _MIB
)
# The page that Prometheus scrapes; the path without the slash redirects. It advances an extensible broker's averages,
# as each scrape does: `counters.extensible` sets whether it is read there (docs/concepts/live-loads.md).
PROMETHEUS: Final = AdminRoute(method="GET", template="/metrics/", query=frozenset(), max_bytes=128 * _MIB)
OWNED: Final = AdminRoute(
    method="GET",
    template="/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces",
    query=frozenset(),
    max_bytes=8 * _MIB,
)
# These three routes have side effects: reading a topic's policy assigns its bundle if no broker owns that.
TOPIC_RATE: Final = AdminRoute(method="GET", template="/admin/v2/{domain}/{tenant}/{namespace}/{topic}/{rate}")
SET_TOPIC_RATE: Final = AdminRoute(method="POST", template="/admin/v2/{domain}/{tenant}/{namespace}/{topic}/{rate}")
DELETE_TOPIC_RATE: Final = AdminRoute(
    method="DELETE", template="/admin/v2/{domain}/{tenant}/{namespace}/{topic}/{rate}"
)
NAMESPACE: Final = AdminRoute(method="GET", template="/admin/v2/namespaces/{tenant}/{namespace}", query=frozenset())
RESOURCE_GROUP: Final = AdminRoute(method="GET", template="/admin/v2/resourcegroups/{name}", query=frozenset())
SET_RESOURCE_GROUP: Final = AdminRoute(method="PUT", template="/admin/v2/resourcegroups/{name}")
DELETE_RESOURCE_GROUP: Final = AdminRoute(method="DELETE", template="/admin/v2/resourcegroups/{name}")
ATTACH: Final = AdminRoute(method="POST", template="/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup/{name}")
DETACH: Final = AdminRoute(method="DELETE", template="/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup")
_READY = AdminRoute(method="GET", template="/admin/v2/brokers/ready", query=frozenset())
_PARTITIONS = AdminRoute(
    method="GET",
    template="/admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions",
    query=frozenset({"authoritative"}),
)
HARMLESS: Final = (
    RUNTIME,
    DYNAMIC,
    HASH_POSITIONS,
    TOPIC_STATS,
    OWNED,
    MBEANS,
    METRICS,
    PROMETHEUS,
    NAMESPACE,
    RESOURCE_GROUP,
    _READY,
    _PARTITIONS,
)


def is_harmless(method: str, url: str) -> bool:
    """Return whether this request is on the list of reads without side effects."""
    parts = urlsplit(url)
    keys = {pair.split("=", 1)[0] for pair in parts.query.split("&") if pair}
    return any(
        route.method == method
        and route.query is not None
        and keys <= route.query
        and route.pattern.fullmatch(parts.path) is not None
        for route in HARMLESS
    )


def bundle_path(route: AdminRoute, bundle: str) -> str:
    """Return the path of a route for a bundle. Raises AdminRefused if `bundle` is not `tenant/namespace/range`."""
    try:
        name = parse_bundle(bundle)
    except ValueError as error:
        raise AdminRefused(str(error), reason="no bundle name") from error
    if is_v1(name.namespace):
        raise AdminRefused(f"{bundle}: v1 namespaces are not supported", reason="v1 namespace")
    tenant, namespace = name.namespace.split("/")
    return route.path(tenant=tenant, namespace=namespace, range=name.range)


def lookup_path(topic: str) -> str:
    """Return the path of a topic's lookup. Raises AdminRefused if `topic` is not a topic name."""
    try:
        name = parse_topic(topic)
    except ValueError as error:
        raise AdminRefused(str(error), reason="no topic name") from error
    tenant, namespace = name.namespace.split("/")
    return LOOKUP.path(domain=name.domain, tenant=tenant, namespace=namespace, topic=name.local)


def scalable_stats_path(segment: str) -> str:
    """Return the path of the statistics of a segment's scalable topic. Raises AdminRefused for other names."""
    try:
        name = parse_topic(segment).scalable_topic
    except ValueError as error:
        raise AdminRefused(str(error), reason="no segment name") from error
    return namespace_path(SCALABLE_STATS, name.namespace, topic=name.local)


def rate_path(route: AdminRoute, topic: str, rate: str) -> str:
    """Return the path of a topic's rate policy (`rate`, such as publishRate). Raises AdminRefused for other names."""
    try:
        name = parse_topic(topic)
    except ValueError as error:
        raise AdminRefused(str(error), reason="no topic name") from error
    if name.scalable:
        raise AdminRefused(f"{topic}: scalable topics have no rate policy", reason="scalable topic")
    tenant, namespace = name.namespace.split("/")
    return route.path(domain=name.domain, tenant=tenant, namespace=namespace, topic=name.local, rate=rate)


def namespace_path(route: AdminRoute, namespace: str, **more: str) -> str:
    """Return the path of a route for a namespace. Raises AdminRefused if `namespace` is not a v2 namespace."""
    tenant, _, local = namespace.partition("/")
    if "/" in local:
        raise AdminRefused(f"{namespace}: v1 namespaces are not supported", reason="v1 namespace")
    return route.path(tenant=tenant, namespace=local, **more)


def with_query(path: str, query: dict[str, str]) -> str:
    """Return the path with an encoded query. A space becomes %20, which all brokers read the same way."""
    return f"{path}?{urlencode(query, quote_via=quote, safe='')}" if query else path
