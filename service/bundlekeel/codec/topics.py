"""Topic statistics of a broker (`/admin/v2/broker-stats/topics`): what each topic of one bundle carries."""

from __future__ import annotations

import math

import msgspec

from bundlekeel.core.names import parse_bundle

Figures = tuple[tuple[float, float, float, float], int]


class _Subscription(msgspec.Struct):
    consumers: list[msgspec.Raw] = []


class _Topic(msgspec.Struct, rename="camel"):
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    producer_count: int = 0
    subscriptions: dict[str, _Subscription] = {}


# namespace -> bundle range -> domain -> topic; a bundle's topics are decoded only where they are asked for.
_BROKER = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])
_BUNDLE = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])
_TOPIC = msgspec.json.Decoder(_Topic, strict=False)


def decode_topic_stats(body: bytes, bundle: str) -> dict[str, Figures]:
    """Traffic (columns of `core.load.TRAFFIC`) and producers plus consumers by full topic name.

    Never raises for what a broker may send: a topic whose record cannot be read is left out, and nothing is found in
    an answer that is no statistics at all. Rates that are negative or not finite count as 0.
    """
    name = parse_bundle(bundle)
    try:
        of_namespace = _BROKER.decode(body).get(name.namespace, {})
        domains = _BUNDLE.decode(of_namespace[name.range])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return {}
    found: dict[str, Figures] = {}
    for topics in domains.values():
        for topic, raw in topics.items():
            try:
                found[topic] = _figures(_TOPIC.decode(raw))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return found


def _figures(topic: _Topic) -> Figures:
    consumers = sum(len(item.consumers) for item in topic.subscriptions.values())
    traffic = (topic.msg_rate_in, topic.msg_rate_out, topic.msg_throughput_in, topic.msg_throughput_out)
    a, b, c, d = (_usable(value) for value in traffic)
    return (a, b, c, d), max(0, topic.producer_count) + consumers


def _usable(value: float) -> float:
    return float(value) if math.isfinite(value) and value > 0 else 0.0
