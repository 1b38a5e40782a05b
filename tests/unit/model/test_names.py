"""Names of topics, bundles and brokers, and counts and figures in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bundlekeel.model.names import bundle_for_hash, find_alike, is_topic, parse_topic
from bundlekeel.model.plan import Plan
from bundlekeel.model.text_format import figure, numbered, unknown_broker
from tests.support.builders import EAGER, bundle_name, report, run, snapshot

# The four bundles that a namespace gets by default.
QUARTERS = [0x00000000, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]


def crc32(data: bytes) -> int:
    """CRC-32 (IEEE 802.3), bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_the_hash_is_that_of_the_full_name() -> None:
    """CRC-32 of domain, namespace and local name; a partition's own name counts, in UTF-8."""
    for text in ("persistent://apache/pulsar/test-topic-partition-1", "non-persistent://t/n/ä b"):
        assert parse_topic(text).hash == crc32(text.encode())
    assert parse_topic("my-topic").hash == crc32(b"persistent://public/default/my-topic")


@pytest.mark.parametrize(
    ("text", "local", "topic"),
    [
        ("topic://t1/seg/hot", "hot", "topic://t1/seg/hot"),
        ("topic://t1/seg/hot-partition-3", "hot-partition-3", "topic://t1/seg/hot-partition-3"),
        ("segment://t1/seg/hot/0000-7fff-0", "hot/0000-7fff-0", "topic://t1/seg/hot"),
        ("segment://t1/seg/hot/ffff-ffff-12", "hot/ffff-ffff-12", "topic://t1/seg/hot"),
        ("segment://t1/seg/a/b/0000-ffff-9", "a/b/0000-ffff-9", "topic://t1/seg/a/b"),
    ],
)
def test_names_of_scalable_topics(text: str, local: str, topic: str) -> None:
    """Pulsar 5.0: the hash is that of the whole name, and neither a scalable topic nor a segment is a partition."""
    name = parse_topic(text)
    assert (str(name), name.namespace, name.local, name.partition) == (text, "t1/seg", local, -1)
    assert name.scalable and str(name.scalable_topic) == topic
    assert name.hash == crc32(text.encode())
    assert is_topic(text)


@pytest.mark.parametrize(
    "text",
    [
        "segment://t1/seg/hot",
        "segment://t1/seg/0000-7fff-0",
        "segment://t1/seg//0000-7fff-0",
        "segment://t1/seg/hot//0000-7fff-0",
        "segment://t1/seg/hot/",
        "segment://t1/seg/hot/0000-7fff",
        "segment://t1/seg/hot/0000-7fff-",
        "segment://t1/seg/hot/0000-7fff--1",
        "segment://t1/seg/hot/0000-7fff-00",
        "segment://t1/seg/hot/0000-7fff-0 ",
        "segment://t1/seg/hot/0000-7fff-0\n",
        "segment://t1/seg/hot/0000-7fff-١",
        "segment://t1/seg/hot/0000-7FFF-0",
        "segment://t1/seg/hot/000-7fff-0",
        "segment://t1/seg/hot/00000-7fff-0",
        "segment://t1/seg/hot/7fff-0000-0",
        "segment://t1/seg/hot/0000-7fff-99999999999999999999",
        "segment://t1/seg",
        "segment://t1",
        "segment://",
        "topic://",
        "topic://t1",
        "topic://t1/seg",
        "topic://t1/seg/",
        "topic:///seg/hot",
        "topics://t1/seg/hot",
        "Topic://t1/seg/hot",
        "SEGMENT://t1/seg/hot/0000-7fff-0",
        " topic://t1/seg/hot",
    ],
)
def test_invalid_names_of_scalable_topics(text: str) -> None:
    """The error quotes the name and shows a valid one."""
    with pytest.raises(ValueError, match=r"is not (a topic name|the name of a segment); expected \w+://tenant/"):
        parse_topic(text)
    assert not is_topic(text)


def test_s02_a_name_longer_than_any_request_is_not_a_topic() -> None:
    """Statistics of a broker may hold 100 MB in one name, and encoding that for a path would stop the loop."""
    with pytest.raises(ValueError, match="not a topic name") as caught:
        parse_topic("persistent://t/n/" + "x" * 40_000)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("topic_hash", "name"),
    [
        (0x00000000, "0x00000000_0x40000000"),
        (0x3FFFFFFF, "0x00000000_0x40000000"),
        (0x40000000, "0x40000000_0x80000000"),
        (0xC0000000, "0xc0000000_0xffffffff"),
        (0xFFFFFFFF, "0xc0000000_0xffffffff"),
    ],
)
def test_a_topic_is_in_the_bundle_of_its_hash(topic_hash: int, name: str) -> None:
    """The lower end belongs to a bundle and the upper one to the next; the last bundle is closed at both ends."""
    assert str(bundle_for_hash("apache/pulsar", QUARTERS, topic_hash)) == f"apache/pulsar/{name}"


LONG, SHORT, OTHER = "bb1:8080", "b1:8080", "c1:8080"
AT_ONCE: dict[str, Any] = {**EAGER, "transfer_hit_count": 0, "move_price": 0, "threshold_percent": 5}


def planned(mode: str, hot: str, cold: str, *, third: float, **params: Any) -> Plan:
    """The plan for a hot and an idle broker, and a third one."""
    small = {bundle_name(number): 0.1 for number in range(7)}
    reports = [
        report(hot, small),
        report(cold, {bundle_name(50): 0.02}),
        report(OTHER, {bundle_name(60 + number): third / 2 for number in range(2)}),
    ]
    return run(replace(snapshot(sorted(reports, key=lambda r: r.broker_id)), mode=mode), **{**AT_ONCE, **params}).plan


def ways(plan: Plan) -> set[tuple[str, str]]:
    """(source, target) of the moves."""
    return {(move.source, move.target) for move in plan.moves}


@pytest.mark.parametrize("strategy", ["avg", "threshold", "transfer"])
def test_the_plan_goes_another_way(strategy: str) -> None:
    """The idle broker is the best target, and brokers would answer 500: the third one takes some of it."""
    assert (LONG, SHORT) in ways(planned("modular", LONG, SHORT, third=0.1, strategy=strategy))
    way_set = ways(planned("extensible", LONG, SHORT, third=0.1, strategy=strategy))
    assert (LONG, OTHER) in way_set
    assert (LONG, SHORT) not in way_set


@pytest.mark.parametrize("strategy", ["avg", "threshold", "transfer"])
def test_the_other_way_round_is_no_trouble(strategy: str) -> None:
    assert (SHORT, LONG) in ways(planned("extensible", SHORT, LONG, third=0.1, strategy=strategy))


def test_which_ids_are_alike() -> None:
    """Row to rows; an id is not alike itself."""
    assert find_alike([LONG, SHORT, OTHER, "1:8080"]) == {0: [1, 3], 1: [3], 2: [3]}
    assert find_alike(["10.0.0.1:8080", "110.0.0.1:8080", "10.0.0.2:8080"]) == {1: [0]}
    assert find_alike(["a:1", "b:1"]) == {}


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (1e7, 4, "10,000,000"),
        (-1234.5, 4, "-1,234"),
        (1800.0, 2, "1,800"),
        (999.6, 2, "1000"),
        (123.456, 4, "123.5"),
        (120.0, 4, "120"),
        (0.25, 4, "0.25"),
        (0.000123456, 3, "0.000123"),
        (-4.5e-06, 4, "-0.0000045"),
        (4.5e-07, 4, "0"),
        (0.0, 4, "0"),
    ],
)
def test_figures_have_no_exponent(value: float, digits: int, written: str) -> None:
    assert figure(value, digits) == written


def test_one_and_many() -> None:
    assert (numbered(1, "bundle", "leave"), numbered(2, "bundle", "leave")) == ("1 bundle leaves", "2 bundles leave")


def test_the_nearest_broker_is_one_of_the_same_host() -> None:
    """Rule: a wrong port is nearer than a wrong host, however alike the letters are."""
    expected_keys = ["127.0.1.1:31332", "127.0.1.3:23584", "127.0.1.8:8080"]
    assert unknown_broker("127.0.1.1:8080", expected_keys) == "no broker '127.0.1.1:8080'; nearest: 127.0.1.1:31332"
    assert unknown_broker("127.0.1.9:8080", expected_keys).startswith(
        "no broker '127.0.1.9:8080'; nearest: 127.0.1.8:8080"
    )
