"""Topic statistics as brokers send them, and every way they may be broken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats.topics import decode_bundle_stats, decode_topic_stats

BUNDLE = "t/ns/0x00000000_0x40000000"
TOPIC = "persistent://t/ns/a"
NOTHING = ((0.0, 0.0, 0.0, 0.0), 0)


def body(topic: Any, **more: Any) -> bytes:
    """An answer with one topic of the bundle, and others."""
    return json.dumps({"t/ns": {"0x00000000_0x40000000": {"persistent": {TOPIC: topic}, **more}, "x": 1}}).encode()


def test_a_topic_as_a_broker_tells_it() -> None:
    """Rates in and out, producers and the consumers of all subscriptions; both domains."""
    topic = {
        "publishers": [{"producerId": 0, "msgRateIn": 5.5}],
        "replication": {},
        "subscriptions": {"one": {"consumers": [{"msgRateOut": 5.5}, {}], "msgBacklog": 0}, "two": {"consumers": [{}]}},
        "producerCount": 2,
        "msgRateIn": 5.5,
        "msgRateOut": 11,
        "msgThroughputIn": 550.25,
        "msgThroughputOut": 1100.5,
        "storageSize": 7,
    }
    other = {"non-persistent://t/ns/b": {"msgRateIn": 1.0}}
    assert decode_topic_stats(body(topic, **{"non-persistent": other}), BUNDLE) == {
        TOPIC: ((5.5, 11.0, 550.25, 1100.5), 5),
        "non-persistent://t/ns/b": ((1.0, 0.0, 0.0, 0.0), 0),
    }


@pytest.mark.parametrize(
    ("topic", "document"),
    [
        ({}, {TOPIC: NOTHING}),
        ({"msgRateIn": -1, "msgRateOut": 2}, {TOPIC: ((0.0, 2.0, 0.0, 0.0), 0)}),
        ({"msgRateIn": "NaN", "producerCount": -4}, {TOPIC: NOTHING}),
        ({"msgRateIn": []}, {}),
        ({"subscriptions": 5}, {}),
        ([], {}),
        (None, {}),
    ],
)
def test_odd_topics_are_left_out_or_count_as_nothing(topic: Any, document: dict[str, Any]) -> None:
    """One bad record costs that topic only."""
    assert decode_topic_stats(body(topic), BUNDLE) == document


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"t/ns":{}}',
        b'{"t/ns":[]}',
        b'{"t/ns":{"0x00000000_0x40000000":1}}',
        b"\xff",
        b"{}",
    ],
)
def test_what_is_no_statistics_holds_nothing(answer: bytes) -> None:
    """Never an error: the hashes alone still say where topics can be parted."""
    assert decode_topic_stats(answer, BUNDLE) == {}


def test_nan_in_one_topic_of_the_broker() -> None:
    assert decode_topic_stats(body({"msgRateIn": float("nan")}), BUNDLE) == {}


# --- all bundles of a broker -----------------------------------------------------------------------------

OTHER = "t/ns/0x40000000_0xffffffff"
SYSTEM = "pulsar/system/0x00000000_0xffffffff"


def stats(**bundles: Any) -> bytes:
    """An answer with these bundles by name; a value that is a number becomes one topic with that rate."""
    results: dict[str, dict[str, Any]] = {}
    for name, domains in bundles.items():
        namespace, _, hash_range = name.rpartition("/")
        topics = domains if isinstance(domains, dict) else {"persistent": {TOPIC: {"msgRateIn": domains}}}
        results.setdefault(namespace, {})[hash_range] = topics
    return json.dumps(results, separators=(",", ":")).encode()


def test_bundles_are_the_sums_of_their_topics() -> None:
    one = {
        "msgRateIn": 5.5,
        "msgRateOut": 11,
        "msgThroughputIn": 550.25,
        "msgThroughputOut": 1100.5,
        "producerCount": 2,
        "subscriptions": {"one": {"consumers": [{}, {"x": [1]}]}, "two": {"consumers": [{}]}},
    }
    two = {"msgRateIn": 0.5, "producerCount": 1}
    loads = decode_bundle_stats(
        stats(
            **{
                BUNDLE: {
                    "persistent": {TOPIC: one, f"{TOPIC}2": two},
                    "non-persistent": {"non-persistent://t/ns/b": one},
                },
                SYSTEM: 3,
                OTHER: {},
            }
        )
    )
    assert loads.names == (BUNDLE, OTHER, SYSTEM)
    assert loads.traffic.tolist() == [[11.5, 22.0, 1100.5, 2201.0], [0, 0, 0, 0], [3.0, 0, 0, 0]]
    assert loads.counts.tolist() == [[3, 6, 5], [0, 0, 0], [1, 0, 0]]
    assert loads.faults == ()


@pytest.mark.parametrize(
    ("topic", "rates", "code"),
    [
        ({"msgRateIn": -1.0, "msgRateOut": 2.0}, [0.0, 2.0, 0.0, 0.0], Code.NEGATIVE_VALUE),
        ({"msgRateIn": float("nan"), "msgRateOut": 2.0}, [0.0, 2.0, 0.0, 0.0], Code.NOT_A_NUMBER),
        ({"msgThroughputOut": float("-inf")}, [0.0] * 4, Code.NOT_A_NUMBER),
        ({"msgThroughputOut": 1e300}, [0.0] * 4, Code.NOT_A_NUMBER),
        ({"msgRateIn": []}, None, Code.WRONG_TYPE),
        ({"subscriptions": 5}, None, Code.WRONG_TYPE),
        ([], None, Code.WRONG_TYPE),
        (None, None, Code.WRONG_TYPE),
    ],
)
def test_a_bad_topic_costs_at_most_its_bundle(topic: Any, rates: list[float] | None, code: Code) -> None:
    """Odd rates count as 0 with a fault; a bundle that cannot be read is left out with one; others stay."""
    loads = decode_bundle_stats(stats(**{BUNDLE: {"persistent": {TOPIC: topic}}, OTHER: 7.0}))
    answers = dict(zip(loads.names, loads.traffic.tolist(), strict=True))
    assert answers == {OTHER: [7.0, 0, 0, 0]} | ({} if rates is None else {BUNDLE: rates})
    assert loads.faults == ((code, f"topics.{BUNDLE}"),)


def test_what_looks_like_nan_inside_a_name_is_left_alone() -> None:
    """Only numbers are repaired, whatever topics are called."""
    name = 'persistent://t/ns/a":NaN,'
    body = stats(**{BUNDLE: {"persistent": {name: {"msgRateIn": float("nan"), "msgRateOut": 1.0}}}})
    loads = decode_bundle_stats(body)
    assert (loads.traffic.tolist(), loads.counts.tolist()) == ([[0, 1.0, 0, 0]], [[1, 0, 0]])


def test_what_is_no_bundle_is_noted() -> None:
    body = stats(**{BUNDLE: 1.0, "t/ns/oops": 2.0})
    loads = decode_bundle_stats(body)
    assert (loads.names, loads.faults) == ((BUNDLE,), ((Code.WRONG_TYPE, "topics.t/ns/oops"),))


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b"null", b'{"t/ns":[]}', b"\xff", b'{"a":NaN', b"[" * 100_000])
def test_what_is_no_statistics_is_refused(answer: bytes) -> None:
    """A broker without an answer is not one without traffic."""
    with pytest.raises(CodecError):
        decode_bundle_stats(answer)


def test_an_idle_broker_has_no_bundles() -> None:
    """An empty answer is a good one."""
    loads = decode_bundle_stats(b"{}")
    assert (loads.names, loads.traffic.shape, loads.counts.shape) == ((), (0, 4), (0, 3))
