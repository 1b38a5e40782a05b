"""The traffic to generate, and the plan that follows from it: topics, their bundles and their rates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dev.identity import Identity
from dev.traffic.bundles import bundle_index, bundle_of, equal_boundaries, topic_hash

HEADER_BYTES = 24
DRAIN_AT_MOST_SECONDS = 300.0


class TrafficError(RuntimeError):
    """Traffic cannot run with these options, or its process ended early; the message contains the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSpec:
    """Options of the traffic.

    service_url: binary-protocol URL; several "host:port" may be joined by commas.
    admin_url: HTTP URL of any broker.
    namespace: "tenant/namespace"; tenant and namespace are created if they are missing.
    bundles: number of bundles of a new namespace; an existing namespace does not change.
    busy_bundles: how many of the bundles get traffic, chosen by the seed; None means all.
    topics_per_bundle: topics in each busy bundle.
    rate_total_msgs: messages per second over all topics.
    message_bytes: payload size, at least 24.
    zipf: Zipf exponent of the topics' rates; 0 makes them equal.
    seed: determines topic names, which bundles are busy, and the order of the topics' rates.
    gap_floor_seconds: a break in service is listed if it is this much longer than a topic's interval.
    start_seconds: how long ``start`` waits until the first message of every topic is received.
    drain_seconds: how long ``stop`` waits for the next message while some are in transit; in all never over
        ``DRAIN_AT_MOST_SECONDS``.
    batching: let the client join messages into batches.
    batch_delay_ms, batch_messages: a batch is sent after this delay, or with this many messages.
    least_rate: lowest rate that a topic gets later (``Traffic.set_rates``); 0: rates are not set.
    identity: credentials of a super-user of a secured cluster, for clients and admin requests.
    """

    service_url: str
    admin_url: str
    namespace: str = "demo/traffic"
    bundles: int = 32
    busy_bundles: int | None = None
    topics_per_bundle: int = 1
    rate_total_msgs: float = 1500.0
    message_bytes: int = 1024
    zipf: float = 1.1
    seed: int = 1
    gap_floor_seconds: float = 0.1
    start_seconds: float = 60.0
    drain_seconds: float = 15.0
    batching: bool = False
    batch_delay_ms: int = 10
    batch_messages: int = 1000
    least_rate: float = 0.0
    identity: Identity | None = None

    def __post_init__(self) -> None:
        tenant, _, name = self.namespace.partition("/")
        if not tenant or not name or "/" in name:
            raise TrafficError(f'namespace must be "tenant/namespace", not {self.namespace!r}')
        if self.bundles < 1 or self.topics_per_bundle < 1:
            raise TrafficError("bundles and topics_per_bundle must be at least 1")
        if self.busy_bundles is not None and self.busy_bundles < 1:
            raise TrafficError("busy_bundles must be at least 1, or left out")
        if self.rate_total_msgs <= 0 or self.message_bytes < HEADER_BYTES:
            raise TrafficError(f"rate must be above 0 and message_bytes at least {HEADER_BYTES}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic: its full name, its bundle ("tenant/namespace/range") and its messages per second."""

    topic: str
    bundle: str
    rate: float


def plan_topics(spec: TrafficSpec, boundaries: Sequence[int] | None = None) -> list[TopicPlan]:
    """Choose topics so that every busy bundle has ``topics_per_bundle``; the same spec gives the same plan.

    ``boundaries``: hash boundaries of the namespace's bundles; None: those of a new namespace. Raises TrafficError if
    there are fewer bundles than ``busy_bundles``.
    """
    edges = list(boundaries) if boundaries is not None else equal_boundaries(spec.bundles)
    count = len(edges) - 1
    busy = count if spec.busy_bundles is None else spec.busy_bundles
    if busy > count:
        raise TrafficError(f"{busy} busy bundles were asked for, and {spec.namespace} has {count}")
    dice = random.Random(spec.seed)
    names = _names(spec, edges, sorted(dice.sample(range(count), busy)))
    weights = [1.0 / rank**spec.zipf for rank in range(1, len(names) + 1)]
    dice.shuffle(weights)
    total = sum(weights)
    return [
        TopicPlan(topic=name, bundle=bundle_of(name, edges), rate=spec.rate_total_msgs * weight / total)
        for name, weight in zip(names, weights, strict=True)
    ]


def _names(spec: TrafficSpec, edges: Sequence[int], indexes: Sequence[int]) -> list[str]:
    """Return names of topics, ordered by bundle. Numbered names are tried until each chosen bundle has enough
    topics.
    """
    names: dict[int, list[str]] = {index: [] for index in indexes}
    missing = len(indexes) * spec.topics_per_bundle
    number = 0
    while missing:
        name = f"persistent://{spec.namespace}/s{spec.seed}-{number}"
        number += 1
        bucket = names.get(bundle_index(edges, topic_hash(name)))
        if bucket is not None and len(bucket) < spec.topics_per_bundle:
            bucket.append(name)
            missing -= 1
    return [name for index in indexes for name in names[index]]
