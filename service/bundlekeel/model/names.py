"""Names in Pulsar: tenants, namespaces, bundles, topics, brokers.

Hash of a topic and bundle bounds: `NamespaceBundleFactory`, `ConsistentHashingTopicBundleAssigner`
(CRC32 of the full topic name; a bundle is [low, high), the last one closed at 0xffffffff).

Pulsar 5.0 has scalable topics (`topic://`), whose messages are in segments (`segment://`). A segment is a topic with
its own bundle; the bundle of the scalable topic itself is that of its controller, and has no traffic.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_plus

from bundlekeel.model.errors import CodecError, ConfigError, NotFound
from bundlekeel.model.numbers import MAX_INT, integer

FOR_A_TOPIC = "for a topic write persistent://tenant/namespace/topic"
FULL_LOWER = 0x00000000
FULL_UPPER = 0xFFFFFFFF

# Characters of a broker name: a host, or host:port.
NEW_BROKER = r"^[A-Za-z0-9._:\[\]-]+$"

_RANGE = re.compile(r"^0x([0-9a-fA-F]{8})_0x([0-9a-fA-F]{8})$")
_PARTITION = re.compile(r"^(.*)-partition-(\d+)$")
# Range of hashes (16 bits) and number of a segment.
_SEGMENT = re.compile(r"([0-9a-f]{4})-([0-9a-f]{4})-(0|[1-9][0-9]{0,18})")
# `NamedEntity`, without `.` and `..`, which have another meaning in a path.
_ENTITY = re.compile(r"(?!\.{1,2}\Z)[-=:.\w]+", re.ASCII)
_SLA_PREFIX = "sla-monitor/"
_HEARTBEAT = re.compile(r"^pulsar/(?:[^/]+/)?[^/]+:\d+$")
_SYSTEM_NAMESPACE = "pulsar/system"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleName:
    """A bundle: `tenant/namespace/0xLLLLLLLL_0xUUUUUUUU` (v1 names carry a cluster inside `namespace`)."""

    namespace: str
    lower: int
    upper: int

    @property
    def range(self) -> str:
        """Return the hash range in Pulsar's spelling, for example `0x00000000_0x40000000`."""
        return f"0x{self.lower:08x}_0x{self.upper:08x}"

    def covers(self, topic_hash: int) -> bool:
        """Return whether a topic with this hash belongs to the bundle."""
        return self.lower <= topic_hash and (topic_hash < self.upper or self.upper == FULL_UPPER)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


def parse_bundle(text: str) -> BundleName:
    """Parse a full bundle name. Raises ValueError if it is invalid."""
    namespace, _, hash_range = text.rpartition("/")
    match = _RANGE.fullmatch(hash_range)
    if match is None or namespace.count("/") not in (1, 2) or "" in namespace.split("/"):
        raise ValueError(f"{text!r} is not a bundle name; expected tenant/namespace/0xLLLLLLLL_0xUUUUUUUU")
    lower, upper = int(match[1], 16), int(match[2], 16)
    if lower >= upper:
        raise ValueError(f"{text!r}: the lower bound is not below the upper bound")
    return BundleName(namespace=namespace, lower=lower, upper=upper)


def is_namespace(text: str) -> bool:
    """Return whether this is `tenant/ns` or `tenant/cluster/ns` with names that Pulsar accepts."""
    parts = text.split("/")
    return len(parts) in (2, 3) and all(_ENTITY.fullmatch(part) for part in parts)


def is_v1(namespace: str) -> bool:
    """Return whether a namespace has a v1 name, `property/cluster/namespace`."""
    return namespace.count("/") > 1


def names_namespace(text: str) -> bool:
    """Return whether an operator's input means a namespace: it has two parts and no domain such as `persistent://`."""
    return "://" not in text and text.count("/") == 1


def names_bundle(text: str) -> bool:
    """Return whether an operator's input means a bundle: its last part contains `0x`, and it has no domain."""
    namespace, slash, tail = text.rpartition("/")
    return "://" not in text and "0x" in tail.lower() and (not slash or "/" in namespace)


def as_pulsar_writes(text: str) -> str:
    """Return the name or pattern of a bundle with its hash range in lower case; all other names unchanged.

    Names from outside must pass through this function before they are compared with names of the cluster.
    """
    namespace, _, tail = text.rpartition("/")
    whole = "://" not in text and ("/" in namespace or "*" in namespace)
    # `0X` remains an error, because Pulsar does not accept it.
    return f"{namespace}/{tail.lower()}" if whole and tail.startswith("0x") and "X" not in tail else text


def is_topic(text: str) -> bool:
    """Return whether Pulsar accepts this as the name of a topic."""
    try:
        topic = parse_topic(text)
    except ValueError:
        return False
    unseen = any(unicodedata.category(sign) in ("Cc", "Cs") for sign in topic.local)
    return not unseen and topic.local not in (".", "..") and is_namespace(topic.namespace)


def check_name(text: str) -> None:
    """Check the syntax of a name. Raises ConfigError if it cannot name a bundle, topic or namespace."""
    namespace = namespace_of(text) if names_bundle(text) else text
    if not (is_namespace(namespace) if names_bundle(text) or names_namespace(text) else is_topic(text)):
        raise no_name(text)


def refuse_namespace(text: str) -> None:
    """Check the name of a bundle or topic. Raises NotFound if it is the name of a namespace."""
    if names_namespace(text):
        hint = f"pass one of its bundles (`bundlekeel bundles -n {text}`), or {FOR_A_TOPIC}"
        raise NotFound(f"{text!r} is a namespace; {hint}")


def no_name(text: str) -> ConfigError:
    """Return the error for a string that cannot be the name of a namespace, bundle or topic."""
    allowed = "tenant/namespace, a bundle of it, or a topic; names of letters, digits and -=:._, neither . nor .."
    return ConfigError(f"{text!r} cannot be a name", field="name", value=text, allowed=allowed)


def namespace_of(bundle: str) -> str:
    """Return the namespace of a full bundle name, without validation (hot path)."""
    return bundle.rpartition("/")[0]


def tenant_of(bundle: str) -> str:
    """Return the tenant of a full bundle or namespace name, without validation."""
    return bundle.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicName:
    """A topic: domain, namespace (`tenant/ns`) and local name, which may contain slashes.

    The local name of a segment ends with its range and number: `orders/0000-7fff-0`.
    """

    domain: str
    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{self.domain}://{self.namespace}/{self.local}"

    @property
    def encoded(self) -> str:
        """Return the local name as Pulsar writes it into a path of the store (`java.net.URLEncoder`, UTF-8)."""
        return quote_plus(self.local, safe="*").replace("~", "%7E")

    @property
    def partition(self) -> int:
        """Return the partition index; -1 if this is not the name of a partition."""
        match = None if self.scalable else _PARTITION.match(self.local)
        try:
            return integer(match[2], field="partition", highest=MAX_INT) if match else -1
        except CodecError:
            return -1

    @property
    def scalable(self) -> bool:
        """Whether this is a scalable topic of Pulsar 5.0, or a segment of one."""
        return self.domain in SCALABLE_DOMAINS

    @property
    def scalable_topic(self) -> TopicName:
        """The scalable topic of this segment, or this topic itself."""
        local = self.local.rpartition("/")[0] if self.domain == "segment" else self.local
        return TopicName(domain="topic", namespace=self.namespace, local=local)

    def with_partition(self, index: int) -> TopicName:
        """Return the name of partition `index` of this partitioned topic."""
        return TopicName(domain=self.domain, namespace=self.namespace, local=f"{self.local}-partition-{index}")

    @property
    def hash(self) -> int:
        """Return the unsigned 32-bit CRC of the full name, as brokers compute it."""
        return zlib.crc32(str(self).encode())


SCALABLE_DOMAINS: Final = frozenset({"topic", "segment"})
_DOMAINS: Final = frozenset({"persistent", "non-persistent"}) | SCALABLE_DOMAINS
# Brokers reject longer requests: Jetty's headers have at most 8 KiB, and a character can take nine bytes.
_LONGEST_TOPIC: Final = 8 * 1024


def parse_topic(text: str) -> TopicName:
    """Parse the name of a topic: a full name, `tenant/ns/name`, or a bare name in public/default.

    Raises ValueError if it is not a topic name.
    """
    domain, namespace, local = topic_parts(text)
    return TopicName(domain=domain, namespace=namespace, local=local)


def topic_parts(text: str) -> tuple[str, str, str]:
    """Split the name of a topic into domain, namespace and local name (hot path). Raises ValueError."""
    domain, sep, rest = text.partition("://")
    if not sep:
        domain, rest = "persistent", text
        if "/" not in rest:
            rest = f"public/default/{rest}"
    parts = rest.split("/", 2)
    if domain not in _DOMAINS or len(parts) != 3 or "" in parts or len(text) > _LONGEST_TOPIC:
        raise ValueError(f"{text[:200]!r} is not a topic name; expected persistent://tenant/namespace/topic")
    if domain == "segment" and not is_segment(parts[2]):
        expected = "segment://tenant/namespace/topic/0000-7fff-0 (range of hashes and number)"
        raise ValueError(f"{text[:200]!r} is not the name of a segment; expected {expected}")
    return domain, f"{parts[0]}/{parts[1]}", parts[2]


def is_segment(local: str) -> bool:
    """Return whether this is the local name of a segment: that of its topic, range and number."""
    topic, _, descriptor = local.rpartition("/")
    match = _SEGMENT.fullmatch(descriptor)
    return topic.strip("/") == topic != "" and match is not None and match[1] <= match[2]


def bundle_for_hash(namespace: str, boundaries: list[int], topic_hash: int) -> BundleName:
    """Return the bundle of `namespace` that contains topics with the hash `topic_hash`.

    `boundaries`: hash boundaries of its bundles, sorted, first 0, last 2^32-1.
    """
    index = min(bisect_right(boundaries, topic_hash), len(boundaries) - 1)
    return BundleName(namespace=namespace, lower=boundaries[index - 1], upper=boundaries[index])


def is_system_bundle(bundle: str) -> bool:
    """Return whether this is a heartbeat, SLA monitor or pulsar/system bundle, which must never move."""
    namespace = namespace_of(bundle)
    return (
        namespace == _SYSTEM_NAMESPACE or namespace.startswith(_SLA_PREFIX) or _HEARTBEAT.match(namespace) is not None
    )


def broker_id_of_url(url: str) -> str:
    """Return `host:port` of `http://host:port/`; ownership znodes before 5.0 contain URLs, not broker ids."""
    return url.partition("://")[2].rstrip("/") if "://" in url else url.rstrip("/")


def find_alike(broker_ids: Sequence[str]) -> dict[int, list[int]]:
    """Find broker ids that end with the id of another broker, as `bb1:8080` ends with `b1:8080`.

    Extensible brokers confuse two such brokers if a bundle is transferred from the longer to the shorter id. Returns,
    by the index of each longer id in `broker_ids`, the indices of the shorter ids.
    """
    rows = {broker: row for row, broker in enumerate(broker_ids)}
    ends = {
        row: [rows[broker[cut:]] for cut in range(1, len(broker)) if broker[cut:] in rows]
        for row, broker in enumerate(broker_ids)
    }
    return {row: others for row, others in ends.items() if others}
