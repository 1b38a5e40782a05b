"""Topic statistics of a broker (`/admin/v2/broker-stats/topics`), by topic of one bundle or summed by bundle."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import msgspec
import numpy as np

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.extensible import BundleLoads
from bundlekeel.model.load import Floats
from bundlekeel.model.names import parse_bundle
from bundlekeel.model.numbers import MAX_INTEGER, MAX_NUMBER
from bundlekeel.pulsar.formats.extensible import bundle_loads
from bundlekeel.pulsar.formats.external_input import Faults, clean
from bundlekeel.pulsar.formats.report import is_bundle

Figures = tuple[tuple[float, float, float, float], int]

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Brokers write NaN and infinities as Java does, and these are not JSON. They are replaced by a number outside of every
# limit. A replacement inside a string can only change the name of a topic, not a sum.
_NO_NUMBERS: Final = (b'":NaN', b'":Infinity', b'":-Infinity')
_OUT_OF_BOUNDS: Final = b'":1e99'


class _Subscription(msgspec.Struct):
    consumers: list[msgspec.Raw] = []


class _Topic(msgspec.Struct, rename="camel"):
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    producer_count: int = 0
    subscriptions: dict[str, _Subscription] = {}


# namespace -> bundle range -> domain -> topic. The topics of a bundle are decoded only on demand.
_BROKER = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])
_BUNDLE = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])
_TOPIC = msgspec.json.Decoder(_Topic, strict=False)
_DOMAINS = msgspec.json.Decoder(dict[str, dict[str, _Topic]], strict=False)


def decode_topic_stats(body: bytes, bundle: str) -> dict[str, Figures]:
    """Return traffic (columns of `model.load.TRAFFIC`) and producers plus consumers by full topic name.

    Unreadable topics are skipped, and a response without statistics gives an empty result. Negative or not finite rates
    count as 0.
    """
    name = parse_bundle(bundle)
    try:
        of_namespace = _BROKER.decode(body).get(name.namespace, {})
        domains = _BUNDLE.decode(of_namespace[name.range])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return {}
    traffic_by_topic: dict[str, Figures] = {}
    for topics in domains.values():
        for topic, raw in topics.items():
            if clean(topic) != topic:
                continue
            try:
                traffic_by_topic[topic] = _figures(_TOPIC.decode(raw))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return traffic_by_topic


def decode_topic_rates(body: bytes, namespaces: Collection[str]) -> tuple[tuple[str, ...], Floats]:
    """Return the throughput of every topic or partition of these namespaces.

    Returns the sorted full names, and an array of shape (names, 4): messages/s and bytes/s published, then delivered.
    Topics of Pulsar itself (`__change_events` and so on) and unreadable ones are skipped. Raises CodecError if the
    response does not contain statistics.
    """
    rates: dict[str, tuple[float, float, float, float]] = {}
    parted = _parted(body)
    for namespace in namespaces:
        for raw in parted.get(namespace, {}).values():
            try:
                domains = _DOMAINS.decode(raw)
            except _UNREADABLE:
                continue
            for name, topic in ((name, topic) for topics in domains.values() for name, topic in topics.items()):
                if not name.rpartition("/")[2].startswith("__") and clean(name) == name:
                    (rate_in, rate_out, bytes_in, bytes_out), _ = _figures(topic)
                    rates[name] = rate_in, bytes_in, rate_out, bytes_out
    names = tuple(sorted(rates))
    return names, np.array([rates[name] for name in names], dtype=np.float64).reshape(-1, 4)


def _figures(topic: _Topic) -> Figures:
    consumers = sum(len(item.consumers) for item in topic.subscriptions.values())
    traffic = (topic.msg_rate_in, topic.msg_rate_out, topic.msg_throughput_in, topic.msg_throughput_out)
    a, b, c, d = (_usable(value) for value in traffic)
    return (a, b, c, d), min(max(0, topic.producer_count), MAX_INTEGER) + consumers


def _usable(value: float) -> float:
    return value if 0 < value <= MAX_NUMBER else 0.0


def decode_bundle_stats(body: bytes) -> BundleLoads:
    """Return all bundles of a broker's response, in its order, each as the sum over its topics.

    System bundles are included, because they are part of the broker's load, although they never move. The response
    omits bundles without a loaded topic. A bundle with unreadable data is skipped with a fault on `topics.{bundle}`,
    because an incomplete sum would be too low. A rate that is negative or not finite counts as 0, with a fault. Raises
    CodecError if the response does not contain statistics.

    Bundles are decoded one by one, so that only one bundle's topics are in memory in addition to `body`.
    """
    faults = Faults()
    rows: dict[str, list[float]] = {}
    for namespace, bundles in _parted(body).items():
        for hash_range, raw in bundles.items():
            bundle = f"{namespace}/{hash_range}"
            if not is_bundle(bundle):
                faults.add(Code.WRONG_TYPE, f"topics.{bundle}")
                continue
            try:
                rows[bundle] = _summed(_DOMAINS.decode(raw), bundle, faults)
            except _UNREADABLE:
                faults.add(Code.WRONG_TYPE, f"topics.{bundle}")
    return bundle_loads(rows, faults)


def _parted(body: bytes) -> dict[str, dict[str, msgspec.Raw]]:
    try:
        return _BROKER.decode(body)
    except _UNREADABLE:
        for text in _NO_NUMBERS:
            body = body.replace(text, _OUT_OF_BOUNDS)
    try:
        return _BROKER.decode(body)
    except _UNREADABLE:
        pass
    raise CodecError("the answer does not contain topic statistics", code=Code.NOT_JSON)


def _summed(domains: dict[str, dict[str, _Topic]], bundle: str, faults: Faults) -> list[float]:
    """Return rate in and out, throughput in and out, topics, consumers and producers of one bundle."""
    in_, out, bytes_in, bytes_out, topics, consumers, producers = 0.0, 0.0, 0.0, 0.0, 0, 0, 0
    for topic_stats in domains.values():
        topics += len(topic_stats)
        for topic in topic_stats.values():
            in_ += _amount(topic.msg_rate_in, bundle, faults)
            out += _amount(topic.msg_rate_out, bundle, faults)
            bytes_in += _amount(topic.msg_throughput_in, bundle, faults)
            bytes_out += _amount(topic.msg_throughput_out, bundle, faults)
            consumers += sum(len(item.consumers) for item in topic.subscriptions.values())
            producers += min(max(0, topic.producer_count), MAX_INTEGER)
    return [in_, out, bytes_in, bytes_out, topics, consumers, min(producers, MAX_INTEGER)]


def _amount(value: float, bundle: str, faults: Faults) -> float:
    if 0 <= value <= MAX_NUMBER:
        return value
    faults.add(Code.NEGATIVE_VALUE if -math.inf < value < 0 else Code.NOT_A_NUMBER, f"topics.{bundle}")
    return 0.0
