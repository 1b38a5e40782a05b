"""Topic statistics as brokers send them, and every way they may be broken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bundlekeel.codec.topics import decode_topic_stats

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
        "subscriptions": {
            "one": {"consumers": [{"msgRateOut": 5.5}, {}], "msgBacklog": 0},
            "two": {"consumers": [{}]},
        },
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
    ("topic", "found"),
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
def test_odd_topics_are_left_out_or_count_as_nothing(topic: Any, found: dict[str, Any]) -> None:
    """One bad record costs that topic only."""
    assert decode_topic_stats(body(topic), BUNDLE) == found


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
    """Java writes NaN, which is no JSON: nothing is known then, and nothing is raised."""
    assert decode_topic_stats(body({"msgRateIn": float("nan")}), BUNDLE) == {}
